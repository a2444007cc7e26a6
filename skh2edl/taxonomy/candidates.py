"""Restrict probabilities to some leaves, by conditioning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, logsumexp

from .taxonomy import Taxonomy

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def candidate_leaves(taxonomy: Taxonomy, candidates: Any) -> BoolArray:
    """Mark the leaves at or below some nodes, in tree order.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    candidates : label, sequence of labels or None
        One clade, or any nodes; None means all leaves.

    Returns
    -------
    mask : ndarray of bool of shape (n_leaves,)

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> candidate_leaves(tree, "cat").tolist(), candidate_leaves(tree, ["dog", "lynx"]).tolist()
    ([True, True, False], [True, False, True])
    """
    if candidates is None:
        return np.ones(taxonomy.n_leaves, dtype=bool)
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        candidates = [candidates]
    try:
        nodes = taxonomy.resolve(list(candidates))
    except ValueError as error:
        raise ValueError(f"candidates must name nodes of the taxonomy: {error}") from None
    if not nodes.size:
        raise ValueError("candidates is empty. Name at least one node, or pass None for all.")
    return taxonomy.clade_mask(nodes)[taxonomy.leaf_nodes]


def warn_if_unlikely(probability: FloatArray, least: float, *, stacklevel: int) -> None:
    """Warn of samples that are hardly one of the candidates.

    Parameters
    ----------
    probability : ndarray of shape (n_samples,)
        P(candidates).
    least : float
        The probability below which to warn.
    stacklevel : int
        As in :func:`warnings.warn`, counted from the caller.
    """
    low = np.flatnonzero(probability < least)
    if low.size:
        warnings.warn(
            f"{low.size} of {probability.size} sample(s) have less than {least:g} of their "
            f"probability on the candidates, first sample {low[0]} with "
            f"{probability[low[0]]:.2g}. They may show something else; "
            "CandidateClassifier.candidate_probability gives the number of each.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def condition(log_leaves: npt.NDArray[Any], mask: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return log P(leaf | candidates) and P(candidates).

    Parameters
    ----------
    log_leaves : ndarray of shape (n_samples, n_leaves)
        log P of each leaf, in tree order.
    mask : ndarray of bool of shape (n_leaves,)
        The candidates.

    Returns
    -------
    log_leaves : ndarray of shape (n_samples, n_leaves)
        -inf for other leaves. Where all candidates have probability 0 they are equally likely.
    probability : ndarray of shape (n_samples,)
        P(candidates).

    Examples
    --------
    >>> log_leaves, total = condition(np.log([[0.5, 0.3, 0.2]]), np.array([True, False, True]))
    >>> np.exp(log_leaves).round(3).tolist(), total.round(3).tolist()
    ([[0.714, 0.0, 0.286]], [0.7])
    """
    # In logarithms, so that it is exact where P(candidates) is too small for a float.
    logs = np.where(mask, np.asarray(log_leaves, dtype=np.float64), -np.inf)
    probability = np.minimum(np.exp(logsumexp(logs, axis=1)), 1.0)
    logs[np.ix_(np.isneginf(logs).all(axis=1), mask)] = 0.0
    return log_softmax(logs, axis=1), probability
