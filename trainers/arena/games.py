"""Many games at once: at each step every agent is asked once for the moves of all its games.

A game that ends makes room for the next one, so that batches stay full. Which games run beside it
changes nothing in a game, as long as an agent's answer depends on the position and the key alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env import batch as batches
from pylos_env import kernel
from pylos_env.agents import Agent
from pylos_env.errors import IllegalMoveError, PylosError
from pylos_env.options import MAX_PLIES, check_actions, check_count, ply_limit
from pylos_env.position import Position
from pylos_env.record import GameRecord
from pylos_env.rules import Rules
from trainers.arena.openings import Opening

BATCH: Final = 256
"""Default number of games under way at once."""
WHITE_POINTS: Final = {batches.WON: 1.0, batches.LOST: 0.0, batches.TRUNCATED: 0.5}


class Fixture(NamedTuple):
    """A game to be played."""

    white: int  # index into the players
    black: int
    opening: Opening
    stream: int  # the keys of its decisions are drawn from this


class Played(NamedTuple):
    """A game that has ended: by a win, or as a draw at the ply limit."""

    number: int  # of its fixture
    actions: tuple[int, ...]  # the opening included
    white_points: float


@dataclass(frozen=True)
class Game:
    """A game of a match: who played, how it began, and how it ended."""

    pair: int
    white: str
    black: str
    opening: Opening
    actions: tuple[int, ...]
    """All of them, the opening's included."""
    white_points: float

    def points(self, seat: int) -> float:
        return self.white_points if seat == 0 else 1 - self.white_points

    def record(self, event: str) -> GameRecord:
        rules = self.opening.position.rules
        tags = {
            "Event": event,
            "Round": str(self.pair + 1),
            "White": self.white,
            "Black": self.black,
            "OpeningPlies": str(len(self.opening.actions)),
        }
        if self.white_points == WHITE_POINTS[batches.TRUNCATED]:
            tags["Termination"] = "ply limit"
        return GameRecord(Position.start(rules), self.actions, tags)


def half_points(straight: Game, swapped: Game) -> int:
    """From 0 to 4: what a pair gave the player who had white first and black then."""
    return round(2 * (straight.points(0) + swapped.points(1)))


def play_games(
    players: Sequence[Agent],
    fixtures: Iterable[Fixture],
    rules: Rules,
    max_plies: int | None = MAX_PLIES,
    batch: int = BATCH,
) -> Iterator[Played]:
    """Play all fixtures, `batch` at a time, and give each game as it ends.

    The ply limit counts the opening's actions too. Where an agent answers with an illegal action,
    `IllegalMoveError` names it and the position.
    """
    slots = _Slots(check_count("batch", batch))
    waiting = enumerate(fixtures)
    while True:
        for slot in np.flatnonzero(slots.status != batches.ONGOING).tolist():
            following = next(waiting, None)
            if following is None:
                break
            slots.begin(slot, *following)
        live = np.flatnonzero(slots.status == batches.ONGOING)
        if not live.size:
            return
        actions = _ask_all(players, slots, live, rules)
        for slot, action in zip(live.tolist(), actions.tolist(), strict=True):
            slots.actions[slot].append(action)
        batches.step_seat(
            live,
            slots.packed,
            slots.plies,
            slots.status,
            slots.white_seat,
            actions,
            rules.code,
            ply_limit(max_plies),
        )
        _check_legal(players, slots, live, actions, rules)
        for slot in live[slots.status[live] != batches.ONGOING].tolist():
            yield slots.played(slot)


def ask(
    player: Agent, packed: npt.NDArray[np.int64], rules: Rules, keys: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """An agent's actions for many positions; whether they are legal is not checked."""
    answer = player.act_batch(packed, rules, keys)
    try:
        return check_actions(answer, len(packed))
    except TypeError as error:
        raise PylosError(f"{player.name}: {error}") from None


class _Slots:
    """The games under way, one a slot; a slot that is not ONGOING is free."""

    def __init__(self, count: int) -> None:
        self.packed = np.zeros(count, dtype=np.int64)
        self.plies = np.zeros(count, dtype=np.int64)
        self.status = np.full(count, batches.TRUNCATED, dtype=np.int8)
        self.white_seat = np.zeros(count, dtype=np.int8)  # the status is seen from white
        self.streams = np.zeros(count, dtype=np.int64)
        self.players = np.zeros((2, count), dtype=np.int64)  # [seats, slots]
        self.numbers = np.zeros(count, dtype=np.int64)
        self.actions: list[list[int]] = [[] for _ in range(count)]

    def begin(self, slot: int, number: int, fixture: Fixture) -> None:
        self.packed[slot] = fixture.opening.position.packed
        self.plies[slot] = len(fixture.opening.actions)
        self.status[slot] = batches.ONGOING
        self.streams[slot] = fixture.stream
        self.players[:, slot] = fixture.white, fixture.black
        self.numbers[slot] = number
        self.actions[slot] = list(fixture.opening.actions)

    def played(self, slot: int) -> Played:
        return Played(
            int(self.numbers[slot]),
            tuple(self.actions[slot]),
            WHITE_POINTS[int(self.status[slot])],
        )


def _ask_all(
    players: Sequence[Agent], slots: _Slots, live: npt.NDArray[np.int64], rules: Rules
) -> npt.NDArray[np.int64]:
    """[live]: the action of the player on turn in each game."""
    packed = slots.packed[live]
    keys = np.array(
        [
            kernel.draw(stream, ply)
            for stream, ply in zip(
                slots.streams[live].tolist(), slots.plies[live].tolist(), strict=True
            )
        ]
    )
    movers = slots.players[packed >> kernel.SIDE_SHIFT & 1, live]
    actions = np.empty(len(live), dtype=np.int64)
    for player in np.unique(movers).tolist():
        rows = np.flatnonzero(movers == player)
        actions[rows] = ask(players[player], packed[rows], rules, keys[rows])
    return actions


def _check_legal(
    players: Sequence[Agent],
    slots: _Slots,
    live: npt.NDArray[np.int64],
    actions: npt.NDArray[np.int64],
    rules: Rules,
) -> None:
    illegal = np.flatnonzero(slots.status[live] == batches.ILLEGAL)
    if illegal.size:
        slot, action = int(live[illegal[0]]), int(actions[illegal[0]])
        position = Position.unchecked(int(slots.packed[slot]), rules)
        name = players[int(slots.players[position.side, slot])].name
        raise IllegalMoveError(f"{name}: {position.why_illegal(action)}")
