"""A gated `patterns` network on a CPU, twice as fast as torch's layers one by one.

    evaluate = PatternKernel(network, rules)
    logits, values = evaluate(packed)

All that the first layer sees of a position, from patterns to counts, is rows of one table: a kernel
finds their numbers from the bits of the position and adds the rows up. The blocks' products of
matrices are torch's; norms and gates between them are kernels. The policy is asked for legal
actions only: the logits of all others are 0. It answers as the network itself does, but for
rounding.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pylos_env import kernel
from pylos_env._jit import jit, jit_sums, lowest_bit, popcount
from pylos_env.geometry import ACTION_SYMMETRIES, LINE_MASKS, NUM_CELLS, SQUARE_MASKS, SUPPORTS
from pylos_env.kernel import MAX_LEGAL, NUM_ACTIONS
from pylos_env.rules import Rules
from trainers.network import (
    COUNT_STEP,
    NUM_COUNTS,
    Gate,
    NetworkConfig,
    Patterns,
    PolicyValueNetwork,
    ResidualBlock,
    pattern_cells,
)
from trainers.search.tree import Floats, Ints

MOST_ROWS: Final = 128
"""Patterns, spheres, open cells, threats and counts of one position are fewer."""
MOST_CELLS: Final = 5
EPSILON: Final = 1e-5
"""Of torch's layer norm."""

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
    begins: npt.NDArray[np.int64]  # [patterns]
    formations: npt.NDArray[np.int64]  # [formations]: masks
    supports: npt.NDArray[np.int64]  # [cells]: masks of the cells below
    states: int  # the first row of the states of cells
    counts: int  # the first row of the counts
    nothing: int  # a row of zeros


class Ends(NamedTuple):
    """The last norm and both heads."""

    scale: Floats  # [width]
    shift: Floats  # [width]
    policy: Floats  # [303, width]
    policy_bias: Floats  # [303]
    value: Floats  # [width]
    value_bias: float


class Block(NamedTuple):
    """A gated block; the norm's own factors are part of the first matrix."""

    pair: Tensor  # [width, 2 * width]
    pair_bias: Tensor
    last: Tensor  # [width, width]
    last_bias: Tensor


def can_run(config: NetworkConfig) -> bool:
    """Whether the kernel knows such a network."""
    return config.kind == "patterns" and config.gated and config.value_head == "scalar"


class PatternKernel:
    """A gated patterns network as a function from positions to logits and values: see `search`."""

    def __init__(self, network: PolicyValueNetwork, rules: Rules) -> None:
        self._rules = rules
        self._canonical = network.config.canonical and rules.symmetric
        self._spheres = kernel.spheres_each(rules.code)
        self._board = _board()
        self.take(network)

    def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
        games, width = len(packed), self._table.shape[1]
        symmetries = np.zeros(games, dtype=np.int64)
        features, inner = torch.empty(games, width), torch.empty(games, width)
        sums, factors = features.numpy(), inner.numpy()
        _embed(packed, self._canonical, self._board, self._table, symmetries, sums)
        with torch.inference_mode():
            for block in self._blocks:
                _normalise(sums, factors)
                pair = torch.addmm(block.pair_bias, inner, block.pair)
                _gate(pair.numpy(), factors)
                features += torch.addmm(block.last_bias, inner, block.last)
        logits = np.zeros((games, NUM_ACTIONS), dtype=np.float32)
        values = np.empty(games, dtype=np.float32)
        code, images = self._rules.code, ACTION_SYMMETRIES
        _finish(packed, code, symmetries, images, sums, self._ends, logits, values)
        return logits, values

    @torch.no_grad()
    def take(self, network: PolicyValueNetwork) -> None:
        """Go on with another network's weights."""
        patterns, *blocks, norm, _ = network.body.children()
        assert isinstance(patterns, Patterns)
        self._table = _table(patterns, self._spheres)
        self._blocks = [_block(block) for block in blocks]
        weights = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
        last = len(blocks) + 1
        self._ends = Ends(
            weights[f"body.{last}.weight"],
            weights[f"body.{last}.bias"],
            weights["policy.weight"],
            weights["policy.bias"],
            weights["value.weight"].ravel(),
            float(weights["value.bias"].item()),
        )


def _board() -> Board:
    patterns = pattern_cells()
    cells = np.full((len(patterns), MOST_CELLS), NUM_CELLS, dtype=np.int64)
    for row, members in enumerate(patterns):
        cells[row, : len(members)] = members
    sizes = np.array([3 ** len(members) for members in patterns])
    states = int(sizes.sum())
    counts = states + NUM_STATES * NUM_CELLS
    return Board(
        cells,
        np.cumsum(sizes) - sizes,
        np.array([*SQUARE_MASKS, *LINE_MASKS], dtype=np.int64),
        np.array(SUPPORTS, dtype=np.int64),
        states,
        counts,
        counts + NUM_COUNTS,
    )


def _table(patterns: Patterns, spheres: int) -> Floats:
    """Every row that the first layer can add, and one of zeros."""
    assert patterns.counts is not None
    weight = patterns.cells.weight.T
    own, other, own_free, other_free, opened, own_threat, other_threat = weight[
        : NUM_STATES * NUM_CELLS
    ].split(NUM_CELLS)
    states = (own, own + own_free, other, other + other_free, opened, own_threat, other_threat)
    extras = weight[NUM_STATES * NUM_CELLS :]
    numbers = torch.arange(NUM_COUNTS)
    own_count = numbers // COUNT_STEP % COUNT_STEP
    other_count = numbers % COUNT_STEP
    seen = [(spheres - own_count) / spheres, (spheres - other_count) / spheres]
    if len(extras) > len(seen):
        seen.append(numbers // COUNT_STEP**2 / 2)
    counts = patterns.counts.weight + torch.stack(seen, dim=1) @ extras + patterns.cells.bias
    nothing = torch.zeros(1, weight.shape[1])
    rows: Floats = torch.cat([patterns.table.weight, *states, counts, nothing]).numpy().copy()
    return rows


def _block(block: nn.Module) -> Block:
    assert isinstance(block, ResidualBlock)
    gate = block.layers
    assert isinstance(gate, Gate)
    pair, last = gate.pair, gate.last
    return Block(
        (pair.weight * gate.norm.weight).T.contiguous(),
        pair.bias + pair.weight @ gate.norm.bias,
        last.weight.T.contiguous(),
        last.bias.clone(),
    )


@jit
def _write_rows(position: int, board: Board, rows: Ints) -> int:
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
        rows[count] = board.begins[pattern] + number
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
def _embed(
    packed: Ints, canonical: bool, board: Board, table: Floats, symmetries: Ints, sums: Floats
) -> None:
    """What the first layer makes of each position, and the symmetry under which it was shown."""
    rows = np.empty(MOST_ROWS, dtype=np.int64)
    for game in range(len(packed)):
        position = packed[game]
        if canonical:
            symmetries[game] = kernel.canonical_symmetry(position)
            position = kernel.symmetric(position, symmetries[game])
        count = _write_rows(position, board, rows)
        into = sums[game]
        into[:] = 0
        for number in range(0, count, 4):
            first, second = table[rows[number]], table[rows[number + 1]]
            third, fourth = table[rows[number + 2]], table[rows[number + 3]]
            for column in range(len(into)):
                pair = first[column] + second[column]
                into[column] += pair + (third[column] + fourth[column])


@jit_sums
def _normalise(sums: Floats, normals: Floats) -> None:
    """Each row less its mean, divided by its deviation."""
    width = sums.shape[1]
    for game in range(len(sums)):
        row, out = sums[game], normals[game]
        total = np.float32(0)
        squares = np.float32(0)
        for column in range(width):
            total += row[column]
        mean = total / np.float32(width)
        for column in range(width):
            away = row[column] - mean
            squares += away * away
        factor = np.float32(1) / np.sqrt(squares / np.float32(width) + np.float32(EPSILON))
        for column in range(width):
            out[column] = (row[column] - mean) * factor


@jit
def _gate(pair: Floats, product: Floats) -> None:
    width = product.shape[1]
    for game in range(len(pair)):
        row, out = pair[game], product[game]
        for column in range(width):
            out[column] = row[column] * max(row[width + column], np.float32(0))


@jit_sums
def _finish(
    packed: Ints,
    rules: int,
    symmetries: Ints,
    images: Ints,
    sums: Floats,
    ends: Ends,
    logits: Floats,
    values: Floats,
) -> None:
    """Both heads: the value, and the logits of legal actions."""
    width = sums.shape[1]
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    _normalise(sums, sums)
    for game in range(len(packed)):
        seen = sums[game]
        worth = np.float32(ends.value_bias)
        for column in range(width):
            feature = seen[column] * ends.scale[column] + ends.shift[column]
            seen[column] = max(feature, np.float32(0))
            worth += seen[column] * ends.value[column]
        values[game] = np.tanh(worth)
        image = images[symmetries[game]]
        for number in range(kernel.write_legal(packed[game], rules, legal)):
            action = legal[number]
            weights = ends.policy[image[action]]
            logit = ends.policy_bias[image[action]]
            for column in range(width):
                logit += seen[column] * weights[column]
            logits[game, action] = logit
