"""``skh2edl export``: a model for other programs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

from typer import Argument

from .common import ModelArgument, check_output, consoles, say_written


def export(
    model: ModelArgument, out: Annotated[Path, Argument(help="The .onnx file to write.")]
) -> None:
    """Write a model as ONNX, for programs that have no torch.

    The ONNX model takes resized uint8 images (or features) and gives the probabilities of leaves
    and of all nodes, and for evidential models vacuities and masses; its metadata hold the
    taxonomy and the names of the columns.

    For example:

      skh2edl export birds.safetensors birds.onnx
    """
    from ..estimators.model_files import load_model

    check_output(out, (".onnx",))
    estimator = load_model(model)
    with warnings.catch_warnings():
        # torch warns about its own plans, which are not for users of this command.
        warnings.simplefilter("ignore")
        estimator.export_onnx(out)
    say_written(consoles()[0], out)
