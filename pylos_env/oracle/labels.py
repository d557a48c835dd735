"""The labelled positions that ship with the package: the truth about some thousands of decisions.

Each position has its byte of the solved table and that of every legal action, so agents can be
measured on any machine without a table. `scripts/make_labels.py` writes the files.
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env.kernel import SIDE_SHIFT
from pylos_env.oracle.table import OracleError
from pylos_env.rules import Rules

FORMAT: Final = 1
SOURCES: Final = ("random", "played")
"""Where positions come from: random games, and games of agents that play well with some noise."""

_FOLDER: Final = resources.files("pylos_env.oracle") / "positions"


class Labels(NamedTuple):
    """Positions and their truth, from the side to move; bytes as in `passes`."""

    rules: Rules
    packed: npt.NDArray[np.int64]  # [positions]
    source: npt.NDArray[np.uint8]  # [positions]: index in SOURCES
    byte: npt.NDArray[np.uint8]  # [positions]
    begin: npt.NDArray[np.int64]  # [positions + 1]: where a position's actions begin
    after: npt.NDArray[np.uint8]  # [actions]: the mover's byte after each legal action, ascending

    @property
    def values(self) -> npt.NDArray[np.int8]:
        """[positions]: 1 won, 0 drawn, -1 lost."""
        return values_of(self.byte)

    @property
    def spheres(self) -> npt.NDArray[np.int64]:
        """[positions]: spheres on the board."""
        counts: npt.NDArray[np.uint8] = np.bitwise_count(self.packed & ((1 << SIDE_SHIFT) - 1))
        return counts.astype(np.int64)

    def every(self, step: int) -> Labels:
        """Each `step`-th position: a smaller set of the same make."""
        rows = np.arange(0, len(self.packed), step)
        sizes = np.diff(self.begin)[rows]
        parts = [self.after[self.begin[row] : self.begin[row + 1]] for row in rows]
        return Labels(
            self.rules,
            self.packed[rows],
            self.source[rows],
            self.byte[rows],
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate(parts),
        )


def values_of(byte: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """1 won, 0 drawn, -1 lost for bytes of the table."""
    values = np.where(byte & 1, np.int8(-1), np.int8(1))
    values[byte == 0] = 0
    return values


def write_labels(path: Path, labels: Labels) -> None:
    np.savez_compressed(
        path,
        format=np.int64(FORMAT),
        rules=np.array(str(labels.rules)),
        packed=labels.packed,
        source=labels.source,
        byte=labels.byte,
        count=np.diff(labels.begin).astype(np.uint8),
        after=labels.after,
    )


def read_labels(path: Path) -> Labels:
    with np.load(path, allow_pickle=False) as file:
        if int(file["format"]) != FORMAT:
            raise OracleError(f"{path} has format {file['format']}, this version reads {FORMAT}")
        begin = np.concatenate([[0], np.cumsum(file["count"], dtype=np.int64)])
        return Labels(
            Rules.of(str(file["rules"])),
            file["packed"],
            file["source"],
            file["byte"],
            begin,
            file["after"],
        )


def has_labels(rules: Rules) -> bool:
    """Whether positions of a rule set are shipped."""
    return str(rules) in _shipped()


def _shipped() -> list[str]:
    return sorted(file.name.removesuffix(".npz") for file in _FOLDER.iterdir())


@functools.cache
def load_labels(rules: Rules) -> Labels:
    """The shipped positions of a rule set."""
    if not has_labels(rules):
        raise OracleError(
            f"no labelled positions for '{rules}', only for {', '.join(_shipped())}; "
            "scripts/make_labels.py draws them from a solved table"
        )
    with resources.as_file(_FOLDER / f"{rules}.npz") as path:
        return read_labels(path)
