"""Alpha-beta search with a transposition table, compiled.

Depth counts whole turns: taking spheres back belongs to the turn and costs no depth. Every value is
from the side to move; crossing an edge flips its sign only when the turn passes.

The evaluation, in hundredths of a sphere, own minus other:

| points | for |
|---|---|
| 100 | each sphere in hand |
| 8 | each sphere of the other side that is held down by one resting on it |
| 60 | the side to move has a cell that completes a formation |
| 20 | each further such cell of the side to move, each such cell of the other side |

A won game counts 10,000 and the turns still to search, so that faster wins are preferred.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit, popcount
from pylos_env.agents.base import CompiledAgent
from pylos_env.agents.features import threats
from pylos_env.kernel import (
    MAX_LEGAL,
    covered,
    draw,
    is_over,
    open_cells,
    pick,
    play,
    side_of,
    spheres_of,
    take_backs_left,
    write_legal,
)
from pylos_env.options import check_between
from pylos_env.position import Position

WIN: Final = 10_000
INFINITY: Final = 1_000_000
MAX_DEPTH: Final = 20

# a table row: position, search it belongs to, depth, bound, value, best action
TABLE_COLUMNS: Final = 6
EXACT: Final = 0
LOWER_BOUND: Final = 1
UPPER_BOUND: Final = 2

# a frame of the stack: a position being searched. Each turn may add two take-backs.
POSITION: Final = 0
DEPTH: Final = 1
ALPHA: Final = 2
BETA: Final = 3
LOWER: Final = 4
VALUE: Final = 5
BEST: Final = 6
INDEX: Final = 7
COUNT: Final = 8
NUM_FRAMES: Final = 3 * MAX_DEPTH + 1


class AlphaBetaAgent(CompiledAgent):
    """Looks `depth` whole turns ahead. Its table is not shared between threads: one agent each."""

    def __init__(self, depth: int, seed: int | None = None) -> None:
        super().__init__(seed)
        self.depth = check_between(depth, 1, MAX_DEPTH, "the depth of alphabeta")
        self.name = f"alphabeta:{self.depth}"
        self._clear_table()

    def _clear_table(self) -> None:
        # a search fills the table in proportion to its depth; more room only costs cache misses
        self._table = np.zeros((1 << min(10 + 2 * self.depth, 20), TABLE_COLUMNS), dtype=np.int64)
        self._searches = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}  # megabytes that the next search fills anew

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clear_table()

    def _write_actions(
        self,
        packed: npt.NDArray[np.int64],
        rules: int,
        keys: npt.NDArray[np.int64],
        actions: npt.NDArray[np.int64],
    ) -> None:
        _write_actions(packed, rules, keys, self.depth, self._table, self._searches, actions)
        self._searches += len(packed)

    def value(self, position: Position) -> float:
        """The search's estimate for the side to move: 1 and -1 are proven, 0.25 is one sphere."""
        self._searches += 1
        points = search(
            position.packed,
            position.rules.code,
            self.depth,
            -INFINITY,
            INFINITY,
            self._table,
            self._searches,
            np.empty((NUM_FRAMES, COUNT + 1), dtype=np.int64),
            np.empty((NUM_FRAMES, MAX_LEGAL), dtype=np.int64),
        )
        return math.tanh(points / 400)


@jit
def evaluate(packed: int, rules: int) -> int:
    """The static value of a position in which the side to move is not taking back."""
    side = side_of(packed)
    own, other = spheres_of(packed, side), spheres_of(packed, 1 - side)
    occupied = own | other
    held = covered(occupied)
    cells = open_cells(occupied, rules)
    mine = popcount(threats(own, cells, rules))
    theirs = popcount(threats(other, cells, rules))
    return (
        100 * (popcount(other) - popcount(own))
        + 8 * (popcount(other & held) - popcount(own & held))
        + 20 * (mine - theirs)
        + (40 if mine else 0)
    )


@jit
def search(
    packed: int,
    rules: int,
    depth: int,
    alpha: int,
    beta: int,
    table: npt.NDArray[np.int64],
    stamp: int,
    frames: npt.NDArray[np.int64],
    actions: npt.NDArray[np.int64],
) -> int:
    """The value of a position `depth` turns deep, exact where it lies between alpha and beta.

    A loop over an explicit stack: Numba cannot cache recursive functions reliably.
    """
    top = 0
    frame = frames[top]
    frame[POSITION], frame[DEPTH], frame[ALPHA], frame[BETA] = packed, depth, alpha, beta
    while True:
        settled = _open(frame, rules, table, stamp, actions[top])
        while settled:
            if top == 0:
                return int(frame[VALUE])
            value = frame[VALUE] if take_backs_left(frame[POSITION]) else -frame[VALUE]
            top -= 1
            frame = frames[top]
            settled = _receive(frame, value, table, stamp, actions[top])
        parent = frame
        top += 1
        frame = frames[top]
        after = play(parent[POSITION], rules, actions[top - 1, parent[INDEX]])
        frame[POSITION] = after
        if take_backs_left(after):  # the same player goes on: same depth, same signs
            frame[DEPTH], frame[ALPHA], frame[BETA] = parent[DEPTH], parent[LOWER], parent[BETA]
        else:
            frame[DEPTH] = parent[DEPTH] - 1
            frame[ALPHA], frame[BETA] = -parent[BETA], -parent[LOWER]


@jit
def _open(
    frame: npt.NDArray[np.int64],
    rules: int,
    table: npt.NDArray[np.int64],
    stamp: int,
    actions: npt.NDArray[np.int64],
) -> bool:
    """Begin a position; True where its value is known without a search."""
    packed, depth = frame[POSITION], frame[DEPTH]
    if depth == 0:
        frame[VALUE] = -WIN if is_over(packed, rules) else evaluate(packed, rules)
        return True
    row = table[_slot(packed, table)]
    known = row[0] == packed and row[1] == stamp
    if known and row[2] >= depth:
        frame[VALUE] = value = row[4]
        if (
            row[3] == EXACT
            or (row[3] == LOWER_BOUND and value >= frame[BETA])
            or (row[3] == UPPER_BOUND and value <= frame[ALPHA])
        ):
            return True
    frame[COUNT] = write_legal(packed, rules, actions)
    if frame[COUNT] == 0:
        frame[VALUE] = -WIN - depth
        return True
    if known:  # the best action of an earlier search goes first
        for index in range(frame[COUNT]):
            if actions[index] == row[5]:
                actions[0], actions[index] = actions[index], actions[0]
    frame[INDEX] = 0
    frame[LOWER] = frame[ALPHA]
    frame[VALUE] = -INFINITY
    return False


@jit
def _receive(
    frame: npt.NDArray[np.int64],
    value: int,
    table: npt.NDArray[np.int64],
    stamp: int,
    actions: npt.NDArray[np.int64],
) -> bool:
    """Take the value of the action just searched; True where no other one can matter."""
    if value > frame[VALUE]:
        frame[VALUE] = value
        frame[BEST] = actions[frame[INDEX]]
        frame[LOWER] = max(frame[LOWER], value)
    frame[INDEX] += 1
    if frame[INDEX] < frame[COUNT] and frame[LOWER] < frame[BETA]:
        return False
    row = table[_slot(frame[POSITION], table)]
    row[0], row[1], row[2] = frame[POSITION], stamp, frame[DEPTH]
    row[4], row[5] = frame[VALUE], frame[BEST]
    if frame[VALUE] >= frame[BETA]:
        row[3] = LOWER_BOUND
    else:
        row[3] = EXACT if frame[VALUE] > frame[ALPHA] else UPPER_BOUND
    return True


@jit
def _slot(packed: int, table: npt.NDArray[np.int64]) -> int:
    return draw(packed, 1) & (len(table) - 1)


@jit
def choose(
    packed: int,
    rules: int,
    key: int,
    depth: int,
    table: npt.NDArray[np.int64],
    stamp: int,
    frames: npt.NDArray[np.int64],
    stack: npt.NDArray[np.int64],
) -> int:
    """The best action; among equals the key decides."""
    actions = np.empty(MAX_LEGAL, dtype=np.int64)
    count = write_legal(packed, rules, actions)
    for index in range(count - 1):  # in random order the first of the best is a random one
        other = index + pick(draw(key, index), count - index)
        actions[index], actions[other] = actions[other], actions[index]
    # shallow searches first: they fill the table with good first moves for the deeper ones
    for turns in range(1, depth + 1):
        lower = -INFINITY
        best = 0
        for index in range(count):
            after = play(packed, rules, actions[index])
            if take_backs_left(after):
                value = search(after, rules, turns, lower, INFINITY, table, stamp, frames, stack)
            else:
                value = -search(
                    after, rules, turns - 1, -INFINITY, -lower, table, stamp, frames, stack
                )
            if value > lower:
                lower, best = value, index
        # the best so far leads the next round; the order of the others stays random
        action = actions[best]
        for index in range(best, 0, -1):
            actions[index] = actions[index - 1]
        actions[0] = action
    return int(actions[0])


@jit
def _write_actions(
    packed: npt.NDArray[np.int64],
    rules: int,
    keys: npt.NDArray[np.int64],
    depth: int,
    table: npt.NDArray[np.int64],
    stamp: int,
    actions: npt.NDArray[np.int64],
) -> None:
    frames = np.empty((NUM_FRAMES, COUNT + 1), dtype=np.int64)
    stack = np.empty((NUM_FRAMES, MAX_LEGAL), dtype=np.int64)
    for game in range(len(packed)):
        actions[game] = choose(
            packed[game], rules, keys[game], depth, table, stamp + game + 1, frames, stack
        )
