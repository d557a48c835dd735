"""The rules, compiled: every query on a packed position, alone and in batches.

A position is one non-negative int64:

    bits  0-29   white spheres
    bits 30-59   black spheres
    bit  60      side to move (0 white, 1 black)
    bits 61-62   take-backs left to the side to move (0-2)

The rules come as the integer `Rules.code`. Kernels check nothing: a position must be possible and
an action legal (ask `is_legal`). `position.Position` is the checked, friendly view.

A finished game is always lost for the side to move: it has no move left, its reserve is empty where
that loses, or the other side has just placed the apex.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env import geometry
from pylos_env._jit import jit, lowest_bit, popcount

BLACK_SHIFT: Final = 30
SIDE_SHIFT: Final = 60
TAKE_BACK_SHIFT: Final = 61
CELLS_MASK: Final = (1 << 30) - 1
GROUND_MASK: Final = (1 << 16) - 1
SECOND_MASK: Final = ((1 << 9) - 1) << 16
APEX: Final = geometry.APEX
APEX_BIT: Final = 1 << geometry.APEX
STOP: Final = geometry.STOP
SPHERES: Final = geometry.SPHERES_PER_PLAYER
SMALL_SPHERES: Final = geometry.SPHERES_ON_SMALL_BOARD
NUM_ACTIONS: Final = geometry.NUM_ACTIONS
MAX_LEGAL: Final = 128
"""Room for the legal actions of any position: 35 were seen in play, 107 in a search for more."""

START: Final = 0
"""The empty board, white to move."""

SQUARES_FLAG: Final = 1
LINES_FLAG: Final = 2
EMPTY_LOSES_FLAG: Final = 4
GREEDY_FLAG: Final = 8
MIN_TAKE_BACK_SHIFT: Final = 4
SMALL_FLAG: Final = 64  # the lowest level is missing: three levels, seven spheres a side

NUM_FLAT: Final = 33
"""Length of the flat observation; one less when taking back is greedy."""
NUM_PLANES: Final = 15
"""Number of 4x4 planes; one less when taking back is greedy."""

_RESTING: Final = np.array(geometry.RESTING, dtype=np.int64)
_HIGHER: Final = np.array(geometry.HIGHER, dtype=np.int64)
_LINES: Final = np.array(geometry.LINES, dtype=np.int64)
_RAISE_SOURCE: Final = np.array([0] * 30 + [s for s, _ in geometry.RAISES], dtype=np.int64)
_RAISE_TARGET: Final = np.array([0] * 30 + [t for _, t in geometry.RAISES], dtype=np.int64)
_RAISE_INDEX: Final = np.zeros((30, 30), dtype=np.int64)
for (_source, _target), _action in geometry.RAISE_INDEX.items():
    _RAISE_INDEX[_source, _target] = _action
_BITS: Final = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.float32)
"""[256, 8]: the bits of a byte, lowest first, to write eight cells of an observation at a time."""
_CELL_IMAGES: Final = np.zeros((8, 4, 256), dtype=np.int64)
"""[symmetry, byte, 256]: where eight cells at a time go under a symmetry."""
for _cell in range(30):
    for _index in range(8):
        _CELL_IMAGES[_index, _cell // 8] |= (np.arange(256) >> _cell % 8 & 1) << int(
            geometry.CELL_SYMMETRIES[_index, _cell]
        )
_PLANE_OFFSET: Final = np.array(
    [16 * level + 4 * row + col for level, row, col in geometry.CELLS], dtype=np.int64
)


# The board


@jit
def full_squares(cells: int) -> int:
    """Mask of the cells whose four supports all lie in `cells`."""
    ground = cells & (cells >> 1) & (cells >> 4) & (cells >> 5)
    second = cells >> 16
    second = second & (second >> 1) & (second >> 3) & (second >> 4)
    third = (cells >> 25) & 15
    return (
        ((ground & 0x7) | ((ground >> 1) & 0x38) | ((ground >> 2) & 0x1C0)) << 16
        | ((second & 0x3) | ((second >> 1) & 0xC)) << 25
        | (third == 15) << 29
    )


@jit
def covered(cells: int) -> int:
    """Mask of the cells on which one of `cells` rests."""
    second = cells >> 16
    ground = (second & 0x7) | ((second & 0x38) << 1) | ((second & 0x1C0) << 2)
    third = cells >> 25
    middle = (third & 0x3) | ((third & 0xC) << 1)
    return (
        (ground | ground << 1 | ground << 4 | ground << 5)
        | (middle | middle << 1 | middle << 3 | middle << 4) << 16
        | (cells >> 29) * 15 << 25
    )


@jit
def min_take_back(rules: int) -> int:
    return (rules >> MIN_TAKE_BACK_SHIFT) & 3


@jit
def spheres_each(rules: int) -> int:
    """How many spheres a side has, on the board and in reserve."""
    return SMALL_SPHERES if rules & SMALL_FLAG else SPHERES


@jit
def ground(rules: int) -> int:
    """Mask of the lowest level."""
    return SECOND_MASK if rules & SMALL_FLAG else GROUND_MASK


@jit
def open_cells(occupied: int, rules: int) -> int:
    """Mask of the empty cells on which a sphere can stand."""
    return (ground(rules) | full_squares(occupied)) & ~occupied


@jit
def side_of(packed: int) -> int:
    return (packed >> SIDE_SHIFT) & 1


@jit
def take_backs_left(packed: int) -> int:
    return packed >> TAKE_BACK_SHIFT


@jit
def spheres_of(packed: int, seat: int) -> int:
    """Mask of the cells that hold a sphere of `seat`."""
    return (packed >> (BLACK_SHIFT * seat)) & CELLS_MASK


@jit
def pack(own: int, other: int, side: int, take_backs: int) -> int:
    """The position in which `side`, who has `own`, is to move."""
    return (
        own << (BLACK_SHIFT * side)
        | other << (BLACK_SHIFT * (1 - side))
        | side << SIDE_SHIFT
        | take_backs << TAKE_BACK_SHIFT
    )


@jit
def completes(own: int, cell: int, rules: int) -> bool:
    """Whether the sphere just played on `cell` stands in a formation of `own`."""
    if rules & SQUARES_FLAG and full_squares(own) & _RESTING[cell]:
        return True
    if rules & LINES_FLAG:
        row, col = _LINES[cell, 0], _LINES[cell, 1]
        return bool(row != 0 and (own & row == row or own & col == col))
    return False


# Legal actions


@jit
def legal_sets(packed: int, rules: int) -> tuple[int, int, int]:
    """All legal actions as three masks: `cells`, `sources`, `landings`.

    `cells` are the actions 0-29 (placements; or what can be taken back, and stop). The raises are
    the pairs that `targets` gives for each source. All three are 0 when the game is over.
    """
    side = side_of(packed)
    own = spheres_of(packed, side)
    occupied = own | spheres_of(packed, 1 - side)
    if occupied & APEX_BIT:
        return 0, 0, 0
    free = own & ~covered(occupied)
    left = take_backs_left(packed)
    if left:
        may_stop = 2 - left >= min_take_back(rules)
        return free | may_stop << STOP, 0, 0
    empty = open_cells(occupied, rules)
    landings = empty & ~ground(rules)
    if popcount(own) < spheres_each(rules):
        return empty, free, landings
    if rules & EMPTY_LOSES_FLAG:
        return 0, 0, 0
    return 0, free, landings


@jit
def targets(source: int, landings: int) -> int:
    """Mask of the cells to which the sphere on `source` can rise."""
    return int(landings & _HIGHER[source] & ~_RESTING[source])


@jit
def write_legal(packed: int, rules: int, out: npt.NDArray[np.int64]) -> int:
    """Write the legal actions to `out` in ascending order; return their number."""
    cells, sources, landings = legal_sets(packed, rules)
    count = 0
    while cells:
        out[count] = lowest_bit(cells)
        count += 1
        cells &= cells - 1
    if landings:
        while sources:
            source = lowest_bit(sources)
            ends = targets(source, landings)
            while ends:
                out[count] = _RAISE_INDEX[source, lowest_bit(ends)]
                count += 1
                ends &= ends - 1
            sources &= sources - 1
    return count


@jit
def legal_actions(packed: int, rules: int) -> npt.NDArray[np.int64]:
    out = np.empty(MAX_LEGAL, dtype=np.int64)
    return out[: write_legal(packed, rules, out)]


@jit
def write_mask(packed: int, rules: int, mask: npt.NDArray[np.int8]) -> bool:
    """Fill `mask` [303] with 1 for each legal action, 0 elsewhere; return whether there is one."""
    cells, sources, landings = legal_sets(packed, rules)
    return write_mask_of(cells, sources, landings, mask)


@jit
def write_mask_of(cells: int, sources: int, landings: int, mask: npt.NDArray[np.int8]) -> bool:
    """`write_mask` from the sets that `legal_sets` gives."""
    mask[:] = 0
    found = cells != 0
    while cells:
        mask[lowest_bit(cells)] = 1
        cells &= cells - 1
    if landings:
        while sources:
            source = lowest_bit(sources)
            ends = targets(source, landings)
            found |= ends != 0
            while ends:
                mask[_RAISE_INDEX[source, lowest_bit(ends)]] = 1
                ends &= ends - 1
            sources &= sources - 1
    return found


@jit
def count_legal(packed: int, rules: int) -> int:
    cells, sources, landings = legal_sets(packed, rules)
    count = popcount(cells)
    if landings:
        while sources:
            count += popcount(targets(lowest_bit(sources), landings))
            sources &= sources - 1
    return count


@jit
def is_legal(packed: int, rules: int, action: int) -> bool:
    cells, sources, landings = legal_sets(packed, rules)
    return is_legal_of(cells, sources, landings, action)


@jit
def is_legal_of(cells: int, sources: int, landings: int, action: int) -> bool:
    """`is_legal` from the sets that `legal_sets` gives."""
    if action < 0 or action >= NUM_ACTIONS:
        return False
    if action < 30:
        return bool((cells >> action) & 1)
    source = _RAISE_SOURCE[action]
    if not (sources >> source) & 1:
        return False
    return bool((targets(source, landings) >> _RAISE_TARGET[action]) & 1)


@jit
def is_over(packed: int, rules: int) -> bool:
    """Whether the game is over; then the side to move has lost."""
    cells, sources, landings = legal_sets(packed, rules)
    if cells:
        return False
    if landings:
        while sources:
            if targets(lowest_bit(sources), landings):
                return False
            sources &= sources - 1
    return True


@jit
def symmetric(packed: int, index: int) -> int:
    """The position under one of the board's eight symmetries."""
    moved = packed >> SIDE_SHIFT << SIDE_SHIFT
    for shift in (0, BLACK_SHIFT):
        cells = (packed >> shift) & CELLS_MASK
        image = (
            _CELL_IMAGES[index, 0, cells & 255]
            | _CELL_IMAGES[index, 1, (cells >> 8) & 255]
            | _CELL_IMAGES[index, 2, (cells >> 16) & 255]
            | _CELL_IMAGES[index, 3, cells >> 24]
        )
        moved |= image << shift
    return int(moved)


@jit
def canonical_symmetry(packed: int) -> int:
    """The symmetry whose image comes first in a fixed order that does not know the colours.

    So a position, its seven images and their twins with the colours exchanged all look alike from
    the side to move. It means nothing under rules that are not symmetric.
    """
    own_shift = BLACK_SHIFT if side_of(packed) else 0
    other_shift = BLACK_SHIFT - own_shift
    best, least = 0, 1 << 62
    for index in range(8):
        image = symmetric(packed, index)
        own = (image >> own_shift) & CELLS_MASK
        other = (image >> other_shift) & CELLS_MASK
        order = other << BLACK_SHIFT | own
        if order < least:
            best, least = index, order
    return best


# Playing


@jit
def play(packed: int, rules: int, action: int) -> int:
    """The position after a legal action."""
    side = side_of(packed)
    own = spheres_of(packed, side)
    other = spheres_of(packed, 1 - side)
    left = take_backs_left(packed)
    if left:
        if action == STOP:
            return pack(other, own, 1 - side, 0)
        own ^= 1 << action
        if left == 2 and own & ~covered(own | other):
            return pack(own, other, side, 1)
        return pack(other, own, 1 - side, 0)
    if action < 30:
        cell = action
    else:
        own ^= 1 << _RAISE_SOURCE[action]
        cell = _RAISE_TARGET[action]
    own |= 1 << cell
    if cell != APEX and completes(own, cell, rules):
        if not rules & GREEDY_FLAG:
            return pack(own, other, side, 2)
        for _ in range(2):
            free = own & ~covered(own | other)
            own ^= free & -free
    return pack(other, own, 1 - side, 0)


@jit
def play_checked(packed: int, rules: int, action: int) -> int:
    """The position after `action`, or -1 where it is illegal."""
    if not is_legal(packed, rules, action):
        return -1
    return play(packed, rules, action)


# Observations


@jit
def write_flat(packed: int, rules: int, seat: int, out: npt.NDArray[np.float32]) -> None:
    """The flat view of `seat` [33 or 32]: see `observation.py`."""
    own = spheres_of(packed, seat)
    other = spheres_of(packed, 1 - seat)
    for begin in range(0, 24, 8):
        mine, theirs = _BITS[(own >> begin) & 255], _BITS[(other >> begin) & 255]
        for bit in range(8):
            out[begin + bit] = mine[bit] - theirs[bit]
    mine, theirs = _BITS[own >> 24], _BITS[other >> 24]
    for bit in range(6):
        out[24 + bit] = mine[bit] - theirs[bit]
    spheres = spheres_each(rules)
    out[30] = np.float32(spheres - popcount(own)) / np.float32(spheres)
    out[31] = np.float32(spheres - popcount(other)) / np.float32(spheres)
    if not rules & GREEDY_FLAG:
        out[32] = np.float32(take_backs_left(packed)) / np.float32(2)


@jit
def write_planes(packed: int, rules: int, seat: int, out: npt.NDArray[np.float32]) -> None:
    """The planes seen by `seat`, flattened [15 or 14, times 16]: see `observation.py`."""
    own = spheres_of(packed, seat)
    other = spheres_of(packed, 1 - seat)
    occupied = own | other
    empty = open_cells(occupied, rules)
    spheres = spheres_each(rules)
    out[:] = np.float32(0)
    for cell in range(30):
        offset = _PLANE_OFFSET[cell]
        if (own >> cell) & 1:
            out[offset] = np.float32(1)
        elif (other >> cell) & 1:
            out[64 + offset] = np.float32(1)
        elif (empty >> cell) & 1:
            out[128 + offset] = np.float32(1)
    out[192:208] = np.float32(spheres - popcount(own)) / np.float32(spheres)
    out[208:224] = np.float32(spheres - popcount(other)) / np.float32(spheres)
    if not rules & GREEDY_FLAG:
        out[224:240] = np.float32(take_backs_left(packed)) / np.float32(2)


@jit
def write_observation(
    packed: int, rules: int, seat: int, planes: bool, out: npt.NDArray[np.float32]
) -> None:
    if planes:
        write_planes(packed, rules, seat, out)
    else:
        write_flat(packed, rules, seat, out)


# Chance: a random decision is a pure function of a key, so games can be batched in any order


@jit
def draw(seed: int, count: int) -> int:
    """The `count`-th key of the stream `seed`: a non-negative int64 (splitmix64)."""
    z = np.uint64(seed) + np.uint64(count) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(1))  # type: ignore[return-value]


@jit
def pick(key: int, count: int) -> int:
    """A number below `count` from a key."""
    return ((key >> 31) * count) >> 32


@jit
def random_action(packed: int, rules: int, key: int) -> int:
    """A uniformly random legal action; -1 where there is none."""
    cells, sources, landings = legal_sets(packed, rules)
    index = pick(key, count_legal(packed, rules))
    in_cells = popcount(cells)
    if index < in_cells:
        for _ in range(index):
            cells &= cells - 1
        return lowest_bit(cells)
    index -= in_cells
    while sources:
        source = lowest_bit(sources)
        ends = targets(source, landings)
        size = popcount(ends)
        if index < size:
            for _ in range(index):
                ends &= ends - 1
            return int(_RAISE_INDEX[source, lowest_bit(ends)])
        index -= size
        sources &= sources - 1
    return -1
