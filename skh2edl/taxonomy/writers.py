"""How a taxonomy is written: JSON, nested records, Newick, a table, a graph."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..utils.files import write_atomically
from ..utils.optional import import_optional
from . import formats
from .graphs import write_networkx
from .labels import LabelIndex
from .newick import write_newick
from .tables import write_csv
from .tree import Tree


class Writers(Tree):
    """Mixin of the ``to_...`` methods of a taxonomy."""

    names: npt.NDArray[np.object_]
    separator: str

    if TYPE_CHECKING:

        @cached_property
        def _index(self) -> LabelIndex:
            raise NotImplementedError

    def to_json(self) -> str:
        """Write the tree as JSON text, which :meth:`from_json` reads."""
        return formats.write_json(self.names, self.parents, self.level_names, self.separator)

    def to_nested(self) -> dict[str, Any]:
        """Return the tree as records with a name and children, which :meth:`from_nested` reads.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.flat(["cat", "dog"]).to_nested()
        {'name': 'root', 'children': [{'name': 'cat'}, {'name': 'dog'}]}
        """
        return formats.write_nested(self.names, self.parents)

    def to_newick(self) -> str:
        """Write the tree as Newick text, which :meth:`from_newick` reads.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog's": None}).to_newick()
        "((lynx,puma)cat,'dog''s')root;"
        """
        return write_newick(self, self.names)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write a table with a line for each leaf and a column for each level.

        Parameters
        ----------
        path : path, default=None
            The file to write; None returns the text. :meth:`from_table` reads it.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> print(tree.to_csv(), end="")
        level_1,level_2
        cat,lynx
        cat,puma
        dog,
        """
        columns = self.level_names or [f"level_{d}" for d in range(1, self.n_levels + 1)]
        text = write_csv(map(self._index.path, self.leaf_nodes.tolist()), columns)
        if path is None:
            return text
        write_atomically(Path(path), lambda file: file.write(text.encode()))
        return None

    def to_networkx(self) -> Any:
        """Return the tree as a directed networkx graph.

        Returns
        -------
        graph : networkx.DiGraph
            The nodes are paths, () the root, with the attributes `name` and `level`; edges point
            from parent to child. ``Taxonomy.from_networkx(graph, name="name")`` reads it.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> graph = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).to_networkx()
        >>> list(graph.successors(("cat",)))
        [('cat', 'lynx'), ('cat', 'puma')]
        """
        return write_networkx(import_optional("networkx", extra="networkx"), self)
