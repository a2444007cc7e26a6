"""ONNX export: one file that other runtimes read, with probabilities, vacuities and masses."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..heads.base import TreeHead
from ..heads.evidential import FlatOpinionHead, HENNHead
from ..heads.h2edl import H2EDLHead
from ..taxonomy.sums import at_nodes
from ..taxonomy.taxonomy import Taxonomy
from ..training.network import Network
from ..utils.files import write_atomically
from ..utils.optional import import_optional
from .merging import merge
from .model_files import versions
from .wrapping import TreeWrapper

# A protocol buffer cannot be larger; the graph beside the weights is small.
_MAX_BYTES = 2**31 - 2**24


def export_onnx(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted classifier as an ONNX model, whole or not at all.

    The model takes any number of samples at once: uint8 pixels ``images`` of shape (n, 3, height,
    width), resized and cropped to the backbone's size but not normalised, or float32 ``features``
    of shape (n, n_features) where there is no backbone. It computes in float32 and gives

    - ``class_probability``, columns as in `classes_`;
    - ``node_probability``, columns as the nodes of ``taxonomy_``;
    - from evidential classifiers ``vacuity`` and ``mass``, columns as in :class:`HyperOpinion`. A
      classifier with one opinion on all leaves has one vacuity, and masses of the leaves in tree
      order, of its groups if it has any, and of the root;
    - from :class:`HedgedClassifier` the ``prediction``, a number of a node, with the thresholds of
      the fit.

    Calibration is a part of the model. A temperature calibrates probabilities and not opinions, so
    a model with one gives no vacuity and mass.

    The metadata hold, as JSON: ``classes``, ``nodes``, ``focal_sets`` (the columns of mass),
    ``taxonomy`` (see :meth:`Taxonomy.from_json`), ``normalisation`` (timm's configuration of the
    images: the model itself subtracts the mean and divides by std) and ``versions``.

    Parameters
    ----------
    estimator : classifier of this package
        Fitted; also in :class:`CalibratedTreeClassifier`, :class:`HedgedClassifier` with
        ``rule="climb"``, or behind the steps of a pipeline that :func:`load_model` reads back.
    path : path
        The file; ``.onnx`` is its customary ending.

    Examples
    --------
    >>> import tempfile
    >>> import onnxruntime
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import FlatCEClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = FlatCEClassifier(backbone=None).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.export_onnx(f"{folder}/iris.onnx")
    ...     session = onnxruntime.InferenceSession(f"{folder}/iris.onnx")
    >>> proba, _ = session.run(None, {"features": X[:2].astype("float32")})
    >>> bool(abs(proba - clf.predict_proba(X[:2])).max() < 1e-5)
    True
    """
    for package in ("onnx", "onnxscript"):
        import_optional(package, extra="onnx")
    estimator, parts = _unwrap(merge(estimator))
    network = copy.deepcopy(estimator.network_).float()
    n_bytes = sum(value.nbytes for value in network.state_dict().values())
    if n_bytes > _MAX_BYTES:
        raise ValueError(
            f"The network's weights take {n_bytes} bytes, and an ONNX file holds less than 2 GiB. "
            "Choose a smaller backbone, or use save."
        )
    outputs = _Outputs(network, estimator.taxonomy_, **parts).eval()
    backbone = network.backbone
    example = (
        torch.zeros(2, network.head.linear.in_features)
        if backbone is None
        else torch.zeros(2, 3, *backbone.image_size, dtype=torch.uint8)
    )
    program = torch.onnx.export(
        outputs,
        (example,),
        dynamo=True,
        verbose=False,
        input_names=["features" if backbone is None else "images"],
        output_names=outputs.names,
        dynamic_shapes=({0: torch.export.Dim("n_samples")},),
    )
    assert program is not None
    # torch falls back to a fixed number without a word.
    shape = program.model.graph.inputs[0].shape
    if shape is None or isinstance(shape[0], int):
        raise ValueError(
            f"The network of {type(estimator).__name__} fixes the number of samples at "
            f"{len(example)} when it is exported. Choose another backbone, or use save."
        )
    program.model.metadata_props.update(_metadata(estimator, network.head))
    content = program.model_proto.SerializeToString()
    write_atomically(Path(path), lambda file: file.write(content))


def _unwrap(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the classifier with the network, and what the wrappers around it do."""
    parts: dict[str, Any] = {}
    outermost = model
    while isinstance(model, TreeWrapper):
        own, inner = model._export_parts(), model._inner()[0]
        if inner.taxonomy_ != model.taxonomy_:
            raise TypeError(
                f"{type(model).__name__} has another taxonomy than its estimator, which an ONNX "
                "model cannot translate. Give the estimator itself the taxonomy."
            )
        if model is not outermost:  # a hedge inside passes probabilities on
            own = {name: own[name] for name in own.keys() - {"nodes", "thresholds"}}
        for name in own:
            # Two temperatures, or two factors of the evidence, act as their product.
            parts[name] = own[name] * parts.get(name, 1)
        model = inner
    return model, parts


class _Outputs(nn.Module):
    """The network with all outputs of a prediction."""

    leaf_order: Tensor
    nodes: Tensor
    thresholds: Tensor

    def __init__(
        self,
        network: Network,
        taxonomy: Taxonomy,
        *,
        temperature: float | None = None,
        evidence_scale: npt.NDArray[np.float64] | None = None,
        nodes: npt.NDArray[np.int64] | None = None,
        thresholds: npt.NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.temperature = network, temperature
        is_evidential = isinstance(network.head, (H2EDLHead, FlatOpinionHead, HENNHead))
        self.has_opinions = is_evidential and temperature is None
        self.is_hedged = nodes is not None
        self.names = ["class_probability", "node_probability"]
        self.names += ["vacuity", "mass"] if self.has_opinions else []
        self.names += ["prediction"] if self.is_hedged else []
        self.register_buffer("leaf_order", torch.from_numpy(np.array(taxonomy.leaf_order)))
        if nodes is not None and thresholds is not None:
            self.register_buffer("nodes", torch.from_numpy(nodes))
            self.register_buffer("thresholds", torch.from_numpy(thresholds).float())
        if evidence_scale is not None:
            head: Any = network.head
            log_scale = torch.from_numpy(np.log(evidence_scale)).float()
            head.log_scale = nn.Parameter(head.log_scale.detach() + log_scale)  # one a decision

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        head: Any = self.network.head
        features = self.network.features(inputs)
        log_leaves = head.leaf_log_probability(features)
        if self.temperature is not None:
            log_leaves = (log_leaves / self.temperature).log_softmax(dim=1)
        decisions = head.segments.log_sum_below(log_leaves).exp()
        tree = head.segments.taxonomy
        nodes = at_nodes(decisions, tree, np.arange(tree.n_nodes), 1.0)
        outputs = [log_leaves.exp()[:, self.leaf_order], nodes]
        if self.has_opinions and isinstance(head, H2EDLHead):
            outputs += _tree_opinion(head, features)
        elif self.has_opinions:
            masses = head.masses(features)
            outputs += [masses[:, -1:], masses]
        if self.is_hedged:
            outputs.append(self._hedge(*outputs[:2]))
        return tuple(outputs)

    def _hedge(self, classes: Tensor, nodes: Tensor) -> Tensor:
        """Return the deepest node on the path to the likeliest leaf that thresholds allow."""
        leaf = self.leaf_order[classes.argmax(dim=1)]
        path = self.nodes[leaf]
        missed = nodes.gather(1, path) < self.thresholds[leaf]
        reached = (missed.long().cumsum(dim=1) == 0).sum(dim=1) - 1
        return path.gather(1, reached[:, None])[:, 0]


def _tree_opinion(head: H2EDLHead, features: Tensor) -> tuple[Tensor, Tensor]:
    segments, tree = head.segments, head.segments.taxonomy
    evidence = head.evidence(features)
    strength = segments.node_sum(evidence) + head.prior_weight
    vacuity = head.prior_weight / strength
    reach = segments.sum_along_paths((evidence / segments.to_children(strength)).log()).exp()
    stops = vacuity * at_nodes(reach, tree, tree.branching_nodes, 1.0)
    return vacuity, torch.cat([reach[:, segments.leaf_decision], stops], dim=1)


def _metadata(estimator: Any, head: TreeHead) -> dict[str, str]:
    tree, backbone = estimator.taxonomy_, estimator.network_.backbone
    leaves, focal_sets = list(tree.leaves), None
    if isinstance(head, H2EDLHead):
        focal_sets = leaves + list(tree.branching)
    elif isinstance(head, HENNHead):
        focal_sets = [*leaves, *map(tree.path, estimator.groups_), ()]
    elif isinstance(head, FlatOpinionHead):
        focal_sets = [*leaves, ()]
    values = {
        "classes": estimator.classes_.tolist(),
        "nodes": tree.labels(np.arange(tree.n_nodes)),
        "focal_sets": focal_sets,
        "taxonomy": json.loads(tree.to_json()),
        "normalisation": None if backbone is None else backbone.data_config,
        "versions": versions(),
    }
    return {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
