"""Predictions kept for a while, so that branches can be opened and photographs fused."""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..decisions._ladders import Ladder, make_ladder
from ..metrics.inputs import node_probabilities
from ..opinions.explanation import NodeOpinion
from ..opinions.hyper_opinion import HyperOpinion
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
        # The longest unused first, each with the client who asked for it.
        self._kept: OrderedDict[str, tuple[str, Prediction]] = OrderedDict()
        self._n_bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, prediction: Prediction, client: str) -> str:
        """Keep a prediction and return its id.

        If there is no room, forget some of the client that has most: a flood of one client does
        not push out what others need.
        """
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[key] = client, prediction
            self._n_bytes[client] += prediction.n_bytes
            while len(self._kept) > 1 and (
                self._n_bytes.total() > self.max_bytes or len(self._kept) > _MAX_PREDICTIONS
            ):
                self._forget_one(key)
        return key

    def _forget_one(self, latest: str) -> None:
        """Forget what the client with most has not used the longest; never the latest."""
        for client, _ in self._n_bytes.most_common():
            own = (key for key, (owner, _) in self._kept.items() if owner == client)
            oldest = next(own)
            if oldest != latest:
                break
        self._n_bytes[client] -= self._kept.pop(oldest)[1].n_bytes
        if not self._n_bytes[client]:
            del self._n_bytes[client]

    def get(self, key: str) -> Prediction | None:
        """Return a prediction, None if it is not (or no longer) kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][1]
