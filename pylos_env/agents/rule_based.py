"""The rule-based agent: a page of plain rules, one move ahead.

Every legal action gets points; the best one is played, ties are broken by the key.

| points | for |
|---|---|
| 100,000 | winning the game with this action |
| -50,000 | letting the other side win at once |
| -100 | a sphere spent from the reserve (a raise spends none) |
| 100 | a sphere taken back |
| 200 | completing a formation: two spheres come back |
| 150 | playing where the other side would have completed a formation |
| -150 | leaving or opening a cell where the other side completes a formation |
| 30 | each cell where I could complete a formation next (two at most) |
| 8 | each sphere of the other side that mine hold down, less each of mine held down |
| 2 | each level of height |
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit, popcount
from pylos_env.agents.base import CompiledAgent
from pylos_env.agents.features import threats
from pylos_env.kernel import (
    MAX_LEGAL,
    NUM_ACTIONS,
    covered,
    is_over,
    open_cells,
    pack,
    pick,
    play,
    side_of,
    spheres_of,
    take_backs_left,
    write_legal,
)
from pylos_env.position import Position


@jit
def can_win(packed: int, rules: int) -> bool:
    """Whether the side to move has an action that ends the game."""
    actions = np.empty(MAX_LEGAL, dtype=np.int64)
    for index in range(write_legal(packed, rules, actions)):
        after = play(packed, rules, actions[index])
        if side_of(after) != side_of(packed) and is_over(after, rules):
            return True
    return False


@jit
def score(packed: int, rules: int, action: int) -> int:
    """The points of a legal action."""
    side = side_of(packed)
    after = play(packed, rules, action)
    if side_of(after) != side and is_over(after, rules):
        return 100_000
    before_own = spheres_of(packed, side)
    before_other = spheres_of(packed, 1 - side)
    own = spheres_of(after, side)
    other = before_other
    points = 0
    if can_win(pack(other, own, 1 - side, 0), rules):
        points -= 50_000

    points -= 100 * (popcount(own) - popcount(before_own))
    if take_backs_left(after) == 2:
        points += 200

    open_before = open_cells(before_own | before_other, rules)
    open_now = open_cells(own | other, rules)
    if own & ~before_own & threats(before_other, open_before, rules):
        points += 150
    if threats(other, open_now, rules):
        points -= 150
    points += 30 * min(2, popcount(threats(own, open_now, rules)))

    held = covered(own | other)
    points += 8 * (popcount(other & held) - popcount(own & held))
    if own & ~before_own:
        points += 2 * _level(own & ~before_own)
    return points


@jit
def _level(cell: int) -> int:
    """The level of a one-cell mask."""
    return (cell >= 1 << 16) + (cell >= 1 << 25) + (cell >= 1 << 29)


@jit
def choose(packed: int, rules: int, key: int) -> int:
    """One of the actions with most points."""
    actions = np.empty(MAX_LEGAL, dtype=np.int64)
    count = write_legal(packed, rules, actions)
    best, num_best = -1_000_000, 0
    for index in range(count):
        points = score(packed, rules, actions[index])
        if points > best:
            best, num_best = points, 0
        if points == best:
            actions[num_best] = actions[index]
            num_best += 1
    return int(actions[pick(key, num_best)])


@jit
def _write_actions(
    packed: npt.NDArray[np.int64],
    rules: int,
    keys: npt.NDArray[np.int64],
    actions: npt.NDArray[np.int64],
) -> None:
    for game in range(len(packed)):
        actions[game] = choose(packed[game], rules, keys[game])


class RuleBasedAgent(CompiledAgent):
    """Wins when it can, completes and blocks formations, saves spheres."""

    name = "rule_based"
    _write_actions = staticmethod(_write_actions)

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        points = np.full(NUM_ACTIONS, -np.inf)
        for action in position.legal_actions():
            points[action] = score(position.packed, position.rules.code, action)
        policy: npt.NDArray[np.float64] = np.where(points == points.max(), 1.0, 0.0)
        policy /= policy.sum()
        return policy
