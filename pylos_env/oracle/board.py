"""The board as data, for the solver: any number of levels, every occupancy, one index.

A *class* is a set of occupancies that the eight symmetries map onto each other; its
*representative* is the one with the smallest mask. A position is seen from the side to move: which
cells are occupied, and which of these are its own. Its index is the class's base plus its own cells
as bits compressed to the representative's cells; where several symmetries lead to the
representative, the smallest such number counts.

The apex is left out: a position with a sphere on it is over. Classes are numbered from full to
empty boards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pylos_env._jit import jit, lowest_bit

Ints = npt.NDArray[np.int64]
Cell = tuple[int, int, int]


# columns of `Board.cells`
RESTING: Final = 0  # mask of the cells that rest on it
HIGHER: Final = 1  # mask of the cells on higher levels
SQUARES: Final = 2  # four columns: masks of the squares it belongs to, 0 where there are fewer
LINES: Final = 6  # two columns: masks of its row and column where these are formations
NUM_CELL_COLUMNS: Final = 8

# columns of `Board.occupancies`
MASK: Final = 0
OPEN: Final = 1  # mask of the empty cells that would carry a sphere
COVERED: Final = 2  # mask of the cells under some sphere
WAYS: Final = 3  # bits of the symmetries that lead to the representative
REPRESENTATIVE: Final = 4
BASE: Final = 5  # first index of its class
NUM_OCCUPANCY_COLUMNS: Final = 6


class Board(NamedTuple):
    """Tables for the kernels: few and wide, since a kernel call copies every field.

    An occupancy's number is its row in `occupancies`.
    """

    levels: int
    apex: int  # the last cell
    spheres: int  # of each side
    size: int  # number of indices
    cells: Ints  # [cells, 8]
    symmetries: Ints  # [8, 4, 256]: image of eight cells at a time
    occupancies: Ints  # [occupancies, 6], by ascending mask
    hashed: Ints  # [2**k, 2]: (mask, number) of each occupancy by hash; -1 where empty


@functools.cache
def build(levels: int) -> Board:
    """The tables of a board with so many levels; seconds for four."""
    if levels not in (2, 3, 4):
        raise ValueError(f"the solver knows boards of 2, 3 or 4 levels, got {levels!r}")
    cells = [
        (level, row, col)
        for level in range(levels)
        for row in range(levels - level)
        for col in range(levels - level)
    ]
    number = {cell: index for index, cell in enumerate(cells)}

    def mask(members: list[Cell]) -> int:
        return sum(1 << number[cell] for cell in members)

    supports = [
        mask([(level - 1, row + dr, col + dc) for dr in (0, 1) for dc in (0, 1)]) if level else 0
        for level, row, col in cells
    ]
    size = len(cells)
    facts = np.zeros((size, NUM_CELL_COLUMNS), dtype=np.int64)
    for index, (level, row, col) in enumerate(cells):
        above = [cell for cell in range(size) if supports[cell] >> index & 1]
        facts[index, RESTING] = sum(1 << cell for cell in above)
        facts[index, HIGHER] = sum(1 << number[cell] for cell in cells if cell[0] > level)
        facts[index, SQUARES : SQUARES + len(above)] = [supports[cell] for cell in above]
        side = levels - level
        if side >= 3:
            facts[index, LINES] = mask([(level, row, other) for other in range(side)])
            facts[index, LINES + 1] = mask([(level, other, col) for other in range(side)])
    images = np.array([[number[_image(levels, k, cell)] for cell in cells] for k in range(8)])

    masks = _occupancies(supports)
    table = np.zeros((len(masks), NUM_OCCUPANCY_COLUMNS), dtype=np.int64)
    table[:, MASK] = masks
    for index in range(size):
        empty = masks >> index & 1 == 0
        carried = masks & supports[index] == supports[index]
        table[:, OPEN] |= np.where(empty & carried, 1 << index, 0)
        table[:, COVERED] |= np.where(masks & facts[index, RESTING] != 0, 1 << index, 0)

    moved = np.stack([_permuted(masks, image) for image in images])  # [8, occupancies]
    representative = moved.min(axis=0)
    table[:, WAYS] = ((moved == representative) << np.arange(8)[:, None]).sum(axis=0)
    table[:, REPRESENTATIVE] = representative
    class_masks, inverse = np.unique(representative, return_inverse=True)
    counts = np.bitwise_count(class_masks).astype(np.int64)
    order = np.argsort(-counts, kind="stable")
    sizes = 1 << counts[order]
    bases = np.zeros(len(order), dtype=np.int64)
    bases[order] = np.cumsum(sizes) - sizes
    table[:, BASE] = bases[inverse]
    return Board(
        levels,
        size - 1,
        size // 2,
        int(sizes.sum()),
        facts,
        _byte_images(images),
        table,
        _hash_table(masks),
    )


def classes(board: Board) -> tuple[Ints, Ints]:
    """The representative and the base of every class, from full to empty boards."""
    masks, bases = board.occupancies[:, REPRESENTATIVE], board.occupancies[:, BASE]
    bases, first = np.unique(bases, return_index=True)
    return masks[first], bases


def _image(levels: int, symmetry: int, cell: Cell) -> Cell:
    """Symmetries 0-3: quarter turns; 4-7: the same after a mirror in the main diagonal."""
    level, row, col = cell
    last = levels - level - 1
    if symmetry >= 4:
        row, col = col, row
    for _ in range(symmetry % 4):
        row, col = col, last - row
    return level, row, col


def _occupancies(supports: list[int]) -> Ints:
    """Every supported set of cells without the apex, ascending."""
    layer = np.zeros(1, dtype=np.int64)
    layers = [layer]
    for _ in supports[:-1]:
        grown = [
            layer[(layer >> cell & 1 == 0) & (layer & support == support)] | 1 << cell
            for cell, support in enumerate(supports[:-1])
        ]
        layer = np.unique(np.concatenate(grown))
        layers.append(layer)
    return np.sort(np.concatenate(layers))


def _permuted(masks: Ints, image: Ints) -> Ints:
    moved = np.zeros_like(masks)
    for cell, target in enumerate(image.tolist()):
        moved |= (masks >> cell & 1) << target
    return moved


def _byte_images(images: Ints) -> Ints:
    table = np.zeros((8, 4, 256), dtype=np.int64)
    for symmetry, image in enumerate(images.tolist()):
        for cell, target in enumerate(image):
            byte, bit = divmod(cell, 8)
            table[symmetry, byte] |= (np.arange(256) >> bit & 1) << target
    return table


def _hash_table(masks: Ints) -> Ints:
    hashed = np.full((1 << int(4 * len(masks)).bit_length(), 2), -1, dtype=np.int64)
    _fill_hash_table(masks, hashed)
    return hashed


def _bit_instruction(name: str) -> Callable[[int, int], int]:
    """A BMI2 instruction as a function of two int64."""

    @intrinsic
    def call(typingctx, value, mask):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            word = ir.IntType(64)
            kind = ir.FunctionType(word, [word, word])
            full_name = f"llvm.x86.bmi.{name}.64"
            function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, kind, full_name
            )
            return builder.call(function, args)

        return types.int64(types.int64, types.int64), codegen

    return cast(Callable[[int, int], int], call)


@jit
def _gather_slowly(value: int, mask: int) -> int:
    result = place = 0
    while mask:
        result |= (value >> lowest_bit(mask) & 1) << place
        place += 1
        mask &= mask - 1
    return result


@jit
def _scatter_slowly(value: int, mask: int) -> int:
    result = 0
    while mask:
        result |= (value & 1) << lowest_bit(mask)
        value >>= 1
        mask &= mask - 1
    return result


HAS_BMI2: Final = bool(binding.get_host_cpu_features().get("bmi2"))
gather = _bit_instruction("pext") if HAS_BMI2 else _gather_slowly
"""The bits of a value at the places of a mask, closed up: one instruction where the CPU has it."""
scatter = _bit_instruction("pdep") if HAS_BMI2 else _scatter_slowly
"""The inverse: the low bits of a value, spread to the places of a mask."""


@jit
def _hash(mask: int, size: int) -> int:
    scrambled = np.uint64(mask) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(scrambled >> np.uint64(40)) & (size - 1)  # type: ignore[return-value]


@jit
def _fill_hash_table(masks: Ints, hashed: Ints) -> None:
    for number in range(len(masks)):
        slot = _hash(masks[number], len(hashed))
        while hashed[slot, 0] != -1:
            slot = (slot + 1) & (len(hashed) - 1)
        hashed[slot, 0], hashed[slot, 1] = masks[number], number


@jit
def number_of(board: Board, occupied: int) -> int:
    """The number of an occupancy; it must be supported and without the apex."""
    slot = _hash(occupied, len(board.hashed))
    while board.hashed[slot, 0] != occupied:
        slot = (slot + 1) & (len(board.hashed) - 1)
    return int(board.hashed[slot, 1])


@jit
def find_number(board: Board, occupied: int) -> int:
    """The number of an occupancy; -1 where it is none."""
    slot = _hash(occupied, len(board.hashed))
    while board.hashed[slot, 0] != occupied:
        if board.hashed[slot, 0] == -1:
            return -1
        slot = (slot + 1) & (len(board.hashed) - 1)
    return int(board.hashed[slot, 1])


@jit
def index_of(board: Board, occupancy: int, own: int) -> int:
    """The index of the position in which the side to move has `own` of an occupancy's cells."""
    ways = board.occupancies[occupancy, WAYS]
    representative = board.occupancies[occupancy, REPRESENTATIVE]
    smallest = gather(_moved(board, lowest_bit(ways), own), representative)
    ways &= ways - 1
    while ways:
        other = gather(_moved(board, lowest_bit(ways), own), representative)
        smallest = min(smallest, other)
        ways &= ways - 1
    return int(board.occupancies[occupancy, BASE] + smallest)


@jit
def _moved(board: Board, symmetry: int, cells: int) -> int:
    return int(
        board.symmetries[symmetry, 0, cells & 255]
        | board.symmetries[symmetry, 1, (cells >> 8) & 255]
        | board.symmetries[symmetry, 2, (cells >> 16) & 255]
        | board.symmetries[symmetry, 3, cells >> 24]
    )
