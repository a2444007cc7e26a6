"""Sections of bench_speed.py that run a network: fine-tuning, its options, features of files."""

import tempfile
import time
from pathlib import Path

import numpy as np
from turns import balanced_tree, row, take_turns


def photographs(folder, n, side):
    """Write smooth random pictures, whose JPEG files are about as large as those of photographs."""
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = []
    for i in range(n):
        small = rng.integers(0, 256, (side // 12, side // 12, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
        paths.append(str(Path(folder) / f"{side}_{i}.jpg"))
        picture.save(paths[-1], quality=90)
    return paths


def bare_epoch(name, X, target):
    """Return the seconds of the second epoch of a bare loop, with a new model as in a fit."""
    import timm
    import torch

    from skh2edl.images import image_source, make_loader, make_transform

    model = timm.create_model(name, num_classes=81).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = make_loader(
        image_source(X),
        make_transform({"input_size": (3, 64, 64)}, "timm"),
        batch_size=64,
        shuffle=True,
        persistent_workers=True,
    )
    mean, std = (
        torch.tensor(v).view(1, 3, 1, 1) * 255
        for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    for _ in range(2):
        started = time.perf_counter()
        for images, positions in loader:
            inputs = (images.float() - mean) / std
            loss = torch.nn.functional.cross_entropy(model(inputs), target[positions])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - started
    return seconds


def bench_finetuning():
    """Images a second of an epoch, against a bare loop with the same loader."""
    import torch

    from skh2edl import H2EDLClassifier

    tree = balanced_tree(81, 3)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        # Enough steps that the start of an epoch, where no image is ready yet, counts for little.
        for name, n in (("resnet18", 1024), ("resnet50", 512)):
            arrays = rng.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)
            for kind, X in (("arrays", arrays), ("JPEG paths", photographs(folder, n, 300))):
                y = np.array(tree.leaves)[np.arange(n) % 81]
                clf = H2EDLClassifier(
                    tree,
                    backbone=name,
                    weights=None,
                    image_size=64,
                    # The second epoch counts, of both: the first one allocates memory.
                    max_epochs=2,
                    validation_fraction=None,
                    random_state=0,
                )
                seconds = {"ours": [], "baseline": []}
                for _ in range(7):
                    seconds["baseline"].append(bare_epoch(name, X, torch.arange(n) % 81))
                    seconds["ours"].append(clf.fit(X, y).history_["seconds"][1])
                yield row(
                    f"fine-tuning {name}, 64 px, {kind}",
                    "bare loop, same loader",
                    "≥ 0.97",
                    seconds,
                    better="more",
                )


def bench_extraction():
    """Features of JPEG files, against Pillow and timm in a loop."""
    import timm
    import torch
    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    from skh2edl import ImageFeatureExtractor

    with tempfile.TemporaryDirectory() as folder:
        extractor = ImageFeatureExtractor("resnet18", weights=None, random_state=0)
        for side, n in ((300, 192), (1000, 192)):
            paths = photographs(folder, n, side)
            extractor.fit(paths)
            model = timm.create_model("resnet18", num_classes=0).eval()
            model.load_state_dict(extractor.backbone_.model.state_dict())
            transform = create_transform(**resolve_data_config({}, model=model))
            results = {}

            def baseline(paths=paths, model=model, transform=transform, results=results):
                parts = []
                with torch.inference_mode():
                    for start in range(0, len(paths), 64):
                        images = [
                            transform(Image.open(path).convert("RGB"))
                            for path in paths[start : start + 64]
                        ]
                        parts.append(model(torch.stack(images)).numpy())
                results["baseline"] = np.concatenate(parts)

            def ours(paths=paths, results=results):
                results["ours"] = extractor.transform(paths)

            seconds = take_turns(baseline, ours)
            a, b = results["baseline"], results["ours"]
            cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            yield row(
                f"features of {side} px JPEG files, resnet18",
                "Pillow and timm in a loop",
                "≥ 1",
                seconds,
                better="more",
                **{"least cosine of the features": float(cosine.min())},
            )


def bench_options():
    """An epoch with an option, against one without."""
    from skh2edl import H2EDLClassifier, Hardware

    tree = balanced_tree(81, 3)
    X = np.random.default_rng(0).integers(0, 256, (64, 64, 64, 3), dtype=np.uint8)
    y = np.array(tree.leaves)[np.arange(64)]

    def seconds_of(**hardware):
        clf = H2EDLClassifier(
            tree,
            backbone="resnet18",
            weights=None,
            image_size=64,
            batch_size=32,
            # The first epoch compiles, and does not count.
            max_epochs=2,
            validation_fraction=None,
            random_state=0,
            hardware=Hardware(**hardware),
        )
        return clf.fit(X, y).history_["seconds"][1]

    for name, options in (
        ("bfloat16", {"precision": "bf16-mixed"}),
        ("torch.compile", {"compile": True}),
    ):
        seconds = {"ours": [], "baseline": []}
        for _ in range(7):
            seconds["baseline"].append(seconds_of(precision="32-true"))
            seconds["ours"].append(seconds_of(**{"precision": "32-true", **options}))
        yield row(
            f"fine-tuning resnet18, 64 px, arrays, {name}",
            "the same without, in float32",
            "none: off by default here",
            seconds,
            better="more",
        )
