"""Random and coverage-guided input for the taxonomy parsers and load_model, run by hand.

    python tests/performance/fuzz.py --runs 100000                   # all targets, random changes
    python tests/performance/fuzz.py --engine atheris --target newick --runs 50000

A run is right when the input builds something sound or is refused with ValueError or TypeError, in
bounded time. Everything else is printed with the input that caused it, and the exit code is 1.
"""

import argparse
import collections
import contextlib
import importlib
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

if "atheris" in sys.argv:
    atheris = importlib.import_module("atheris")  # no part of any extra: pip install atheris

    # Before anything else imports the package: its branches are what guides the search.
    with atheris.instrument_imports(include=["skh2edl"]):
        import skh2edl.estimators.model_files
        import skh2edl.taxonomy  # noqa: F401

import numpy as np
import torch

from skh2edl import H2EDLClassifier, Taxonomy, load_model

REFUSED = (ValueError, TypeError)
SLOW = 5.0  # seconds

NEWICK = [
    "((a,b)cat,(c,d)dog)root;", "(a:1.5,b:2e3)'it''s';", "(,)x;", "[note](a,'b c',d_e);",
    "((((a))));", "(a,(b,(c,(d,e))));",
]  # fmt: skip
CSV = ["family,genus,species\ncat,big,lynx\ncat,,puma\ndog,fox,\n", 'a,b\n"x, y",z\n\n1,2\n']
TOKENS = [
    b"(", b")", b",", b";", b":", b"'", b'"', b"[", b"]", b"{", b"}", b"\\u0000", b"\\ud800",
    b"NaN", b"Infinity", b"-1", b"1e999", b"null", b"true", b"\x00", b"\xff", b"\n", b"\r",
    b"\xe2\x80\xa8",
    b"99999999999999999999", b'"names"', b'"parents"', b'"dict"', b'"tuple"', b"a" * 1200,
]  # fmt: skip


class Model:
    """A small model file to change, and where to put the changed ones."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "model.safetensors"
        tree = Taxonomy.from_nested({"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf"]})
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(24, 3)).astype(np.float32)
        H2EDLClassifier(tree, backbone=None, max_iter=5, tol=1).fit(
            self.X, list(tree.leaves) * 6
        ).save(self.path)
        self.content = self.path.read_bytes()
        length = int.from_bytes(self.content[:8], "little")
        self.header = json.loads(self.content[8 : 8 + length])
        self.inner = self.header["__metadata__"]["skh2edl"]
        self.tensors = self.content[8 + length :]

    def with_inner(self, text):
        """Return a whole file whose header holds another text."""
        header = self.header | {"__metadata__": {"skh2edl": text}}
        written = json.dumps(header).encode("utf-8", "surrogatepass")
        return len(written).to_bytes(8, "little") + written + self.tensors

    def check(self, content):
        self.path.write_bytes(content)
        loaded = load_model(self.path)
        assert np.isfinite(loaded.predict_log_proba(self.X[:2])).all()


def sound(tree):
    assert Taxonomy.from_json(tree.to_json()) == tree
    assert tree.n_leaves >= 2
    str(tree)


def as_text(data):
    return data.decode("utf-8", "surrogateescape")


def grown(data):
    """Make nested Python values out of bytes, with parts that stand in several places."""
    names = ["a", "b", "", None, 1, 2.5, float("nan"), True, "x" * 1200, "\x00", ("t",), b"bytes"]
    made = [None, {}, [], "leaf"]
    for first, second in zip(data[::2], data[1::2], strict=False):
        kind, name = first % 5, names[second % len(names)]
        old = made[(first // 5) % len(made)]
        with contextlib.suppress(TypeError):  # what cannot be a key
            if kind == 0:
                made.append({name: old, "other": made[second % len(made)]})
            elif kind == 1:
                made.append([name, old])
            elif kind == 2 and isinstance(old, dict):
                old[name] = made[second % len(made)]
            elif kind == 3:
                made.append({name, second})
            else:
                made.append((name, second % 3, old))
    return made


def check_nested(data):
    sound(Taxonomy.from_nested(grown(data)[-1]))


def check_rows(data):
    names = ["a", "b", "c", "d", "e", "f", 1, None, "", "a/b", "x" * 1200, ["list"], float("nan")]
    # Mostly what can be a name: the others end the reading at once.
    words = [names[byte % 6] if byte < 240 else names[byte % len(names)] for byte in data]
    if len(data) % 3 == 0:
        width = 1 + len(data) % 4
        sound(Taxonomy.from_paths([words[i : i + width] for i in range(0, len(words), width)]))
    elif len(data) % 3 == 1:
        sound(Taxonomy.from_edges(list(zip(words[::2], words[1::2], strict=False))))
    else:
        sound(Taxonomy.from_parents(dict(zip(words[::2], words[1::2], strict=False))))


def targets():
    model = Model()
    folder = tempfile.TemporaryDirectory()
    table = Path(folder.name) / "table.csv"
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})

    def check_csv(data):
        table.write_bytes(data)
        sound(Taxonomy.from_table(table))

    seeds_of_bytes = [bytes(range(n, 3 * n)) for n in (4, 20, 60)]
    return {
        "newick": (
            lambda data: sound(Taxonomy.from_newick(as_text(data))),
            [text.encode() for text in NEWICK],
        ),
        "json": (lambda data: sound(Taxonomy.from_json(as_text(data))), [tree.to_json().encode()]),
        "csv": (check_csv, [text.encode() for text in CSV]),
        "nested": (check_nested, seeds_of_bytes),
        "rows": (check_rows, seeds_of_bytes),
        "model": (model.check, [model.content]),
        "header": (
            lambda data: model.check(model.with_inner(as_text(data))),
            [model.inner.encode()],
        ),
        "kept": (None, [folder, model]),
    }


def changed(rng, seeds):
    """Change a seed in a few places: bits, cuts, copies of other parts, telling words."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        size = len(data)
        start = rng.randrange(size + 1)
        stop = min(size, start + rng.choice([0, 1, 1, 2, 4, 16]))
        kind = rng.randrange(6)
        if kind == 0 and start < size:
            data[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[start:stop] = rng.randbytes(rng.choice([1, 1, 2, 8]))
        elif kind == 2:
            del data[start:stop]
        elif kind == 3:
            data[start:stop] = rng.choice(TOKENS)
        elif kind == 4:
            other = rng.choice(seeds)
            place = rng.randrange(len(other))
            data[start:start] = other[place : place + rng.choice([1, 4, 16, 64])]
        else:
            data[start:stop] = data[start:stop] * rng.choice([2, 3, 50])
    return bytes(data)


class Ledger:
    """Counts what became of the inputs, and keeps those that broke something."""

    def __init__(self, name, check):
        self.name, self.check = name, check
        self.counts, self.broken, self.slowest = collections.Counter(), [], 0.0
        self.started = time.perf_counter()

    def run(self, data):
        started = time.perf_counter()
        try:
            self.check(bytes(data))
            self.counts["accepted"] += 1
        except REFUSED as error:
            self.counts["refused"] += 1
            if len(str(error)) > 5000:
                self.note(data, f"an error of {len(str(error))} characters")
        except Exception as error:
            self.note(data, f"{type(error).__name__}: {str(error)[:200]}")
        seconds = time.perf_counter() - started
        self.slowest = max(self.slowest, seconds)
        if seconds > SLOW:
            self.note(data, f"{seconds:.1f} s")

    def note(self, data, problem):
        self.counts["broken"] += 1
        if len(self.broken) < 10:
            self.broken.append((problem, bytes(data)[:4000]))
            print(f"BROKEN {self.name}: {problem}\n  {bytes(data)[:400]!r}", flush=True)

    def report(self):
        runs = self.counts["accepted"] + self.counts["refused"] + self.counts["broken"]
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{self.name}: {runs} runs, {self.counts['accepted']} accepted, "
            f"{self.counts['refused']} refused, {self.counts['broken']} broken, "
            f"slowest {self.slowest:.2f} s, {time.perf_counter() - self.started:.0f} s in all, "
            f"peak memory of the process {megabytes:.0f} MB",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["random", "atheris"], default="random")
    parser.add_argument("--target", default="all")
    parser.add_argument("--runs", type=int, default=10_000, help="of each target")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = targets()
    kept = found.pop("kept")
    names = list(found) if options.target == "all" else options.target.split(",")
    failed = False
    for name in names:
        check, seeds = found[name]
        ledger = Ledger(name, check)
        if options.engine == "atheris":
            guided(ledger, seeds, options)
        rng = random.Random(f"{options.seed} {name}")
        for seed in seeds:
            ledger.run(seed)
        for _ in range(options.runs - len(seeds)):
            ledger.run(changed(rng, seeds))
        ledger.report()
        failed |= ledger.counts["broken"] > 0
    del kept
    sys.exit(failed)


def guided(ledger, seeds, options):
    """Let atheris look for inputs that reach new branches; it ends the process."""
    corpus = tempfile.mkdtemp()
    for number, seed in enumerate(seeds):
        (Path(corpus) / str(number)).write_bytes(seed)

    def once(data):
        ledger.run(data)
        if sum(ledger.counts.values()) >= options.runs:
            ledger.report()

    arguments = [sys.argv[0], f"-runs={options.runs}", f"-seed={options.seed + 1}"]
    atheris.Setup([*arguments, "-max_len=16384", "-print_final_stats=1", corpus], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
