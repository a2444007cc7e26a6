"""Several photographs of one subject: fuse their opinions, measure conflict, predict or abstain."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances_chunked

from ..opinions.hyper_opinion import HyperOpinion, check_opinion
from ..utils.validation import check_groups
from ._held_out import label_array

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Cosine similarities of exact duplicates are below 1 by rounding.
_ROUNDING = 1e-6


def fuse_subjects(
    opinion: HyperOpinion,
    groups: npt.ArrayLike,
    dependence: float = 0.0,
    *,
    features: npt.ArrayLike | None = None,
    near_duplicate: float = 0.95,
) -> HyperOpinion:
    """Fuse the opinions on several photographs of each subject into one opinion per subject.

    Photographs of one subject are neither independent nor exact duplicates. With correlation ρ
    between them, k photographs count as k / (1 + (k - 1) ρ), the effective size of a cluster
    sample. The fused evidence is the mean evidence times that number. ρ = 0 adds the evidence up
    (cumulative fusion); ρ = 1 takes the mean (averaging fusion).

    Given features, photographs that are near-duplicates have correlation 1: a burst of ten frames
    that hardly differ counts once. A photograph has the weight ``1 / (n + (k - n) ρ)``, of which n,
    itself included, are near-duplicates of it.

    Parameters
    ----------
    opinion : HyperOpinion
        One row for each photograph.
    groups : array-like of shape (n_samples,)
        Subject of each photograph: numbers or strings.
    dependence : float, default=0.0
        The correlation ρ, from 0 (independent photographs) to 1 (duplicates).
    features : array-like of shape (n_samples, n_features), default=None
        What tells near-duplicates, such as the output of :class:`ImageFeatureExtractor`. None
        means that there are none.
    near_duplicate : float, default=0.95
        Cosine similarity of the features, from 0 to 1, from which on photographs of a subject are
        near-duplicates.

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
    _, member_of = check_groups(groups, len(opinion))
    weight = _weights(member_of, dependence, features, near_duplicate)
    weighted = opinion.evidence * weight[:, None].astype(opinion.evidence.dtype)
    return HyperOpinion(opinion.taxonomy, weighted, opinion.base_rate, opinion.prior_weight).fuse(
        groups
    )


def subject_conflict(
    opinion: HyperOpinion,
    groups: npt.ArrayLike,
    *,
    features: npt.ArrayLike | None = None,
    near_duplicate: float = 0.95,
) -> FloatArray:
    """Return how much the opinions on the photographs of each subject contradict each other.

    At a node the degree of conflict of two opinions is half the sum of ``|p - p'|`` over the
    children times ``(1 - u) (1 - u')``: they must differ, and both must commit [1]_. It is
    multiplied by the belief of both that reaches the node. The number of a subject is the mean
    over the pairs of its photographs, near-duplicates counting as in :func:`fuse_subjects`.

    Parameters
    ----------
    opinion : HyperOpinion
        One row for each photograph.
    groups : array-like of shape (n_samples,)
        Subject of each photograph.
    features : array-like of shape (n_samples, n_features), default=None
        What tells near-duplicates, as in :func:`fuse_subjects`.
    near_duplicate : float, default=0.95
        As in :func:`fuse_subjects`.

    Returns
    -------
    conflict : ndarray of shape (n_subjects, n_branching)
        From 0 to 1, for the subjects in sorted order and the nodes of ``taxonomy.branching``; 0
        for a subject with one photograph.

    References
    ----------
    .. [1] A. Jøsang: Subjective Logic. Springer 2016 (degree of conflict).

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.decisions import subject_conflict
    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> opinion = HyperOpinion.from_evidence(tree, [[8, 0], [0, 8], [8, 0], [0, 0]])
    >>> subject_conflict(opinion, ["rex", "rex", "tom", "tom"]).round(3)
    array([[0.512],
           [0.   ]])
    """
    check_opinion(opinion)
    ids, member_of = check_groups(groups, len(opinion))
    weight = _weights(member_of, 0.0, features, near_duplicate)
    first = opinion.taxonomy.decision_offsets[:-1]
    p = opinion.conditional_probability.astype(np.float64)
    committed = opinion.reach * (1.0 - opinion.vacuity)
    conflict = np.zeros((ids.size, first.size))
    for subject, photographs in enumerate(_photographs_of(member_of)):
        pairs = 0.0
        for place, one in enumerate(photographs[:-1]):
            others = photographs[place + 1 :]
            both = weight[one] * weight[others, None]
            distance = np.add.reduceat(np.abs(p[others] - p[one]), first, axis=1) / 2
            conflict[subject] += (both * committed[one] * committed[others] * distance).sum(axis=0)
            pairs += both.sum()
        conflict[subject] /= pairs or 1.0
    return conflict


class SubjectPredictions(NamedTuple):
    """What :func:`predict_subjects` predicts, one entry for each subject in sorted order.

    Attributes
    ----------
    groups : ndarray of shape (n_subjects,)
        The subjects.
    labels : ndarray of shape (n_subjects,)
        The predicted nodes; the root abstains.
    probability : ndarray of shape (n_subjects,)
        Probability of that node.
    conflict : ndarray of shape (n_subjects,)
        The largest conflict at a node; see :func:`subject_conflict`.
    opinion : HyperOpinion
        The fused opinions.
    """

    groups: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    probability: FloatArray
    conflict: FloatArray
    opinion: HyperOpinion


def predict_subjects(
    opinion: HyperOpinion,
    groups: npt.ArrayLike,
    dependence: float = 0.0,
    *,
    features: npt.ArrayLike | None = None,
    near_duplicate: float = 0.95,
    min_probability: float = 0.8,
    max_conflict: float = 0.3,
) -> SubjectPredictions:
    """Predict a node for each subject, as deep as its photographs are clear and agree.

    The prediction goes down from the root to the likeliest child of the fused opinion. It stops
    above a node of less than `min_probability`, and at a node at which the photographs conflict by
    more than `max_conflict`. One that stops at the root abstains.

    Parameters
    ----------
    opinion : HyperOpinion
        One row for each photograph.
    groups : array-like of shape (n_samples,)
        Subject of each photograph.
    dependence : float, default=0.0
        As in :func:`fuse_subjects`.
    features : array-like of shape (n_samples, n_features), default=None
        As in :func:`fuse_subjects`.
    near_duplicate : float, default=0.95
        As in :func:`fuse_subjects`.
    min_probability : float, default=0.8
        Least probability of a prediction. 0 goes down to a leaf unless there is conflict.
    max_conflict : float, default=0.3
        Largest conflict at a node that is passed; 1 passes every node.

    Returns
    -------
    predictions : SubjectPredictions

    Notes
    -----
    Neither bound guarantees an accuracy. For a guarantee hold out whole subjects, fuse their
    opinions, and calibrate on those.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.decisions import predict_subjects
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> evidence = [[20, 0, 30, 0], [20, 0, 0, 20], [0, 40, 0, 0]]
    >>> opinion = HyperOpinion.from_evidence(tree, evidence)
    >>> found = predict_subjects(opinion, ["tom", "tom", "rex"])
    >>> found.groups, found.labels  # the photographs of tom agree on a cat
    (array(['rex', 'tom'], dtype='<U3'), array(['dog', 'cat'], dtype='<U3'))
    """
    _check_fractions(min_probability=min_probability, max_conflict=max_conflict)
    near = {"features": features, "near_duplicate": near_duplicate}
    fused = fuse_subjects(opinion, groups, dependence, **near)  # type: ignore[arg-type]
    conflict = subject_conflict(opinion, groups, **near)  # type: ignore[arg-type]
    tree, probability = fused.taxonomy, fused.node_probability.astype(np.float64)
    node = np.full(len(fused), tree.branching_nodes[0])
    going, subjects = np.ones(len(fused), dtype=bool), np.arange(len(fused))
    # Decisions of every depth, from the root.
    for branching, (low, high) in enumerate(
        zip(tree.decision_offsets[:-1].tolist(), tree.decision_offsets[1:].tolist(), strict=True)
    ):
        here = subjects[(node == tree.branching_nodes[branching]) & going]
        children = tree.decision_children[low:high]
        best = children[probability[np.ix_(here, children)].argmax(axis=1)]
        passes = (probability[here, best] >= min_probability) & (
            conflict[here, branching] <= max_conflict
        )
        node[here[passes]] = tree.last_of_chain[best[passes]]
        going[here[~passes]] = False
    assert fused.groups is not None
    node = np.where(node == tree.branching_nodes[0], 0, node)
    return SubjectPredictions(
        fused.groups,
        label_array(node, tree),
        probability[subjects, node],
        conflict.max(axis=1),
        fused,
    )


def _weights(
    member_of: IntArray, dependence: float, features: Any, near_duplicate: float
) -> FloatArray:
    """Return how much each photograph counts among those of its subject."""
    _check_fractions(near_duplicate=near_duplicate)
    if not 0 <= dependence <= 1:
        raise ValueError(
            f"dependence must lie between 0 (independent) and 1 (duplicates), got {dependence!r}."
        )
    counts = np.bincount(member_of)[member_of]
    alike = np.ones(len(member_of))
    if features is not None:
        own = np.asarray(features)
        if own.ndim != 2 or len(own) != len(member_of):
            raise ValueError(
                f"features must have one row for each of the {len(member_of)} photographs, got "
                f"shape {own.shape}. Pass what ImageFeatureExtractor returns for them."
            )
        farthest = 1 - near_duplicate + _ROUNDING
        for photographs in _photographs_of(member_of):
            chunks = pairwise_distances_chunked(
                own[photographs],
                metric="cosine",
                reduce_func=lambda part, _: (part <= farthest).sum(axis=1),
            )
            alike[photographs] = np.maximum(np.concatenate(list(chunks)), 1)
    return np.asarray(1 / (alike + (counts - alike) * float(dependence)))


def _check_fractions(**values: Any) -> None:
    """Raise ValueError unless the values are numbers from 0 to 1."""
    for name, value in values.items():
        is_number = not isinstance(value, bool) and isinstance(value, Real)
        if not (is_number and 0 <= value <= 1):
            raise ValueError(
                f"{name} must be a number from 0 to 1, got {value!r}. Give one in this range."
            )


def _photographs_of(member_of: IntArray) -> list[IntArray]:
    """Return the positions of the photographs of each subject."""
    if not member_of.size:
        return []
    order = np.argsort(member_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(member_of))[:-1])
