"""
Search on a cluster
===================

Search over parameters on the workers of a dask cluster::

    python examples/dask_grid_search.py                              # a cluster on this machine
    python examples/dask_grid_search.py --scheduler tcp://head:8786  # a running cluster

The features are sent to each worker once, whatever the number of candidates and folds.
"""

import argparse
import contextlib

import joblib
from distributed import Client, LocalCluster
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_validate

from skh2edl import H2EDLClassifier, Taxonomy
from skh2edl.scorers import make_level_scorer

# Digits by their strokes: with a loop, with an open bow, or of straight lines.
TREE = Taxonomy.from_nested({"loop": [0, 6, 8, 9], "bow": [2, 3, 5], "straight": [1, 4, 7]})
SCORING = {
    "stroke": make_level_scorer("accuracy", level=1, taxonomy=TREE),
    "digit": make_level_scorer("accuracy", level="leaf", taxonomy=TREE),
}


@contextlib.contextmanager
def connect(options):
    if options.scheduler:
        with Client(options.scheduler) as client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            processes=not options.threads,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Search over parameters.")
    parser.add_argument("--scheduler", help="address of a running cluster")
    parser.add_argument("--workers", type=int, default=2, help="of a cluster on this machine")
    parser.add_argument("--threads", action="store_true", help="workers in this process")
    parser.add_argument("--samples", type=int, default=None, help="use only so many")
    options = parser.parse_args(arguments)

    X, y = load_digits(return_X_y=True)
    X, y = X[: options.samples], y[: options.samples]
    search = GridSearchCV(
        H2EDLClassifier(TREE, backbone=None, random_state=0),
        {"l2": [2e-3, 2e-2, 2e-1]},
        scoring=SCORING,
        refit="digit",
        cv=3,
    )
    # scatter sends data that all tasks use once, not with each task.
    with connect(options), joblib.parallel_config(backend="dask", scatter=[X, y]):
        search.fit(X, y)
        scores = cross_validate(search.best_estimator_, X, y, scoring=SCORING, cv=3)
    print("best:", search.best_params_)
    for name in SCORING:
        print(f"accuracy of the {name}: {scores[f'test_{name}'].mean():.3f}")
    return search, scores


if __name__ == "__main__":
    main()
