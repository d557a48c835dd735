"""The learner: one network, its optimiser, its averaged weights, and one step after the other.

With several processes (`distributed`) each learns from its part of every batch; gradients are
averaged on their way, so that all keep the same weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributed import all_reduce
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from pylos_env.errors import PylosError
from trainers.alphazero.config import LearnerConfig
from trainers.alphazero.muon import Muon
from trainers.alphazero.policy_loss import policy_loss
from trainers.alphazero.replay import Batch
from trainers.distributed import ALONE, Rank
from trainers.network import (
    LINEAR_HEADS,
    Output,
    PolicyValueNetwork,
    ResidualBlock,
    masked,
    mixed_precision,
)

MATRIX_DECAY: Final = 0.01
"""Weight decay of the matrices that Muon learns."""
OWN_SETTINGS: Final[tuple[str, ...]] = ("top_rate", "weight_decay", "fused")
"""Of a group of parameters: as the config and the device of a run have them, not as those had it
that it goes on from."""
SMALLEST: Final = -60.0
"""Log-probabilities below it are as good as none."""


class Losses(NamedTuple):
    """Means over a batch, and its errors one by one."""

    policy: Tensor
    value: Tensor
    entropy: Tensor  # of the network's policy over legal actions, in nats
    errors: Tensor  # [batch]: how far each value is from its target; 1 where that is not known


class StepReport(NamedTuple):
    """What one learning step did."""

    loss: float
    policy_loss: float
    value_loss: float
    entropy: float
    grad_norm: float
    learning_rate: float


class Begun(NamedTuple):
    """A step that the device may still be at."""

    numbers: Tensor  # [5]: the first five of its report
    errors: Tensor  # [batch]: see `Losses`
    learning_rate: float


def losses_of(output: Output, batch: Batch, known: Tensor | None = None) -> Losses:
    """Cross-entropy of the policies over legal actions, and the value's loss where it is known.

    `known` is the number of known values that the loss is the mean of, if not those of the batch.
    """
    log_policy = masked(output.logits.float(), batch.mask).log_softmax(dim=-1)
    policy = -(batch.policy * log_policy).sum(dim=-1).mean()
    shares = log_policy.detach().clamp(min=SMALLEST)  # exp is slow where it underflows
    entropy = -(shares.exp() * shares).sum(dim=-1).mean()
    return Losses(policy, value_loss_of(output, batch, known), entropy, errors_of(output, batch))


def errors_of(output: Output, batch: Batch) -> Tensor:
    errors = (output.value.detach().float() - batch.value).abs()
    return torch.where(batch.weight > 0, errors, 1.0)


def value_loss_of(output: Output, batch: Batch, known: Tensor | None = None) -> Tensor:
    if known is None:
        known = batch.weight.sum().clamp(min=1)
    if output.wdl is None:
        errors = (output.value.float() - batch.value) ** 2
    else:
        errors = functional.cross_entropy(
            output.wdl.float(), wdl_targets(batch.value), reduction="none"
        )
    return (errors * batch.weight).sum() / known


def legal_losses_of(
    network: PolicyValueNetwork, batch: Batch, known: Tensor | None = None
) -> Losses:
    """The same on a CPU for a network with a linear policy head, which it asks for less."""
    features = network.body(batch.observation)
    head = network.policy
    assert isinstance(head, LINEAR_HEADS)
    policy, entropy = policy_loss(features, head.weight, head.bias, batch.mask, batch.policy)
    output = network.valued(features)
    return Losses(policy, value_loss_of(output, batch, known), entropy, errors_of(output, batch))


def reports_of(begun: Sequence[Begun]) -> list[StepReport]:
    """What steps did; waits for the device, once."""
    if not begun:
        return []
    reports = []
    rows = torch.stack([step.numbers for step in begun]).tolist()
    for (loss, policy, value, entropy, norm), step in zip(rows, begun, strict=True):
        reports.append(StepReport(loss, policy, value, entropy, norm, step.learning_rate))
    return reports


def wdl_targets(value: Tensor) -> Tensor:
    """Chances of winning, drawing and losing whose difference is the value."""
    win, loss = value.clamp(min=0), (-value).clamp(min=0)
    return torch.stack((win, 1 - win - loss, loss), dim=-1)


def make_optimisers(
    network: PolicyValueNetwork, config: LearnerConfig, device: torch.device
) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the matrices of residual blocks.

    Each group of parameters keeps its highest rate as `top_rate`.
    """
    inner: list[nn.Parameter] = []
    if config.matrix_rate:
        blocks = [block for block in network.modules() if isinstance(block, ResidualBlock)]
        inner = [p for block in blocks for p in block.parameters() if p.ndim in (2, 3)]
    taken = {id(p) for p in inner}
    matrices = [p for p in network.parameters() if p.ndim > 1 and id(p) not in taken]
    others = [p for p in network.parameters() if p.ndim <= 1]
    top = {"top_rate": config.learning_rate}
    adam = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.weight_decay, **top},
            {"params": others, "weight_decay": 0.0, **top},
        ],
        fused=device.type in ("cpu", "cuda"),
    )
    if not inner:
        return [adam]
    group = {"params": inner, "top_rate": config.matrix_rate}
    return [adam, Muon([group], weight_decay=MATRIX_DECAY)]


class Learner:
    """Learns from batches; `playing` is the averaged network that plays and is saved."""

    def __init__(
        self,
        network: PolicyValueNetwork,
        config: LearnerConfig,
        device: torch.device,
        rank: Rank = ALONE,
    ) -> None:
        self.config = config
        self._rank = rank
        self.device = device
        self.network = network.to(device)
        self.playing = copy.deepcopy(self.network).eval()
        self.steps = 0
        self.optimisers = make_optimisers(self.network, config, device)
        self._precision = "auto" if config.amp else "float32"
        self._parallel: DistributedDataParallel | None = None
        if rank.count > 1:
            devices = [device] if device.type == "cuda" else None
            self._parallel = DistributedDataParallel(self.network, device_ids=devices)
        self._forward: Callable[[Tensor], Output] = self._parallel or self.network
        linear = isinstance(self.network.policy, LINEAR_HEADS)
        self._legal_only = linear and device.type == "cpu" and self._parallel is None
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
            if config.compile:
                self._forward = cast(Callable[[Tensor], Output], torch.compile(self._forward))

    def rate_share(self, progress: float) -> float:
        """The share of the highest rates after a warm-up, at a share of the whole run."""
        config = self.config
        share = 1.0
        if config.schedule == "cosine":
            fall = (1 + math.cos(math.pi * min(1.0, progress))) / 2
            share = config.final_share + (1 - config.final_share) * fall
        return share * min(1.0, (self.steps + 1) / (config.warmup + 1))

    def step(self, batch: Batch, progress: float) -> StepReport:
        """One step of the optimiser; `progress` is the share of the run that is over."""
        return reports_of([self.begin_step(batch, progress)])[0]

    def begin_step(self, batch: Batch, progress: float) -> Begun:
        """The same without waiting for the device, so that the next batch can be made meanwhile."""
        config = self.config
        share = self.rate_share(progress)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["top_rate"] * share
        self.network.train()
        self.network.zero_grad(set_to_none=True)
        parts = config.accumulate
        sums, errors = torch.zeros(4, device=self.device), []
        known = self._known(batch.weight.to(self.device))
        size = len(batch.value) // parts
        for number in range(parts):
            begin = number * size
            part = Batch(*(tensor[begin : begin + size].to(self.device) for tensor in batch))
            with self._gradients_stay_here() if number + 1 < parts else nullcontext():
                losses = self._losses(part, known)
                loss = losses.policy + config.value_weight * losses.value
                (loss / parts).backward()  # type: ignore[no-untyped-call]
            means = (loss, losses.policy, losses.value, losses.entropy)
            sums += torch.stack(means).detach() / parts
            errors.append(losses.errors)
        clip = config.clip if config.clip > 0 else math.inf
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), clip)
        for optimiser in self.optimisers:
            optimiser.step()
        self._rank.average_statistics(self.network)
        self.steps += 1
        self._average()
        rate = config.learning_rate * share
        return Begun(torch.cat([sums, norm.detach().reshape(1)]), torch.cat(errors), rate)

    def _losses(self, batch: Batch, known: Tensor) -> Losses:
        with mixed_precision(self.device, self._precision):
            if self._legal_only:
                return legal_losses_of(self.network, batch, known)
            output = self._forward(batch.observation)
        return losses_of(output, batch, known)

    def _known(self, weight: Tensor) -> Tensor:
        """The known values of a batch, all processes' parts together, for each part of it."""
        known = weight.sum()
        if self._rank.count > 1:
            all_reduce(known)
        return known.clamp(min=1) / (self.config.accumulate * self._rank.count)

    def _gradients_stay_here(self) -> AbstractContextManager[object]:
        """Only the last part of a batch sends the gradients of all parts."""
        if self._parallel is None:
            return nullcontext()
        return cast(AbstractContextManager[object], self._parallel.no_sync())

    @torch.no_grad()
    def _average(self) -> None:
        """Move the playing weights towards the learnt ones; counts and statistics are copied."""
        decay = min(self.config.average, self.steps / (self.steps + 10))
        pairs = zip(self.playing.parameters(), self.network.parameters(), strict=True)
        for mine, theirs in pairs:
            mine.lerp_(theirs, 1 - decay)
        for own, learnt in zip(self.playing.buffers(), self.network.buffers(), strict=True):
            own.copy_(learnt)

    def state(self) -> dict[str, Any]:
        return {
            "network": dict(self.network.state_dict()),
            "playing": dict(self.playing.state_dict()),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "steps": self.steps,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        try:
            self.network.load_state_dict(state["network"])
            self.playing.load_state_dict(state["playing"])
        except RuntimeError as error:
            raise PylosError(f"the run was saved with a network of another make: {error}") from None
        if len(state.get("optimisers", ())) != len(self.optimisers):
            raise PylosError(
                "the run was saved with other optimisers: learner.matrix_rate says which, and "
                "versions before it existed cannot be resumed"
            )
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            settings = [
                {name: group[name] for name in OWN_SETTINGS if name in group}
                for group in optimiser.param_groups
            ]
            optimiser.load_state_dict(saved)
            for group, own in zip(optimiser.param_groups, settings, strict=True):
                group.update(own)
        self.steps = state["steps"]
