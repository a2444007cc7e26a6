"""Write the pages of the examples, with what each prints: ``python docs/write_gallery.py``.

Give names of examples to write only their pages; the index is always written.
"""

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
PAGES = DOCS / "examples"
# In the order in which they are best read.
ORDER = (
    "quick_start",
    "my_folder",
    "my_table",
    "half_labelled",
    "grid_search",
    "calibration_and_baselines",
    "hedged_predictions",
    "several_photographs",
    "novelty_and_annotation",
    "large_tree",
    "onnx_deployment",
    "archive_of_patients",
    "dask_grid_search",
    "dask_batch_inference",
)
# They need a model, or a cluster.
NOT_RUN = ("dask_grid_search", "dask_batch_inference")


def title_of(name):
    """Return an example's name as a heading."""
    return name.replace("_", " ").capitalize().replace("Onnx", "ONNX")


def first_sentence(name):
    """Return the first paragraph of an example's docstring."""
    text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")))
    return text.split("\n\n")[0].replace("\n", " ")


def output_of(name):
    """Run an example in an empty folder and return what it prints."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", EXAMPLES / f"{name}.py"],
            cwd=folder,
            env=settings,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
        )
    return done.stdout


def write_page(name):
    """Write one page."""
    lines = [f"# {title_of(name)}", "", first_sentence(name), ""]
    lines += [f"```{{literalinclude}} ../../examples/{name}.py", ":language: python", "```", ""]
    if name not in NOT_RUN:
        lines += ["It prints:", "", "```text", output_of(name).rstrip(), "```", ""]
    (PAGES / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")


def write_index():
    """Write the page of pages."""
    lines = ["# Examples", "", "Scripts in the folder `examples`; the tests run all of them."]
    lines += ["They use small or drawn data and take seconds each. None is a benchmark."]
    lines += ["", "| example | what it shows |", "|---|---|"]
    lines += [f"| [{title_of(name)}]({name}.md) | {first_sentence(name)} |" for name in ORDER]
    lines += ["", "```{toctree}", ":hidden:", "", *ORDER, "```", ""]
    (PAGES / "index.md").write_text("\n".join(lines), encoding="utf-8")


def main(names):
    """Write the index and the pages."""
    PAGES.mkdir(exist_ok=True)
    write_index()
    for name in names or ORDER:
        write_page(name)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
