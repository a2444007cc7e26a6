"""Share models on Hugging Face's hub: the model file, its taxonomy and a card with its metrics."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..metrics.report import hierarchical_report
from ..taxonomy.taxonomy import Taxonomy
from .model_files import load_model, save_model
from .wrapping import find_taxonomy

_MODEL = "model.safetensors"
_FIGURES = ("accuracy", "balanced_accuracy", "nll", "ece")


def push_to_hub(
    model: Any,
    repo_id: str,
    X: Any = None,
    y: Any = None,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a model of skh2edl",
) -> str:
    """Upload a fitted model to Hugging Face's hub.

    The repository gets ``model.safetensors``, ``config.json`` (what the header of the model file
    says), ``taxonomy.json`` and ``README.md``, a model card.

    Parameters
    ----------
    model : classifier or wrapper of this package, Pipeline or search
        Fitted, as :func:`save_model` takes it.
    repo_id : str
        Such as "me/planes"; made if it does not exist.
    X, y : default=None
        Test data, for the metrics of every level in the card. None writes a card without.
    private : bool, default=None
        Whether a new repository is private; None leaves it to the hub.
    token : str or bool, default=None
        As in huggingface_hub; None takes the saved one.
    revision : str, default=None
        The branch; None means the main one.
    commit_message : str
        Message of the commit.

    Returns
    -------
    url : str
        Address of the commit.

    Examples
    --------
    >>> from skh2edl import FlatCEClassifier, push_to_hub
    >>> push_to_hub(FlatCEClassifier(backbone=None), "me/planes")
    Traceback (most recent call last):
    TypeError: FlatCEClassifier is not fitted, so there is nothing to upload. Call fit first.
    """
    from huggingface_hub import HfApi  # late: it takes a while, and timm brings it

    with tempfile.TemporaryDirectory() as name:
        write_repository(model, name, X, y, repo_id)
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        commit = api.upload_folder(
            repo_id=repo_id, folder_path=name, revision=revision, commit_message=commit_message
        )
    return str(commit)


def from_pretrained(
    repo_id: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    local_files_only: bool = False,
) -> Any:
    """Load a model that :func:`push_to_hub` uploaded; nothing in it is executed.

    Parameters
    ----------
    repo_id : str or path
        Such as "me/planes", or a folder with the same files.
    revision : str, default=None
        A branch, tag or commit; None means the main branch.
    token, cache_dir, local_files_only
        As in ``huggingface_hub.hf_hub_download``.

    Returns
    -------
    model : classifier
        As from :func:`load_model`.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import FlatCEClassifier, from_pretrained
    >>> from skh2edl.estimators.hub import write_repository
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = FlatCEClassifier(backbone=None).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_repository(clf, folder)
    ...     same = from_pretrained(folder)
    >>> bool((same.predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    from huggingface_hub import hf_hub_download

    if Path(repo_id).is_dir():
        return load_model(Path(repo_id) / _MODEL)
    path = hf_hub_download(
        os.fspath(repo_id),
        _MODEL,
        revision=revision,
        token=token,
        cache_dir=None if cache_dir is None else os.fspath(cache_dir),
        local_files_only=local_files_only,
    )
    return load_model(path)


def write_repository(
    model: Any,
    folder: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    repo_id: str = "path/to/this/folder",
) -> None:
    """Write the files of a repository into a folder; the parameters are those of `push_to_hub`."""
    folder = Path(folder)
    if not hasattr(model, "classes_"):
        raise TypeError(
            f"{type(model).__name__} is not fitted, so there is nothing to upload. Call fit first."
        )
    save_model(model, folder / _MODEL)
    with safe_open(folder / _MODEL, framework="np") as file:
        config = json.loads(file.metadata()["skh2edl"])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    taxonomy = find_taxonomy(model)
    (folder / "taxonomy.json").write_text(taxonomy.to_json() + "\n", encoding="utf-8")
    rows = {}
    if X is not None:
        proba = model.predict_proba(X)
        rows = hierarchical_report(y, proba, taxonomy, output_dict=True)
        del rows["tree"]
    card = _card(config, taxonomy, rows, repo_id)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _card(
    config: dict[str, Any], taxonomy: Taxonomy, rows: dict[str, dict[str, float]], repo_id: str
) -> str:
    """Return the model card: what the hub reads, and what people do."""
    from huggingface_hub import ModelCardData

    name, inner = config["class"], config
    while "members" in inner:
        inner = inner["members"][0]
    reads_images = inner["backbone"] is not None
    data = ModelCardData(
        library_name="skh2edl",
        tags=["skh2edl", "hierarchical-classification", name],
        pipeline_tag="image-classification" if reads_images else "tabular-classification",
    )
    lines = ["No test data were given when this card was written, so it has no metrics."]
    if rows:
        lines = [
            f"| level | classes | samples | {' | '.join(_FIGURES)} |",
            "|---" * (3 + len(_FIGURES)) + "|",
        ]
        for level, row in rows.items():
            figures = " | ".join(f"{row[figure]:.3f}" for figure in _FIGURES)
            lines.append(f"| {level} | {row['classes']} | {row['support']:g} | {figures} |")
    table = "\n".join(lines)
    return f"""---
{data.to_yaml()}
---

# {name}

A classifier into a taxonomy of {taxonomy.n_leaves} leaves on {taxonomy.n_levels} level(s),
{"of images" if reads_images else "of features"}, written by skh2edl
{config["versions"]["skh2edl"]}.

```python
from skh2edl import from_pretrained

model = from_pretrained("{repo_id}")
model.predict(X)
```

## Metrics

{table}
"""
