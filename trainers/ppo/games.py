"""The games under way: one group of the self-play environment, with an opponent for each game.

In every game the learner has a seat, or both where its opponent is the live policy itself. A game
keeps its opponent to the end; the next one draws anew. A share of the games begins with random
plies, so that the network sees what good play alone would never reach.

All chance is drawn from (seed, game number, ply), and a group's state is a handful of arrays: a
resumed run plays on the same games.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.kernel import (
    MAX_LEGAL,
    canonical_symmetry,
    draw,
    is_over,
    pick,
    play,
    random_action,
    symmetric,
    write_legal,
)
from pylos_env.rules import Rules
from pylos_env.selfplay import SelfPlayBatch, SelfPlayVectorEnv
from trainers.ppo.config import RolloutConfig
from trainers.ppo.league import LIVE, GameResult, Lineup

# streams of chance within one game
OPENING_STREAM: Final = 1
SEAT_STREAM: Final = 2
OPPONENT_STREAM: Final = 3
DECISION_STREAM: Final = 4
VIEW_STREAM: Final = 5

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class GameGroup:
    """Games that move together; a finished one makes room for the next number of its group."""

    def __init__(
        self,
        rules: Rules,
        config: RolloutConfig,
        seed: int,
        first: int,
        stride: int,
        lineup: Lineup,
    ) -> None:
        """Games are numbered `first`, `first + stride`, ...: groups share no number."""
        self.rules = rules
        self._config = config
        self._seed = seed
        self._next = first
        self._stride = stride
        self.env = SelfPlayVectorEnv(
            config.games,
            rules,
            max_plies=config.max_plies,
            draw_reward=config.draw_reward,
            num_threads=1,
        )
        self.numbers = np.zeros(config.games, dtype=np.int64)
        self.opponents = np.zeros(config.games, dtype=np.int64)  # members of the league
        self.seats = np.zeros(config.games, dtype=np.int64)  # the learner's; 0 where it has both
        self.results: list[GameResult] = []
        self._batch = self.env.reset()
        self._begin(np.arange(config.games), lineup)

    def _begin(self, rows: Ints, lineup: Lineup) -> None:
        config, count = self._config, len(rows)
        self.numbers[rows] = self._next + self._stride * np.arange(count)
        self._next += self._stride * count
        starts, keys = np.empty(count, dtype=np.int64), np.empty((2, count), dtype=np.int64)
        _draw_games(
            self._seed,
            self.numbers[rows],
            self.rules.code,
            config.opening_share,
            config.opening_plies,
            starts,
            keys,
        )
        self.opponents[rows] = lineup.draw(keys[0])
        self.seats[rows] = np.where(self.opponents[rows] == LIVE, 0, keys[1] & 1)
        self.env.restart(rows, starts)

    @property
    def to_move(self) -> npt.NDArray[np.int8]:
        """[games]: the seat on turn."""
        return self._batch.to_move

    def learner_moves(self) -> npt.NDArray[np.bool_]:
        """[games]: whether the learner is on turn."""
        learner: npt.NDArray[np.bool_] = (self.opponents == LIVE) | (self.to_move == self.seats)
        return learner

    def keys(self) -> Ints:
        """[2, games]: a key for the decision on turn, and one for how the board is looked at."""
        keys = np.empty((2, len(self.numbers)), dtype=np.int64)
        _draw_keys(self._seed, self.numbers, self.env.plies, keys)
        return keys

    def step(self, actions: Ints) -> SelfPlayBatch:
        """Play an action in every game; who has ended is begun again by `replace`."""
        self._lengths = self.env.plies + 1
        return self.env.step(actions)

    def replace(self, rows: Ints, lineup: Lineup) -> None:
        """Count the games that the last step ended, and begin others in their place."""
        cut = self._batch.truncated[rows]
        winners = 1 - (self.env.reached[rows] >> kernel.SIDE_SHIFT & 1)
        scores = np.where(cut, 0.5, winners == self.seats[rows])
        columns = self.opponents[rows], scores, self._lengths[rows]
        for opponent, score, plies in zip(*(column.tolist() for column in columns), strict=True):
            self.results.append(GameResult(opponent, score, plies))
        self._begin(rows, lineup)

    def take_results(self) -> list[GameResult]:
        results, self.results = self.results, []
        return results

    # A resumed run goes on with the same games

    def state(self) -> dict[str, Any]:
        arrays = (self.numbers, self.opponents, self.seats, self.env.packed, self.env.plies)
        saved = [torch.from_numpy(array.copy()) for array in arrays]
        return {"next": self._next, "games": saved}

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = state["next"]
        arrays = [tensor.numpy() for tensor in state["games"]]
        self.numbers, self.opponents, self.seats = (array.copy() for array in arrays[:3])
        self._batch = self.env.reset(arrays[3])
        self.env.plies[:] = arrays[4]


@jit
def random_opening(rules: int, key: int, plies: int) -> int:
    """A position after so many random plies, at the end of a turn, with the game still on."""
    position = kernel.START
    last = kernel.START
    for ply in range(plies):
        position = play(position, rules, random_action(position, rules, draw(key, 2 + ply)))
        if is_over(position, rules):
            break
        if not kernel.take_backs_left(position):
            last = position
    return last


@jit
def _draw_games(
    seed: int,
    numbers: Ints,
    rules: int,
    opening_share: float,
    opening_plies: int,
    starts: Ints,
    keys: Ints,
) -> None:
    """Where each game starts; the keys of its opponent and of the learner's seat."""
    for row in range(len(numbers)):
        game = draw(seed, numbers[row])
        key = draw(game, OPENING_STREAM)
        plies = 0
        if draw(key, 0) < opening_share * 9.223372036854775e18:
            plies = pick(draw(key, 1), opening_plies + 1)
        starts[row] = random_opening(rules, key, plies)
        keys[0, row] = draw(game, OPPONENT_STREAM)
        keys[1, row] = draw(game, SEAT_STREAM)


@jit
def _draw_keys(seed: int, numbers: Ints, plies: Ints, keys: Ints) -> None:
    for row in range(len(numbers)):
        game = draw(seed, numbers[row])
        keys[0, row] = draw(draw(game, DECISION_STREAM), plies[row])
        keys[1, row] = draw(draw(game, VIEW_STREAM), plies[row])


@jit
def write_views(
    packed: Ints, keys: Ints, canonical: bool, symmetries: bool, turns: Ints, views: Ints
) -> None:
    """Look at each position: as a canonical network does, turned at random, or as it is."""
    for game in range(len(packed)):
        turns[game] = 0
        if canonical:
            turns[game] = canonical_symmetry(packed[game])
        elif symmetries:
            turns[game] = keys[game] & 7
        views[game] = symmetric(packed[game], turns[game])


@jit
def draw_actions(views: Ints, rules: int, logits: Floats, keys: Ints) -> tuple[Ints, Floats]:
    """An action from each policy over legal actions, by the row's key, and its log-probability."""
    actions = np.empty(len(views), dtype=np.int64)
    log_probs = np.empty(len(views), dtype=np.float32)
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    weights = np.empty(MAX_LEGAL, dtype=np.float64)
    for row in range(len(views)):
        count = write_legal(views[row], rules, legal)
        chosen = 0  # the likeliest, in case that rounding pushes the share past the end
        for index in range(1, count):
            if logits[row, legal[index]] > logits[row, legal[chosen]]:
                chosen = index
        highest = np.float64(logits[row, legal[chosen]])
        total = 0.0
        for index in range(count):
            weights[index] = np.exp(np.float64(logits[row, legal[index]]) - highest)
            total += weights[index]
        share = keys[row] / 9.223372036854775807e18 * total
        passed = 0.0
        for index in range(count):
            passed += weights[index]
            if share < passed:
                chosen = index
                break
        actions[row] = legal[chosen]
        log_probs[row] = np.log(weights[chosen] / total)
    return actions, log_probs
