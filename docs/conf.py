"""Sphinx configuration: sphinx-build -W -b html docs docs/_build"""

import skh2edl

project = "skh2edl"
author = "The skh2edl developers"
project_copyright = "The skh2edl developers"
version = release = skh2edl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
exclude_patterns = ["_build", "results/speed_table.md", "results/tables/*", "studies/*_table.md"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"skh2edl {release}"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's type slot holds shapes, which annotations cannot
numpydoc_show_class_members = False  # the class template lists them
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3


def skip_inherited(app, what, name, member, skip, options):
    """Leave out what scikit-learn and torch add: their docstrings link to their own pages."""
    module = getattr(member, "__module__", "") or ""
    return True if module.startswith(("sklearn.", "torch.")) else None


def setup(app):
    app.connect("autodoc-skip-member", skip_inherited)
