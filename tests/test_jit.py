"""How kernels are compiled: what those that count no references may not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.core.errors import NumbaError
from numba.core.runtime import _nrt_python, rtsys

from pylos_env._jit import jit, jit_view_sums, jit_views


@pytest.mark.parametrize("compiled", [jit_views, jit_view_sums])
def test_a_kernel_of_views_slices_what_it_is_given(compiled: Any) -> None:
    def double(rows: Any) -> None:
        for row in range(len(rows)):
            one = rows[row]
            for i in range(len(one)):
                one[i] *= 2

    rows = np.arange(6.0).reshape(2, 3)
    compiled(double)(rows)
    assert rows.tolist() == [[0, 2, 4], [6, 8, 10]]


@pytest.mark.parametrize("compiled", [jit_views, jit_view_sums])
def test_a_kernel_of_views_can_neither_make_an_array_nor_return_one(compiled: Any) -> None:
    def makes(count: int) -> float:
        return float(np.empty(count)[0])

    def returns(row: Any) -> Any:
        return row[1:]

    with pytest.raises(NumbaError):
        compiled(makes)(3)
    with pytest.raises(NumbaError):
        compiled(returns)(np.zeros(3))


def test_an_ordinary_kernel_stays_one_when_a_kernel_of_views_calls_it_first() -> None:
    @jit
    def total(count: int) -> float:
        return float(np.ones(count).sum())

    @jit_views
    def calls(count: int) -> float:
        return total(count)  # type: ignore[no-any-return]

    assert calls(3) == 3
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    assert sum(total(4) for _ in range(50)) == 200
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free >= 50
