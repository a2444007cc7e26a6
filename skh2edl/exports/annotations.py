"""Predictions for tools that look at images, and labels back: COCO, FiftyOne, Label Studio."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import numpy.typing as npt

from ..taxonomy.names import shown
from ..taxonomy.tables import load_json
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


# Label Studio -----------------------------------------------------------------------------
# A half-way annotation, such as only the family, is a path that ends above the leaves, and comes
# back as an ancestor label.

# Names of the two tags of the interface, and the field of a task that holds the image.
CONTROL, OBJECT, FIELD = "taxonomy", "image", "image"


def label_studio_config(
    taxonomy: Taxonomy, *, control: str = CONTROL, data_field: str = FIELD
) -> str:
    """Return a labelling interface in which any node of the tree can be chosen.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    control : str, default="taxonomy"
        Name of the tag that holds the annotation.
    data_field : str, default="image"
        Field of a task that holds the image.

    Returns
    -------
    config : str
        XML for the settings of a project.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> print(label_studio_config(Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})))
    <View>
      <Image name="image" value="$image"/>
      <Taxonomy name="taxonomy" toName="image" leafsOnly="false">
        <Choice value="cat">
          <Choice value="lynx"/>
          <Choice value="puma"/>
        </Choice>
        <Choice value="dog"/>
      </Taxonomy>
    </View>
    """
    lines = [
        "<View>",
        f"  <Image name={quoteattr(OBJECT)} value={quoteattr('$' + data_field)}/>",
        f'  <Taxonomy name={quoteattr(control)} toName={quoteattr(OBJECT)} leafsOnly="false">',
    ]
    open_: list[str] = []  # indents of the choices that are not closed
    # Depth first, as sorted by the first leaf below: parents before their children.
    for node in np.lexsort((taxonomy.depths, taxonomy.leaf_start))[1:].tolist():
        depth, is_leaf = int(taxonomy.depths[node]), taxonomy.n_children[node] == 0
        while len(open_) >= depth:
            lines.append(f"{open_.pop()}</Choice>")
        indent = "  " * (depth + 1)
        value = quoteattr(str(taxonomy.names[node]))
        lines.append(f"{indent}<Choice value={value}{'/>' if is_leaf else '>'}")
        if not is_leaf:
            open_.append(indent)
    lines += [f"{indent}</Choice>" for indent in reversed(open_)]
    return "\n".join([*lines, "  </Taxonomy>", "</View>"])


def label_studio_tasks(
    identifications: Identifications,
    *,
    model_version: str,
    url: Callable[[str], str] | None = None,
    control: str = CONTROL,
    data_field: str = FIELD,
) -> list[dict[str, Any]]:
    """Return tasks with the predictions as pre-annotations.

    Parameters
    ----------
    identifications : Identifications
        What to write. An image identified as the root has an empty prediction.
    model_version : str
        Name and version of the model.
    url : callable, default=None
        From the id of an image to its address for Label Studio; None takes the id.
    control, data_field : str
        As in :func:`label_studio_config`.

    Returns
    -------
    tasks : list of dict
        To be written as JSON and imported. The score is the probability, by which tasks can be
        sorted; with opinions each task's data hold the vacuity.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, label_studio_tasks
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> found = Identifications.from_proba([[0.0, 0.6, 0.4]], tree, ["1.jpg"], thresholds={2: 0.8})
    >>> task = label_studio_tasks(found, model_version="cats 1.0")[0]
    >>> task["predictions"][0]["result"][0]["value"]
    {'taxonomy': [['cat']]}
    """
    vacuity = identifications.vacuity
    tasks = []
    for index, (name, path, probability) in enumerate(
        zip(identifications.ids, identifications.paths, identifications.probability, strict=True)
    ):
        score = round(float(probability), 6)
        result = {
            "id": f"prediction-{index + 1}",
            "from_name": control,
            "to_name": OBJECT,
            "type": "taxonomy",
            "value": {"taxonomy": [[str(part) for part in path]]},
            "score": score,
        }
        data: dict[str, Any] = {data_field: name if url is None else url(name), "id": name}
        if vacuity is not None:
            data["vacuity"] = round(float(vacuity[index]), 6)
        prediction = {
            "model_version": model_version,
            "score": score,
            "result": [result] if path else [],
        }
        tasks.append({"data": data, "predictions": [prediction]})
    return tasks


def read_label_studio(
    source: Any,
    taxonomy: Taxonomy,
    *,
    control: str = CONTROL,
    data_field: str = FIELD,
    several: str = "lca",
) -> tuple[list[str], npt.NDArray[Any]]:
    """Read annotations as labels: leaves, or ancestors where an annotator stopped half-way.

    Parameters
    ----------
    source : path or list
        The JSON or JSON-MIN export of a project, or what it holds.
    taxonomy : Taxonomy
        The tree.
    control, data_field : str
        As in :func:`label_studio_config`.
    several : {"lca", "error"}, default="lca"
        What to do with several choices or annotators: the lowest common ancestor is what they
        agree on. A choice that lies above another one of the same annotation does not count.

    Returns
    -------
    ids : list of str
        The id that :func:`label_studio_tasks` wrote, or else the address of each image.
    labels : ndarray of shape (n_tasks,)
        The root's label where nothing was chosen, or all annotations were skipped.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> result = [{"from_name": "taxonomy", "type": "taxonomy", "value": {"taxonomy": [["cat"]]}}]
    >>> tasks = [{"data": {"image": "1.jpg"}, "annotations": [{"result": result}]}]
    >>> read_label_studio(tasks, tree)
    (['1.jpg'], array(['cat'], dtype='<U3'))
    """
    if several not in ("lca", "error"):
        raise ValueError(f"several must be 'lca' or 'error', got {several!r}.")
    tasks = load_json(source) if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(tasks, Sequence) or not all(isinstance(task, Mapping) for task in tasks):
        raise ValueError(
            "A Label Studio export is a JSON list of tasks, got "
            f"{shown(tasks)}. Export the project as JSON or JSON-MIN."
        )
    ids, nodes = [], []
    for number, task in enumerate(tasks):
        data = task.get("data", task)
        if data_field not in data:
            raise ValueError(
                f"Task {number} has no field {data_field!r}, but {shown(sorted(map(str, data)))}. "
                "Name the field of the images with data_field=..."
            )
        named = "id" in data and "data" in task
        ids.append(str(data["id"] if named else data[data_field]))
        try:
            chosen = _choices(task, control)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"Task {number} ({ids[-1]!r}) has no annotation of a Taxonomy tag named "
                f"{control!r} as Label Studio writes it ({error!r}). Name the tag with control=..."
            ) from None
        nodes.append(_node_of(chosen, taxonomy, several, ids[-1]))
    labels = taxonomy.labels(np.array(nodes, dtype=np.int64)) if nodes else []
    kinds = {isinstance(label, str) for label in labels}
    return ids, np.array(labels, dtype=None if len(kinds) < 2 else object)


def _choices(task: Mapping[str, Any], control: str) -> list[list[tuple[str, ...]]]:
    """Return the paths that each annotation of a task chose."""
    if "annotations" not in task and "data" not in task:  # JSON-MIN
        return [_as_paths(task.get(control, []))]
    found = []
    for annotation in task.get("annotations", []):
        if annotation.get("was_cancelled"):
            continue
        results = [r for r in annotation.get("result", []) if r.get("from_name") == control]
        found.append([path for r in results for path in _as_paths(r["value"]["taxonomy"])])
    return found


def _as_paths(value: Any) -> list[tuple[str, ...]]:
    """Return the paths in a value; JSON-MIN puts each of several values in an object."""
    if isinstance(value, Mapping):
        return _as_paths(value.get("taxonomy", []))
    return [
        path
        for item in value
        for path in (_as_paths(item) if isinstance(item, Mapping) else [tuple(item)])
    ]


def _node_of(
    annotations: list[list[tuple[str, ...]]], tree: Taxonomy, several: str, name: str
) -> int:
    """Return what the annotators agree on; the root if nobody said anything."""
    chosen = []
    for paths in annotations:
        kept = [p for p in paths if not any(q[: len(p)] == p and q != p for q in paths)]
        if len(set(kept)) > 1 and several == "error":
            raise ValueError(
                f"{name!r} has several choices in one annotation: {shown(sorted(set(kept)))}. "
                "Correct it in Label Studio, or read with several='lca'."
            )
        if kept:
            chosen.append(tree.node(tree.lca(kept)))
    if not chosen:
        return 0
    if len(set(chosen)) > 1 and several == "error":
        raise ValueError(
            f"The annotators of {name!r} disagree: {shown(tree.labels(sorted(set(chosen))))}. "
            "Settle it in Label Studio, or read with several='lca'."
        )
    return tree.node(tree.lca(tree.labels(chosen)))
