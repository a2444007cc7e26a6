"""How a taxonomy is built: of paths, edges, mappings, tables, text, and other programs' trees."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from . import formats
from .graphs import ChooseParent, join_forest, read_edges, read_networkx, read_obo, read_parents
from .names import Name, clean_names, name_root, shown
from .newick import read_newick, read_phylo
from .tables import read_table_rows
from .taxa import read_coco, read_darwin_core, read_ncbi


class Builders:
    """Mixin of the ``from_...`` methods of a taxonomy."""

    if TYPE_CHECKING:

        def __init__(self, names: Any, parents: Any, **options: Any) -> None:
            """Stand for the constructor of the taxonomy."""

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[Iterable[Any]],
        *,
        level_names: Iterable[str] | None = None,
        root_name: Name | None = None,
        bridge_gaps: bool | None = None,
        separator: str = "/",
    ) -> Self:
        """Build from rows of names, from the top level down.

        Parameters
        ----------
        paths : iterable of sequences
            Paths of leaves; rows for inner nodes and repeated rows are allowed. Blank names at
            the end of a row are dropped; a blank before a name is a missing rank, at which the
            next name stands for itself.
        level_names : sequence of str, default=None
            Names of the levels.
        root_name : str, default=None
            The root's name, which as a label means "unlabelled". None means "root", "(root)" where
            that is the name of another node, and in a tree of integers -1 or the integer below
            the smallest.
        bridge_gaps : bool, default=None
            As in :meth:`from_table`.
        separator : str, default="/"
            What joins the names of a path.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_paths([("cat", "lynx"), ("cat", "puma"), ("dog",)]).leaves
        ('lynx', 'puma', 'dog')
        """
        names, parents = formats.read_paths(paths, root_name, bridge_gaps)
        return cls(names, parents, level_names=level_names, separator=separator)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[Any, Any]],
        *,
        choose_parent: ChooseParent = None,
        root_name: Name | None = None,
        **options: Any,
    ) -> Self:
        """Build from (parent, child) pairs, in which a name stands for one node.

        Parameters
        ----------
        edges : iterable of pairs
            The edges in any order. The node without a parent is the root.
        choose_parent : "first", mapping or callable, default=None
            Which parent to keep where a node has several: the one named first, that of a mapping
            of nodes to parents, or what a function of the node and the list of its parents
            returns. None refuses such a graph and names the nodes.
        root_name : str, default=None
            Name of the root that is put above several trees. None names it as
            :meth:`from_paths` does and warns, because a slip in a name makes a second root too.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_edges([("pet", "cat"), ("pet", "dog")]).path("cat")
        ('cat',)
        >>> edges = [("fish", "koi"), ("pet", "koi"), ("pet", "cat"), ("fish", "cod")]
        >>> tree = Taxonomy.from_edges(edges, choose_parent={"koi": "pet"}, root_name="animal")
        >>> tree.path("koi")
        ('pet', 'koi')
        """
        return cls(*join_forest(read_edges(edges, choose_parent), root_name), **options)

    @classmethod
    def from_parents(
        cls,
        parents: Mapping[Any, Any],
        *,
        choose_parent: ChooseParent = None,
        root_name: Name | None = None,
        **options: Any,
    ) -> Self:
        """Build from a map of each child to its parent; the root may map to None.

        Parameters
        ----------
        parents : mapping
            Child name to parent name, or to a list of them where `choose_parent` says which.
        choose_parent, root_name
            As in :meth:`from_edges`.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_parents({"cat": "pet", "dog": "pet"}).root_name
        'pet'
        """
        return cls(*join_forest(read_parents(parents, choose_parent), root_name), **options)

    @classmethod
    def from_nested(cls, nested: Any, *, root_name: Name | None = None, **options: Any) -> Self:
        """Build from nested mappings, or from records with a name and children.

        Parameters
        ----------
        nested : mapping, list of records or path
            Name to what is below it: a list holds leaves, None or {} ends a branch. Or
            ``{"name": "cat", "children": [{"name": "lynx"}, ...]}``, one or a list of such
            records. A `pathlib.Path` is read as JSON.
        root_name : str, default=None
            The root's name, which a single record brings itself; None as in :meth:`from_paths`.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).n_leaves
        3
        >>> pets = [{"name": "cat"}, {"name": "dog", "children": [{"name": "pug"}]}]
        >>> Taxonomy.from_nested({"name": "pet", "children": pets}).path("pug")
        ('dog', 'pug')
        """
        return cls(*formats.read_nested(nested, root_name), **options)

    @classmethod
    def from_table(
        cls,
        table: Any,
        columns: Sequence[Hashable] | None = None,
        *,
        root_name: Name | None = None,
        bridge_gaps: bool | None = None,
        **options: Any,
    ) -> Self:
        """Build from the rank columns of a CSV file or DataFrame, which name the levels.

        Parameters
        ----------
        table : path or DataFrame
            One row for each leaf or sample; a blank cell is a missing rank. Files ending in
            ``.tsv`` have tabs, those ending in ``.gz`` are unpacked.
        columns : sequence of str, default=None
            Rank columns from the top level down; None means all columns.
        root_name : str, default=None
            The root's name; None as in :meth:`from_paths`.
        bridge_gaps : bool, default=None
            What to do if one row leaves a rank blank that another row with the same name below it
            fills, so that a species stands under its genus and beside it: True fills the blank
            from the other row, False makes two classes, None does so with a warning.
        **options
            `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> import pandas as pd
        >>> table = pd.DataFrame({"family": ["cat", "cat", "dog"], "kind": ["lynx", "puma", None]})
        >>> Taxonomy.from_table(table, ["family", "kind"]).level("kind")
        ['lynx', 'puma', 'dog']
        """
        rows, level_names = read_table_rows(table, columns)
        names, parents = formats.read_paths(rows, root_name, bridge_gaps)
        return cls(names, parents, level_names=level_names or None, **options)

    @classmethod
    def from_folder(
        cls, directory: str | os.PathLike[str], *, root_name: Name | None = "root", **options: Any
    ) -> Self:
        """Build from a folder of folders; hidden folders and links are passed over.

        Parameters
        ----------
        directory : path
            The folder that stands for the root.
        root_name : str, default="root"
            The root's name; None takes the folder's own.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat/lynx", "cat/puma", "dog"):
        ...         pathlib.Path(folder, name).mkdir(parents=True)
        ...     Taxonomy.from_folder(folder).leaves
        ('lynx', 'puma', 'dog')
        """
        return cls(*formats.read_folder(directory, root_name), **options)

    @classmethod
    def from_newick(
        cls, text: str | os.PathLike[str], *, root_name: Name = "root", **options: Any
    ) -> Self:
        """Build from Newick text; branch lengths and comments are passed over.

        Parameters
        ----------
        text : str or path
            The tree, or as a `pathlib.Path` the file that holds it. An inner node without a name
            is called after its first and last leaf.
        root_name : str, default="root"
            The root's name where the text has none.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_newick("((lynx:1,puma:1)cat:2,dog);").path("puma")
        ('cat', 'puma')
        """
        return cls(*read_newick(text, root_name), **options)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        name: str | None = None,
        choose_parent: ChooseParent = None,
        root_name: Name | None = None,
        **options: Any,
    ) -> Self:
        """Build from a directed networkx graph with edges from parent to child.

        Parameters
        ----------
        graph : networkx.DiGraph
            A rooted tree.
        name : str, default=None
            Attribute of the nodes that holds their names; None takes the nodes themselves.
        choose_parent, root_name
            As in :meth:`from_edges`.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> import networkx as nx
        >>> Taxonomy.from_networkx(nx.DiGraph([("pet", "cat"), ("pet", "dog")])).leaves
        ('cat', 'dog')
        """
        return cls(*join_forest(read_networkx(graph, name, choose_parent), root_name), **options)

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
            A folder with ``nodes.dmp`` and ``names.dmp``, or the archive ``taxdump.tar.gz`` or
            ``taxdmp.zip``.
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
        return cls(*formats.read_nltk(tree), **options)

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

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build from what :meth:`to_json` wrote.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> tree = Taxonomy.flat(["cat", "dog"])
        >>> Taxonomy.from_json(tree.to_json()) == tree
        True
        """
        return cls(**formats.read_json(text))

    @classmethod
    def flat(cls, names: Iterable[Any], *, root_name: Name | None = None, **options: Any) -> Self:
        """Build a tree with one decision: all names hang from the root.

        Parameters
        ----------
        names : iterable of str or number
            The classes.
        root_name : str, default=None
            The root's name; None as in :meth:`from_paths`.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.flat([3, 1, 2]).sorted_leaf_labels
        array([1, 2, 3])
        """
        if isinstance(names, str):
            raise TypeError(f"names must be a sequence of classes, got the string {shown(names)}.")
        leaves = clean_names(names)
        if root_name is None:
            root_name = name_root(leaves)
        return cls([root_name, *leaves], np.array([-1] + [0] * len(leaves)), **options)
