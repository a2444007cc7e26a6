"""Settings and fixtures that every test shares."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# One thread: the tensors here are tiny, and results must not depend on the number of cores.
torch.set_num_threads(1)

# Wall-clock deadlines fail on busy machines. In CI the examples are the same on every run, so that
# a red build is about the change under test; on a desk each run looks at new ones.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session")
def assets():
    """Return the folder of real taxonomies, pictures and weights, or skip the test."""
    named = os.environ.get("SKH2EDL_ASSETS")
    folder = Path(named) if named else ROOT.parent / "shared" / "assets"
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder}; set SKH2EDL_ASSETS to run this test")
    return folder


def pytest_collection_modifyitems(items):
    """Mark the tests that take the `assets` fixture, so that `-m "not assets"` leaves them out."""
    for item in items:
        if "assets" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.assets)
