"""Sequences of photographs, some a burst: ``python docs/studies/sequences.py ASSETS``.

A sequence has three CUB test photographs of one species; the first one is a burst of ten frames
whose features differ by a little noise. A majority vote and a mean of probabilities count the burst
ten times. Nothing is chosen: all parameters have their defaults. ASSETS is the folder with
``cub_birds`` and ``weights``.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TABLE = HERE / "sequences_table.md"
SEEDS = (0, 1, 2)
N_SEQUENCES, N_PHOTOGRAPHS, N_FRAMES, NOISE = 1000, 3, 10, 0.05


def sequences(features, leaves, seed):
    """Return the features of all frames, their sequences, and the leaf of each sequence."""
    rng = np.random.default_rng(seed)
    scale = NOISE * features.std(axis=0)
    rows, truth = [], rng.choice(np.unique(leaves), N_SEQUENCES)
    for leaf in truth:
        drawn = rng.choice(np.flatnonzero(leaves == leaf), N_PHOTOGRAPHS, replace=False)
        rows.append(np.concatenate([np.repeat(drawn[0], N_FRAMES), drawn[1:]]))
    frames = features[np.concatenate(rows)]
    frames = frames + scale * rng.normal(size=frames.shape)
    return frames, np.repeat(np.arange(N_SEQUENCES), len(rows[0])), truth


def figures(probability, truth, certainty):
    """Return accuracy, NLL, and accuracy where the certainty is in the upper half."""
    right = probability.argmax(axis=1) == truth
    nll = -np.log(np.maximum(probability[np.arange(truth.size), truth], 1e-6)).mean()
    order = np.argsort(-certainty, kind="stable")
    return right.mean(), nll, right[order[: truth.size // 2]].mean()


def compare(clf, features, leaves, seed):
    """Return the figures of every rule."""
    from skh2edl import fuse_subjects, subject_conflict

    frames, groups, truth = sequences(features, leaves, seed)
    opinion = clf.predict_hyper_opinion(frames)
    each = opinion.leaf_probability.reshape(N_SEQUENCES, -1, opinion.taxonomy.n_leaves)
    votes = np.eye(each.shape[2])[each.argmax(axis=2)].mean(axis=1)
    mean = each.mean(axis=1)
    added = fuse_subjects(opinion, groups)
    discounted = fuse_subjects(opinion, groups, features=frames)
    conflict = subject_conflict(opinion, groups, features=frames).max(axis=1)
    best = discounted.leaf_probability.max(axis=1)
    return {
        "majority vote": figures(votes, truth, votes.max(axis=1)),
        "mean probability": figures(mean, truth, mean.max(axis=1)),
        "evidence added up": figures(
            added.leaf_probability, truth, added.leaf_probability.max(axis=1)
        ),
        "near-duplicates count once": figures(discounted.leaf_probability, truth, best),
        "the same, less the conflict": figures(discounted.leaf_probability, truth, best - conflict),
    }


def main():
    """Compare the rules and write the table."""
    from skh2edl import FlatCEClassifier, H2EDLClassifier, OpinionClassifier

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    sys.path.insert(0, str(HERE))
    from existing_classifiers import load

    data, features = load("cub_birds", parser.parse_args().assets)
    tree, is_test = data.taxonomy, data.split == "test"
    leaves = tree.leaf_start[tree.resolve(data.labels[is_test])]
    lines = [
        "<!-- Made by sequences.py; do not edit. -->",
        "",
        "| classifier | rule | accuracy | NLL | accuracy of the surer half |",
        "|---|---|---|---|---|",
    ]
    for name, clf in {
        "H2EDL": H2EDLClassifier(tree, backbone=None),
        "Flat-CE in OpinionClassifier": OpinionClassifier(FlatCEClassifier(tree, backbone=None)),
    }.items():
        clf.fit(features[~is_test], data.labels[~is_test])
        runs = [compare(clf, features[is_test], leaves, seed) for seed in SEEDS]
        for rule in runs[0]:
            accuracy, nll, half = np.mean([run[rule] for run in runs], axis=0)
            lines.append(f"| {name} | {rule} | {accuracy:.3f} | {nll:.2f} | {half:.3f} |")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
