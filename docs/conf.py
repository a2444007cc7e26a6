"""Sphinx configuration: sphinx-build -W -b html docs docs/_build"""

import re
import warnings
from pathlib import Path

import matplotlib
from docutils import nodes
from latex2mathml.converter import convert

import skh2edl

matplotlib.use("Agg")

project = "skh2edl"
author = "The skh2edl developers"
project_copyright = "The skh2edl developers"
version = release = skh2edl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "results/speed_table.md", "results/tables/*", "studies/*_table.md"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"skh2edl {release}"
html_static_path = ["_static"]
html_css_files = ["skh2edl.css"]
html_math_renderer = "mathml"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's type slot holds shapes, which annotations cannot
numpydoc_show_class_members = False  # the class template lists them
myst_enable_extensions = ["attrs_block", "deflist", "dollarmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/(?!dask_)\w+\.py$",  # those of dask are commands for a cluster
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "default_thumb_file": str(Path(__file__).parent / "pictures" / "concept_hidden.png"),
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 5,
    "plot_gallery": True,
    "write_computation_times": False,
}
warnings.filterwarnings("ignore", message=".*non-interactive.*")


def to_mathml(text, display):
    """Return an equation as MathML, which browsers draw without a script and without a network."""
    if display and re.search(r"\\\\|&", text):
        # Not "aligned", which latex2mathml does not know and writes as one line with its marks.
        text = rf"\begin{{align*}}{text}\end{{align*}}"
    return convert(text, display="block" if display else "inline")


def write_math(self, node):
    """Write an equation for sphinx."""
    display = isinstance(node, nodes.math_block)
    html = to_mathml(node.astext(), display)
    self.body.append(f'<div class="math">{html}</div>\n' if display else html)
    raise nodes.SkipNode


def skip_inherited(app, what, name, member, skip, options):
    """Leave out what scikit-learn and torch add: their docstrings link to their own pages."""
    module = getattr(member, "__module__", "") or ""
    return True if module.startswith(("sklearn.", "torch.")) else None


def setup(app):
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("autodoc-skip-member", skip_inherited)
