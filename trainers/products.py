"""Products of matrices on a CPU, by the faster of the two libraries that torch has for them.

torch's own layers give float32 to MKL, which uses the wide registers of its maker's processors
only: on others oneDNN takes half the time. In bfloat16 they use oneDNN themselves, but cannot do
what follows a product in the same go. Both are what torch's compiler would call.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

LARGE: Final = 1 << 13
"""Weights from which on a product in float32 is worth oneDNN's longer way to begin. It depends on
nothing else, so that a position is not rounded otherwise in a large batch than in a small one."""
ONEDNN: Final[bool] = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """A linear layer, and only what is positive of it where `relu` says so; learns nothing."""
    worth_it = (
        weight.numel() >= LARGE if rows.dtype == torch.float32 else rows.dtype == torch.bfloat16
    )
    if ONEDNN and worth_it:
        after = "relu" if relu else "none"
        made: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, after, [], "")
        return made
    plain = functional.linear(rows, weight, bias)
    return plain.relu_() if relu else plain
