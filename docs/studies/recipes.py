"""Choose the recipe of networks trained end to end, for Flat-CE, on validation data only.

    python docs/studies/recipes.py run ASSETS [--sets NAME ...] [--candidates NAME ...]
    python docs/studies/recipes.py table

Every candidate trains EfficientNet-lite0 from ImageNet weights on photographs of 64 px with the
same number of steps, and some train ResNet-50. Two plain loops of torch stand beside them: the
recipe of TLLib's fine-tuning and the defaults of timm's training script. No test image is read.
Each run writes one JSON record, which is never overwritten: an interrupted study resumes, and
several processes can run at once. ASSETS is the folder with ``cub_birds``,
``grocery_store`` and ``weights``.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "recipes"
TABLE = HERE / "recipes_table.md"
PICTURE = HERE.parent / "pictures" / "recipes.png"
NETWORK = "tf_efficientnet_lite0"
RESNET = "resnet50_imagenet_fp16"  # the file of its weights
SIZE, BATCH = 64, 64
# Set -> data, network, epochs.
SETS = {
    "cub_birds": ("cub_birds", NETWORK, 20),
    "grocery_store, resnet50": ("grocery_store", "resnet50", 8),
}

_MILD = {"scale": (0.35, 1.0)}  # a crop keeps a third of the picture at least
CANDIDATES = {
    "AdamW, backbone x0.1": {"recipe__backbone_lr_scale": 0.1},
    "AdamW, backbone x0.3": {"recipe__backbone_lr_scale": 0.3},
    "AdamW": {"recipe__backbone_lr_scale": 1.0},
    "AdamW, mild crop": {"recipe__backbone_lr_scale": 1.0, "recipe__augmentation": _MILD},
    "AdamW 0.002, mild crop": {
        "learning_rate": 2e-3,
        "recipe__backbone_lr_scale": 1.0,
        "recipe__augmentation": _MILD,
    },
    "AdamW 0.002, warm-up": {
        "learning_rate": 2e-3,
        "recipe__backbone_lr_scale": 1.0,
        "recipe__warmup_epochs": 2.0,
    },
    "AdamW, EMA": {"recipe__backbone_lr_scale": 1.0, "recipe__ema_decay": 0.995},
    "AdamW, label smoothing": {"recipe__backbone_lr_scale": 1.0, "label_smoothing": 0.1},
    "SGD 0.03": {
        "learning_rate": 0.03,
        "recipe__optimizer": "sgd",
        "recipe__weight_decay": 5e-4,
        "recipe__backbone_lr_scale": 1.0,
    },
}
LOOPS = ("TLLib", "timm")


def load(name, assets):
    """Return the data set with the validation images that the results use."""
    sys.path.insert(0, str(HERE.parent / "results"))
    from trained import load as load_results

    data = load_results(name, assets)
    return data.taxonomy, data.subset("train"), data.subset("val")


def fit_candidate(parameters, taxonomy, train, held, network, epochs, weights):
    """Return the validation accuracy after each epoch of a candidate, and NLL of the last."""
    from skh2edl import FlatCEClassifier, metrics

    clf = FlatCEClassifier(taxonomy, backbone=network, weights=weights, image_size=SIZE)
    clf.set_params(max_epochs=epochs, batch_size=BATCH, random_state=0, **parameters)
    clf.set_params(hardware__n_workers=0)
    clf.fit(train.source, train.labels, X_val=held.source, y_val=held.labels)
    proba = clf.predict_proba(held.source)
    nll = metrics.level_nll(held.labels, proba, taxonomy, "leaf")
    return clf.history_["val_score"], float(nll)


def plain_loop(name, taxonomy, train, held, epochs, weights):
    """Return the same of a plain loop: the recipe of TLLib, or timm's defaults."""
    import timm
    import torch
    from safetensors.torch import load_file
    from sklearn.metrics import balanced_accuracy_score
    from timm.data import create_transform
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import param_groups_weight_decay
    from timm.scheduler import CosineLRScheduler

    torch.manual_seed(0)
    classes, y = np.unique(train.labels, return_inverse=True)
    model = timm.create_model(NETWORK, num_classes=0)
    state = load_file(weights)
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith("classifier")})
    head = torch.nn.Linear(model.num_features, len(classes))
    network = torch.nn.Sequential(model, head).to(memory_format=torch.channels_last)
    config = {"input_size": (3, SIZE, SIZE), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    config["interpolation"] = "bicubic"
    steps = epochs * -(-len(y) // BATCH)
    if name == "TLLib":  # SGD 0.01, a tenth for the backbone, divided by 10 after 12 of 20 epochs
        groups = [{"params": model.parameters(), "lr": 1e-3}, {"params": head.parameters()}]
        optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(0.6 * steps)])
        loss_of = torch.nn.CrossEntropyLoss()
        augment = create_transform(**config, is_training=True, scale=(0.2, 1.0), color_jitter=None)
    else:  # SGD 0.1 for 256 images, 5 epochs of warm-up, cosine, label smoothing, colour jitter
        groups = param_groups_weight_decay(network, weight_decay=2e-5)
        optimizer = torch.optim.SGD(groups, lr=0.1 * BATCH / 256, momentum=0.9, nesterov=True)
        warm_up = 5 * steps // epochs
        scheduler = CosineLRScheduler(
            optimizer, steps, warmup_t=warm_up, warmup_lr_init=1e-5, t_in_epochs=False
        )
        loss_of = LabelSmoothingCrossEntropy(0.1)
        augment = create_transform(**config, is_training=True, color_jitter=0.4)
    evaluate = create_transform(**config, crop_pct=0.875)

    def read(data, positions, transform):
        pictures = [transform(data.source.read(int(each)).convert("RGB")) for each in positions]
        return torch.stack(pictures).to(memory_format=torch.channels_last)

    rng, step, scores = np.random.default_rng(0), 0, []
    for _ in range(epochs):
        network.train()
        order = rng.permutation(len(y))
        for start in range(0, len(y), BATCH):
            batch = order[start : start + BATCH]
            loss = loss_of(network(read(train, batch, augment)), torch.from_numpy(y[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if name == "TLLib":
                scheduler.step()
            else:
                scheduler.step_update(step)
        network.eval()
        with torch.no_grad():
            parts = np.array_split(np.arange(len(held)), -(-len(held) // 256))
            logits = torch.cat([network(read(held, part, evaluate)) for part in parts])
        scores.append(balanced_accuracy_score(held.labels, classes[logits.argmax(1)]))
    target = torch.from_numpy(np.searchsorted(classes, held.labels))
    return scores, float(torch.nn.functional.cross_entropy(logits, target))


def run(assets, sets, candidates):
    """Run every candidate that has no record and that no other process is running."""
    import torch

    torch.set_num_threads(1)
    RECORDS.mkdir(parents=True, exist_ok=True)
    for name in sets:
        dataset, network, epochs = SETS[name]
        weights = assets / "weights" / f"{RESNET if network == 'resnet50' else network}.safetensors"
        for candidate in candidates:
            if candidate in LOOPS and network != NETWORK:
                continue
            path = RECORDS / f"{name}-{candidate}.json".replace(" ", "_")
            lock = path.with_suffix(".lock")
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            try:
                if not path.exists():
                    data, started = load(dataset, assets), time.perf_counter()
                    if candidate in LOOPS:
                        scores, nll = plain_loop(candidate, *data, epochs, weights)
                    else:
                        own = CANDIDATES[candidate]
                        scores, nll = fit_candidate(own, *data, network, epochs, weights)
                    record = {"set": name, "candidate": candidate, "val_score": scores, "nll": nll}
                    record["seconds"] = round(time.perf_counter() - started, 1)
                    path.write_text(json.dumps(record, indent=1) + "\n")
                    print(f"{path.stem}: {record['seconds']:.0f} s", flush=True)
            finally:
                lock.unlink()


def write_table():
    """Write the table and draw the curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    seen = {(each["set"], each["candidate"]): each for each in records}
    sets = [name for name in SETS if any(key[0] == name for key in seen)]
    heads = [f"{name}: best bAcc %, last bAcc %, NLL" for name in sets]
    lines = ["<!-- Made from records by recipes.py; do not edit. -->", ""]
    lines += [f"| recipe | {' | '.join(heads)} |", f"|---|{'---|' * len(sets)}"]
    for candidate in (*LOOPS, *CANDIDATES):
        cells = []
        for name in sets:
            each = seen.get((name, candidate))
            if each is None:
                cells.append("")
                continue
            scores = 100 * np.array(each["val_score"])
            cells.append(f"{scores.max():.1f}, {scores[-1]:.1f}, {each['nll']:.3f}")
        if any(cells):
            lines.append(f"| {candidate} | {' | '.join(cells)} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")

    figure, axes = plt.subplots(1, len(sets), figsize=(5 * len(sets), 3.6), squeeze=False)
    for axis, name in zip(axes[0], sets, strict=True):
        for candidate in (*LOOPS, *CANDIDATES):
            if (name, candidate) in seen:
                scores = 100 * np.array(seen[name, candidate]["val_score"])
                style = "--" if candidate in LOOPS else "-"
                axis.plot(range(1, len(scores) + 1), scores, style, label=candidate)
        axis.set(title=name, xlabel="epoch", ylabel="validation balanced accuracy %")
    axes[0, -1].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=120)


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("assets", type=Path)
    runs.add_argument("--sets", nargs="+", default=[*SETS])
    runs.add_argument("--candidates", nargs="+", default=[*LOOPS, *CANDIDATES])
    commands.add_parser("table")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.assets, arguments.sets, arguments.candidates)
    write_table()


if __name__ == "__main__":
    main()
