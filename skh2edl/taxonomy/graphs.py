"""Trees as edges: pairs, maps, networkx graphs and ontologies.

A graph in which a node has several parents is no tree. It is refused, unless the caller says which
parent to keep; several roots get one above them.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, count
from typing import Any

import numpy as np

from .names import Name, clean_names, is_blank, name_root, shown
from .tables import load_json, read_text, rows_of
from .tree import NodeList

# How to make a tree of a graph whose nodes have several parents.
ChooseParent = str | Mapping[Any, Any] | Callable[[Any, list[Any]], Any] | None


def read_edges(
    edges: Any, choose_parent: ChooseParent = None, nodes: Iterable[Any] = ()
) -> NodeList:
    """Collect (parent, child) pairs, in which a name stands for one node.

    Parameters
    ----------
    edges : iterable of pairs
        The edges in any order.
    choose_parent : "first", mapping, callable or None
        Which parent to keep where a node has several.
    nodes : iterable, default=()
        Further nodes, which are roots where no edge leads to them.
    """
    pairs = [
        edge if type(edge) is tuple and len(edge) == 2 else _as_pair(edge, number)
        for number, edge in enumerate(rows_of(edges))
    ]
    position: dict[Any, int] = defaultdict(count().__next__)
    try:
        ends = np.fromiter(
            map(position.__getitem__, chain.from_iterable(pairs)), np.int64, 2 * len(pairs)
        )
    except TypeError:  # a list or dict where a name should be
        clean_names(chain.from_iterable(pairs))
        raise
    names = list(dict.fromkeys([*position, *nodes]))
    above, below = ends[0::2], ends[1::2]
    parents = np.full(len(names), -1, dtype=np.int64)
    parents[below] = above
    several = np.unique(below[parents[below] != above]).tolist()
    if several:
        known: dict[int, dict[int, None]] = {child: {} for child in several}
        for parent, child in zip(above.tolist(), below.tolist(), strict=True):
            if child in known:
                known[child][parent] = None
        chosen = _choose_parents({c: list(p) for c, p in known.items()}, names, choose_parent)
        parents[list(chosen)] = list(chosen.values())
    return names, parents


def _as_pair(edge: Any, number: int) -> tuple[Any, Any]:
    ends = tuple(edge) if isinstance(edge, Iterable) and not isinstance(edge, str) else ()
    if len(ends) != 2:
        raise ValueError(
            f"Edge {number} is {shown(edge)}, but each edge must be a pair (parent, child)."
        )
    return ends


def _choose_parents(
    known: dict[int, list[int]], names: list[Any], choose: ChooseParent
) -> dict[int, int]:
    """Return the one parent of each node that has several, or name those nodes."""
    if choose is not None and not (
        choose == "first" or callable(choose) or isinstance(choose, Mapping)
    ):
        raise ValueError(
            f"choose_parent must be None, 'first', a mapping of a node to its parent, or a "
            f"function of a node and its parents, got {shown(choose)}."
        )
    chosen, unsettled = {}, []
    for child, parents in known.items():
        name, among = names[child], {names[parent]: parent for parent in parents}
        if choose is None or (isinstance(choose, Mapping) and name not in choose):
            unsettled.append((name, list(among)))
            continue
        if callable(choose):
            wish = choose(name, list(among))
        else:
            wish = choose[name] if isinstance(choose, Mapping) else next(iter(among))
        if wish not in among:
            raise ValueError(
                f"choose_parent gives {shown(wish)} for {shown(name)}, whose parents are "
                f"{shown(list(among))}. Choose one of these."
            )
        chosen[child] = among[wish]
    if unsettled:
        some = "; ".join(
            f"{shown(name)} (under {' and '.join(map(shown, parents[:3]))})"
            for name, parents in unsettled[:5]
        )
        name, parents = unsettled[0]
        raise ValueError(
            f"{len(unsettled)} node(s) have more than one parent, first {some}. A taxonomy is a "
            "tree: choose one with choose_parent='first', with a mapping such as "
            f"{{{shown(name)}: {shown(parents[0])}}}, or with a function of a node and its "
            "parents; or list paths, in which a name may stand in several places."
        )
    return chosen


def join_forest(nodes: NodeList, root_name: Name | None, *, quiet: bool = False) -> NodeList:
    """Put a root above several trees.

    Parameters
    ----------
    nodes : names and parents
        Of one or more trees.
    root_name : str or None
        Name of the root where one is made; None takes that of :func:`name_root` and warns,
        because a slip in a name makes a second root too.
    quiet : bool, default=False
        Whether to warn never: ontologies are often forests.

    Returns
    -------
    nodes : names and parents
        Of one tree.
    """
    names, parents = nodes
    roots = np.flatnonzero(parents == -1)
    if roots.size < 2:
        return nodes
    if root_name is None:
        root_name = name_root(names)
        if not quiet:
            some = [names[root] for root in roots[:5].tolist()]
            warnings.warn(
                f"The edges have {roots.size} roots, first {shown(some)}: nodes without a parent. "
                f"A root named {root_name!r} is put above them. Pass root_name={root_name!r} if "
                "that is meant; otherwise correct the names of the parents.",
                UserWarning,
                stacklevel=4,
            )
    return [root_name, *names], np.concatenate([[-1], np.where(parents == -1, 0, parents + 1)])


def read_parents(parents: Any, choose_parent: ChooseParent = None) -> NodeList:
    """Collect a child -> parent map; a blank parent marks a root, a list several parents."""
    if not hasattr(parents, "items"):
        raise TypeError(
            f"parents must map each child to its parent, got {shown(parents)} of type "
            f"{type(parents).__name__}. For a list of pairs use Taxonomy.from_edges."
        )
    pairs = [
        (parent, child)
        for child, given in parents.items()
        for parent in (given if isinstance(given, (list, tuple, set)) else (given,))
        if not is_blank(parent)
    ]
    return read_edges(pairs, choose_parent, parents)


def read_networkx(graph: Any, name: str | None, choose_parent: ChooseParent) -> NodeList:
    """Collect the edges of a directed networkx graph that point from parent to child."""
    if not getattr(graph, "is_directed", lambda: False)():
        raise TypeError(
            "The graph must be a networkx.DiGraph with edges from parent to child, got "
            f"{type(graph).__name__}. For an undirected tree, first apply "
            "networkx.bfs_tree(graph, root)."
        )
    nodes, positions = read_edges(graph.edges(), choose_parent, graph.nodes)
    if name is None:
        return nodes, positions
    missing = [node for node in nodes if name not in graph.nodes[node]]
    if missing:
        raise ValueError(
            f"{len(missing)} node(s) of the graph have no attribute {name!r}, first "
            f"{shown(missing[:3])}. Give every node one, or leave name=None to take the nodes "
            "themselves as names."
        )
    return [graph.nodes[node][name] for node in nodes], positions


def write_networkx(networkx: Any, tree: Any) -> Any:
    """Return a networkx.DiGraph whose nodes are paths, with names and levels as attributes."""
    graph = networkx.DiGraph(level_names=tree.level_names, separator=tree.separator)
    paths = [tree._index.path(node) for node in range(tree.n_nodes)]
    for path, name, depth in zip(paths, tree.names.tolist(), tree.depths.tolist(), strict=True):
        level = tree.level_names[depth - 1] if tree.level_names and depth else depth
        graph.add_node(path, name=name, level=level)
    graph.add_edges_from((path[:-1], path) for path in paths[1:])
    return graph


# Ontologies --------------------------------------------------------------------------------------


def read_obo(
    source: Any, relation: str, under: str | None, choose_parent: ChooseParent
) -> NodeList:
    """Collect the terms of an ontology: an OBO file, OBO graphs in JSON, or obonet's graph."""
    if hasattr(source, "nodes") and hasattr(source, "edges"):
        labels, pairs = _terms_of_obonet(source, relation)
    elif isinstance(source, Mapping):
        labels, pairs = _terms_of_obograph(source, relation)
    elif os.fspath(source).lower().removesuffix(".gz").endswith(".json"):
        labels, pairs = _terms_of_obograph(load_json(source), relation)
    else:
        labels, pairs = _terms_of_file(source, relation)
    pairs = [pair for pair in pairs if pair[0] in labels and pair[1] in labels]
    if under is not None:
        labels, pairs = _below(labels, pairs, under)
    ids, parents = read_edges(pairs, choose_parent, labels)
    return [labels[term] for term in ids], parents


Terms = tuple[dict[str, str], list[tuple[str, str]]]


def _terms_of_file(path: Any, relation: str) -> Terms:
    """Return the name of each term that is not obsolete, and the pairs (parent, child)."""
    labels: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for stanza in re.split(r"^\s*\[", read_text(path), flags=re.MULTILINE)[1:]:
        kind, *lines = stanza.splitlines()
        term: dict[str, list[str]] = defaultdict(list)
        for line in lines if kind.strip() == "Term]" else ():
            key, _, value = line.strip().partition(":")
            # After the exclamation mark a remark, after the bracket qualifiers.
            term[key].append((value if key == "name" else re.split("[!{]", value)[0]).strip())
        if not term["id"] or term["is_obsolete"] == ["true"]:
            continue
        own = term["id"][0]
        labels[own] = (term["name"] or [own])[0]
        links = [["is_a", parent] for parent in term["is_a"]] + [
            text.split() for text in term["relationship"]
        ]
        pairs += [(link[1], own) for link in links if link[:1] == [relation] and len(link) > 1]
    if not labels:
        raise ValueError(
            f"{os.fspath(path)} has no [Term] that is not obsolete. Give an OBO file, or OBO "
            "graphs in a file ending in .json."
        )
    return labels, pairs


def _terms_of_obograph(document: Any, relation: str) -> Terms:
    graphs = document.get("graphs") if isinstance(document, Mapping) else None
    try:
        nodes = [node for graph in graphs or [] for node in graph.get("nodes", [])]
        edges = [edge for graph in graphs or [] for edge in graph.get("edges", [])]
        labels = {
            node["id"]: node.get("lbl") or node["id"]
            for node in nodes
            if node.get("type", "CLASS") == "CLASS"
            and not (node.get("meta") or {}).get("deprecated", False)
        }
        pairs = [(edge["obj"], edge["sub"]) for edge in edges if edge.get("pred") == relation]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"OBO graphs have nodes with an id and edges with sub, pred and obj ({error!r}). Check "
            "the file, or read its .obo form."
        ) from None
    if not labels:
        raise ValueError(
            'OBO graphs are a JSON object with "graphs", a list of objects with "nodes" and '
            f'"edges"; this is {shown(document)}.'
        )
    return labels, pairs


def _terms_of_obonet(graph: Any, relation: str) -> Terms:
    # obonet points from a term to its parent, and the key of an edge is the relation.
    labels = {term: facts.get("name", term) for term, facts in graph.nodes(data=True)}
    pairs = [(above, below) for below, above, key in graph.edges(keys=True) if key == relation]
    return labels, pairs


def _below(labels: dict[str, str], pairs: list[tuple[str, str]], under: str) -> Terms:
    """Keep one term, found by id or by name, and what lies below it."""
    named = [term for term, label in labels.items() if under in (term, label)]
    if len(named) != 1:
        raise ValueError(
            f"under={under!r} must be the id or the name of one term, and fits {len(named)}. "
            f"Use an id, such as {next(iter(labels), 'GO:0008150')!r}."
        )
    children: dict[str, list[str]] = defaultdict(list)
    for above, below in pairs:
        children[above].append(below)
    kept, waiting = set(named), named
    while waiting:
        new = [child for child in children[waiting.pop()] if child not in kept]
        kept.update(new)
        waiting += new
    return (
        {term: label for term, label in labels.items() if term in kept},
        [pair for pair in pairs if kept.issuperset(pair)],
    )
