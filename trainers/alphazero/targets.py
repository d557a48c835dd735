"""From finished games to samples: what each recorded position should have been worth."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env.kernel import side_of
from trainers.alphazero.config import TargetsConfig
from trainers.alphazero.selfplay import Game, winner_of
from trainers.search.inner import join_inner

SHARE: Final = 65535
"""A policy's share of 1 as it is stored."""


class Samples(NamedTuple):
    """Positions to learn from; a position's policy lies in `policy` from `begin` on."""

    packed: npt.NDArray[np.int64]  # [samples]
    value: npt.NDArray[np.float32]  # [samples], for the side to move
    weight: npt.NDArray[np.float32]  # [samples]: of the value's loss, 0 where nothing is known
    error: npt.NDArray[np.float16]  # [samples]: of the network's value, when it was last asked;
    # 1 where nothing is known
    begin: npt.NDArray[np.int64]  # [samples + 1]
    policy: npt.NDArray[np.uint16]  # [legal actions of all samples, ascending]: share * SHARE

    @property
    def size(self) -> int:
        return len(self.packed)


def value_targets(
    game: Game, config: TargetsConfig, progress: float = 0.0
) -> list[tuple[float, float]]:
    """The value of each decision of a game for its side to move, and the weight of that value.

    From the end backwards: a decision is worth what followed it, with `root_share` of the search's
    own value mixed in. So what was found late in the game counts for the positions near it, and an
    outcome that rests on a blunder far ahead counts little. A proof cuts off what came after it,
    and so does a random action, the more the search can be trusted: the decision is worth what the
    search said of it. The share moves from `root_share` to `final_root_share` as the run makes
    progress.
    """
    winner = winner_of(game)
    known = not game.truncated or config.truncated != "mask"
    if game.resigned or (game.truncated and config.truncated == "bootstrap"):
        following = [-game.last_value, -game.last_value]  # what the rest is worth to each seat
        following[side_of(game.end)] = game.last_value
    elif winner is not None:
        following = [-1.0, -1.0]
        following[winner] = 1.0
    else:
        following = [config.draw_value, config.draw_value]
    targets: list[tuple[float, float]] = []
    ply = len(game.actions)
    share = (1 - progress) * config.root_share + progress * config.final_root_share
    cut = _trust(config, progress)
    found = np.array([decision.value for decision in game.decisions])
    values = sharpened(found, config.sharpen, config.sharpen_from).tolist()
    for decision, value in zip(reversed(game.decisions), reversed(values), strict=True):
        fading = config.win_discount ** (ply - decision.ply)
        ply = decision.ply
        side = side_of(decision.packed)
        if config.trust_proofs and decision.proven:
            known = True
            following[side], following[1 - side] = float(decision.proven), -float(decision.proven)
        else:
            mixed = max(share, cut) if decision.strays else share
            known = known or mixed == 1
            for seat, own in ((side, value), (1 - side, -value)):
                following[seat] = (1 - mixed) * fading * following[seat] + mixed * own
        targets.append((following[side], 1.0) if known else (0.0, 0.0))
    return targets[::-1]


def _trust(config: TargetsConfig, progress: float) -> float:
    """How far the search's own value is trusted where no outcome speaks of a position."""
    return min(1.0, progress / config.stray_trust) if config.stray_trust else 1.0


def sharpened(
    values: npt.NDArray[np.floating], strength: float, middle: float
) -> npt.NDArray[np.floating]:
    """Values moved away from `middle`, or its negative: towards a win above it, and a little
    towards 0 below.

    0, the middle and a win stay where they are; what would be moved beyond a win becomes one.
    """
    sizes = np.abs(values)
    moved = sizes + strength * sizes * (sizes - middle) * (1 - sizes)
    farther: npt.NDArray[np.floating] = np.copysign(np.clip(moved, 0, 1), values)
    return farther


def samples_of(games: list[Game], config: TargetsConfig, progress: float = 0.0) -> Samples:
    """All recorded positions of finished games, in the order of their games' numbers, and behind
    them what searches found out below their roots: there their own word is all that is known, and
    counts as much as it is trusted.

    `progress` is the share of the run that is over.
    """
    packed, values, weights, guesses, policies = [], [], [], [], []
    games = sorted(games, key=lambda game: game.number)
    for game in games:
        targets = value_targets(game, config, progress)
        for decision, (value, weight) in zip(game.decisions, targets, strict=True):
            packed.append(decision.packed)
            values.append(value)
            weights.append(weight)
            guesses.append(decision.guess)
            policies.append(decision.policy)
    inner = join_inner([record for game in games for record in game.inner])
    found = sharpened(inner.value, config.sharpen, config.sharpen_from)
    trusted = np.where(inner.proven != 0, 1.0, _trust(config, progress))
    sizes = np.array([len(policy) for policy in policies], dtype=np.int64)
    shares = np.concatenate([np.empty(0, np.float32), *policies, inner.policy])
    all_values = np.concatenate([values, found]).astype(np.float32)
    all_weights = np.concatenate([weights, trusted]).astype(np.float32)
    errors = np.abs(all_values - np.concatenate([guesses, inner.guess]))
    unknown = np.isnan(errors) | (all_weights == 0)
    return Samples(
        np.concatenate([np.array(packed, dtype=np.int64), inner.packed]),
        all_values,
        all_weights,
        np.where(unknown, 1, errors).astype(np.float16),
        np.cumsum(np.concatenate([[0], sizes, inner.num_legal])),
        np.rint(shares * SHARE).astype(np.uint16),
    )
