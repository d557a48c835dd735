"""What the built-in players look at on a board, compiled."""

from __future__ import annotations

from typing import Final

import numpy as np

from pylos_env import geometry
from pylos_env._jit import jit
from pylos_env.kernel import LINES_FLAG, SQUARES_FLAG

_SQUARES: Final = np.array(geometry.SQUARE_MASKS, dtype=np.int64)
_LINES: Final = np.array(geometry.LINE_MASKS, dtype=np.int64)


@jit
def threats(own: int, cells: int, rules: int) -> int:
    """Mask of those of `cells` where one more sphere would complete a formation of `own`."""
    found = 0
    if rules & SQUARES_FLAG:
        for mask in _SQUARES:
            missing = mask & ~own
            if missing & (missing - 1) == 0:
                found |= missing
    if rules & LINES_FLAG:
        for mask in _LINES:
            missing = mask & ~own
            if missing & (missing - 1) == 0:
                found |= missing
    return found & cells
