"""Attacks on the server, on files and on output, each with its figures; run by hand.

    python tests/performance/attacks.py                        # all
    python tests/performance/attacks.py slow_uploads pixels    # some

Each attack prints one line. Times are of this machine; the suite has the outcomes as tests.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import pickle
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))
from serve_cases import picture, write_model

from skh2edl import H2EDLClassifier, Hardware, Taxonomy, load_model
from skh2edl.estimators.model_card import read_card

MAIN = "from skh2edl.cli import main; main()"
TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})


class Server:
    """`skh2edl serve` in a process of its own."""

    def __init__(self, folder, *options):
        model = folder / "colours.safetensors"
        if not model.exists():
            write_model(model)
        arguments = ["serve", str(model), "--port", "0", "--quiet", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        self.port = int(re.search(r":(\d+)/", line).group(1))
        predict(self.port, picture("red"))  # the first prediction sets things up

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()

    def peak_memory(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text).group(1)) / 1024


def form(*contents):
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    return b"".join(head + content + b"\r\n" for content in contents) + b"--x--\r\n"


def predict(port, *contents, client="10.0.0.1", timeout=100):
    headers = {"Content-Type": "multipart/form-data; boundary=x", "X-Forwarded-For": client}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/predict", data=form(*contents), headers=headers
    )
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)["predictions"]


def seconds_of(act, *arguments):
    started = time.perf_counter()
    try:
        act(*arguments)
    except (urllib.error.URLError, OSError) as error:
        return time.perf_counter() - started, f"failed: {error}"
    return time.perf_counter() - started, "classified"


def raw(port, text):
    connection = socket.create_connection(("127.0.0.1", port), timeout=150)
    if text:
        connection.sendall(text)
    return connection


def upload_head(length):
    return (
        b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n"
        b"Content-Length: " + str(length).encode() + b"\r\n\r\n"
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    )


def slow_uploads(folder):
    """Sixteen uploads of a byte a second; how long a neighbour waits for one picture."""
    with Server(folder) as server:
        slow = [raw(server.port, upload_head(1_000_000)) for _ in range(16)]
        done = threading.Event()

        def dribble():
            while not done.wait(1):
                for connection in slow:
                    with contextlib.suppress(OSError):
                        connection.send(b"a")

        thread = threading.Thread(target=dribble)
        thread.start()
        time.sleep(1)
        seconds, said = seconds_of(lambda: predict(server.port, picture("red"), client="10.0.0.2"))
        done.set()
        thread.join()
        time.sleep(15)
        n_closed = 0
        for connection in slow:
            connection.setblocking(False)
            try:
                while connection.recv(4096):
                    pass
                n_closed += 1
            except ConnectionError:
                n_closed += 1
            except BlockingIOError:
                pass
    return (
        f"a neighbour is {said} after {seconds:.1f} s; {n_closed} of 16 slow ones are closed 15 s "
        "later"
    )


def silent(folder):
    """250 connections that say nothing; whether a neighbour gets in, and when they are closed."""
    with Server(folder) as server:
        quiet = [raw(server.port, b"") for _ in range(250)]
        time.sleep(1)
        seconds, said = seconds_of(lambda: predict(server.port, picture("red"), client="10.0.0.2"))
        quiet[-1].settimeout(45)
        started = time.perf_counter()
        try:
            quiet[-1].recv(1)
            closed = f"closed after {time.perf_counter() - started:.0f} s"
        except (TimeoutError, OSError):
            closed = "still open after 45 s"
        for connection in quiet:
            connection.close()
    return f"a neighbour is {said} after {seconds:.1f} s; the last silent one is {closed}"


def png(width, height, kind=6, depth=8):
    """A small file of one colour."""
    n_bytes = {2: 3, 6: 4, 0: 1}[kind] * depth // 8

    def chunk(name, data):
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    packer = zlib.compressobj(9)
    line = bytes(1 + width * n_bytes)
    body = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def pixels(folder):
    """Four requests of 16 PNGs of 63 megapixels each; what a neighbour and the memory pay."""
    bomb = png(7900, 7900)
    with Server(folder) as server:
        before = server.peak_memory()
        threads = [
            threading.Thread(target=seconds_of, args=(predict, server.port, *[bomb] * 16))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        seconds, said = seconds_of(lambda: predict(server.port, picture("red"), client="10.0.0.2"))
        for thread in threads:
            thread.join()
        peak = server.peak_memory()
    return (
        f"{64 * len(bomb) / 1e6:.1f} MB of PNGs: a neighbour is {said} after {seconds:.1f} s, "
        f"memory rises from {before:.0f} to {peak:.0f} MB"
    )


def crowd(folder):
    """Forty requests of one client, 16 WebP files of 15.8 megapixels each, before a neighbour's."""
    file = io.BytesIO()
    Image.new("RGB", (3980, 3980)).save(file, "WEBP", lossless=True)
    return neighbour_of(folder, [[file.getvalue()] * 16] * 40)


def scans(folder):
    """Six JPEGs of 15.8 megapixels with 3,000 scans each, before a neighbour's picture."""
    side, n_scans = 3980, 3000
    n_blocks = (-(-side // 8)) ** 2

    def part(mark, content):
        return bytes([0xFF, mark]) + struct.pack(">H", len(content) + 2) + content

    def scan(first, last, n_bits):
        bits = int("0" * n_bits + "1" * (-n_bits % 8) or "0", 2)
        data = bits.to_bytes(-(-n_bits // 8), "big")
        return part(0xDA, bytes([1, 1, 0, first, last, 0])) + data

    picture = b"\xff\xd8" + part(0xDB, bytes([0]) + bytes([1] * 64))
    picture += part(0xC2, struct.pack(">BHHB", 8, side, side, 1) + bytes([1, 0x11, 0]))
    # Codes of one bit: no difference to the last block, and "the next 16,384 are empty".
    picture += part(0xC4, bytes([0, 1, *[0] * 16])) + part(0xC4, bytes([0x10, 1, *[0] * 15, 0xE0]))
    picture += scan(0, 0, n_blocks) + scan(1, 63, 15 * -(-n_blocks // 16384)) * n_scans
    return neighbour_of(folder, [[picture + b"\xff\xd9"]] * 6)


def neighbour_of(folder, requests):
    """Send one client's requests, and say how long another waits for one picture."""
    with Server(folder) as server:
        for contents in requests:
            work = (predict, server.port, *contents)
            threading.Thread(target=seconds_of, args=work, daemon=True).start()
        time.sleep(3)
        seconds, said = seconds_of(lambda: predict(server.port, picture("red"), client="10.0.0.2"))
    n_bytes = sum(len(content) for contents in requests for content in contents)
    return f"{n_bytes / 1e6:.1f} MB: a neighbour is {said} after {seconds:.1f} s"


def json_lists(folder):
    """57 MB of JSON, 19 million empty lists, where ids are expected."""
    body = b'{"predictions": [' + b"[]," * 19_000_000 + b"[]]}"
    with Server(folder) as server:
        before = server.peak_memory()
        address = f"http://127.0.0.1:{server.port}/api/fuse"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(address, data=body, headers=headers)
        seconds, said = seconds_of(lambda: urllib.request.urlopen(request, timeout=300).close())
        peak = server.peak_memory()
    return f"{said} after {seconds:.1f} s, memory rises from {before:.0f} to {peak:.0f} MB"


def interrupt(folder):
    """Ctrl-C while a slow upload and a large picture are under way."""
    bomb = png(7900, 7900)
    with Server(folder) as server:
        slow = raw(server.port, upload_head(1_000_000))
        threading.Thread(
            target=seconds_of, args=(predict, server.port, *[bomb] * 16), daemon=True
        ).start()
        time.sleep(2)
        started = time.perf_counter()
        server.process.send_signal(signal.SIGINT)
        try:
            code = server.process.wait(100)
            said = f"ends after {time.perf_counter() - started:.1f} s with code {code}"
        except subprocess.TimeoutExpired:
            said = "still runs after 100 s"
        slow.close()
    return said


def flood(folder):
    """One client's predictions against another's, who sends very many."""
    from skh2edl.serve.predictions import Prediction, PredictionStore

    def add(store, name, client):
        prediction = Prediction(TREE, np.full(4, 0.25), None, name)
        try:
            return store.add(prediction, client)
        except TypeError:
            return store.add(prediction)

    store = PredictionStore(1_000_000)
    mine = [add(store, "mine", "10.0.0.1") for _ in range(20)]
    for _ in range(100_000):
        add(store, "flood", "10.0.0.2")
    kept = sum(store.get(key) is not None for key in mine)
    return f"{kept} of 20 predictions are kept after a flood of 100,000"


def smuggling(folder):
    """Content-Length together with Transfer-Encoding."""
    with Server(folder) as server:
        text = (
            b"POST /api/fuse HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        connection = raw(server.port, text)
        reply = connection.recv(65536)
        connection.close()
    return f"{reply.splitlines()[0].decode()} {reply.splitlines()[-1].decode()[:90]}"


# Files -----------------------------------------------------------------------------------------


def rows(n=48):
    rng = np.random.default_rng(0)
    y = np.array(TREE.leaves)[np.arange(n) % 4]
    X = rng.normal(size=(n, 3)) + 2 * (np.arange(n) % 4)[:, None]
    return X.astype(np.float32), y


def run(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        capture_output=True, text=True, errors="replace", check=False, **more,
    )  # fmt: skip


def write_table(path, n=600):
    X, y = rows(n)
    with path.open("w") as file:
        file.write("a,b,c,label\n")
        for row, label in zip(X.tolist(), y, strict=True):
            file.write(",".join(map(str, row)) + f",{label}\n")


def killed_between(folder):
    """`fit` killed right after the model file appears; what `calibrate` then does."""
    table, model = folder / "rows.csv", folder / "rows.safetensors"
    write_table(table)
    code = (
        "import os\n"
        "import skh2edl.estimators.model_files as files\n"
        "real = files.write_atomically\n"
        "def write(path, write):\n"
        "    real(path, write)\n"
        "    os._exit(9)\n"
        "files.write_atomically = write\n"
        "from skh2edl.cli import main; main()"
    )
    arguments = ["fit", table, "--features", "a,b,c", "-o", model]
    killed = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, check=False
    )
    card = read_card(model)
    again = run("calibrate", model, table)
    said = (again.stderr + again.stdout).strip().splitlines()
    return (
        f"killed with {killed.returncode}: {card.trained_on.size} training images on record; "
        f"calibrate ends with {again.returncode}: {said[0] if said else ''}"
    )


class Payload:
    """What a replaced pickle does when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def replaced_cache(folder):
    """Every file of the feature cache replaced by a pickle that leaves a mark."""
    cache, mark = folder / "cache", folder / "executed"
    images = np.random.default_rng(0).integers(256, size=(8, 32, 32, 3), dtype=np.uint8)
    clf = H2EDLClassifier(
        backbone="test_resnet", weights=None, image_size=32, finetune="head", random_state=0,
        hardware=Hardware(memory=str(cache), n_workers=0),
    )  # fmt: skip
    first = clf.fit(images, ["a", "b"] * 4).predict_proba(images)
    files = [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".py"]
    for path in files:
        path.write_bytes(pickle.dumps(Payload(mark)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            second = clf.fit(images, ["a", "b"] * 4).predict_proba(images)
            then = "the same" if np.array_equal(first, second) else "other"
        except ValueError as error:
            then = f"none ({str(error)[:40]}...)"
    done = "was executed" if mark.exists() else "was not executed"
    return f"{len(files)} files replaced: the pickle {done}, predictions are {then}"


def workers_in_header(folder):
    """150 workers and a bar in the header of a model, and a crop of a tenth of a large image."""
    path = write_model(folder / "workers.safetensors")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])

    def write(change):
        inner = json.loads(header["__metadata__"]["skh2edl"])
        change(inner)
        metadata = {**header["__metadata__"], "skh2edl": json.dumps(inner)}
        text = json.dumps({**header, "__metadata__": metadata}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    def set_workers(inner):
        pairs = [pair for pair in inner["parameters"]["dict"] if pair[0] != "n_workers"]
        inner["parameters"]["dict"] = [*pairs, ["n_workers", 150], ["verbose", 2]]

    def set_crop(inner):
        for pair in inner["backbone"]["data_config"]["dict"]:
            if pair[0] == "input_size":
                pair[1]["tuple"][1:] = [4096, 4096]
            if pair[0] == "crop_pct":
                pair[1] = 0.1

    write(set_workers)
    loaded = load_model(path)
    said = f"hardware={loaded.hardware}, verbose={loaded.verbose}"
    write(set_crop)
    try:
        loaded = load_model(path)
        config = loaded.network_.backbone.data_config
        side = config["input_size"][1] / config["crop_pct"]
        return f"{said}; images are resized to {side:.0f} pixels a side"
    except ValueError as error:
        return f"{said}; refused: {str(error)[:150]}"


def damaged_checkpoint(folder):
    """Impossible values in a checkpoint, and no room for one."""
    import torch

    from skh2edl.training.checkpoints import CheckpointFile

    X, y = rows()
    where = folder / "run"
    clf = H2EDLClassifier(
        TREE, backbone=None, solver="adamw", max_epochs=3, batch_size=8, random_state=0,
        validation_fraction=None, hardware=Hardware(checkpoint_dir=where),
    )  # fmt: skip
    clf.fit(X, y)
    path = CheckpointFile(where, {}).path
    content = torch.load(path, weights_only=True)
    said = []
    changes = {
        "epoch -5": lambda state: state["progress"].update(epoch=-5),
        "NaN weights": lambda state: state["network"]["head.linear.weight"].fill_(float("nan")),
        "no optimizer": lambda state: state.update(optimizer={}),
        "history of text": lambda state: state["progress"].update(history="abc"),
    }
    for name, change in changes.items():
        changed = pickle.loads(pickle.dumps(content))
        change(changed["state"])
        torch.save(changed, path)
        try:
            clf.fit(X, y)
            said.append(f"{name}: fitted")
        except Exception as error:
            named = "with" if str(path) in str(error) else "without"
            said.append(f"{name}: {type(error).__name__} {named} the path")
    return "; ".join(said)


# Output ----------------------------------------------------------------------------------------


def two_writers(folder):
    """Two `predict` runs with one --out at the same time, 3,000 rows."""
    table, model, out = folder / "many.csv", folder / "two.safetensors", folder / "out.csv"
    write_table(table, 3000)
    X, y = rows()
    names = ["a", "b", "c"]
    import pandas as pd

    H2EDLClassifier(TREE, backbone=None).fit(pd.DataFrame(X, columns=names), y).save(model)
    command = ["predict", model, table, "-o", out, "--batch-size", "8", "--quiet"]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", MAIN, *map(str, command)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = [process.communicate()[0].strip().splitlines() for process in both]
    codes = [process.returncode for process in both]
    n_rows = len(out.read_text().splitlines()) - 1 if out.exists() else None
    return f"exit codes {codes}, {n_rows} rows for 3000; they say {[line[:1] for line in said]}"


def strange_names(folder):
    """Names that are not UTF-8, and names that are formulas."""
    model = write_model(folder / "names.safetensors")
    photos = folder / "photos"
    photos.mkdir()
    for name in (b"caf\xe9.png", b"=1+1.png", b"@sum.png", b"-2.png"):
        with open(os.path.join(os.fsencode(photos), name), "wb") as file:
            file.write(picture("red"))
    done = run("predict", model, ".", "-o", folder / "names.csv", "--quiet", cwd=photos)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr.strip().splitlines()[0][:150]}"
    done = run("predict", model, "=1+1.png", "-o", folder / "one.csv", "--quiet", cwd=photos)
    with (folder / "names.csv").open(encoding="utf-8") as file:
        first = [row["image"] for row in csv.DictReader(file)]
    with (folder / "one.csv").open(encoding="utf-8") as file:
        second = [row["image"] for row in csv.DictReader(file)]
    return f"written: {first}, {second}"


def huge_feature(folder):
    """A feature of 1e30 among ordinary ones, in a fit and in a prediction."""
    said = []
    X, y = rows()
    for dtype in (np.float32, np.float64):
        spoilt = X.astype(dtype)
        spoilt[17, 1] = 1e30
        for what in ("fit", "predict"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    clf = H2EDLClassifier(TREE, backbone=None)
                    if what == "fit":
                        clf.fit(spoilt, y)
                    else:
                        clf.fit(X.astype(dtype), y).predict_proba(spoilt)
                    told = [str(item.message) for item in caught]
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"]
            named = any("row 17" in text for text in told)
            said.append(f"{what} {np.dtype(dtype).name}: {len(told)} warning(s), row named {named}")
    return "; ".join(said)


ATTACKS = [
    slow_uploads, silent, pixels, crowd, scans, json_lists, interrupt, flood, smuggling,
    killed_between, replaced_cache, workers_in_header, damaged_checkpoint, two_writers,
    strange_names, huge_feature,
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attacks", nargs="*", default=[attack.__name__ for attack in ATTACKS])
    wanted = parser.parse_args().attacks
    for attack in ATTACKS:
        if attack.__name__ in wanted:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    said = attack(Path(folder))
                except Exception as error:
                    said = f"FAILED: {type(error).__name__}: {error}"
            print(f"{attack.__name__}: {said}", flush=True)


if __name__ == "__main__":
    main()
