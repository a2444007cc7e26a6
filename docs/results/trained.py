"""Networks trained end to end: ``python docs/results/trained.py ASSETS [--network resnet50]``.

EfficientNet-lite0 or ResNet-50 from ImageNet weights on photographs at 64 px, and a small network
from scratch on drawn characters. ASSETS is the folder with ``grocery_store``, ``cub_birds`` and
``weights``. An interrupted run resumes; ``make.py`` makes the tables from the records.
"""

import argparse
from dataclasses import replace
from pathlib import Path

RECORDS = Path(__file__).resolve().parent / "records" / "trained"
# Network -> file of its weights.
NETWORKS = {
    "tf_efficientnet_lite0": "tf_efficientnet_lite0",
    "resnet50": "resnet50_imagenet_fp16",
}
NETWORK = "tf_efficientnet_lite0"
METHODS = ("Flat-CE", "Hier-CE", "H2EDL")
DATASETS = ("grocery_store", "cub_birds", "glyphs")
EPOCHS = 20
SEEDS = (0, 1, 2)
SHORT = 5  # epochs, to see how fast a method learns
SCRATCH = {
    "image_size": 32,
    "learning_rate": 0.01,
    "recipe__augmentation": "none",
    "recipe__backbone_lr_scale": 1.0,
    "recipe__warmup_epochs": 1.0,
}


def load(name, assets):
    """Return a data set by its name."""
    from skh2edl.datasets import load_cub, load_grocery_store, make_glyphs

    if name == "glyphs":
        return make_glyphs(6000, image_size=SCRATCH["image_size"], random_state=0)
    return load_cub(assets / name) if name == "cub_birds" else load_grocery_store(assets / name)


def experiments(dataset, methods=METHODS, recipe="fine_grained", network=NETWORK, seeds=SEEDS):
    """List the runs: the usual epochs, few of them, and twice as many."""
    from skh2edl.benchmark import finetuned_protocol

    drawn = dataset == "glyphs"
    usual = finetuned_protocol(
        dataset,
        "test_resnet" if drawn else network,
        weights=None if drawn else NETWORKS[network],
        parameters=SCRATCH if drawn else {"image_size": 64, "recipe": recipe},
        epochs=EPOCHS,
        seeds=seeds,
        methods=methods,
        tables=["main"],
    )
    few = [replace(run, epochs=SHORT, budget=0) for run in usual]
    twice = [replace(run, epochs=2 * EPOCHS, budget=2) for run in usual]
    return sorted([*usual, *few, *twice], key=lambda run: run.seed * (1 + run.budget // 2))


def main():
    """Run what has no record yet."""
    from skh2edl.benchmark import run_experiments
    from skh2edl.benchmark.protocols import METHODS as EVERY
    from skh2edl.utils.memory import keep_freed_memory

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=[*DATASETS])
    parser.add_argument("--network", choices=[*NETWORKS], default=NETWORK)
    parser.add_argument("--methods", nargs="+", choices=[*EVERY], default=[*METHODS])
    parser.add_argument("--recipe", choices=["fine_grained", "paper"], default="fine_grained")
    parser.add_argument("--epochs", nargs="+", type=int, default=[SHORT, EPOCHS, 2 * EPOCHS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[*SEEDS])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    keep_freed_memory()
    weights = options.assets / "weights" / f"{NETWORKS[options.network]}.safetensors"
    for dataset in options.datasets:
        machine = {"hardware__n_workers": 0}
        runs = experiments(dataset, options.methods, options.recipe, options.network, options.seeds)
        run_experiments(
            [run for run in runs if run.epochs in options.epochs],
            load(dataset, options.assets),
            RECORDS,
            machine=machine if dataset == "glyphs" else machine | {"weights": str(weights)},
            n_jobs=options.jobs,
        )


if __name__ == "__main__":
    main()
