"""``skh2edl benchmark``: experiments to records, records to tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

_CHOICES = {
    "--dataset": ("grocery_store", "fgvc_aircraft", "derm12345", "glyphs"),
    "--preset": ("paper", "study", "quick"),
    "--table": ("main", "ablation", "coarsened", "budget"),
}


def benchmark(
    dataset: Annotated[
        str, Option(help="grocery_store, fgvc_aircraft, derm12345 or glyphs.")
    ] = "glyphs",
    root: Annotated[
        Path | None, Option(help="Folder of the data set; the glyphs need none.")
    ] = None,
    preset: Annotated[
        str,
        Option(
            help="paper: ResNet-50 trained whole, 100 epochs, 3 seeds. study: what the docs show, "
            "frozen features or small glyphs. quick: one seed of four methods, in minutes."
        ),
    ] = "quick",
    weights: Annotated[
        Path | None,
        Option(help="File with the network's weights; without it timm downloads its own."),
    ] = None,
    backbone: Annotated[
        str | None, Option(help="Another network of timm than the preset's.")
    ] = None,
    frozen: Annotated[
        bool | None,
        Option(
            "--frozen/--trained",
            help="Fit heads to the network's frozen features, or train it whole; the preset "
            "decides if neither is given.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        Option(help="Run only main, ablation, coarsened or budget; may be repeated."),
    ] = None,
    records: Annotated[
        Path | None,
        Option(
            help="Folder of the records, benchmark/DATASET-PRESET if not given; the same folder "
            "resumes a run."
        ),
    ] = None,
    tables: Annotated[
        Path | None, Option(help="Folder of the tables; RECORDS/tables if not given.")
    ] = None,
    features_cache: Annotated[
        Path | None, Option(help="Folder that keeps frozen features for the next run.")
    ] = None,
    n_jobs: Annotated[int, Option(help="Experiments at the same time.")] = 1,
    tables_only: Annotated[
        bool, Option("--tables-only", help="Run nothing; make the tables from RECORDS.")
    ] = False,
    list_only: Annotated[bool, Option("--list", help="Run nothing; name the experiments.")] = False,
) -> None:
    """Run the paper's protocol and make its tables in Markdown, LaTeX and CSV.

    Every experiment writes one JSON record, which is never overwritten: the same command resumes
    an interrupted run. Tables are made from the records alone.

    For example:

      skh2edl benchmark --dataset glyphs --preset quick

      skh2edl benchmark --dataset fgvc_aircraft --root data --preset paper

      skh2edl benchmark --dataset grocery_store --root GroceryStoreDataset --preset study

      skh2edl benchmark --tables-only --records benchmark/glyphs-quick --tables tables
    """
    # Here, so that --help need not wait for torch.
    from ..benchmark import preset_experiments, write_tables

    records = records or Path("benchmark") / f"{dataset}-{preset}"
    if not tables_only:
        _check_choices(dataset, preset, table or [])
        experiments = preset_experiments(
            dataset, preset, backbone=backbone, weights=weights, tables=table, frozen=frozen
        )
        if list_only:
            typer.echo("\n".join(experiment.name for experiment in experiments))
            return
        data = _load(dataset, root, preset)
        typer.echo(f"{data}; {len(experiments)} experiments, records in {records}")
        _run(experiments, data, records, weights, features_cache, n_jobs)
    if not records.is_dir():
        raise FileNotFoundError(
            f"--records must be a folder, and there is none at {records}. Run the experiments "
            "first."
        )
    written = write_tables(records, tables or records / "tables")
    if not written:
        raise ValueError(f"{records} holds no record, so there is no table. Run some experiments.")
    for path in written:
        if path.suffix == ".md":
            typer.echo(path)


def _check_choices(dataset: str, preset: str, tables: list[str]) -> None:
    given = [("--dataset", dataset), ("--preset", preset), *(("--table", name) for name in tables)]
    for flag, value in given:
        if value not in _CHOICES[flag]:
            raise ValueError(f"{flag} must be one of {', '.join(_CHOICES[flag])}, got {value!r}.")


def _load(dataset: str, root: Path | None, preset: str) -> Any:
    from ..benchmark import load_dataset

    if root is None and dataset != "glyphs":
        raise ValueError(f"{dataset} is read from a folder. Name it with --root.")
    return load_dataset(dataset, root, preset)


def _run(
    experiments: list[Any],
    data: Any,
    records: Path,
    weights: Path | None,
    cache: Path | None,
    n_jobs: int,
) -> None:
    from ..benchmark import frozen_features_of, run_experiments

    features = {
        name: frozen_features_of(data, name, weights=weights or "pretrained", cache=cache)
        for name in sorted({each.features for each in experiments if each.features})
    }
    machine = {} if weights is None else {"weights": str(weights)}
    run_experiments(experiments, data, records, features=features, machine=machine, n_jobs=n_jobs)
