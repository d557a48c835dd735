"""From finished games to samples: what each recorded position should have been worth."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env.kernel import side_of
from trainers.alphazero.config import TargetsConfig
from trainers.alphazero.selfplay import Game, winner_of

SHARE: Final = 65535
"""A policy's share of 1 as it is stored."""


class Samples(NamedTuple):
    """Positions to learn from; a position's policy lies in `policy` from `begin` on."""

    packed: npt.NDArray[np.int64]  # [samples]
    value: npt.NDArray[np.float32]  # [samples], for the side to move
    weight: npt.NDArray[np.float32]  # [samples]: of the value's loss, 0 where nothing is known
    begin: npt.NDArray[np.int64]  # [samples + 1]
    policy: npt.NDArray[np.uint16]  # [legal actions of all samples, ascending]: share * SHARE

    @property
    def size(self) -> int:
        return len(self.packed)


def value_target(game: Game, index: int, config: TargetsConfig) -> tuple[float, float]:
    """The value of a game's decision for its side to move, and the weight of that value."""
    decision = game.decisions[index]
    if config.trust_proofs and decision.proven:
        return float(decision.proven), 1.0
    side = side_of(decision.packed)
    winner = winner_of(game)
    if winner is not None:
        plies = len(game.actions) - decision.ply
        outcome = (1.0 if winner == side else -1.0) * config.win_discount**plies
    elif config.truncated == "draw":
        outcome = config.draw_value
    elif config.truncated == "bootstrap":
        outcome = game.last_value if side_of(game.end) == side else -game.last_value
    else:
        return 0.0, 0.0
    return (1 - config.root_share) * outcome + config.root_share * decision.value, 1.0


def samples_of(games: list[Game], config: TargetsConfig) -> Samples:
    """All recorded positions of finished games, in the order of their games' numbers."""
    packed, values, weights, policies = [], [], [], []
    for game in sorted(games, key=lambda game: game.number):
        for index, decision in enumerate(game.decisions):
            value, weight = value_target(game, index, config)
            packed.append(decision.packed)
            values.append(value)
            weights.append(weight)
            policies.append(decision.policy)
    sizes = [len(policy) for policy in policies]
    return Samples(
        np.array(packed, dtype=np.int64),
        np.array(values, dtype=np.float32),
        np.array(weights, dtype=np.float32),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.rint(np.concatenate([np.empty(0, np.float32), *policies]) * SHARE).astype(np.uint16),
    )
