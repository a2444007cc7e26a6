"""Coarsen labels: replace leaves by ancestors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..taxonomy import Taxonomy
from ..utils.hashing import unit_hash


def coarsen_labels(
    labels: Sequence,
    ids: Sequence,
    fraction: float,
    level: str | int,
    taxonomy: Taxonomy,
) -> NDArray:
    """Replace a fraction of the labels by their ancestors at a level.

    A hash of each sample's id alone decides which ones: they are the same for every method, seed
    and machine, and those of a smaller fraction are a subset of those of a larger one. The fraction
    is met on average, not exactly.

    Parameters
    ----------
    labels : sequence of shape (n,)
        Labels of the taxonomy.
    ids : sequence of shape (n,)
        Stable names of the samples, as in `LabelledImages.ids`.
    fraction : float
        Fraction of the labels to coarsen, between 0 and 1.
    level : str or int
        Name or depth of the level of the ancestors; 0 removes the label. A label above the level
        is not changed.
    taxonomy : Taxonomy
        The tree.

    Returns
    -------
    ndarray of shape (n,)
        Labels as the taxonomy spells them.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.datasets import coarsen_labels
    >>> tree = Taxonomy.from_paths([("cat", "lion"), ("cat", "lynx"), ("dog", "wolf")])
    >>> coarsen_labels(["lion", "lynx", "wolf"], ["a", "b", "c"], 0.5, 1, tree).tolist()
    ['lion', 'cat', 'wolf']
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}.")
    if len(labels) != len(ids):
        raise ValueError(
            f"labels and ids must have the same length, got {len(labels)} and {len(ids)}. Give "
            "one id for each label."
        )
    nodes = taxonomy.resolve(labels)
    above = taxonomy.project(nodes, level)
    chosen = (unit_hash(ids, purpose="coarsen") < fraction) & (above >= 0)
    return np.array(taxonomy.labels(np.where(chosen, above, nodes)))
