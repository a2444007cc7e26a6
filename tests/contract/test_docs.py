"""What the pages and the README say is true: figures, parameters, names and links."""

import ast
import csv
import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest
import yaml

import skh2edl
from skh2edl import H2EDLClassifier
from skh2edl.cli.fit import _FEW_IMAGES
from skh2edl.estimators.h2edl import VARIANTS
from skh2edl.heads.base import LARGE_TREE
from skh2edl.report.questions import USUAL_TARGET

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "skh2edl"
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


def test_the_readme_shows_both_cross_entropies_beside_ours_raw_and_calibrated():
    header, _, *rows = README.split("<!-- results -->")[1].split("<!--")[0].strip().splitlines()
    assert {"ECE %", "NLL", "ECE %, calibrated", "NLL, calibrated"} <= set(header.split(" | "))
    assert [row.split(" | ")[0] for row in rows] == ["| Flat-CE", "| Hier-CE", "| H2EDL"]


def means(name):
    """Return the means in a table of the results, as {method: {column: mean}}."""
    with (DOCS / "results" / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["method"]: {
            column.removesuffix(" mean"): float(value)
            for column, value in row.items()
            if column.endswith(" mean") and value
        }
        for row in rows
        if row.get("measure", "bAcc %") == "bAcc %"
    }


def with_temperature(name):
    """Return the figures of H2EDL with a temperature, as {measure: mean}."""
    path = DOCS / "results" / "tables" / f"{name}-calibration.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["measure"]: float(row["temperature mean"]) for row in csv.DictReader(file)}


def test_the_sentences_of_the_readme_follow_from_the_tables_of_the_results():
    said = " ".join(README.split())
    trained = means("grocery_store-tf_efficientnet_lite0-main")
    ours, flat, local = (trained[name] for name in ("H2EDL", "Flat-CE", "Hier-CE"))
    assert (
        "As trained for 20 epochs, H²EDL has the smallest calibration error at the leaves" in said
    )
    assert ours["ECE %"] < min(flat["ECE %"], local["ECE %"])
    assert ours["bAcc %"] > max(flat["bAcc %"], local["bAcc %"]) - 1.5
    assert ours["NLL"] < 1.02 * min(flat["NLL"], local["NLL"])
    assert "On the birds it has less than half the error of either cross-entropy" in said
    birds = means("cub_birds-tf_efficientnet_lite0-main")
    assert birds["H2EDL"]["ECE %"] < min(birds["Flat-CE"]["ECE %"], birds["Hier-CE"]["ECE %"]) / 2
    assert "Its mistakes tend to be milder than those of the flat softmax" in said
    assert ours["severity"] < flat["severity"]
    assert "A flat softmax with a temperature is better calibrated and has the better" in said
    assert flat["ECE %, calibrated"] < min(ours["ECE %"], ours["ECE %, calibrated"])
    assert "A temperature on its probabilities improves both, and Flat-CE with one stays" in said
    tempered = with_temperature("grocery_store-tf_efficientnet_lite0")
    assert flat["ECE %, calibrated"] < tempered["ECE %"] < ours["ECE %"]
    assert flat["NLL, calibrated"] < tempered["NLL"] < ours["NLL"]
    assert flat["NLL, calibrated"] < min(ours["NLL"], ours["NLL, calibrated"])
    assert "scaling the evidence of H²EDL on validation images improves neither" in said
    assert ours["ECE %, calibrated"] >= ours["ECE %"]
    assert ours["NLL, calibrated"] >= ours["NLL"]
    assert "confidence tells errors slightly better than its U does" in said
    errors = means("grocery_store-tf_efficientnet_lite0-uncertainty")["H2EDL"]
    assert 0 < errors["AUROC of 1 - max P"] - errors["AUROC of uncertainty"] < 0.05
    assert "its balanced accuracy is five points below that of Flat-CE" in said
    budget = means("grocery_store-tf_efficientnet_lite0-budget")
    assert round(budget["Flat-CE"]["5 epochs"] - budget["H2EDL"]["5 epochs"]) == 5
    assert "On frozen features a flat softmax has the better likelihood" in said
    for data in ("grocery_store-tf_efficientnet_lite0", "grocery_store-resnet50"):
        frozen = means(f"{data}-frozen-main")
        assert frozen["Flat-CE"]["NLL"] < frozen["H2EDL"]["NLL"]
    birds = means("cub_birds-tf_efficientnet_lite0-frozen-main")
    assert birds["Flat-CE"]["NLL"] < birds["H2EDL"]["NLL"]
    assert "and names more bird families" in said
    for network in ("tf_efficientnet_lite0", "resnet50"):
        levels = means(f"cub_birds-{network}-frozen-levels")
        accuracy = levels["H2EDL, nothing chosen"]["family bAcc %"]
        assert levels["Flat-CE"]["family bAcc %"] > accuracy + 1


def test_uncertainty_rises_with_blur_occlusion_and_noise_as_the_readme_says():
    assert "Its U rises with blur and occlusion, and with noise" in " ".join(README.split())
    text = (DOCS / "results" / "tables" / "corruption.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    wanted = ["grocery_store", "tf_efficientnet_lite0", "H2EDL", "20"]
    (row,) = [row for row in rows if row[:4] == wanted]
    for cell in row[5:7]:
        steps = list(map(float, cell.split()))
        assert steps == sorted(set(steps))
        assert float(row[7]) > steps[0]


def test_the_numbers_of_the_readme_for_people_are_those_of_the_commands():
    said = " ".join(README.split())
    assert f"Have at least {_FEW_IMAGES} photographs of each class" in said
    assert f"about {1 - USUAL_TARGET:.0%} may be wrong".replace("%", " %") in said


def test_the_readme_is_short():
    assert len(README.split()) <= 1600
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


def table(name, heading):
    """Return the cells of the table on a page whose first column is called `heading`."""
    block = re.search(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page(name), re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in block[1].splitlines()]


def test_the_page_on_the_method_lists_the_constants_as_they_are():
    constants = {cells[0].strip("`"): float(cells[1]) for cells in table("method", "parameter")}
    assert len(constants) <= 6
    defaults = H2EDLClassifier().get_params()
    assert constants == {name: defaults[name] for name in constants}


def test_the_page_on_the_method_lists_the_variants_as_they_are():
    rows = table("method", "variant")
    listed = {name.strip('"'): eval(f"dict({code.strip('`')})") for name, code in rows}
    assert listed == VARIANTS


@pytest.mark.parametrize("name", ["concepts", "how_to", "faq", "index", "displays", "decisions"])
def test_no_other_page_repeats_a_constant(name):
    names = "|".join(cells[0].strip("`") for cells in table("method", "parameter"))
    assert not re.findall(rf"\b(?:{names})`?\s*(?:=|is|of)\s*\d", page(name))


def test_the_page_on_the_method_fits_in_an_hour():
    assert len(page("method").splitlines()) <= 150


def test_equations_of_several_lines_are_aligned_and_keep_no_mark_of_latex():
    pytest.importorskip("sphinx_gallery")
    to_mathml = runpy.run_path(str(DOCS / "conf.py"))["to_mathml"]
    blocks = re.findall(r"^\$\$\n(.*?)^\$\$", page("method"), flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        written = to_mathml(block, True)
        assert written.count("<mtr>") == block.count(r"\\") + 1
        assert "<mi>&</mi>" not in written
        assert r"\\" not in written


@pytest.mark.parametrize("name", ["method", "how_to"])
def test_large_trees_begin_where_the_pages_say(name):
    assert f"{LARGE_TREE:,} leaves" in page(name)


@pytest.mark.parametrize("path", pages(), ids=identify)
def test_parameters_on_a_page_exist(path):
    for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            name = getattr(getattr(node, "func", None), "id", "")
            if name in skh2edl.__all__:
                known = set(inspect.signature(getattr(skh2edl, name)).parameters)
                given = {keyword.arg for keyword in node.keywords if keyword.arg}
                assert given <= known, name


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
    # The build makes a page of the gallery from each script of the examples.
    scripts = {f"gallery/{script.stem}" for script in (ROOT / "examples").glob("*.py")}
    names = set(names) - scripts - {"gallery/index"}
    assert not [name for name in names if not list(path.parent.glob(f"{name}.*"))]


@pytest.mark.parametrize("path", pages(), ids=identify)
def test_modules_named_on_a_page_exist(path):
    folders = "|".join(folder.name for folder in PACKAGE.iterdir() if folder.is_dir())
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(rf"`(?:skh2edl/)?((?:{folders})/\w[\w/.]*)`", text))
    assert not [name for name in named if not (PACKAGE / name).exists()]


def test_the_map_of_the_package_shows_every_folder_in_the_order_of_imports():
    rules = runpy.run_path(str(Path(__file__).with_name("test_architecture.py")))
    shown = [cells[0].strip("`") for cells in table("contributing", "folder")]
    assert tuple(shown) == rules["FOLDERS"]


def test_classes_named_on_our_pages_exist():
    known = {*skh2edl.__all__}
    for module in ("datasets", "displays", "metrics", "report", "scorers", "batch"):
        known |= set(dir(importlib.import_module(f"skh2edl.{module}")))
    known |= {"FrozenEstimator", "GroupKFold"}
    ending = "(?:Classifier|Display|Detector|Opinion|Images|Estimator|KFold)"
    for name in ("quick_start", "concepts", "how_to", "method", "comparison", "faq"):
        assert set(re.findall(rf"`([A-Z]\w*{ending})\b", page(name))) <= known


# Around the docs ---------------------------------------------------------------------------------


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == skh2edl.__version__
    assert citation["license"] == "BSD-3-Clause"


@pytest.mark.parametrize("module", ["batch", "serve"])
def test_what_these_modules_offer_is_in_the_api_reference(module):
    text = (DOCS / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(rf"^   {module}\.(\w+)$", text, flags=re.MULTILINE))
    assert listed == set(importlib.import_module(f"skh2edl.{module}").__all__)
