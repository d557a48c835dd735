"""Cells, moves and positions as text, both ways.

    cell      level 1-4, column a-d, row 1-4, counted within the level: 1a1 ... 1d4, 2a1 ... 4a1
    move      place 2b1, raise 1a3-2b1, taken back x1c2, "stop" ends the turn early
    turn      a move and what it takes back: 2b1x1c2x1d4 (a stop is written only on its own)
    position  WW.BWWB.W.BB..../........./..../. b 0: the levels row by row, the side to move, the
              take-backs it has left

These functions know the board but not the rules of play: see `position` for what is legal.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pylos_env.errors import NotationError
from pylos_env.geometry import CELL_INDEX, CELLS, FIRST_RAISE, RAISE_INDEX, RAISES, STOP, SUPPORTS

CELL_NAMES: Final = tuple(f"{level + 1}{'abcd'[col]}{row + 1}" for level, row, col in CELLS)
STOP_NAME: Final = "stop"
LEVEL_SIZES: Final = (16, 9, 4, 1)
SIDE_LETTERS: Final = "wb"

_CELL_NUMBER: Final = {name: index for index, name in enumerate(CELL_NAMES)}


class Layout(NamedTuple):
    """A position's parts, as read from text."""

    white: int
    black: int
    side: int
    take_backs: int


def parse_cell(text: str) -> int:
    """Cell number of a name such as `2b1`."""
    number = _CELL_NUMBER.get(text)
    if number is not None:
        return number
    if not re.fullmatch(r"[1-4][a-d][1-4]", text):
        raise NotationError(
            f"{text!r} is no cell: expected a level 1-4, a column a-d and a row 1-4, such as '2b1'"
        )
    size = 5 - int(text[0])
    raise NotationError(
        f"{text!r} is off the board: level {text[0]} is {size}x{size}, "
        f"from {text[0]}a1 to {text[0]}{'abcd'[size - 1]}{size}"
    )


def action_name(action: int, taking_back: bool) -> str:
    """The move's text; the actions 0-29 read differently while spheres are taken back."""
    if action >= FIRST_RAISE:
        source, target = RAISES[action - FIRST_RAISE]
        return f"{CELL_NAMES[source]}-{CELL_NAMES[target]}"
    if not taking_back:
        return CELL_NAMES[action]
    return STOP_NAME if action == STOP else f"x{CELL_NAMES[action]}"


def parse_turn(text: str) -> tuple[int | None, tuple[int, ...]]:
    """A turn's placement or raise (None where it was made before) and the cells taken back."""
    move, *taken = text.strip().split("x")
    if move == STOP_NAME and not taken:
        return None, ()
    if not move and not taken:
        raise NotationError(
            "an empty text is no move: expected a placement '2b1' or a raise '1a3-2b1', "
            "then what is taken back, such as '2b1x1c2x1d4'"
        )
    cells = tuple(parse_cell(name) for name in taken)
    if len(cells) > 2:
        raise NotationError(f"{text!r} takes back {len(cells)} spheres: at most two are allowed")
    if not move:
        return None, cells
    if "-" not in move:
        return parse_cell(move), cells
    source, target = (parse_cell(name) for name in move.split("-", 1))
    if (source, target) not in RAISE_INDEX:
        raise NotationError(f"{move}: a sphere can only be raised to a higher level")
    return RAISE_INDEX[source, target], cells


def layout_text(layout: Layout) -> str:
    letters = [
        "W" if layout.white >> cell & 1 else "B" if layout.black >> cell & 1 else "."
        for cell in range(len(CELLS))
    ]
    levels, begin = [], 0
    for size in LEVEL_SIZES:
        levels.append("".join(letters[begin : begin + size]))
        begin += size
    return f"{'/'.join(levels)} {SIDE_LETTERS[layout.side]} {layout.take_backs}"


def parse_layout(text: str) -> Layout:
    """Read a position's text; says what is wrong and where."""
    fields = text.split()
    if len(fields) != 3:
        raise NotationError(
            f"{text!r}: expected three fields (levels, side to move, take-backs left) "
            f"such as '................/........./..../. w 0', got {len(fields)}"
        )
    board, side, take_backs = fields
    levels = board.split("/")
    if len(levels) != len(LEVEL_SIZES):
        raise NotationError(f"{text!r}: expected 4 levels separated by '/', got {len(levels)}")
    white = black = cell = 0
    for number, (level, size) in enumerate(zip(levels, LEVEL_SIZES, strict=True), start=1):
        if len(level) != size:
            raise NotationError(
                f"{text!r}: level {number} {level!r} has {len(level)} characters, expected {size}"
            )
        for letter in level:
            if letter == "W":
                white |= 1 << cell
            elif letter == "B":
                black |= 1 << cell
            elif letter != ".":
                raise NotationError(
                    f"{text!r}: {letter!r} at {CELL_NAMES[cell]}, expected 'W', 'B' or '.'"
                )
            cell += 1
    if side not in ("w", "b"):
        raise NotationError(f"{text!r}: the side to move is {side!r}, expected 'w' or 'b'")
    if take_backs not in ("0", "1", "2"):
        raise NotationError(f"{text!r}: take-backs left is {take_backs!r}, expected 0, 1 or 2")
    return Layout(white, black, SIDE_LETTERS.index(side), int(take_backs))


def check_support(text: str, occupied: int, floor: int) -> None:
    """Refuse a board on which a sphere hangs in the air; `text` is for the error.

    `floor` is a mask of cells that carry without a sphere.
    """
    for cell, supports in enumerate(SUPPORTS):
        lacking = supports & ~(occupied | floor)
        if occupied >> cell & 1 and lacking:
            missing = [
                CELL_NAMES[CELL_INDEX[below]] for below in CELLS if lacking & 1 << CELL_INDEX[below]
            ]
            raise NotationError(
                f"{text!r}: the sphere at {CELL_NAMES[cell]} floats, "
                f"nothing at {' '.join(missing)} below it"
            )
