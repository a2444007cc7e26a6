"""Fuse the opinions on several photographs of one subject."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..opinions.hyper_opinion import HyperOpinion
from ..utils.validation import check_groups
from ._opinions import check_opinion


def fuse_subjects(
    opinion: HyperOpinion, groups: npt.ArrayLike, dependence: float = 0.0
) -> HyperOpinion:
    """Fuse the opinions on several photographs of each subject into one opinion per subject.

    Photographs of one subject are neither independent nor exact duplicates. With correlation ρ
    between them, k photographs count as k / (1 + (k - 1) ρ), the effective size of a cluster
    sample. The fused evidence is the mean evidence times that number. ρ = 0 adds the evidence up
    (cumulative fusion); ρ = 1 takes the mean (averaging fusion).

    Parameters
    ----------
    opinion : HyperOpinion
        One row for each photograph.
    groups : array-like of shape (n_samples,)
        Subject of each photograph: numbers or strings.
    dependence : float, default=0.0
        The correlation ρ, from 0 (independent photographs) to 1 (duplicates).

    Returns
    -------
    opinion : HyperOpinion
        One row for each subject, in sorted order; their ids are in ``opinion.groups``.

    See Also
    --------
    HyperOpinion.fuse : Cumulative and averaging fusion.

    Notes
    -----
    A guarantee of :class:`~skh2edl.HedgedClassifier` for single photographs does not carry over to
    fused opinions. Hold out whole subjects, fuse their opinions, and calibrate on those.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy, fuse_subjects
    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> opinion = HyperOpinion.from_evidence(tree, [[3, 1], [5, 1], [0, 2]])
    >>> fused = fuse_subjects(opinion, ["rex", "rex", "tom"], dependence=0.5)
    >>> fused.groups, fused.evidence.round(3)
    (array(['rex', 'tom'], dtype='<U3'), array([[5.333, 1.333],
           [0.   , 2.   ]]))
    """
    check_opinion(opinion)
    if not 0 <= dependence <= 1:
        raise ValueError(
            f"dependence must lie between 0 (independent) and 1 (duplicates), got {dependence!r}."
        )
    ids, member_of = check_groups(groups, len(opinion))
    mean = opinion.fuse(groups, how="averaging")
    counts = np.bincount(member_of, minlength=ids.size)
    effective = counts / (1 + (counts - 1) * float(dependence))
    evidence = mean.evidence * effective[:, None].astype(mean.evidence.dtype)
    return HyperOpinion(
        opinion.taxonomy, evidence, opinion.base_rate, opinion.prior_weight, mean.groups
    )
