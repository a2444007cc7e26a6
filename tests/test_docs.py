"""What the pages and the README say is so: figures, parameters, names and links."""

import ast
import importlib
import re
import runpy
from pathlib import Path

import pytest
import yaml

import skh2edl
from skh2edl.h2edl import MAX_NESTED_LEAVES, PRESETS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def page(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def pages():
    ours = [path for path in DOCS.rglob("*.md") if not {"_build", "tables"} & set(path.parts)]
    return sorted([ROOT / "README.md", *ours])


def identify(path):
    return str(path.relative_to(ROOT))


# Figures -----------------------------------------------------------------------------------------


def test_the_results_of_the_readme_are_those_of_the_records():
    script = runpy.run_path(str(DOCS / "write_readme.py"))
    shown = README.split(script["START"])[1].split(script["END"])[0]
    assert shown.strip() == script["results"]().strip(), "python docs/write_readme.py"


def test_the_readme_shows_every_rival_beside_ours():
    methods = re.findall(r"^\| ([\w, -]+?) \| (?:yes|no) \|", README, flags=re.MULTILINE)
    assert {"Flat-CE", "Hier-CE", "Flat-EDL", "HENN", "I-EDL", "R-EDL"} <= set(methods)
    assert len(methods) == 11


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_the_numbers_of_the_concepts_are_those_of_the_pictures():
    opinion = runpy.run_path(str(DOCS / "draw_concepts.py"))["make_opinion"]()
    hidden, divided = opinion[1], opinion[2]
    tree = opinion.taxonomy
    of_737 = hidden.focal_sets.index(("Boeing", "737"))
    # 38 of 38 + 2 twice, as the page multiplies.
    assert hidden.mass[0, of_737] == pytest.approx(0.95 * 0.95)
    assert hidden.probability("737-800")[0] == pytest.approx(0.975 * 0.975 / 2)
    assert hidden.belief("737-800")[0] == 0
    assert hidden.plausibility("737-800")[0] == pytest.approx(1)
    assert divided.probability("737-800")[0] == pytest.approx(hidden.probability("737-800")[0])
    assert opinion.depth_profile[0] == pytest.approx(opinion.depth_profile[2])
    assert tree.n_leaves == 5
    for number in ("0.95 · 0.95 = 0.90", "0.95 + 0.05/2 = 0.975", "probability of 0.48 each"):
        assert number in page("concepts").replace("\n", " ")


@pytest.mark.parametrize(
    "name",
    ["read_out", "evidence", "risk", "kl_weight", "initial_bias", "l2_shape", "l2_metric"],
)
def test_the_page_on_the_method_names_the_presets_as_they_are(name):
    row = re.search(rf"^\| `{name}` \| (.*?) \| (.*?) \|", page("method"), flags=re.MULTILINE)
    for shown, preset in zip(row.groups(), ("paper", "default"), strict=True):
        value = PRESETS[preset][name]
        if shown == "small":
            assert 0 < value < 0.01
        elif isinstance(value, str):
            assert shown == f'"{value}"'
        else:
            assert float(shown.replace("−", "-")) == value


def test_presets_differ_in_nothing_that_the_page_does_not_list():
    listed = set(re.findall(r"^\| `(\w+)` \|", page("method"), flags=re.MULTILINE))
    differ = {name for name, value in PRESETS["paper"].items() if PRESETS["default"][name] != value}
    assert differ == listed


@pytest.mark.parametrize("name", ["method", "how_to"])
def test_large_trees_begin_where_the_pages_say(name):
    assert f"{MAX_NESTED_LEAVES:,} leaves" in page(name)


# Names and links ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", pages(), ids=identify)
def test_code_on_a_page_is_python_and_imports_what_exists(path):
    for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("skh2edl"):
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing


@pytest.mark.parametrize("path", pages(), ids=identify)
def test_links_to_files_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    assert not [link for link in links if not (path.parent / link).exists()]
    names = re.findall(r"{doc}`(?:[^`<]*<)?([^`>]+)>?`", text)
    assert not [name for name in names if not list(path.parent.glob(f"{name}.*"))]


def test_classes_named_on_our_pages_exist():
    known = {*skh2edl.__all__}
    for room in ("datasets", "displays", "metrics", "report", "scorers", "batch"):
        known |= set(dir(importlib.import_module(f"skh2edl.{room}")))
    known |= {"FrozenEstimator", "GroupKFold"}
    ending = "(?:Classifier|Display|Detector|Opinion|Images|Estimator|KFold)"
    for name in ("quick_start", "concepts", "how_to", "method", "comparison", "faq"):
        assert set(re.findall(rf"`([A-Z]\w*{ending})\b", page(name))) <= known


# Around the docs ---------------------------------------------------------------------------------


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == skh2edl.__version__
    assert citation["license"] == "BSD-3-Clause"


def test_ci_builds_the_docs_with_warnings_as_errors():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r'step "docs" sphinx-build -W .*\bdocs ', text)


@pytest.mark.parametrize("room", ["batch", "serve"])
def test_what_these_rooms_offer_is_in_the_api_reference(room):
    text = (DOCS / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(rf"^   {room}\.(\w+)$", text, flags=re.MULTILINE))
    assert listed == set(importlib.import_module(f"skh2edl.{room}").__all__)
