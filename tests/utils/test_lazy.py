"""Packages that import their names when they are first used."""

import importlib
import shutil
import subprocess
import sys

import pytest

from skh2edl.utils.lazy import attach_stub


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a module of two names, of which its stub offers one."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "animals.py").write_text("cat = 'Felis'\ndog = 'Canis'\n")
    (folder / "plants.py").write_text("__all__ = ['oak']\noak = 'Quercus'\n")
    (folder / "__init__.pyi").write_text(
        "from .animals import cat as cat\nfrom .plants import *\n\nversion: str\n"
    )
    (folder / "__init__.py").write_text(
        "from skh2edl.utils.lazy import attach_stub\n"
        "__getattr__, __dir__, __all__ = attach_stub(__name__, oak='.plants')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_package")
    for name in [name for name in sys.modules if name.startswith("lazy_package")]:
        del sys.modules[name]


def test_names_of_the_stub_and_further_ones_are_imported_when_they_are_used(package):
    assert sorted(package.__all__) == ["cat", "oak"]
    assert {"cat", "oak"} <= {*dir(package)}
    assert "lazy_package.animals" not in sys.modules
    assert package.cat == "Felis"
    assert "lazy_package.plants" not in sys.modules
    assert package.oak == "Quercus"


def test_modules_are_found_and_other_names_are_refused(package):
    assert package.animals.dog == "Canis"
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'dog'"):
        _ = package.dog


def test_a_package_in_an_archive_has_its_names_too(package, tmp_path):
    archive = shutil.make_archive(tmp_path / "packages", "zip", tmp_path, "lazy_package")
    code = f"import sys; sys.path.insert(0, {archive!r}); import lazy_package as p; print(p.cat)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Felis\n", "")


def test_a_package_without_a_stub_is_no_lazy_package():
    with pytest.raises(FileNotFoundError, match=r"__init__\.pyi"):
        attach_stub("skh2edl.utils")
