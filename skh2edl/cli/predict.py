"""``skh2edl predict``: from images to a table of answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ._run import check_output, consoles, plain_errors, progress
from .data import Data, read_unlabelled
from .options import ImageColumnOption, ModelArgument, QuietOption
from .tables import FORMATS, Row, Spool

_PROMISE = 0.95
_RESERVED = {"image", "row", "leaf", "hedged", "hedged_level", "nonspecificity", "error"}


def register(app: typer.Typer) -> None:
    """Add the command.

    Parameters
    ----------
    app : typer.Typer
        The application.
    """
    app.command()(plain_errors(predict))


def predict(
    model: ModelArgument,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Folders (all images in them, however deep), .csv tables, patterns in quotes, or "
            "single images.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The table to write: .csv, .parquet, .json or .jsonl."),
    ] = Path("answers.csv"),
    promise: Annotated[
        float | None,
        typer.Option(
            help="Accuracy that the hedged answers keep on average.",
            min=0.5,
            max=0.999,
            show_default="0.95, if the model can promise that",
        ),
    ] = None,
    image_column: ImageColumnOption = None,
    all_vacuities: Annotated[
        bool,
        typer.Option("--all-vacuities", help="One column for every decision of the tree."),
    ] = False,
    batch_size: Annotated[
        int, typer.Option(help="Images that are read, answered and kept at once.", min=1)
    ] = 64,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read images.", show_default="chosen")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Stop at an image that cannot be read, with exit code 1."),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Classify images and write a table with one row for each.

    The columns are: the image; the best leaf and the best class of each level above, with their
    probability (and belief and plausibility, for evidential models); the hedged answer, which
    stops at a coarser class when in doubt; how much belief stopped where; and the vacuities on the
    way to the leaf. An image that cannot be read has its reason in the column error, and no answer.

    If it is interrupted, the same command goes on where it stopped; the table appears when it is
    complete.

    For example:

      skh2edl predict birds.safetensors new_photos/ --out answers.csv

      skh2edl predict birds.safetensors "camera*/*.jpg" --out answers.parquet

      skh2edl predict birds.safetensors photo.jpg --promise 0.99 -o answer.json
    """
    from ..estimators.model_card import read_card
    from ..estimators.model_files import load_model

    results, remarks = consoles(quiet)
    check_output(out, FORMATS)
    if out.suffix.lower() == ".parquet":
        from ..utils.optional import import_optional

        import_optional("pyarrow", extra="parquet")  # now, not after the last image
    estimator = load_model(model)
    card = read_card(model)
    data = read_unlabelled(inputs, image_column=image_column, features=_features(estimator))
    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip", n_workers=workers, batch_size=batch_size)
    threshold = _threshold(card.needed, promise, remarks)
    writer = _Writer(estimator, data, threshold, all_vacuities)
    spool = Spool(out, writer.columns, _identity(model, data, threshold))
    if spool.n_done:
        remarks.print(f"Going on after {spool.n_done} of {len(data)} that were done before.")
    n_bad = 0
    try:
        with progress(remarks, "images", len(data)) as advance:
            advance(spool.n_done)
            for start in range(spool.n_done, len(data), batch_size):
                rows = list(writer.rows(slice(start, start + batch_size)))
                bad = [row for row in rows if row["error"]]
                if bad and strict:
                    raise ValueError(f"{bad[0]['error']} (--strict)")
                n_bad += len(bad)
                spool.add(rows)
                advance(len(rows))
        spool.finish()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{spool.n_done} of {len(data)} are done; the same command goes on from there."
        ) from None
    finally:
        spool.close()
    results.print(f"[bold green]Wrote {out}[/bold green] ({len(data)} rows)", soft_wrap=True)
    if n_bad:
        remarks.print(f"[yellow]{n_bad} could not be read; see the column error.[/yellow]")


def _threshold(needed: Any, promise: float | None, remarks: Console) -> float | None:
    """Return the probability that a hedged answer needs; None for no hedged answers."""
    from ..report.hedging import threshold_for

    if not needed.size:
        if promise is not None:
            raise ValueError(
                "The model has no hedge, so nothing can be promised. Set it with skh2edl "
                "calibrate, or leave --promise out."
            )
        remarks.print(
            "The model has no hedge, so there is no hedged answer; skh2edl calibrate sets one."
        )
        return None
    wanted = _PROMISE if promise is None else promise
    threshold = threshold_for(needed, wanted)
    if math.isfinite(threshold):
        return threshold
    most = f"{100 * needed.size / (needed.size + 1):.1f} %"
    if promise is not None:
        raise ValueError(
            f"The hedge was set on {needed.size} images, with which at most {most} can be "
            f"promised, not {100 * promise:g} %. Lower --promise, or give more images to skh2edl "
            "calibrate."
        )
    remarks.print(
        f"The hedge was set on {needed.size} images, too few to promise {100 * wanted:g} %, so "
        f"there is no hedged answer; --promise can be at most {most}."
    )
    return None


def _features(estimator: Any) -> list[str] | None:
    if estimator.backbone is not None:
        return None
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise ValueError(
            "The model reads features, and was trained on an array without names of columns, so "
            "a table cannot be matched. Fit it on a DataFrame, or with skh2edl fit --features."
        )
    return [str(name) for name in names]


def _identity(model: Path, data: Data, threshold: float | None) -> str:
    """Tell runs apart: another model, other files or another promise begin anew."""
    import hashlib

    facts = model.stat()
    digest = hashlib.blake2b("\0".join(data.ids).encode("utf-8", "surrogateescape"))
    return f"{facts.st_size} {facts.st_mtime_ns} {threshold} {digest.hexdigest()}"


class _Writer:
    """Turns answers into rows."""

    def __init__(
        self, estimator: Any, data: Data, threshold: float | None, all_vacuities: bool
    ) -> None:
        from ..metrics.report import level_title

        self.estimator, self.data, self.threshold = estimator, data, threshold
        tree = self.tree = estimator.taxonomy_
        levels = [level_title(tree, depth) for depth in range(1, tree.n_levels + 1)]
        self.levels = [f"level_{name}" if name in _RESERVED else name for name in levels]
        self.is_evidential = hasattr(estimator, "predict_hyper_opinion")
        self.vacuities = (
            [f"vacuity_of_{tree.label(node)}" for node in tree.branching_nodes.tolist()]
            if all_vacuities and self.is_evidential
            else []
        )
        self.columns = self._columns()

    def _columns(self) -> list[str]:
        bounds = ["", "_probability"]
        if self.is_evidential:
            bounds += ["_belief", "_plausibility"]
        columns = ["image" if self.estimator.backbone is not None else "row"]
        columns += [f"{part}{bound}" for part in ["leaf", *self._above()] for bound in bounds]
        if self.threshold is not None:
            columns += [f"hedged{bound}" for bound in bounds] + ["hedged_level"]
        if self.is_evidential:
            stops = [str(self.tree.root_name), *self.levels[:-1]]
            columns += ["nonspecificity", *(f"belief_stops_at_{stop}" for stop in stops)]
            columns += [f"vacuity_at_{stop}" for stop in stops]
        return [*columns, *self.vacuities, "error"]

    def _above(self) -> list[str]:
        # The best class of the deepest level is the leaf.
        return self.levels[:-1]

    def rows(self, part: slice) -> Iterator[Row]:
        """Answer some of the samples.

        Parameters
        ----------
        part : slice
            Which.
        """
        import numpy as np

        from ..report.hedging import hedged_nodes
        from ..report.predictions import read_predictions, take

        names = self.data.ids[part]
        X = take(self.data.X, part)
        answers = read_predictions(self.estimator, X)
        tree, first = self.tree, self.columns[0]
        parts = {"leaf": (answers.best_leaves, answers.path_probability[:, -1])}
        for depth, level in enumerate(self._above(), start=1):
            parts[level] = answers.best_of_level(depth)
        if self.threshold is not None:
            nodes = hedged_nodes(answers.leaf_probability, tree, self.threshold)
            parts["hedged"] = nodes, answers.probability_of(nodes[:, None])[:, 0]
        columns: dict[str, list[Any]] = {}
        for name, (nodes, probability) in parts.items():
            columns[name] = tree.labels(nodes)
            columns[f"{name}_probability"] = _rounded(probability)
            bounds = answers.bounds_of(nodes)
            if bounds is not None:
                columns[f"{name}_belief"] = _rounded(bounds[0])
                columns[f"{name}_plausibility"] = _rounded(bounds[1])
        if "hedged" in parts:
            columns["hedged_level"] = self._level_of(parts["hedged"][0])
        if answers.opinion is not None:
            columns["nonspecificity"] = _rounded(answers.opinion.nonspecificity)
            vacuity = answers.vacuity_on_path()
            assert vacuity is not None
            for depth, stop in enumerate([str(tree.root_name), *self.levels[:-1]]):
                columns[f"belief_stops_at_{stop}"] = _rounded(
                    answers.opinion.depth_profile[:, depth]
                )
                columns[f"vacuity_at_{stop}"] = _rounded(vacuity[:, depth])
            for place, name in enumerate(self.vacuities):
                columns[name] = _rounded(answers.opinion.vacuity[:, place])
        for index, name in enumerate(names):
            if answers.readable[index]:
                row = {column: values[index] for column, values in columns.items()}
                yield {first: name, **row, "error": None}
            else:
                yield {first: name, "error": self._reason(np.arange(len(self.data))[part][index])}

    def _level_of(self, nodes: Any) -> list[str]:
        tree = self.tree
        n_below = tree.leaf_stop[nodes] - tree.leaf_start[nodes]
        depths = tree.depths[nodes]
        return [
            "nothing" if below == tree.n_leaves else "leaf" if below == 1 else self.levels[d - 1]
            for below, d in zip(n_below.tolist(), depths.tolist(), strict=True)
        ]

    def _reason(self, row: int) -> str:
        from ..images import image_source
        from ..images.sources import BadImageError

        try:
            image_source([str(self.data.X[row])]).read(0)
        except BadImageError as error:
            return str(error).split(". Repair or drop it")[0].replace(" (X[0])", "")
        return "it could not be read"


def _rounded(values: Any) -> list[float | None]:
    # Six decimals are more than float32 knows; NaN is no value of JSON.
    return [None if math.isnan(v) else round(v, 6) for v in map(float, values)]
