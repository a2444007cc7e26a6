"""Heads on frozen features of photographs: ``python docs/results/frozen.py ASSETS``.

ASSETS is the folder with ``grocery_store``, ``cub_birds`` and ``weights``. The L2 penalty of every
method is chosen on validation images; "nothing chosen" is H2EDL with its defaults. An interrupted
run resumes; ``make.py`` makes the tables from the records.
"""

import argparse
import tempfile
from pathlib import Path

RECORDS = Path(__file__).resolve().parent / "records" / "frozen"
CACHE = Path(tempfile.gettempdir()) / "skh2edl-features"
NETWORKS = {
    "tf_efficientnet_lite0": "tf_efficientnet_lite0",
    "resnet50": "resnet50_imagenet_fp16",
}
METHODS = ("Flat-CE", "Hier-CE", "H2EDL")
SEEDS = (0, 1, 2)
COARSE = 0.75  # fraction of the labels that is cut to the top level
COARSE_METHODS = ("Flat-CE, marginal", "Flat-CE, drop", "H2EDL")


def experiments(dataset, network):
    """List the runs, whole seeds first."""
    from skh2edl.benchmark import frozen_protocol

    options = {"weights": NETWORKS[network], "seeds": SEEDS}
    runs = frozen_protocol(dataset, network, methods=METHODS, tables=["main"], **options)
    for run in frozen_protocol(dataset, network, tables=["coarsened"], **options):
        if run.coarse_fraction == COARSE and run.method in COARSE_METHODS:
            runs.append(run)
    return sorted(runs, key=lambda run: (bool(run.grid), run.seed))


def main():
    """Run what has no record yet."""
    from skh2edl.benchmark import frozen_features_of, run_experiments
    from skh2edl.datasets import load_cub, load_grocery_store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    parser.add_argument("--datasets", nargs="+", default=["grocery_store"])
    parser.add_argument("--networks", nargs="+", default=["tf_efficientnet_lite0"])
    parser.add_argument("--methods", nargs="+", help="rows of the tables; default: all")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    for dataset in options.datasets:
        load = load_cub if dataset == "cub_birds" else load_grocery_store
        data = load(options.assets / dataset)
        for network in options.networks:
            weights = options.assets / "weights" / f"{NETWORKS[network]}.safetensors"
            features = frozen_features_of(data, network, weights=weights, cache=CACHE)
            runs = experiments(dataset, network)
            run_experiments(
                [run for run in runs if run.method in (options.methods or [run.method])],
                data,
                RECORDS,
                features={network: features},
                n_jobs=options.jobs,
            )


if __name__ == "__main__":
    main()
