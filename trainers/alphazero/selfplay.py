"""Self-play: a group of games that all move together, and what each game leaves to learn from.

Some moves are searched with all simulations and recorded; the others are quick and only carry the
game on (playout-cap randomisation). A share of the games begins with random plies, so that the
network sees what good play alone would never reach.

All chance is drawn from (seed, game number, ply): a game plays alike in any group. A group's state
is a handful of arrays, saved with the run, so that a resumed run plays on the same games.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.kernel import draw, is_over, play, random_action, side_of
from pylos_env.rules import Rules
from trainers.alphazero.config import SelfPlayConfig
from trainers.search import (
    Evaluate,
    Inner,
    Memory,
    Search,
    SearchConfig,
    SearchResult,
    Walk,
    drive,
    remembered,
)
from trainers.search.inner import from_bytes, to_bytes
from trainers.search.tree import Ints

# streams of chance within one game
OPENING_STREAM: Final = 1
SEARCH_STREAM: Final = 2
KIND_STREAM: Final = 3
RESIGN_STREAM: Final = 4
STRAY_STREAM: Final = 5


class Decision(NamedTuple):
    """A position that was searched with all simulations."""

    packed: int
    ply: int
    value: float  # of the search, for the side to move
    proven: int
    strays: bool  # not the search's action was played, but a random one
    policy: npt.NDArray[np.float32]  # [legal actions, ascending]
    guess: float = math.nan  # of the network alone, as far as it is known


@dataclass
class Game:
    """A game under way, or a finished one."""

    number: int
    start: int
    actions: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    inner: list[Inner] = field(default_factory=list)
    """Of each decision, if asked for: what its search found out below the root."""
    seen: set[int] = field(default_factory=set, repr=False, compare=False)
    """All positions since the last random action, while it is under way."""
    end: int = 0
    truncated: bool = False
    drawn: bool = False
    """It came back to a position that it had left by nobody's random action."""
    last_value: float = 0.0
    """Of a game without an end: what its last position is worth, for its side to move."""
    resigned: bool = False
    """It ended where the search was sure of the winner."""


@dataclass
class Tally:
    """What a group has done since it was last asked."""

    moves: int = 0
    simulations: int = 0
    plies: int = 0
    """That all simulations together went down."""
    seconds: float = 0.0
    asked: int = 0
    """Positions whose evaluation the searches asked their memory for."""
    known: int = 0
    """Those that the memory had."""


class GameGroup:
    """Games that move together; a finished one makes room for the next number of its group."""

    def __init__(
        self,
        rules: Rules,
        search: SearchConfig,
        config: SelfPlayConfig,
        seed: int,
        first: int,
        stride: int,
        canonical: bool = False,
    ) -> None:
        """Games are numbered `first`, `first + stride`, ...: groups share no number.

        `canonical`: the network is, so that a position's images need not be asked for.
        """
        self._rules = rules
        self._config = config
        self._seed = seed
        self._next = first
        self._stride = stride
        self._search = Search(rules, search, config.games)
        self._simulations = search.simulations
        self._memory = Memory(rules, canonical, config.memory) if config.memory else None
        self.games: list[Game] = []
        self.packed = np.empty(config.games, dtype=np.int64)
        self.tally = Tally()
        for row in range(config.games):
            self.games.append(self._begin(row))

    def _begin(self, row: int) -> Game:
        number = self._next
        self._next += self._stride
        config = self._config
        key = draw(draw(self._seed, number), OPENING_STREAM)
        plies = 0
        if draw(key, 0) < config.opening_share * (1 << 63):
            share = draw(key, 1) / (1 << 63)
            skewed = int((config.opening_plies + 1) * share**config.opening_skew)
            plies = min(config.opening_plies, skewed)  # a share may be rounded to 1
        start = random_opening(self._rules.code, key, plies)
        self.packed[row] = start
        return Game(number, int(start), seen={int(start)})

    def step(self, evaluate: Evaluate) -> list[Game]:
        """One ply of every game; returns those that ended. `forget` first what another said."""
        return drive(self.walk(), evaluate)

    def walk(self) -> Walk[list[Game]]:
        """The same ply, for a caller who brings the network's answers when they are there."""
        walk = self._walk()
        return walk if self._memory is None else remembered(walk, self._memory)

    def forget(self) -> None:
        """The network has changed: what it said before counts no more."""
        if self._memory is not None:
            self._memory.forget()

    def _walk(self) -> Walk[list[Game]]:
        began = time.perf_counter()
        config, games = self._config, self.games
        plies = np.array([len(game.actions) for game in games], dtype=np.int64)
        numbers = np.array([game.number for game in games], dtype=np.int64)
        keys, full = _draw_keys(self._seed, numbers, plies, config.full_share)
        may_resign = _draw_resigning(self._seed, numbers, config.resign_share)
        simulations = np.where(full, self._simulations, config.quick_simulations)
        result = yield from self._search.walk(
            self.packed, keys, simulations, config.max_plies - plies
        )
        actions = result.action
        if self._search.config.root == "puct":
            actions = _cooled(result, plies >= config.temperature_plies)
        actions, strays = _stray(
            self.packed,
            self._rules.code,
            self._seed,
            numbers,
            plies,
            config.stray_share,
            full,
            actions,
        )
        searched = np.flatnonzero(full)
        if config.inner_visits:
            records = self._search.inner(searched, config.inner_visits)
            for row, record in zip(searched.tolist(), records, strict=True):
                games[row].inner.append(record)
        for row in searched.tolist():
            count = result.num_legal[row]
            games[row].decisions.append(
                Decision(
                    int(self.packed[row]),
                    int(plies[row]),
                    float(result.value[row]),
                    int(result.proven[row]),
                    bool(strays[row]),
                    result.policy[row, :count].copy(),
                    float(result.guess[row]),
                )
            )
        finished: list[Game] = []
        resigned = full & may_resign & (np.abs(result.value) > config.resign)
        for row in np.flatnonzero(resigned).tolist():
            game = games[row]
            game.end, game.resigned = int(self.packed[row]), True
            game.last_value = float(result.value[row])
            finished.append(game)
            games[row] = self._begin(row)
        ended = np.empty(len(games), dtype=np.bool_)
        _play(self.packed, actions, resigned, self._rules.code, ended)
        for row in np.flatnonzero(~resigned).tolist():
            game = games[row]
            game.actions.append(int(actions[row]))
            position = int(self.packed[row])
            if strays[row]:
                game.seen.clear()
            game.drawn = position in game.seen and config.repetition_draws
            game.seen.add(position)
            if ended[row] or game.drawn or len(game.actions) >= config.max_plies:
                game.end = position
                game.truncated = not (ended[row] or game.drawn)
                finished.append(game)
                games[row] = self._begin(row)
        cut = [game for game in finished if game.truncated]
        if cut:
            _, values = yield np.array([game.end for game in cut], dtype=np.int64)
            for game, value in zip(cut, values.tolist(), strict=True):
                game.last_value = value
        self.tally.moves += len(games)
        self.tally.simulations += int(result.visits.sum())
        self.tally.plies += int(result.plies.sum())
        self.tally.seconds += time.perf_counter() - began
        return finished

    def take_tally(self) -> Tally:
        tally, self.tally = self.tally, Tally()
        if self._memory is not None:
            tally.asked, tally.known = self._memory.take_counts()
        return tally

    # A resumed run goes on with the same games

    def state(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "games": [
                {
                    "number": game.number,
                    "start": game.start,
                    "actions": list(game.actions),
                    "decisions": [[*d[:5], d.policy.tobytes(), d.guess] for d in game.decisions],
                    "inner": [to_bytes(record) for record in game.inner],
                }
                for game in self.games
            ],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = state["next"]
        self.games = []
        for row, saved in enumerate(state["games"]):
            decisions = [
                Decision._make(
                    [*one[:5], np.frombuffer(one[5], np.float32), *(one[6:] or [math.nan])]
                )
                for one in saved["decisions"]
            ]
            game = Game(saved["number"], saved["start"], list(saved["actions"]), decisions)
            game.inner = [from_bytes(columns) for columns in saved.get("inner", ())]
            self.games.append(game)
            position = game.start
            game.seen = {position}
            strays = {decision.ply for decision in decisions if decision.strays}
            for ply, action in enumerate(game.actions):
                position = play(position, self._rules.code, action)
                if ply in strays:
                    game.seen.clear()
                game.seen.add(position)
            self.packed[row] = position


def _cooled(result: SearchResult, cold: npt.NDArray[np.bool_]) -> Ints:
    """The drawn actions, but the most visited one where a game has cooled down."""
    best = result.policy.argmax(axis=1)
    most = result.legal[np.arange(len(best)), best].astype(np.int64)
    actions: Ints = np.where(cold, most, result.action)
    return actions


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
def _draw_keys(
    seed: int, numbers: Ints, plies: Ints, full_share: float
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """A key for each game's search, and whether it gets all simulations."""
    keys = np.empty(len(numbers), dtype=np.int64)
    full = np.empty(len(numbers), dtype=np.bool_)
    for row in range(len(numbers)):
        game = draw(seed, numbers[row])
        keys[row] = draw(draw(game, SEARCH_STREAM), plies[row])
        full[row] = draw(draw(game, KIND_STREAM), plies[row]) < full_share * 9.223372036854775e18
    return keys, full


@jit
def _draw_resigning(seed: int, numbers: Ints, share: float) -> npt.NDArray[np.bool_]:
    """Which games may be resigned."""
    found = np.empty(len(numbers), dtype=np.bool_)
    for row in range(len(numbers)):
        found[row] = draw(draw(seed, numbers[row]), RESIGN_STREAM) < share * 9.223372036854775e18
    return found


@jit
def _stray(
    packed: Ints,
    rules: int,
    seed: int,
    numbers: Ints,
    plies: Ints,
    most: float,
    full: npt.NDArray[np.bool_],
    actions: Ints,
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The actions to play, random ones among them, and where those differ from the search's.

    Each game has a share of random actions of its own, uniform up to `most`; only moves that are
    learnt from stray.
    """
    chosen = actions.copy()
    for row in range(len(packed)):
        key = draw(draw(seed, numbers[row]), STRAY_STREAM)
        share = most * draw(key, 0) / 9.223372036854775e18
        if full[row] and draw(key, 2 * plies[row] + 1) < share * 9.223372036854775e18:
            chosen[row] = random_action(packed[row], rules, draw(key, 2 * plies[row] + 2))
    return chosen, chosen != actions


@jit
def _play(
    packed: Ints,
    actions: Ints,
    resigned: npt.NDArray[np.bool_],
    rules: int,
    ended: npt.NDArray[np.bool_],
) -> None:
    """Play an action in every game but those that ended without one."""
    for row in range(len(packed)):
        if resigned[row]:
            continue
        packed[row] = play(packed[row], rules, actions[row])
        ended[row] = is_over(packed[row], rules)


def winner_of(game: Game) -> int | None:
    """The seat that won, or that the other has resigned to; None for a game without a winner."""
    if game.truncated or game.drawn:
        return None
    lost = side_of(game.end)
    return lost if game.resigned and game.last_value > 0 else 1 - lost
