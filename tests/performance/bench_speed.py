"""What the hierarchy costs, as ratios to plain baselines in the same process.

Run by hand on a quiet machine::

    python tests/performance/bench_speed.py                      # all sections
    python tests/performance/bench_speed.py steps search         # some of them
    python tests/performance/bench_speed.py fits --features FEATURES.npz

Each section writes its medians to ``docs/results/records/speed``, replacing those of an earlier
run. The table ``docs/results/speed_table.md`` is made from these files. Ours and the baseline take
turns; the table shows the ratio of the medians, and the smallest and largest ratio of a turn.
`fits` needs an archive of fixed features: arrays X_train, X_test, y_train, y_test (leaf names), and
the taxonomy as JSON text.
"""

import argparse
import compileall
import json
import os
import platform
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from bench_networks import bench_extraction, bench_finetuning, bench_options
from turns import balanced_tree, row, take_turns

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parents[1] / "docs" / "results" / "records" / "speed"
TABLE = RECORDS.parents[1] / "speed_table.md"
# Number of threads in sections that depend on it; None does not limit them.
THREADS = {"threads as they come": None, "one thread for all": 1}


def opinion_head(tree, n_features):
    """Return the head of a default H2EDLClassifier, every node of it supervised."""
    from skh2edl import H2EDLClassifier

    return H2EDLClassifier(tree)._make_head(tree, n_features, np.ones(tree.n_nodes))


def make_step(head, features, nodes, optimizers=()):
    def step():
        head.loss(features, head.prepare(nodes), 1.0).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
        head.zero_grad()

    return step


def make_flat_step(n_leaves, features, leaves, with_optimizer):
    import torch

    linear = torch.nn.Linear(features.shape[1], n_leaves)
    optimizer = torch.optim.AdamW(linear.parameters(), foreach=False)
    target = torch.from_numpy(leaves)

    def step():
        torch.nn.functional.cross_entropy(linear(features), target).backward()
        if with_optimizer:
            optimizer.step()
        linear.zero_grad()

    return step


def bench_steps():
    """Head and loss, forward and backward, for a batch of 64."""
    import torch

    for n_leaves, n_levels, target in ((81, 3, 1.2), (1000, 3, 1.0), (10_000, 4, 0.5)):
        tree = balanced_tree(n_leaves, n_levels)
        features = torch.randn(64, 2048, generator=torch.Generator().manual_seed(0))
        leaves = np.random.default_rng(0).integers(0, n_leaves, 64)
        baseline = make_flat_step(n_leaves, features, leaves, with_optimizer=False)
        # A step takes milliseconds, so many turns are cheap.
        step = make_step(opinion_head(tree, 2048), features, tree.leaf_nodes[leaves])
        yield row(
            f"head and loss, {n_leaves:,} leaves, {n_levels} levels",
            "linear layer and cross-entropy",
            f"≤ {target}",
            take_turns(baseline, step, repeats=101),
        )


def bench_large():
    """A whole step of a large tree, with the optimiser."""
    import torch

    from skh2edl.training.sparse_adamw import SparseAdamW

    for n_leaves, n_features in ((100_000, 2048), (1_000_000, 256)):
        tree = balanced_tree(n_leaves, 12)
        features = torch.randn(64, n_features, generator=torch.Generator().manual_seed(0))
        leaves = np.random.default_rng(0).integers(0, n_leaves, 64)
        head = opinion_head(tree, n_features)
        head.sparse_gradient = True
        optimizer = SparseAdamW(
            torch.optim.AdamW([head.linear.bias]), head.linear.weight, lr=1e-3, weight_decay=0.05
        )
        baseline = make_flat_step(n_leaves, features, leaves, with_optimizer=True)
        step = make_step(head, features, tree.leaf_nodes[leaves], [optimizer])
        yield row(
            f"step with optimiser, {n_leaves:,} leaves, 12 levels, d = {n_features}",
            "linear layer, cross-entropy, AdamW",
            "≤ 0.05",
            take_turns(baseline, step),
        )


def pointed_at_leaves(head, features):
    """Move each sample along the weights of the path to a leaf, and against those beside it."""
    import torch

    tree = head.segments.taxonomy
    leaves = np.random.default_rng(0).integers(0, tree.n_leaves, len(features))
    paths = head.prepare(tree.leaf_nodes[leaves])
    weight = torch.nn.functional.normalize(head.linear.weight.detach()[paths.decision])
    sign = 2.0 * paths.is_target - 1
    # Three standard deviations of a logit.
    return features.index_add(0, paths.owner, 3 * sign[:, None] * weight)


def bench_search():
    """The best leaf, and the five best, of 64 samples."""
    import torch
    from threadpoolctl import threadpool_limits

    from skh2edl.heads.large.search import search_leaves

    sizes = [(100_000, 12, 2048), (1_000_000, 12, 256)]
    # A binary tree has the most decisions for its leaves: twice as many.
    for n_leaves, n_levels, n_features in [*sizes, (2**20, 20, 256)]:
        tree = balanced_tree(n_leaves, n_levels)
        head = opinion_head(tree, n_features).eval()
        features = torch.randn(64, n_features, generator=torch.Generator().manual_seed(0))
        flat = torch.randn(n_leaves, n_features, generator=torch.Generator().manual_seed(1))
        for name, std, target in (
            ("sure", 12.0, "≥ 10"),
            ("flat", 0.3, "≥ 0.67"),
            ("flatter", 0.05, "≥ 0.67"),
            ("zero weights", 0.0, "≥ 0.67"),
        ):
            torch.nn.init.normal_(
                head.linear.weight,
                std=std / n_features**0.5,
                generator=torch.Generator().manual_seed(2),
            )
            chosen = pointed_at_leaves(head, features) if name == "sure" else features
            best = np.exp(search_leaves(head, chosen)[1][:, 0])
            for k in (1, 5):

                def baseline(chosen=chosen, k=k, flat=flat):
                    with torch.inference_mode():
                        (chosen @ flat.T).topk(k)

                for condition, limit in THREADS.items():
                    with threadpool_limits(limit):
                        seconds = take_turns(baseline, partial(search_leaves, head, chosen, k))
                    yield row(
                        f"top {k} of {n_leaves:,} leaves, {n_levels} levels, {name} (P of the "
                        f"best {best.min():.2g} to {best.max():.2g}), {condition}",
                        "dense layer and top-k",
                        target,
                        seconds,
                        better="more",
                    )


def bench_fits(features_file):
    """Fit and predict on fixed features."""
    from hiclass import LocalClassifierPerParentNode
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    from skh2edl import H2EDLClassifier, Taxonomy
    from skh2edl.metrics import level_accuracy, level_nll

    warnings.simplefilter("ignore")
    with np.load(features_file) as file:
        X, X_test, y, y_test = (file[k] for k in ("X_train", "X_test", "y_train", "y_test"))
        tree = Taxonomy.from_json(str(file["taxonomy"]))
    depth = max(len(tree.path(leaf)) for leaf in tree.leaves)
    paths = np.array([(*tree.path(label), *[""] * (depth - len(tree.path(label)))) for label in y])
    scores = {}

    def ours():
        clf = H2EDLClassifier(tree, backbone=None).fit(X, y)
        proba = clf.predict_proba(X_test)
        scores["H2EDL"] = (
            level_accuracy(y_test, proba, tree),
            level_nll(y_test, proba.astype(float), tree),
        )

    def logistic():
        clf = LogisticRegression().fit(X, y)
        proba = clf.predict_proba(X_test)
        scores["LogisticRegression"] = (
            level_accuracy(y_test, proba, tree),
            level_nll(y_test, proba, tree),
        )

    def hiclass():
        local = LogisticRegression(max_iter=1000)
        clf = LocalClassifierPerParentNode(local_classifier=local).fit(X, paths)
        labels = [[part for part in path if part][-1] for path in clf.predict(X_test).tolist()]
        scores["hiclass"] = (level_accuracy(y_test, labels, tree), float("nan"))

    for condition, limit in THREADS.items():
        with threadpool_limits(limit):
            for name, baseline, target in (
                ("LogisticRegression", logistic, "≥ 1"),
                ("hiclass", hiclass, "≥ 5"),
            ):
                seconds = take_turns(baseline, ours)
                facts = {
                    f"{method} {score}": scores[key][place]
                    for method, key in (("ours", "H2EDL"), ("baseline", name))
                    for place, score in enumerate(("accuracy", "NLL"))
                }
                label = {"hiclass": "hiclass, LogisticRegression per parent node"}.get(name, name)
                yield row(
                    f"fit and predict, {len(X):,} x {X.shape[1]:,} features, {condition}",
                    label,
                    target,
                    seconds,
                    better="more",
                    **facts,
                )


def bench_opinions():
    """Hyper-opinions of many samples, against probabilities."""
    from skh2edl import H2EDLClassifier

    tree = balanced_tree(81, 3)
    rng = np.random.default_rng(0)
    y = np.array(tree.leaves)[np.arange(810) % 81]
    clf = H2EDLClassifier(tree, backbone=None).fit(rng.normal(size=(810, 64)), y)
    X = rng.normal(size=(100_000, 64)).astype(np.float32)
    yield row(
        "predict_hyper_opinion, 100,000 samples, 81 leaves",
        "predict_proba of the same model",
        "≤ 1.5",
        take_turns(lambda: clf.predict_proba(X), lambda: clf.predict_hyper_opinion(X).mass),
    )


def bench_import():
    """A new process that imports the package, and one that looks the classifier up as well."""
    import skh2edl

    # As pip does: the baselines have their bytecode, too.
    compileall.compile_dir(Path(skh2edl.__file__).parent, quiet=1)

    def start(code):
        subprocess.run([sys.executable, "-c", code], check=True)

    for code in ("import skh2edl", "from skh2edl import H2EDLClassifier"):
        yield row(
            code,
            "import sklearn, torch",
            "≤ 1.1",
            take_turns(
                partial(start, "import sklearn, torch"),
                partial(start, code),
                repeats=15,
            ),
        )


SECTIONS = {
    "steps": bench_steps,
    "large": bench_large,
    "search": bench_search,
    "fits": bench_fits,
    "finetuning": bench_finetuning,
    "options": bench_options,
    "extraction": bench_extraction,
    "opinions": bench_opinions,
    "import": bench_import,
}


def write_table():
    """Make the table from the records."""
    lines = [
        "| what | against | target | ratio (lowest to highest) | ours | baseline |",
        "|---|---|---|---|---|---|",
    ]
    notes, machine = [], set()
    for section in SECTIONS:
        path = RECORDS / f"{section}.json"
        if not path.exists():
            lines.append(f"| {section} | | | not run | | |")
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        machine.add(record["machine"])
        for item in record["rows"]:
            spread = f"{item['ratio']:.3g} ({item['lowest']:.3g} to {item['highest']:.3g})"
            times = f"{item['ours_ms']:,.3g} ms | {item['baseline_ms']:,.3g} ms"
            lines.append(
                f"| {item['what']} | {item['against']} | {item['target']} | {spread} | {times} |"
            )
            extra = [f"{k} {v:.4g}" for k, v in item.items() if isinstance(v, float) and " " in k]
            extra += [item["note"]] if "note" in item else []
            if extra:
                notes.append(f"- {item['what']}, against {item['against']}: {', '.join(extra)}.")
    lines += ["", *notes, "", *(f"Measured on {text}." for text in sorted(machine)), ""]
    TABLE.write_text("\n".join(lines), encoding="utf-8")


def main():
    """Run sections, write their records, and the table of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    parser.add_argument("--features", help="archive for the section fits")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    RECORDS.mkdir(parents=True, exist_ok=True)
    wanted = arguments.sections or [
        name for name in SECTIONS if name != "fits" or arguments.features
    ]
    for section in wanted:
        inputs = [arguments.features] if section == "fits" else []
        rows = []
        for item in SECTIONS[section](*inputs):
            print(f"{item['what']:75} {item['ratio']:8.3g}  (target {item['target']})", flush=True)
            rows.append(item)
        machine = (
            f"{os.cpu_count()} cores ({platform.machine()}), {torch.get_num_threads()} thread(s), "
            f"torch {torch.__version__.split('+')[0]}"
        )
        text = json.dumps({"machine": machine, "rows": rows}, indent=1, ensure_ascii=False)
        (RECORDS / f"{section}.json").write_text(text + "\n", encoding="utf-8")
        write_table()


if __name__ == "__main__":
    main()
