"""HENNClassifier: evidence for leaves and for groups of leaves."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, ClassVar

import joblib
import numpy as np
import numpy.typing as npt

from ..heads.base import TreeHead
from ..heads.evidential import HENNHead
from ..taxonomy.taxonomy import Taxonomy
from ..training.recipe import Hardware, Recipe
from ..utils.sklearn_tools import Interval
from .base import DEFAULT_L2
from .evidential_baselines import EvidentialBaseline
from .h2edl import EVIDENCE_SCALE, INITIAL_VACUITY, KL_RAMP, KL_WEIGHT, evidence_options


class HENNClassifier(EvidentialBaseline):
    """Evidence for leaves and for groups of leaves: a grouped Dirichlet (HENN) [1]_.

    Labels of every node are native: a group's label teaches the evidence for the group.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, initial_vacuity, kl_weight, kl_per_child, kl_ramp
        As in :class:`FlatEDLClassifier`, with the same defaults.
    group_level : str or int, default=None
        Name or depth of the level whose nodes are the groups; None means the first level that
        has two or more nodes.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    Attributes
    ----------
    groups_ : list
        Labels of the groups.

    References
    ----------
    .. [1] Li, Li, Ock, Guo, Kaplan, Jøsang, Chen, Jeong, Chen: Hyper evidential deep learning to
       quantify composite classification uncertainty. ICLR 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import HENNClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 3)) + 3 * np.repeat(np.eye(3), 30, axis=0)
    >>> y = np.repeat(["lynx", "puma", "dog"], 30)
    >>> y[:10] = "cat"
    >>> clf = HENNClassifier(tree, backbone=None).fit(X, y)
    >>> clf.groups_
    ['cat', 'dog']
    >>> belief, vacuity = clf.predict_opinion(X)
    >>> in_groups = clf.predict_group_belief(X)
    >>> bool(abs(belief.sum(axis=1) + in_groups.sum(axis=1) + vacuity - 1).max() < 1e-9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        "group_level": [str, Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        evidence: str = "softplus",
        evidence_scale: float | str = EVIDENCE_SCALE,
        initial_vacuity: float = INITIAL_VACUITY,
        kl_weight: float = KL_WEIGHT,
        kl_per_child: bool = True,
        kl_ramp: float = KL_RAMP,
        group_level: str | int | None = None,
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        image_size: int | tuple[int, int] | None = None,
        on_bad_image: str = "error",
        solver: str = "auto",
        l2: float = DEFAULT_L2,
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        recipe: Recipe | None = None,
        validation_fraction: float | None = 0.1,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        hardware: Hardware | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            taxonomy,
            evidence=evidence,
            evidence_scale=evidence_scale,
            initial_vacuity=initial_vacuity,
            kl_weight=kl_weight,
            kl_per_child=kl_per_child,
            kl_ramp=kl_ramp,
            backbone=backbone,
            weights=weights,
            finetune=finetune,
            image_size=image_size,
            on_bad_image=on_bad_image,
            solver=solver,
            l2=l2,
            tol=tol,
            max_iter=max_iter,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            recipe=recipe,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            memory=memory,
            n_workers=n_workers,
            hardware=hardware,
            random_state=random_state,
            verbose=verbose,
        )
        self.group_level = group_level

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return HENNHead(
            taxonomy,
            n_features,
            group_nodes=_group_nodes(taxonomy, self.group_level),
            **evidence_options(self),
        )

    @property
    def groups_(self) -> list[Any]:
        """Labels of the groups, in tree order."""
        nodes = _group_nodes(self.taxonomy_, self.group_level)
        return self.taxonomy_.labels(nodes)

    def predict_group_belief(self, X: Any) -> npt.NDArray[Any]:
        """Return the belief in each group that is in none of its leaves.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`.

        Returns
        -------
        belief : ndarray of shape (n_samples, n_groups)
            Columns in the order of `groups_`. With what :meth:`predict_opinion` returns, a row
            sums to 1.
        """
        return self._masses(X)[:, self.taxonomy_.n_leaves : -1]


def _group_nodes(taxonomy: Taxonomy, level: str | int | None) -> npt.NDArray[np.int64]:
    if level is None:
        # Nodes above the first that branches are alone on their level.
        level = int(taxonomy.depths[taxonomy.branching_nodes[0]]) + 1
    return taxonomy.level_nodes(level)
