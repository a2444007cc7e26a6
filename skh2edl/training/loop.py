"""The training loop: devices, precision, schedule, selection, checkpoint, resume, history."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from torch import Tensor, nn

from ..taxonomy.taxonomy import Taxonomy
from ..utils.hashing import hash_values, hash_weights
from ..utils.randomness import epoch_seed, isolated_rng
from .backbones import parameter_groups
from .checkpoints import CheckpointFile, copy_state
from .distributed import (
    SPAWNED,
    check_agreement,
    count_devices,
    gather_rows,
    make_fabric,
    naming_lost_processes,
    spawn,
)
from .network import Network, TrainingStep, UncastTargets
from .recipe import Hardware, Recipe, resolve_precision
from .samples import Samples, TrainingSet
from .selection import make_selection
from .sparse_adamw import SparseAdamW, clip_gradients
from .sync_batch_norm import BatchPart, naming_batches_of_one, synchronized_batch_norm

# Called with the network and the record of an epoch; True stops the training.
OnEpoch = Callable[[Network, dict[str, float]], bool]

# Of SGD; AdamW has none.
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Plan:
    """Everything that says how one run trains.

    Parameters
    ----------
    recipe : Recipe
        Optimiser, augmentation, selection.
    hardware : Hardware
        Where to train.
    max_epochs, batch_size : int
        Passes over the data at most, and samples of a step over all processes.
    learning_rate : float
        Of the optimiser, for the head.
    seed : int
        What all randomness of the loop derives from.
    first_progress, last_progress : float
        Where the run lies in the annealing of the loss: from 0 to 1 for a whole training.
    verbose : int
        0 is silent, 1 shows a bar over the epochs, 2 also one over the batches.
    """

    recipe: Recipe
    hardware: Hardware
    max_epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    first_progress: float = 0.0
    last_progress: float = 1.0
    verbose: int = 0

    def progress(self, epoch: float) -> float:
        """Return how much of the annealing is done after some epochs, with fractions."""
        fraction = epoch / self.max_epochs
        return self.first_progress + fraction * (self.last_progress - self.first_progress)


@dataclass
class Progress:
    """Where a run stands after some epochs; all of it goes into a checkpoint."""

    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
    best_score: float = -np.inf
    best_weights: dict[str, Any] | None = None
    stopped: bool = False


@dataclass(frozen=True)
class ValidationSet:
    """Samples that choose the epoch to keep.

    Parameters
    ----------
    samples : Samples
        The inputs.
    labels : ndarray of shape (n_samples,)
        Their labels.
    selection : str or callable
        As in `make_selection`.
    taxonomy : Taxonomy
        The tree.
    """

    samples: Samples
    labels: npt.NDArray[Any]
    selection: str | Callable[..., float]
    taxonomy: Taxonomy

    def make_score(self) -> Callable[[npt.NDArray[Any]], float]:
        """Return what scores log-probabilities of the leaves in tree order."""
        select = make_selection(self.selection, self.labels, self.taxonomy)

        def score(log_leaves: npt.NDArray[Any]) -> float:
            readable = ~np.isnan(log_leaves).any(axis=1)
            proba = np.exp(log_leaves.astype(np.float64))[:, self.taxonomy.leaf_order]
            proba[~readable] = 1 / proba.shape[1]
            return float(select(proba))

        return score


def identity_of_run(
    network: Network, data: TrainingSet, held_out: ValidationSet | None
) -> dict[str, str]:
    """Hash the data and the initial state, which must be those of the checkpoint to resume.

    Parameters
    ----------
    network, data, held_out
        As in :func:`train`.
    """
    validation = "" if held_out is None else held_out.samples.content_hash()
    return {
        "data": hash_values(data.samples.content_hash(), validation),
        "labels": hash_values(data.nodes, [] if held_out is None else held_out.labels.tolist()),
        "weights of samples": hash_values(data.weight),
        "initial weights": hash_weights(network),
    }


def train(
    network: Network,
    data: TrainingSet,
    plan: Plan,
    *,
    held_out: ValidationSet | None = None,
    checkpoint: CheckpointFile | None = None,
    on_epoch: OnEpoch | None = None,
) -> Progress:
    """Train a network and leave the best (or last) weights in it.

    Parameters
    ----------
    network : Network
        Trained in place; on the CPU before and after.
    data : TrainingSet
        What to train on.
    plan : Plan
        How to train.
    held_out : ValidationSet, default=None
        What selects the epoch that is kept. None keeps the last epoch.
    checkpoint : CheckpointFile, default=None
        Where to resume from, and what to write after each epoch.
    on_epoch : callable, default=None
        Called after each epoch with the network and its record, in the first process; True stops
        training.

    Returns
    -------
    progress : Progress
    """
    if held_out is not None:
        held_out.make_score()  # an unknown score is refused before any process starts
    if plan.hardware.strategy not in SPAWNED:
        return _train_here(network, plan, data, held_out, checkpoint, on_epoch)
    if on_epoch is not None:
        raise ValueError(
            f"Callbacks cannot follow the processes of strategy={plan.hardware.strategy!r}. Run a "
            "script with strategy='ddp', or take the callbacks away."
        )
    n_processes = count_devices(plan.hardware.accelerator, plan.hardware.devices)
    result = spawn(n_processes, _train_elsewhere, network, plan, data, held_out, checkpoint)
    network.load_state_dict(result["network"])
    network.eval()
    return Progress(**result["progress"])


def _train_elsewhere(network: Network, plan: Plan, *inputs: Any) -> dict[str, Any]:
    """Train in a spawned process and return its weights and progress."""
    joined = replace(plan, hardware=clone(plan.hardware).set_params(strategy="ddp"))
    progress = _train_here(network, joined, *inputs)
    return {"network": network.state_dict(), "progress": vars(progress)}


def _train_here(
    network: Network,
    plan: Plan,
    data: TrainingSet,
    held_out: ValidationSet | None,
    checkpoint: CheckpointFile | None,
    on_epoch: OnEpoch | None = None,
) -> Progress:
    """Train in this process, and together with others where the strategy says so."""
    where = plan.hardware
    precision = resolve_precision(where.precision)
    fabric = make_fabric(where.accelerator, where.devices, where.strategy, precision)
    with (
        naming_lost_processes(fabric),
        synchronized_batch_norm(network, fabric.world_size) as batch_part,
    ):
        if fabric.world_size > 1:
            identity = identity_of_run(network, data, held_out)
            check_agreement(fabric, identity | {"random_state": hash_values(plan.seed)})
        run = _Run(fabric, network, data, plan, held_out, batch_part)
        progress = run.all_epochs(checkpoint, on_epoch)
    network.to("cpu").eval()
    return progress


class _Run:
    """One training run in one process: the objects that its epochs use."""

    def __init__(
        self,
        fabric: Any,
        network: Network,
        data: TrainingSet,
        plan: Plan,
        held_out: ValidationSet | None,
        batch_part: BatchPart,
    ) -> None:
        from timm.utils.model_ema import ModelEmaV3

        self.fabric, self.network, self.data, self.plan = fabric, network, data, plan
        self.held_out, self.batch_part = held_out, batch_part
        self.score = None if held_out is None else held_out.make_score()
        self.loader = data.samples.training_loader(
            plan.batch_size, plan.seed, fabric.global_rank, fabric.world_size
        )
        self.n_batches = max(len(self.loader), 1)
        self.is_sparse = _has_sparse_gradient(network, plan, fabric.world_size)
        network.head.sparse_gradient = self.is_sparse
        self.optimizer: Any = _make_optimizer(network, plan, self.is_sparse, fabric.device.type)
        self.scheduler = _make_scheduler(self.optimizer, plan, self.n_batches)
        decay = plan.recipe.ema_decay
        self.ema = None if decay is None else ModelEmaV3(network, decay=decay)

    def all_epochs(
        self,
        checkpoint: CheckpointFile | None,
        on_epoch: OnEpoch | None,
    ) -> Progress:
        """Resume from the checkpoint, if there is one, and train to the end."""
        fabric, network, plan, ema = self.fabric, self.network, self.plan, self.ema
        progress = self._resume(checkpoint)
        step = TrainingStep(network)
        wrapped: Any = torch.compile(step) if plan.hardware.compile else step
        self.module, self.optimizer = fabric.setup(cast(nn.Module, wrapped), self.optimizer)
        if ema is not None:
            ema.to(fabric.device)
        trained = network if ema is None else ema.module

        epochs = range(progress.epoch, 0 if progress.stopped else plan.max_epochs)
        with _bar(epochs, plan.verbose > 0 and fabric.is_global_zero, "epoch") as bar:
            for epoch in bar:
                started = time.perf_counter()
                with isolated_rng(epoch_seed(plan.seed, epoch, fabric.global_rank)):
                    batch_losses = self._one_epoch(epoch)
                self._check_numbers(batch_losses, epoch)
                record = {"epoch": epoch, "loss": float(batch_losses.mean())}
                if self.held_out is not None:
                    record["val_score"] = self._validate(trained)
                    # Of epochs without a score the last is kept.
                    is_first = progress.best_weights is None or math.isnan(progress.best_score)
                    if is_first or record["val_score"] > progress.best_score:
                        progress.best_epoch, progress.best_score = epoch, record["val_score"]
                        progress.best_weights = copy_state(trained)
                record["learning_rate"] = self.optimizer.param_groups[-1]["lr"]
                record["seconds"] = time.perf_counter() - started
                progress.history.append(record)
                progress.epoch = epoch + 1
                progress.stopped = self._stops(progress, trained, record, on_epoch)
                if checkpoint is not None:
                    if fabric.is_global_zero:
                        checkpoint.save(self._state(progress))
                    fabric.barrier()  # all processes fail if the file was not written
                bar.set_postfix({key: f"{record[key]:.4g}" for key in record if key != "epoch"})
                if progress.stopped:
                    break

        if progress.best_weights is not None:
            network.load_state_dict(progress.best_weights)
        elif ema is not None:
            network.load_state_dict(ema.module.state_dict())
        return progress

    def _one_epoch(self, epoch: int) -> Tensor:
        """One pass over the data; no value is read back from the device before its end."""
        fabric, n_batches, clip_norm = self.fabric, self.n_batches, self.plan.recipe.clip_norm
        self.loader.set_epoch(epoch)
        batch_losses = []
        self.module.train()
        shown = self.plan.verbose > 1 and fabric.is_global_zero
        for batch, (inputs, positions) in enumerate(_bar(self.loader, shown)):
            self.scheduler.step_update(epoch * n_batches + batch)
            chosen = positions.numpy()  # NumPy would take a tensor of one element for a number
            weight = torch.as_tensor(self.data.weight[chosen], dtype=torch.float32)
            self.batch_part.is_empty = not len(chosen)
            if self.batch_part.is_empty:
                # A sample of weight 0 stands in: not every network takes an empty batch.
                inputs = inputs.new_zeros((1, *inputs.shape[1:]))
                chosen, weight = np.zeros(1, dtype=np.int64), torch.zeros(1)
            prepared = self.network.head.prepare(self.data.nodes[chosen]).to(fabric.device)
            weight = weight.to(fabric.device, non_blocking=True)
            inputs = inputs.to(fabric.device, non_blocking=True)
            with naming_batches_of_one(len(self.data.nodes), self.plan.batch_size):
                progress = self.plan.progress(epoch + batch / n_batches)
                losses = self.module(inputs, UncastTargets(prepared), progress)
            # Over all processes, so that their number does not change the step.
            total: Any = fabric.all_reduce(weight.sum(), reduce_op="sum")
            loss = (weight * losses).sum() / total.clamp(min=1e-12)
            # The strategy takes the mean over the processes, and their sum is wanted.
            fabric.backward(loss * fabric.world_size)
            if clip_norm is not None and self.is_sparse:
                clip_gradients(self.module.parameters(), clip_norm)
            elif clip_norm is not None:
                fabric.clip_gradients(
                    self.module, self.optimizer, max_norm=clip_norm, error_if_nonfinite=False
                )
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.ema is not None:
                self.ema.update(self.network, step=epoch * n_batches + batch)
            batch_losses.append(loss.detach())
        here = torch.stack(batch_losses) if batch_losses else torch.zeros(1, device=fabric.device)
        everywhere: Tensor = fabric.all_reduce(here, reduce_op="sum")
        return everywhere.cpu()

    def _validate(self, trained: Network) -> float:
        """Score the predictions of all processes, as one process would."""
        assert self.held_out is not None
        assert self.score is not None
        fabric, samples = self.fabric, self.held_out.samples
        own = samples
        if fabric.world_size > 1:
            own = samples.subset(np.arange(fabric.global_rank, len(samples), fabric.world_size))
        part = own.compute(trained, "leaf_log_probability", fabric.device)
        log_leaves = gather_rows(fabric, part, len(samples))
        # A scorer of the user's own need not be a pure function: one process asks it.
        return float(fabric.broadcast(self.score(log_leaves) if fabric.is_global_zero else 0.0))

    def _stops(
        self,
        progress: Progress,
        trained: Network,
        record: dict[str, float],
        on_epoch: OnEpoch | None,
    ) -> bool:
        is_asked = on_epoch is not None and self.fabric.is_global_zero
        stops = is_asked and bool(on_epoch(trained, record))  # type: ignore[misc]
        patience = self.plan.recipe.patience
        if patience is not None and self.held_out is not None:
            stops |= record["epoch"] - progress.best_epoch >= patience
        return bool(self.fabric.broadcast(stops))

    def _resume(self, checkpoint: CheckpointFile | None) -> Progress:
        """Read the checkpoint in one process, since the others may not have the file."""
        if checkpoint is None:
            return Progress()
        saved: Any = None
        if self.fabric.is_global_zero:
            try:
                saved = checkpoint.load()
                if saved is not None:
                    trained = [p for group in self.optimizer.param_groups for p in group["params"]]
                    own = self._state(Progress())
                    checkpoint.check(saved, own, trained, self.plan.max_epochs)
            except ValueError as error:
                saved = str(error)
        saved = self.fabric.broadcast(saved)
        if isinstance(saved, str):
            raise ValueError(saved)
        if saved is None:
            return Progress()
        self.network.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.fabric.strategy.precision.load_state_dict(saved["precision"])
        if self.ema is not None:
            self.ema.module.load_state_dict(saved["ema"])
        return Progress(**saved["progress"])

    def _state(self, progress: Progress) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {
            "progress": vars(progress).copy(),
            "network": copy_state(self.network),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "ema": None if self.ema is None else self.ema.module.state_dict(),
        }

    def _check_numbers(self, batch_losses: Tensor, epoch: int) -> None:
        """Refuse losses that are no numbers, and weights that the last step broke."""
        broken = torch.nonzero(~torch.isfinite(batch_losses)).flatten().tolist()
        state = self.network.state_dict().items()
        weights = [name for name, value in state if not bool(torch.isfinite(value).all())]
        if not broken and not weights:
            return
        # No loss shows what the last step did.
        batch = broken[0] if broken else self.n_batches - 1
        what = "The loss" if broken else f"Weights ({', '.join(weights[:3])})"
        members = self.loader.batch_sampler.members(batch)
        names = ", ".join(self.data.samples.describe(position) for position in members[:5])
        raise FloatingPointError(
            f"{what} became NaN or infinite in epoch {epoch}, batch {batch}, which begins with "
            f"{names}. Lower learning_rate, set clip_norm, or check these samples. The checkpoint "
            "of the epoch before, if there is one, is intact."
        )


def _make_optimizer(network: Network, plan: Plan, is_sparse: bool, device_type: str) -> Any:
    """Return the optimiser; with `is_sparse`, one for sparse gradients has the head's weights."""
    from timm import optim

    weight: Any = network.head.linear.weight
    groups = _groups(network, plan)
    for group in groups if is_sparse else ():
        group["params"] = [item for item in group["params"] if item is not weight]
    optimizer = optim.create_optimizer_v2(  # type: ignore[attr-defined]
        [group for group in groups if group["params"]],
        opt=plan.recipe.optimizer,  # timm's "sgd" is Nesterov's
        lr=plan.learning_rate,
        momentum=_MOMENTUM,
        # One pass over the weights instead of ten, on a processor too. Fabric cannot clip the
        # gradients of a fused optimiser that are scaled for half precision.
        fused=device_type in ("cuda", "cpu") and plan.hardware.precision != "16-mixed",
    )
    options = {"lr": plan.learning_rate, "weight_decay": plan.recipe.weight_decay}
    return SparseAdamW(optimizer, weight, **options) if is_sparse else optimizer


def _make_scheduler(optimizer: Any, plan: Plan, n_batches: int) -> Any:
    """Return timm's cosine schedule over the steps of all epochs."""
    from timm.scheduler.scheduler_factory import create_scheduler_v2

    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched="cosine",
        num_epochs=plan.max_epochs,
        warmup_epochs=plan.recipe.warmup_epochs,  # type: ignore[arg-type]
        warmup_lr=0.0,
        warmup_prefix=True,
        step_on_epochs=False,
        updates_per_epoch=n_batches,
    )
    return scheduler


def _has_sparse_gradient(network: Network, plan: Plan, n_processes: int) -> bool:
    """Return whether a step moves only the head's weights on the paths of its samples."""
    return (
        network.head.is_large
        and plan.recipe.optimizer == "adamw"
        # A running mean touches all weights, and processes exchange whole gradients.
        and plan.recipe.ema_decay is None
        and n_processes == 1
    )


def _groups(network: Network, plan: Plan) -> list[dict[str, Any]]:
    if network.backbone is not None:
        return parameter_groups(
            network.backbone,
            network.head,
            weight_decay=plan.recipe.weight_decay,
            layer_decay=plan.recipe.layer_decay,
            backbone_lr_scale=plan.recipe.backbone_lr_scale,
        )
    trained = [parameter for parameter in network.head.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": plan.recipe.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _bar(items: Any, shown: bool, unit: str = "batch") -> Any:
    from tqdm.auto import tqdm

    return tqdm(items, disable=not shown, unit=unit, leave=unit == "epoch")
