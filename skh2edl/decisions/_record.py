"""How predictions on held-out images went, for the card of a model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..estimators.model_card import HeldOut
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ._ladders import covers, make_ladder


def record_held_out(
    leaves: npt.NDArray[np.float64], truth: IntArray, tree: Taxonomy
) -> HeldOut | None:
    """Return the predictions of each level, and how many levels are right.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    truth : ndarray of int of shape (n_samples,)
        True nodes. Samples whose label is no leaf are skipped: nobody knows whether a prediction
        below it is right.
    tree : Taxonomy
        The tree.

    Returns
    -------
    held_out : HeldOut or None
        None if no label is a leaf.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> held = record_held_out(np.array([[0.5, 0.3, 0.2]]), tree.resolve(["puma"]), tree)
    >>> held.scores, held.n_right
    (array([[0.8, 0.5]]), array([1]))
    """
    ends = tree.last_of_chain[truth]
    known = tree.n_children[ends] == 0
    if not known.any():
        return None
    ladder = make_ladder("climb", leaves[known], tree)
    is_right = covers(ladder.nodes[:, 1:], ends[known], tree)
    # A score of a class that holds all leaves is infinite there, and JSON has no infinity.
    return HeldOut(np.minimum(ladder.scores[:, 1:], 1.0), is_right.sum(axis=1))
