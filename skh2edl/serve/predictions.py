"""Predictions kept for a while, so that branches can be opened and photographs fused."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..decisions._ladders import Ladder, make_ladder
from ..metrics.inputs import node_probabilities
from ..opinions.hyper_opinion import HyperOpinion
from ..opinions.reading import NodeOpinion
from ..taxonomy.taxonomy import Taxonomy

FloatArray = npt.NDArray[np.float64]

_MAX_PREDICTIONS = 20_000


@dataclass(frozen=True, eq=False)
class Prediction:
    """Numbers for every node of the tree; the image itself is not kept.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    leaf_probability : ndarray of shape (n_leaves,)
        In tree order.
    opinion : HyperOpinion or None
        Opinion on one sample.
    name : str
        Name of the image, or of several.
    n_images : int, default=1
        Number of images.
    """

    taxonomy: Taxonomy
    leaf_probability: FloatArray
    opinion: HyperOpinion | None
    name: str
    n_images: int = 1

    @cached_property
    def probability(self) -> FloatArray:
        """Probability of each node."""
        total = node_probabilities(self.leaf_probability[None], self.taxonomy)[0]
        return np.clip(total, 0, 1)

    @cached_property
    def ladder(self) -> Ladder:
        """The path from the root to the likeliest leaf, as the hedge climbs it."""
        return make_ladder("climb", self.leaf_probability[None], self.taxonomy)

    @cached_property
    def numbers(self) -> NodeOpinion | None:
        """Mass, belief, probability, plausibility and vacuity of each node by its opinion."""
        if self.opinion is None:
            return None
        mass, belief, _, plausibility, vacuity = (values[0] for values in self.opinion.nodes())
        # The order of the three is exact; float32 evidence blurs it in the last digits.
        belief = np.clip(belief, 0, self.probability)
        plausibility = np.clip(plausibility, self.probability, 1)
        return NodeOpinion(np.clip(mass, 0, 1), belief, self.probability, plausibility, vacuity)

    @property
    def n_bytes(self) -> int:
        """Memory that it may take, with all that is derived from it."""
        per_node = 8 if self.opinion is None else 60
        return 1000 + 8 * self.leaf_probability.size + per_node * self.taxonomy.n_nodes


class PredictionStore:
    """The latest predictions by an id that cannot be guessed.

    Parameters
    ----------
    max_bytes : int
        Memory to use; the latest prediction is always kept.

    Examples
    --------
    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> store = PredictionStore(1500)
    >>> first = store.add(Prediction(tree, np.array([0.5, 0.5]), None, "a.jpg"), "10.0.0.1")
    >>> store.get(first).name
    'a.jpg'
    >>> second = store.add(Prediction(tree, np.array([0.5, 0.5]), None, "b.jpg"), "10.0.0.1")
    >>> store.get(first) is None, store.get(second).name
    (True, 'b.jpg')
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._client_of: dict[str, str] = {}
        self._kept: dict[str, _Kept] = {}
        self._n_bytes = 0
        self._lock = threading.Lock()

    def add(self, prediction: Prediction, client: str) -> str:
        """Keep a prediction, and forget some of the client that has most if there is no room.

        Parameters
        ----------
        prediction : Prediction
            The prediction.
        client : str
            Who asked for it: a flood of one client does not push out what others need.

        Returns
        -------
        id : str
        """
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._client_of[key] = client
            own = self._kept.setdefault(client, _Kept())
            own.predictions[key] = prediction
            own.n_bytes += prediction.n_bytes
            self._n_bytes += prediction.n_bytes
            while len(self._client_of) > 1 and (
                self._n_bytes > self.max_bytes or len(self._client_of) > _MAX_PREDICTIONS
            ):
                self._forget_one(key)
        return key

    def _forget_one(self, latest: str) -> None:
        """Forget what the client with most has not used the longest; never the latest."""
        by_size = sorted(self._kept, key=lambda client: self._kept[client].n_bytes)
        name = by_size[-1]
        if next(iter(self._kept[name].predictions)) == latest:
            name = by_size[-2]
        largest = self._kept[name]
        key, oldest = largest.predictions.popitem(last=False)
        del self._client_of[key]
        largest.n_bytes -= oldest.n_bytes
        self._n_bytes -= oldest.n_bytes
        if not largest.predictions:
            del self._kept[name]

    def get(self, key: str) -> Prediction | None:
        """Return a prediction, None if it is not (or no longer) kept.

        Parameters
        ----------
        key : str
            Its id, from :meth:`add`.
        """
        with self._lock:
            if key not in self._client_of:
                return None
            own = self._kept[self._client_of[key]].predictions
            own.move_to_end(key)
            return own[key]


@dataclass
class _Kept:
    """The predictions of one client, the longest unused first."""

    predictions: OrderedDict[str, Prediction] = field(default_factory=OrderedDict)
    n_bytes: int = 0
