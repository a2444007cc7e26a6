"""The training loop: devices, precision, schedule, selection, checkpoint, resume, history."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .backbones import parameter_groups
from .checkpoints import CheckpointFile, copy_state
from .images.loading import isolated_rng
from .network import Network


class Loader(Protocol):
    """Batches of (inputs, positions) that depend on the epoch alone."""

    batch_sampler: Any

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Any: ...


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Parameters
    ----------
    max_epochs : int
        Passes over the data at most.
    learning_rate, weight_decay : float
        Of AdamW, for the head.
    warmup_epochs : float
        Epochs over which the learning rate rises, before a cosine takes it to 0.
    layer_decay : float or None
        Each layer below the head learns at this times the rate of the layer above it.
    backbone_lr_scale : float
        Learning rate of the backbone over that of the head.
    clip_norm : float or None
        Largest norm of the gradient.
    ema_decay : float or None
        Decay of the running mean of the weights, which is then the model.
    patience : int or None
        Epochs without a better validation score after which training stops.
    accelerator, devices, strategy, precision : str or int
        As in Lightning Fabric; precision "auto" is bfloat16 where the device computes in it.
    compile : bool
        Whether to run the network through ``torch.compile``.
    seed : int
        What all randomness of the loop derives from.
    verbose : int
        0 is silent, 1 shows a bar over the epochs, 2 also one over the batches.
    """

    max_epochs: int = 100
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup_epochs: float = 0.0
    layer_decay: float | None = None
    backbone_lr_scale: float = 1.0
    clip_norm: float | None = 1.0
    ema_decay: float | None = None
    patience: int | None = None
    accelerator: str = "auto"
    devices: int | str | list[int] = 1
    strategy: str = "auto"
    precision: str = "auto"
    compile: bool = False
    seed: int = 0
    verbose: int = 0


@dataclass
class Progress:
    """Where a run stands after some epochs; all of it goes into a checkpoint."""

    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
    best_score: float = -np.inf
    best_weights: dict[str, Any] | None = None
    stopped: bool = False


def resolve_precision(precision: str) -> str:
    """Choose the precision for "auto": bfloat16 where the hardware computes in it."""
    if precision != "auto":
        return precision
    # Without native bfloat16 a processor is many times slower with it than without.
    return (
        "bf16-mixed" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"
    )


def train(
    network: Network,
    loader: Loader,
    targets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    recipe: Recipe,
    *,
    describe: Callable[[int], str] = "sample {}".format,
    validate: Callable[[Network, torch.device], dict[str, float]] | None = None,
    checkpoint: CheckpointFile | None = None,
    on_epoch: Callable[[Network, dict[str, float]], bool] | None = None,
) -> Progress:
    """Train a network and leave the best (or last) weights in it.

    Parameters
    ----------
    network : Network
        Trained in place; on the CPU before and after.
    loader : Loader
        Batches of inputs and their positions.
    targets : ndarray of int64 of shape (n_samples,)
        Target node of each position.
    weights : ndarray of shape (n_samples,)
        Weight of each position.
    recipe : Recipe
        How to train.
    describe : callable
        Names a position in an error message.
    validate : callable, default=None
        Takes the network and its device and returns scores, of which "val_score" selects the
        epoch that is kept. None keeps the last epoch.
    checkpoint : CheckpointFile, default=None
        Where to go on from, and what to write after each epoch.
    on_epoch : callable, default=None
        Called after each epoch with the network and its record; True stops training.

    Returns
    -------
    progress : Progress
    """
    from lightning_fabric import Fabric
    from timm import optim
    from timm.scheduler.scheduler_factory import create_scheduler_v2
    from timm.utils.model_ema import ModelEmaV3

    fabric = Fabric(
        accelerator=recipe.accelerator,
        devices=recipe.devices,
        strategy=recipe.strategy,
        precision=resolve_precision(recipe.precision),  # type: ignore[arg-type]
    )
    groups = _groups(network, recipe)
    optimizer = optim.create_optimizer_v2(  # type: ignore[attr-defined]
        groups, opt="adamw", lr=recipe.learning_rate, fused=fabric.device.type == "cuda"
    )
    n_batches = max(len(loader), 1)
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched="cosine",
        num_epochs=recipe.max_epochs,
        warmup_epochs=recipe.warmup_epochs,  # type: ignore[arg-type]
        warmup_lr=0.0,
        warmup_prefix=True,
        step_on_epochs=False,
        updates_per_epoch=n_batches,
    )
    ema = None if recipe.ema_decay is None else ModelEmaV3(network, decay=recipe.ema_decay)

    progress = Progress()
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        progress = Progress(**saved["progress"])
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        fabric.strategy.precision.load_state_dict(saved["precision"])
        if ema is not None:
            ema.module.load_state_dict(saved["ema"])

    wrapped: Any = torch.compile(network) if recipe.compile else network
    module, optimizer = fabric.setup(cast(nn.Module, wrapped), optimizer)
    if ema is not None:
        ema.to(fabric.device)

    def run_epoch(epoch: int) -> Tensor:
        """One pass over the data; no value is read back from the device before its end."""
        loader.set_epoch(epoch)
        batch_losses = []
        module.train()
        for batch, (inputs, positions) in enumerate(_bar(loader, recipe.verbose > 1)):
            scheduler.step_update(epoch * n_batches + batch)
            prepared = network.head.prepare(targets[positions]).to(fabric.device)
            weight = torch.as_tensor(weights[positions], dtype=torch.float32)
            weight = weight.to(fabric.device, non_blocking=True)
            inputs = inputs.to(fabric.device, non_blocking=True)
            losses = module(inputs, prepared, epoch + batch / n_batches)
            # Over all processes, so that their number does not change the step.
            total: Any = fabric.all_reduce(weight.sum(), reduce_op="sum")
            loss = (weight * losses).sum() / total.clamp(min=1e-12)
            fabric.backward(loss * fabric.world_size)
            if recipe.clip_norm is not None:
                fabric.clip_gradients(
                    module, optimizer, max_norm=recipe.clip_norm, error_if_nonfinite=False
                )
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if ema is not None:
                ema.update(network, step=epoch * n_batches + batch)
            batch_losses.append(loss.detach())
        return torch.stack(batch_losses) if batch_losses else torch.zeros(1)

    epochs = range(progress.epoch, 0 if progress.stopped else recipe.max_epochs)
    with _bar(epochs, recipe.verbose > 0, "epoch") as bar:
        for epoch in bar:
            started = time.perf_counter()
            with isolated_rng(_epoch_seed(recipe.seed, epoch)):
                batch_losses = run_epoch(epoch).cpu()
            _check_finite(batch_losses, epoch, loader, describe)
            record = {"epoch": epoch, "loss": float(batch_losses.mean())}
            trained = network if ema is None else ema.module
            if validate is not None:
                record |= validate(trained, fabric.device)
                if progress.best_weights is None or record["val_score"] > progress.best_score:
                    progress.best_epoch, progress.best_score = epoch, record["val_score"]
                    progress.best_weights = copy_state(trained)
            record |= {"learning_rate": optimizer.param_groups[-1]["lr"]}
            record |= {"seconds": time.perf_counter() - started}
            progress.history.append(record)
            progress.epoch = epoch + 1
            patience_over = recipe.patience is not None and (
                validate is not None and epoch - progress.best_epoch >= recipe.patience
            )
            progress.stopped = bool(on_epoch is not None and on_epoch(trained, record))
            progress.stopped |= patience_over
            if checkpoint is not None and fabric.is_global_zero:
                state = {
                    "progress": vars(progress).copy(),
                    "network": copy_state(network),
                    "optimizer": optimizer.state_dict(),
                    "precision": fabric.strategy.precision.state_dict(),
                    "ema": None if ema is None else ema.module.state_dict(),
                }
                checkpoint.save(state)
            bar.set_postfix(
                {key: f"{value:.4g}" for key, value in record.items() if key != "epoch"}
            )
            if progress.stopped:
                break

    if progress.best_weights is not None:
        network.load_state_dict(progress.best_weights)
    elif ema is not None:
        network.load_state_dict(ema.module.state_dict())
    network.to("cpu").eval()
    return progress


def _groups(network: Network, recipe: Recipe) -> list[dict[str, Any]]:
    if network.backbone is not None:
        return parameter_groups(
            network.backbone,
            network.head,
            weight_decay=recipe.weight_decay,
            layer_decay=recipe.layer_decay,
            backbone_lr_scale=recipe.backbone_lr_scale,
        )
    trained = [parameter for parameter in network.head.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _epoch_seed(seed: int, epoch: int) -> int:
    return int(np.random.default_rng((seed, epoch)).integers(2**62))


def _bar(items: Any, shown: bool, unit: str = "batch") -> Any:
    from tqdm.auto import tqdm

    return tqdm(items, disable=not shown, unit=unit, leave=unit == "epoch")


def _check_finite(
    batch_losses: Tensor, epoch: int, loader: Any, describe: Callable[[int], str]
) -> None:
    broken = torch.nonzero(~torch.isfinite(batch_losses)).flatten().tolist()
    if not broken:
        return
    names: Sequence[str] = []
    for batch, members in enumerate(loader.batch_sampler):
        if batch == broken[0]:
            names = [describe(position) for _, position in members[:5]]
    raise FloatingPointError(
        f"The loss became NaN or infinite in epoch {epoch}, batch {broken[0]}, which begins with "
        f"{', '.join(names)}. Lower learning_rate, set clip_norm, or check these samples. The "
        "checkpoint of the epoch before, if there is one, is intact."
    )
