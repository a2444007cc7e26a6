"""A kept answer as what the API says of it: a few nodes of a tree of any size."""

from __future__ import annotations

import heapq
from math import isnan
from typing import Any

import numpy as np

from ..metrics.report import level_title
from ..report.predictions import Predictions
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .kept import Kept
from .schemas import Answer, Children, Found, FoundNode, LevelAnswer, Node, Stop

# What is opened before anybody asks: enough to read the answer, little enough for a phone.
_MIN_PROBABILITY = 0.02
_MAX_ROWS = 24
_FIRST_CHILDREN = 6
_LEAST_OPENED = 0.08
_MAX_PATH = 12
_MAX_NAMES = 6


def level_names(tree: Taxonomy) -> list[str]:
    """Return the names of the levels from the top down.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    """
    return [level_title(tree, depth) for depth in range(1, tree.n_levels + 1)]


def chain_name(tree: Taxonomy, node: int) -> str:
    """Return the name of a node with those of the only children above it; repeated names once.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    node : int
        The last node of a chain.

    Examples
    --------
    >>> tree = Taxonomy.from_paths([("Cessna", "172", "172"), ("Fokker", "F27")])
    >>> chain_name(tree, tree.node("172")), chain_name(tree, 0)
    ('Cessna > 172', 'root')
    """
    names = [str(tree.names[node])]
    while node > 0 and tree.n_children[tree.parents[node]] == 1:
        node = int(tree.parents[node])
        if node > 0 and str(tree.names[node]) != names[-1]:
            names.append(str(tree.names[node]))
    if len(names) > _MAX_NAMES:
        names = [*names[:3], "...", *names[-2:]]
    return " > ".join(reversed(names))


def level_of(tree: Taxonomy, node: int) -> str:
    """Return the level of a node: "leaf" for a leaf, "nothing" for the whole tree.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    node : int
        The node.
    """
    n_below = tree.leaf_stop[node] - tree.leaf_start[node]
    if n_below == tree.n_leaves:
        return "nothing"
    return "leaf" if n_below == 1 else level_title(tree, int(tree.depths[node]))


def node_view(kept: Kept, node: int) -> Node:
    """Return what an answer says of a node.

    Parameters
    ----------
    kept : Kept
        The answer.
    node : int
        The node; of a chain of only children the last is meant.
    """
    tree = kept.taxonomy
    end = int(tree.last_of_chain[node])
    view = bare_node(tree, end)
    view.probability = float(kept.probability[end])
    if kept.bounds is not None and kept.mass is not None and kept.vacuity is not None:
        view.belief, view.plausibility = (float(values[end]) for values in kept.bounds)
        view.mass = min(max(float(kept.mass[end]), 0.0), 1.0)
        vacuity = float(kept.vacuity[end])
        view.vacuity = None if isnan(vacuity) else min(vacuity, 1.0)
    return view


def bare_node(tree: Taxonomy, end: int) -> Node:
    """Return a node without an answer about it.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    end : int
        The last node of its chain.
    """
    return Node(
        node=end,
        name=chain_name(tree, end),
        label=str(tree.label(end)),
        level=level_of(tree, end),
        n_leaves=int(tree.leaf_stop[end] - tree.leaf_start[end]),
        n_children=int(tree.n_children[end]),
        probability=1.0,
    )


def ordered_children(kept: Kept, node: int) -> IntArray:
    """Return the children of a node, likeliest first.

    The one that leads to the likeliest leaf comes first of all where it would be far down.

    Parameters
    ----------
    kept : Kept
        The answer.
    node : int
        The last node of its chain.
    """
    tree = kept.taxonomy
    children = tree.first_child[node] + np.arange(tree.n_children[node])
    order = children[np.argsort(-kept.probability[children], kind="stable")]
    place = np.flatnonzero(np.isin(order, kept.ladder.nodes[0]))
    if place.size and place[0] >= _FIRST_CHILDREN:
        order = np.concatenate([order[place], np.delete(order, place)])
    return np.asarray(order)


def children_view(kept: Kept, node: int, offset: int, limit: int | None) -> Children:
    """Return some of the children of a node.

    Parameters
    ----------
    kept : Kept
        The answer.
    node : int
        The last node of its chain.
    offset : int
        How many to leave out.
    limit : int or None
        How many to return; None returns those that matter.
    """
    order = ordered_children(kept, node)
    if limit is None:
        likely = int((kept.probability[order[:_FIRST_CHILDREN]] >= _MIN_PROBABILITY).sum())
        limit = max(likely, min(3, order.size))
        if order.size - limit <= 2:  # a row that says so would take as much room
            limit = order.size
    shown = order[offset : offset + limit]
    rest = float(kept.probability[order[offset + limit :]].sum())
    return Children(
        node=node,
        offset=offset,
        total=order.size,
        children=[node_view(kept, int(child)) for child in shown],
        rest_probability=min(rest, 1.0),
    )


def opened_tree(kept: Kept, path: list[Node]) -> list[Children]:
    """Open the branches that matter: the way to the likeliest leaf, then the likeliest.

    Parameters
    ----------
    kept : Kept
        The answer.
    path : list of Node
        From the whole tree to the likeliest leaf.
    """
    pages: list[Children] = []
    n_rows = 0
    on_path = {node.node for node in path[:_MAX_PATH]}
    # The way first (0), then by probability.
    waiting = [(0, -1.0, path[0].node)]
    while waiting:
        is_beside, probability, node = heapq.heappop(waiting)
        if is_beside and (n_rows >= _MAX_ROWS or -probability < _LEAST_OPENED):
            break
        page = children_view(kept, node, 0, None)
        pages.append(page)
        n_rows += len(page.children)
        for child in page.children:
            if child.n_children:
                heapq.heappush(
                    waiting, (int(child.node not in on_path), -child.probability, child.node)
                )
    return pages


def path_view(kept: Kept) -> list[Node]:
    """Return the way from the whole tree to the likeliest leaf, chains of only children once.

    Parameters
    ----------
    kept : Kept
        The answer.
    """
    tree = kept.taxonomy
    ends = tree.last_of_chain[kept.ladder.nodes[0]].tolist()
    path: list[Node] = []
    for end, score in zip(ends, kept.ladder.scores[0].tolist(), strict=True):
        if path and path[-1].node == end:
            continue
        view = node_view(kept, end)
        # Exactly the number that the hedge compares with its threshold.
        view.probability = min(score, 1.0)
        path.append(view)
    return path


def hedged(path: list[Node], threshold: float) -> Node:
    """Return the deepest node of a path that is probable enough; the whole tree always is.

    Parameters
    ----------
    path : list of Node
        From :func:`path_view`.
    threshold : float
        What is enough.
    """
    answer = path[0]
    for node in path[1:]:
        if node.probability < threshold:
            break
        answer = node
    return answer


def answer_view(kept: Kept, key: str, threshold: float | None) -> Answer:
    """Return all that is said at once of an answer.

    Parameters
    ----------
    kept : Kept
        The answer.
    key : str
        Under which it is kept.
    threshold : float or None
        What hedged answers have to reach; None for none.
    """
    tree, opinion = kept.taxonomy, kept.opinion
    path = path_view(kept)
    levels = level_names(tree)
    raw = Predictions(tree, kept.leaf_probability[None], opinion, np.ones(1, dtype=bool))
    best = [_level_answer(kept, name, raw, d) for d, name in enumerate(levels, start=1)]
    answer = Answer(
        name=kept.name,
        id=key,
        n_images=kept.n_images,
        path=path,
        hedged=None if threshold is None else hedged(path, threshold),
        levels=best,
        tree=opened_tree(kept, path),
        explanation=_explain(kept),
    )
    if opinion is not None:
        names = [str(tree.root_name), *levels[:-1]]
        profile = np.clip(opinion.depth_profile[0], 0, 1).tolist()
        answer.stops = [Stop(level=n, mass=m) for n, m in zip(names, profile, strict=True)]
        answer.nonspecificity = min(float(opinion.nonspecificity[0]), 1.0)
    return answer


def _level_answer(kept: Kept, level: str, raw: Predictions, depth: int) -> LevelAnswer:
    # Of the deepest level the likeliest leaf, by the same rule as the path.
    tree = kept.taxonomy
    is_last = depth == tree.n_levels
    node = int(kept.ladder.nodes[0, -1] if is_last else raw.best_of_level(depth)[0][0])
    view = node_view(kept, node)
    return LevelAnswer(
        level=level,
        label=str(tree.label(node)),
        probability=view.probability,
        belief=view.belief,
        plausibility=view.plausibility,
    )


def _explain(kept: Kept) -> str:
    if kept.opinion is not None:
        return kept.opinion.explain(0)
    tree, leaves = kept.taxonomy, kept.leaf_probability
    best = np.argsort(-leaves, kind="stable")[:2].tolist()
    names: list[Any] = [f"{tree.leaves[leaf]} (probability {leaves[leaf]:.2f})" for leaf in best]
    return (
        f"The likeliest leaf is {names[0]}, before {names[1]}. This model gives probabilities "
        "only; how much of them rests on evidence it cannot say."
    )


def found_view(kept: Kept, text: str, limit: int) -> Found:
    """Return the nodes whose name holds a text, the likeliest first.

    Parameters
    ----------
    kept : Kept
        The answer.
    text : str
        Part of a name, in large or small letters.
    limit : int
        How many nodes to return.
    """
    tree, wanted = kept.taxonomy, text.casefold()
    names = tree.names.tolist()
    ends = [v for v in range(1, tree.n_nodes) if wanted in str(names[v]).casefold()]
    nodes = np.unique(tree.last_of_chain[np.array(ends, dtype=np.int64)])
    order = nodes[np.argsort(-kept.probability[nodes], kind="stable")]
    found = [
        FoundNode(**node_view(kept, node).model_dump(), place=_place(tree, node))
        for node in order[:limit].tolist()
    ]
    return Found(total=order.size, nodes=found)


def _place(tree: Taxonomy, node: int) -> str:
    names: list[str] = []
    node = int(tree.parents[node])
    while node > 0:
        if tree.n_children[node] > 1:
            names.append(str(tree.names[node]))
        node = int(tree.parents[node])
    if len(names) > _MAX_NAMES:
        names = [*names[:3], "...", *names[-2:]]
    return " > ".join(reversed(names))
