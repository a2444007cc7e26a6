"""What the hierarchy costs, as ratios to plain rivals in the same process.

Run by hand on a quiet machine::

    python tests/performance/bench_speed.py                      # all sections
    python tests/performance/bench_speed.py steps search         # some of them
    python tests/performance/bench_speed.py fits --features FEATURES.npz

Each section writes its medians to ``docs/results/records/speed``, replacing those of an earlier
run, and the table ``docs/results/speed_table.md`` is made from these files. Ours and the rival take
turns, and the ratio of the medians is shown with the smallest and largest ratio of a turn. `fits`
needs an archive of fixed features: arrays X_train, X_test, y_train, y_test (leaf names), and the
taxonomy as JSON text.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parents[1] / "docs" / "results" / "records" / "speed"
TABLE = RECORDS.parents[1] / "speed_table.md"


def take_turns(rival, ours, repeats=7):
    """Return the seconds of each, one after the other, after one turn that does not count."""
    seconds = {"rival": [], "ours": []}
    for turn in range(repeats + 1):
        for name, function in (("rival", rival), ("ours", ours)):
            started = time.perf_counter()
            function()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def row(what, against, target, seconds, better="less", **facts):
    """Return the record of one row: a ratio of times, or of speeds where more is better."""
    ours, rival = (np.array(seconds[name]) for name in ("ours", "rival"))
    ratios = ours / rival if better == "less" else rival / ours
    middle = np.median(ours) / np.median(rival)
    return {
        "what": what,
        "against": against,
        "target": target,
        "ratio": float(middle if better == "less" else 1 / middle),
        "lowest": float(ratios.min()),
        "highest": float(ratios.max()),
        "ours_ms": 1000 * float(np.median(ours)),
        "rival_ms": 1000 * float(np.median(rival)),
        "repeats": len(ours),
        **facts,
    }


def balanced_tree(n_leaves, n_levels):
    """A tree whose levels grow by the same factor."""
    from skh2edl import Taxonomy

    factor = n_leaves ** (1 / n_levels)
    counts = [1, *(round(factor**level) for level in range(1, n_levels)), n_leaves]
    parents, first = {}, 0
    for above, count in pairwise(counts):
        below = first + above
        for child in range(count):
            parents[f"n{below + child}"] = f"n{first + child * above // count}"
        first = below
    return Taxonomy.from_parents(parents)


def opinion_head(tree, n_features, read_out):
    from skh2edl.h2edl import PRESETS
    from skh2edl.heads import OpinionTreeHead

    chosen = PRESETS["default"]
    fan_out = np.diff(tree.decision_offsets)
    return OpinionTreeHead(
        tree,
        n_features,
        (1 / fan_out)[tree.decision_nodes],
        fan_out * 1.0,
        np.ones(tree.n_branching, dtype=bool),
        read_out=read_out,
        evidence=chosen["evidence"],
        risk=chosen["risk"],
        kl_weight=chosen["kl_weight"],
        initial_bias=chosen["initial_bias"],
    )


def make_step(head, features, nodes, optimizers=()):
    def step():
        head.loss(features, head.prepare(nodes), np.inf).mean().backward()
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

    from skh2edl.training import _ROWS_FROM

    for n_leaves, n_levels, target in ((81, 3, 1.2), (1000, 3, 1.0), (10_000, 4, 0.5)):
        tree = balanced_tree(n_leaves, n_levels)
        features = torch.randn(64, 2048, generator=torch.Generator().manual_seed(0))
        leaves = np.random.default_rng(0).integers(0, n_leaves, 64)
        rival = make_flat_step(n_leaves, features, leaves, with_optimizer=False)
        for read_out in ("nodes", "nested"):
            head = opinion_head(tree, 2048, read_out)
            head.sparse_gradient = head.is_separable and tree.n_decisions >= _ROWS_FROM
            seconds = take_turns(rival, make_step(head, features, tree.leaf_nodes[leaves]), 15)
            yield row(
                f"head and loss, {n_leaves:,} leaves, {n_levels} levels, read_out={read_out!r}",
                "linear layer and cross-entropy",
                f"≤ {target}",
                seconds,
            )


def bench_large():
    """A whole step of a large tree, with the optimiser."""
    import torch

    from skh2edl.row_optimizer import RowOptimizer

    for n_leaves, n_features in ((100_000, 2048), (1_000_000, 256)):
        tree = balanced_tree(n_leaves, 12)
        features = torch.randn(64, n_features, generator=torch.Generator().manual_seed(0))
        leaves = np.random.default_rng(0).integers(0, n_leaves, 64)
        head = opinion_head(tree, n_features, "nodes")
        head.sparse_gradient = True
        optimizer = RowOptimizer(
            torch.optim.AdamW([head.linear.bias]), head.linear.weight, lr=1e-3, weight_decay=0.05
        )
        rival = make_flat_step(n_leaves, features, leaves, with_optimizer=True)
        step = make_step(head, features, tree.leaf_nodes[leaves], [optimizer])
        yield row(
            f"step with optimiser, {n_leaves:,} leaves, 12 levels, d = {n_features}",
            "linear layer, cross-entropy, AdamW",
            "≤ 0.05",
            take_turns(rival, step),
        )


def bench_search():
    """The best leaf, and the five best, of 64 samples."""
    import torch

    from skh2edl.search import search_leaves

    for n_leaves, n_features in ((100_000, 2048), (1_000_000, 256)):
        tree = balanced_tree(n_leaves, 12)
        head = opinion_head(tree, n_features, "nodes").eval()
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
            torch.nn.init.constant_(head.linear.bias, 6.0)
            _, log_p = search_leaves(head, features)
            chosen = features
            if name == "sure":
                chosen = features[torch.from_numpy(log_p[:, 0] >= np.log(0.3))]
                chosen = chosen.repeat(64 // len(chosen) + 1, 1)[:64]
            best = np.exp(search_leaves(head, chosen)[1][:, 0])
            for k in (1, 5):

                def rival(chosen=chosen, k=k, flat=flat):
                    with torch.inference_mode():
                        (chosen @ flat.T).topk(k)

                yield row(
                    f"top {k} of {n_leaves:,} leaves, {name} (P of the best {best.min():.2g} to "
                    f"{best.max():.2g})",
                    "dense read-out and top-k",
                    target,
                    take_turns(rival, partial(search_leaves, head, chosen, k)),
                    better="more",
                )


def bench_fits(features_file):
    """Fit and predict on fixed features."""
    from hiclass import LocalClassifierPerParentNode
    from sklearn.linear_model import LogisticRegression

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
        answers = [[part for part in path if part][-1] for path in clf.predict(X_test).tolist()]
        scores["hiclass"] = (level_accuracy(y_test, answers, tree), float("nan"))

    for name, rival, target, repeats in (
        ("LogisticRegression", logistic, "≥ 1", 7),
        ("hiclass", hiclass, "≥ 5", 3),
    ):
        seconds = take_turns(rival, ours, repeats)
        facts = {
            f"{method} {score}": scores[key][place]
            for method, key in (("ours", "H2EDL"), ("rival", name))
            for place, score in enumerate(("accuracy", "NLL"))
        }
        label = {"hiclass": "hiclass, LogisticRegression per parent node"}.get(name, name)
        yield row(
            f"fit and predict, {len(X):,} x {X.shape[1]:,} features",
            label,
            target,
            seconds,
            better="more",
            **facts,
        )


def photographs(folder, n, side):
    """Write smooth random pictures, of which JPEG keeps about as much as of photographs."""
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = []
    for i in range(n):
        small = rng.integers(0, 256, (side // 12, side // 12, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
        paths.append(str(Path(folder) / f"{side}_{i}.jpg"))
        picture.save(paths[-1], quality=90)
    return paths


def bench_finetuning():
    """Images a second of an epoch, against a bare loop with the same loader."""
    import timm
    import torch

    from skh2edl import H2EDLClassifier
    from skh2edl.images import image_source, make_loader, make_transform

    tree = balanced_tree(81, 3)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, n in (("resnet18", 256), ("resnet50", 128)):
            arrays = rng.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)
            for kind, X in (("arrays", arrays), ("JPEG paths", photographs(folder, n, 300))):
                y = np.array(tree.leaves)[np.arange(n) % 81]
                target = torch.from_numpy(np.arange(n) % 81)
                clf = H2EDLClassifier(
                    tree,
                    backbone=name,
                    weights=None,
                    image_size=64,
                    max_epochs=1,
                    validation_fraction=None,
                    random_state=0,
                )
                seconds = {"ours": [], "rival": []}
                model = timm.create_model(name, num_classes=81).to(
                    memory_format=torch.channels_last
                )
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
                config = {"input_size": (3, 64, 64)}
                loader = make_loader(
                    image_source(X), make_transform(config, "timm"), batch_size=64, shuffle=True
                )
                mean, std = (
                    torch.tensor(v).view(1, 3, 1, 1) * 255
                    for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
                )
                for turn in range(8):
                    model.train()
                    started = time.perf_counter()
                    for images, positions in loader:
                        inputs = (images.float() - mean) / std
                        loss = torch.nn.functional.cross_entropy(model(inputs), target[positions])
                        loss.backward()
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                        optimizer.step()
                        optimizer.zero_grad(set_to_none=True)
                    rival = time.perf_counter() - started
                    clf.fit(X, y)
                    if turn:
                        seconds["rival"].append(rival)
                        seconds["ours"].append(clf.history_["seconds"][0])
                yield row(
                    f"fine-tuning {name}, 64 px, {kind}",
                    "bare loop, same loader",
                    "≥ 0.97",
                    seconds,
                    better="more",
                )


def bench_extraction():
    """Features of JPEG files, against Pillow and timm in a loop."""
    import timm
    import torch
    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    from skh2edl import ImageFeatureExtractor

    with tempfile.TemporaryDirectory() as folder:
        extractor = ImageFeatureExtractor("resnet18", weights=None, random_state=0)
        for side, n in ((300, 192), (1000, 192)):
            paths = photographs(folder, n, side)
            extractor.fit(paths)
            model = timm.create_model("resnet18", num_classes=0).eval()
            model.load_state_dict(extractor.backbone_.model.state_dict())
            transform = create_transform(**resolve_data_config({}, model=model))
            results = {}

            def rival(paths=paths, model=model, transform=transform, results=results):
                parts = []
                with torch.inference_mode():
                    for start in range(0, len(paths), 64):
                        images = [
                            transform(Image.open(path).convert("RGB"))
                            for path in paths[start : start + 64]
                        ]
                        parts.append(model(torch.stack(images)).numpy())
                results["rival"] = np.concatenate(parts)

            def ours(paths=paths, results=results):
                results["ours"] = extractor.transform(paths)

            seconds = take_turns(rival, ours)
            a, b = results["rival"], results["ours"]
            cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            yield row(
                f"features of {side} px JPEG files, resnet18",
                "Pillow and timm in a loop",
                "≥ 1",
                seconds,
                better="more",
                **{"least cosine of the features": float(cosine.min())},
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
    """A new process that imports the package."""

    def start(code):
        subprocess.run([sys.executable, "-c", code], check=True)

    yield row(
        "import skh2edl",
        "import sklearn, torch",
        "≤ 1.1",
        take_turns(
            lambda: start("import sklearn, torch"),
            lambda: start("import skh2edl; skh2edl.H2EDLClassifier"),
        ),
        note="with the classifier looked up, which is what imports torch",
    )


SECTIONS = {
    "steps": bench_steps,
    "large": bench_large,
    "search": bench_search,
    "fits": bench_fits,
    "finetuning": bench_finetuning,
    "extraction": bench_extraction,
    "opinions": bench_opinions,
    "import": bench_import,
}


def write_table():
    """Make the table from the records."""
    lines = [
        "| what | against | target | ratio (lowest to highest) | ours | rival |",
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
            times = f"{item['ours_ms']:,.3g} ms | {item['rival_ms']:,.3g} ms"
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
