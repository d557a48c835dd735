"""What an agent sees: the flat vector, the planes, and their Gymnasium spaces.

**Flat**, float32, from the observing seat's side:

    0-29   the cells: +1 own sphere, -1 the other's, 0 empty
    30     own reserve, as a share of all its spheres
    31     the other's reserve, likewise
    32     take-backs left to the side on turn / 2        (only where take_back="choose")

**Planes**, float32 [15, 4, 4] ([14, 4, 4] where take_back="greedy"), values in [0, 1]. Level *l*
fills the top left (4-l)x(4-l) of its plane: cell (l, row, col) stands at [row, col] and rests on
[row..row+1, col..col+1] of the plane below, the same offset on every level.

     0- 3  own spheres on levels 1-4
     4- 7  the other's spheres on levels 1-4
     8-11  empty cells of levels 1-4 that would carry a sphere
    12     own reserve, as a share of all its spheres, everywhere
    13     the other's reserve, likewise, everywhere
    14     take-backs left to the side on turn / 2, everywhere     (only where take_back="choose")
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pylos_env import kernel
from pylos_env.rules import Rules

ObservationKind = Literal["flat", "planes"]
OBSERVATION_KINDS: Final[tuple[ObservationKind, ...]] = ("flat", "planes")


class Observer:
    """Writes one kind of observation under one rule set."""

    def __init__(self, kind: ObservationKind, rules: Rules) -> None:
        if kind not in OBSERVATION_KINDS:
            raise ValueError(
                f"unknown observation {kind!r}: expected one of {list(OBSERVATION_KINDS)}"
            )
        greedy = rules.take_back == "greedy"
        self.kind = kind
        self.planes = kind == "planes"
        self.shape: tuple[int, ...] = (
            (kernel.NUM_PLANES - greedy, 4, 4) if self.planes else (kernel.NUM_FLAT - greedy,)
        )
        self.size = int(np.prod(self.shape))
        self._code = rules.code

    def space(self) -> spaces.Box:
        low = np.zeros(self.shape, dtype=np.float32)
        if not self.planes:
            low[: kernel.APEX + 1] = -1
        return spaces.Box(low, np.ones(self.shape, dtype=np.float32), dtype=np.float32)

    def observe(self, packed: int, seat: int) -> npt.NDArray[np.float32]:
        """A fresh array with the view of `seat`."""
        out = np.empty(self.size, dtype=np.float32)
        kernel.write_observation(packed, self._code, seat, self.planes, out)
        return out.reshape(self.shape) if self.planes else out


def mask_space() -> spaces.Box:
    return spaces.Box(0, 1, (kernel.NUM_ACTIONS,), dtype=np.int8)
