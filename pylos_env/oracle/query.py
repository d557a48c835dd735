"""Oracle: the exact value of every position, from a solved table."""

from __future__ import annotations

import dataclasses
import enum
import functools
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.geometry import NUM_GROUND_CELLS
from pylos_env.kernel import side_of, spheres_of, take_backs_left
from pylos_env.oracle import board as boards
from pylos_env.oracle.board import Board, find_number, index_of
from pylos_env.oracle.labels import Labels, values_of
from pylos_env.oracle.passes import LOST_NOW, NO_POSITION, Table
from pylos_env.oracle.table import (
    BLOCK_BITS,
    Header,
    OracleError,
    check_header,
    checksum,
    map_table,
    read_header,
    table_path,
)
from pylos_env.position import Position
from pylos_env.rules import Rules

Ints = npt.NDArray[np.int64]


class Verdict(enum.Enum):
    """What an action does to the mover's prospects."""

    KEEPS_WIN = "keeps the win"
    WIN_TO_DRAW = "lets the win slip to a draw"
    WIN_TO_LOSS = "turns the win into a loss"
    KEEPS_DRAW = "keeps the draw"
    DRAW_TO_LOSS = "turns the draw into a loss"
    LOST = "loses anyway"


_VERDICTS: Final = {
    (1, 1): Verdict.KEEPS_WIN,
    (1, 0): Verdict.WIN_TO_DRAW,
    (1, -1): Verdict.WIN_TO_LOSS,
    (0, 0): Verdict.KEEPS_DRAW,
    (0, -1): Verdict.DRAW_TO_LOSS,
    (-1, -1): Verdict.LOST,
}

_WORST_FIRST: Final = [*range(1, 255, 2), 0, *range(254, 0, -2)]
_BYTES: Final = np.array(_WORST_FIRST, dtype=np.uint8)
"""[rank]: the table's bytes from the worst to the best for the side to move."""
_RANKS: Final = np.argsort(_BYTES).astype(np.int16)
"""[byte]: the inverse."""

# what `_write_indices` says where a position has no index
NOT_STORED: Final = -1  # the apex is placed, or a turn is under way
IMPOSSIBLE: Final = -2


class Oracle:
    """Answers for one rule set. Values are from the side to move, distances in whole turns."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.rules = dataclasses.replace(Rules.of(header.rules), levels=header.levels)
        self._table = map_table(path, header)
        self._checksums = header.checksums
        self._checked = np.zeros(len(header.checksums), dtype=np.bool_)

    @classmethod
    def open(cls, rules: str | Rules = "advanced", folder: str | Path | None = None) -> Oracle:
        """Map the table of a rule set; `OracleError` says how to build a missing one."""
        rules = Rules.of(rules)
        path = table_path(rules, folder=folder)
        if rules.take_back != "choose":
            raise OracleError(
                f"no table for '{rules}': only rules where players choose what they take back are "
                "solved"
            )
        if not path.exists():
            cost = "3.6 GB of memory, 3.2 GB of disk, 5 to 20 minutes on two quiet cores"
            cost = cost if rules.levels == 4 else "seconds"
            raise OracleError(
                f"no table for '{rules}' at {path}: build it with  pylos-solve --rules '{rules}'"
                f"{f' --out {folder}' if folder else ''}  ({cost})"
            )
        header = read_header(path)
        check_header(path, header, rules, rules.levels)
        return cls(path, header)

    def value(self, position: Position) -> int:
        """1 won, 0 drawn by endless play, -1 lost."""
        return _value(self._byte(position))

    def distance(self, position: Position) -> int | None:
        """Turns to the end under best play, a turn under way included; None for a draw."""
        byte = self._byte(position)
        return byte - 1 if byte else None

    def best_actions(self, position: Position) -> list[int]:
        """The actions that win fastest, keep a draw, or resist longest."""
        bytes_after = self._after(position)
        best = max((_RANKS[byte] for byte in bytes_after.values()), default=0)
        return [action for action, byte in bytes_after.items() if _RANKS[byte] == best]

    def classify(self, position: Position) -> dict[int, Verdict]:
        """What each legal action does to the value of the position."""
        before = self.value(position)
        return {
            action: _VERDICTS[before, _value(byte)]
            for action, byte in self._after(position).items()
        }

    def values(self, packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """`value` of many packed positions."""
        return values_of(self._bytes(_checked_array(packed)))

    def distances(self, packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
        """`distance` of many packed positions; -1 for a draw."""
        return self._bytes(_checked_array(packed)).astype(np.int16) - 1

    def label(self, packed: npt.NDArray[np.int64]) -> Labels:
        """The truth about many packed positions and each of their legal actions."""
        packed = _checked_array(packed)
        _, after, begin = _successors(packed, self.rules.code)
        return Labels(
            self.rules,
            packed,
            np.zeros(len(packed), dtype=np.uint8),
            self._bytes(packed),
            begin,
            self._bytes_after(after),
        )

    # Inside: everything is said in the table's bytes

    @functools.cached_property
    def _board(self) -> Board:
        """Built by the first question: opening a table costs a millisecond, this a part of one."""
        return boards.build(self.rules.levels)

    def _bytes(self, packed: Ints) -> Table:
        indices = np.empty(len(packed), dtype=np.int64)
        lowest = 0 if self.rules.levels == 4 else NUM_GROUND_CELLS
        _write_indices(self._board, lowest, packed, indices)
        stored = indices >= 0
        self._check_blocks(indices[stored])
        found = np.full(len(packed), LOST_NOW, dtype=np.uint8)
        found[stored] = self._table[indices[stored]]
        impossible = (indices == IMPOSSIBLE) | (found == NO_POSITION)
        if impossible.any():
            row = int(impossible.argmax())
            raise OracleError(f"row {row}: {packed[row]} is no position under '{self.rules}'")
        taking = np.flatnonzero(packed >> kernel.TAKE_BACK_SHIFT)
        if len(taking):
            _, after, begin = _successors(packed[taking], self.rules.code)
            best = np.maximum.reduceat(_RANKS[self._bytes_after(after)], begin[:-1])
            found[taking] = _BYTES[best]
        return found

    def _bytes_after(self, after: Ints) -> Table:
        """The bytes of positions for the player who has just moved."""
        found = self._bytes(after)
        passed = after >> kernel.TAKE_BACK_SHIFT == 0
        # the other side's loss in n is a win in n + 1, and the other way round
        found[passed & (found > 0)] += 1
        return found

    def _byte(self, position: Position) -> int:
        self._check_rules(position)
        return int(self._bytes(np.array([position.packed]))[0])

    def _after(self, position: Position) -> dict[int, int]:
        """The mover's byte after each legal action, this turn counted."""
        self._check_rules(position)
        actions, after, _ = _successors(np.array([position.packed]), self.rules.code)
        return dict(zip(actions.tolist(), self._bytes_after(after).tolist(), strict=True))

    def _check_rules(self, position: Position) -> None:
        if position.rules != self.rules:
            raise OracleError(f"this oracle knows '{self.rules}', asked about '{position.rules}'")

    def _check_blocks(self, indices: Ints) -> None:
        for block in np.unique(indices >> BLOCK_BITS).tolist():
            if not self._checked[block]:
                if checksum(self._table, block) != self._checksums[block]:
                    raise OracleError(f"{self.path}: block {block} is damaged; build it again")
                self._checked[block] = True


def _checked_array(packed: npt.NDArray[np.int64]) -> Ints:
    packed = np.asarray(packed)
    if packed.ndim != 1 or packed.dtype.kind not in "iu":
        raise OracleError(
            f"expected packed positions as integers [positions], got {packed.dtype} "
            f"{list(packed.shape)}"
        )
    return np.ascontiguousarray(packed, dtype=np.int64)


def _value(byte: int) -> int:
    return 0 if byte == 0 else -1 if byte & 1 else 1


def _successors(packed: Ints, rules: int) -> tuple[Ints, Ints, Ints]:
    """Every legal action of every position, the position after it, and where each row begin."""
    begin = np.zeros(len(packed) + 1, dtype=np.int64)
    _write_begin(packed, rules, begin)
    actions, after = np.empty((2, begin[-1]), dtype=np.int64)
    _write_successors(packed, rules, begin, actions, after)
    return actions, after, begin


@jit
def _write_begin(packed: Ints, rules: int, begin: Ints) -> None:
    for row in range(len(packed)):
        begin[row + 1] = begin[row] + kernel.count_legal(packed[row], rules)


@jit
def _write_successors(packed: Ints, rules: int, begin: Ints, actions: Ints, after: Ints) -> None:
    for row in range(len(packed)):
        kernel.write_legal(packed[row], rules, actions[begin[row] :])
        for number in range(begin[row], begin[row + 1]):
            after[number] = kernel.play(packed[row], rules, actions[number])


@jit
def _write_indices(board: Board, lowest: int, packed: Ints, indices: Ints) -> None:
    """The index of each position, or why it has none.

    The board's first cell is the game's cell `lowest`.
    """
    for row in range(len(packed)):
        own = spheres_of(packed[row], side_of(packed[row]))
        other = spheres_of(packed[row], 1 - side_of(packed[row]))
        occupied = (own | other) >> lowest
        if packed[row] < 0 or own & other or (own | other) != occupied << lowest:
            indices[row] = IMPOSSIBLE
        elif occupied >> board.apex or take_backs_left(packed[row]):
            indices[row] = NOT_STORED
        else:
            number = find_number(board, occupied)
            indices[row] = IMPOSSIBLE
            if number >= 0:
                indices[row] = index_of(board, number, own >> lowest)
