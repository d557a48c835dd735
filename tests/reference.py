"""Pylos: the rules again, slow and obvious, written from their text and from nothing else.

It shares no code and no tables with the package, so that where the two agree, the rules agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "CELLS",
    "PRESETS",
    "RAISES",
    "START",
    "RefRules",
    "State",
    "flat_observation",
    "legal_actions",
    "move_text",
    "packed",
    "parse",
    "perft",
    "play",
    "reserves",
    "text",
    "whole_turns",
    "winner",
]

Cell = tuple[int, int, int]
Board = tuple[int | None, ...]

WHITE = 0
BLACK = 1
SPHERES_EACH = 15
MOST_TAKEN_BACK = 2


@dataclass(frozen=True)
class RefRules:
    """A rule set. With `greedy`, taking back is done for the player, not chosen."""

    squares: bool
    lines: bool
    min_take_back: int
    empty_reserve_loses: bool
    greedy: bool = False


PRESETS: dict[str, RefRules] = {
    "advanced": RefRules(squares=True, lines=True, min_take_back=0, empty_reserve_loses=False),
    "children": RefRules(squares=False, lines=False, min_take_back=0, empty_reserve_loses=True),
    "standard": RefRules(squares=True, lines=False, min_take_back=1, empty_reserve_loses=True),
    "mature": RefRules(squares=True, lines=True, min_take_back=1, empty_reserve_loses=True),
}


class State(NamedTuple):
    """A position: each cell's owner or None, the side to move, its take-backs left."""

    board: Board
    side: int
    take_backs: int


# The board.


def level_size(level: int) -> int:
    """The side of a level: 4, 3, 2, 1."""
    return 4 - level


def all_cells() -> list[Cell]:
    """The 30 cells, level by level, row by row."""
    return [
        (level, row, col)
        for level in range(4)
        for row in range(level_size(level))
        for col in range(level_size(level))
    ]


CELLS: list[Cell] = all_cells()
INDEX: dict[Cell, int] = {cell: index for index, cell in enumerate(CELLS)}
APEX = INDEX[(3, 0, 0)]
STOP = APEX


def cells_below(cell: Cell) -> list[Cell]:
    """The cells that a cell rests on: four, or none on level 0."""
    level, row, col = cell
    if level == 0:
        return []
    return [(level - 1, r, c) for r in (row, row + 1) for c in (col, col + 1)]


def cells_above(cell: Cell) -> list[Cell]:
    """The cells that rest on a cell, among others."""
    return [higher for higher in CELLS if cell in cells_below(higher)]


BELOW: list[list[int]] = [[INDEX[below] for below in cells_below(cell)] for cell in CELLS]
ABOVE: list[list[int]] = [[INDEX[above] for above in cells_above(cell)] for cell in CELLS]


def all_raises() -> list[tuple[int, int]]:
    """Every (source, target) with the target on a higher level, by source, then by target."""
    return [
        (source, target)
        for source, (source_level, _, _) in enumerate(CELLS)
        for target, (target_level, _, _) in enumerate(CELLS)
        if target_level > source_level
    ]


RAISES: list[tuple[int, int]] = all_raises()
FIRST_RAISE = len(CELLS)


def all_squares() -> list[list[int]]:
    """Every 2x2 square on any level."""
    squares = []
    for level in range(4):
        for row in range(level_size(level) - 1):
            for col in range(level_size(level) - 1):
                square = [(level, r, c) for r in (row, row + 1) for c in (col, col + 1)]
                squares.append([INDEX[cell] for cell in square])
    return squares


def all_lines() -> list[list[int]]:
    """Every full row and column of level 0 (of four) and of level 1 (of three)."""
    lines = []
    for level in (0, 1):
        along = range(level_size(level))
        for fixed in along:
            lines.append([INDEX[(level, fixed, col)] for col in along])
            lines.append([INDEX[(level, row, fixed)] for row in along])
    return lines


SQUARES: list[list[int]] = all_squares()
LINES: list[list[int]] = all_lines()

START: State = State(board=(None,) * len(CELLS), side=WHITE, take_backs=0)


# What the rules say about a board.


def other(side: int) -> int:
    """The opponent of a side."""
    return BLACK if side == WHITE else WHITE


def with_cell(board: Board, index: int, content: int | None) -> Board:
    """The board with one cell's content replaced."""
    cells = list(board)
    cells[index] = content
    return tuple(cells)


def is_supported(board: Board, index: int) -> bool:
    """On level 0, or all four cells below are occupied by any colour."""
    return all(board[below] is not None for below in BELOW[index])


def is_free(board: Board, side: int, index: int) -> bool:
    """An own sphere with nothing resting on it."""
    return board[index] == side and all(board[above] is None for above in ABOVE[index])


def free_spheres(board: Board, side: int) -> list[int]:
    """Where a side has free spheres, lowest index first."""
    return [index for index in range(len(CELLS)) if is_free(board, side, index)]


def may_place(board: Board, index: int) -> bool:
    """Whether a sphere may come to lie on a cell: empty and supported."""
    return board[index] is None and is_supported(board, index)


def may_raise(board: Board, side: int, source: int, target: int) -> bool:
    """Whether an own free sphere may go to a higher cell, judged with it already lifted."""
    if not is_free(board, side, source):
        return False
    lifted = with_cell(board, source, None)
    return may_place(lifted, target)


def completes_formation(board: Board, rules: RefRules, index: int) -> bool:
    """Whether the sphere just played on a cell is part of a formation of its own colour."""
    formations: list[list[int]] = []
    if rules.squares:
        formations += SQUARES
    if rules.lines:
        formations += LINES
    owner = board[index]
    return any(
        index in formation and all(board[cell] == owner for cell in formation)
        for formation in formations
    )


def reserves(state: State) -> tuple[int, int]:
    """The spheres that white and black have off the board."""
    return SPHERES_EACH - state.board.count(WHITE), SPHERES_EACH - state.board.count(BLACK)


# Actions.


def place_and_raise_actions(state: State) -> list[int]:
    """The ways to begin a turn."""
    places = [index for index in range(len(CELLS)) if may_place(state.board, index)]
    raises = [
        FIRST_RAISE + number
        for number, (source, target) in enumerate(RAISES)
        if may_raise(state.board, state.side, source, target)
    ]
    if reserves(state)[state.side] == 0:
        return raises
    return places + raises


def take_back_actions(state: State, rules: RefRules) -> list[int]:
    """The ways to go on while spheres may be taken back."""
    actions = free_spheres(state.board, state.side)
    taken = MOST_TAKEN_BACK - state.take_backs
    if taken >= rules.min_take_back:
        actions.append(STOP)
    return actions


def winner(state: State, rules: RefRules) -> int | None:
    """The side that has won, or None while the game goes on."""
    if state.board[APEX] is not None:
        return state.board[APEX]
    if state.take_backs > 0:
        return None
    if rules.empty_reserve_loses and reserves(state)[state.side] == 0:
        return other(state.side)
    if not place_and_raise_actions(state):
        return other(state.side)
    return None


def legal_actions(state: State, rules: RefRules) -> list[int]:
    """The legal actions in order; none once the game is over."""
    if winner(state, rules) is not None:
        return []
    if state.take_backs > 0:
        return take_back_actions(state, rules)
    return place_and_raise_actions(state)


def play(state: State, rules: RefRules, action: int) -> State:
    """The position after a legal action."""
    if action not in legal_actions(state, rules):
        raise ValueError(f"action {action} is not legal in {text(state)}")
    return after_legal(state, rules, action)


def after_legal(state: State, rules: RefRules, action: int) -> State:
    """The position after an action that is known to be legal."""
    if state.take_backs > 0:
        return after_take_back(state, action)
    if action < FIRST_RAISE:
        landed = action
        board = state.board
    else:
        source, landed = RAISES[action - FIRST_RAISE]
        board = with_cell(state.board, source, None)
    board = with_cell(board, landed, state.side)
    if not completes_formation(board, rules, landed):
        return passed(board, state.side)
    if rules.greedy:
        return passed(greedily_taken_back(board, state.side), state.side)
    return State(board, state.side, MOST_TAKEN_BACK)


def after_take_back(state: State, action: int) -> State:
    """The position after one sphere is taken back, or after stop."""
    if action == STOP:
        return passed(state.board, state.side)
    board = with_cell(state.board, action, None)
    left = state.take_backs - 1
    if left == 0 or not free_spheres(board, state.side):
        return passed(board, state.side)
    return State(board, state.side, left)


def greedily_taken_back(board: Board, side: int) -> Board:
    """The board after up to two spheres are taken back, the lowest free index each time."""
    for _ in range(MOST_TAKEN_BACK):
        free = free_spheres(board, side)
        if free:
            board = with_cell(board, free[0], None)
    return board


def passed(board: Board, side: int) -> State:
    """The position once a side's turn has ended."""
    return State(board, other(side), 0)


# Text and numbers.


def cell_text(index: int) -> str:
    """A cell as level, column, row, each counted within its level."""
    level, row, col = CELLS[index]
    return f"{level + 1}{'abcd'[col]}{row + 1}"


def move_text(state: State, action: int) -> str:
    """One action as text; the same number reads differently while taking back."""
    if state.take_backs > 0:
        return "stop" if action == STOP else "x" + cell_text(action)
    if action < FIRST_RAISE:
        return cell_text(action)
    source, target = RAISES[action - FIRST_RAISE]
    return cell_text(source) + "-" + cell_text(target)


def text(state: State) -> str:
    """A position as four level strings, the side to move and the take-backs left."""
    letters: dict[int | None, str] = {WHITE: "W", BLACK: "B", None: "."}
    levels = ["", "", "", ""]
    for (level, _, _), content in zip(CELLS, state.board, strict=True):
        levels[level] += letters[content]
    return f"{'/'.join(levels)} {'wb'[state.side]} {state.take_backs}"


def parse(text: str) -> State:
    """The position that a well-formed text stands for."""
    levels, side, take_backs = text.split()
    contents: dict[str, int | None] = {"W": WHITE, "B": BLACK, ".": None}
    board = tuple(contents[letter] for letter in levels.replace("/", ""))
    return State(board, "wb".index(side), int(take_backs))


def packed(state: State) -> int:
    """A position as one integer: white, black, side to move, take-backs left."""
    number = 0
    for index, content in enumerate(state.board):
        if content == WHITE:
            number += 2**index
        if content == BLACK:
            number += 2 ** (30 + index)
    return number + state.side * 2**60 + state.take_backs * 2**61


def flat_observation(state: State, seat: int, greedy: bool) -> list[float]:
    """What a seat sees: the cells, both reserves and, where they exist, the take-backs left."""
    observation: list[float] = []
    for content in state.board:
        if content is None:
            observation.append(0.0)
        else:
            observation.append(1.0 if content == seat else -1.0)
    observation.append(reserves(state)[seat] / 15)
    observation.append(reserves(state)[other(seat)] / 15)
    if not greedy:
        observation.append(state.take_backs / 2)
    return observation


# Counting.


def whole_turns(state: State, rules: RefRules) -> list[State]:
    """The end position of every whole turn: a place or raise and an unordered set taken back.

    In the middle of a turn, every way to finish it. Different turns may end alike, and then
    their position comes more than once.
    """
    if state.take_backs > 0:
        return list(turn_ends(state, rules).values())
    ends: list[State] = []
    for action in legal_actions(state, rules):
        ends += turn_ends_after(state, rules, action).values()
    return ends


def turn_ends_after(state: State, rules: RefRules, action: int) -> dict[frozenset[int], State]:
    """For one action, the position at the end of the turn by the set taken back after it."""
    reached = after_legal(state, rules, action)
    if reached.take_backs > 0:
        return turn_ends(reached, rules)
    return {frozenset(): reached}


def turn_ends(state: State, rules: RefRules) -> dict[frozenset[int], State]:
    """From the middle of a turn, the position at its end by the set still taken back."""
    ends: dict[frozenset[int], State] = {}
    for action in legal_actions(state, rules):
        just_taken: frozenset[int] = frozenset() if action == STOP else frozenset([action])
        for taken_later, end in turn_ends_after(state, rules, action).items():
            ends[just_taken | taken_later] = end
    return ends


def successors(state: State, rules: RefRules, by_turn: bool) -> list[State]:
    """The positions one whole turn away, or one action away."""
    if by_turn:
        return whole_turns(state, rules)
    return [after_legal(state, rules, action) for action in legal_actions(state, rules)]


def perft(state: State, rules: RefRules, depth: int, whole_turns: bool = False) -> int:
    """How many sequences of so many actions, or of so many whole turns, there are."""
    if depth == 0:
        return 1
    reached = successors(state, rules, by_turn=whole_turns)
    if depth == 1:
        return len(reached)
    return sum(perft(following, rules, depth - 1, whole_turns) for following in reached)
