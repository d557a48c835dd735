"""Oracle: the exact value of every position, from a solved table."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.kernel import side_of, spheres_of
from pylos_env.oracle import board as boards
from pylos_env.oracle.board import Board, index_of, number_of
from pylos_env.oracle.passes import LOST_NOW
from pylos_env.oracle.table import (
    BLOCK_BITS,
    Header,
    OracleError,
    checksum,
    map_table,
    read_header,
    table_path,
)
from pylos_env.position import Position
from pylos_env.rules import Rules


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


class Oracle:
    """Answers for one rule set. Values are from the side to move, distances in whole turns."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.rules = Rules.of(header.rules)
        self._board = boards.build(header.levels)
        self._table = map_table(path, header)
        self._checksums = header.checksums
        self._checked = np.zeros(len(header.checksums), dtype=np.bool_)

    @classmethod
    def open(cls, rules: str | Rules = "advanced", folder: str | Path | None = None) -> Oracle:
        """Map the table of a rule set; `OracleError` says how to build a missing one."""
        rules = Rules.of(rules)
        path = table_path(rules, folder=folder)
        if not path.exists():
            raise OracleError(
                f"no table for '{rules}' at {path}: build it with  pylos-solve --rules '{rules}'  "
                "(3.6 GB of memory, 3.2 GB of disk, a quarter of an hour on two cores)"
            )
        header = read_header(path)
        if header.code != rules.code or header.levels != 4:
            raise OracleError(f"{path} holds '{header.rules}' on {header.levels} levels")
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
        best = max(map(_rank, bytes_after.values()), default=0)
        return [action for action, byte in bytes_after.items() if _rank(byte) == best]

    def classify(self, position: Position) -> dict[int, Verdict]:
        """What each legal action does to the value of the position."""
        before = self.value(position)
        return {
            action: _VERDICTS[before, _value(byte)]
            for action, byte in self._after(position).items()
        }

    def values(self, packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """`value` of many packed positions."""
        found = self._bytes(packed)
        values = np.where(found & 1, np.int8(-1), np.int8(1))
        values[found == 0] = 0
        return values

    def distances(self, packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
        """`distance` of many packed positions; -1 for a draw."""
        return self._bytes(packed).astype(np.int16) - 1

    # Inside: everything is said in the table's bytes

    def _bytes(self, packed: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        packed = np.ascontiguousarray(packed, dtype=np.int64)
        indices = np.empty(len(packed), dtype=np.int64)
        _write_indices(self._board, packed, indices)
        stored = indices >= 0
        self._check_blocks(indices[stored])
        found = np.full(len(packed), LOST_NOW, dtype=np.uint8)
        found[stored] = self._table[indices[stored]]
        for row in np.flatnonzero(packed >> kernel.TAKE_BACK_SHIFT).tolist():
            position = Position.unchecked(int(packed[row]), self.rules)
            found[row] = self._byte(position)
        return found

    def _byte(self, position: Position) -> int:
        if position.rules != self.rules:
            raise OracleError(f"this oracle knows '{self.rules}', asked about '{position.rules}'")
        if position.take_backs_left:
            return max(self._after(position).values(), key=_rank)
        return int(self._bytes(np.array([position.packed]))[0])

    def _after(self, position: Position) -> dict[int, int]:
        """The mover's byte after each legal action, this turn counted."""
        result = {}
        for action in position.legal_actions():
            after = position.play(action)
            byte = self._byte(after)
            if not after.take_backs_left and byte:
                byte += 1  # the other side's loss in n is a win in n + 1, and the other way round
            result[action] = byte
        return result

    def _check_blocks(self, indices: npt.NDArray[np.int64]) -> None:
        for block in np.unique(indices >> BLOCK_BITS).tolist():
            if not self._checked[block]:
                if checksum(self._table, block) != self._checksums[block]:
                    raise OracleError(f"{self.path}: block {block} is damaged; build it again")
                self._checked[block] = True


def _value(byte: int) -> int:
    return 0 if byte == 0 else -1 if byte & 1 else 1


def _rank(byte: int) -> int:
    """Orders bytes from the worst to the best for the side to move."""
    return 0 if byte == 0 else byte - 1000 if byte & 1 else 1000 - byte


@jit
def _write_indices(
    board: Board, packed: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]
) -> None:
    """The index of each position; -1 where a sphere stands on the apex."""
    for row in range(len(packed)):
        own = spheres_of(packed[row], side_of(packed[row]))
        occupied = own | spheres_of(packed[row], 1 - side_of(packed[row]))
        if occupied >> board.apex:
            indices[row] = -1
        else:
            indices[row] = index_of(board, number_of(board, occupied), own)
