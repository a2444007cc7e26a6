"""Random and coverage-guided input for parsers, files, uploads and exports, run by hand.

    python tests/performance/fuzz.py --runs 100000                   # all targets, random changes
    python tests/performance/fuzz.py --engine atheris --target newick --runs 50000

A run is right when the input builds something sound or is refused with ValueError or TypeError (an
upload: with a status of the 400s), in bounded time. Everything else is printed with the input that
caused it, and the exit code is 1. Most time goes into files: TMPDIR=/dev/shm makes it several times
faster.
"""

import argparse
import asyncio
import collections
import contextlib
import copy
import csv
import importlib
import io
import json
import logging
import os
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
from PIL import Image
from pyarrow import parquet
from starlette.exceptions import HTTPException
from starlette.requests import Request

from skh2edl import H2EDLClassifier, Hardware, Taxonomy, load_model
from skh2edl.cli.tables import Spool
from skh2edl.estimators.model_card import HeldOut, ModelCard, read_card, write_card
from skh2edl.images import make_transform
from skh2edl.serve import Limits
from skh2edl.serve.guard import Body, ByteBudget
from skh2edl.serve.uploads import declared_pixels, make_picture, read_uploads
from skh2edl.training.checkpoints import CheckpointFile
from skh2edl.training.feature_cache import FeatureFolder
from skh2edl.utils.files import printable

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
    b"99999999999999999999", b"1" + b"0" * 400,
    b'"names"', b'"parents"', b'"dict"', b'"tuple"', b"a" * 1200,
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

    def with_inner(self, text, **more):
        """Return a whole file whose header holds another text."""
        header = self.header | {"__metadata__": {"skh2edl": text, **more}}
        written = json.dumps(header).encode("utf-8", "surrogatepass")
        return len(written).to_bytes(8, "little") + written + self.tensors

    def check(self, content):
        self.path.write_bytes(content)
        loaded = load_model(self.path)
        assert np.isfinite(loaded.predict_log_proba(self.X[:2])).all()


class Checkpoint:
    """The checkpoint of a small fit to change, and a run that could resume it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = CheckpointFile(self.folder.name, {})
        X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
        H2EDLClassifier(
            backbone=None, solver="adamw", max_epochs=2, batch_size=4, random_state=0,
            validation_fraction=None, hardware=Hardware(checkpoint_dir=self.folder.name),
        ).fit(X, ["a", "b"] * 4)  # fmt: skip
        self.content = self.file.path.read_bytes()
        # Any run: what is looked for here is no error but ours.
        whole = torch.load(self.file.path, weights_only=True)
        self.file = CheckpointFile(self.folder.name, whole["identity"])
        self.whole = whole
        state = whole["state"]
        self.like = copy.deepcopy(state)
        groups = state["optimizer"]["param_groups"]
        moments = state["optimizer"]["state"]
        self.trained = [moments[i]["exp_avg"] for group in groups for i in group["params"]]

    def check(self, content):
        self.file.path.write_bytes(content)
        self.check_state(self.file.load())

    def check_state(self, state):
        self.file.check(state, self.like, self.trained, 2)
        for name, value in state["network"].items():
            assert value.shape == self.like["network"][name].shape
            assert torch.isfinite(value).all()
        assert 0 < state["progress"]["epoch"] <= 2

    def check_changed(self, data):
        """Put strange values at places that the bytes choose."""
        strange = [
            None, -1, 10**30, float("nan"), float("inf"), "text", [], {}, (), True, 0.5,
            torch.zeros(0), torch.full((2, 3), torch.nan), torch.tensor(3), {"a": 1}, [[]],
        ]  # fmt: skip
        state = copy.deepcopy(self.whole["state"])
        for first, second in zip(data[::2], data[1::2], strict=False):
            place = state
            for step in range(1 + first % 4):
                inner = place[(first + step) % len(place)] if isinstance(place, list) else None
                if isinstance(place, dict) and place:
                    key = sorted(place, key=str)[(first // 4 + step) % len(place)]
                    inner = place[key]
                if not isinstance(inner, (dict, list)) or not inner or step == first % 4:
                    break
                place = inner
            if isinstance(place, dict) and place:
                key = sorted(place, key=str)[first // 4 % len(place)]
                if second % 17 == 16:
                    del place[key]
                else:
                    place[key] = copy.deepcopy(strange[second % 17])
            elif isinstance(place, list) and place:
                place[first % len(place)] = copy.deepcopy(strange[second % 16])
        self.check_state(state)


class Uploads:
    """Bodies of requests to change, read as the server reads them."""

    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n'
    limits = Limits(max_upload_mb=0.1, max_files=3, max_pixels=100_000)

    def __init__(self):
        self.transform = make_transform({"input_size": (3, 16, 16), "crop_pct": 0.9})
        self.loop = asyncio.new_event_loop()
        self.budget = ByteBudget(10**6)
        image = Image.fromarray(np.random.default_rng(0).integers(256, size=(9, 7, 3), dtype="u1"))
        bodies = []
        for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
            buffer = io.BytesIO()
            image.save(buffer, kind)
            bodies.append(
                self.head
                + b"Content-Type: image/png\r\n\r\n"
                + buffer.getvalue()
                + b"\r\n--x--\r\n"
            )
        text = b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\nhello\r\n'
        self.seeds = [*bodies, text + bodies[0], bodies[0][:-8] + b"\r\n" + bodies[1]]

    def check(self, data):
        self.loop.run_until_complete(self._read(data))

    async def _read(self, data):
        pieces = [data[start : start + 97] for start in range(0, len(data), 97)]

        async def receive():
            piece = pieces.pop(0) if pieces else b""
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        headers = [(b"content-type", b"multipart/form-data; boundary=x")]
        scope = {"type": "http", "method": "POST", "headers": headers}
        body = Body(receive, "client", self.budget, self.limits)
        try:
            for upload in await read_uploads(Request(scope, body.receive), self.limits):
                assert declared_pixels(upload) >= 0
                made = make_picture(upload, self.transform, self.limits.max_pixels)
                assert (made.pixels is None) != (made.error is None)
                assert made.pixels is None or made.pixels.shape == (16, 16, 3)
                json.dumps({"name": upload.name, "error": made.error}).encode()
        except HTTPException as error:
            if 400 <= error.status_code < 500:
                raise ValueError(error.detail) from None
            raise
        finally:
            body.release()
        assert not self.budget._n_bytes


class Exports:
    """Tables of predictions: what is written is read again by other programs."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.columns = ["image", "leaf", "leaf_probability", "=level", "error"]
        spool = self.spool(".csv")
        spool.add({"image": f"{n}.png", "leaf": "a", "leaf_probability": n / 7} for n in range(3))
        self.partial = spool.path.read_bytes()
        spool.close()
        os.fsync = lambda handle: None  # a thousand times slower than what is tried here

    def spool(self, suffix):
        return Spool(Path(self.folder.name) / f"table{suffix}", self.columns, "run")

    def rows(self, data):
        for start in range(0, len(data), 16):
            part = data[start : start + 16]
            number = (part[0] - 100) / 7 if part[0] % 3 else None
            yield {
                "image": os.fsdecode(part[:8]),
                "leaf": as_text(part[8:12]),
                "leaf_probability": number,
                "=level": as_text(part[12:]),
            }

    def check(self, data):
        wanted = [
            [printable(v) if isinstance(v, str) else v for v in map(row.get, self.columns)]
            for row in self.rows(data)
        ]
        suffix = (".csv", ".json", ".jsonl", ".parquet")[len(data) % 4]
        spool = self.spool(suffix)
        spool.path.unlink()  # the last run may have been another
        spool.close()
        spool = self.spool(suffix)
        try:
            spool.add(self.rows(data))
            spool.finish(len(wanted))
        finally:
            spool.close()
        read = getattr(self, f"_read_{suffix[1:]}")(spool.target)
        assert len(read) == len(wanted), (len(read), len(wanted))
        for found, row in zip(read, wanted, strict=True):
            self._compare(found, row, suffix)

    def _compare(self, found, row, suffix):
        for cell, value in zip(found, row, strict=True):
            if suffix != ".csv":
                assert cell == value, (cell, value)
                continue
            text = "" if value is None else str(value)
            assert cell in (text, f"'{text}"), (cell, text)
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
                float(cell)  # a number is no formula

    def _read_csv(self, path):
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert header[3] == "'=level"
        return rows

    def _read_json(self, path):
        return [[row[key] for key in self.columns] for row in json.loads(path.read_text("utf-8"))]

    def _read_jsonl(self, path):
        lines = path.read_bytes().split(b"\n")[:-1]
        return [[json.loads(line)[key] for key in self.columns] for line in lines]

    def _read_parquet(self, path):
        return [[row[key] for key in self.columns] for row in parquet.read_table(path).to_pylist()]

    def check_partial(self, data):
        """Resume from a file that somebody else has changed."""
        path = Path(self.folder.name) / ".table.csv.partial"
        path.write_bytes(data)
        spool = self.spool(".csv")
        try:
            n_done = spool.n_done
            spool.add([{"image": "last"}])
            spool.finish(n_done + 1)
        finally:
            spool.close()
        read = self._read_csv(spool.target)
        assert len(read) == n_done + 1
        assert read[-1][0] == "last"


def header_of(path):
    content = path.read_bytes()
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def check_card(path, content):
    path.write_bytes(content)
    card = read_card(path)
    assert np.isfinite(card.needed).all()
    if card.held_out is not None:
        assert card.held_out.stops(0.5)[:, 0].sum() == len(card.held_out.n_right)
    write_card(path, card)
    assert (read_card(path).needed == card.needed).all()


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

    checkpoint, uploads, exports = Checkpoint(), Uploads(), Exports()
    cards = Path(folder.name) / "card.safetensors"
    cards.write_bytes(model.content)
    hashes = np.arange(5, dtype=np.uint64)
    held = HeldOut(np.array([[0.9, 0.5], [0.8, 0.3]]), np.array([2, 0]))
    write_card(cards, ModelCard(np.array([0.1, 0.9]), hashes, hashes[:1], {"data": "rows"}, held))
    features = FeatureFolder(Path(folder.name) / "features", 5)
    features.write("ab" * 20, np.arange(5, dtype=np.float32))
    (feature_file,) = features.path.rglob("*.npy")

    def check_features(data):
        feature_file.write_bytes(data)
        values = features.read("ab" * 20)
        if values is None:
            raise ValueError("counts as missing")
        assert values.shape == (5,)
        assert np.isfinite(values).all()

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
        "card": (lambda data: check_card(cards, data), [cards.read_bytes()]),
        "card text": (
            lambda data: check_card(
                cards, model.with_inner(model.inner, skh2edl_card=as_text(data))
            ),
            [json.loads(header_of(cards))["__metadata__"]["skh2edl_card"].encode()],
        ),
        "checkpoint": (checkpoint.check, [checkpoint.content]),
        "state": (checkpoint.check_changed, seeds_of_bytes),
        "cache": (check_features, [feature_file.read_bytes()]),
        "multipart": (uploads.check, uploads.seeds),
        "exports": (exports.check, [*seeds_of_bytes, b"=1+1.png\xff@a\t-2" * 3]),
        "partial": (exports.check_partial, [exports.partial]),
        "kept": (None, [folder, model, checkpoint, exports]),
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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable()
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
            if time.perf_counter() - ledger.started > options.seconds:
                break
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
