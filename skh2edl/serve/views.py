"""A prediction as the API shows it: a few nodes of a tree of any size."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import isnan

import numpy as np

from ..metrics.report import level_title
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .predictions import Prediction
from .schemas import Children, Found, FoundNode, LevelPrediction, Node, PredictionView, Side, Stop

# What is opened at first: enough to read the prediction, little enough for a phone.
_MIN_PROBABILITY = 0.02
_MAX_NODES = 24
_FIRST_CHILDREN = 6
_LEAST_OPENED = 0.08
_MAX_PATH = 12
_MAX_NAMES = 6


def level_names(tree: Taxonomy) -> list[str]:
    """Return the names of the levels from the top down."""
    return [level_title(tree, depth) for depth in range(1, tree.n_levels + 1)]


def level_words(level: str) -> str:
    """Return the name of a level as people write it.

    Examples
    --------
    >>> level_words("sub_species"), level_words("leaf")
    ('sub species', 'finest class')
    """
    return "finest class" if level == "leaf" else level.replace("_", " ")


def chain_name(tree: Taxonomy, node: int) -> str:
    """Return the name of a node with those of the only children above it; repeated names once.

    Examples
    --------
    >>> tree = Taxonomy.from_paths([("Cessna", "172", "172"), ("Fokker", "F27")])
    >>> chain_name(tree, tree.node("172")), chain_name(tree, 0)
    ('Cessna > 172', 'all classes')
    """
    if node == 0 and tree.root_name == "root":
        return "all classes"
    names = [str(tree.names[node])]
    while node > 0 and tree.n_children[tree.parents[node]] == 1:
        node = int(tree.parents[node])
        if node > 0 and str(tree.names[node]) != names[-1]:
            names.append(str(tree.names[node]))
    return _joined(names)


def _joined(names: list[str]) -> str:
    """Join names that are listed from the bottom up; of very many only some."""
    if len(names) > _MAX_NAMES:
        names = [*names[:3], "...", *names[-2:]]
    return " > ".join(reversed(names))


def bare_node(tree: Taxonomy, node: int) -> Node:
    """Return a node without numbers; of a chain of only children the last is meant."""
    end = int(tree.last_of_chain[node])
    n_leaves, depth = int(tree.leaf_stop[end] - tree.leaf_start[end]), int(tree.depths[end])
    if n_leaves == tree.n_leaves:
        level, title, depth = "nothing", "", 0
    elif n_leaves == 1:
        level, depth = "leaf", tree.n_levels
        title = level_title(tree, int(tree.depths[end])) if tree.level_names else level
    else:
        level = title = level_title(tree, depth)
    return Node(
        node=end,
        name=chain_name(tree, end),
        label=str(tree.label(end)),
        level=level,
        title=level_words(title),
        depth=depth,
        n_leaves=n_leaves,
        n_children=int(tree.n_children[end]),
        probability=1.0,
    )


def _node_view(prediction: Prediction, node: int) -> Node:
    """Return a node with its numbers."""
    view = bare_node(prediction.taxonomy, node)
    end = view.node
    view.probability = float(prediction.probability[end])
    if prediction.numbers is not None:
        mass, belief, _, plausibility, vacuity = (float(v[end]) for v in prediction.numbers)
        view.mass, view.belief, view.plausibility = mass, belief, plausibility
        view.vacuity = None if isnan(vacuity) else min(vacuity, 1.0)
    return view


def _ordered_children(prediction: Prediction, node: int) -> IntArray:
    """Return the children of a node, likeliest first.

    The one that leads to the likeliest leaf comes first of all where it would be far down.
    """
    tree = prediction.taxonomy
    children = tree.first_child[node] + np.arange(tree.n_children[node])
    order = children[np.argsort(-prediction.probability[children], kind="stable")]
    place = np.flatnonzero(np.isin(order, prediction.ladder.nodes[0]))
    if place.size and place[0] >= _FIRST_CHILDREN:
        order = np.concatenate([order[place], np.delete(order, place)])
    return np.asarray(order)


def children_view(prediction: Prediction, node: int, offset: int, limit: int | None) -> Children:
    """Return some of the children of a node.

    Parameters
    ----------
    prediction : Prediction
        The prediction.
    node : int
        The last node of its chain.
    offset : int
        Number of children to skip.
    limit : int or None
        Number of children to return; None returns those that matter.
    """
    order = _ordered_children(prediction, node)
    if limit is None:
        first = prediction.probability[order[:_FIRST_CHILDREN]]
        limit = max(int((first >= _MIN_PROBABILITY).sum()), min(3, order.size))
        if order.size - limit <= 2:  # a line about the others would take as much space
            limit = order.size
    shown = order[offset : offset + limit]
    rest = float(prediction.probability[order[offset + limit :]].sum())
    return Children(
        node=node,
        offset=offset,
        total=order.size,
        children=[_node_view(prediction, int(child)) for child in shown],
        rest_probability=min(rest, 1.0),
    )


def _opened_tree(prediction: Prediction, path: list[Node]) -> list[Children]:
    """Open the branches that matter: the path to the likeliest leaf, then the likeliest."""
    pages: list[Children] = []
    n_nodes = 0
    on_path = {node.node for node in path[:_MAX_PATH]}
    # The path first (0), then by probability.
    waiting = [(0, -1.0, path[0].node)]
    while waiting:
        is_beside, probability, node = heapq.heappop(waiting)
        if is_beside and (n_nodes >= _MAX_NODES or -probability < _LEAST_OPENED):
            break
        page = children_view(prediction, node, 0, None)
        pages.append(page)
        n_nodes += len(page.children)
        for child in page.children:
            if child.n_children:
                is_beside = int(child.node not in on_path)
                heapq.heappush(waiting, (is_beside, -child.probability, child.node))
    return pages


def _path_view(prediction: Prediction) -> list[Node]:
    """Return the path from the whole tree to the likeliest leaf, chains of only children once."""
    tree, ladder = prediction.taxonomy, prediction.ladder
    ends = tree.last_of_chain[ladder.nodes[0]].tolist()
    path: list[Node] = []
    for end, score in zip(ends, ladder.scores[0].tolist(), strict=True):
        if path and path[-1].node == end:
            continue
        view = _node_view(prediction, end)
        # Exactly the number that the hedge compares with its threshold.
        view.probability = min(score, 1.0)
        path.append(view)
    return path


def _hedged(path: list[Node], threshold: float) -> Node:
    """Return the deepest node of a path that is probable enough; the whole tree always is."""
    found = path[0]
    for node in path[1:]:
        if node.probability < threshold:
            break
        found = node
    return found


def prediction_view(prediction: Prediction, key: str, threshold: float | None) -> PredictionView:
    """Return what the API sends at once about a prediction."""
    path = _path_view(prediction)
    names = level_names(prediction.taxonomy)
    view = PredictionView(
        name=prediction.name,
        id=key,
        n_images=prediction.n_images,
        path=path,
        hedged=None if threshold is None else _hedged(path, threshold),
        levels=[_level_view(prediction, name, d) for d, name in enumerate(names, start=1)],
        tree=_opened_tree(prediction, path),
        explanation=_explain(prediction),
    )
    opinion = prediction.opinion
    if opinion is not None:
        stops = [str(prediction.taxonomy.root_name), *names[:-1]]
        profile = np.clip(opinion.depth_profile[0], 0, 1).tolist()
        view.stops = [Stop(level=n, mass=m) for n, m in zip(stops, profile, strict=True)]
        view.nonspecificity = min(float(opinion.nonspecificity[0]), 1.0)
    return view


def _level_view(prediction: Prediction, level: str, depth: int) -> LevelPrediction:
    """Return the likeliest class of a level; of the deepest the last node of the path."""
    tree = prediction.taxonomy
    node = int(prediction.ladder.nodes[0, -1])
    if depth < tree.n_levels:
        nodes = tree.nodes_at_depth(depth)
        node = int(nodes[prediction.probability[nodes].argmax()])
    view = _node_view(prediction, node)
    return LevelPrediction(
        level=level,
        label=str(tree.label(node)),
        probability=view.probability,
        belief=view.belief,
        plausibility=view.plausibility,
    )


def _explain(prediction: Prediction) -> str:
    if prediction.opinion is not None:
        return prediction.opinion.explain(0)
    tree, leaves = prediction.taxonomy, prediction.leaf_probability
    best = np.argsort(-leaves, kind="stable")[:2].tolist()
    first, second = (f"{tree.leaves[leaf]} (probability {leaves[leaf]:.2f})" for leaf in best)
    return (
        f"The likeliest class is {first}, before {second}. This model gives probabilities only; "
        "how much of them rests on evidence it cannot say."
    )


def sides(parts: Sequence[Prediction]) -> list[Side]:
    """Return between which classes photographs of one subject disagree; none if they do not.

    Go down the tree as long as no two photographs have more than half of their belief in different
    children.

    Parameters
    ----------
    parts : sequence of Prediction
        Predictions on the photographs.
    """
    tree, node = parts[0].taxonomy, 0
    belief = np.stack([p.probability if p.numbers is None else p.numbers.belief for p in parts])
    while tree.n_children[node]:
        children = tree.first_child[node] + np.arange(tree.n_children[node])
        is_for = belief[:, children] > 0.5
        named = np.flatnonzero(is_for.any(axis=0))
        if named.size > 1:
            views = [bare_node(tree, int(children[place])) for place in named]
            return [
                Side(
                    name=view.name,
                    title=view.title,
                    belief=belief[:, children[place]].max(),
                    images=[p.name for p, own in zip(parts, is_for[:, place], strict=True) if own],
                )
                for view, place in zip(views, named, strict=True)
            ]
        if not named.size:
            break
        node = int(children[named[0]])
    return []


def found_view(prediction: Prediction, text: str, limit: int) -> Found:
    """Return the nodes whose name holds a text, the likeliest first."""
    tree, wanted = prediction.taxonomy, text.casefold()
    names = [str(name).casefold() for name in tree.names.tolist()]
    named = [node for node in range(1, tree.n_nodes) if wanted in names[node]]
    nodes = np.unique(tree.last_of_chain[np.array(named, dtype=np.int64)])
    order = nodes[np.argsort(-prediction.probability[nodes], kind="stable")]
    found = [
        FoundNode(**_node_view(prediction, node).model_dump(), place=_place(tree, node))
        for node in order[:limit].tolist()
    ]
    return Found(total=order.size, nodes=found)


def _place(tree: Taxonomy, node: int) -> str:
    """Return the names of the branching nodes above a node."""
    names: list[str] = []
    node = int(tree.parents[node])
    while node > 0:
        if tree.n_children[node] > 1:
            names.append(str(tree.names[node]))
        node = int(tree.parents[node])
    return _joined(names)
