"""Muon, an optimiser of matrices, for many small ones at once.

The mean gradient of a matrix is replaced by the nearest matrix whose singular values are all about
1 (five Newton-Schulz steps find it with products of matrices alone), so that a step moves it in all
directions alike. It does what `torch.optim.Muon` does, which takes one matrix after the other: here
a parameter may be a stack of them, and all of one shape are worked on together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor

from trainers.network import fast_dtype

MOMENTUM: Final = 0.95
STEPS: Final = 5
FACTORS: Final = (3.4445, -4.7750, 2.0315)
"""Of a matrix, its third and its fifth power: they push singular values between 0 and 1 to about 1
fast."""


class Muon(torch.optim.Optimizer):
    """For parameters [rows, columns] and stacks of such matrices [number, rows, columns]."""

    def __init__(
        self, params: Iterable[dict[str, Any]], lr: float = 1e-3, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for matrices in group["params"]:
                if matrices.grad is not None:
                    alike.setdefault(matrices.shape, []).append(matrices)
            for params in alike.values():
                self._step(params, group["lr"], group["weight_decay"])

    def _step(self, params: list[Tensor], rate: float, decay: float) -> None:
        """Of parameters of one shape."""
        wanted = []
        for matrices in params:
            state, gradient = self.state[matrices], matrices.grad
            assert gradient is not None
            if not state:
                state["momentum_buffer"] = torch.zeros_like(matrices)
            mean = state["momentum_buffer"].lerp_(gradient, 1 - MOMENTUM)
            wanted.append(gradient.lerp(mean, MOMENTUM))
        rows, columns = params[0].shape[-2:]
        moved = orthogonal(torch.stack(wanted).reshape(-1, rows, columns))
        step = -rate * max(1.0, rows / columns) ** 0.5
        for matrices, move in zip(params, moved.chunk(len(params)), strict=True):
            matrices.mul_(1 - rate * decay)
            matrices.add_(move.reshape(matrices.shape), alpha=step)


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [number, rows, columns] with all their singular values moved to about 1."""
    tall = matrices.shape[1] > matrices.shape[2]
    fast = fast_dtype(matrices.device) == torch.bfloat16
    wide = (matrices.mT if tall else matrices).to(torch.bfloat16 if fast else torch.float32)
    wide = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=1e-7)
    first, third, fifth = FACTORS
    for _ in range(STEPS):
        gram = wide @ wide.mT
        higher = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        wide = torch.baddbmm(wide, higher, wide, beta=first)
    return (wide.mT if tall else wide).float()
