"""A table of image files and their labels."""

import os
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..taxonomy import Taxonomy
from ..taxonomy.names import is_blank
from ..taxonomy.tables import read_columns
from ._files import check_images
from ._record import LabelledImages


def load_table(
    table: str | os.PathLike[str] | Any,
    *,
    label_columns: Sequence[str] | None = None,
    image_column: str = "image",
    split_column: str | None = None,
    group_column: str | None = None,
    id_column: str | None = None,
    root: str | os.PathLike[str] | None = None,
    taxonomy: Taxonomy | None = None,
    check: str = "exists",
) -> LabelledImages:
    """Load images that a table lists, one row each.

    Parameters
    ----------
    table : path or DataFrame
        A comma-separated file in UTF-8 with a header, or a pandas DataFrame.
    label_columns : sequence of str
        Columns with the names of a path, from the top level down, which name the levels; they
        must be given. A row that is empty from some column on has an ancestor as its label. With
        a `taxonomy`, it may be one column with labels as the taxonomy spells them.
    image_column : str, default="image"
        Column with the files.
    split_column : str, default=None
        Column with "train", "val" or "test". None puts every image in "train";
        `LabelledImages.resplit` divides them.
    group_column : str, default=None
        Column with the subject of each image. None means that every image is its own group.
    id_column : str, default=None
        Column with unique names. None takes the image column.
    root : path, default=None
        The folder that files are relative to. None means the folder of the table, or the current
        folder for a DataFrame.
    taxonomy : Taxonomy, default=None
        The tree. None builds it from the label columns.
    check : {"exists", "decode", "none"}, default="exists"
        How to check the image files: that each exists and is not empty, that each can be decoded,
        or not at all.

    Returns
    -------
    LabelledImages

    Examples
    --------
    >>> import pandas as pd
    >>> from skh2edl.datasets import load_table
    >>> frame = pd.DataFrame(
    ...     {"image": ["1.jpg", "2.jpg", "3.jpg"], "kind": ["cat", "cat", "dog"],
    ...      "species": ["lion", "", "wolf"]}
    ... )
    >>> record = load_table(frame, label_columns=["kind", "species"], check="none")
    >>> record.labels.tolist()
    ['lion', 'cat', 'wolf']
    """
    label_columns = [label_columns] if isinstance(label_columns, str) else label_columns or []
    columns = _read_columns(
        table,
        image_column=[image_column],
        label_columns=label_columns,
        split_column=[split_column],
        group_column=[group_column],
        id_column=[id_column],
    )
    is_file = isinstance(table, (str, os.PathLike))
    name = Path(table).stem if is_file else "table"
    folder = Path(root or (Path(table).parent if is_file else "")).expanduser()
    images = columns[image_column]
    if not images:
        raise ValueError(f"{table if is_file else name} has a header and no rows. Add the images.")
    if "" in images:
        raise ValueError(
            f"{name}: row {images.index('') + 1} has no file in the column {image_column!r}. "
            "Fill it in or drop the row."
        )
    paths = list(zip(*(columns[title] for title in label_columns), strict=True))
    if taxonomy is None:
        # Unlabelled rows add no node, and empty columns no level.
        named = [path for path in paths if any(path)]
        n_used = sum(any(names) for names in zip(*named, strict=True))
        taxonomy = Taxonomy.from_paths(named, level_names=label_columns[:n_used])
    if len(label_columns) == 1 and taxonomy.n_levels > 1:
        nodes = taxonomy.resolve([label or taxonomy.root_name for (label,) in paths])
        labels: Any = taxonomy.labels(nodes)
    else:
        labels = taxonomy.labels_from_paths(paths)
    ids = columns[id_column] if id_column else images
    return LabelledImages(
        name=name,
        images=check_images([folder / image for image in images], check, name),
        labels=labels,
        taxonomy=taxonomy,
        split=np.array(columns[split_column] if split_column else ["train"] * len(images)),
        ids=np.array(ids),
        groups=np.array(columns[group_column] if group_column else ids),
    )


def _read_columns(table: Any, **roles: Sequence[str | None]) -> dict[Hashable, list[str]]:
    """Return the columns that play a role, as text."""

    def choose(header: list[Hashable], source: str) -> list[Hashable]:
        if not roles["label_columns"]:
            raise ValueError(
                "label_columns must name at least one column with labels, from the top level down, "
                f"such as label_columns=['family', 'species']; the table has the columns {header}."
            )
        for role, titles in roles.items():
            missing = [title for title in titles if title not in (None, *header)]
            if missing:
                raise ValueError(
                    f"The table must have the column(s) {missing}, and has {header}. Name the "
                    f"right one with {role}=..."
                )
        return [title for titles in roles.values() for title in titles if title is not None]

    return {
        title: ["" if is_blank(cell) else str(cell).strip() for cell in cells]
        for title, cells in read_columns(table, choose).items()
    }
