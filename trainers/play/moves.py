"""Moves as people type them: read by step or by turn, explained where they fail, listed.

The notation is that of `pylos_env.notation`: `2b1` places, `1a3-2b1` raises, `x1c2` takes back,
`2b1x1c2x1d4` is a whole turn.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pylos_env import notation
from pylos_env.errors import IllegalMoveError, NotationError
from pylos_env.geometry import FIRST_RAISE, STOP
from pylos_env.notation import CELL_NAMES, STOP_NAME
from pylos_env.position import SIDE_NAMES, Position

NUM_EXAMPLES: Final = 4
LONGEST_ECHO: Final = 40

_CELL: Final = "[1-4][a-d][1-4]"
_TURN: Final = re.compile(f"(?:{_CELL}(?:-{_CELL})?)?(?:x{_CELL})*|{STOP_NAME}")
_OTHER_SIGNS: Final = (("->", "-"), (">", "-"), ("\u2013", "-"), ("\u2192", "-"), ("\u00d7", "x"))


def read_moves(position: Position, text: str) -> list[int]:
    """The actions that a typed text stands for; the game must not be over.

    A move on its own is one step: where it completes a formation, the player is asked next what to
    take back. A move with its take-backs is a whole turn, as in a record: its stop is added.
    """
    if not _TURN.fullmatch(text):
        raise NotationError(explain(position, text))
    move, taken = notation.parse_turn(text)
    steps = ([] if move is None else [move]) + list(taken) or [STOP]
    actions: list[int] = []
    after = position
    for step in steps:
        _check_kind(after, step, taking_back=move is None or bool(actions), played=actions)
        _check_legal(after, step)
        actions.append(step)
        after = after.play(step)
    if len(steps) > 1 and after.take_backs_left:
        _check_legal(after, STOP)
        actions.append(STOP)
    return actions


def _check_kind(position: Position, step: int, taking_back: bool, played: list[int]) -> None:
    """Refuse a take-back where none is due, and anything else where one is."""
    if taking_back and not position.take_backs_left:
        if played:
            raise IllegalMoveError("nothing is left to take back after that: leave the last x out")
        raise IllegalMoveError("nothing may be taken back now: place a sphere or raise one")
    if position.take_backs_left and not taking_back:
        meant = f"x{CELL_NAMES[step]}" if step < FIRST_RAISE else ""
        hint = f" ({meant} takes that one)" if meant in position.legal_moves() else ""
        raise IllegalMoveError(
            f"{SIDE_NAMES[position.side]} has completed a formation and takes back{hint}"
        )


def _check_legal(position: Position, action: int) -> None:
    if action in position.legal_actions():
        return
    name = position.move_name(action)
    # on a screen that shows the board, the action's number and the position's text only get in the
    # way of the reason
    reason = (
        position.why_illegal(action)
        .removeprefix(f"action {action} ({name}) is illegal: ")
        .removesuffix(f", in {position}")
    )
    others = [other for other in position.legal_moves() if other[1:] == name[1:]]
    tip = f"; {' or '.join(others)} is free to play" if others and action < FIRST_RAISE else ""
    raise IllegalMoveError(f"{name}: {reason}{tip}")


def looks_like_move(text: str) -> bool:
    """Whether a text that is no command was meant as a move."""
    return any(letter.isdigit() for letter in text) or text.lower().startswith("x")


def shorten(text: str) -> str:
    """What was typed, quoted, and cut where it is too long to read."""
    return repr(text if len(text) <= LONGEST_ECHO else text[: LONGEST_ECHO - 3] + "...")


def explain(position: Position, text: str) -> str:
    """What is wrong with a text that is no move, and what may have been meant."""
    plain = "".join(text.lower().split())
    for sign, right in _OTHER_SIGNS:
        plain = plain.replace(sign, right)
    if match := re.fullmatch(f"({_CELL})({_CELL})(.*)", plain):
        if match[1][0] >= match[2][0]:
            return f"{shorten(text)}: one turn at a time; did you mean {match[1]}?"
        plain = f"{match[1]}-{match[2]}{match[3]}"
    if _TURN.fullmatch(plain):
        return f"{shorten(text)}: {_manners(text)}; did you mean {plain}?"
    if match := re.fullmatch(r"(x?)([a-d][1-4])", plain):
        every = [match[1] + name for name in CELL_NAMES if name[1:] == match[2]]
        legal = [name for name in every if name in position.legal_moves()]
        return f"{shorten(text)} has no level; did you mean {' or '.join(legal or every)}?"
    if match := re.fullmatch(r"(x?)([1-4])([1-4])([a-d])", plain):
        level, row, column = match.groups()[1:]
        meant = f"{match[1]}{level}{column}{row}"
        return f"{shorten(text)}: the column comes before the row; did you mean {meant}?"
    if match := re.fullmatch(r"(x?)([a-d])([1-4])([1-4])", plain):
        column, first, second = match.groups()[1:]
        either = dict.fromkeys([f"{first}{column}{second}", f"{second}{column}{first}"])
        meant = " or ".join(match[1] + name for name in either if name in CELL_NAMES)
        return f"{shorten(text)}: the level comes first; did you mean {meant}?"
    if len(text) <= LONGEST_ECHO:
        try:
            notation.parse_turn(plain)
        except NotationError as error:
            return str(error)
    return f"{shorten(text)} is no move"


def _manners(text: str) -> str:
    faults = [
        *(["in small letters"] if text != text.lower() else []),
        *(["without spaces"] if text.split() != [text] else []),
    ]
    if faults:
        return f"a move is written {' and '.join(faults)}"
    return "a raise is written with '-' between its cells, a take-back with x"


def examples(position: Position) -> str:
    """A few legal moves, of every kind that there is, and how many there are."""
    groups = group_moves(position)
    mixed = [moves[0] for moves in groups if moves]
    names = [name for moves in groups for name in moves]
    mixed += [name for name in names if name not in mixed][: NUM_EXAMPLES - len(mixed)]
    return f"legal here: {', '.join(mixed)} ('moves' lists all {len(names)})"


class Groups(NamedTuple):
    """The legal moves by kind."""

    place: list[str]
    rise: list[str]
    take_back: list[str]


def group_moves(position: Position) -> Groups:
    names = position.legal_moves()
    if position.take_backs_left:
        return Groups([], [], names)
    return Groups(
        [name for name in names if "-" not in name], [name for name in names if "-" in name], []
    )


def list_moves(position: Position) -> str:
    """Every legal move, by kind; a star marks those that complete a formation."""
    groups = group_moves(position)
    if groups.take_back:
        left = position.take_backs_left
        spheres = [name for name in groups.take_back if name != STOP_NAME]
        lines = [f"take back  {' '.join(spheres)}   ({left} at most, one at a time or as x..x..)"]
        if STOP_NAME in groups.take_back:
            lines.append("stop       ends the turn")
        return "\n".join(lines)
    completing = _completing(position)
    rows: dict[str, list[str]] = {}
    for kind, names in (("place", groups.place), ("raise", groups.rise)):
        for name in names:
            key = f"{kind}, level {name[0]}" if kind == "place" else f"{kind} {name[:3]}"
            rows.setdefault(key, []).append(name + "*" * (name in completing))
    width = max(map(len, rows))
    head = f"{len(groups.place)} to place, {len(groups.rise)} to raise"
    if completing:
        head += "; * completes a formation"
    return "\n".join([head, *(f"{key:<{width}}  {' '.join(rows[key])}" for key in rows)])


def _completing(position: Position) -> set[str]:
    """The moves that complete a formation, whether the player or the rules take back."""
    found = set()
    for action in position.legal_actions():
        after = position.play(action)
        spent = position.reserves[position.side] - after.reserves[position.side]
        if after.take_backs_left or spent < (action < FIRST_RAISE):
            found.add(position.move_name(action))
    return found
