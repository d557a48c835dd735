"""A game as it stands, never changed: going back is a matter of keeping an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pylos_env.errors import NotationError, PylosError
from pylos_env.position import SIDE_NAMES, Outcome, Position
from pylos_env.record import UNFINISHED, GameRecord, read_games

TERMINATION: Final = "Termination"
_TAGS_OF_A_SITTING: Final = ("White", "Black", TERMINATION)


@dataclass(frozen=True)
class Game:
    """Where a game began, what was played, who has given it up."""

    positions: tuple[Position, ...]  # [actions + 1]
    actions: tuple[int, ...] = ()
    resigned: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, position: Position) -> Game:
        return cls((position,))

    @classmethod
    def of_record(cls, record: GameRecord) -> Game:
        """The game of a record, to be played on: how it was broken off is left behind."""
        tags = {
            name: value for name, value in record.tags.items() if name not in _TAGS_OF_A_SITTING
        }
        return cls(tuple(record.positions()), record.actions, tags=tags)

    @property
    def position(self) -> Position:
        return self.positions[-1]

    @property
    def plies(self) -> int:
        return len(self.actions)

    @property
    def is_won(self) -> bool:
        return self.position.outcome is not Outcome.ONGOING

    def play(self, action: int) -> Game:
        after = self.position.play(action)
        return replace(self, positions=(*self.positions, after), actions=(*self.actions, action))

    def resign(self) -> Game:
        """The game given up by the side to move."""
        return replace(self, resigned=self.position.side)

    def cut(self, plies: int) -> Game:
        """The game as it stood after so many actions."""
        return replace(
            self, positions=self.positions[: plies + 1], actions=self.actions[:plies], resigned=None
        )

    def last_turn(self) -> str:
        """Number, side and text of the last turn, such as `4. white 1b2x1a1`; empty before it."""
        if not self.actions:
            return ""
        begin = self.plies - 1
        while begin and self.positions[begin].take_backs_left:
            begin -= 1
        before = sum(not position.take_backs_left for position in self.positions[1 : begin + 1])
        number = (before + self.positions[0].side) // 2 + 1
        first = self.positions[begin]
        text = first.actions_text(list(self.actions[begin:]))
        rest = UNFINISHED if self.position.take_backs_left else ""
        return f"{number}. {SIDE_NAMES[first.side]} {text}{rest}"


def read_record(path: Path) -> GameRecord:
    """The only game of a file."""
    try:
        games = read_games(path)
    except UnicodeDecodeError:
        raise NotationError(f"{path} is no text") from None
    except OSError as error:
        raise PylosError(f"could not read {path}: {error.strerror or error}") from None
    if len(games) != 1:
        raise NotationError(f"{path} holds {len(games) or 'no'} games: expected one")
    return games[0]
