import os
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform

from skh2edl.images import (
    EpochSampler,
    ImageDataset,
    default_n_workers,
    image_source,
    make_loader,
    make_transform,
)
from skh2edl.utils.randomness import isolated_rng

CONFIG = {
    "input_size": (3, 32, 32),
    "interpolation": "bicubic",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


def photo(width=60, height=40, seed=0):
    """A smooth picture, so that JPEG and rescaling change it little."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def files(tmp_path):
    paths = []
    for i in range(10):
        paths.append(tmp_path / f"{i}.jpg")
        photo(60 + i, 40, seed=i).save(paths[-1], quality=95)
    return paths


def batches(loader):
    return [(batch.images.clone(), batch.positions.tolist()) for batch in loader]


# ------------------------------------------------------------------------------------ transforms


@pytest.mark.parametrize("crop_pct", [0.875, 1.0])
@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
def test_evaluation_equals_the_transform_of_timm(crop_pct, crop_mode):
    config = {**CONFIG, "crop_pct": crop_pct, "crop_mode": crop_mode}
    image = photo(90, 70)
    (batch,) = make_loader(image_source([image]), make_transform(config))
    mean, std = (torch.tensor(config[key]).view(3, 1, 1) for key in ("mean", "std"))
    ours = (batch.images[0] / 255 - mean) / std
    assert torch.allclose(ours, create_transform(**config)(image), atol=1e-6)


def test_training_equals_the_transform_of_timm_from_the_same_seed():
    image = photo(90, 70)
    transform = make_transform(CONFIG, "rand-m9-mstd0.5")
    theirs = create_transform(
        **CONFIG, is_training=True, auto_augment="rand-m9-mstd0.5", normalize=False
    )
    for seed in range(5):
        with isolated_rng(seed):
            ours = transform(image)
        with isolated_rng(seed):
            expected = theirs(image)
        assert np.array_equal(ours.transpose(2, 0, 1), expected.numpy())


def test_no_augmentation_is_the_transform_for_evaluation():
    image = photo(90, 70)
    plain = make_transform(CONFIG)(image)
    assert np.array_equal(make_transform(CONFIG, "none")(image), plain)
    assert not np.array_equal(make_transform(CONFIG, "timm")(image), plain)


@pytest.mark.parametrize(
    "augmentation",
    ["timm", "randaugment", "trivialaugment", "augmix", "original", {"vflip": 1.0, "hflip": 0.0}],
)
def test_augmentations_by_name(augmentation):
    transform = pickle.loads(pickle.dumps(make_transform(CONFIG, augmentation)))
    image = transform(photo(90, 70))
    assert image.shape == (32, 32, 3)
    assert image.dtype == np.uint8


@pytest.mark.parametrize("augmentation", ["randaugment", "augmix", "rand-m10-inc1", "original"])
def test_the_strongest_augmentation_still_gives_a_picture(augmentation):
    # The "inc1" forms posterise to 0 bits within these draws, which Pillow refuses.
    transform = make_transform(CONFIG, augmentation)
    image = photo(32, 32)
    with isolated_rng(0):
        assert all(transform(image).shape == (32, 32, 3) for _ in range(150))


def test_options_of_timm_reach_the_augmentation():
    image = photo(32, 32)
    options = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "hflip": 0.0, "vflip": 1.0}
    flipped = make_transform(CONFIG, options)(image)
    assert np.array_equal(flipped, np.asarray(image)[::-1])


@pytest.mark.parametrize(
    ("augmentation", "match"),
    [
        ("strong", "'strong' is not known.*randaugment"),
        ({"mean": 0}, r"sets \['mean'\]"),
        ({"scales": (0.5, 1)}, r"options \['scales'\], which timm.data.create_transform does not"),
    ],
)
def test_unknown_augmentations_are_refused(augmentation, match):
    with pytest.raises(ValueError, match=match):
        make_transform(CONFIG, augmentation)


@given(
    low=st.floats(0.05, 1.0),
    width=st.integers(40, 2000),
    height=st.integers(40, 2000),
    seed=st.integers(0, 2**31),
)
def test_scaled_decoding_never_makes_a_random_crop_larger_than_its_pixels(low, width, height, seed):
    transform = make_transform(CONFIG, {"scale": (low, 1.0)})
    crop = transform.steps.transforms[0]
    factor = max(1, min(width, height) // transform.min_side)
    image = Image.new("RGB", (width // factor, height // factor))
    with isolated_rng(seed):
        _, _, h, w = crop.get_params(image, crop.scale, crop.ratio)
    if factor > 1 and min(image.size) * 4 / 3 >= max(image.size):
        # One pixel for rounding.
        assert min(h, w) >= 32 - 1


# --------------------------------------------------------------------------- order and randomness


@pytest.mark.parametrize("kind", ["paths", "array", "list"])
def test_batches_do_not_depend_on_workers_or_on_how_often_they_ran(files, kind):
    X = {
        "paths": files,
        "array": np.random.default_rng(0).integers(0, 256, (10, 40, 40, 3), dtype=np.uint8),
        "list": [photo(60, 40 + i, seed=i) for i in range(10)],
    }[kind]
    transform = make_transform(CONFIG, "rand-m9-mstd0.5")
    options = {"batch_size": 3, "shuffle": True, "seed": 5}
    alone = make_loader(image_source(X), transform, n_workers=0, **options)
    crowd = make_loader(image_source(X), transform, n_workers=2, persistent_workers=True, **options)
    first = None
    for epoch in (0, 1, 0):
        alone.set_epoch(epoch)
        crowd.set_epoch(epoch)
        one, two = batches(alone), batches(crowd)
        assert [p for _, p in one] == [p for _, p in two]
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, two, strict=True))
        if first is None:
            first = one
        same = all(torch.equal(a, b) for (a, _), (b, _) in zip(first, one, strict=True))
        assert same == (epoch == 0)


def test_augmentation_of_a_sample_does_not_depend_on_its_batch(files):
    transform = make_transform(CONFIG, "randaugment")
    dataset = ImageDataset(image_source(files), transform, seed=3)
    together = dataset.__getitems__([(2, i) for i in range(10)]).batch.images
    for i in (9, 0, 4):
        image, position = dataset[2, i]
        assert position == i
        assert torch.equal(image, together[i])
    assert not torch.equal(dataset[3, 4][0], together[4])
    other = ImageDataset(image_source(files), transform, seed=4)
    assert not torch.equal(other[2, 4][0], together[4])


@pytest.mark.parametrize("n_workers", [0, 2])
def test_global_generators_stay_untouched(files, n_workers):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the legacy generator is what is under test
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    transform = make_transform(CONFIG, "randaugment")
    batches(make_loader(image_source(files), transform, shuffle=True, n_workers=n_workers))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected  # noqa: NPY002


def test_an_error_inside_restores_the_generators():
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="negative dimension"), isolated_rng(0):
        torch.rand(int(torch.rand(1)) - 1)
    assert torch.equal(torch.get_rng_state(), state)


@given(
    n=st.integers(0, 50),
    batch_size=st.integers(1, 12),
    n_ranks=st.integers(1, 4),
    epoch=st.integers(0, 5),
)
def test_ranks_share_the_batches_of_one_process(n, batch_size, n_ranks, epoch):
    options = {"seed": 1, "shuffle": True}
    whole = EpochSampler(n, batch_size, **options)
    whole.set_epoch(epoch)
    assert sorted(p for batch in whole for _, p in batch) == list(range(n))
    everything = list(whole)
    assert len(whole) == len(everything)
    shares = []
    for rank in range(n_ranks):
        sampler = EpochSampler(n, batch_size, rank=rank, n_ranks=n_ranks, **options)
        sampler.set_epoch(epoch)
        shares.append(list(sampler))
    for i, batch in enumerate(everything):
        assert sorted(batch) == sorted(key for share in shares for key in share[i])


def test_a_process_without_images_in_a_batch_still_gets_the_batch(files):
    loader = make_loader(
        image_source(files[:5]), make_transform(CONFIG), batch_size=4, rank=1, n_ranks=2
    )
    assert [tuple(batch.images.shape) for batch in loader] == [(2, 3, 32, 32), (0, 3, 32, 32)]


# -------------------------------------------------------------------------------------- batches


def test_batches_are_uint8_and_channels_last(files):
    for X in (files, np.zeros((4, 32, 32, 3), dtype=np.uint8)):
        batch = next(iter(make_loader(image_source(X), make_transform(CONFIG))))
        assert batch.images.dtype == torch.uint8
        assert batch.images.is_contiguous(memory_format=torch.channels_last)


def test_arrays_of_the_right_size_skip_pillow_with_the_same_result(monkeypatch):
    array = np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
    transform = make_transform({**CONFIG, "crop_pct": 1.0})
    (slow,) = make_loader(image_source(list(array)), transform)
    monkeypatch.setattr(Image, "fromarray", None)
    (fast,) = make_loader(image_source(array), transform)
    assert torch.equal(fast.images, slow.images)
    assert torch.equal(fast.positions, slow.positions)


def test_images_of_another_size_do_not_take_the_short_cut():
    array = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    (cropped,) = make_loader(image_source(array), make_transform(CONFIG))
    assert not np.array_equal(cropped.images.permute(0, 2, 3, 1).numpy(), array)


def test_pictures_left_open_are_loaded_before_workers_start(files):
    transform = make_transform({**CONFIG, "crop_pct": 1.0})
    (expected,) = make_loader(image_source([Image.open(path).copy() for path in files]), transform)
    pictures = [Image.open(path) for path in files]
    loader = make_loader(image_source(pictures), transform, n_workers=2)
    for path in files:  # whoever reads them now finds nothing
        path.write_bytes(b"")
    (got,) = loader
    assert torch.equal(got.images, expected.images)


def test_default_number_of_workers(files, monkeypatch):
    many = image_source(list(files) * 20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    assert default_n_workers(many) == 8
    assert default_n_workers(many, batch_size=150) == 0
    assert default_n_workers(image_source(files)) == 0
    assert default_n_workers(image_source(np.zeros((500, 8, 8), dtype=np.uint8))) == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    assert default_n_workers(many) == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1), raising=False)
    assert default_n_workers(many) == 0
