"""What a classifier into a taxonomy predicts, given the log-probabilities of the leaves."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..metrics.levels import level_accuracy
from ..taxonomy.taxonomy import Taxonomy
from .targets import check_labels


class TreePredictions:
    """Mixin of predictions at every level; a class gives `_log_leaves` and the attributes."""

    taxonomy_: Taxonomy
    classes_: npt.NDArray[Any]

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        """Return log P of each leaf in tree order."""
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the logarithm of the probability of each leaf.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`. An image that cannot be read, with ``on_bad_image="skip"``, gets
            what the classifier says knowing nothing.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_leaves)
            Columns in the order of `classes_`.
        """
        return self._log_leaves(X)[:, self.taxonomy_.leaf_order]

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probability of each leaf.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_leaves)
            Columns in the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable leaf of each sample.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        best = self.predict_log_proba(X).argmax(axis=1)
        return np.array(self.classes_[best])

    def predict_proba_level(self, X: Any, level: str | int) -> npt.NDArray[Any]:
        """Return the probability of each node of a level.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.
        level : str or int
            Name or depth of the level.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_nodes_of_level)
            Columns in the order of ``taxonomy_.level(level)``.
        """
        check_is_fitted(self, "classes_")
        # The nodes of a level cover all leaves in tree order, one range each.
        starts = self.taxonomy_.leaf_start[self.taxonomy_.level_nodes(level)]
        return np.add.reduceat(np.exp(self._log_leaves(X)), starts, axis=1)

    def predict_level(self, X: Any, level: str | int) -> npt.NDArray[Any]:
        """Return the most probable node of a level for each sample.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.
        level : str or int
            Name or depth of the level.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        best = self.predict_proba_level(X, level).argmax(axis=1)
        return np.array(self.taxonomy_.level(level))[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of samples whose leaf is right, among those labelled with a leaf.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.
        y : array-like of shape (n_samples,)
            Labels; those that end above the leaves are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        accuracy : float
        """
        labels = check_labels(y, len(y))
        return level_accuracy(
            labels, self.predict(X), self.taxonomy_, "leaf", sample_weight=sample_weight
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one ``.safetensors`` file; see :func:`load_model`.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced only when the new one is complete.
        """
        from .model_files import save_model  # late: it knows the classes that inherit this

        check_is_fitted(self, "classes_")
        save_model(self, path)

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as an ONNX model; see :mod:`skh2edl.estimators.onnx`.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced only when the new one is complete.
        """
        from .onnx import export_onnx  # late, as above

        check_is_fitted(self, "classes_")
        export_onnx(self, path)
