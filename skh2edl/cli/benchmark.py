"""``skh2edl benchmark``: experiments to records, records to tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import option

_CHOICES = {
    "--dataset": ("grocery_store", "fgvc_aircraft", "derm12345", "glyphs"),
    "--preset": ("paper", "study", "quick"),
    "--table": ("main", "ablation", "coarsened", "budget"),
}


def benchmark(
    dataset: Annotated[str, option(f"{', '.join(_CHOICES['--dataset'])}.")] = "glyphs",
    root: Annotated[Path | None, option("Folder of the data set, but for glyphs.")] = None,
    preset: Annotated[str, option("paper, study or quick.")] = "quick",
    weights: Annotated[
        Path | None, option("File of the network's weights.", shown="timm's own")
    ] = None,
    backbone: Annotated[str | None, option("A network of timm.", shown="the preset's")] = None,
    frozen: Annotated[
        bool | None,
        option(
            "Fit heads to frozen features, or train the whole network.",
            "--frozen/--trained",
            shown="the preset's",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        option("main, ablation, coarsened or budget; can be repeated.", shown="the preset's"),
    ] = None,
    records: Annotated[
        Path | None,
        option(
            "Folder of the records; the same folder resumes a run.",
            shown="benchmark/DATASET-PRESET",
        ),
    ] = None,
    tables: Annotated[Path | None, option("Folder of the tables.", shown="RECORDS/tables")] = None,
    features_cache: Annotated[Path | None, option("Folder that keeps frozen features.")] = None,
    n_jobs: Annotated[int, option("Experiments at the same time.")] = 1,
    tables_only: Annotated[
        bool, option("Run nothing; make the tables from RECORDS.", "--tables-only")
    ] = False,
    list_only: Annotated[bool, option("Run nothing; name the experiments.", "--list")] = False,
) -> None:
    """Run the paper's protocol and make its tables in Markdown, LaTeX and CSV.

    The presets are paper (ResNet-50 trained whole, 100 epochs, 3 seeds), study (what the docs
    show: frozen features or small glyphs) and quick (one seed of four methods, in minutes).

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
