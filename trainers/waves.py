"""The board's eight symmetries among *waves*, and kernels of `symmetric` networks on a CPU.

Where a channel has one number for each symmetry, turning or mirroring the board permutes the eight.
Waves are the same numbers in another basis (`WAVES`), in which symmetries hardly mix them: the
first four are kept or negated by every symmetry, the last four are two pairs, which are turned.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit, jit_sums
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
SINGLE: Final = np.float32(8**-0.5)
PAIRED: Final = np.float32(0.5)


@jit
def to_waves(numbers: Floats) -> None:
    """Turn numbers of symmetries [8, columns] into waves, in place."""
    for i in range(numbers.shape[1]):
        even, odd = numbers[0, i] + numbers[2, i], numbers[1, i] + numbers[3, i]
        mirrored_even, mirrored_odd = numbers[4, i] + numbers[6, i], numbers[5, i] + numbers[7, i]
        first, second = numbers[0, i] - numbers[2, i], numbers[1, i] - numbers[3, i]
        third, fourth = numbers[4, i] - numbers[6, i], numbers[5, i] - numbers[7, i]
        turned, alternating = even + odd, even - odd
        mirrored, mirrored_alternating = mirrored_even + mirrored_odd, mirrored_even - mirrored_odd
        numbers[0, i] = SINGLE * (turned + mirrored)
        numbers[1, i] = SINGLE * (turned - mirrored)
        numbers[2, i] = SINGLE * (alternating + mirrored_alternating)
        numbers[3, i] = SINGLE * (alternating - mirrored_alternating)
        numbers[4, i] = PAIRED * (first - fourth)
        numbers[5, i] = PAIRED * (third - second)
        numbers[6, i] = PAIRED * (second + third)
        numbers[7, i] = PAIRED * (first + fourth)


@jit
def from_waves(waves: Floats) -> None:
    """Turn waves [8, columns] back into the numbers of symmetries, in place."""
    for i in range(waves.shape[1]):
        turned, mirrored = waves[0, i] + waves[1, i], waves[0, i] - waves[1, i]
        even, odd = waves[2, i] + waves[3, i], waves[2, i] - waves[3, i]
        first, second = PAIRED * (waves[4, i] + waves[7, i]), PAIRED * (waves[6, i] - waves[5, i])
        third, fourth = PAIRED * (waves[5, i] + waves[6, i]), PAIRED * (waves[7, i] - waves[4, i])
        one, two = SINGLE * (turned + even), SINGLE * (turned - even)
        three, four = SINGLE * (mirrored + odd), SINGLE * (mirrored - odd)
        waves[0, i], waves[2, i] = one + first, one - first
        waves[1, i], waves[3, i] = two + second, two - second
        waves[4, i], waves[6, i] = three + third, three - third
        waves[5, i], waves[7, i] = four + fourth, four - fourth


@jit
def relu(number: np.float32) -> np.float32:
    """Negative numbers are 0; what is no number stays none, so that it is noticed."""
    return np.float32(0) if number < 0 else number


@jit
def widen(table: Floats, images: Ints, wide: Floats) -> None:
    """Each row of a table [rows, channels] and its images as waves [rows + 1, 8, channels].

    `images` [8, rows] says what symmetries make of rows. A row of zeros stands at the end.
    """
    for row in range(len(table)):
        for symmetry in range(SYMMETRIES):
            wide[row, symmetry] = table[images[symmetry, row]]
        to_waves(wide[row])
    wide[len(table)] = 0


@jit
def widen_back(of_wide: Floats, images: Ints, found: Floats) -> None:
    """Add the gradient of what `widen` made to that of the table."""
    given = np.empty(of_wide.shape[1:], dtype=np.float32)
    for row in range(len(found)):
        given[:] = of_wide[row]
        from_waves(given)
        for symmetry in range(SYMMETRIES):
            into = found[images[symmetry, row]]
            for channel in range(len(into)):
                into[channel] += given[symmetry, channel]


@jit_sums
def factor_of(row: Floats) -> np.float32:
    """What divides a row by its root mean square."""
    squares = np.float32(0)
    for column in range(len(row)):
        squares += row[column] * row[column]
    mean = squares / np.float32(len(row))
    return np.float32(np.float32(1) / np.sqrt(mean + np.float32(EPSILON)))


@jit
def part_of(wave: int, row: int, singles: Floats, pairs: Floats) -> Floats:
    """Where `split` puts a wave of a row."""
    channels = singles.shape[2]
    part: Floats = singles[wave % 4, row]
    if wave >= 4:
        half, begin = wave // 2 % 2, wave % 2 * channels
        part = pairs[2 * row + half, begin : begin + channels]
    return part


@jit
def normalise(features: Floats, scale: Floats, singles: Floats, pairs: Floats) -> None:
    """Features divided by their root mean square and scaled, in the parts that products take."""
    channels = len(scale)
    for row in range(len(features)):
        factor = factor_of(features[row])
        for wave in range(SYMMETRIES):
            given = features[row, wave * channels : (wave + 1) * channels]
            into = part_of(wave, row, singles, pairs)
            for channel in range(channels):
                into[channel] = given[channel] * factor * scale[channel]


@jit_sums
def normalise_back(
    features: Floats,
    scale: Floats,
    of_singles: Floats,
    of_pairs: Floats,
    found: Floats,
    found_scale: Floats,
) -> None:
    """The gradients of features and scale."""
    channels, width = len(scale), features.shape[1]
    for row in range(len(features)):
        factor = factor_of(features[row])
        along = np.float32(0)
        for wave in range(SYMMETRIES):
            given = features[row, wave * channels : (wave + 1) * channels]
            gradient = part_of(wave, row, of_singles, of_pairs)
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
            gradient = part_of(wave, row, of_singles, of_pairs)
            for channel in range(channels):
                into[channel] = factor * (
                    gradient[channel] * scale[channel] - given[channel] * pull
                )


@jit
def _gather(row: int, singles: Floats, pairs: Floats, waves: Floats) -> None:
    """The waves of a row, from their parts."""
    for wave in range(SYMMETRIES):
        waves[wave] = part_of(wave, row, singles, pairs)


@jit
def _scatter(row: int, waves: Floats, singles: Floats, pairs: Floats) -> None:
    for wave in range(SYMMETRIES):
        part_of(wave, row, singles, pairs)[:] = waves[wave]


@jit
def gate(singles: Floats, pairs: Floats, product: Floats, product_pairs: Floats) -> None:
    """Factor times what is positive of the gate, its other half; all of them parts of waves."""
    channels = product.shape[2]
    seen = np.empty((SYMMETRIES, 2 * channels), dtype=np.float32)
    for row in range(product.shape[1]):
        _gather(row, singles, pairs, seen)
        from_waves(seen)
        for symmetry in range(SYMMETRIES):
            numbers = seen[symmetry]
            for channel in range(channels):
                numbers[channel] *= relu(numbers[channels + channel])
        to_waves(seen[:, :channels])
        _scatter(row, seen[:, :channels], product, product_pairs)


@jit
def gate_back(
    singles: Floats,
    pairs: Floats,
    of_product: Floats,
    of_product_pairs: Floats,
    found: Floats,
    found_pairs: Floats,
) -> None:
    """The gradients of factor and gate, from that of their product."""
    channels = of_product.shape[2]
    seen = np.empty((SYMMETRIES, 2 * channels), dtype=np.float32)
    given = np.empty((SYMMETRIES, channels), dtype=np.float32)
    for row in range(of_product.shape[1]):
        _gather(row, singles, pairs, seen)
        _gather(row, of_product, of_product_pairs, given)
        from_waves(seen)
        from_waves(given)
        for symmetry in range(SYMMETRIES):
            numbers, gradient = seen[symmetry], given[symmetry]
            for channel in range(channels):
                factor, opened = numbers[channel], numbers[channels + channel]
                numbers[channel] = gradient[channel] * relu(opened)
                of_gate = gradient[channel] * factor
                numbers[channels + channel] = of_gate if opened > 0 else np.float32(0)
        to_waves(seen)
        _scatter(row, seen, found, found_pairs)
