"""The tables in the documentation are what the records give, and no figure was typed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from skh2edl.benchmark import Experiment, frozen_protocol, preset_experiments, read_records

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
STUDIES = RESULTS.parent / "studies"
PAGES = [
    *(RESULTS / f"{name}.md" for name in ("index", "glyphs", "grocery")),
    RESULTS.parent / "which_method.md",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    subprocess.run(
        [sys.executable, str(RESULTS / "make.py"), "--tables", str(folder)],
        check=True,
        capture_output=True,
    )
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_committed_tables_are_what_the_committed_records_give(made):
    committed = {path.name: path.read_bytes() for path in (RESULTS / "tables").iterdir()}
    assert len(made) > 20
    assert sorted(committed) == sorted(made)
    for name, content in made.items():
        assert committed[name] == content, f"run docs/results/make.py: {name} is out of date"


def test_the_pages_show_tables_by_including_them():
    included = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        included |= {name for name in re.findall(r"```{include} (?:results/)?tables/(\S+)", text)}
        # A row of a table with a digit in it would be a typed figure.
        assert not re.search(r"^\|.*\d.*\|$", text, flags=re.MULTILINE), page.name
    assert included
    assert included <= {path.name for path in (RESULTS / "tables").glob("*.md")}


@pytest.mark.parametrize("folder", ["glyphs", "glyphs_frozen", "grocery"])
def test_every_record_is_named_by_its_experiment(folder):
    paths = sorted((RESULTS / "records" / folder).glob("*.json"))
    assert paths
    for path in paths:
        assert Experiment.from_dict(json.loads(path.read_text())["experiment"]).name == path.stem


def test_the_grid_of_the_frozen_features_is_complete():
    done = {path.stem for path in (RESULTS / "records" / "grocery").glob("*.json")}
    networks = {
        "tf_efficientnet_lite0": "tf_efficientnet_lite0",
        "resnet50": "resnet50_imagenet_fp16",
    }
    planned = {
        experiment.name
        for network, weights in networks.items()
        for experiment in frozen_protocol("grocery_store", network, weights=weights)
    }
    assert done == planned


def test_the_grid_of_the_glyphs_is_complete():
    done = {path.stem for path in (RESULTS / "records" / "glyphs").glob("*.json")}
    assert done == {experiment.name for experiment in preset_experiments("glyphs", "study")}


@pytest.mark.parametrize("name", ["penalty_shape", "penalty_metric"])
def test_the_table_of_a_study_of_penalties_is_what_its_lines_give(name):
    code = f"import {name} as study; print(study.make_table(study.read_lines()), end='')"
    made = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        check=True,
        capture_output=True,
        encoding="utf-8",
        cwd=STUDIES,
    )
    assert made.stdout == (STUDIES / f"{name}_tables.md").read_text(encoding="utf-8")


def test_the_main_table_has_every_method_and_every_method_the_same_choices():
    for folder in ("glyphs", "grocery"):
        by_row: dict[str, list[dict]] = {}
        for record in read_records(RESULTS / "records" / folder):
            experiment = record["experiment"]
            if not experiment["coarse_fraction"] and experiment["budget"] == 1:
                by_row.setdefault(experiment["classifier"], []).append(experiment)
        assert len(by_row) == 9
        tuned = [e for rows in by_row.values() for e in rows if e["method"].find("nothing") < 0]
        assert len({json.dumps(e["grid"]) for e in tuned if e["epochs"] is None}) <= 1
