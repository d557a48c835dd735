"""Seeded openings: a few random plies, so that players without chance do not replay one game.

An opening is played with uniformly random actions and ends between two turns. Taking back belongs
to the turn: an opening of n plies is n actions, and as many more as the last turn needs. It never
ends a game. Two openings that the board's symmetries map to one another count as the same, and the
same one comes again only when many draws in a row have brought nothing new.

The n-th opening of a seed does not depend on how many are asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.errors import PylosError
from pylos_env.options import check_count, check_seed
from pylos_env.position import Position
from pylos_env.rules import Rules

PLIES: Final = 6
"""Default length; no sphere can be taken back before the seventh ply."""
MAX_DRAWS: Final = 1000
"""Draws in a row that bring nothing new before an opening may come again, or is given up."""


class Opening(NamedTuple):
    """How the game began, and the position it has reached."""

    actions: tuple[int, ...]
    position: Position


def openings(
    rules: str | Rules = "advanced", plies: int = PLIES, seed: int = 0
) -> Iterator[Opening]:
    """Openings without end."""
    rules = Rules.of(rules)
    plies = check_count("opening_plies", plies, least=0)
    seed = check_seed(seed)
    numbers: dict[int, int] = {}  # packed: its representative, which takes long to find
    seen: set[int] = set()
    round_size = -1  # how many different ones there are, once that is known
    fruitless = 0
    for draw in itertools.count():
        if fruitless == MAX_DRAWS:
            if not seen:
                raise PylosError(
                    f"{MAX_DRAWS} random games under the rules '{rules}' were all over within "
                    f"{plies} plies: ask for shorter openings"
                )
            round_size = len(seen)
        if len(seen) == round_size:
            seen.clear()
            fruitless = 0
        opening = _random_opening(rules, plies, kernel.draw(seed, draw))
        if opening is not None:
            packed = opening.position.packed
            if packed not in numbers:
                numbers[packed] = representative(opening.position)
            if numbers[packed] not in seen:
                seen.add(numbers[packed])
                fruitless = 0
                yield opening
                continue
        fruitless += 1


def representative(position: Position) -> int:
    """One number for all positions that are the same up to the symmetries of the rules."""
    if not position.rules.symmetric:
        return position.packed
    return _smallest_image(position.packed)


@jit
def _smallest_image(packed: int) -> int:
    smallest = packed
    for index in range(1, 8):
        smallest = min(smallest, kernel.symmetric(packed, index))
    return smallest


def _random_opening(rules: Rules, plies: int, stream: int) -> Opening | None:
    """None where the game is over too soon."""
    code = rules.code
    packed = kernel.START
    actions: list[int] = []
    while len(actions) < plies or kernel.take_backs_left(packed):
        key = kernel.draw(stream, len(actions))
        action = kernel.random_action(packed, code, key)
        if action < 0:
            return None
        actions.append(action)
        packed = kernel.play(packed, code, action)
    if kernel.is_over(packed, code):
        return None
    return Opening(tuple(actions), Position.unchecked(packed, rules))
