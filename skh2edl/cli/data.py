"""Folders, tables and patterns of files as samples, with or without labels."""

from __future__ import annotations

import csv
import fnmatch
import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import UsageError

if TYPE_CHECKING:
    from ..taxonomy.taxonomy import Taxonomy

IMAGE_COLUMNS = ("image", "file", "filename", "path", "filepath", "file_name", "image_path")
LABEL_COLUMNS = ("label", "class", "species")


@dataclass(frozen=True)
class Columns:
    """Columns of a table; None or empty finds them by their names.

    Parameters
    ----------
    image, split, group : str or None
        Columns with the file, the part of the data, and the subject.
    labels : tuple of str
        Columns of the label, from the top level down.
    features : tuple of str
        Patterns of the columns with numbers, for data without images.
    """

    image: str | None = None
    labels: tuple[str, ...] = ()
    split: str | None = None
    group: str | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Data:
    """Samples.

    Parameters
    ----------
    name : str
        Name of the data.
    X : ndarray of str or DataFrame
        Image files, or features.
    ids : list of str
        Name of each sample.
    labels : ndarray or None
        Labels, as the taxonomy spells them.
    taxonomy : Taxonomy or None
        The tree that the labels are on.
    split : ndarray of str or None
        "train", "val" and "test" where the data say so.
    groups : ndarray of str or None
        Subjects, where the data name them.
    columns : Columns
        The columns that were read.
    """

    name: str
    X: Any
    ids: list[str]
    labels: Any = None
    taxonomy: Any = None
    split: Any = None
    groups: Any = None
    columns: Columns = Columns()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_labelled(self) -> Any:
        """Whether each label says more than the root."""
        return self.taxonomy.last_decision[self.taxonomy.resolve(self.labels)] >= 0

    def select(self, which: Any) -> Data:
        """Return some of the samples.

        Parameters
        ----------
        which : slice, or ndarray of bool or int
            The samples to return.
        """
        import numpy as np

        positions = np.arange(len(self))[which]
        return replace(
            self,
            X=self.X.iloc[positions] if hasattr(self.X, "iloc") else self.X[positions],
            ids=[self.ids[position] for position in positions.tolist()],
            labels=None if self.labels is None else self.labels[positions],
            split=None if self.split is None else self.split[positions],
            groups=None if self.groups is None else self.groups[positions],
        )


def read_labelled(
    path: Path,
    columns: Columns,
    *,
    taxonomy: Taxonomy | None = None,
    check: str = "exists",
    level_names: tuple[str, ...] = (),
    labels_only: bool = False,
) -> Data:
    """Read a folder of folders or a table, with labels.

    Parameters
    ----------
    path : path
        The folder or the ``.csv`` file.
    columns : Columns
        Which columns to use.
    taxonomy : Taxonomy, default=None
        The tree of the labels; None takes the folders, or the label columns.
    check : {"exists", "none"}, default="exists"
        Whether a missing or empty image is an error.
    level_names : tuple of str, default=()
        Names of the levels of a folder.
    labels_only : bool, default=False
        Whether a table may have neither images nor numbers.
    """
    if path.is_dir():
        if columns.group is not None:
            raise UsageError(
                f"--group-column {columns.group} names a column of a table, but {path} is a "
                "folder. Give a .csv file with a column of the files, the labels and the subjects."
            )
        return _read_folder(path, taxonomy, check, level_names)
    header = table_header(path)
    found = _find_columns(path, header, columns, taxonomy, labels_only)
    return _read_table(path, found, taxonomy, check)


def _read_folder(
    path: Path, taxonomy: Taxonomy | None, check: str, level_names: tuple[str, ...]
) -> Data:
    import numpy as np

    from ..datasets import load_image_folder

    try:
        record = load_image_folder(path, level_names=level_names or None, check=check)
    except ValueError as error:
        if taxonomy is None:
            raise
        # Mostly the folder of one class, given to a model of many.
        raise ValueError(f"{error} Or give the folder that holds all of the tree.") from None
    labels, tree = record.labels, record.taxonomy
    if taxonomy is not None:
        nodes = [_node(taxonomy, tree.path(label)) for label in labels.tolist()]
        labels, tree = np.array(taxonomy.labels(nodes)), taxonomy
    split = record.split if (record.split != "train").any() else None
    return Data(record.name, record.images, record.ids.tolist(), labels, tree, split)


def _node(taxonomy: Taxonomy, path: tuple[Any, ...]) -> int:
    """Find a folder in a taxonomy: by its whole path, else by its own name."""
    if not path:
        return 0
    try:
        return taxonomy.node(tuple(path))
    except (ValueError, KeyError):
        return taxonomy.node(path[-1])


def table_header(path: Path) -> list[str]:
    """Return the names of the columns of a table.

    Parameters
    ----------
    path : path
        The ``.csv`` file.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"There is no data at {str(path)!r}. Give a folder of images or a .csv file."
        )
    if path.suffix.lower() != ".csv":
        raise UsageError(
            f"{path} must be a folder of images or a table that ends in .csv; it ends in "
            f"{path.suffix or 'nothing'!r}."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a table in UTF-8 ({error}). Save it as UTF-8.") from None
    if not header:
        raise ValueError(f"{path} is empty. It needs a line with the names of the columns.")
    return header


def named_column(header: list[str], names: Sequence[str]) -> str | None:
    """Return the first column that has one of some names, in any capitals.

    Parameters
    ----------
    header : list of str
        The columns.
    names : sequence of str
        The names.
    """
    return next((name for name in header if name.lower() in names), None)


def _find_columns(
    path: Path, header: list[str], columns: Columns, taxonomy: Taxonomy | None, labels_only: bool
) -> Columns:
    """Fill in the columns that were not named from the header."""
    given = [columns.image, *columns.labels, columns.split, columns.group]
    missing = [name for name in given if name and name not in header]
    if missing:
        raise UsageError(f"{path} has no column {missing[0]!r}. It has {', '.join(header)}.")
    image, features = columns.image, columns.features
    if features:
        chosen = [name for name in header if any(fnmatch.fnmatch(name, p) for p in features)]
        if not chosen:
            raise UsageError(
                f"{path} has no column like {' or '.join(features)}. It has {', '.join(header)}."
            )
        features = tuple(chosen)
    elif image is None:
        image = named_column(header, IMAGE_COLUMNS)
        if image is None and not labels_only:
            raise UsageError(
                f"{path} has no column named {', '.join(IMAGE_COLUMNS[:4])}, so the images are not "
                f"found. Name it with --image-column, or name columns of numbers with --features. "
                f"It has {', '.join(header)}."
            )
    return Columns(
        image,
        columns.labels or _labels(path, header, taxonomy),
        columns.split or named_column(header, ("split",)),
        columns.group or named_column(header, ("group",)),
        features,
    )


def _labels(path: Path, header: list[str], taxonomy: Taxonomy | None) -> tuple[str, ...]:
    ranks = () if taxonomy is None else taxonomy.level_names or ()
    if ranks and all(rank in header for rank in ranks):
        return tuple(ranks)
    found = named_column(header, LABEL_COLUMNS)
    if found is None:
        raise UsageError(
            f"{path} has no column named {', '.join(LABEL_COLUMNS)}, so the labels are not found. "
            f"Name them from the top level down, such as --labels family,genus,species. It has "
            f"{', '.join(header)}."
        )
    return (found,)


def _read_table(path: Path, columns: Columns, taxonomy: Taxonomy | None, check: str) -> Data:
    from ..datasets import load_table

    table, image_column, X = path, columns.image, None
    if image_column is None:
        # Without images the rows stand for themselves, counted as a spreadsheet does.
        table, image_column, check = text_table(path), "_row", "none"
        X = _numbers(path, columns.features) if columns.features else table
        table[image_column] = _row_names(len(table))
    record = load_table(
        table,
        label_columns=columns.labels,
        image_column=image_column,
        split_column=columns.split,
        group_column=columns.group,
        taxonomy=taxonomy,
        check=check,
    )
    return Data(
        path.stem,
        record.images if X is None else X,
        record.ids.tolist(),
        record.labels,
        record.taxonomy,
        record.split if columns.split else None,
        _subjects(record) if columns.group else None,
        columns,
    )


def _subjects(record: Any) -> Any:
    """Return the subject of each sample; one without a name is its own."""
    import numpy as np

    return np.where(record.groups == "", record.ids, record.groups)


def _row_names(n_rows: int) -> list[str]:
    return [f"row {row}" for row in range(2, n_rows + 2)]


def text_table(path: Path) -> Any:
    """Read a table as text, nothing of it as a number or missing.

    Parameters
    ----------
    path : path
        The ``.csv`` file.
    """
    from ..utils.optional import import_optional

    pandas = import_optional("pandas", extra="pandas")
    return pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")


def _numbers(path: Path, names: Sequence[str]) -> Any:
    from ..utils.optional import import_optional

    pandas = import_optional("pandas", extra="pandas")
    text = text_table(path)
    missing = [name for name in names if name not in text.columns]
    if missing:
        raise ValueError(
            f"{path} lacks {len(missing)} column(s) of numbers that the model reads, first "
            f"{missing[:5]}. It has {list(text.columns)[:20]}."
        )
    frame = text[list(names)].apply(pandas.to_numeric, errors="coerce").astype("float64")
    bad = frame.isna().any(axis=1)
    if bad.any():
        row = int(bad.to_numpy().argmax())
        column = frame.columns[frame.iloc[row].isna()][0]
        raise ValueError(
            f"{path}, row {row + 2}: the column {column!r} must hold numbers, got "
            f"{text[column].iloc[row]!r}. Fill it in or drop the row."
        )
    return frame


def read_unlabelled(
    inputs: Sequence[str], *, image_column: str | None = None, features: Sequence[str] | None = None
) -> Data:
    """Read samples to classify.

    Parameters
    ----------
    inputs : sequence of str
        Folders (all images inside, however deep), tables, patterns such as ``"*.jpg"``, and
        single files.
    image_column : str, default=None
        Column with the files in tables.
    features : sequence of str, default=None
        Columns that a model without a backbone reads; then the only input is a table.
    """
    import numpy as np

    if features is not None:
        if len(inputs) != 1 or Path(inputs[0]).suffix.lower() != ".csv":
            raise UsageError(
                "This model reads columns of numbers, not images: give one .csv file with "
                f"{', '.join(features[:5])}{', ...' if len(features) > 5 else ''}."
            )
        path = Path(inputs[0])
        table_header(path)
        frame = _numbers(path, features)
        return Data(path.stem, frame, _row_names(len(frame)))
    # In order, each once.
    names = list(dict.fromkeys(file for text in inputs for file in _images_of(text, image_column)))
    return Data(Path(inputs[0]).name or "images", np.array(names), names)


def _images_of(text: str, image_column: str | None) -> list[str]:
    from PIL import Image

    Image.init()  # fills the table of extensions
    path = Path(text).expanduser()
    if path.is_dir():
        files = [
            str(file)
            for file in sorted(path.rglob("*"))
            if file.suffix.lower() in Image.EXTENSION
            and not any(part.startswith(".") for part in file.relative_to(path).parts)
            and file.is_file()
        ]
        if not files:
            raise FileNotFoundError(f"There is no image in the folder {text!r} or below it.")
        return files
    if path.suffix.lower() == ".csv" and path.is_file():
        return _images_in_table(path, image_column)
    if path.is_file():
        return [str(path)]
    files = sorted(glob.glob(str(path), recursive=True))
    files = [file for file in files if Path(file).suffix.lower() in Image.EXTENSION]
    if not files:
        raise FileNotFoundError(
            f"There is no folder, table or image at {text!r}, and no image that this pattern fits."
        )
    return files


def _images_in_table(path: Path, image_column: str | None) -> list[str]:
    header = table_header(path)
    column = image_column or named_column(header, IMAGE_COLUMNS)
    if column is None or column not in header:
        raise UsageError(
            f"{path} has no column {column or ' or '.join(IMAGE_COLUMNS[:4])!r}. Name the column "
            f"of the files with --image-column. It has {', '.join(header)}."
        )
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = [(row.get(column) or "").strip() for row in csv.DictReader(file)]
    return [str(path.parent / name) for name in names if name]
