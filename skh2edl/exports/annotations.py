"""Predictions for tools that look at images: COCO-style JSON and FiftyOne."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from ..taxonomy.taxonomy import Taxonomy
from .identifications import Identifications


def coco_categories(taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """Return a COCO category for every node below the root.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.

    Returns
    -------
    categories : list of dict
        The id is the number of the node, the supercategory the label of its parent, and ``path``
        the names from the top level down, from which
        :meth:`Taxonomy.from_coco <skh2edl.Taxonomy.from_coco>` makes the same tree.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> coco_categories(tree)[2]
    {'id': 3, 'name': 'lynx', 'supercategory': 'cat', 'path': ['cat', 'lynx']}
    """
    labels = taxonomy.labels(range(taxonomy.n_nodes))
    return [
        {
            "id": node,
            "name": labels[node],
            "supercategory": labels[parent] if (parent := int(taxonomy.parents[node])) else "none",
            "path": list(taxonomy._index.path(node)),
        }
        for node in range(1, taxonomy.n_nodes)
    ]


def coco_predictions(identifications: Identifications) -> dict[str, Any]:
    """Return the predictions as a COCO document.

    Parameters
    ----------
    identifications : Identifications
        What to write. An image that is identified as the root has no annotation.

    Returns
    -------
    document : dict
        ``images``, ``categories`` of all nodes, and ``annotations`` with a ``score``, without
        boxes.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, coco_predictions
    >>> found = Identifications.from_proba([[0.9, 0.1]], Taxonomy.flat(["cat", "dog"]), ["1.jpg"])
    >>> coco_predictions(found)["annotations"]
    [{'id': 1, 'image_id': 1, 'category_id': 1, 'score': 0.9}]
    """
    found = zip(identifications.nodes.tolist(), identifications.probability.tolist(), strict=True)
    annotations = [
        {"image_id": image, "category_id": node, "score": round(score, 6)}
        for image, (node, score) in enumerate(found, start=1)
        if node
    ]
    return {
        "images": [
            {"id": number, "file_name": name}
            for number, name in enumerate(identifications.ids, start=1)
        ],
        "categories": coco_categories(identifications.taxonomy),
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations, start=1)],
    }


def fiftyone_labels(identifications: Identifications) -> list[dict[str, Any]]:
    """Return for each image the arguments of a FiftyOne Classification.

    Parameters
    ----------
    identifications : Identifications
        What to write.

    Returns
    -------
    labels : list of dict
        ``label``, ``confidence``, ``level``, ``path``, the best leaf with its probability, and
        with opinions ``vacuity`` and ``nonspecificity``:
        ``sample["prediction"] = fiftyone.Classification(**label)``.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.exports import Identifications, fiftyone_labels
    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> opinion = HyperOpinion.from_evidence(tree, [[6, 0]])
    >>> found = Identifications.from_proba([[0.875, 0.125]], tree, ["1.jpg"], opinion=opinion)
    >>> fiftyone_labels(found)[0]["vacuity"]
    0.25
    """
    leaves = identifications.leaf_probability
    columns: dict[str, Any] = {
        "label": map(str, identifications.labels),
        "confidence": _rounded(identifications.probability),
        "level": identifications.levels,
        "path": [list(map(str, path)) for path in identifications.paths],
        "leaf": [str(identifications.taxonomy.leaves[best]) for best in leaves.argmax(axis=1)],
        "leaf_confidence": _rounded(leaves.max(axis=1)),
    }
    if identifications.opinion is not None:
        columns["vacuity"] = _rounded(identifications.vacuity)
        columns["nonspecificity"] = _rounded(identifications.nonspecificity)
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]


def fiftyone_dataset(identifications: Identifications) -> dict[str, Any]:
    """Return the ``labels.json`` of a FiftyOneImageClassificationDataset.

    Parameters
    ----------
    identifications : Identifications
        What to write; its ids are files, whose endings are left out as FiftyOne does, unless
        they are absolute.

    Returns
    -------
    document : dict
        ``classes``, all labels of the tree, and ``labels`` by file.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, fiftyone_dataset
    >>> found = Identifications.from_proba([[0.9, 0.1]], Taxonomy.flat(["cat", "dog"]), ["1.jpg"])
    >>> fiftyone_dataset(found)["labels"]["1"]["confidence"]
    0.9
    """
    tree = identifications.taxonomy
    entries = {}
    for name, label in zip(identifications.ids, fiftyone_labels(identifications), strict=True):
        file = PurePath(name)
        key = name if file.is_absolute() else file.with_suffix("").as_posix()
        if key in entries:
            raise ValueError(
                f"FiftyOne knows images by their names without endings, and {key!r} is there "
                "twice. Give absolute paths as ids, or rename one."
            )
        own = {name: label.pop(name) for name in ("label", "confidence")}
        entries[key] = {**own, "attributes": label}
    return {"classes": list(map(str, tree.labels(range(tree.n_nodes)))), "labels": entries}
