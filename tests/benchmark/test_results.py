"""The tables in the documentation are what the records give, and no figure was typed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from skh2edl.benchmark import Experiment, load_dataset, read_records
from skh2edl.benchmark.running import _content_hash

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
STUDIES = RESULTS.parent / "studies"
PAGES = [RESULTS / f"{name}.md" for name in ("index", "beside")]


@pytest.mark.slow
def test_the_committed_tables_are_what_the_committed_records_give(tmp_path):
    command = [sys.executable, str(RESULTS / "make.py"), "--tables", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in (RESULTS / "tables").iterdir()}
    assert len(made) > 10
    assert sorted(committed) == sorted(made)
    for name, content in made.items():
        assert committed[name] == content, f"run docs/results/make.py: {name} is out of date"


def test_the_pages_show_tables_by_including_them():
    included = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        included |= {name for name in re.findall(r"```{include} tables/(\S+)", text)}
        # A row of a table with a digit in it would be a typed figure.
        assert not re.search(r"^\|.*\d.*\|$", text, flags=re.MULTILINE), page.name
    assert included
    assert included <= {path.name for path in (RESULTS / "tables").glob("*.md")}


@pytest.mark.parametrize("folder", ["trained", "frozen"])
def test_every_record_is_named_by_its_experiment(folder):
    paths = sorted((RESULTS / "records" / folder).glob("*.json"))
    assert paths
    for path in paths:
        assert Experiment.from_dict(json.loads(path.read_text())["experiment"]).name == path.stem


def test_the_table_of_the_constants_is_what_its_records_give(tmp_path):
    code = (
        "import sys; from pathlib import Path; import defaults; "
        "defaults.TABLE = Path(sys.argv[1]); defaults.write_table()"
    )
    made = tmp_path / "table.md"
    subprocess.run([sys.executable, "-c", code, str(made)], check=True, cwd=STUDIES)
    assert made.read_bytes() == (STUDIES / "defaults_table.md").read_bytes()


@pytest.mark.parametrize("folder", ["trained", "frozen"])
def test_every_method_has_the_same_grid(folder):
    grids = {
        json.dumps(record["experiment"]["grid"])
        for record in read_records(RESULTS / "records" / folder)
        if "nothing" not in record["experiment"]["method"]
    }
    assert len(grids) == 1


@pytest.mark.parametrize("dataset", ["cub_birds", "grocery_store"])
def test_the_records_are_of_what_the_loaders_give(assets, dataset):
    data = load_dataset(dataset, assets / dataset)
    tree = data.taxonomy
    nodes = [len(tree.level(level)) for level in tree.level_names]
    for folder in ("trained", "frozen"):
        runs = read_records(RESULTS / "records" / folder)
        mine = [record for record in runs if record["experiment"]["dataset"] == dataset]
        assert mine
        assert {record["data"] for record in mine} == {_content_hash(data)}
        for record in mine:
            assert [record["test"][level]["classes"] for level in tree.level_names] == nodes
