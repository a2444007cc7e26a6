"""``skh2edl benchmark``: one line from data to tables."""

import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from skh2edl.benchmark import preset_experiments
from skh2edl.cli.app import app


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("SKH2EDL_TRACEBACK", raising=False)

    def invoke(*arguments):
        return CliRunner().invoke(app, ["benchmark", *map(str, arguments)])

    return invoke


def test_help_shows_the_papers_protocol_in_one_line(run):
    result = run("--help")
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "skh2edl benchmark --dataset fgvc_aircraft --root data --preset paper" in text
    for option in (
        "--weights", "--records", "--n-jobs", "--features-cache", "--tables-only", "--epochs",
        "--seeds", "--methods", "--image-size", "--table", "--dry-run",
    ):  # fmt: skip
        assert option in text


def test_the_paper_preset_is_the_papers_protocol_and_that_of_the_papers_data(run):
    result = run("--dataset", "fgvc_aircraft", "--dry-run")
    assert result.exit_code == 0, result.output
    *names, said, _ = result.output.strip().splitlines()
    runs = preset_experiments("fgvc_aircraft", "paper")
    assert names == [each.name for each in runs]
    assert " ".join(said.split()).startswith(f"{len(runs)} experiments, 0 of them with a record")
    assert {dict(each.parameters)["backbone"] for each in runs} == {"resnet50"}
    assert {each.weights for each in runs} == {"pretrained"}
    assert {each.seed for each in runs} == {0, 1, 2}
    # 100 epochs, twice as many for the budget, and 40 with coarse labels and beside them.
    assert {each.epochs for each in runs if each.budget == 1} == {100}
    assert {each.epochs for each in runs if each.budget == 2} == {200}
    coarse = [each for each in runs if each.coarse_fraction]
    assert {each.epochs for each in coarse} == {40}
    assert {each.coarse_fraction for each in coarse} == {0.25, 0.5, 0.75}
    beside = [each.method for each in runs if each.epochs == 40 and not each.coarse_fraction]
    usual = [each.method for each in runs if each.budget == 1 and "," not in each.method]
    assert set(usual) <= set(beside)


def test_epochs_seeds_methods_and_image_size_are_taken_from_the_command_line(run):
    result = run(
        "--dataset", "derm12345", "--epochs", 7, "--seeds", "3,5", "--image-size", 48,
        "--methods", "flat-ce,H2EDL-plain", "--methods", "hier-ce", "--weights", "none",
        "--backbone", "test_resnet", "--table", "budget", "--dry-run",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = preset_experiments(
        "derm12345", "paper", methods=["Flat-CE", "H2EDL, plain", "Hier-CE"], epochs=7,
        seeds=[3, 5], image_size=48, weights="none", backbone="test_resnet", tables=["budget"],
    )  # fmt: skip
    assert result.output.splitlines()[: len(runs)] == [each.name for each in runs]
    assert len(runs) == 12  # three methods, two seeds, two budgets
    assert {(each.epochs, each.seed) for each in runs} == {(7, 3), (7, 5), (14, 3), (14, 5)}
    assert {(dict(each.parameters)["image_size"], each.weights) for each in runs} == {(48, None)}
    assert "benchmark/derm12345-paper-7epochs-48px" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("dataset", "option", "kind"),
    [
        ("glyphs", None, "epochs"),
        ("glyphs", "--frozen", "features"),
        ("grocery_store", None, "features"),
        ("cub_birds", "--trained", "epochs"),
    ],
)
def test_a_network_is_frozen_or_trained_as_asked(run, dataset, option, kind):
    asked = [] if option is None else [option]
    result = run("--dataset", dataset, "--preset", "quick", "--dry-run", *asked)
    assert result.exit_code == 0, result.output
    frozen = {"--frozen": True, "--trained": False, None: None}[option]
    runs = preset_experiments(dataset, "quick", frozen=frozen)
    assert result.output.splitlines()[:-2] == [each.name for each in runs]
    assert all(getattr(each, kind) for each in runs)


# On small folders in the official formats --------------------------------------------------------

TINY = ("--epochs", 1, "--seeds", 0, "--image-size", 24, "--backbone", "test_resnet")
PAPERS_ROWS = [
    "Flat-CE", "Flat-EDL", "Hier-CE", "HENN", "I-EDL", "H2EDL, plain", "H2EDL, leaf-path",
    "H2EDL, consistency", "H2EDL, base-rate",
]  # fmt: skip
PAPERS_METHODS = (
    "flat-ce,flat-edl,hier-ce,henn,i-edl,h2edl-plain,h2edl-leaf-path,h2edl-consistency,"
    "h2edl-base-rate"
)
AIRCRAFT = [
    ("Boeing", "737", "737-300"), ("Boeing", "737", "737-400"), ("Boeing", "747", "747-100"),
    ("Airbus", "A340", "A340-200"), ("Airbus", "A340", "A340-300"),
]  # fmt: skip
LESIONS = [
    ("melanocytic", "benign", "banal", "compound", "acb"),
    ("Melanocytic", "Benign", "banal", "dermal", "db"),
    ("melanocytic", "malignant", "melanoma", "melanoma", "mel"),
    ("melanocytic", "malignant", "melanoma", "melanoma", "lm"),
    ("nonmelanocytic", "benign", "vascular", "vascular", "ha"),
    ("nonmelanocytic", "malignant", "keratinocytic", "keratinocytic", "bcc"),
]


def save(path, seed, banner=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (24 + banner, 24, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


def write_aircraft(root):
    number = 0
    for part, n_each in (("train", 3), ("val", 1), ("test", 2)):
        lists = {"manufacturer": "", "family": "", "variant": ""}
        for names in AIRCRAFT * n_each:
            number += 1
            save(root / "data" / "images" / f"{number:07d}.jpg", number, banner=20)
            for level, name in zip(lists, names, strict=True):
                lists[level] += f"{number:07d} {name}\n"
        for level, text in lists.items():
            (root / "data" / f"images_{level}_{part}.txt").write_text(text)


def write_lesions(root):
    columns = "super_class,malignancy,main_class_1,main_class_2,label"
    for part, folder, n_each in (("train", "train_part_1", 6), ("test", "test", 2)):
        lines = [f"image_id,patient_id,{columns}"]
        for number, names in enumerate(LESIONS * n_each):
            image = f"{part}_{number}"
            save(root / f"derm12345_{folder}" / names[-1] / f"{image}.jpg", number)
            lines.append(f"{image},P{part}{number},{','.join(names)}")
        (root / f"derm12345_metadata_{part}.csv").write_text("\n".join(lines) + "\n")


def shown(path):
    """Return the header and the rows of a Markdown table."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    header, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return header, body


@pytest.mark.slow
def test_fgvc_aircraft_ends_in_the_papers_tables(run, tmp_path):
    write_aircraft(tmp_path / "data")
    options = [
        "--dataset",
        "fgvc_aircraft",
        "--root",
        tmp_path / "data",
        "--records",
        tmp_path,
        *TINY,
    ]
    options += ["--weights", "none"]
    # The budget alone runs what it needs.
    budget = run(*options, "--table", "budget", "--methods", "flat-ce,h2edl-plain")
    assert budget.exit_code == 0, budget.output
    tables = tmp_path / "tables"
    assert [path.name for path in tables.glob("*.md")] == [
        "fgvc_aircraft-test_resnet-paper-budget.md"
    ]
    header, body = shown(tables / "fgvc_aircraft-test_resnet-paper-budget.md")
    assert header == [
        "measure", "method", "1 epoch", "published 100 epochs", "2 epochs", "published 200 epochs",
        "Δ", "published Δ",
    ]  # fmt: skip
    rows = {(line[0], line[1]): line[3::2] for line in body}
    assert rows["NLL", "Flat-CE"] == ["2.00 ± 0.10", "2.25 ± 0.05", "+0.25"]
    assert rows["ECE %", "ratio: Flat-CE / H2EDL, plain"] == ["2.2×", "2.8×", "p = 0.009"]

    plan = " ".join(run(*options, "--methods", PAPERS_METHODS, "--table", "constants", "--dry-run")
                    .output.split())  # fmt: skip
    # Nine methods, three published forms, I-EDL at 0.05 and the plain evidence; two are done.
    assert "14 experiments, 2 of them with a record" in plan
    assert re.search(r"12 to run. About \d+\.\d minutes with --n-jobs 1", plan)
    rest = run(*options, "--methods", PAPERS_METHODS, "--table", "main,levels,severity,descent,"
               "consistency,ablation,constants")  # fmt: skip
    assert rest.exit_code == 0, rest.output
    names = ("main", "levels", "severity", "descent", "consistency", "ablation", "constants")
    found = {name: shown(tables / f"fgvc_aircraft-test_resnet-paper-{name}.md") for name in names}
    for name, (_, body) in found.items():
        methods = [line[0] for line in body]
        assert [each for each in methods if each in PAPERS_ROWS] == PAPERS_ROWS, name
    header, body = found["main"]
    assert header[:9] == [
        "method", "Hier.", "Unc.", "bAcc %", "published bAcc %", "ECE %", "published ECE %", "NLL",
        "published NLL",
    ]  # fmt: skip
    marks = {line[0]: line[1:3] for line in body}
    # The paper's marks: only H2EDL has both.
    assert marks["Flat-CE"] == ["", ""]
    assert marks["HENN"] == marks["I-EDL"] == marks["Flat-EDL"] == ["", "✓"]
    assert marks["Hier-CE"] == ["✓", ""]
    assert marks["H2EDL, plain"] == ["✓", "✓"]
    assert "I-EDL, c = 0.05" in [line[0] for line in found["constants"][1]]
    legend = (tables / "fgvc_aircraft-test_resnet-paper-main.md").read_text().splitlines()[2]
    assert "trained whole for 1 epoch at 24 px, recipe paper, seed 0:" in legend
    missing = legend.split("No record of: ")[1].rstrip(".*").split("; ")
    assert {"R-EDL", "HXE", "Soft labels", "H2EDL"} <= set(missing)
    assert not set(missing) & set(PAPERS_ROWS)
    for suffix in ("tex", "csv"):
        assert len(list(tables.glob(f"*.{suffix}"))) == 1 + len(names)


@pytest.mark.slow
def test_derm12345_ends_in_the_papers_tables(run, tmp_path):
    write_lesions(tmp_path / "data")
    options = ["--dataset", "derm12345", "--root", tmp_path / "data", "--records", tmp_path, *TINY]
    options += ["--weights", "none"]
    # No table is named: all of them.
    result = run(*options, "--methods", PAPERS_METHODS)
    assert result.exit_code == 0, result.output
    tables = tmp_path / "tables"
    prefix = "derm12345-test_resnet-paper-"
    assert {path.stem.removeprefix(prefix) for path in tables.iterdir()} == {
        "main", "levels", "severity", "descent", "consistency", "ablation", "uncertainty",
        "constants", "calibration", "budget", "coarsened",
    }  # fmt: skip
    header, body = shown(tables / "derm12345-test_resnet-paper-coarsened.md")
    fractions = [f"f = {each}" for each in ("0", "0.25", "0.5", "0.75")]
    beside = [title for each in fractions for title in (each, f"published {each}")]
    assert header == ["measure", "method", *beside, "Δ", "published Δ"]
    rows = {(line[0], line[1]): line[3::2] for line in body}
    assert rows["leaf ECE %", "H2EDL, plain"][:4] == [
        "12.1 ± 4.0", "12.8 ± 3.7", "12.1 ± 1.0", "7.2 ± 2.6",
    ]  # fmt: skip
    assert {
        ("super_class bAcc %", f"Flat-CE, {how}") for how in ("marginal", "soft", "drop")
    } <= set(rows)
    header, body = shown(tables / "derm12345-test_resnet-paper-levels.md")
    assert [line[0] for line in body] == PAPERS_ROWS
    published = {line[0]: line[header.index("published main_class_1 bAcc %")] for line in body}
    assert published["I-EDL"] == "47.9 ± 1.0"
    again = run("--tables-only", "--records", tmp_path, "--tables", tmp_path / "again")
    assert again.exit_code == 0, again.output
    for path in tables.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "birds"], "--dataset must be one of .* got 'birds'"),
        (["--preset", "slow"], "--preset must be one of .* got 'slow'"),
        (["--dataset", "grocery_store"], "is read from a folder. Name it with --root"),
        (["--dataset", "derm12345", "--root", "nowhere"], "--root must be a folder, and there is"),
        (["--weights", "no.safetensors"], "--weights must be a file or none, and there is no no"),
        (["--table", "majn"], "--table must be one of main, .* got 'majn'"),
        (["--methods", "flat-ce,h2adl"], "--methods must be one of flat-ce, .* got 'h2adl'"),
        (["--seeds", "0,x"], "--seeds must be whole numbers, such as 0,1,2; got '0,x'"),
        (
            ["--dataset", "cub_birds", "--image-size", "64"],
            "--image-size 64 is for .* Add --trained",
        ),
        (["--tables-only", "--records", "nowhere"], "--records must be a folder, and"),
    ],
)
def test_a_wrong_option_is_named_by_its_flag(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 1
    text = " ".join(result.stderr.split())
    assert "Error: " in text
    assert "Traceback" not in text
    assert re.search(message, text), text


def test_a_folder_without_records_is_an_error(run, tmp_path):
    result = run("--tables-only", "--records", tmp_path)
    assert result.exit_code == 1
    assert "holds no record, so there is no table" in " ".join(result.stderr.split())
    result = run("--tables-only", "--records", tmp_path, "--table", "budget")
    assert "holds too few records for --table budget, so there is no" in " ".join(
        result.stderr.split()
    )
