"""Networks trained end to end: ``python docs/results/trained.py ASSETS [--jobs N]``.

EfficientNet-lite0 from ImageNet weights on photographs at 64 px, and a small network from scratch
on drawn characters. ASSETS is the folder with ``grocery_store``, ``cub_birds`` and ``weights``. The
run resumes where it was interrupted; ``make.py`` makes the tables from the records.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

RECORDS = Path(__file__).resolve().parent / "records" / "trained"
NETWORK = "tf_efficientnet_lite0"
METHODS = ("Flat-CE", "Hier-CE", "H2EDL")
EPOCHS = {"grocery_store": 20, "cub_birds": 20}
SEEDS = {"grocery_store": (0, 1, 2), "cub_birds": (0,)}
SHORT = 5  # epochs, for how fast a method learns


def load_cub(folder):
    """Return the birds, with a stratified tenth of the training images for validation."""
    from sklearn.model_selection import train_test_split

    from skh2edl.datasets import load_table

    data = load_table(
        folder / "index.csv",
        image_column="path",
        label_columns=["order", "family", "species"],
        split_column="split",
    )
    train = np.flatnonzero(data.split == "train")
    _, held = train_test_split(train, test_size=0.1, random_state=0, stratify=data.labels[train])
    split = data.split.copy()
    split[held] = "val"
    return replace(data, name="cub_birds", split=split)


def experiments(dataset, methods=METHODS):
    """List the runs: the usual epochs, twice as many, and few, most important first."""
    from skh2edl.benchmark import finetuned_protocol

    options = {"weights": NETWORK, "parameters": {"image_size": 64}, "methods": methods}
    usual = finetuned_protocol(
        dataset,
        NETWORK,
        epochs=EPOCHS[dataset],
        seeds=SEEDS[dataset],
        tables=["main"],
        **options,
    )
    first = [run for run in usual if run.seed == 0]
    few = [replace(run, epochs=SHORT, budget=0) for run in first]
    twice = [replace(run, epochs=2 * EPOCHS[dataset], budget=2) for run in first]
    return [*first, *few, *twice, *usual[len(first) :]]


def main():
    """Run what has no record yet."""
    from skh2edl.benchmark import run_experiments
    from skh2edl.datasets import load_grocery_store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    parser.add_argument("--datasets", nargs="+", default=[*EPOCHS])
    parser.add_argument("--methods", nargs="+", default=[*METHODS])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    weights = options.assets / "weights" / f"{NETWORK}.safetensors"
    for dataset in options.datasets:
        load = load_cub if dataset == "cub_birds" else load_grocery_store
        run_experiments(
            experiments(dataset, options.methods),
            load(options.assets / dataset),
            RECORDS,
            machine={"weights": str(weights), "n_workers": 0},
            n_jobs=options.jobs,
        )


if __name__ == "__main__":
    main()
