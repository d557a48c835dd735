"""A gated `patterns` network on a CPU, faster than torch's layers one by one.

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
import torch
from torch import Tensor, nn

from pylos_env import kernel
from pylos_env._jit import jit, jit_sums
from pylos_env.geometry import ACTION_SYMMETRIES, NUM_CELLS
from pylos_env.kernel import MAX_LEGAL, NUM_ACTIONS
from pylos_env.rules import Rules
from trainers.network import Gate, NetworkConfig, PolicyValueNetwork, ResidualBlock
from trainers.pattern_rows import (
    COUNT_STEP,
    MOST_ROWS,
    NUM_COUNTS,
    NUM_STATES,
    Board,
    make_board,
    write_rows,
)
from trainers.patterns import Patterns
from trainers.products import linear
from trainers.search.tree import Floats, Ints

EPSILON: Final = 1e-5
"""Of torch's layer norm."""


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

    pair: Tensor  # [2 * width, width]
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
        self._board = make_board()
        self.take(network)

    def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
        games, width = len(packed), self._table.shape[1]
        symmetries = np.zeros(games, dtype=np.int64)
        features, inner = torch.empty(games, width), torch.empty(games, width)
        sums, factors = features.numpy(), inner.numpy()
        embed(packed, self._canonical, self._board, self._table, symmetries, sums)
        with torch.inference_mode():
            for block in self._blocks:
                _normalise(sums, factors)
                pair = linear(inner, block.pair, block.pair_bias)
                _gate(pair.numpy(), factors)
                features += linear(inner, block.last, block.last_bias)
        logits = np.zeros((games, NUM_ACTIONS), dtype=np.float32)
        values = np.empty(games, dtype=np.float32)
        code, images = self._rules.code, ACTION_SYMMETRIES
        ends = self._ends
        _finish(sums, ends, values)
        write_legal_logits(
            packed, code, symmetries, images, sums, ends.policy, ends.policy_bias, logits
        )
        return logits, values

    @torch.no_grad()
    def take(self, network: PolicyValueNetwork) -> None:
        """Go on with another network's weights."""
        patterns, *blocks, _norm, _relu = network.body.children()
        assert isinstance(patterns, Patterns)
        self._table = _with_extras(patterns, self._spheres)
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


def _with_extras(patterns: Patterns, spheres: int) -> Floats:
    """The network's rows; reserves and take-backs follow from the counts, and are added there."""
    numbers = torch.arange(NUM_COUNTS)
    own, other = numbers // COUNT_STEP % COUNT_STEP, numbers % COUNT_STEP
    seen = [(spheres - own) / spheres, (spheres - other) / spheres, numbers // COUNT_STEP**2 / 2]
    inputs = patterns.cells.in_features - NUM_STATES * NUM_CELLS  # without take-backs 2
    flat = torch.zeros(NUM_COUNTS, NUM_CELLS + inputs)
    flat[:, NUM_CELLS:] = torch.stack(seen[:inputs], dim=1)
    rows = patterns.rows()
    rows[-1 - NUM_COUNTS : -1] += patterns.extras(flat)
    table: Floats = rows.numpy()
    return table


def _block(block: nn.Module) -> Block:
    assert isinstance(block, ResidualBlock)
    gate = block.layers
    assert isinstance(gate, Gate)
    pair, last = gate.pair, gate.last
    return Block(
        pair.weight * gate.norm.weight,
        pair.bias + pair.weight @ gate.norm.bias,
        last.weight.clone(),
        last.bias.clone(),
    )


@jit
def embed(
    packed: Ints, canonical: bool, board: Board, table: Floats, symmetries: Ints, sums: Floats
) -> None:
    """What the first layer makes of each position, and the symmetry under which it was shown."""
    rows = np.empty(MOST_ROWS, dtype=np.int64)
    for game in range(len(packed)):
        position = packed[game]
        if canonical:
            symmetries[game] = kernel.canonical_symmetry(position)
            position = kernel.symmetric(position, symmetries[game])
        count = write_rows(position, board, rows)
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
def _relu(number: np.float32) -> np.float32:
    """Negative numbers are 0; what is no number stays none, so that it is noticed."""
    return np.float32(0) if number < 0 else number


@jit
def _gate(pair: Floats, product: Floats) -> None:
    width = product.shape[1]
    for game in range(len(pair)):
        row, out = pair[game], product[game]
        for column in range(width):
            out[column] = row[column] * _relu(row[width + column])


@jit_sums
def _finish(sums: Floats, ends: Ends, values: Floats) -> None:
    """The last norm in place, and the value head."""
    _normalise(sums, sums)
    for game in range(len(sums)):
        seen = sums[game]
        worth = np.float32(ends.value_bias)
        for column in range(len(seen)):
            feature = seen[column] * ends.scale[column] + ends.shift[column]
            seen[column] = _relu(feature)
            worth += seen[column] * ends.value[column]
        values[game] = np.tanh(worth)


@jit_sums
def write_legal_logits(
    packed: Ints,
    rules: int,
    symmetries: Ints,
    images: Ints,
    features: Floats,
    weight: Floats,
    bias: Floats,
    logits: Floats,
) -> None:
    """What a linear policy head [303, width] says of legal actions.

    `features` [games, width] are of the positions as their `symmetries` turned them.
    """
    width = weight.shape[1]
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    for game in range(len(packed)):
        seen, image = features[game], images[symmetries[game]]
        for number in range(kernel.write_legal(packed[game], rules, legal)):
            action = legal[number]
            weights = weight[image[action]]
            logit = bias[image[action]]
            for column in range(width):
                logit += seen[column] * weights[column]
            logits[game, action] = logit
