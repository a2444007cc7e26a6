r"""Make the tables of the results pages from their records: ``python docs/results/make.py``.

The records come from these runs, which resume if they are interrupted::

    python docs/results/trained.py ASSETS
    python docs/results/trained.py ASSETS --network resnet50 --seeds 0 --epochs 20 \\
        --datasets grocery_store --methods Flat-CE Hier-CE Flat-EDL HENN H2EDL
    python docs/results/frozen.py ASSETS
    python docs/results/depth_profile.py run
    python docs/results/novelty.py ASSETS
    python docs/results/novelty.py ASSETS --trained
"""

import argparse
from pathlib import Path

import numpy as np
from claims import write_claims
from depth_profile import write_table
from novelty import write_table as write_novelty
from verdicts import verdicts

from skh2edl.benchmark import make_tables, read_records, write_tables

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records"
TABLES = HERE / "tables"
TITLES = {
    "main": "Leaves",
    "levels": "Every level",
    "severity": "Mistakes on the tree",
    "descent": "Oracle descent",
    "consistency": "Path consistency",
    "ablation": "Forms of H²EDL",
    "uncertainty": "Uncertainty and errors",
    "constants": "Published constants",
    "calibration": "Two calibrations of an opinion",
    "budget": "Epochs of training",
    "coarsened": "Coarse labels",
}


# What a page includes before its first record.
EXPECTED = {
    "trained": ("grocery_store-resnet50", "cub_birds-resnet50"),
    "frozen": ("cub_birds-resnet50-frozen",),
}


def write_corruption(records, path):
    """Write the mean uncertainty at every step of blur and occlusion, and of noise."""
    lines = [
        "| data | network | method | epochs | seeds | blur, rising | occlusion, rising | noise |",
        "|---|---|---|---|---|---|---|---|",
    ]
    measured = {}
    for record in read_records(records):
        run = record["experiment"]
        key = run["dataset"], run["parameters"]["backbone"], run["method"], run["epochs"]
        measured.setdefault(key, []).append(record["corruption"])
    for key, seeds in sorted(measured.items()):
        kinds = ("blur", "occlusion", "noise")
        means = (np.atleast_1d(np.mean([seed[kind] for seed in seeds], axis=0)) for kind in kinds)
        cells = [*key, len(seeds), *(" ".join(f"{u:.2f}" for u in mean) for mean in means)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return path


def make(records=RECORDS, tables=TABLES):
    """Write every table, and for each network a file with all of them, for the page."""
    tables.mkdir(parents=True, exist_ok=True)
    written = []
    written.append(write_table(records / "depth_profile", tables / "depth_profile.md"))
    written.append(write_corruption(records / "trained", tables / "corruption.md"))
    written.append(write_novelty(records / "novelty", tables / "novelty.md"))
    both = [*read_records(records / "trained"), *read_records(records / "frozen")]
    written.append(write_claims(both, tables / "claims.md"))
    for kind, expected in EXPECTED.items():
        written += write_tables(records / kind, tables)
        written += write_pages(make_tables(read_records(records / kind)), tables, expected)
    return written


def write_pages(made, folder, expected=()):
    """Write a file for each network: the table of the leaves, and the others folded below it.

    What the tables have in common is said once. Below the table of the leaves stands what it says.
    """
    pages = {}
    for name, table in made.items():
        texts, said = pages.setdefault(name.removesuffix(f"-{table.name}"), ([], set()))
        missing = f"No record of: {'; '.join(table.missing)}." if table.missing else ""
        below = [text for text in (f"{table.note}.", missing) if text and text not in said]
        said.update(below)
        unbroken = table.to_markdown().replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
        shown = [f"*{table.caption}.*", unbroken, *below]
        if table.name != "main":
            summary = f"<details><summary>{TITLES[table.name]}</summary>"
            shown = [summary, *shown, "</details>"]
        else:
            shown += ["\n".join(verdicts(table))]
        texts += [text for text in shown if text]
    for name in expected:
        pages.setdefault(name, (["Not measured: there is no record yet."], set()))
    written = []
    for name, (texts, _) in pages.items():
        page = folder / f"{name}.md"
        text = "\n\n".join(["<!-- Made from records; do not edit. -->", *texts])
        page.write_text(text + "\n", encoding="utf-8", newline="\n")
        written.append(page)
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--tables", type=Path, default=TABLES)
    options = parser.parse_args()
    for path in make(options.records, options.tables):
        print(path.name)
