"""``skh2edl benchmark``: experiments to records, records to tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..datasets import DATASETS
from .common import as_names, option

# Data sets of the paper; the others need no GPU by default.
_OF_THE_PAPER = ("fgvc_aircraft", "derm12345")

DatasetOption = Annotated[str, option(f"{', '.join(DATASETS)}.")]
RootOption = Annotated[Path | None, option("Folder of the data set, but for glyphs.")]
PresetOption = Annotated[
    str | None,
    option("paper, study or quick.", shown="paper for the paper's data sets, else quick"),
]
WeightsOption = Annotated[
    Path | None,
    option("File of the network's weights, or none for random ones.", shown="timm's own"),
]
BackboneOption = Annotated[str | None, option("A network of timm.", shown="the preset's")]
FrozenOption = Annotated[
    bool | None,
    option(
        "Fit heads to frozen features, or train the whole network.",
        "--frozen/--trained",
        shown="the preset's",
    ),
]
TableOption = Annotated[
    list[str] | None,
    option(
        "main, levels, severity, descent, consistency, ablation, uncertainty, calibration, "
        "constants, budget or coarsened; can be repeated. Runs what it needs.",
        shown="the preset's",
    ),
]
MethodsOption = Annotated[
    list[str] | None,
    option(
        "Rows of the tables, such as flat-ce,hier-ce,h2edl-plain; can be repeated.",
        shown="the preset's",
    ),
]
SeedsOption = Annotated[
    list[str] | None, option("Seeds, such as 0,1,2; can be repeated.", shown="the preset's")
]
EpochsOption = Annotated[int | None, option("Epochs of training.", shown="the preset's", min=1)]
ImageSizeOption = Annotated[
    int | None, option("Side of the images in pixels.", shown="the network's", min=1)
]
RecordsOption = Annotated[
    Path | None,
    option(
        "Folder of the records; the same folder resumes a run.",
        shown="benchmark/DATASET-PRESET, with the epochs and the image size if given",
    ),
]
TablesOption = Annotated[Path | None, option("Folder of the tables.", shown="RECORDS/tables")]
FeaturesCacheOption = Annotated[Path | None, option("Folder that keeps frozen features.")]
NJobsOption = Annotated[int, option("Experiments at the same time.")]
TablesOnlyOption = Annotated[
    bool, option("Run nothing; make the tables from RECORDS.", "--tables-only")
]
DryRunOption = Annotated[
    bool,
    option(
        "Run nothing; name the experiments and say how many have a record and how long the "
        "others take.",
        "--dry-run",
    ),
]


def benchmark(
    dataset: DatasetOption = "glyphs",
    root: RootOption = None,
    preset: PresetOption = None,
    weights: WeightsOption = None,
    backbone: BackboneOption = None,
    frozen: FrozenOption = None,
    table: TableOption = None,
    methods: MethodsOption = None,
    seeds: SeedsOption = None,
    epochs: EpochsOption = None,
    image_size: ImageSizeOption = None,
    records: RecordsOption = None,
    tables: TablesOption = None,
    features_cache: FeaturesCacheOption = None,
    n_jobs: NJobsOption = 1,
    tables_only: TablesOnlyOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Run the paper's protocol and make its tables in Markdown, LaTeX and CSV.

    The presets are paper (ResNet-50 trained whole, 100 epochs, 40 with coarse labels, 3 seeds),
    study (what the docs show: frozen features or small glyphs) and quick (one seed of three
    methods, in minutes).

    Every experiment writes one JSON record, which is never overwritten: the same command resumes
    an interrupted run. Tables are made from the records alone and say what is missing. Published
    figures stand beside those of networks trained on the paper's data sets.

    For example:

      skh2edl benchmark --dataset glyphs --preset quick

      skh2edl benchmark --dataset fgvc_aircraft --root data --preset paper

      skh2edl benchmark --dataset derm12345 --root data --table budget --seeds 0,1 --dry-run

      skh2edl benchmark --dataset grocery_store --root GroceryStoreDataset --preset study

      skh2edl benchmark --tables-only --records benchmark/glyphs-quick --tables tables
    """
    # Here, so that --help need not wait for torch.
    from ..benchmark import preset_experiments
    from ..benchmark.protocols import METHODS, PRESETS, TABLES

    preset = preset or ("paper" if dataset in _OF_THE_PAPER else "quick")
    asked = _listed("--table", table, TABLES)
    _listed("--dataset", [dataset], DATASETS)
    _listed("--preset", [preset], PRESETS)
    rows, numbers = _listed("--methods", methods, METHODS), _seeds(seeds)
    sizes = [*([f"{epochs}epochs"] if epochs else []), *([f"{image_size}px"] if image_size else [])]
    records = records or Path("benchmark") / "-".join([dataset, preset, *sizes])
    if not tables_only:
        is_frozen = frozen if frozen is not None else preset != "paper" and dataset != "glyphs"
        if is_frozen and image_size is not None:
            raise ValueError(
                f"--image-size {image_size} is for networks that are trained; frozen features are "
                "those of the network's own size. Add --trained, or leave it out."
            )
        experiments = preset_experiments(
            dataset,
            preset,
            backbone=backbone,
            weights=weights,
            tables=asked,
            frozen=frozen,
            epochs=epochs,
            seeds=numbers,
            methods=rows,
            image_size=image_size,
        )
        if dry_run:
            _show_plan(experiments, records, n_jobs)
            return
        if weights is not None and str(weights) != "none" and not weights.is_file():
            raise FileNotFoundError(f"--weights must be a file or none, and there is no {weights}.")
        data = _load(dataset, root, preset)
        typer.echo(f"{data}; {len(experiments)} experiments, records in {records}")
        _run(experiments, data, records, weights, features_cache, n_jobs)
    _write_tables(records, tables or records / "tables", asked)


def _listed(flag: str, given: list[str] | None, names: Iterable[str]) -> list[str] | None:
    """Return the names that were given, at once or apart, in any spelling of their case."""
    known = {re.sub(r"[^a-z0-9_]+", "-", name.lower()): name for name in names}
    if given is None:
        return None
    chosen = []
    for name in as_names(",".join(given)):
        if name.lower().replace(" ", "-") not in known:
            raise ValueError(f"{flag} must be one of {', '.join(known)}, got {name!r}.")
        chosen.append(known[name.lower().replace(" ", "-")])
    return chosen


def _seeds(given: list[str] | None) -> list[int] | None:
    if given is None:
        return None
    texts = as_names(",".join(given))
    wrong = [text for text in texts if not text.isdecimal()]
    if wrong or not texts:
        raise ValueError(f"--seeds must be whole numbers, such as 0,1,2; got {','.join(given)!r}.")
    return [int(text) for text in texts]


def _write_tables(records: Path, tables: Path, names: list[str] | None) -> None:
    """Make the tables and print the files in Markdown."""
    from ..benchmark import write_tables

    if not records.is_dir():
        raise FileNotFoundError(
            f"--records must be a folder, and there is none at {records}. Run the experiments "
            "first."
        )
    written = write_tables(records, tables, names)
    if not written:
        some = f"too few records for --table {', '.join(names)}" if names else "no record"
        raise ValueError(f"{records} holds {some}, so there is no table. Run some experiments.")
    for path in written:
        if path.suffix == ".md":
            typer.echo(path)


def _show_plan(experiments: list[Any], records: Path, n_jobs: int) -> None:
    from ..benchmark import remaining

    pending, seconds = remaining(experiments, records)
    typer.echo("\n".join(each.name for each in pending))
    typer.echo(
        f"{len(experiments)} experiments, {len(experiments) - len(pending)} of them with a record "
        f"in {records}; {len(pending)} to run."
    )
    if seconds is None:
        typer.echo(
            "How long that takes is estimated as soon as one of them has a record: run one first, "
            "with --table main --methods flat-ce --seeds 0."
        )
    elif pending:
        minutes = seconds / max(1, n_jobs) / 60
        time = f"{minutes:.1f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
        typer.echo(f"About {time} with --n-jobs {n_jobs}.")


def _load(dataset: str, root: Path | None, preset: str) -> Any:
    from ..benchmark import load_dataset

    if root is None and dataset != "glyphs":
        raise ValueError(f"{dataset} is read from a folder. Name it with --root.")
    if root is not None and not root.is_dir():
        raise FileNotFoundError(f"--root must be a folder, and there is none at {root}.")
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

    start: Any = "pretrained" if weights is None else None if str(weights) == "none" else weights
    features = {
        name: frozen_features_of(data, name, weights=start, cache=cache)
        for name in sorted({each.features for each in experiments if each.features})
    }
    machine = {"weights": str(start)} if isinstance(start, Path) else {}
    run_experiments(experiments, data, records, features=features, machine=machine, n_jobs=n_jobs)
