"""Self-play as tasks: given weights and a number, play so many whole games.

A task has no memory. Its number gives the numbers of its games, and all chance in a game is drawn
from (seed of the run, number, ply): so a task that was lost is played again somewhere else with the
same result. The games come back as a handful of flat arrays.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env.rules import Rules
from trainers.alphazero.config import AlphaZeroConfig
from trainers.alphazero.selfplay import Decision, Game, GameGroup, Tally
from trainers.inference import Inference
from trainers.search import Inner, Walk, drive_together
from trainers.search.inner import join_inner, split_inner

NO_GAME: Final = -1
_GAME_NUMBERS: Final = tuple(
    field.name
    for field in dataclasses.fields(Game)
    if field.name not in ("actions", "decisions", "inner", "seen")
)
_DECISION_NUMBERS: Final = tuple(name for name in Decision._fields if name != "policy")


class Task(NamedTuple):
    """Whole games to play with one version of the weights."""

    number: int
    version: int


class GameBatch(NamedTuple):
    """Finished games as flat arrays."""

    games: dict[str, npt.NDArray[Any]]  # [games] each: every number of a `Game`
    num_actions: npt.NDArray[np.int64]  # [games]
    num_decisions: npt.NDArray[np.int64]  # [games]
    actions: npt.NDArray[np.int16]  # [actions of all games]
    decisions: dict[str, npt.NDArray[Any]]  # [decisions of all games] each
    num_legal: npt.NDArray[np.int16]  # [decisions]
    policy: npt.NDArray[np.float32]  # [legal actions of all decisions]
    num_inner: npt.NDArray[np.int64]  # [games]: records of what searches found below their roots
    inner_sizes: npt.NDArray[np.int64]  # [records]: positions
    inner: Inner  # of all records


class Played(NamedTuple):
    """What a task brings."""

    batch: GameBatch
    tally: Tally


class TaskGroup(GameGroup):
    """Plays the games of given numbers to their ends; the group shrinks when they run out."""

    def __init__(self, config: AlphaZeroConfig, numbers: range) -> None:
        self._last = numbers[-1]
        at_once = min(config.cluster.at_once, len(numbers))
        super().__init__(
            Rules.of(config.rules),
            config.search,
            dataclasses.replace(config.selfplay, games=at_once),
            config.seed,
            numbers.start,
            numbers.step,
            config.network.canonical,
        )

    def _begin(self, row: int) -> Game:
        if self._next > self._last:
            return Game(NO_GAME, kernel.START)
        return super()._begin(row)

    def walk(self) -> Walk[list[Game]]:
        finished = yield from super().walk()
        rows = [row for row, game in enumerate(self.games) if game.number != NO_GAME]
        self.games = [self.games[row] for row in rows]
        self.packed = self.packed[rows]
        return finished

    def walk_to_the_end(self) -> Walk[list[Game]]:
        finished: list[Game] = []
        while self.games:
            finished += yield from self.walk()
        return finished


def play_task(config: AlphaZeroConfig, task: Task, inference: Inference) -> Played:
    """Play a task with the weights that the network has; on a card in two halves, pipelined."""
    size = config.cluster.games
    numbers = range(task.number * size, (task.number + 1) * size)
    halves = 2 if inference.evaluator.device.type == "cuda" and size > 1 else 1
    groups = [TaskGroup(config, numbers[half::halves]) for half in range(halves)]
    parts = drive_together([group.walk_to_the_end() for group in groups], inference.submit)
    tallies = [group.take_tally() for group in groups]
    tally = Tally(
        sum(tally.moves for tally in tallies),
        sum(tally.simulations for tally in tallies),
        sum(tally.plies for tally in tallies),
        max(tally.seconds for tally in tallies),
        sum(tally.asked for tally in tallies),
        sum(tally.known for tally in tallies),
    )
    games = sorted((game for part in parts for game in part), key=lambda game: game.number)
    return Played(pack(games), tally)


def pack(games: list[Game]) -> GameBatch:
    """Finished games as arrays, to be sent."""
    decisions = [decision for game in games for decision in game.decisions]
    policies = [decision.policy for decision in decisions]
    return GameBatch(
        {name: np.array([getattr(game, name) for game in games]) for name in _GAME_NUMBERS},
        np.array([len(game.actions) for game in games], dtype=np.int64),
        np.array([len(game.decisions) for game in games], dtype=np.int64),
        np.array([action for game in games for action in game.actions], dtype=np.int16),
        {name: np.array([getattr(d, name) for d in decisions]) for name in _DECISION_NUMBERS},
        np.array([len(policy) for policy in policies], dtype=np.int16),
        np.concatenate([np.empty(0, np.float32), *policies]),
        np.array([len(game.inner) for game in games], dtype=np.int64),
        np.array([len(inner.packed) for game in games for inner in game.inner], dtype=np.int64),
        join_inner([inner for game in games for inner in game.inner]),
    )


def unpack(batch: GameBatch) -> list[Game]:
    """The games that `pack` was given."""
    columns = [batch.decisions[name].tolist() for name in _DECISION_NUMBERS]
    policies = np.split(batch.policy.copy(), np.cumsum(batch.num_legal.astype(np.int64))[:-1])
    decisions = [
        Decision(**dict(zip(_DECISION_NUMBERS, numbers, strict=True)), policy=policy)
        for *numbers, policy in zip(*columns, policies, strict=False)
    ]
    actions = batch.actions.tolist()
    rows = zip(*(batch.games[name].tolist() for name in _GAME_NUMBERS), strict=True)
    records = split_inner(batch.inner, batch.inner_sizes)
    games, action, decision, record = [], 0, 0, 0
    counts = zip(
        batch.num_actions.tolist(),
        batch.num_decisions.tolist(),
        batch.num_inner.tolist(),
        strict=True,
    )
    for row, (num_actions, num_decisions, num_inner) in zip(rows, counts, strict=True):
        games.append(
            Game(
                **dict(zip(_GAME_NUMBERS, row, strict=True)),
                actions=actions[action : action + num_actions],
                decisions=decisions[decision : decision + num_decisions],
                inner=records[record : record + num_inner],
            )
        )
        action += num_actions
        decision += num_decisions
        record += num_inner
    return games
