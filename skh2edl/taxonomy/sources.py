"""How a taxonomy is built of the files and objects of other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from .graphs import ChooseParent, join_forest, read_obo
from .names import Name
from .newick import read_nltk, read_phylo
from .taxa import read_coco, read_darwin_core, read_ncbi


class Sources:
    """Mixin of the ``from_...`` methods of a taxonomy that read other programs' trees."""

    if TYPE_CHECKING:

        def __init__(self, names: Any, parents: Any, **options: Any) -> None:
            """Stand for the constructor of the taxonomy."""

    @classmethod
    def from_darwin_core(
        cls,
        table: Any,
        ranks: Sequence[str] | None = None,
        *,
        under: str | None = None,
        root_name: Name | None = None,
        bridge_gaps: bool | None = True,
        **options: Any,
    ) -> Self:
        """Build from a Darwin Core table, such as a checklist or a download of GBIF.

        Parameters
        ----------
        table : path or DataFrame
            Comma or tab separated, ``.gz`` or not. With the columns ``taxonID`` and
            ``parentNameUsageID`` it is read as a checklist: synonyms are left out, and a taxon is
            called by its ``canonicalName``, or else its ``scientificName``. Otherwise it has a
            column for each rank; the species may be in ``species``, in genus and
            ``specificEpithet``, or in ``scientificName`` where ``taxonRank`` says so.
        ranks : sequence of str, default=None
            Ranks from the top down, each a level. None takes the main ranks from kingdom to
            species that the table has.
        under : str, default=None
            Id or name of a taxon of a checklist: only what lies below it is read.
        root_name : str, default=None
            The root's name; None means "root", or the name of `under`.
        bridge_gaps : bool, default=True
            As in :meth:`from_table`.
        **options
            `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> import pandas as pd
        >>> rows = [("1", "", "Felidae", "family"), ("2", "1", "Lynx", "genus"),
        ...         ("3", "2", "Lynx lynx", "species"), ("4", "1", "Puma", "genus")]
        >>> columns = ["taxonID", "parentNameUsageID", "scientificName", "taxonRank"]
        >>> tree = Taxonomy.from_darwin_core(pd.DataFrame(rows, columns=columns))
        >>> tree.path("Lynx lynx"), tree.level_names
        (('Felidae', 'Lynx', 'Lynx lynx'), ('family', 'genus', 'species'))
        """
        names, parents, levels = read_darwin_core(table, ranks, under, root_name, bridge_gaps)
        return cls(names, parents, level_names=levels, **options)

    @classmethod
    def from_ncbi(
        cls,
        dump: str | os.PathLike[str],
        ranks: Sequence[str] | None = None,
        *,
        under: str | None = None,
        root_name: Name | None = None,
        **options: Any,
    ) -> Self:
        r"""Build from the NCBI taxonomy.

        Parameters
        ----------
        dump : path
            A folder with ``nodes.dmp`` and ``names.dmp``, or the archive ``taxdump.tar.gz``.
        ranks : sequence of str, default=None
            Ranks from the top down, each a level; None takes the main ranks.
        under : str, default=None
            Id or scientific name of a taxon, such as "Felidae": only what lies below it is read.
        root_name : str, default=None
            The root's name; None means "root", or the name of `under`.
        **options
            `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> import pathlib, tempfile
        >>> nodes = ["1 1 no_rank", "2 1 family", "3 2 genus", "4 2 genus"]
        >>> names = ["root", "Felidae", "Lynx", "Puma"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lines = ["\t|\t".join(line.split()) + "\t|\n" for line in nodes]
        ...     _ = pathlib.Path(folder, "nodes.dmp").write_text("".join(lines))
        ...     lines = [f"{i}\t|\t{n}\t|\t\t|\tscientific name\t|\n"
        ...              for i, n in enumerate(names, start=1)]
        ...     _ = pathlib.Path(folder, "names.dmp").write_text("".join(lines))
        ...     Taxonomy.from_ncbi(folder, under="Felidae").leaves
        ('Lynx', 'Puma')
        """
        names, parents, levels = read_ncbi(dump, ranks, under, root_name)
        return cls(names, parents, level_names=levels, **options)

    @classmethod
    def from_coco(cls, source: Any, *, root_name: Name = "root", **options: Any) -> Self:
        """Build from the categories of a COCO or iNaturalist file.

        Parameters
        ----------
        source : path, dict or list
            A JSON file (``.gz`` or not), what it holds, or its list of categories. Categories
            with ranks such as "family", as those of iNaturalist, lie below these; others below
            their ``supercategory``, which may be a category itself.
        root_name : str, default="root"
            The root's name where there are several trees.
        **options
            `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> categories = [{"id": 1, "name": "bus", "supercategory": "vehicle"},
        ...               {"id": 2, "name": "car", "supercategory": "vehicle"},
        ...               {"id": 3, "name": "person", "supercategory": "person"}]
        >>> Taxonomy.from_coco({"categories": categories}).leaves
        ('bus', 'car', 'person')
        """
        nodes, levels = read_coco(source, root_name)
        if levels is not None:
            options.setdefault("level_names", levels)
        return cls(*nodes, **options)

    @classmethod
    def from_obo(
        cls,
        source: Any,
        *,
        relation: str = "is_a",
        under: str | None = None,
        choose_parent: ChooseParent = None,
        root_name: Name | None = None,
        **options: Any,
    ) -> Self:
        """Build from an ontology.

        Parameters
        ----------
        source : path, dict or networkx.MultiDiGraph
            An ``.obo`` file, OBO graphs in ``.json`` (both ``.gz`` or not), what such JSON holds,
            or the graph that obonet reads. Obsolete terms are left out.
        relation : str, default="is_a"
            Relation of a term to its parents.
        under : str, default=None
            Id or name of a term: only what lies below it is read.
        choose_parent : "first", mapping or callable, default=None
            Which parent to keep where a term has several, as in :meth:`from_edges`; terms are
            given by their ids.
        root_name : str, default=None
            Name of the root that is put above several trees; None means "root".
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> nodes = [{"id": "A:1", "lbl": "pet"}, {"id": "A:2", "lbl": "cat"},
        ...          {"id": "A:3", "lbl": "dog"}]
        >>> edges = [{"sub": "A:2", "pred": "is_a", "obj": "A:1"},
        ...          {"sub": "A:3", "pred": "is_a", "obj": "A:1"}]
        >>> Taxonomy.from_obo({"graphs": [{"nodes": nodes, "edges": edges}]}).leaves
        ('cat', 'dog')
        """
        nodes = read_obo(source, relation, under, choose_parent)
        return cls(*join_forest(nodes, root_name, quiet=True), **options)

    @classmethod
    def from_nltk(cls, tree: Any, **options: Any) -> Self:
        """Build from an nltk.Tree, whose label is the root's name.

        Parameters
        ----------
        tree : nltk.Tree
            The tree; its leaves are the classes.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> from nltk import Tree  # doctest: +SKIP
        >>> Taxonomy.from_nltk(Tree.fromstring("(pet (cat lynx puma) dog)")).leaves
        ... # doctest: +SKIP
        ('lynx', 'puma', 'dog')
        """
        return cls(*read_nltk(tree), **options)

    @classmethod
    def from_phylo(cls, tree: Any, *, root_name: Name = "root", **options: Any) -> Self:
        """Build from a tree of Biopython's Bio.Phylo.

        Parameters
        ----------
        tree : Bio.Phylo.BaseTree.Tree or Clade
            The tree. A clade without a name is called after its first and last leaf.
        root_name : str, default="root"
            The root's name where the tree has none.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> from Bio import Phylo  # doctest: +SKIP
        >>> Taxonomy.from_phylo(Phylo.read("birds.nex", "nexus"))  # doctest: +SKIP
        Taxonomy(200 leaves, 37 branching nodes)
        """
        return cls(*read_phylo(tree, root_name), **options)
