"""The board's eight symmetries among *waves*, and kernels of `symmetric` networks on a CPU.

Where a channel has one number for each symmetry, turning or mirroring the board permutes the eight.
Waves are the same numbers in another basis (`WAVES`), in which symmetries hardly mix them: the
first four are kept or negated by every symmetry, the last four are two pairs, which are turned.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit_view_sums, jit_views
from pylos_env.geometry import CELL_SYMMETRIES, NUM_CELLS
from trainers.search.tree import Floats, Ints

SYMMETRIES: Final = 8
EPSILON: Final = 1e-5
"""Of norms."""


def _waves() -> npt.NDArray[np.float32]:
    """[waves, symmetries]: four characters, then the entries of the 2x2 matrices."""
    turn, mirror = np.array([[0, -1], [1, 0]]), np.array([[0, 1], [1, 0]])
    waves = np.zeros((SYMMETRIES, SYMMETRIES))
    for index in range(SYMMETRIES):
        turns, mirrored = index % 4, index // 4
        signs = [1, (-1) ** mirrored, (-1) ** turns, (-1) ** (turns + mirrored)]
        matrix = np.linalg.matrix_power(turn, turns) @ np.linalg.matrix_power(mirror, mirrored)
        waves[:4, index] = np.array(signs) / 8**0.5
        waves[4:, index] = matrix.ravel() / 2
    return waves.astype(np.float32)


def _inverses() -> Ints:
    """The symmetry that undoes each."""
    undone = [
        [np.array_equal(one[other], np.arange(NUM_CELLS)) for other in CELL_SYMMETRIES]
        for one in CELL_SYMMETRIES
    ]
    inverses: Ints = np.array(undone).argmax(axis=1)
    return inverses


WAVES: Final = _waves()
INVERSES: Final = _inverses()
ONE: Final = np.float32(1)
SINGLE: Final = np.float32(8**-0.5)
PAIRED: Final = np.float32(0.5)
BLOCK: Final = 8
"""Rows of a batch whose waves are turned together."""


@jit_views
def _cross(one: Floats, other: Floats, scale: np.float32) -> None:
    """Put the sum in place of the one and the difference in place of the other, scaled."""
    for i in range(len(one)):
        first, second = one[i], other[i]
        one[i], other[i] = scale * (first + second), scale * (first - second)


@jit_views
def _cross_into(
    one: Floats, other: Floats, scale: np.float32, sums: Floats, differences: Floats
) -> None:
    """The same elsewhere."""
    for i in range(len(one)):
        sums[i] = scale * (one[i] + other[i])
    for i in range(len(one)):
        differences[i] = scale * (one[i] - other[i])


@jit_views
def to_waves(numbers: Floats, waves: Floats) -> None:
    """Turn numbers of symmetries [8, columns] into waves; the numbers are lost.

    In sums and differences of whole rows, which processors work on eight at a time.
    """
    for one, other in ((0, 2), (1, 3), (4, 6), (5, 7), (0, 1), (4, 5)):
        _cross(numbers[one], numbers[other], ONE)
    _cross_into(numbers[0], numbers[4], SINGLE, waves[0], waves[1])
    _cross_into(numbers[1], numbers[5], SINGLE, waves[2], waves[3])
    _cross_into(numbers[2], numbers[7], PAIRED, waves[7], waves[4])
    _cross_into(numbers[6], numbers[3], PAIRED, waves[6], waves[5])


@jit_views
def from_waves(waves: Floats, numbers: Floats) -> None:
    """Turn waves [8, columns] back into the numbers of symmetries."""
    _cross_into(waves[0], waves[1], ONE, numbers[0], numbers[4])
    _cross_into(waves[2], waves[3], ONE, numbers[1], numbers[5])
    _cross_into(waves[7], waves[4], PAIRED, numbers[2], numbers[7])
    _cross_into(waves[6], waves[5], PAIRED, numbers[6], numbers[3])
    for one, other in ((0, 1), (4, 5)):
        _cross(numbers[one], numbers[other], SINGLE)
    for one, other in ((0, 2), (1, 3), (4, 6), (5, 7)):
        _cross(numbers[one], numbers[other], ONE)


@jit_views
def relu(number: np.float32) -> np.float32:
    """Negative numbers are 0; what is no number stays none, so that it is noticed."""
    return np.float32(0) if number < 0 else number


def widen(table: Floats, images: Ints, wide: Floats) -> None:
    """Each row of a table [rows, channels] and its images as waves [rows + 1, 8, channels].

    `images` [8, rows] says what symmetries make of rows. A row of zeros stands at the end.
    """
    _widen(table, images, wide, np.empty(wide.shape[1:], dtype=np.float32))
    wide[-1] = 0


@jit_views
def _widen(table: Floats, images: Ints, wide: Floats, numbers: Floats) -> None:
    for row in range(len(table)):
        for symmetry in range(SYMMETRIES):
            given, into = table[images[symmetry, row]], numbers[symmetry]
            for channel in range(len(into)):
                into[channel] = given[channel]
        to_waves(numbers, wide[row])


def widen_back(of_wide: Floats, images: Ints, found: Floats) -> None:
    """Add the gradient of what `widen` made to that of the table."""
    _widen_back(of_wide, images, found, np.empty(of_wide.shape[1:], dtype=np.float32))


@jit_views
def _widen_back(of_wide: Floats, images: Ints, found: Floats, given: Floats) -> None:
    for row in range(len(found)):
        from_waves(of_wide[row], given)
        for symmetry in range(SYMMETRIES):
            into = found[images[symmetry, row]]
            for channel in range(len(into)):
                into[channel] += given[symmetry, channel]


@jit_view_sums
def factor_of(row: Floats) -> np.float32:
    """What divides a row by its root mean square."""
    squares = np.float32(0)
    for column in range(len(row)):
        squares += row[column] * row[column]
    mean = squares / np.float32(len(row))
    return np.float32(np.float32(1) / np.sqrt(mean + np.float32(EPSILON)))


def by_position(pairs: Floats) -> Floats:
    """Pairs of waves, [2 * batch, 2 * channels] in layers, as the last four waves of each position,
    [batch, 4, channels].
    """
    assert pairs.flags.c_contiguous  # a copy would be written to in vain
    return pairs.reshape(len(pairs) // 2, 4, pairs.shape[1] // 2)


def normalise(features: Floats, scale: Floats, singles: Floats, pairs: Floats) -> None:
    """Features divided by their root mean square and scaled, in the parts that products take."""
    _normalise(features, scale, singles, by_position(pairs))


@jit_views
def _normalise(features: Floats, scale: Floats, singles: Floats, pairs: Floats) -> None:
    channels = len(scale)
    for row in range(len(features)):
        factor = factor_of(features[row])
        for wave in range(SYMMETRIES):
            given = features[row, wave * channels : (wave + 1) * channels]
            into = singles[wave, row] if wave < 4 else pairs[row, wave - 4]
            for channel in range(channels):
                into[channel] = given[channel] * factor * scale[channel]


def normalise_back(
    features: Floats,
    scale: Floats,
    of_singles: Floats,
    of_pairs: Floats,
    found: Floats,
    found_scale: Floats,
) -> None:
    """The gradients of features and scale."""
    _normalise_back(features, scale, of_singles, by_position(of_pairs), found, found_scale)


@jit_view_sums
def _normalise_back(
    features: Floats,
    scale: Floats,
    of_singles: Floats,
    of_pairs: Floats,
    found: Floats,
    found_scale: Floats,
) -> None:
    channels, width = len(scale), features.shape[1]
    for row in range(len(features)):
        factor = factor_of(features[row])
        along = np.float32(0)
        for wave in range(SYMMETRIES):
            given = features[row, wave * channels : (wave + 1) * channels]
            gradient = of_singles[wave, row] if wave < 4 else of_pairs[row, wave - 4]
            for channel in range(channels):
                seen = gradient[channel] * given[channel]
                along += seen * scale[channel]
                found_scale[channel] += seen * factor
        pull = along * factor * factor / np.float32(width)
        for wave in range(SYMMETRIES):
            begin = wave * channels
            given, into = (
                features[row, begin : begin + channels],
                found[row, begin : begin + channels],
            )
            gradient = of_singles[wave, row] if wave < 4 else of_pairs[row, wave - 4]
            for channel in range(channels):
                into[channel] = factor * (
                    gradient[channel] * scale[channel] - given[channel] * pull
                )


@jit_views
def _gather(begin: int, end: int, singles: Floats, pairs: Floats, waves: Floats) -> None:
    """The waves of some rows from their parts, side by side: [8, rows * channels]."""
    channels = singles.shape[2]
    for row in range(begin, end):
        for wave in range(SYMMETRIES):
            part = singles[wave, row] if wave < 4 else pairs[row, wave - 4]
            first = (row - begin) * channels
            into = waves[wave, first : first + channels]
            for channel in range(channels):
                into[channel] = part[channel]


@jit_views
def _scatter(begin: int, end: int, waves: Floats, singles: Floats, pairs: Floats) -> None:
    """The reverse of `_gather`."""
    channels = singles.shape[2]
    for row in range(begin, end):
        for wave in range(SYMMETRIES):
            part = singles[wave, row] if wave < 4 else pairs[row, wave - 4]
            first = (row - begin) * channels
            given = waves[wave, first : first + channels]
            for channel in range(channels):
                part[channel] = given[channel]


def _room(channels: int) -> tuple[Floats, Floats, Floats, Floats]:
    """For the waves of some rows and what becomes of them: pairs of layers twice, then products."""
    wide, narrow = (SYMMETRIES, BLOCK * 2 * channels), (SYMMETRIES, BLOCK * channels)
    return (
        np.zeros(wide, dtype=np.float32),
        np.zeros(wide, dtype=np.float32),
        np.zeros(narrow, dtype=np.float32),
        np.zeros(narrow, dtype=np.float32),
    )


def gate(singles: Floats, pairs: Floats, product: Floats, product_pairs: Floats) -> None:
    """Factor times what is positive of the gate, its other half; all of them parts of waves."""
    parts = singles, by_position(pairs), product, by_position(product_pairs)
    _gate(*parts, *_room(product.shape[2]))


@jit_views
def _gate(
    singles: Floats,
    pairs: Floats,
    product: Floats,
    product_pairs: Floats,
    waves: Floats,
    seen: Floats,
    made: Floats,
    made_waves: Floats,
) -> None:
    rows, channels = product.shape[1], product.shape[2]
    for begin in range(0, rows, BLOCK):
        end = min(begin + BLOCK, rows)
        _gather(begin, end, singles, pairs, waves)
        from_waves(waves, seen)
        for symmetry in range(SYMMETRIES):
            for row in range(end - begin):
                first = 2 * row * channels
                factor = seen[symmetry, first : first + channels]
                opened = seen[symmetry, first + channels : first + 2 * channels]
                into = made[symmetry, row * channels : (row + 1) * channels]
                for channel in range(channels):
                    into[channel] = factor[channel] * relu(opened[channel])
        to_waves(made, made_waves)
        _scatter(begin, end, made_waves, product, product_pairs)


def gate_back(
    singles: Floats,
    pairs: Floats,
    of_product: Floats,
    of_product_pairs: Floats,
    found: Floats,
    found_pairs: Floats,
) -> None:
    """The gradients of factor and gate, from that of their product."""
    given = singles, by_position(pairs), of_product, by_position(of_product_pairs)
    _gate_back(*given, found, by_position(found_pairs), *_room(of_product.shape[2]))


@jit_views
def _gate_back(
    singles: Floats,
    pairs: Floats,
    of_product: Floats,
    of_product_pairs: Floats,
    found: Floats,
    found_pairs: Floats,
    waves: Floats,
    seen: Floats,
    of_waves: Floats,
    given: Floats,
) -> None:
    rows, channels = of_product.shape[1], of_product.shape[2]
    for begin in range(0, rows, BLOCK):
        end = min(begin + BLOCK, rows)
        _gather(begin, end, singles, pairs, waves)
        _gather(begin, end, of_product, of_product_pairs, of_waves)
        from_waves(waves, seen)
        from_waves(of_waves, given)
        for symmetry in range(SYMMETRIES):
            for row in range(end - begin):
                first = 2 * row * channels
                factor = seen[symmetry, first : first + channels]
                opened = seen[symmetry, first + channels : first + 2 * channels]
                gradient = given[symmetry, row * channels : (row + 1) * channels]
                for channel in range(channels):
                    of_gate = gradient[channel] * factor[channel]
                    factor[channel] = gradient[channel] * relu(opened[channel])
                    opened[channel] = of_gate if opened[channel] > 0 else np.float32(0)
        to_waves(seen, waves)
        _scatter(begin, end, waves, found, found_pairs)
