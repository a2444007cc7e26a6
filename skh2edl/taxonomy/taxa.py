"""Trees of life: Darwin Core and GBIF, the NCBI taxonomy, categories of COCO and iNaturalist.

Their nodes have ranks, many of which a classifier does not need. A tree is made of some ranks, each
a level; where a taxon skips one, it stands for itself there.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from .formats import read_paths
from .graphs import join_forest, read_edges
from .names import Name, is_blank, shown, trim_row
from .tables import load_json, read_columns
from .tree import IntArray, NodeList, breadth_first_order, raise_cycle

# The ranks that a tree has where none are named: those that most lists fill.
MAIN_RANKS = (
    "domain", "superkingdom", "kingdom", "phylum", "class", "order", "family", "genus", "species",
)  # fmt: skip
# Statuses, in lower case, of taxa that are no synonyms.
_CURRENT = {"", "accepted", "valid", "provisionally accepted", "doubtful"}
# Terms of a checklist, in the order in which its reader takes them.
_TAXON_TERMS = (
    "taxonID", "parentNameUsageID", "acceptedNameUsageID", "taxonomicStatus", "taxonRank",
    "canonicalName", "scientificName",
)  # fmt: skip

# Names, parents and the names of the levels.
RankedNodes = tuple[list[Any], IntArray, list[str]]


# Ranks -------------------------------------------------------------------------------------------


def ranked_nodes(
    ids: Sequence[Any],
    parents: IntArray,
    names: Sequence[str],
    ranks: Sequence[str],
    wanted: Sequence[str] | None,
    under: str | None,
    root_name: Name | None,
) -> RankedNodes:
    """Keep the taxa of some ranks, each below the nearest kept one above it.

    Parameters
    ----------
    ids, names, ranks : sequences of length n_taxa
        Of each taxon.
    parents : ndarray of int of shape (n_taxa,)
        Position of each taxon's parent, -1 at the top.
    wanted : sequence of str or None
        The ranks from the top down; None keeps those of `MAIN_RANKS` that occur.
    under : str or None
        Id or name of a taxon: only what lies below it is kept, and it is the root.
    root_name : str or None
        The root's name; None means "root", or the name of `under`.
    """
    order, _ = breadth_first_order(np.concatenate([[-1], np.where(parents < 0, 0, parents + 1)]))
    order = order[1:] - 1  # without the root above all
    if order.size < len(ids):
        raise_cycle(names, parents, order)
    if under is not None:
        top = _find_taxon(ids, names, under)
        root_name = names[top] if root_name is None else root_name
        order = _below(top, order, parents)  # nothing else is looked at
    own = {ranks[taxon] for taxon in order.tolist()}
    levels = [rank for rank in (MAIN_RANKS if wanted is None else wanted) if rank in own]
    if not levels:
        raise ValueError(
            f"No taxon has one of the ranks {shown(list(wanted or MAIN_RANKS))}; there are "
            f"{shown(sorted(own))}. Name those to keep with ranks=..."
        )
    return _keep_ranks(levels, order, ids, parents, names, ranks, root_name)


def _keep_ranks(
    levels: list[str],
    order: IntArray,
    ids: Sequence[Any],
    parents: IntArray,
    names: Sequence[str],
    ranks: Sequence[str],
    root_name: Name | None,
) -> RankedNodes:
    """Return the nodes of the taxa of some ranks, given all taxa in breadth-first order."""
    level_of = {rank: number for number, rank in enumerate(levels)}
    # The nearest kept taxon at or above each, the node of each kept one, and its level.
    nearest = {-1: -1}
    node_of = {-1: 0}
    level = {-1: -1}
    used: set[tuple[int, str]] = set()
    nodes: list[Any] = ["root" if root_name is None else root_name]
    above = [-1]
    for taxon in order.tolist():
        kept = nearest.get(int(parents[taxon]), -1)
        if ranks[taxon] not in level_of:
            nearest[taxon] = kept
            continue
        nearest[taxon] = taxon
        level[taxon] = level_of[ranks[taxon]]
        if level[kept] >= level[taxon]:
            raise ValueError(
                f"{shown(names[taxon])} has the rank {ranks[taxon]!r} and lies below "
                f"{shown(names[kept])} of rank {ranks[kept]!r}. Give ranks=... from the top down."
            )
        node, name = node_of[kept], names[taxon]
        if (node, name) in used:
            name = f"{name} [{ids[taxon]}]"  # two taxa of one name, kept apart by their ids
        used.add((node, name))
        # A skipped rank: the taxon stands for itself there.
        for _ in range(level[kept], level[taxon]):
            nodes.append(name)
            above.append(node)
            node = len(nodes) - 1
        node_of[taxon] = node
    return nodes, np.asarray(above, dtype=np.int64), levels[: max(level.values()) + 1]


def _below(top: int, order: IntArray, parents: IntArray) -> IntArray:
    """Return the taxa below one of them, in breadth-first order."""
    inside = np.zeros(len(parents) + 1, dtype=bool)  # the last place is that of no parent, -1
    inside[top] = True
    for taxon in order.tolist():
        inside[taxon] |= inside[parents[taxon]]
    inside[top] = False
    return order[inside[order]]


def _find_taxon(ids: Sequence[Any], names: Sequence[str], under: str) -> int:
    found = [place for place, own in enumerate(ids) if str(own) == str(under)]
    found = found or [place for place, name in enumerate(names) if name == under]
    if len(found) != 1:
        some = [str(ids[place]) for place in found[:5]]
        raise ValueError(
            f"under={under!r} must be the id or the name of one taxon, and fits {len(found)}"
            + (f", with the ids {shown(some)}. Give one of these." if found else ". Check it.")
        )
    return found[0]


def _positions(ids: Sequence[Any], above: Iterable[Any]) -> IntArray:
    place = {own: number for number, own in enumerate(ids)}
    return np.array(
        [
            -1 if parent == own else place.get(parent, -1)
            for own, parent in zip(ids, above, strict=True)
        ],
        dtype=np.int64,
    )


# Darwin Core -------------------------------------------------------------------------------------


def read_darwin_core(
    source: Any,
    ranks: Sequence[str] | None,
    under: str | None,
    root_name: Name | None,
    bridge_gaps: bool | None,
) -> RankedNodes:
    """Read a checklist with ids of parents, or a table with a column for each rank."""
    table = _read_terms(
        source, [*_TAXON_TERMS, "genericName", "specificEpithet", *MAIN_RANKS, *(ranks or ())]
    )
    has_parents = "taxonID" in table and any(table.get("parentNameUsageID", ()))
    if has_parents:
        return _read_checklist(table, ranks, under, root_name)
    if under is not None:
        raise ValueError(
            "under=... needs the columns taxonID and parentNameUsageID. Build the whole tree and "
            "use Taxonomy.restrict."
        )
    return _read_rank_columns(table, ranks, root_name, bridge_gaps)


def _read_checklist(
    table: dict[str, list[str]],
    ranks: Sequence[str] | None,
    under: str | None,
    root_name: Name | None,
) -> RankedNodes:
    blank = [""] * len(table["taxonID"])
    columns = (table.get(term, blank) for term in _TAXON_TERMS)
    # A synonym is another name of a taxon that is listed itself.
    current = [
        (own, parent, rank.lower(), canonical or scientific or own)
        for own, parent, accepted, status, rank, canonical, scientific in zip(*columns, strict=True)
        if status.lower() in _CURRENT and accepted in ("", own)
    ]
    ids, above, kinds, names = zip(*current, strict=True) if current else [()] * 4
    return ranked_nodes(ids, _positions(ids, above), names, kinds, ranks, under, root_name)


def _read_rank_columns(
    table: dict[str, list[str]],
    ranks: Sequence[str] | None,
    root_name: Name | None,
    bridge_gaps: bool | None,
) -> RankedNodes:
    if not any(table.get("species", ())) and (ranks is None or "species" in ranks):
        table = {**table, "species": _species(table)}
    levels = [rank for rank in (MAIN_RANKS if ranks is None else ranks) if any(table.get(rank, ()))]
    if not levels:
        raise ValueError(
            f"The table has neither taxonID with parentNameUsageID nor a column of the ranks "
            f"{shown(list(ranks or MAIN_RANKS))} with names in it. Name the columns from the top "
            "down with ranks=..., or use Taxonomy.from_table."
        )
    rows = dict.fromkeys(zip(*(table[rank] for rank in levels), strict=True))
    named = [row for row in rows if any(row)]
    names, parents = read_paths(named, root_name, bridge_gaps)
    return names, parents, levels


def _species(table: dict[str, list[str]]) -> list[str]:
    """Return the names of species: of their parts, or what has that rank."""
    n_rows = max(map(len, table.values()), default=0)
    blank = [""] * n_rows
    genera = table.get("genus") or table.get("genericName") or blank
    parts = zip(
        genera,
        table.get("specificEpithet", blank),
        table.get("taxonRank", blank),
        table.get("canonicalName", table.get("scientificName", blank)),
        strict=True,
    )
    return [
        f"{genus} {epithet}" if genus and epithet else name if rank.lower() == "species" else ""
        for genus, epithet, rank, name in parts
    ]


def _read_terms(source: Any, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return the wanted columns that a table has, as text."""
    terms: dict[Hashable, str] = {}

    def choose(names: list[Hashable], source: str) -> list[Hashable]:
        known = {str(name).split(":")[-1]: name for name in names}
        terms.update({known[term]: term for term in wanted if term in known})
        return list(terms)

    columns = read_columns(source, choose)
    return {
        terms[name]: ["" if is_blank(cell) else str(cell).strip() for cell in cells]
        for name, cells in columns.items()
    }


# NCBI --------------------------------------------------------------------------------------------


def read_ncbi(
    source: str | os.PathLike[str],
    ranks: Sequence[str] | None,
    under: str | None,
    root_name: Name | None,
) -> RankedNodes:
    """Read nodes.dmp and names.dmp, in a folder or in taxdump.tar.gz or taxdmp.zip."""
    ids, above, kinds = zip(*(line[:3] for line in _read_dump(source, "nodes.dmp")), strict=True)
    lines = _read_dump(source, "names.dmp")
    names = {line[0]: line[1] for line in lines if line[3] == "scientific name"}
    unnamed = [own for own in ids if own not in names]
    if unnamed:
        raise ValueError(
            f"names.dmp has no scientific name for {len(unnamed)} taxa, first {shown(unnamed[:3])}."
            " Take both files from one download."
        )
    listed = [names[own] for own in ids]
    return ranked_nodes(ids, _positions(ids, above), listed, kinds, ranks, under, root_name)


def _read_dump(source: str | os.PathLike[str], name: str) -> Iterator[list[str]]:
    """Yield the fields of each line of a file of the dump."""
    path = Path(source).expanduser()
    with ExitStack() as stack:
        try:
            if path.is_dir():
                file: Any = stack.enter_context((path / name).open("rb"))
            elif zipfile.is_zipfile(path):
                file = stack.enter_context(stack.enter_context(zipfile.ZipFile(path)).open(name))
            else:
                file = stack.enter_context(tarfile.open(path)).extractfile(name)
        except (FileNotFoundError, KeyError, tarfile.ReadError):
            raise FileNotFoundError(
                f"There is no {name} in {path}. Give the folder of an unpacked taxdump, "
                "taxdump.tar.gz or taxdmp.zip."
            ) from None
        lines = stack.enter_context(io.TextIOWrapper(file, encoding="utf-8"))
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip("\r\n").removesuffix("\t|").split("\t|\t", maxsplit=4)
            if len(fields) < 3 + (name == "names.dmp"):
                raise ValueError(
                    f"{name}, line {number}: expected fields between '\\t|\\t', got {shown(line)}. "
                    "The file may be half-downloaded: fetch it again."
                )
            yield fields


# Categories --------------------------------------------------------------------------------------


def read_coco(source: Any, root_name: Name) -> tuple[NodeList, list[str] | None]:
    """Read the categories of a COCO or iNaturalist file; return the names of levels, if any."""
    document = load_json(source) if isinstance(source, (str, os.PathLike)) else source
    categories = document.get("categories") if isinstance(document, Mapping) else document
    if not isinstance(categories, Sequence) or not all(
        isinstance(entry, Mapping) and not is_blank(entry.get("name")) for entry in categories
    ):
        raise ValueError(
            'The categories must be a list of objects with a "name", or a JSON object whose '
            f'"categories" is such a list, got {shown(document)}.'
        )
    if categories and all("path" in entry for entry in categories):
        return read_paths([entry["path"] for entry in categories if entry["path"]], root_name), None
    levels = [rank for rank in MAIN_RANKS[:-1] if any(entry.get(rank) for entry in categories)]
    if len(levels) > 1:
        # In iNaturalist's files a category is a species, below the ranks that it lists.
        rows = [[*(entry.get(rank) for rank in levels), entry["name"]] for entry in categories]
        return read_paths(map(trim_row, rows), root_name, True), [*levels, "species"]
    pairs = [
        (entry["supercategory"], entry["name"])
        for entry in categories
        if not is_blank(entry.get("supercategory"))
        and str(entry["supercategory"]).lower() != "none"
        and entry["supercategory"] != entry["name"]
    ]
    nodes = read_edges(pairs, nodes=[entry["name"] for entry in categories])
    return join_forest(nodes, root_name), None
