"""The most probable leaves of a classifier, searched for in a large tree."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted

from ..heads.large.search import search_leaves
from ..training.network import Network
from .predictions import TreePredictions


def _searched(head: Any, features: torch.Tensor, k: int) -> torch.Tensor:
    leaves, log_probability = search_leaves(head, features, k)
    # Positions of up to 2^24 leaves are exact in single precision.
    return torch.from_numpy(np.concatenate([leaves, log_probability], axis=1))


class LeafSearch(TreePredictions):
    """`predict` and `predict_top_k` of a classifier with a network."""

    network_: Network

    if TYPE_CHECKING:

        def _head_output(
            self, X: Any, output: Any
        ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]: ...

        def _unknown_leaf_probability(self) -> npt.NDArray[np.float64]: ...

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
        check_is_fitted(self, "network_")
        if self._searches():
            return self.predict_top_k(X, 1)[0][:, 0]
        return super().predict(X)

    def predict_top_k(self, X: Any, k: Any = 5) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the k most probable leaves of each sample, best first.

        In a tree of 20,000 leaves and more only the nodes on promising paths are evaluated; the
        result is exact all the same, because no leaf is more probable than its ancestors.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.
        k : int, default=5
            How many.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
        proba : ndarray of shape (n_samples, k)
            Their probabilities.
        """
        check_is_fitted(self, "network_")
        if not isinstance(k, (int, np.integer)) or not 1 <= k <= len(self.classes_):
            raise ValueError(
                f"k must be a whole number from 1 to {len(self.classes_)}, the number of leaves, "
                f"got {k!r}."
            )
        positions = np.empty(len(self.classes_), dtype=np.int64)
        positions[self.taxonomy_.leaf_order] = np.arange(len(positions))
        if self._searches():
            both, readable = self._head_output(X, partial(_searched, k=int(k)))
            leaves, proba = both[:, :k].astype(np.int64), np.exp(both[:, k:])
            unknown = self._unknown_leaf_probability()
            best = np.argsort(-unknown, kind="stable")[:k]
            leaves[~readable], proba[~readable] = best, unknown[best]
            return self.classes_[positions[leaves]], proba
        proba = self.predict_proba(X)
        best = np.argsort(-proba, axis=1, kind="stable")[:, :k]
        return self.classes_[best], np.take_along_axis(proba, best, axis=1)

    def _searches(self) -> bool:
        return self.network_.head.is_large
