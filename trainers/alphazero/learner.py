"""The learner: one network, its optimiser, its averaged weights, and one step after the other."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.alphazero.config import LearnerConfig
from trainers.alphazero.replay import Batch
from trainers.network import Output, PolicyValueNetwork, masked, mixed_precision

SMALLEST: Final = -60.0
"""Log-probabilities below it are as good as none."""


class Losses(NamedTuple):
    """Means over a batch."""

    policy: Tensor
    value: Tensor
    entropy: Tensor  # of the network's policy over legal actions, in nats


class StepReport(NamedTuple):
    """What one learning step did."""

    loss: float
    policy_loss: float
    value_loss: float
    entropy: float
    grad_norm: float
    learning_rate: float


def losses_of(output: Output, batch: Batch) -> Losses:
    """Cross-entropy of the policies over legal actions, and the value's loss where it is known."""
    log_policy = masked(output.logits.float(), batch.mask).log_softmax(dim=-1)
    policy = -(batch.policy * log_policy).sum(dim=-1).mean()
    shares = log_policy.detach().clamp(min=SMALLEST)  # exp is slow where it underflows
    entropy = -(shares.exp() * shares).sum(dim=-1).mean()
    known = batch.weight.sum().clamp(min=1)
    if output.wdl is None:
        errors = (output.value.float() - batch.value) ** 2
    else:
        errors = functional.cross_entropy(
            output.wdl.float(), wdl_targets(batch.value), reduction="none"
        )
    return Losses(policy, (errors * batch.weight).sum() / known, entropy)


def wdl_targets(value: Tensor) -> Tensor:
    """Chances of winning, drawing and losing whose difference is the value."""
    win, loss = value.clamp(min=0), (-value).clamp(min=0)
    return torch.stack((win, 1 - win - loss, loss), dim=-1)


class Learner:
    """Learns from batches; `playing` is the averaged network that plays and is saved."""

    def __init__(
        self, network: PolicyValueNetwork, config: LearnerConfig, device: torch.device
    ) -> None:
        self.config = config
        self.device = device
        self.network = network.to(device)
        self.playing = copy.deepcopy(self.network).eval()
        self.steps = 0
        matrices = [p for p in self.network.parameters() if p.ndim > 1]
        others = [p for p in self.network.parameters() if p.ndim <= 1]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            fused=device.type in ("cpu", "cuda"),
        )
        self._precision = "auto" if config.amp else "float32"
        self._forward: Callable[[Tensor], Output] = self.network
        if config.compile and device.type == "cuda":
            self._forward = cast(Callable[[Tensor], Output], torch.compile(self.network))

    def learning_rate(self, progress: float) -> float:
        """The rate after a warm-up, at a share of the whole run."""
        config = self.config
        rate = config.learning_rate
        if config.schedule == "cosine":
            fall = (1 + math.cos(math.pi * min(1.0, progress))) / 2
            rate *= config.final_share + (1 - config.final_share) * fall
        return rate * min(1.0, (self.steps + 1) / (config.warmup + 1))

    def step(self, batch: Batch, progress: float) -> StepReport:
        """One step of the optimiser; `progress` is the share of the run that is over."""
        config = self.config
        rate = self.learning_rate(progress)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.network.train()
        self.optimiser.zero_grad(set_to_none=True)
        sums = torch.zeros(4)
        size = len(batch.value) // config.accumulate
        for begin in range(0, size * config.accumulate, size):
            part = Batch(*(tensor[begin : begin + size].to(self.device) for tensor in batch))
            with mixed_precision(self.device, self._precision):
                output = self._forward(part.observation)
            losses = losses_of(output, part)
            loss = losses.policy + config.value_weight * losses.value
            (loss / config.accumulate).backward()  # type: ignore[no-untyped-call]
            sums += torch.stack([loss, *losses]).detach().cpu() / config.accumulate
        clip = config.clip if config.clip > 0 else math.inf
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), clip)
        self.optimiser.step()
        self.steps += 1
        self._average()
        total, policy, value, entropy = sums.tolist()
        return StepReport(total, policy, value, entropy, float(norm), rate)

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
            "optimiser": self.optimiser.state_dict(),
            "steps": self.steps,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.playing.load_state_dict(state["playing"])
        fused = self.optimiser.defaults["fused"]
        self.optimiser.load_state_dict(state["optimiser"])
        for group in self.optimiser.param_groups:
            group["fused"] = fused  # of this device, not of the one that saved
        self.steps = state["steps"]
