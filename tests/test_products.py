"""Products of matrices on a CPU: the same as torch's layers, by either library."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from trainers import products
from trainers.products import LARGE, linear


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("inputs", [33, 256])
def test_a_linear_layer(
    monkeypatch: pytest.MonkeyPatch,
    onednn: bool,
    relu: bool,
    biased: bool,
    dtype: torch.dtype,
    inputs: int,
) -> None:
    """Weights on both sides of the size from which on oneDNN is asked for float32."""
    assert 33 * 128 < LARGE < 256 * 128
    monkeypatch.setattr(products, "ONEDNN", products.ONEDNN and onednn)
    generator = torch.Generator().manual_seed(0)
    rows, weight, bias = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((17, inputs), (128, inputs), (128,))
    )
    expected = functional.linear(rows.double(), weight.double(), bias.double() if biased else None)
    expected = expected.relu() if relu else expected
    with torch.inference_mode():
        found = linear(rows, weight, bias if biased else None, relu)
    assert found.dtype == dtype
    tolerance = 0.01 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=10 * tolerance)
