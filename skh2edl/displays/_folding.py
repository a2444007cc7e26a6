"""Show one opinion on a large tree in a few rows: unlikely branches are folded, no mass is lost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..opinions.explanation import NodeOpinion, chain_text
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy

BoolArray = npt.NDArray[np.bool_]

# A sibling must be this many times likelier than the likeliest folded one to be shown.
_CLEARLY_LIKELIER = 1.25


class Row(NamedTuple):
    """One row of the drawn tree: a node, or several siblings folded into one.

    Attributes
    ----------
    nodes : tuple of int
        The node, or the folded siblings; of a chain of only children the last.
    parent : int
        Row of the parent, -1 for the root.
    depth : int
        Decisions between the root and the row.
    text : str
        The text of the row.
    mass : float
        Mass of the node's own leaf set, or all mass at and below the folded siblings. The masses
        of all rows add up to 1.
    vacuity : float
        Of the decision at the node; NaN for a leaf and for folded siblings.
    belief, probability, plausibility : float
        Of the node, or of the folded siblings together. Belief and plausibility are NaN if all
        children of a node are folded, because the row would repeat its parent.
    is_folded : bool
        Whether the row stands for folded siblings.
    """

    nodes: tuple[int, ...]
    parent: int
    depth: int
    text: str
    mass: float
    vacuity: float
    belief: float
    probability: float
    plausibility: float
    is_folded: bool


def fold(
    opinion: HyperOpinion,
    *,
    label: int | None = None,
    min_probability: float = 0.03,
    max_rows: int = 30,
) -> list[Row]:
    """Return the rows of a drawn opinion, parents before children, likelier ones first.

    Parameters
    ----------
    opinion : HyperOpinion
        Of one sample.
    label : int, default=None
        A node that is never folded.
    min_probability : float, default=0.03
        Less likely nodes are folded together with their unlikely siblings, and with siblings that
        are hardly likelier. Belief never exceeds probability, so no folded node has much mass.
    max_rows : int, default=30
        Largest number of rows; `min_probability` is raised until the rows are few enough.

    Returns
    -------
    rows : list of Row
    """
    tree = opinion.taxonomy
    numbers = NodeOpinion(*(values[0].astype(np.float64) for values in opinion.nodes()))
    kept = np.zeros(tree.n_nodes, dtype=bool)
    node = label or 0
    while node > 0:
        kept[node] = True
        node = int(tree.parents[node])
    limit = min_probability
    rows = _rows(tree, numbers, limit, kept)
    while len(rows) > max_rows and limit <= 1:
        # Fold the least likely rows next.
        likely = [row.probability for row in rows if not row.is_folded and row.probability >= limit]
        limit = np.nextafter(min(likely, default=1.0), 2.0)
        rows = _rows(tree, numbers, limit, kept)
    return rows


def _rows(tree: Taxonomy, numbers: NodeOpinion, limit: float, is_kept: BoolArray) -> list[Row]:
    is_open = (numbers.probability >= limit) | is_kept
    rows: list[Row] = []
    # A stack, not recursion: a taxonomy may be deeper than Python's call stack.
    waiting: list[tuple[int | tuple[int, ...], int, int]] = [(0, -1, 0)]
    while waiting:
        what, parent, depth = waiting.pop()
        if isinstance(what, tuple):
            rows.append(_folded_row(tree, numbers, what, parent, depth))
            continue
        node = int(tree.last_of_chain[what])
        below: list[int | tuple[int, ...]] = []
        if tree.n_children[node]:
            shown, hidden = _divide(tree, numbers, node, is_open, is_kept)
            below = [*shown, hidden] if hidden else [*shown]
        waiting.extend((child, len(rows), depth + 1) for child in reversed(below))
        own = {name: values[node] for name, values in numbers._asdict().items()}
        rows.append(
            Row(
                nodes=(node,),
                parent=parent,
                depth=depth,
                text=chain_text(tree, what),
                is_folded=False,
                **own,
            )
        )
    return rows


def _divide(
    tree: Taxonomy, numbers: NodeOpinion, node: int, is_open: BoolArray, is_kept: BoolArray
) -> tuple[list[int], tuple[int, ...]]:
    """Return the children to show, likeliest first, and those to fold."""
    first = int(tree.first_child[node])
    children = first + np.arange(tree.n_children[node])
    children = children[np.argsort(-numbers.probability[children], kind="stable")]
    open_ = is_open[children]
    if not open_.all():
        # Showing a few of many nearly equal siblings would suggest a preference.
        likeliest_folded = numbers.probability[children[~open_]].max()
        tied = numbers.probability[children] < _CLEARLY_LIKELIER * likeliest_folded
        open_ &= ~tied | is_kept[children]
    shown, hidden = children[open_].tolist(), children[~open_].tolist()
    if len(hidden) == 1 and tree.n_children[tree.last_of_chain[hidden[0]]] == 0:
        # A row "1 other" would be no shorter than the leaf itself.
        return [*shown, *hidden], ()
    return shown, tuple(hidden)


def _folded_row(
    tree: Taxonomy, numbers: NodeOpinion, nodes: tuple[int, ...], parent: int, depth: int
) -> Row:
    members = np.array(nodes)
    n_leaves = int((tree.leaf_stop - tree.leaf_start)[members].sum())
    mass = numbers.belief[members].sum()
    # What stops at the ancestors is plausible for every one of the siblings.
    above = numbers.plausibility[nodes[0]] - numbers.belief[nodes[0]]
    is_all = len(nodes) == tree.n_children[tree.parents[nodes[0]]]
    if len(nodes) == 1:
        text = f"{chain_text(tree, nodes[0])} ({n_leaves} leaves)"
    elif n_leaves == len(nodes):
        text = f"{n_leaves} leaves" if is_all else f"{n_leaves} other leaves"
    else:
        text = f"{len(nodes)} {'branches' if is_all else 'others'} ({n_leaves} leaves)"
    return Row(
        nodes=nodes,
        parent=parent,
        depth=depth,
        text=text,
        mass=mass,
        vacuity=np.nan,
        belief=np.nan if is_all else mass,
        probability=numbers.probability[members].sum(),
        plausibility=np.nan if is_all else mass + above,
        is_folded=True,
    )
