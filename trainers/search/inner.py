"""What a search finds out on its way: positions below the root that it visited often, or proved.

The root is not all that a search has looked at. Where it came by several times it knows more than
the network that it asked, and positions of its trees are what the network will be asked about
again: so they are worth learning from, and cost no search of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit
from pylos_env.kernel import MAX_LEGAL
from trainers.search import roots
from trainers.search.tree import ROOT, UNPROVEN, Ints, Trees


class Inner(NamedTuple):
    """Positions below a root, with their improved policies one behind the other."""

    packed: npt.NDArray[np.int64]  # [positions]
    value: npt.NDArray[np.float32]  # [positions]: under the improved policy, for its side to move
    proven: npt.NDArray[np.int8]  # [positions]: 1 a proven win, -1 a proven loss, 0 neither
    guess: npt.NDArray[np.float32]  # [positions]: what the evaluator alone says
    num_legal: npt.NDArray[np.int64]  # [positions]
    policy: npt.NDArray[np.float32]  # [legal actions of all positions, ascending]


NOTHING: Final = Inner(
    np.empty(0, np.int64),
    np.empty(0, np.float32),
    np.empty(0, np.int8),
    np.empty(0, np.float32),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
)


def inner_of(trees: Trees, games: Ints, visits: int, c_visit: float, c_scale: float) -> list[Inner]:
    """For each of these games the positions that its search visited so often, or proved."""
    counts, edges = _count(trees, games, visits)
    positions = counts.sum()
    found = Inner(
        np.empty(positions, dtype=np.int64),
        np.empty(positions, dtype=np.float32),
        np.empty(positions, dtype=np.int8),
        np.empty(positions, dtype=np.float32),
        np.empty(positions, dtype=np.int64),
        np.empty(edges.sum(), dtype=np.float32),
    )
    _write(trees, games, visits, c_visit, c_scale, found)
    return split_inner(found, counts)


def join_inner(parts: Sequence[Inner]) -> Inner:
    """All positions of some records."""
    columns: Any = zip(NOTHING, *parts, strict=True)
    return Inner._make(np.concatenate(column) for column in columns)


def split_inner(whole: Inner, sizes: Ints) -> list[Inner]:
    """The reverse of `join_inner`: the first so many positions, the next, and so on.

    In arrays of their own, so that one record that is kept does not keep all others.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    last_actions = np.concatenate([[0], np.cumsum(whole.num_legal)])[ends].tolist()
    parts = []
    for number in range(len(sizes)):
        rows = slice(ends[number], ends[number + 1])
        actions = slice(last_actions[number], last_actions[number + 1])
        columns = [column[rows].copy() for column in whole[:-1]]
        parts.append(Inner._make([*columns, whole.policy[actions].copy()]))
    return parts


def to_bytes(inner: Inner) -> list[bytes]:
    return [column.tobytes() for column in inner]


def from_bytes(columns: Sequence[bytes]) -> Inner:
    alike: Any = zip(columns, NOTHING, strict=True)
    return Inner._make(np.frombuffer(column, nothing.dtype) for column, nothing in alike)


@jit
def _is_known(trees: Trees, game: int, node: int, visits: int) -> bool:
    """Whether to learn from a node; one without edges is an end, a repetition or without room."""
    known = trees.visits[game, node] >= visits or trees.proven[game, node] != UNPROVEN
    return bool(known and trees.num_edges[game, node] > 0)


@jit
def _count(trees: Trees, games: Ints, visits: int) -> tuple[Ints, Ints]:
    """[games] each: positions to learn from, and their legal actions."""
    counts, edges = np.zeros(len(games), dtype=np.int64), np.zeros(len(games), dtype=np.int64)
    for index, game in enumerate(games):
        for node in range(ROOT + 1, trees.num_nodes[game]):
            if _is_known(trees, game, node, visits):
                counts[index] += 1
                edges[index] += trees.num_edges[game, node]
    return counts, edges


@jit
def _write(
    trees: Trees, games: Ints, visits: int, c_visit: float, c_scale: float, found: Inner
) -> None:
    policy = np.empty(MAX_LEGAL, dtype=np.float32)
    row, begin = 0, 0
    for game in games:
        for node in range(ROOT + 1, trees.num_nodes[game]):
            if not _is_known(trees, game, node, visits):
                continue
            roots.write_gumbel_policy(trees, game, node, c_visit, c_scale, policy)
            count = trees.num_edges[game, node]
            found.packed[row] = trees.packed[game, node]
            found.value[row] = roots.improved_value(trees, game, node, policy)
            found.proven[row] = trees.proven[game, node]
            found.guess[row] = trees.value[game, node]
            found.num_legal[row] = count
            found.policy[begin : begin + count] = policy[:count]
            row += 1
            begin += count
