"""Several processes that train one network: who this process is, and what they tell each other.

    torchrun --nproc-per-node=2 -m trainers.alphazero ...

`torchrun` starts every process alike and tells each by environment variables which one it is. The
first, the *leader*, owns the run folder, the evaluations and the console. Gradients go over NCCL
between cards and over Gloo between CPUs; everything else, which is little, goes over Gloo.
`ALONE` is a process that was started without `torchrun`: nothing is sent, nothing is waited for.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from pylos_env.errors import PylosError
from trainers.network import choose_device

Value = TypeVar("Value")

PATIENCE: Final = timedelta(days=2)
"""How long one process waits for the others, which wait while the leader evaluates. A process that
dies ends the others through `torchrun`, not through this."""


@dataclass(frozen=True)
class Rank:
    """Which of the processes that train together this one is."""

    index: int = 0
    count: int = 1
    local: int = 0
    """Number on this machine: the number of its card."""

    @property
    def leads(self) -> bool:
        return self.index == 0

    def device(self, name: str) -> torch.device:
        """The device of this process: each has a card of its own."""
        device = choose_device(name)
        if device.type != "cuda" or self.count == 1 or ":" in name:
            return device
        if self.local >= torch.cuda.device_count():
            raise PylosError(
                f"device: {torch.cuda.device_count()} cards for process {self.local + 1} of this "
                f"machine; start fewer with --nproc-per-node"
            )
        return torch.device("cuda", self.local)

    def share(self, total: int) -> int:
        """The part of each process in a number that all share evenly."""
        return max(1, total // self.count)

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all processes."""
        if self.count == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        found: list[float] = tensor.tolist()
        return found

    def from_leader(self, value: Value | None) -> Value:
        """The leader's value, in every process."""
        if self.count == 1:
            assert value is not None
            return value
        box: list[Any] = [_to_bytes(value)]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        found: Value = _from_bytes(box[0])
        return found

    def gathered(self, value: Value) -> list[Value]:
        """Every process's value, by rank, for the leader; nothing for the others."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count if self.leads else []
        dist.gather_object(_to_bytes(value), found if self.leads else None, dst=0)
        return [_from_bytes(data) for data in found]

    def scattered(self, values: Sequence[Value] | None) -> Value:
        """The leader has a value for each process; returns this process's own."""
        if self.count == 1:
            assert values is not None
            return values[0]
        box: list[Any] = [None]
        sent = None if values is None else [_to_bytes(value) for value in values]
        dist.scatter_object_list(box, sent, src=0)
        found: Value = _from_bytes(box[0])
        return found

    @torch.no_grad()
    def average_statistics(self, network: nn.Module) -> None:
        """Make running statistics those of all batches: each process has seen its own."""
        if self.count == 1:
            return
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                for statistic in (module.running_mean, module.running_var):
                    assert statistic is not None
                    dist.all_reduce(statistic)
                    statistic /= self.count


def _to_bytes(value: object) -> bytes:
    """By torch's own format: plain pickles of its tensors know fewer types of numbers."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _from_bytes(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


ALONE: Final = Rank()


def rank_here() -> Rank:
    """Who `torchrun` says this process is; `ALONE` without it."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return ALONE
    environ = os.environ
    count = int(environ["WORLD_SIZE"])
    return Rank(int(environ["RANK"]), count, int(environ.get("LOCAL_RANK", "0")))


@contextmanager
def joined() -> Iterator[Rank]:
    """Meet the other processes that `torchrun` has started, and part from them at the end."""
    rank = rank_here()
    if rank.count == 1:
        yield ALONE
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(rank.local % torch.cuda.device_count())
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield rank
    finally:
        dist.destroy_process_group()
