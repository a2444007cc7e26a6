"""Scripts without a guard, on systems that spawn new processes."""

import subprocess
import sys

import pytest

SCRIPT = """
import multiprocessing
multiprocessing.set_start_method({method!r}, force=True)
import warnings
import numpy as np
from PIL import Image
from skh2edl.images import image_source, make_loader, make_transform

{guard}
    for index in range(4):
        Image.new("RGB", (8, 8), (index, 0, 0)).save({folder!r} + f"/{{index}}.png")
    source = image_source([{folder!r} + f"/{{index}}.png" for index in range(4)])
    transform = make_transform({{"input_size": (3, 8, 8), "crop_pct": 1.0}})
    warnings.simplefilter("always")
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(2):
            loader = make_loader(source, transform, batch_size=2, n_workers=1)
            red = [int(value) for batch in loader for value in batch.images[:, 0, 0, 0]]
    texts = [str(item.message) for item in caught if "__name__" in str(item.message)]
    print(red, loader.num_workers, len(texts), *texts)
"""


def run(tmp_path, method, guard):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(method=method, guard=guard, folder=str(tmp_path)))
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_without_a_guard_reads_in_its_process_and_says_why_once(tmp_path, method):
    done = run(tmp_path, method, "if True:")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0, 1, 2, 3] 0 1 New processes of this system")
    assert f"({method}) run the script 'train.py' again" in done.stdout
    assert "so images are read in this process" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "guard"), [("spawn", 'if __name__ == "__main__":'), ("fork", "if True:")]
)
def test_other_scripts_read_in_new_processes(tmp_path, method, guard):
    done = run(tmp_path, method, guard)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0, 1, 2, 3] 1 0")


@pytest.mark.slow
def test_processes_of_a_fit_are_refused_without_a_guard(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "from skh2edl.training.distributed import spawn\ntry:\n    spawn(2, dict)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert "has no 'if __name__ == \"__main__\":' around its work" in done.stdout
    assert "Add it, or train with strategy='ddp'" in done.stdout
