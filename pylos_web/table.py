"""One game at its table: who sits where, what may be done, how it stands. Knows no network."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, Literal

from pylos_env import kernel
from pylos_env.errors import IllegalMoveError, NotationError
from pylos_env.geometry import FIRST_RAISE, RAISES, STOP
from pylos_env.notation import CELL_NAMES, STOP_NAME
from pylos_env.options import MAX_PLIES
from pylos_env.position import BLACK, SIDE_NAMES, WHITE, Outcome, Position
from pylos_env.record import GameRecord
from pylos_web.levels import Level, Thinker
from pylos_web.messages import (
    Color,
    Legal,
    Mode,
    Place,
    Player,
    Players,
    Raise,
    Refusal,
    Remove,
    Reserves,
    Result,
    SkipRemoval,
    State,
    Typed,
)
from trainers.play.game import TERMINATION, Game
from trainers.play.moves import read_moves

HUMAN: Final = "Human"
NOBODY: Final = Legal(place=[], rise=[], remove=[], stop=False)


@dataclass(frozen=True)
class Seat:
    """A player: a level, or a person where there is none."""

    level: Level | None = None
    thinker: Thinker | None = None

    @property
    def name(self) -> str:
        return HUMAN if self.level is None else self.level.label

    def told(self) -> Player:
        if self.level is None:
            return Player(kind="human", name=HUMAN)
        return Player(kind="ai", name=self.level.label, level=self.level.id)


class Table:
    """A game between two seats. `seq` counts its changes."""

    def __init__(
        self, mode: Mode, seats: tuple[Seat, Seat], game: Game, seed: int, seq: int = 0
    ) -> None:
        self.mode: Mode = mode
        self.seats = seats
        self.game = game
        self.seed = seed
        self.seq = seq

    # How things stand

    @property
    def position(self) -> Position:
        return self.game.position

    @property
    def mover(self) -> Seat:
        return self.seats[self.position.side]

    @property
    def result(self) -> Result | None:
        """None while the game goes on."""
        if self.position.outcome is not Outcome.ONGOING:
            winner = WHITE if self.position.outcome is Outcome.WHITE_WINS else BLACK
            return Result(winner=_color(winner), reason="won")
        if self.game.resigned is not None:
            return Result(winner=_color(1 - self.game.resigned), reason="resigned")
        if self.game.plies >= MAX_PLIES:
            return Result(winner=None, reason="ply_limit")
        return None

    @property
    def thinker(self) -> Thinker | None:
        """Who is to think now; None where a person is on turn, or the game is over."""
        return None if self.result else self.mover.thinker

    @property
    def key(self) -> int:
        """Chance for the next decision."""
        return kernel.draw(self.seed, self.game.plies)

    @property
    def legal(self) -> Legal:
        if self.result or self.thinker:
            return NOBODY
        actions = self.position.legal_actions()
        if self.position.take_backs_left:
            spheres = [action for action in actions if action != STOP]
            return Legal(place=[], rise=[], remove=spheres, stop=STOP in actions)
        return Legal(
            place=[action for action in actions if action < FIRST_RAISE],
            rise=[RAISES[action - FIRST_RAISE] for action in actions if action >= FIRST_RAISE],
            remove=[],
            stop=False,
        )

    def state(
        self, watching: bool, thinking: bool, pace_ms: int, paused: bool, watchers: int
    ) -> State:
        position = self.position
        white, black = position.reserves
        result = self.result
        return State(
            seq=self.seq,
            mode=self.mode,
            rules=str(position.rules),
            players=Players(white=self.seats[WHITE].told(), black=self.seats[BLACK].told()),
            you="none" if watching else self._people(),
            board=str(position),
            turn=_color(position.side),
            phase="over" if result else "take_back" if position.take_backs_left else "play",
            take_backs_left=position.take_backs_left,
            reserves=Reserves(white=white, black=black),
            legal=NOBODY if watching else self.legal,
            start=str(self.game.positions[0]),
            plies=[
                before.move_name(action)
                for before, action in zip(self.game.positions, self.game.actions, strict=False)
            ],
            may_undo=not watching and self._decision() is not None,
            thinking=thinking,
            pace_ms=pace_ms,
            paused=paused,
            watchers=watchers,
            result=result,
        )

    def record(self) -> GameRecord:
        tags = {"White": self.seats[WHITE].name, "Black": self.seats[BLACK].name, **self.game.tags}
        if self.result and self.result.reason != "won":
            resigned = self.game.resigned
            tags[TERMINATION] = (
                "ply limit reached" if resigned is None else f"{SIDE_NAMES[resigned]} resigned"
            )
        return GameRecord(self.game.positions[0], self.game.actions, tags)

    # What can be done

    def check(self, seq: int | None) -> None:
        """Refuse what was meant for another state."""
        if seq is not None and seq != self.seq:
            raise Refusal("stale", f"the game is at {self.seq}, the message was for {seq}")

    def check_person(self) -> None:
        """Refuse whoever is not on turn."""
        if self.result:
            raise Refusal("game_over", "the game is over")
        if self.thinker:
            raise Refusal("not_your_turn", f"it is {SIDE_NAMES[self.position.side]}'s turn")

    def move(self, message: Place | Raise | Typed | Remove | SkipRemoval) -> None:
        """What a person plays."""
        self.check(message.seq)
        self.check_person()
        try:
            actions = read_moves(self.position, _text(message))
        except (IllegalMoveError, NotationError) as error:
            # these two explain the client's own text and nothing else
            raise Refusal("illegal_move", str(error)) from None
        for action in actions:
            self.play(action)

    def play(self, action: int) -> None:
        self.game = self.game.play(action)
        self.seq += 1

    def undo(self) -> None:
        """Back to the last decision of a person, all replies undone."""
        ply = self._decision()
        if ply is None:
            raise Refusal("nothing_to_undo", "there is no earlier move of yours")
        self.game = self.game.cut(ply)
        self.seq += 1

    def resign(self) -> None:
        if self.result:
            raise Refusal("game_over", "the game is over")
        people = self._people()
        if people == "none":
            raise Refusal("not_allowed", "no person plays in this game")
        side = self.position.side if people == "both" else SIDE_NAMES.index(people)
        self.game = dataclasses.replace(self.game, resigned=side)
        self.seq += 1

    # Inside

    def _people(self) -> Literal["white", "black", "both", "none"]:
        white, black = (seat.level is None for seat in self.seats)
        if white and black:
            return "both"
        return "white" if white else "black" if black else "none"

    def _decision(self) -> int | None:
        """The ply of a person's last decision; the present one after a resignation."""
        if self.game.resigned is not None:
            return self.game.plies
        for ply in range(self.game.plies - 1, -1, -1):
            if self.seats[self.game.positions[ply].side].level is None:
                return ply
        return None


def _color(side: int) -> Color:
    return SIDE_NAMES[side]


def _text(message: Place | Raise | Typed | Remove | SkipRemoval) -> str:
    """The message in our notation: what it is read by explains what is wrong with it."""
    match message:
        case Place():
            return CELL_NAMES[message.cell]
        case Raise():
            return f"{CELL_NAMES[message.source]}-{CELL_NAMES[message.target]}"
        case Typed():
            return message.text
        case Remove():
            return "".join(f"x{CELL_NAMES[piece]}" for piece in message.pieces)
        case SkipRemoval():
            return STOP_NAME
