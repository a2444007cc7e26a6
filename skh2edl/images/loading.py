"""Batches in an order and with an augmentation that depend on seed and epoch alone."""

import contextlib
import copy
import multiprocessing
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from ..utils.processes import unguarded_script, warn_once
from ..utils.randomness import isolated_rng, sample_seed
from .sources import ArraySource, BadImageError, ImageSource, ItemSource, bad_image
from .transforms import ImageTransform


class ImageBatch(NamedTuple):
    """Images (n, 3, H, W) uint8, channels last in memory, and their positions in the source."""

    images: torch.Tensor
    positions: torch.Tensor


class _Fetched(NamedTuple):
    batch: ImageBatch
    bad: list[tuple[int, str]]


class ImageDataset(Dataset):
    """A torch data set over a source; a key is a position, or (epoch, position).

    The epoch travels in the key because workers that live on would not see it change here.
    """

    def __init__(self, source: ImageSource, transform: ImageTransform, seed: int = 0) -> None:
        self.source = source
        self.transform = transform
        self.seed = seed

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[torch.Tensor, int]:
        key = key if isinstance(key, tuple) else (0, key)
        (images, positions), bad = self.__getitems__([key])
        if bad:
            raise BadImageError(bad[0][1])
        return images[0], int(positions[0])

    def __getitems__(self, keys: Sequence[tuple[int, int]]) -> _Fetched:
        source = self.source
        if isinstance(source, ArraySource) and (
            source.is_prepared or self.transform.keeps(source.size)
        ):
            positions = [position for _, position in keys]
            return _Fetched(_as_batch(source.stack(positions), positions), [])
        pixels = np.empty((len(keys), *self.transform.size, 3), dtype=np.uint8)
        good: list[int] = []
        bad: list[tuple[int, str]] = []
        context = isolated_rng() if self.transform.random else contextlib.nullcontext(None)
        with context as reseed:
            for epoch, position in keys:
                try:
                    image = source.read(position, self.transform.min_side)
                    self._check_shape(image, position)
                except BadImageError as error:
                    bad.append((position, str(error)))
                    continue
                if reseed is not None:
                    reseed(sample_seed(self.seed, epoch, position))
                pixels[len(good)] = self.transform(image)
                good.append(position)
        return _Fetched(_as_batch(pixels[: len(good)], good), bad)

    def _check_shape(self, image: Image.Image, position: int) -> None:
        """Refuse a strip that resizing its short side would blow up."""
        short, long = sorted(image.size)
        if long / short * max(self.transform.size) ** 2 > self.source.max_pixels:
            raise bad_image(
                self.source.describe(position), f"{long} x {short} pixels is too narrow to resize"
            )


def _as_batch(pixels: np.ndarray, positions: Sequence[int]) -> ImageBatch:
    # HWC pixels seen as CHW are channels-last memory: no copy.
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return ImageBatch(images, torch.as_tensor(positions, dtype=torch.int64))


class EpochSampler(Sampler[list[tuple[int, int]]]):
    """Batches of (epoch, position), a pure function of seed and epoch."""

    def __init__(
        self,
        n: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = False,
        rank: int = 0,
        n_ranks: int = 1,
    ) -> None:
        self.n, self.batch_size, self.seed, self.shuffle = n, batch_size, seed, shuffle
        self.rank, self.n_ranks = rank, n_ranks
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.epoch = epoch

    def order(self) -> np.ndarray:
        """Give the positions of the whole epoch in their order."""
        if not self.shuffle:
            return np.arange(self.n)
        return np.random.default_rng((self.seed, self.epoch)).permutation(self.n)

    def members(self, batch: int) -> list[int]:
        """Give the positions of one batch of the whole epoch, over all processes."""
        positions: list[int] = self.order()[batch * self.batch_size :][: self.batch_size].tolist()
        return positions

    def __len__(self) -> int:
        return -(-self.n // self.batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order, epoch = self.order().tolist(), self.epoch
        for start in range(0, self.n, self.batch_size):
            # Every process takes its part of the same global batch, however many there are.
            positions = order[start : start + self.batch_size]
            yield [(epoch, position) for position in positions[self.rank :: self.n_ranks]]


class ImageLoader(DataLoader):
    """A torch DataLoader of `ImageBatch` that deals with bad images; made by `make_loader`.

    Attributes
    ----------
    bad : dict of int to str
        Position and message of every image skipped so far.
    """

    def __init__(self, *args: Any, on_bad_image: str = "error", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_bad_image = on_bad_image
        self.bad: dict[int, str] = {}

    @property
    def n_samples(self) -> int:
        """Number of images of the source, bad ones included."""
        return len(self.dataset)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]

    def _fetch(self) -> Iterator[_Fetched]:
        try:
            yield from super().__iter__()
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise RuntimeError(
                f"A process that reads images ended ({str(error).splitlines()[0].rstrip('.')}). "
                "Most often memory ran out: lower n_workers or batch_size; n_workers=0 reads in "
                "the process itself. If new processes are spawned, a script must do its work under "
                "'if __name__ == \"__main__\":'. A checkpoint of the epoch before, if there is "
                "one, is intact."
            ) from error

    def __iter__(self) -> Iterator[ImageBatch]:  # type: ignore[override]
        known = set(self.bad)
        for batch, bad in self._fetch():
            if bad and self.on_bad_image == "error":
                # Raised here and not in a worker, whose traceback would bury the message.
                raise BadImageError(bad[0][1])
            self.bad |= dict(bad)
            # Other processes wait for their turn even when this one has nothing to show.
            if len(batch.positions) or self.batch_sampler.n_ranks > 1:  # type: ignore[union-attr]
                yield batch
        if news := sorted(self.bad.keys() - known):
            source = self.dataset.source  # type: ignore[attr-defined]
            names = ", ".join(source.describe(position) for position in news[:5])
            warnings.warn(
                f"{len(news)} of {len(source)} images could not be read and are skipped, "
                f"first {names}.",
                UserWarning,
                stacklevel=2,
            )


def default_n_workers(source: ImageSource, batch_size: int = 1) -> int:
    """Choose how many processes decode: none for images in memory or few files.

    Examples
    --------
    >>> from skh2edl.images import image_source
    >>> default_n_workers(image_source(np.zeros((4, 8, 8), dtype=np.uint8)))
    0
    """
    process = multiprocessing.current_process()
    if source.in_memory or len(source) < max(64, 2 * batch_size):
        return 0
    # Inside a parallel search the cores are taken, and daemons may not have children.
    if process.daemon or process.name.startswith("Loky"):
        return 0
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # One worker only adds the transfer between processes.
    return 0 if not n_cores or n_cores < 2 else min(8, max(2, n_cores // 2))


def make_loader(
    source: ImageSource,
    transform: ImageTransform,
    *,
    batch_size: int = 64,
    shuffle: bool = False,
    seed: int = 0,
    n_workers: int | None = None,
    on_bad_image: str = "error",
    persistent_workers: bool = False,
    rank: int = 0,
    n_ranks: int = 1,
) -> ImageLoader:
    """Make a loader whose batches depend on seed and epoch alone.

    Order and augmentation are the same for any number of workers, and the global generators are
    left as they were.

    Parameters
    ----------
    source : ImageSource
    transform : ImageTransform
    batch_size : int, default=64
        Images of a batch over all processes.
    shuffle : bool, default=False
    seed : int, default=0
    n_workers : int, default=None
        Processes that decode. None lets `default_n_workers` choose. A script without a guard reads
        in its own process where new ones are spawned.
    on_bad_image : {"error", "skip"}, default="error"
        "skip" leaves bad images out of the batches, notes them in `loader.bad`, and warns once at
        the end of a pass. Callers that need a row for every image fill it by `batch.positions`.
    persistent_workers : bool, default=False
        Keep the workers from pass to pass.
    rank, n_ranks : int, default=0 and 1
        The part of each batch that this process loads.

    Returns
    -------
    loader : ImageLoader
        Gives `ImageBatch` (images, positions); `loader.set_epoch` chooses the epoch of a pass.

    Examples
    --------
    >>> from skh2edl.images import image_source, make_transform
    >>> source = image_source(np.zeros((5, 8, 8, 3), dtype=np.uint8))
    >>> transform = make_transform({"input_size": (3, 8, 8), "crop_pct": 1.0})
    >>> [tuple(batch.images.shape) for batch in make_loader(source, transform, batch_size=3)]
    [(3, 3, 8, 8), (2, 3, 8, 8)]
    """
    if on_bad_image not in ("error", "skip"):
        raise ValueError(f"on_bad_image must be 'error' or 'skip', got {on_bad_image!r}.")
    if n_workers is None:
        n_workers = default_n_workers(source, batch_size)
    if n_workers and (reason := unguarded_script()):
        warn_once(f"{reason}, so images are read in this process. Add it to read in parallel.")
        n_workers = 0
    if n_workers and isinstance(source, ItemSource):
        source.preload()
    return ImageLoader(
        ImageDataset(source, transform, seed),
        batch_sampler=EpochSampler(
            len(source), batch_size, seed=seed, shuffle=shuffle, rank=rank, n_ranks=n_ranks
        ),
        num_workers=n_workers,
        collate_fn=copy.copy,  # nothing to do, by a function that spawned workers can import
        pin_memory=torch.cuda.is_available(),
        persistent_workers=persistent_workers and n_workers > 0,
        # Without one, every pass would draw its worker seed from the global generator.
        generator=torch.Generator().manual_seed(seed),
        on_bad_image=on_bad_image,
    )
