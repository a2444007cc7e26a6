"""Small data and models for the tests of the command line."""

import csv

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from skh2edl.cli.app import app

KINDS = {"lynx": "cat", "puma": "cat", "wolf": "dog"}
FEATURES = ("--features", "size,speed,ears", "--labels", "kind,species")


def invoke(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        patch.setenv("TERM", "dumb")
        patch.delenv("SKH2EDL_TRACEBACK", raising=False)
        return CliRunner().invoke(app, list(map(str, arguments)))


def write_table(path, rows, names=("size", "speed", "ears", "kind", "species")):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def animals(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(3)
    rows = []
    for index in range(n):
        species = list(KINDS)[index % 3]
        features = rng.normal(size=3) + centres[index % 3]
        rows.append([*(f"{value:.6f}" for value in features), KINDS[species], species])
    return rows


def make_zoo(folder):
    """A table of 300 animals and the model that fit makes of it; returns what fit said."""
    write_table(folder / "animals.csv", animals(300))
    out = folder / "model.safetensors"
    result = invoke("fit", folder / "animals.csv", *FEATURES, "--out", out)
    assert result.exit_code == 0, result.output
    return result


def make_photos(folder):
    """Red and green pictures in folders, and a small model of them."""
    rng = np.random.default_rng(0)
    for place, colour in {
        "warm/red": (220, 40, 40),
        "warm/pink": (220, 90, 140),
        "green": (40, 200, 60),
    }.items():
        (folder / "data" / place).mkdir(parents=True)
        for index in range(14):
            pixels = np.clip(rng.normal(colour, 25, size=(32, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "data" / place / f"{index}.png")
    out = folder / "model.safetensors"
    network = ("--backbone", "test_resnet", "--weights", "none", "--image-size", 32)
    parts = ("--test-fraction", 0.3)
    result = invoke("fit", folder / "data", "-o", out, *network, *parts, "--workers", 0)
    assert result.exit_code == 0, result.output
