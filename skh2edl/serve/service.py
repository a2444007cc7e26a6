"""A model at work: files in, predictions out, one batch at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException

from .. import __version__
from ..estimators.model_card import ModelCard
from ..images.sources import PreparedSource
from ..images.transforms import ImageTransform, make_transform
from ..report.hedging import threshold_for
from ..report.predictions import read_predictions
from ..taxonomy.taxonomy import Taxonomy
from .app import Limits
from .predictions import Prediction, PredictionStore
from .schemas import (
    Guarantee,
    Hedge,
    HeldOutFacts,
    ModelFacts,
    PredictionView,
    Stops,
    TreeFacts,
    UploadLimits,
)
from .uploads import Picture, Upload, declared_pixels, make_picture, upload_formats
from .views import level_names, prediction_view, sides

T = TypeVar("T")

# Target accuracies of the slider; the last two need many held-out images.
TARGETS = (*(hundredth / 100 for hundredth in range(50, 100)), 0.995, 0.999)
_MOST_NAMES = 4
# Images that are decoded at once. A large one takes up to 20 bytes a pixel meanwhile.
_DECODED_AT_ONCE = 3
_LARGE_AT_ONCE = 1
_LARGE = 16_000_000


class Service:
    """Classify images with one model.

    Parameters
    ----------
    estimator : classifier
        Fitted on images.
    card : ModelCard
        The card of its file.
    name : str
        Its name.
    limits : Limits
        How much may be sent and kept.
    """

    def __init__(self, estimator: Any, card: ModelCard, name: str, limits: Limits) -> None:
        self.estimator, self.card, self.name, self.limits = estimator, card, name, limits
        self.tree: Taxonomy = estimator.taxonomy_
        self.is_evidential = hasattr(estimator, "predict_hyper_opinion")
        self.store = PredictionStore(limits.max_kept_bytes)
        self._decoding = CapacityLimiter(_DECODED_AT_ONCE)
        self._decoding_large = CapacityLimiter(_LARGE_AT_ONCE)
        # One batch at a time: more would only take the cores and the memory from each other.
        self._predicting = CapacityLimiter(1)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn_of(self, client: str) -> asyncio.Lock:
        """Return what a client's requests wait for: each other, so that many cost others no more.

        Parameters
        ----------
        client : str
            Who sends them.
        """
        return self._turns.setdefault(client, asyncio.Lock())

    @cached_property
    def facts(self) -> ModelFacts:
        """The model, its hedge and the limits."""
        tree, limits = self.tree, self.limits
        return ModelFacts(
            name=self.name,
            method=type(self.estimator).__name__,
            is_evidential=self.is_evidential,
            version=__version__,
            tree=TreeFacts(n_leaves=tree.n_leaves, n_nodes=tree.n_nodes, levels=level_names(tree)),
            hedge=self._hedge(),
            held_out=self._held_out(),
            limits=UploadLimits(
                max_bytes=limits.max_upload_bytes,
                max_files=limits.max_files,
                max_pixels=limits.max_pixels,
                formats=list(upload_formats()),
            ),
            notes=self.card.notes,
        )

    def _hedge(self) -> Hedge | None:
        n_images = self.card.needed.size
        thresholds = [(target, threshold_for(self.card.needed, target)) for target in TARGETS]
        guarantees = [
            Guarantee(target_accuracy=target, threshold=threshold, stops=self._stops(threshold))
            for target, threshold in thresholds
            if math.isfinite(threshold)
        ]
        if not guarantees:
            return None
        return Hedge(
            n_images=n_images,
            unit="subject" if self.card.counts_subjects else "photograph",
            is_exact=self.card.notes.get("hedge guarantee") == "exact",
            most=n_images / (n_images + 1),
            guarantees=guarantees,
        )

    def _stops(self, threshold: float) -> Stops:
        if self.card.held_out is None:
            return []
        stops = self.card.held_out.stops(threshold)
        # To name the only class of a level says nothing.
        top = int(self.tree.depths[self.tree.last_of_chain[0]])
        stops[0] = stops[: top + 1].sum(axis=0)
        stops[1 : top + 1] = 0
        return [(n, right) for n, right in stops.tolist()]

    def _held_out(self) -> HeldOutFacts | None:
        held, needed, n_levels = self.card.held_out, self.card.needed, self.tree.n_levels
        if held is not None and held.scores.shape[1] == n_levels:
            stops = [self._stops(hundredth / 100) for hundredth in range(100)]
            n_right = held.right_at_levels().tolist()
            return HeldOutFacts(n_images=len(held.n_right), n_right=n_right, stops=stops)
        if not needed.size or self.card.counts_subjects:
            return None
        # An image that needs no threshold has the right leaf.
        finest = [*[None] * (n_levels - 1), int((needed == 0).sum())]
        return HeldOutFacts(n_images=needed.size, n_right=finest, stops=[])

    def threshold(self, target_accuracy: float | None, threshold: float | None) -> float | None:
        """Return the least probability of hedged predictions: as given, or from a target."""
        if target_accuracy is None:
            return threshold
        if threshold is not None:
            raise HTTPException(422, "Give target_accuracy or threshold, not both.")
        if not self.card.needed.size:
            raise HTTPException(
                422,
                "The model has no hedge, so no accuracy can be guaranteed. Set it with skh2edl "
                "calibrate, or give a threshold.",
            )
        found = threshold_for(self.card.needed, target_accuracy)
        if math.isinf(found):
            n_images = self.card.needed.size
            raise HTTPException(
                422,
                f"The hedge was set on {self.card.hedge_size}, with which at most "
                f"{n_images / (n_images + 1):.3f} can be guaranteed, got {target_accuracy:g}.",
            )
        return found

    @cached_property
    def transform(self) -> ImageTransform:
        """What brings images to the size of the network."""
        return make_transform(self.estimator.network_.backbone.data_config)

    async def prepare(self, uploads: Sequence[Upload]) -> list[Picture]:
        """Decode images, in turns with other requests."""
        limits, n_pixels = self.limits, 0
        pictures = []
        for upload in uploads:
            declared = await _in_thread(partial(declared_pixels, upload), self._decoding)
            if declared <= limits.max_pixels:
                n_pixels += declared
            if n_pixels > limits.max_request_pixels:
                error = (
                    f"{upload.name!r} is one too many: the images of a request may have "
                    f"{limits.max_request_pixels / 1e6:g} megapixels in all. Send it in another."
                )
                pictures.append(Picture(upload.name, None, error))
                continue
            is_large = _LARGE < declared <= limits.max_pixels
            turn = self._decoding_large if is_large else self._decoding
            make = partial(make_picture, upload, self.transform, limits.max_pixels)
            pictures.append(await _in_thread(make, turn))
        return pictures

    async def predict(
        self, pictures: Sequence[Picture], threshold: float | None, client: str
    ) -> list[PredictionView]:
        """Classify images, each on its own, and keep the predictions for the client."""
        work = partial(self._predict, pictures, threshold, client)
        return await _in_thread(work, self._predicting)

    def _predict(
        self, pictures: Sequence[Picture], threshold: float | None, client: str
    ) -> list[PredictionView]:
        pixels = [picture.pixels for picture in pictures if picture.pixels is not None]
        rows = iter(range(len(pixels)))
        if pixels:
            read = read_predictions(self.estimator, PreparedSource(np.stack(pixels)))
        predictions = []
        for picture in pictures:
            if picture.pixels is None:
                predictions.append(PredictionView(name=picture.name, error=picture.error))
                continue
            row = next(rows)
            # A copy: a view would keep the numbers of the whole batch alive.
            leaves = read.leaf_probability[row].copy()
            opinion = None if read.opinion is None else read.opinion[[row]]
            prediction = Prediction(self.tree, leaves, opinion, picture.name)
            predictions.append(self._keep(prediction, threshold, client))
        return predictions

    def _keep(self, prediction: Prediction, threshold: float | None, client: str) -> PredictionView:
        return prediction_view(prediction, self.store.add(prediction, client), threshold)

    def fuse(
        self, keys: Sequence[str], how: str | None, threshold: float | None, client: str
    ) -> PredictionView:
        """Classify several photographs of one subject together, by the ids of their predictions."""
        if len(set(keys)) != len(keys):
            raise HTTPException(422, "A prediction can be fused only once; an id is repeated.")
        parts = [self.kept(key) for key in keys]
        names = [part.name for part in parts]
        if len(names) > _MOST_NAMES:
            names = [*names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1} more"]
        name, n_images = " + ".join(names), sum(part.n_images for part in parts)
        opinions = [part.opinion for part in parts if part.opinion is not None]
        if not opinions:
            if how == "cumulative":
                raise HTTPException(
                    422,
                    "This model has no evidence to add up, only probabilities. Fuse with "
                    "'averaging'.",
                )
            leaves = np.mean([part.leaf_probability for part in parts], axis=0)
            prediction = Prediction(self.tree, leaves, None, name, n_images)
        else:
            first = opinions[0]
            joined = type(first).from_evidence(
                self.tree,
                np.concatenate([opinion.evidence for opinion in opinions]),
                first.base_rate,
                first.prior_weight,
            )
            fused = joined.fuse(np.zeros(len(joined), dtype=np.int64), how or "cumulative")
            leaves = fused.leaf_probability[0].astype(np.float64)
            prediction = Prediction(self.tree, leaves, fused, name, n_images)
        view = self._keep(prediction, threshold, client)
        view.conflict = sides(parts)
        return view

    def kept(self, key: str) -> Prediction:
        """Return the prediction of an id."""
        prediction = self.store.get(key)
        if prediction is None:
            raise HTTPException(
                404, "This prediction is no longer kept. Send the image again to get a new one."
            )
        return prediction


async def _in_thread(work: Callable[[], T], turn: CapacityLimiter) -> T:
    """Do some work beside the event loop, in turns; the server can end before it is done."""
    return await to_thread.run_sync(work, limiter=turn, abandon_on_cancel=True)
