"""The solver's three passes over the table, compiled.

The table has a byte for each index:

    0        undecided; draws by endless play in a finished table
    n even   won in n - 1 turns
    n odd    lost in n - 1 turns (1: lost on the spot)
    255      no position: too many spheres of a side, or not the smallest image of itself

Distances come out in order, one pass each. Pass 0 marks what is lost on the spot, and what the apex
wins in one turn. Odd passes go backwards, from every position lost in d - 1 turns to all positions
from which a turn leads there: those still undecided are won in d. Even passes go forwards: an
undecided position all of whose turns lead to won ones is lost in d, since the last of these was
decided in pass d - 1. Running a broken-off pass again gives the same table.

Rules come as the integer `Rules.code`; taking back is always the player's choice.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit, lowest_bit, popcount
from pylos_env.kernel import EMPTY_LOSES_FLAG, LINES_FLAG, SQUARES_FLAG, min_take_back
from pylos_env.oracle.board import (
    COVERED,
    HIGHER,
    LINES,
    OPEN,
    RESTING,
    SQUARES,
    WAYS,
    Board,
    index_of,
    number_of,
    scatter,
)

Table = npt.NDArray[np.uint8]

UNDECIDED: Final = 0
LOST_NOW: Final = 1
WON_BY_APEX: Final = 2
NO_POSITION: Final = 255
MAX_RAISES: Final = 512


def describe(value: int) -> str:
    """A table's byte in words, for the side to move."""
    if value == UNDECIDED:
        return "draws by endless play"
    return f"{'loses' if value & 1 else 'wins'} in {value - 1} turns"


@jit
def formed(board: Board, own: int, cell: int, rules: int) -> bool:
    """Whether the sphere on `cell` stands in a formation of `own`."""
    if rules & SQUARES_FLAG:
        for column in range(SQUARES, SQUARES + 4):
            mask = board.cells[cell, column]
            if mask != 0 and own & mask == mask:
                return True
    if rules & LINES_FLAG:
        for column in range(LINES, LINES + 2):
            mask = board.cells[cell, column]
            if mask != 0 and own & mask == mask:
                return True
    return False


@jit
def landings(board: Board, occupancy: int, source: int) -> int:
    """Mask of the cells to which a free sphere can rise, the apex left out."""
    cells = board.occupancies[occupancy, OPEN] & ~(1 << board.apex)
    return int(cells & board.cells[source, HIGHER] & ~board.cells[source, RESTING])


@jit
def can_raise(board: Board, occupancy: int, own: int) -> bool:
    free = own & ~board.occupancies[occupancy, COVERED]
    while free:
        if landings(board, occupancy, lowest_bit(free)):
            return True
        free &= free - 1
    return False


@jit
def begin(
    board: Board, rules: int, table: Table, occupied: int, base: int, first: int, last: int
) -> int:
    """Pass 0 over a stretch of one class; returns how many positions it decided."""
    occupancy = number_of(board, occupied)
    spheres = popcount(occupied)
    symmetric = board.occupancies[occupancy, WAYS] & (board.occupancies[occupancy, WAYS] - 1) != 0
    decided = 0
    for colours in range(first, last):
        num_own = popcount(colours)
        own = scatter(colours, occupied)
        possible = max(num_own, spheres - num_own) <= board.spheres
        if possible and symmetric:
            possible = index_of(board, occupancy, own) == base + colours
        value = UNDECIDED
        if not possible:
            value = NO_POSITION
        elif num_own == board.spheres:
            if rules & EMPTY_LOSES_FLAG or not can_raise(board, occupancy, own):
                value = LOST_NOW
        elif spheres == board.apex:
            value = WON_BY_APEX
        table[base + colours] = value
        decided += value != UNDECIDED and value != NO_POSITION
    return decided


# Forwards: lost positions


@jit
def _is_won(value: int, limit: int) -> bool:
    """Whether a position is known to be won in less than `limit` turns.

    A table that was saved while passes ran may know more than the pass that is run again.
    """
    return value != UNDECIDED and value & 1 == 0 and value <= limit


@jit
def _all_sets_won(board: Board, rules: int, table: Table, own: int, other: int, limit: int) -> bool:
    """After a formation: whether every set that can be taken back leaves a won position."""
    least = min_take_back(rules)
    occupied = own | other
    occupancy = number_of(board, occupied)
    if least == 0 and not _is_won(table[index_of(board, occupancy, other)], limit):
        return False
    free = own & ~board.occupancies[occupancy, COVERED]
    rest = free
    while rest:
        first = rest & -rest
        rest ^= first
        after = number_of(board, occupied ^ first)
        seconds = (own ^ first) & ~board.occupancies[after, COVERED]
        if (least < 2 or not seconds) and not _is_won(table[index_of(board, after, other)], limit):
            return False
        seconds &= ~(free & (first - 1))  # of two free ones the lower cell comes first
        while seconds:
            second = seconds & -seconds
            seconds ^= second
            last = number_of(board, occupied ^ first ^ second)
            if not _is_won(table[index_of(board, last, other)], limit):
                return False
    return True


@jit
def mark_lost(
    board: Board,
    rules: int,
    table: Table,
    occupied: int,
    base: int,
    first: int,
    last: int,
    distance: int,
) -> int:
    """An even pass over a stretch of one class; returns how many positions have this distance."""
    occupancy = number_of(board, occupied)
    # the moves of all positions of the class: where from (-1: the reserve), where to, what then
    sources = np.empty(MAX_RAISES, dtype=np.int64)
    cells = np.empty(MAX_RAISES, dtype=np.int64)
    ends = np.empty(MAX_RAISES, dtype=np.int64)
    count = 0
    places = board.occupancies[occupancy, OPEN] & ~(1 << board.apex)
    while places:
        sources[count], cells[count] = -1, lowest_bit(places)
        ends[count] = number_of(board, occupied | places & -places)
        count += 1
        places &= places - 1
    free = occupied & ~board.occupancies[occupancy, COVERED]
    while free:
        source = lowest_bit(free)
        targets = landings(board, occupancy, source)
        while targets:
            sources[count], cells[count] = source, lowest_bit(targets)
            ends[count] = number_of(board, occupied ^ (1 << source) | targets & -targets)
            count += 1
            targets &= targets - 1
        free &= free - 1

    found = 0
    for colours in range(first, last):
        if table[base + colours] != UNDECIDED:
            found += table[base + colours] == distance + 1  # by a pass that was broken off
            continue
        own = scatter(colours, occupied)
        other = occupied ^ own
        has_reserve = popcount(own) < board.spheres
        lost = True
        for move in range(count):
            source, cell = sources[move], cells[move]
            if source < 0:
                if not has_reserve:
                    continue
                after = own | (1 << cell)
            else:
                if not (own >> source) & 1:
                    continue
                after = own ^ (1 << source) | (1 << cell)
            if formed(board, after, cell, rules):
                lost = _all_sets_won(board, rules, table, after, other, distance)
            else:
                lost = _is_won(table[index_of(board, ends[move], other)], distance)
            if not lost:
                break
        if lost:
            table[base + colours] = distance + 1
            found += 1
    return found


# Backwards: won positions


@jit
def _mark(table: Table, index: int, value: int) -> None:
    known = table[index]
    table[index] = value if known == UNDECIDED else known  # no branch: the store is never awaited


@jit
def _mark_origins(
    board: Board, rules: int, table: Table, mover: int, other: int, taken: int, value: int
) -> None:
    """Every position from which one move of `mover` led to this board, before it took back."""
    least = min_take_back(rules)
    occupied = mover | other
    num_spheres = popcount(mover)
    played = mover & ~board.occupancies[number_of(board, occupied), COVERED]
    while played:
        cell = lowest_bit(played)
        played &= played - 1
        formation = formed(board, mover, cell, rules)
        if formation != (taken > 0) and not (formation and least == 0):
            continue
        before = occupied ^ (1 << cell)
        occupancy = number_of(board, before)
        rest = mover ^ (1 << cell)
        _mark(table, index_of(board, occupancy, rest), value)  # placed from the reserve
        if num_spheres == board.spheres and rules & EMPTY_LOSES_FLAG:
            continue  # a raise would have come from a lost position
        origins = board.occupancies[occupancy, OPEN]
        while origins:
            origin = lowest_bit(origins)
            origins &= origins - 1
            if (board.cells[origin, HIGHER] >> cell) & 1:
                start = number_of(board, before | (1 << origin))
                _mark(table, index_of(board, start, rest | (1 << origin)), value)


@jit
def mark_won(
    board: Board,
    rules: int,
    table: Table,
    occupied: int,
    base: int,
    first: int,
    last: int,
    distance: int,
) -> int:
    """An odd pass from the lost positions of a stretch of one class; returns how many it left."""
    least = min_take_back(rules)
    occupancy = number_of(board, occupied)
    cells = board.occupancies[occupancy, OPEN] & ~(1 << board.apex)
    value = distance + 1
    visited = 0
    for colours in range(first, last):
        if table[base + colours] != distance:  # lost in distance - 1 turns
            continue
        visited += 1
        own = scatter(colours, occupied)
        mover = occupied ^ own  # the side that has just moved
        _mark_origins(board, rules, table, mover, own, 0, value)
        in_hand = board.spheres - popcount(mover)
        if not rules & (SQUARES_FLAG | LINES_FLAG) or in_hand == 0:
            continue
        # put back what may have been taken: the last taken first
        alone = least < 2 or not mover & ~board.occupancies[occupancy, COVERED]
        lasts = cells
        while lasts:
            back = lasts & -lasts
            lasts ^= back
            if alone:
                _mark_origins(board, rules, table, mover | back, own, 1, value)
            if in_hand == 1:
                continue
            firsts = board.occupancies[number_of(board, occupied | back), OPEN] & ~(1 << board.apex)
            firsts &= ~(cells & (back - 1))  # a pair open from the start is put back once
            while firsts:
                _mark_origins(board, rules, table, mover | back | firsts & -firsts, own, 2, value)
                firsts &= firsts - 1
    return visited
