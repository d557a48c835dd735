"""Tools to check a Pylos implementation, yours or ours: perft, divide, random games, playthroughs.

`perft` counts move sequences. It counts single actions (each take-back and each stop is one) or
whole turns (a placement or raise together with the unordered set of spheres it takes back).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.kernel import (
    count_legal,
    covered,
    draw,
    is_over,
    legal_sets,
    min_take_back,
    pack,
    play,
    random_action,
    side_of,
    spheres_of,
    take_backs_left,
    write_legal,
)
from pylos_env.notation import STOP_NAME
from pylos_env.observation import Observer
from pylos_env.options import check_count, check_seed
from pylos_env.position import Position
from pylos_env.record import GameRecord
from pylos_env.rules import Rules

MAX_TURNS: Final = 4096


def perft(position: Position, depth: int, whole_turns: bool = False) -> int:
    """Number of move sequences of length `depth`."""
    depth = check_count("depth", depth, least=0)
    if depth == 0:
        return 1
    stack = np.empty((depth + 2, MAX_TURNS), dtype=np.int64)
    return _perft(position.packed, position.rules.code, depth, bool(whole_turns), stack)


def divide(position: Position, depth: int, whole_turns: bool = False) -> dict[str, int]:
    """`perft` split by the first move: where two programs differ, this shows under which move."""
    depth = check_count("depth", depth, least=0)
    if depth == 0:
        return {}
    if not whole_turns:
        return {
            position.move_name(action): perft(position.play(action), depth - 1)
            for action in position.legal_actions()
        }
    counts: dict[str, int] = {}
    seen: set[tuple[tuple[int, ...], frozenset[int]]] = set()
    num_moves = 0 if position.take_backs_left else 1
    for actions in _turns(position):
        turn = tuple(actions[:num_moves]), frozenset(actions[num_moves:]) - {kernel.STOP}
        if turn in seen:
            continue
        seen.add(turn)
        end = position
        for action in actions:
            end = end.play(action)
        counts[position.actions_text(actions) or STOP_NAME] = perft(end, depth - 1, True)
    return counts


def random_game(
    rules: str | Rules = "advanced", seed: int = 0, max_plies: int = 1000
) -> GameRecord:
    """A game of uniformly random actions; the same seed gives the same game everywhere."""
    rules = Rules.of(rules)
    seed = check_seed(seed)
    actions: list[int] = []
    packed = kernel.START
    while len(actions) < max_plies and not is_over(packed, rules.code):
        actions.append(random_action(packed, rules.code, draw(seed, len(actions))))
        packed = play(packed, rules.code, actions[-1])
    return GameRecord(Position.start(rules), tuple(actions))


def playthrough(game: GameRecord) -> str:
    """Everything the library says at every position of a game, as text to be kept and compared."""
    lines = [f"rules: {game.start.rules}"]
    actions = [*game.actions, None]
    for ply, (position, action) in enumerate(zip(game.positions(), actions, strict=True)):
        legal = zip(position.legal_actions(), position.legal_moves(), strict=True)
        lines += [
            "",
            f"ply {ply}",
            f"position: {position}",
            f"packed: {position.packed}",
            f"side: {position.side}",
            f"take-backs left: {position.take_backs_left}",
            f"reserves: {position.reserves}",
            f"outcome: {position.outcome.value}",
            f"legal: {' '.join(f'{number}={name}' for number, name in legal)}",
        ]
        for seat in (0, 1):
            view = Observer("flat", position.rules).observe(position.packed, seat)
            lines.append(f"seat {seat} sees: {' '.join(f'{number:g}' for number in view.tolist())}")
        if action is not None:
            lines.append(f"action: {action} {position.move_name(action)}")
    return "\n".join(lines) + "\n"


def _turns(position: Position) -> Iterator[list[int]]:
    """Every way to end the turn of the side to move; a set taken back in two orders comes twice."""
    for action in position.legal_actions():
        after = position.play(action)
        if after.take_backs_left:
            yield from ([action, *rest] for rest in _turns(after))
        else:
            yield [action]


@jit
def _perft(
    packed: int, rules: int, depth: int, whole_turns: bool, stack: npt.NDArray[np.int64]
) -> int:
    """Depth first with an explicit stack: Numba cannot cache recursive functions reliably.

    `stack` [depth + 2, MAX_TURNS]: a row of positions for each depth still to go; the first row is
    working memory.
    """
    pending = np.zeros(depth + 2, dtype=np.int64)  # positions left in each row
    total = 0
    left = depth + 1
    stack[left, 0] = packed
    pending[left] = 1
    while left <= depth + 1:
        if pending[left] == 0:
            left += 1
            continue
        pending[left] -= 1
        position = stack[left, pending[left]]
        if left == 2 and not whole_turns:
            total += count_legal(position, rules)
            continue
        count = _write_next(position, rules, whole_turns, stack[left - 1], stack[0])
        if left == 2:
            total += count
        else:
            left -= 1
            pending[left] = count
    return total


@jit
def _write_next(
    packed: int,
    rules: int,
    whole_turns: bool,
    out: npt.NDArray[np.int64],
    actions: npt.NDArray[np.int64],
) -> int:
    """Write the position after each turn or action to `out` [4096]; return their number.

    `actions` [128] is working memory.
    """
    if whole_turns and take_backs_left(packed):
        return _write_sets(packed, rules, out, 0)
    count = 0
    for index in range(write_legal(packed, rules, actions)):
        after = play(packed, rules, actions[index])
        if whole_turns and take_backs_left(after):
            count = _write_sets(after, rules, out, count)
        else:
            out[count] = after
            count += 1
    return count


@jit
def _write_sets(packed: int, rules: int, out: npt.NDArray[np.int64], count: int) -> int:
    """Append the end of each set that the side to move, who is taking back, can still take."""
    side = side_of(packed)
    own, other = spheres_of(packed, side), spheres_of(packed, 1 - side)
    cells = legal_sets(packed, rules)[0]
    free = cells & ~kernel.APEX_BIT
    if cells >> kernel.STOP:
        out[count] = pack(other, own, 1 - side, 0)
        count += 1
    rest = free
    while rest:
        first = rest & -rest
        rest ^= first
        left = own ^ first
        seconds = left & ~covered(left | other)
        one_is_enough = min_take_back(rules) < 2 or not seconds
        if take_backs_left(packed) == 1 or one_is_enough:
            out[count] = pack(other, left, 1 - side, 0)
            count += 1
        if take_backs_left(packed) == 2:
            seconds &= ~(free & (first - 1))  # of two free ones the lower cell comes first
            while seconds:
                out[count] = pack(other, left ^ (seconds & -seconds), 1 - side, 0)
                count += 1
                seconds &= seconds - 1
    return count
