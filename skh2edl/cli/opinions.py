"""``skh2edl opinions``: from a table of scores of any classifier to a table of opinions."""

from __future__ import annotations

import hashlib
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


def opinions(
    scores: Annotated[
        Path, Argument(help="A .csv table with a column for each class, named like it.")
    ],
    taxonomy: Annotated[
        Path, option("The tree of the classes: any file that skh2edl taxonomy reads.")
    ],
    out: Annotated[
        Path, option("Table to write: .csv, .parquet, .json or .jsonl.", "--out", "-o")
    ] = Path("opinions.csv"),
    calibration: Annotated[
        Path | None,
        option(
            "A table of the same columns with labels, of images that did not train the classifier.",
            shown="the labelled rows of the scores",
        ),
    ] = None,
    logits: Annotated[
        bool | None,
        option(
            "Whether the scores are logits.",
            "--logits/--probabilities",
            shown="probabilities if all are from 0 to 1",
        ),
    ] = None,
    labels: common.LabelsOption = None,
    levels: Annotated[
        str | None, option("Names of the levels of the taxonomy.", shown="what the file says")
    ] = None,
    all_vacuities: Annotated[
        bool, option("Add a column for each decision.", "--all-vacuities")
    ] = False,
    quiet: common.QuietOption = False,
) -> None:
    """Form opinions from the scores of a classifier that already exists.

    The probabilities are calibrated, and how much belief stops where is learnt, on labelled rows
    that did not train the classifier: those of --calibration, or else those of the scores. There a
    row without a label has an empty cell, and a labelled one gets its opinion from a fit on others.

    The table written has the columns of skh2edl predict. The prediction is the deepest class that
    more than half of the belief reaches.

    For example:

      skh2edl opinions scores.csv --taxonomy ranks.csv --out opinions.csv

      skh2edl opinions scores.csv --taxonomy birds.nwk --calibration held_out.csv --logits
    """
    import numpy as np

    from ..report.predictions import Predictions
    from .predict import PredictionTable

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
    if logits is None:
        values = held.X.to_numpy()
        logits = bool((values < 0).any() or (values > 1).any())
        what = "logits: some are below 0 or above 1" if logits else "probabilities: from 0 to 1"
        remarks.print(f"The scores are taken for {what}. --logits or --probabilities says it.")
    opinion = _opinions(tree, classes, logits, data, None if calibration is None else held)

    first = "row" if named_column(table_header(scores), IMAGE_COLUMNS) is None else "image"
    table = PredictionTable(tree, first, True, all_vacuities)
    readable = np.ones(len(data), dtype=bool)
    leaves = opinion.leaf_probability.astype(np.float64)
    columns = table.values(Predictions(tree, leaves, opinion, readable), reached_nodes(opinion))
    identity = hashlib.blake2b(opinion.evidence.tobytes()).hexdigest()
    with closing(Spool(out, table.columns, identity)) as spool:
        spool.add(
            {first: name} | {column: values[row] for column, values in columns.items()}
            for row, name in list(enumerate(data.ids))[spool.n_done :]
        )
        spool.finish(len(data))
    common.say_written(results, out, f" ({len(data)} rows)")


def _classes(path: Path, tree: Taxonomy) -> list[str]:
    """Return the columns that name leaves."""

    def is_leaf(name: str) -> bool:
        try:
            return not tree.n_children[tree.last_of_chain[tree.node(name)]]
        except (KeyError, ValueError):
            return False

    classes = [name for name in table_header(path) if is_leaf(name)]
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

    if required:
        patterns = tuple(name.replace("[", "[[]") for name in classes)
        columns = Columns(labels=as_names(labels), features=patterns)
        data = read_labelled(path, columns, taxonomy=tree, check="none")
    else:
        data = read_unlabelled([str(path)], features=classes)
    data = replace(data, X=data.X[classes])
    name = named_column(table_header(path), IMAGE_COLUMNS)
    if name is not None:
        data = replace(data, ids=text_table(path)[name].tolist())
    if required and not np.any(data.is_labelled):
        raise ValueError(
            f"No row of {path} has a label, so nothing can be learnt from it. Give labelled scores "
            "with --calibration."
        )
    return data


def _opinions(
    tree: Taxonomy, classes: list[str], logits: bool, data: Data, held: Data | None
) -> HyperOpinion:
    """Return the opinion on each row, by a fit on other rows."""
    import numpy as np
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import KFold

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
    folds = KFold(min(_N_FOLDS, max(labelled.size, 2)), shuffle=True, random_state=0)
    splits = [(labelled[rows], labelled[part]) for rows, part in folds.split(labelled)]
    for rows, part in [*splits, (labelled, rest)]:
        if part.size:
            clf = fit(X[rows], data.labels[rows])
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
