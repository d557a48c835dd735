"""What the first layer of a `patterns` network sees of a position: rows of one table.

A row for what each pattern (square with its top, or line) looks like, one for each sphere, open
cell and cell that completes a formation, and one for the number of spheres of both sides. The layer
adds them up.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit, lowest_bit, popcount
from pylos_env.geometry import CELL_SYMMETRIES, LINE_MASKS, NUM_CELLS, SQUARE_MASKS, SUPPORTS
from trainers.search.tree import Floats, Ints

MOST_ROWS: Final = 128
"""Patterns, spheres, open cells, threats and counts of one position are fewer."""
MOST_CELLS: Final = 5
COUNT_STEP: Final = 16
"""More than the spheres of a side: own * COUNT_STEP + other numbers every pair of counts."""
NUM_COUNTS: Final = 3 * COUNT_STEP**2
"""Pairs of counts, for 0, 1 and 2 take-backs left."""

# what stands on a cell, in the order of the table's rows
COVERED_OWN: Final = 0
FREE_OWN: Final = 1
COVERED_OTHER: Final = 2
FREE_OTHER: Final = 3
OPEN: Final = 4
OWN_THREAT: Final = 5
OTHER_THREAT: Final = 6
NUM_STATES: Final = 7


class Board(NamedTuple):
    """Where the rows of the table begin, and what they are found by."""

    cells: npt.NDArray[np.int64]  # [patterns, 5]: NUM_CELLS stands for none
    begins: npt.NDArray[np.int64]  # [patterns]: where the numbers of each pattern begin in `row_of`
    row_of: npt.NDArray[np.int64]  # [numbers of all patterns]: the row of each
    formations: npt.NDArray[np.int64]  # [formations]: masks
    supports: npt.NDArray[np.int64]  # [cells]: masks of the cells below
    states: int  # the first row of the states of cells
    counts: int  # the first row of the counts
    nothing: int  # a row of zeros


def cells_of(mask: int) -> list[int]:
    return [cell for cell in range(NUM_CELLS) if mask >> cell & 1]


def pattern_cells() -> list[list[int]]:
    """The cells of every square with its top, and of every line."""
    squares = [[*cells_of(below), top] for top, below in enumerate(SUPPORTS) if below]
    return squares + [cells_of(line) for line in LINE_MASKS]


def number_rows() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Where each pattern's numbers begin, the row of every number, and how many rows there are.

    What stands on a pattern's cells (0: the other's, 1: nothing, 2: own) are the digits of its
    number. Numbers of what cannot be, a sphere on top of an empty cell, have no row of their own.
    """
    patterns = pattern_cells()
    sizes = np.array([3 ** len(members) for members in patterns])
    possible = np.concatenate([_possible(members) for members in patterns])
    row_of = np.where(possible, np.cumsum(possible) - 1, 0)
    return np.cumsum(sizes) - sizes, row_of, int(possible.sum())


def _possible(members: list[int]) -> npt.NDArray[np.bool_]:
    """Of each number of a pattern, whether every sphere has what carries it."""
    digits = np.arange(3 ** len(members))[:, None] // 3 ** np.arange(len(members)) % 3
    taken = digits != 1
    possible = np.ones(len(digits), dtype=np.bool_)
    for above, cell in enumerate(members):
        for below in (members.index(c) for c in cells_of(SUPPORTS[cell]) if c in members):
            possible &= ~taken[:, above] | taken[:, below]
    return possible


def make_board() -> Board:
    patterns = pattern_cells()
    cells = np.full((len(patterns), MOST_CELLS), NUM_CELLS, dtype=np.int64)
    for row, members in enumerate(patterns):
        cells[row, : len(members)] = members
    begins, row_of, states = number_rows()
    counts = states + NUM_STATES * NUM_CELLS
    return Board(
        cells,
        begins,
        row_of,
        np.array([*SQUARE_MASKS, *LINE_MASKS], dtype=np.int64),
        np.array(SUPPORTS, dtype=np.int64),
        states,
        counts,
        counts + NUM_COUNTS,
    )


def row_images(board: Board) -> npt.NDArray[np.int64]:
    """[8, rows and the one of zeros]: what each becomes when a symmetry turns the board."""
    patterns = pattern_cells()
    where = {frozenset(members): index for index, members in enumerate(patterns)}
    images = np.tile(np.arange(board.nothing + 1), (len(CELL_SYMMETRIES), 1))
    for image, cells in zip(images, CELL_SYMMETRIES, strict=True):
        for index, members in enumerate(patterns):
            turned = cells[members].tolist()
            other = where[frozenset(turned)]
            numbers = np.flatnonzero(_possible(members))
            digits = numbers[:, None] // 3 ** np.arange(len(members)) % 3
            powers = np.array([3 ** patterns[other].index(cell) for cell in turned])
            rows = board.row_of[board.begins[index] + numbers]
            image[rows] = board.row_of[board.begins[other] + digits @ powers]
        for state in range(NUM_STATES):
            first = board.states + state * NUM_CELLS
            image[first : first + NUM_CELLS] = first + cells
    return images


@jit
def write_rows(position: int, board: Board, rows: Ints) -> int:
    """The numbers of all rows that make up a position; returns how many, a multiple of four."""
    side = kernel.side_of(position)
    own, other = kernel.spheres_of(position, side), kernel.spheres_of(position, 1 - side)
    taken = own | other
    digits = np.ones(NUM_CELLS + 1, dtype=np.int64)
    digits[NUM_CELLS] = 0
    carrying = 0
    left = taken
    while left:
        cell = lowest_bit(left)
        left &= left - 1
        carrying |= board.supports[cell]
        digits[cell] = 2 * ((own >> cell) & 1)
    count = 0
    for pattern in range(len(board.begins)):
        cells = board.cells[pattern]
        number = digits[cells[0]] + 3 * digits[cells[1]] + 9 * digits[cells[2]]
        number += 27 * digits[cells[3]] + 81 * digits[cells[4]]
        rows[count] = board.row_of[board.begins[pattern] + number]
        count += 1
    opened = 0
    for cell in range(NUM_CELLS):
        below = board.supports[cell]
        if taken & below == below:
            opened |= 1 << cell
    opened &= ~taken
    own_threats = other_threats = 0
    for mask in board.formations:
        if popcount(mask & ~own) == 1:
            own_threats |= mask
        if popcount(mask & ~other) == 1:
            other_threats |= mask
    for state, cells_left in (
        (COVERED_OWN, own & carrying),
        (FREE_OWN, own & ~carrying),
        (COVERED_OTHER, other & carrying),
        (FREE_OTHER, other & ~carrying),
        (OPEN, opened),
        (OWN_THREAT, own_threats & opened),
        (OTHER_THREAT, other_threats & opened),
    ):
        while cells_left:
            rows[count] = board.states + state * NUM_CELLS + lowest_bit(cells_left)
            cells_left &= cells_left - 1
            count += 1
    pair = popcount(own) * COUNT_STEP + popcount(other)
    rows[count] = board.counts + pair + COUNT_STEP**2 * kernel.take_backs_left(position)
    count += 1
    while count % 4:
        rows[count] = board.nothing
        count += 1
    return count


@jit
def rows_seen(flat: Floats, board: Board) -> Ints:
    """The rows of observed positions [batch, most rows among them]; missing ones are of zeros."""
    found = np.full((len(flat), MOST_ROWS), board.nothing, dtype=np.int64)
    most = 0
    for index in range(len(flat)):
        own = other = 0
        for cell in range(NUM_CELLS):
            if flat[index, cell] > 0:
                own |= 1 << cell
            elif flat[index, cell] < 0:
                other |= 1 << cell
        take_backs = 0
        if flat.shape[1] > NUM_CELLS + 2:
            take_backs = int(2 * flat[index, NUM_CELLS + 2])
        position = kernel.pack(own, other, 0, take_backs)
        most = max(most, write_rows(position, board, found[index]))
    return found[:, :most].copy()
