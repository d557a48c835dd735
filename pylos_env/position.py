"""Position: the friendly, checked, immutable view of one packed position under one rule set."""

from __future__ import annotations

import enum
from typing import Any, Final, SupportsIndex, final

import numpy as np
import numpy.typing as npt

from pylos_env import kernel, notation
from pylos_env.errors import IllegalMoveError, NotationError, PylosError
from pylos_env.geometry import (
    APEX,
    FIRST_RAISE,
    LINE_MASKS,
    NUM_ACTIONS,
    RAISES,
    SQUARE_MASKS,
    STOP,
    SUPPORTS,
)
from pylos_env.notation import STOP_NAME
from pylos_env.options import check_action, check_whole
from pylos_env.rules import Rules

WHITE: Final = 0
BLACK: Final = 1
SIDE_NAMES: Final = ("white", "black")


class Outcome(enum.Enum):
    """How a game stands. The rules know no draw; environments truncate endless games."""

    ONGOING = "ongoing"
    WHITE_WINS = "white wins"
    BLACK_WINS = "black wins"


@final
class Position:
    """A position and the rules it is played by. Equal, hashable, picklable; never changes.

    >>> position = Position.start()
    >>> position.play(0).play("1b2")
    Position('W....B........../........./..../. w 0', rules='advanced')
    """

    __slots__ = ("_code", "packed", "rules")

    packed: int
    rules: Rules
    _code: int

    def __init__(self, packed: int, rules: str | Rules = "advanced") -> None:
        """Wrap a packed position; refuses one that could not arise in a game."""
        packed = check_whole(packed, "a packed position is an integer")
        rules = Rules.of(rules)
        if not 0 <= packed < 1 << 63 or packed >> kernel.TAKE_BACK_SHIFT > 2:
            raise NotationError(f"{packed} is no packed position: expected 63 bits, see kernel.py")
        white = packed & kernel.CELLS_MASK
        black = packed >> kernel.BLACK_SHIFT & kernel.CELLS_MASK
        if white & black:
            cell = notation.CELL_NAMES[(white & black & -(white & black)).bit_length() - 1]
            raise NotationError(f"{packed} holds two spheres at {cell}")
        side = packed >> kernel.SIDE_SHIFT & 1
        layout = notation.Layout(white, black, side, packed >> kernel.TAKE_BACK_SHIFT)
        _check_possible(str(packed), layout, rules)
        _fill(self, packed, rules, rules.code)

    @classmethod
    def unchecked(cls, packed: int, rules: Rules) -> Position:
        """Wrap a packed position known to be possible, as the kernels' results are."""
        return _fill(object.__new__(cls), packed, rules, rules.code)

    @classmethod
    def start(cls, rules: str | Rules = "advanced") -> Position:
        """The empty board, white to move."""
        return cls.unchecked(kernel.START, Rules.of(rules))

    @classmethod
    def parse(cls, text: str, rules: str | Rules = "advanced") -> Position:
        """Read a position's text. `NotationError` says what is wrong and where."""
        if not isinstance(text, str):
            raise TypeError(f"a position's text must be a str, got {text!r}")
        rules = Rules.of(rules)
        layout = notation.parse_layout(text)
        _check_possible(text, layout, rules)
        white, black, side, take_backs = layout
        packed = (
            white
            | black << kernel.BLACK_SHIFT
            | side << kernel.SIDE_SHIFT
            | take_backs << kernel.TAKE_BACK_SHIFT
        )
        return cls.unchecked(packed, rules)

    # What is on the board

    @property
    def side(self) -> int:
        """The side to move: 0 white, 1 black."""
        return self.packed >> kernel.SIDE_SHIFT & 1

    @property
    def take_backs_left(self) -> int:
        """How many spheres the side to move may still take back in this turn."""
        return self.packed >> kernel.TAKE_BACK_SHIFT

    @property
    def white(self) -> int:
        """Mask of white's spheres."""
        return self.packed & kernel.CELLS_MASK

    @property
    def black(self) -> int:
        """Mask of black's spheres."""
        return self.packed >> kernel.BLACK_SHIFT & kernel.CELLS_MASK

    @property
    def reserves(self) -> tuple[int, int]:
        """Spheres in hand: (white's, black's)."""
        return (
            self.rules.spheres - self.white.bit_count(),
            self.rules.spheres - self.black.bit_count(),
        )

    @property
    def outcome(self) -> Outcome:
        if not kernel.is_over(self.packed, self._code):
            return Outcome.ONGOING
        return Outcome.BLACK_WINS if self.side == WHITE else Outcome.WHITE_WINS

    def __getitem__(self, cell: int | str) -> str:
        """What stands on a cell, by number or by name: `W`, `B` or `.`."""
        if isinstance(cell, str):
            index = notation.parse_cell(cell)
        else:
            index = check_whole(cell, "a cell is a number or a name")
        if not 0 <= index <= APEX:
            raise IndexError(f"cell {index} is off the board: expected 0-29")
        return "W" if self.white >> index & 1 else "B" if self.black >> index & 1 else "."

    # What can be played

    def legal_actions(self) -> list[int]:
        """The legal action numbers in ascending order; empty when the game is over."""
        actions: list[int] = kernel.legal_actions(self.packed, self._code).tolist()
        return actions

    def legal_moves(self) -> list[str]:
        """The legal actions as text, one by one, in the order of `legal_actions`.

        `play` takes text as the whole rest of a turn: where this list has `1b2` and then `x1a1`,
        `play("1b2x1a1")` makes both moves and stops.
        """
        return [self.move_name(action) for action in self.legal_actions()]

    def action_mask(self) -> npt.NDArray[np.int8]:
        """A fresh int8 array [303]: 1 for each legal action."""
        mask = np.empty(NUM_ACTIONS, dtype=np.int8)
        kernel.write_mask(self.packed, self._code, mask)
        return mask

    def move_name(self, action: int) -> str:
        """The text of an action in this position (`x1c2` and `stop` while taking back)."""
        return notation.action_name(check_action(action), self.take_backs_left > 0)

    def play(self, action: SupportsIndex | str) -> Position:
        """The position after an action number, or after the whole rest of a turn given as text."""
        if isinstance(action, str):
            position = self
            for step in self.parse_turn(action):
                position = position.play(step)
            return position
        if type(action) is not int:
            action = check_whole(action, f"an action is an integer from 0 to {NUM_ACTIONS - 1}")
        # the range first: an integer beyond 64 bits would not reach the kernel
        packed = (
            kernel.play_checked(self.packed, self._code, action)
            if 0 <= action < NUM_ACTIONS
            else -1
        )
        if packed < 0:
            raise IllegalMoveError(self.why_illegal(action))
        return _fill(object.__new__(Position), packed, self.rules, self._code)

    def parse_turn(self, text: str) -> list[int]:
        """The actions of a turn's text, with the stop that the text leaves out; all legal here."""
        if not isinstance(text, str):
            raise TypeError(f"a move's text must be a str, got {text!r}")
        move, taken = notation.parse_turn(text)
        if move is None and not self.take_backs_left:
            raise IllegalMoveError(f"{text}: nothing may be taken back here, in {self}")
        if move is not None and self.take_backs_left:
            raise IllegalMoveError(f"{text}: {SIDE_NAMES[self.side]} is taking back, in {self}")
        actions = ([] if move is None else [move]) + list(taken)
        position = self
        for index, action in enumerate(actions):
            if index and not position.take_backs_left:
                raise IllegalMoveError(
                    f"{text}: nothing is left to take back after "
                    f"{self.actions_text(actions[:index])}, in {self}"
                )
            position = position.play(action)
        if position.take_backs_left:
            if STOP not in position.legal_actions():
                raise IllegalMoveError(
                    f"{text}: at least {self.rules.min_take_back} must be taken back, in {self}"
                )
            actions.append(STOP)
        return actions

    def actions_text(self, actions: list[int]) -> str:
        """The text of consecutive actions of one turn; a stop is written only on its own."""
        position, parts = self, []
        for action in actions:
            name = position.move_name(action)
            parts.append("" if name == STOP_NAME else name)
            position = position.play(action)
        return "".join(parts) or STOP_NAME

    def symmetric(self, index: int) -> Position:
        """The position under one of the board's eight symmetries (0 is the identity)."""
        if not 0 <= index < 8:
            raise PylosError(f"expected a symmetry from 0 to 7, got {index}")
        return Position.unchecked(kernel.symmetric(self.packed, index), self.rules)

    def why_illegal(self, action: int) -> str:
        """What an illegal action breaks, with its text and the position's."""
        if not 0 <= action < NUM_ACTIONS:
            return f"action {action} does not exist: expected 0-{NUM_ACTIONS - 1}, in {self}"
        name = self.move_name(action)
        if self.outcome is not Outcome.ONGOING:
            return f"action {action} ({name}): the game is over, {self.outcome.value}, in {self}"
        return f"action {action} ({name}) is illegal: {self._reason(action)}, in {self}"

    def _reason(self, action: int) -> str:
        occupied = self.white | self.black
        own = self.white if self.side == WHITE else self.black
        if self.take_backs_left:
            if action >= FIRST_RAISE:
                return f"{SIDE_NAMES[self.side]} must take a sphere back or stop"
            if action == STOP:
                return f"at least {self.rules.min_take_back} must be taken back first"
            if not own >> action & 1:
                return "no own sphere stands there"
            return "another sphere rests on it"
        if action < FIRST_RAISE:
            if occupied >> action & 1:
                return "the cell is taken"
            if _floor(self.rules) >> action & 1:
                return "this board has no level 1"
            if (occupied | _floor(self.rules)) & SUPPORTS[action] != SUPPORTS[action]:
                return "nothing to rest on, the four cells below must be filled"
            return "the reserve is empty"
        source, target = RAISES[action - FIRST_RAISE]
        if not own >> source & 1:
            return f"no own sphere stands on {notation.CELL_NAMES[source]}"
        if kernel.covered(occupied) >> source & 1:
            return f"another sphere rests on {notation.CELL_NAMES[source]}"
        if occupied >> target & 1:
            return f"{notation.CELL_NAMES[target]} is taken"
        return f"{notation.CELL_NAMES[target]} has no support once the sphere is lifted"

    # Python's own protocols

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Position never changes: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Position never changes: cannot delete {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Position, (self.packed, self.rules)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Position):
            return NotImplemented
        return self.packed == other.packed and self.rules == other.rules

    def __hash__(self) -> int:
        return hash((self.packed, self._code))

    def __str__(self) -> str:
        return notation.layout_text(
            notation.Layout(self.white, self.black, self.side, self.take_backs_left)
        )

    def __repr__(self) -> str:
        return f"Position({str(self)!r}, rules={str(self.rules)!r})"


# the slots' own setters: the class refuses assignment, and these are the fastest way round it
_set_packed = Position.__dict__["packed"].__set__
_set_rules = Position.__dict__["rules"].__set__
_set_code = Position.__dict__["_code"].__set__


def _fill(position: Position, packed: int, rules: Rules, code: int) -> Position:
    _set_packed(position, packed)
    _set_rules(position, rules)
    _set_code(position, code)
    return position


def _floor(rules: Rules) -> int:
    """Mask of the cells that carry without a sphere: the level that a small board lacks."""
    return kernel.GROUND_MASK if rules.levels == 3 else 0


def _check_possible(given: str, layout: notation.Layout, rules: Rules) -> None:
    text = notation.layout_text(layout)
    white, black, side, take_backs = layout
    notation.check_support(given, white | black, _floor(rules))
    own, other = (white, black) if side == WHITE else (black, white)
    if rules.levels == 3 and (white | black) & kernel.GROUND_MASK:
        raise NotationError(f"{text!r}: under the rules '{rules}' the lowest level stays empty")
    for name, spheres in (("white", white), ("black", black)):
        if spheres.bit_count() > rules.spheres:
            raise NotationError(
                f"{text!r}: {name} has {spheres.bit_count()} spheres, at most {rules.spheres} exist"
            )
    if own >> APEX & 1:
        raise NotationError(
            f"{text!r}: {SIDE_NAMES[side]} has placed 4a1 and won, so it cannot be on turn"
        )
    if not take_backs:
        return
    if other >> APEX & 1:
        raise NotationError(f"{text!r}: the game is over, nothing can be taken back")
    if not rules.formations or rules.take_back == "greedy":
        raise NotationError(
            f"{text!r}: {take_backs} take-backs left, but under the rules '{rules}' "
            "no player ever chooses what to take back"
        )
    if take_backs == 2:
        possible = _just_formed(own, other, rules)
    else:  # some free sphere has just been taken from a position with two left
        possible = (
            own.bit_count() < rules.spheres
            and bool(own & ~kernel.covered(own | other))
            and any(
                _just_formed(own | 1 << cell, other, rules)
                for cell in range(APEX)
                if kernel.open_cells(own | other, rules.code) >> cell & 1
            )
        )
    if not possible:
        raise NotationError(
            f"{text!r}: {take_backs} take-backs left, "
            f"but {SIDE_NAMES[side]} cannot have just completed a formation"
        )


def _just_formed(own: int, other: int, rules: Rules) -> bool:
    """Whether some formation of `own` holds a free sphere: the one just played."""
    free = own & ~kernel.covered(own | other)
    masks = (SQUARE_MASKS if rules.squares else ()) + (LINE_MASKS if rules.lines else ())
    return any(own & mask == mask and free & mask for mask in masks)
