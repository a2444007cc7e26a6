"""A table of image files and their labels."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..taxonomy import Taxonomy
from ._files import check_images, read_table
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
    if isinstance(label_columns, str):
        label_columns = [label_columns]
    records, header, name, folder = _read(table)
    if not label_columns:
        raise ValueError(
            "label_columns must name at least one column with labels, from the top level down, "
            f"such as label_columns=['family', 'species']; the table has the columns {header}."
        )
    given: dict[str, Sequence[str | None]] = {
        "image_column": [image_column],
        "label_columns": label_columns,
        "split_column": [split_column],
        "group_column": [group_column],
        "id_column": [id_column],
    }
    wanted: dict[str, None] = {}
    for role, named_columns in given.items():
        columns = [title for title in named_columns if title is not None]
        missing = [title for title in columns if title not in header]
        if missing:
            raise ValueError(
                f"The table must have the column(s) {missing}, and has {header}. Name the right "
                f"one with {role}=..."
            )
        wanted.update(dict.fromkeys(columns))
    rows = _rows(records, list(wanted))
    if root is not None:
        folder = Path(root).expanduser()

    images = [_text(row[image_column]) for row in rows]
    if "" in images:
        raise ValueError(
            f"{name}: row {images.index('') + 1} has no file in the column {image_column!r}. "
            "Fill it in or drop the row."
        )
    paths = [[_text(row[column]) for column in label_columns] for row in rows]
    if taxonomy is None:
        # Unlabelled rows add no node, and empty columns no level.
        named = [path for path in paths if any(path)]
        n_used = sum(any(names) for names in zip(*named, strict=True))
        taxonomy = Taxonomy.from_paths(named, level_names=label_columns[:n_used])
    if len(label_columns) == 1 and taxonomy.n_levels > 1:
        nodes = taxonomy.resolve([path[0] or taxonomy.root_name for path in paths])
        labels: Any = taxonomy.labels(nodes)
    else:
        labels = taxonomy.labels_from_paths(paths)

    def column(key, default):
        return default if key is None else [_text(row[key]) for row in rows]

    ids = column(id_column, images)
    return LabelledImages(
        name=name,
        images=check_images([folder / image for image in images], check, name),
        labels=labels,
        taxonomy=taxonomy,
        split=column(split_column, ["train"] * len(rows)),
        ids=ids,
        groups=column(group_column, ids),
    )


def _read(table: Any) -> tuple[Any, list[str], str, Path]:
    """Return the rows or the DataFrame, the columns, the table's name and its folder."""
    if isinstance(table, (str, os.PathLike)):
        path = Path(table).expanduser()
        rows = read_table(path, (), path.stem)
        return rows, list(rows[0]), path.stem, path.parent
    if not hasattr(table, "notna"):
        raise TypeError(f"table must be a path or a DataFrame, got {type(table).__name__}.")
    return table, list(table.columns), "table", Path()


def _rows(records: Any, columns: list[str]) -> list[dict[str, Any]]:
    if isinstance(records, list):
        return records
    filled = records[columns].astype(object).where(records[columns].notna(), "")
    rows: list[dict[str, Any]] = filled.to_dict("records")
    return rows


def _text(value: Any) -> str:
    return str(value).strip()
