"""Whole games as text: tags, numbered moves, result.

    [Rules "advanced"]
    [White "rule_based"]

    1. 1b2 1c3
    2. 1b3 1c2x1c3 *

A file holds any number of games. `1-0` means white won, `0-1` black, `*` neither (unfinished, or
stopped by a ply limit). Tags keep their order; `Rules` comes first, and `Position` gives the start
where it is not the empty board. A turn broken off between two take-backs ends in `...`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pylos_env.errors import NotationError, PylosError
from pylos_env.options import check_action
from pylos_env.position import Outcome, Position
from pylos_env.rules import Rules

RESULTS: Final = {
    Outcome.WHITE_WINS: "1-0",
    Outcome.BLACK_WINS: "0-1",
    Outcome.ONGOING: "*",
}
UNFINISHED: Final = "..."

_TAG: Final = re.compile(r'\[(\w+) "((?:[^"\\]|\\["\\])*)"\]')
_RESERVED: Final = ("Rules", "Position", "Result")


@dataclass(frozen=True)
class GameRecord:
    """A game: where it started, the actions played, and free tags (`White`, `Black`, `Date`...)."""

    start: Position
    actions: tuple[int, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, value in self.tags.items():
            if (
                not isinstance(value, str)
                or not re.fullmatch(r"\w+", name)
                or name in _RESERVED
                or len(value.splitlines()) > 1
                or value.strip("\r\n") != value
            ):
                raise NotationError(
                    f"bad tag {name!r}: {value!r}: a name is letters and digits, not one of "
                    f"{', '.join(_RESERVED)}; a value is one line of text"
                )
        object.__setattr__(self, "tags", MappingProxyType(dict(self.tags)))
        object.__setattr__(self, "actions", tuple(check_action(action) for action in self.actions))
        for _ in self.positions():  # raises IllegalMoveError where the game breaks the rules
            pass

    def __reduce__(self) -> tuple[Any, ...]:
        return GameRecord, (self.start, self.actions, dict(self.tags))

    def positions(self) -> Iterator[Position]:
        """Every position of the game, the start and the end included."""
        position = self.start
        yield position
        for action in self.actions:
            position = position.play(action)
            yield position

    @property
    def end(self) -> Position:
        *_, last = self.positions()
        return last

    @property
    def result(self) -> str:
        return RESULTS[self.end.outcome]

    def turns(self) -> list[str]:
        """The text of every turn."""
        texts: list[str] = []
        begin, turn = self.start, list[int]()
        positions = self.positions()
        next(positions)
        for action, after in zip(self.actions, positions, strict=True):
            turn.append(action)
            if not after.take_backs_left:
                texts.append(begin.actions_text(turn))
                begin, turn = after, []
        if turn:
            texts.append(begin.actions_text(turn) + UNFINISHED)
        return texts

    def __str__(self) -> str:
        tags = {"Rules": str(self.start.rules), **self.tags}
        if self.start != Position.start(self.start.rules):
            tags["Position"] = str(self.start)
        tags["Result"] = self.result
        lines = [f'[{name} "{_escape(value)}"]' for name, value in tags.items()] + [""]
        turns = self.turns()
        if turns and self.start.side:
            turns.insert(0, "-")  # black moves first: white's place in the first line stays empty
        for number, begin in enumerate(range(0, len(turns), 2), start=1):
            lines.append(f"{number}. {' '.join(turns[begin : begin + 2])}")
        return "\n".join([*lines, self.result, ""])

    @classmethod
    def parse(cls, text: str) -> GameRecord:
        """Read one game."""
        games = parse_games(text)
        if len(games) != 1:
            raise NotationError(f"expected one game, found {len(games)}")
        return games[0]


def parse_games(text: str) -> list[GameRecord]:
    """Read every game of a text; an error names the line."""
    games: list[GameRecord] = []
    tags: dict[str, tuple[int, str]] = {}
    words: list[tuple[int, str]] = []
    number = 0
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("["):
            if words:
                raise NotationError(f"line {number}: a tag before the game above has its result")
            match = _TAG.fullmatch(line)
            if match is None:
                raise NotationError(f'line {number}: {line!r} is no tag: expected [Name "value"]')
            if match[1] in tags:
                raise NotationError(f"line {number}: the tag {match[1]!r} stands twice")
            tags[match[1]] = number, re.sub(r"\\(.)", r"\1", match[2])
            continue
        for word in line.split():
            words.append((number, word))
            if word in RESULTS.values():
                games.append(_build(tags, words))
                tags, words = {}, []
    if tags or words:
        raise NotationError(f"line {number}: the last game has no result: expected 1-0, 0-1 or *")
    return games


def read_games(path: str | Path) -> list[GameRecord]:
    """Read every game of a file; an error names the file and the line."""
    try:
        return parse_games(Path(path).read_text(encoding="utf-8-sig"))
    except PylosError as error:
        raise type(error)(f"{path}: {error}") from None


def write_games(path: str | Path, games: Iterable[GameRecord]) -> None:
    """Write games to a file, which is replaced."""
    Path(path).write_text("\n".join(str(game) for game in games), encoding="utf-8")


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _build(tags: dict[str, tuple[int, str]], words: list[tuple[int, str]]) -> GameRecord:
    start = _start(tags)
    position = start
    actions: list[int] = []
    *moves, (last_line, result) = words
    for number, word in moves:
        if re.fullmatch(r"\d+\.|-", word):
            continue
        with _at_line(number):
            if word.endswith(UNFINISHED):
                turn = _unfinished(position, word.removesuffix(UNFINISHED))
            else:
                turn = position.parse_turn(word)
        for action in turn:
            position = position.play(action)
        actions += turn
    free = {name: value for name, (_, value) in tags.items() if name not in _RESERVED}
    record = GameRecord(start, tuple(actions), free)
    tag_line, tag = tags.get("Result", (last_line, result))
    for number, given in ((last_line, result), (tag_line, tag)):
        if given != record.result:
            raise NotationError(
                f"line {number}: the result is {given}, but the game stands {record.result}"
            )
    return record


def _start(tags: dict[str, tuple[int, str]]) -> Position:
    number, text = tags.get("Rules", (0, "advanced"))
    with _at_line(number):
        rules = Rules.of(text)
    number, text = tags.get("Position", (0, ""))
    with _at_line(number):
        return Position.parse(text, rules) if text else Position.start(rules)


@contextlib.contextmanager
def _at_line(number: int) -> Iterator[None]:
    try:
        yield
    except PylosError as error:
        raise type(error)(f"line {number}: {error}") from None


def _unfinished(position: Position, text: str) -> list[int]:
    """The actions of a turn broken off while its player may still take back."""
    for action in position.legal_actions():
        name = position.move_name(action)
        after = position.play(action)
        if not after.take_backs_left:
            continue
        if name == text:
            return [action]
        if text.startswith(name + "x"):
            return [action, *_unfinished(after, text.removeprefix(name))]
    raise NotationError(f"{text}{UNFINISHED} is not the beginning of a legal turn in {position}")
