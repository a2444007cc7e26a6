"""Rules that keep the package readable: who imports whom, how long a file is, what users see."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skh2edl
from skh2edl.estimators import METHODS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "skh2edl"

# Every folder may import the ones before it and none after.
FOLDERS = (
    "utils",
    "taxonomy",
    "opinions",
    "metrics",
    "heads",
    "images",
    "training",
    "estimators",
    "scorers",
    "decisions",
    "exports",
    "batch",
    "displays",
    "datasets",
    "benchmark",
    "report",
    "serve",
    "cli",
)
OPTIONAL = {
    "dask",
    "distributed",
    "matplotlib",
    "networkx",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pyarrow",
}
MAX_LINES = 600
DOCS_MADE = {"_build", "gallery", "generated"}
# Written in pieces, so that this file does not hold what it forbids.
# A closing tag is no path: </option>.
MACHINE_PATH = re.compile(
    r"(?<![\w.~<-])/(?:" + "|".join(["work", "opt", "root", "home", "tmp"]) + "/)"
)
INDEX_ADDRESS = re.compile(
    "|".join(["--index" + "-url", "extra-index" + "-url", "pypi" + r"\.org"])
)


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def python_files() -> list[Path]:
    folders = [PACKAGE, ROOT / "tests", ROOT / "examples", ROOT / "docs"]
    return sorted(
        path
        for folder in folders
        for path in folder.rglob("*.py")
        if not DOCS_MADE & set(path.relative_to(ROOT).parts)
    )


def text_files() -> list[Path]:
    kinds = {".py", ".md", ".rst", ".toml", ".yaml", ".yml", ".cfg", ".txt", ".css", ".html", ".js"}
    inside = [
        path
        for folder in ("skh2edl", "tests", "examples", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and not DOCS_MADE & set(path.parts)
    ]
    top = [path for path in ROOT.iterdir() if path.suffix in kinds]
    return sorted([*inside, *top, ROOT / ".ci" / "run"])


def folder(module: str) -> str:
    return module.removeprefix("skh2edl.").split(".")[0]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, tree: ast.AST) -> Iterator[str]:
    """Full names of all modules that the code imports, wherever in the file it does."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import heads` imports a module, `from .heads import Head` a name of one.
            yield from (
                f"{source}.{alias.name}" if source == "skh2edl" else source for alias in node.names
            )


def imported_on_loading(path: Path) -> Iterator[str]:
    """Like `imported`, without what is inside functions and TYPE_CHECKING blocks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            children = getattr(node, field, None)
            if isinstance(children, list):
                setattr(node, field, [child for child in children if not _runs_later(child)])
    yield from imported(path, tree)


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def parsed_imports(path: Path) -> list[str]:
    return list(imported(path, ast.parse(path.read_text(encoding="utf-8"))))


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_root_holds_folders_only():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert files == {"__init__.py", "__init__.pyi", "py.typed"}
    assert folders == set(FOLDERS)


@pytest.mark.parametrize("path", modules(), ids=identify)
def test_imports_point_to_earlier_folders_only(path):
    own = folder(module_name(path))
    others = {folder(name) for name in parsed_imports(path) if name.startswith("skh2edl.")}
    # The package itself offers only its version to those inside.
    others -= {own, "__version__"}
    later = {other for other in others if other not in FOLDERS[: FOLDERS.index(own)]}
    assert not later, f"{own} imports {sorted(later)}, which are not before it in FOLDERS"


@pytest.mark.parametrize("path", modules(), ids=identify)
def test_no_module_takes_names_from_the_package_itself(path):
    names = {
        alias
        for alias in (name.removeprefix("skh2edl.") for name in parsed_imports(path))
        if alias in skh2edl.__all__
    }
    assert names <= {"__version__"}, f"import {sorted(names)} from their own modules"


@pytest.mark.parametrize("path", modules(), ids=identify)
def test_private_tools_of_scikit_learn_come_through_one_door(path):
    private = [
        name
        for name in parsed_imports(path)
        if name.startswith("sklearn.") and any(part.startswith("_") for part in name.split("."))
    ]
    assert not private or path == PACKAGE / "utils" / "sklearn_tools.py"


@pytest.mark.parametrize("path", modules(), ids=identify)
def test_optional_packages_are_imported_inside_functions(path):
    loaded = {name.split(".")[0] for name in imported_on_loading(path)}
    assert not loaded & {*OPTIONAL, "pandas"}
    # rich and typer belong to the command line, which main() guards.
    assert not loaded & {"rich", "typer"} or folder(module_name(path)) == "cli"
    # And these to the page, which create_app guards.
    web = {"fastapi", "pydantic", "python_multipart", "starlette", "uvicorn"}
    assert not loaded & web or folder(module_name(path)) == "serve"


@pytest.mark.parametrize("path", python_files(), ids=identify)
def test_a_file_has_one_subject_and_so_an_end(path):
    length = len(path.read_text(encoding="utf-8").splitlines())
    assert length <= MAX_LINES, f"{length} lines: split it"


@pytest.mark.parametrize("path", text_files(), ids=identify)
def test_no_file_names_a_place_on_one_machine(path):
    text = path.read_text(encoding="utf-8")
    found = [
        match.group()
        for pattern in (MACHINE_PATH, INDEX_ADDRESS)
        for match in pattern.finditer(text)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "is_place"),
    [
        ("open('/" + "tmp/x')", True),
        ("see /" + "home/me/data", True),
        ("https://example.org/home/page", False),
        ("a/" + "tmp/b", False),
        ("/templates/", False),
    ],
)
def test_the_pattern_for_machine_paths_tells_them_from_addresses(text, is_place):
    assert bool(MACHINE_PATH.search(text)) is is_place


def test_type_checkers_see_the_classifiers_that_python_imports():
    starred = {
        name
        for module in ("baselines", "dirichlet_baselines", "evidential_baselines", "h2edl")
        for name in importlib.import_module(f"skh2edl.estimators.{module}").__all__
    }
    assert starred == set(METHODS.values())
    assert starred <= set(skh2edl.__all__)


@pytest.mark.parametrize("name", sorted({*skh2edl.__all__} - {"__version__"}))
def test_every_public_name_has_a_docstring_with_an_example(name):
    thing = getattr(skh2edl, name)
    assert thing.__module__.startswith("skh2edl.")
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    assert doctest.DocTestParser().get_examples(text), f"{name} has no example"


def test_an_unknown_public_name_is_refused_by_name():
    with pytest.raises(AttributeError, match="'skh2edl' has no attribute 'Taxonomie'"):
        _ = skh2edl.Taxonomie


def test_dir_lists_what_is_not_loaded_yet():
    listed = run("import skh2edl; print(*dir(skh2edl))").split()
    assert set(skh2edl.__all__) <= set(listed)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


def loaded_by(code: str) -> set[str]:
    return set(
        run(f"import sys; {code}; print(*{{name.split('.')[0] for name in sys.modules}})").split()
    )


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import skh2edl") & {
        "torch",
        "timm",
        "matplotlib",
        "pandas",
        "sklearn",
        "numpy",
    }


def test_the_tree_and_the_opinion_need_numpy_only():
    heavy = {"torch", "timm", "matplotlib", "pandas", "sklearn", "scipy", "networkx"}
    assert not loaded_by("from skh2edl import HyperOpinion, Taxonomy") & heavy


def test_the_page_is_imported_without_its_packages():
    heavy = {"torch", "fastapi", "pydantic", "starlette", "uvicorn"}
    assert not loaded_by("from skh2edl.serve import Limits, create_app") & heavy


def test_the_command_line_starts_without_torch():
    heavy = {"torch", "timm", "matplotlib", "pandas", "sklearn"}
    assert not loaded_by("import skh2edl.cli.app") & heavy


@pytest.mark.slow
def test_only_training_by_epochs_loads_fabric():
    fit = (
        "import numpy as np, skh2edl; X = np.arange(12.0).reshape(6, 2); "
        "clf = skh2edl.H2EDLClassifier(backbone=None{}).fit(X, ['a', 'b'] * 3); clf.predict(X)"
    )
    assert "lightning_fabric" not in loaded_by(fit.format(""))
    assert "lightning_fabric" in loaded_by(fit.format(", solver='adamw', max_epochs=1"))
