"""A `symmetric` network on a CPU, faster than torch's layers one by one.

    evaluate = SymmetricKernel(network, rules)
    logits, values = evaluate(packed)

A kernel finds the rows of the first layer from the bits of a position and adds them up. The blocks'
products of matrices are torch's; norms and gates between them are kernels. The policy is asked for
legal actions only: the logits of all others are 0. It answers as the network itself does, but for
rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pylos_env._jit import jit_view_sums, jit_views
from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.kernel import NUM_ACTIONS
from pylos_env.rules import Rules
from trainers.network import NetworkConfig, PolicyValueNetwork, ResidualBlock
from trainers.pattern_kernel import embed, write_legal_logits
from trainers.pattern_rows import make_board
from trainers.products import linear
from trainers.search.tree import Floats, Ints
from trainers.symmetric import (
    SymmetricEnd,
    SymmetricGate,
    SymmetricHead,
    SymmetricPatterns,
)
from trainers.waves import (
    SYMMETRIES,
    by_position,
    factor_of,
    from_waves,
    gate,
    normalise,
    relu,
)


class Block(NamedTuple):
    """A gated block."""

    scale: Floats  # [channels], of its norm
    singles: Tensor  # [4, channels, 2 * channels]
    pairs: Tensor  # [4 * channels, 2 * channels]: as layers have it, what comes out first
    bias: Tensor  # [4, 1, 2 * channels]
    last_singles: Tensor  # [4, channels, channels]
    last_pairs: Tensor  # [2 * channels, 2 * channels]
    last_bias: Tensor  # [4, 1, channels]


class Ends(NamedTuple):
    """The last norm and both heads."""

    scale: Floats  # [channels]
    shift: Floats  # [channels]
    policy: Floats  # [303, width]
    policy_bias: Floats  # [303]
    value: Floats  # [width]
    value_bias: float


def can_run(config: NetworkConfig) -> bool:
    """Whether the kernel knows such a network."""
    return config.kind == "symmetric" and config.value_head == "scalar"


class SymmetricKernel:
    """A symmetric network as a function from positions to logits and values: see `search`."""

    def __init__(self, network: PolicyValueNetwork, rules: Rules) -> None:
        self._rules = rules
        self._canonical = network.config.canonical and rules.symmetric
        self._board = make_board()
        self.take(network)

    def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
        games, channels = len(packed), self._table.shape[1] // SYMMETRIES
        symmetries = np.zeros(games, dtype=np.int64)
        features = np.empty((games, SYMMETRIES * channels), dtype=np.float32)
        embed(packed, self._canonical, self._board, self._table, symmetries, features)
        singles, pairs = torch.empty(4, games, channels), torch.empty(2 * games, 2 * channels)
        inner = singles.numpy(), pairs.numpy()
        with torch.inference_mode():
            for block in self._blocks:
                normalise(features, block.scale, *inner)
                seen = torch.baddbmm(block.bias, singles, block.singles)
                gate(seen.numpy(), linear(pairs, block.pairs).numpy(), *inner)
                added = torch.baddbmm(block.last_bias, singles, block.last_singles)
                added_pairs = by_position(linear(pairs, block.last_pairs).numpy())
                _add(features, added.numpy(), added_pairs)
        logits = np.zeros((games, NUM_ACTIONS), dtype=np.float32)
        values = np.empty(games, dtype=np.float32)
        ends = self._ends
        _finish(features, ends, values)
        write_legal_logits(
            packed,
            self._rules.code,
            symmetries,
            ACTION_SYMMETRIES,
            features,
            ends.policy,
            ends.policy_bias,
            logits,
        )
        return logits, values

    @torch.no_grad()
    def take(self, network: PolicyValueNetwork) -> None:
        """Go on with another network's weights."""
        patterns, *blocks, end = network.body.children()
        assert isinstance(patterns, SymmetricPatterns)
        assert isinstance(end, SymmetricEnd)
        self._table = patterns.wide().numpy()
        self._blocks = [_block(block) for block in blocks]
        policy, value = network.policy, network.value
        assert isinstance(policy, SymmetricHead)
        assert isinstance(value, SymmetricHead)
        self._ends = Ends(
            end.norm.scale.numpy().copy(),
            end.shift.numpy().copy(),
            policy.weight.numpy(),
            policy.bias.numpy(),
            value.weight.numpy().ravel(),
            float(value.bias.item()),
        )


def _block(block: nn.Module) -> Block:
    assert isinstance(block, ResidualBlock)
    layers = block.layers
    assert isinstance(layers, SymmetricGate)
    singles, pairs, bias = layers.pair.matrices()
    last_singles, last_pairs, last_bias = layers.last.matrices()
    return Block(
        layers.norm.scale.numpy().copy(),
        singles.contiguous(),
        pairs.T.contiguous(),
        bias,
        last_singles.contiguous(),
        last_pairs.T.contiguous(),
        last_bias,
    )


@jit_views
def _add(features: Floats, singles: Floats, pairs: Floats) -> None:
    channels = singles.shape[2]
    for row in range(len(features)):
        for wave in range(SYMMETRIES):
            into = features[row, wave * channels : (wave + 1) * channels]
            part = singles[wave, row] if wave < 4 else pairs[row, wave - 4]
            for channel in range(channels):
                into[channel] += part[channel]


def _finish(features: Floats, ends: Ends, values: Floats) -> None:
    """The end of the body in place, and the value head."""
    by_wave = features.reshape(len(features), SYMMETRIES, features.shape[1] // SYMMETRIES)
    _write_ends(features, by_wave, ends, values, np.empty(by_wave.shape[1:], dtype=np.float32))


@jit_view_sums
def _write_ends(
    features: Floats, by_wave: Floats, ends: Ends, values: Floats, numbers: Floats
) -> None:
    channels = len(ends.scale)
    for game in range(len(features)):
        row = features[game]
        factor = factor_of(row)
        from_waves(by_wave[game], numbers)
        for symmetry in range(SYMMETRIES):
            seen, into = numbers[symmetry], row[symmetry * channels : (symmetry + 1) * channels]
            for channel in range(channels):
                scaled = seen[channel] * factor * ends.scale[channel]
                into[channel] = relu(scaled + ends.shift[channel])
        worth = np.float32(ends.value_bias)
        for column in range(len(row)):
            worth += row[column] * ends.value[column]
        values[game] = np.tanh(worth)
