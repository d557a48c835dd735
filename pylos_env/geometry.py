"""The board: 30 cells on four levels, what rests on what, formations, symmetries, actions.

Everything here is a small table computed at import from slow, obvious functions. Cell numbers:

    level 1 (4x4)        level 2 (3x3)     level 3 (2x2)   level 4
     0  1  2  3           16 17 18          25 26           29
     4  5  6  7           19 20 21          27 28
     8  9 10 11           22 23 24
    12 13 14 15

In code levels count from 0; in text (`1a1` ... `4a1`) they count from 1. Sets of cells are bit
integers ("masks"): bit *i* is cell *i*.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

NUM_LEVELS: Final = 4
NUM_CELLS: Final = 30
APEX: Final = 29
NUM_GROUND_CELLS: Final = 16
SPHERES_PER_PLAYER: Final = 15
SPHERES_ON_SMALL_BOARD: Final = 7
NUM_ACTIONS: Final = 303
FIRST_RAISE: Final = 30
STOP: Final = 29
"""While taking back: the action that ends the turn. It shares the apex's number, see `kernel`."""

CELLS: Final = tuple(
    (level, row, col)
    for level in range(NUM_LEVELS)
    for row in range(NUM_LEVELS - level)
    for col in range(NUM_LEVELS - level)
)
"""Cell number -> (level, row, column)."""

CELL_INDEX: Final = {cell: index for index, cell in enumerate(CELLS)}


def _mask(cells: list[tuple[int, int, int]]) -> int:
    return sum(1 << CELL_INDEX[cell] for cell in cells)


def _supports(level: int, row: int, col: int) -> int:
    if level == 0:
        return 0
    return _mask([(level - 1, row + dr, col + dc) for dr in (0, 1) for dc in (0, 1)])


SUPPORTS: Final = tuple(_supports(*cell) for cell in CELLS)
"""Cell -> mask of the four cells it rests on (0 on the ground): a 2x2 square, by its top."""

RESTING: Final = tuple(
    sum(1 << above for above in range(NUM_CELLS) if SUPPORTS[above] >> cell & 1)
    for cell in range(NUM_CELLS)
)
"""Cell -> mask of the cells that rest on it. Equally: the tops of the squares it belongs to."""

HIGHER: Final = tuple(
    sum(1 << other for other in range(NUM_CELLS) if CELLS[other][0] > CELLS[cell][0])
    for cell in range(NUM_CELLS)
)
"""Cell -> mask of all cells on higher levels."""


def _lines_through(level: int, row: int, col: int) -> tuple[int, int]:
    size = NUM_LEVELS - level
    if level > 1:
        return 0, 0
    return (
        _mask([(level, row, other) for other in range(size)]),
        _mask([(level, other, col) for other in range(size)]),
    )


LINES: Final = tuple(_lines_through(*cell) for cell in CELLS)
"""Cell -> (mask of its row, mask of its column) where these are formations, else (0, 0)."""

SQUARE_MASKS: Final = tuple(mask for mask in SUPPORTS if mask)
LINE_MASKS: Final = tuple(sorted({mask for pair in LINES for mask in pair if mask}))

RAISES: Final = tuple(
    (source, target)
    for source in range(NUM_CELLS)
    for target in range(NUM_CELLS)
    if CELLS[target][0] > CELLS[source][0]
)
"""Action number - 30 -> (source, target)."""

RAISE_INDEX: Final = {pair: FIRST_RAISE + index for index, pair in enumerate(RAISES)}
"""(source, target) -> action number."""

assert FIRST_RAISE + len(RAISES) == NUM_ACTIONS


def _symmetry(index: int, level: int, row: int, col: int) -> tuple[int, int, int]:
    """`index` 0-3: quarter turns; 4-7: the same after a mirror in the main diagonal."""
    last = NUM_LEVELS - level - 1
    if index >= 4:
        row, col = col, row
    for _ in range(index % 4):
        row, col = col, last - row
    return level, row, col


CELL_SYMMETRIES: Final[npt.NDArray[np.int64]] = np.array(
    [[CELL_INDEX[_symmetry(index, *cell)] for cell in CELLS] for index in range(8)]
)
"""[8, 30]: where each cell goes under each symmetry of the board. Row 0 is the identity."""

ACTION_SYMMETRIES: Final[npt.NDArray[np.int64]] = np.array(
    [
        [*image]
        + [RAISE_INDEX[int(image[source]), int(image[target])] for source, target in RAISES]
        for image in CELL_SYMMETRIES
    ]
)
"""[8, 303]: where each action goes. Stop shares the apex's number, which every symmetry fixes."""
