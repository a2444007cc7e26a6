"""How cost grows: with leaves, depth, samples, image size and the number of images.

Run by hand on a quiet machine::

    python tests/performance/bench_growth.py                 # measure all, then draw
    python tests/performance/bench_growth.py leaves depth    # measure some of it
    python tests/performance/bench_growth.py --draw          # draw again from the records

Medians go to ``docs/results/records/speed/growth.json``, and ``docs/pictures/growth.png`` is drawn
from that file alone.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial

import numpy as np
from bench_networks import photographs
from bench_speed import RECORDS, make_flat_step, make_step, opinion_head
from turns import balanced_tree, take_turns

RECORD = RECORDS / "growth.json"
PICTURE = RECORDS.parents[2] / "pictures" / "growth.png"
MEMORY_SCRIPT = """
import sys
import torch
from skh2edl import H2EDLClassifier, Recipe, Taxonomy
from skh2edl.benchmark.records import PeakMemory
torch.set_num_threads(1)
files, n = sys.argv[2:], int(sys.argv[1])
paths = [files[i % len(files)] for i in range(n)]
memory = PeakMemory()  # of this process alone; getrusage includes its parent
clf = H2EDLClassifier(
    Taxonomy.flat(["a", "b"]), backbone="test_resnet", weights=None, image_size=32, max_epochs=1,
    recipe=Recipe(augmentation="none"), validation_fraction=None, random_state=0,
    hardware=Hardware(n_workers=0),
)
clf.fit(paths, ["ab"[i % 2] for i in range(n)])
print(memory.mebibytes())
"""


def step_milliseconds(tree, n_features, repeats=7):
    """Return the median step of the flat softmax and of H2EDL, which take turns."""
    import torch

    features = torch.randn(64, n_features, generator=torch.Generator().manual_seed(0))
    leaves = np.random.default_rng(0).integers(0, tree.n_leaves, 64)
    baseline = make_flat_step(tree.n_leaves, features, leaves, with_optimizer=False)
    head = opinion_head(tree, n_features)
    head.sparse_gradient = head.is_large
    seconds = take_turns(baseline, make_step(head, features, tree.leaf_nodes[leaves]), repeats)
    return {
        "flat softmax": 1000 * float(np.median(seconds["baseline"])),
        "H2EDL": 1000 * float(np.median(seconds["ours"])),
    }


def measure_leaves():
    """A step of head and loss, batch 64, d = 256, about six children a node."""
    for n_leaves in (100, 1000, 10_000, 100_000, 1_000_000):
        tree = balanced_tree(n_leaves, max(2, round(np.log(n_leaves) / np.log(6))))
        yield n_leaves, step_milliseconds(tree, 256)


def measure_depth():
    """A step of head and loss with 4,096 leaves, from one level to twelve."""
    for n_levels in (1, 2, 3, 4, 6, 12):
        yield n_levels, step_milliseconds(balanced_tree(4096, n_levels), 256)


def measure_samples():
    """Fit and predict on fixed features, d = 512, 81 leaves."""
    from skh2edl import H2EDLClassifier

    tree = balanced_tree(81, 3)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(81, 512))
    for n in (500, 1000, 2000, 4000, 8000, 16_000):
        leaf = np.arange(n) % 81
        X = (centres[leaf] + 4 * rng.normal(size=(n, 512))).astype(np.float32)
        y = np.array(tree.leaves)[leaf]
        seconds = {"fit": [], "predict_proba": [], "predict_hyper_opinion": []}
        for _ in range(3):
            clf = H2EDLClassifier(tree, backbone=None)
            for name, call in (
                ("fit", partial(clf.fit, X, y)),
                ("predict_proba", partial(clf.predict_proba, X)),
                ("predict_hyper_opinion", partial(clf.predict_hyper_opinion, X)),
            ):
                started = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - started)
        yield n, {name: float(np.median(values)) for name, values in seconds.items()}


def measure_size():
    """Images a second of an epoch of resnet18, from arrays."""
    from skh2edl import H2EDLClassifier

    tree = balanced_tree(81, 3)
    rng = np.random.default_rng(0)
    y = np.array(tree.leaves)[np.arange(128) % 81]
    for side in (32, 64, 96, 128, 160):
        X = rng.integers(0, 256, (128, side, side, 3), dtype=np.uint8)
        clf = H2EDLClassifier(
            tree,
            backbone="resnet18",
            weights=None,
            image_size=side,
            max_epochs=4,
            validation_fraction=None,
            random_state=0,
        )
        clf.fit(X, y)
        yield side, {"images a second": 128 / float(np.median(clf.history_["seconds"][1:]))}


def measure_memory():
    """Peak memory of a fit on image paths, each number in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = photographs(folder, 50, 32)
        for n in (1000, 10_000, 100_000):
            done = subprocess.run(
                [sys.executable, "-c", MEMORY_SCRIPT, str(n), *files],
                check=True,
                capture_output=True,
                text=True,
            )
            yield n, {"peak MiB": float(done.stdout)}


SECTIONS = {
    "leaves": (measure_leaves, "leaves", "ms a step", "log"),
    "depth": (measure_depth, "levels of 4,096 leaves (fan-out 4,096 to 2)", "ms a step", "linear"),
    "samples": (measure_samples, "samples", "seconds", "log"),
    "size": (measure_size, "image side, px", "images a second", "linear"),
    "memory": (measure_memory, "image paths", "peak memory of a fit, MiB", "log"),
}


def draw():
    """Draw the records."""
    import matplotlib

    matplotlib.use("Agg")
    from skh2edl.displays._style import next_style, pyplot

    record = json.loads(RECORD.read_text(encoding="utf-8"))
    shown = [name for name in SECTIONS if name in record]
    figure, grid = pyplot().subplots(
        2, -(-len(shown) // 2), figsize=(11, 6.4), layout="constrained", squeeze=False
    )
    for ax, name in zip(grid.flat, shown, strict=False):
        _, x_label, y_label, scale = SECTIONS[name]
        points = record[name]
        for curve in dict.fromkeys(key for _, values in points for key in values):
            known = [(x, values[curve]) for x, values in points if curve in values]
            style = next_style(ax, marker=True)
            ax.plot(*zip(*known, strict=True), label=curve, **style)
        ax.set(xlabel=x_label, ylabel=y_label, xscale=scale)
        if name == "leaves" or name == "samples":
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, 1.2 * ax.get_ylim()[1])
        if len(ax.get_lines()) > 1:
            ax.legend(loc="best", fontsize="small")
    for ax in list(grid.flat)[len(shown) :]:
        ax.set_axis_off()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


def main():
    """Measure, write the record, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.draw:
        import torch

        torch.set_num_threads(arguments.threads)
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        for name in arguments.sections or SECTIONS:
            record[name] = []
            for x, values in SECTIONS[name][0]():
                print(name, x, {key: round(value, 2) for key, value in values.items()}, flush=True)
                record[name].append([x, values])
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw()


if __name__ == "__main__":
    main()
