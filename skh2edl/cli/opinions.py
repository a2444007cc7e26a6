"""``skh2edl opinions``: from a table of scores of any classifier to a table of opinions."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from . import common
from .common import UsageError, as_names, option
from .data import (
    IMAGE_COLUMNS,
    Columns,
    Data,
    named_column,
    read_labelled,
    read_unlabelled,
    table_header,
)
from .tables import FORMATS, Spool
from .taxonomy import read_tree

if TYPE_CHECKING:
    from ..opinions.hyper_opinion import HyperOpinion
    from ..taxonomy.taxonomy import Taxonomy

# Belief from which on the evidence reaches a class.
_REACHED = 0.5
_N_FOLDS = 5

ScoresArgument = Annotated[
    Path, Argument(help="A .csv table with a column for each class, named like it.")
]
TaxonomyOption = Annotated[
    Path, option("The tree of the classes: any file that skh2edl taxonomy reads.")
]
CalibrationOption = Annotated[
    Path | None,
    option(
        "A table of the same columns with labels, of images that did not train the classifier.",
        shown="the labelled rows of the scores",
    ),
]
LogitsOption = Annotated[
    bool | None,
    option(
        "Whether the scores are logits.",
        "--logits/--probabilities",
        shown="probabilities if all are from 0 to 1",
    ),
]
LevelsOption = Annotated[
    str | None, option("Names of the levels of the taxonomy.", shown="what the file says")
]


def opinions(
    scores: ScoresArgument,
    taxonomy: TaxonomyOption,
    out: common.TableOption = Path("opinions.csv"),
    calibration: CalibrationOption = None,
    logits: LogitsOption = None,
    labels: common.LabelsOption = None,
    levels: LevelsOption = None,
    all_vacuities: common.AllVacuitiesOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Form opinions from the scores of a classifier that already exists.

    The probabilities are calibrated, and how much belief stops where is learnt, on labelled rows
    that did not train the classifier: those of --calibration, or else those of the scores. There a
    row without a label has an empty cell, and a labelled one gets its opinion from a fit on others;
    rows that a column group says to be of one subject stay together.

    The table written has the columns of skh2edl predict. The prediction is the deepest class that
    more than half of the belief reaches.

    For example:

      skh2edl opinions scores.csv --taxonomy ranks.csv --out opinions.csv

      skh2edl opinions scores.csv --taxonomy birds.nwk --calibration held_out.csv --logits
    """
    results, remarks = common.consoles(quiet)
    common.check_output(out, FORMATS)
    tree = read_tree(taxonomy, as_names(levels))
    classes = _classes(scores, tree)
    if len(classes) < tree.n_leaves:
        remarks.print(
            f"{tree.n_leaves - len(classes)} of {tree.n_leaves} leaves have no column in {scores}; "
            "their probability is 0."
        )
    data = _read(scores, classes, tree, labels, required=calibration is None)
    held = data if calibration is None else _read(calibration, classes, tree, labels, required=True)
    if calibration is None:
        _check_labelled(scores, data)
    tables = [(scores, data)] if calibration is None else [(scores, data), (calibration, held)]
    if logits is None:
        logits = _look_like_logits([table for _, table in tables])
        what = "logits: some are below 0 or above 1" if logits else "probabilities: from 0 to 1"
        remarks.print(f"The scores are taken for {what}. --logits or --probabilities says it.")
    if not logits:
        for path, table in tables:
            _check_probabilities(path, table)
    opinion = _opinions(tree, classes, logits, data, None if calibration is None else held)
    first = "row" if named_column(table_header(scores), IMAGE_COLUMNS) is None else "image"
    _write(opinion, data.ids, first, out, all_vacuities)
    common.say_written(results, out, f" ({len(data)} rows)")


def _look_like_logits(tables: list[Data]) -> bool:
    """Return whether any score is no probability."""
    scores = [table.X.to_numpy() for table in tables]
    return any(bool(((values < 0) | (values > 1)).any()) for values in scores)


def _write(
    opinion: HyperOpinion, ids: list[str], first: str, out: Path, all_vacuities: bool
) -> None:
    """Write the table of opinions; `first` is the name of the column with the ids."""
    import numpy as np

    from ..report.predictions import Predictions
    from .predict import PredictionTable

    tree = opinion.taxonomy
    table = PredictionTable(tree, first, True, all_vacuities)
    leaves = opinion.leaf_probability.astype(np.float64)
    predictions = Predictions(tree, leaves, opinion, np.ones(len(ids), dtype=bool))
    columns = table.values(predictions, reached_nodes(opinion))
    run = opinion.evidence.tobytes() + json.dumps(ids).encode()
    identity = hashlib.blake2b(run).hexdigest()
    with closing(Spool(out, table.columns, identity)) as spool:
        spool.add(
            {first: name} | {column: values[row] for column, values in columns.items()}
            for row, name in list(enumerate(ids))[spool.n_done :]
        )
        spool.finish(len(ids))


def _classes(path: Path, tree: Taxonomy) -> list[str]:
    """Return the columns that name leaves."""
    classes: list[str] = []
    column_of: dict[int, str] = {}
    for name in table_header(path):
        try:
            node = int(tree.last_of_chain[tree.node(name)])
        except (KeyError, ValueError):
            continue
        if tree.n_children[node]:
            continue
        if node in column_of:
            raise UsageError(
                f"Each leaf may have one column, but {path} has two of one leaf: "
                f"{column_of[node]!r} and {name!r}. Remove one of them."
            )
        column_of[node] = name
        classes.append(name)
    if len(classes) < 2:
        raise UsageError(
            f"{path} has {len(classes)} column(s) named like a leaf of the taxonomy, and two at "
            f"least are needed. The leaves are {', '.join(map(str, tree.leaves[:5]))}, ..."
        )
    return classes


def _read(
    path: Path, classes: list[str], tree: Taxonomy, labels: str | None, required: bool
) -> Data:
    """Read scores, and labels where there are any or they are required."""
    import numpy as np

    from .data import text_table

    header = table_header(path)
    missing = [name for name in classes if name not in header]
    if missing:
        raise UsageError(
            f"Both tables must have the same columns of classes, but {path} has none named "
            f"{', '.join(missing)}. Add them, or remove them from the scores."
        )
    if required:
        patterns = tuple(name.replace("[", "[[]") for name in classes)
        columns = Columns(labels=as_names(labels), features=patterns)
        data = read_labelled(path, columns, taxonomy=tree, check="none")
    else:
        data = read_unlabelled([str(path)], features=classes)
    data = replace(data, X=data.X[classes])
    name = named_column(header, IMAGE_COLUMNS)
    if name is not None:
        data = replace(data, ids=text_table(path)[name].tolist())
    if required and not np.any(data.is_labelled):
        raise ValueError(
            f"No row of {path} has a label, so nothing can be learnt from it. Give labelled scores "
            "with --calibration."
        )
    return data


def _check_labelled(path: Path, data: Data) -> None:
    """Refuse a table of which a labelled row cannot get its opinion from others."""
    import numpy as np

    n_rows = int(np.count_nonzero(data.is_labelled))
    if n_rows < 2:
        raise ValueError(
            f"A labelled row gets its opinion from a fit on others, so {path} needs two labelled "
            f"rows at least; it has {n_rows}. Give labelled scores with --calibration."
        )
    if data.groups is not None and len(set(data.groups[data.is_labelled].tolist())) < 2:
        raise ValueError(
            f"A labelled row gets its opinion from a fit on other groups, so {path} needs labelled "
            "rows of two groups at least; it has 1. Give labelled scores with --calibration."
        )


def _check_probabilities(path: Path, data: Data) -> None:
    """Refuse rows that cannot be probabilities."""
    values = data.X.to_numpy()
    bad = (values < 0).any(axis=1) | ~values.any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"Probabilities are at least 0 and not all 0, but row {row + 2} of {path} holds no "
            f"probabilities: its least number is {values[row].min():g} and its largest "
            f"{values[row].max():g}. Give --logits if the scores are logits, or remove the row."
        )


def _opinions(
    tree: Taxonomy, classes: list[str], logits: bool, data: Data, held: Data | None
) -> HyperOpinion:
    """Return the opinion on each row, by a fit on other rows."""
    import numpy as np
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import GroupKFold, KFold

    from ..estimators.opinion_classifier import OpinionClassifier, ScoreTable
    from ..opinions.hyper_opinion import HyperOpinion

    X = data.X.to_numpy()

    def fit(scores: Any, labels: Any) -> OpinionClassifier:
        kind = "logits" if logits else "probabilities"
        frozen = FrozenEstimator(ScoreTable(classes, kind).fit(scores))
        return OpinionClassifier(frozen, tree).fit(scores, labels)

    if held is not None:
        labelled = np.flatnonzero(held.is_labelled)
        return fit(held.X.to_numpy()[labelled], held.labels[labelled]).predict_hyper_opinion(X)
    labelled = np.flatnonzero(data.is_labelled)
    evidence = np.empty((len(X), tree.n_decisions))
    rest = np.setdiff1d(np.arange(len(X)), labelled)
    if data.groups is None:
        groups = None
        folds: Any = KFold(min(_N_FOLDS, labelled.size), shuffle=True, random_state=0)
    else:
        groups = data.groups[labelled]
        folds = GroupKFold(min(_N_FOLDS, len(set(groups.tolist()))))
    parts = folds.split(labelled, groups=groups)
    splits = [(labelled[train], labelled[part]) for train, part in parts]
    for train, part in [*splits, (labelled, rest)]:
        if part.size:
            clf = fit(X[train], data.labels[train])
            evidence[part] = clf.predict_hyper_opinion(X[part]).evidence
    return HyperOpinion.from_evidence(tree, evidence, copy=False)


def reached_nodes(opinion: HyperOpinion) -> Any:
    """Return the deepest node of each sample that more than half of the belief reaches.

    Parameters
    ----------
    opinion : HyperOpinion
        The opinions.
    """
    import numpy as np

    tree = opinion.taxonomy
    # They lie on one path, and numbers grow with the depth.
    above = opinion.nodes().belief > _REACHED
    return np.where(above, np.arange(tree.n_nodes), 0).max(axis=1)
