"""Opinions for people: in plain sentences, as a table and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..taxonomy.names import Name
from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional
from .evidence import FloatArray

if TYPE_CHECKING:
    from .hyper_opinion import HyperOpinion

Row = npt.NDArray[np.float64]

# Names in one list; the rest is counted.
_MOST_NAMES = 3
# Belief from which on the evidence "carries" to a class; below, it "leans".
_CLEAR = 0.9
# Two decimals are shown, so less than this would be shown as nothing.
_VISIBLE = 0.005
# Samples of a notebook's table: more would push the next cell off the screen.
_MOST_SAMPLES = 10


class SampleOpinion(NamedTuple):
    """The numbers of one sample.

    Attributes
    ----------
    reach : ndarray of shape (n_decisions,)
        Belief that arrives at each decision's child.
    stops : ndarray of shape (n_branching,)
        Belief that stops at each branching node.
    probability : ndarray of shape (n_leaves,)
        Probability of each leaf.
    """

    reach: Row
    stops: Row
    probability: Row


def explain(tree: Taxonomy, opinion: SampleOpinion) -> str:
    """Say how far the evidence carries and what it would choose between.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    opinion : SampleOpinion
        The opinion on one sample.

    Returns
    -------
    text : str
        A few sentences, whatever the size of the tree.
    """
    if not opinion.reach.any():
        return "Cannot tell: there is no evidence."
    node, belief = _follow(tree, opinion.reach)
    if not tree.n_children[node]:
        return " ".join(
            [f"{_how_far(tree, node, belief)}.", *_elsewhere(tree, opinion, node, belief)]
        )
    sentences = [f"{_how_far(tree, node, belief)}{_what_remains(tree, opinion, node, belief)}"]
    # Once most of the belief has arrived, what it is divided between says more.
    if belief < _CLEAR:
        sentences += _elsewhere(tree, opinion, node, belief)
    return " ".join([*sentences, _forced_choice(tree, opinion)])


def _top(tree: Taxonomy) -> int:
    """Return the first node that takes a decision."""
    return int(tree.branching_nodes[0])


def _follow(tree: Taxonomy, reach: Row) -> tuple[int, float]:
    """Go down while one child holds more than half of all belief and no other comes near."""
    node, belief = _top(tree), 1.0
    while tree.n_children[node]:
        decisions = _decisions(tree, node)
        best = decisions.start + int(np.argmax(reach[decisions]))
        if reach[best] <= 0.5 or _count_contenders(reach[decisions]) > 1:
            break
        node, belief = int(tree.last_of_chain[tree.decision_children[best]]), float(reach[best])
    return node, belief


def _count_contenders(reach: Row) -> int:
    """Count the children with at least half as much belief as the best, itself included."""
    return int(np.count_nonzero(reach >= max(reach.max() / 2, np.finfo(float).tiny)))


def _how_far(tree: Taxonomy, node: int, belief: float) -> str:
    if node == _top(tree):
        return "Cannot tell" if tree.n_children[node] else _place(tree, node)
    verb = "carries" if belief >= _CLEAR else "leans"
    return f"The evidence {verb} to {_place(tree, node)} (belief {_decimal(belief)})"


def _what_remains(tree: Taxonomy, opinion: SampleOpinion, node: int, belief: float) -> str:
    """Say what the evidence is divided between at the node where it stops."""
    decisions = _decisions(tree, node)
    reach = opinion.reach[decisions]
    stops = float(opinion.stops[_branching(tree, node)])
    order = np.argsort(-reach, kind="stable")
    n_contenders, joint = _count_contenders(reach), ": " if node == _top(tree) else "; below, "
    shown = [
        f"{_child(tree, decisions.start + int(child))} (belief {_decimal(reach[child])})"
        for child in order[:_MOST_NAMES]
        if reach[child] >= _VISIBLE
    ]
    tail = f"{_decimal(stops)} of the belief goes no further"
    if stops >= belief / 2:
        lean = f", leaning to {shown[0]}" if n_contenders == 1 and shown else ""
        names = [_child(tree, decisions.start + int(child)) for child in order[:_MOST_NAMES]]
        return (
            f"{joint}it may be {_list(names, reach.size, 'or')}{lean}. {tail[0].upper()}{tail[1:]}."
        )
    if n_contenders == 1:
        return f"{joint}it leans to {shown[0]}, and {tail}."
    return f"{joint}it is {_list(shown, n_contenders, 'or')}, and {tail}."


def _elsewhere(tree: Taxonomy, opinion: SampleOpinion, node: int, belief: float) -> list[str]:
    """Say where the belief is that did not arrive at the node."""
    above = []
    siblings: list[int] = []
    decision = int(tree.last_decision[node])
    while decision >= 0:
        above.append(int(tree.decision_nodes[decision]))
        beside = _decisions(tree, int(tree.branching_nodes[above[-1]]))
        siblings += (other for other in range(beside.start, beside.stop) if other != decision)
        decision = int(tree.parent_decision[decision])
    higher = sorted(above, key=lambda branching: -opinion.stops[branching])
    parts = [
        f"{_decimal(opinion.stops[branching])} stops at "
        f"{_place(tree, int(tree.branching_nodes[branching]))}"
        for branching in higher[:2]
        if opinion.stops[branching] >= _VISIBLE
    ]
    against = 1 - belief - float(opinion.stops[above].sum())
    if against >= _VISIBLE:
        parts.append(
            _strongest(tree, opinion, max(siblings, key=opinion.reach.__getitem__), against)
        )
    return [f"Of the other belief, {_list(parts, len(parts))}."] if parts else []


def _strongest(tree: Taxonomy, opinion: SampleOpinion, sibling: int, against: float) -> str:
    """Name the strongest sibling, unless the belief in it would be shown as nothing."""
    belief = float(opinion.reach[sibling])
    if against - belief < _VISIBLE and belief >= _VISIBLE:
        # Its own belief, as in a table beside it: with the rest it may round to more.
        return f"{_decimal(belief)} is for {_child(tree, sibling)}"
    lead = (
        f", first of all {_child(tree, sibling)} ({_decimal(belief)})" if belief >= _VISIBLE else ""
    )
    return f"{_decimal(against)} is for something else{lead}"


def _forced_choice(tree: Taxonomy, opinion: SampleOpinion) -> str:
    first, second = np.argsort(-opinion.probability, kind="stable")[:2].tolist()
    best = float(opinion.probability[first])
    kind = tree.level_names[-1] if tree.level_names else "class"
    lead = f"Made to name one {str(kind).replace('_', ' ')}, it"
    # Equal but for float32 rounding.
    tied = np.flatnonzero(opinion.probability >= best * (1 - 1e-6))
    if tied.size > 1:
        names = [str(tree.leaves[leaf]) for leaf in tied[:_MOST_NAMES].tolist()]
        return (
            f"{lead} has no favourite: {_list(names, tied.size)} are equally probable "
            f"({_decimal(best)} each)."
        )
    belief = float(opinion.reach[tree.last_decision[tree.leaf_nodes[first]]])
    source = ", most of it from the base rates" if belief < best / 2 else ""
    next_best = _decimal(opinion.probability[second])
    before = f"before {tree.leaves[second]} ({next_best})"
    if next_best == _decimal(best):
        before = f"hardly before {tree.leaves[second]} (nearly the same)"
    return (
        f"{lead} would take {tree.leaves[first]} (probability {_decimal(best)}{source}) {before}."
    )


def _decisions(tree: Taxonomy, node: int) -> slice:
    branching = _branching(tree, node)
    start, stop = tree.decision_offsets[branching : branching + 2].tolist()
    return slice(start, stop)


def _branching(tree: Taxonomy, node: int) -> int:
    return int(np.searchsorted(tree.branching_nodes, node))


def _place(tree: Taxonomy, node: int) -> str:
    """Format the path to a node; the names of a chain that repeat are written once."""
    return _join(tree.path(tree.label(node))) or "the whole tree"


def _child(tree: Taxonomy, decision: int) -> str:
    return chain_text(tree, int(tree.decision_children[decision]))


def chain_text(tree: Taxonomy, node: int) -> str:
    """Join the names of a node and of the only children below it, without repetitions."""
    names = [tree.names[node]]
    while tree.n_children[node] == 1:
        node = int(tree.first_child[node])
        names.append(tree.names[node])
    return _join(names)


def _join(names: Iterable[Name]) -> str:
    kept = [name for name, _ in groupby(map(str, names))]
    if len(kept) > 6:  # a long chain of ranks
        kept = [*kept[:2], "...", *kept[-3:]]
    return " > ".join(kept)


def _list(parts: Sequence[str], count: int, word: str = "and") -> str:
    """Write "a, b and c" or "a, b, c and 4 more"."""
    shown = list(parts[:_MOST_NAMES])
    if count > len(shown):
        shown.append(f"{count - len(shown)} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"


def _decimal(value: float) -> str:
    """Format a fraction with two decimals, never rounding something to nothing or to all."""
    if value <= 0 or value >= 1:
        return f"{min(max(value, 0), 1):.0f}"
    if value < _VISIBLE:
        return "less than 0.01"
    return f"{value:.2f}" if value < 1 - _VISIBLE else "over 0.99"


# Tables -------------------------------------------------------------------------------------------


class NodeOpinion(NamedTuple):
    """The numbers of one node for every sample, or of several nodes in columns.

    Attributes
    ----------
    mass : ndarray of shape (n_samples,) or (n_samples, n_nodes)
        Belief in exactly the leaves of the node and nothing finer.
    belief, probability, plausibility : ndarray of the same shape
        Of the leaves of the node; each is at most the next.
    vacuity : ndarray of the same shape
        Belief not committed by the decision at the node; NaN for a leaf.
    """

    mass: FloatArray
    belief: FloatArray
    probability: FloatArray
    plausibility: FloatArray
    vacuity: FloatArray


def node_frame(opinion: HyperOpinion, by: str) -> Any:
    """Return the numbers of focal sets or nodes as a DataFrame, one row per sample and node."""
    tree, n_samples = opinion.taxonomy, len(opinion)
    if by not in ("focal_set", "node"):
        raise ValueError(f"by must be 'focal_set' or 'node', got {by!r}.")
    pandas = import_optional("pandas", extra="pandas")
    nodes = np.arange(tree.n_nodes)
    if by == "focal_set":
        nodes = np.concatenate([tree.leaf_nodes, tree.branching_nodes])
    samples = np.arange(n_samples) if opinion.groups is None else opinion.groups
    numbers = opinion.nodes(nodes)._asdict()
    return pandas.DataFrame(
        {
            "sample" if opinion.groups is None else "group": np.repeat(samples, nodes.size),
            by: np.tile(np.array(tree.labels(nodes), dtype=object), n_samples),
            "depth": np.tile(tree.depths[nodes], n_samples),
            "n_leaves": np.tile((tree.leaf_stop - tree.leaf_start)[nodes], n_samples),
            **{name: values.ravel() for name, values in numbers.items()},
        }
    )


def opinion_html(opinion: HyperOpinion) -> str:
    """Return a small HTML table: the most probable leaf of the first samples, with its bounds."""
    tree, first = opinion.taxonomy, opinion[:_MOST_SAMPLES]
    best = first.leaf_probability.argmax(axis=1)
    samples = np.arange(len(first)) if first.groups is None else first.groups
    numbers = first.nodes(tree.leaf_nodes[best])
    columns = [
        "sample" if first.groups is None else "group",
        *("most probable leaf", "belief", "probability", "plausibility", "nonspecificity"),
    ]
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in columns) + "</tr>"]
    for i, leaf in enumerate(best.tolist()):
        values = numbers.belief[i, i], numbers.probability[i, i], numbers.plausibility[i, i]
        cells = [str(samples[i]), str(tree.leaves[leaf])]
        cells += [f"{value:.2f}" for value in (*values, first.nonspecificity[i])]
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    more = f"<p>and {len(opinion) - len(first):,} more</p>" if len(opinion) > len(first) else ""
    return f"<p>{escape(repr(opinion))}</p><table>{''.join(lines)}</table>{more}"
