"""Opinions for people: the numbers of nodes, as a table and as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..utils.optional import import_optional
from .tree_walk import FloatArray

if TYPE_CHECKING:
    from .hyper_opinion import HyperOpinion

# Samples of a notebook's table: more would push the next cell off the screen.
_MOST_SAMPLES = 10


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
