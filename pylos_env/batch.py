"""Kernels over many games at once, and how they are spread over cores.

Each kernel works on the games `begin` to `end` of arrays allocated by the caller and releases the
GIL, so `spread` can run slices of one batch in plain threads. Small batches stay in the caller's
thread: they are done before another one has woken up.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba.core import config

from pylos_env._jit import jit
from pylos_env.kernel import (
    START,
    draw,
    is_legal_of,
    is_over,
    legal_sets,
    pick,
    play,
    play_checked,
    side_of,
    write_mask,
    write_mask_of,
    write_observation,
)

MIN_GAMES_PER_THREAD: Final = 2048
"""Fewer games are done before another thread has woken up (50 to 100 us each way)."""

_pool: ThreadPoolExecutor | None = None


def default_threads() -> int:
    """As many as Numba would use: the cores of this process, or `NUMBA_NUM_THREADS`."""
    return int(config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # threads do not survive a fork


def spread(kernel: Callable[..., int], num_games: int, num_threads: int, *args: Any) -> int:
    """Run `kernel(begin, end, *args)` over all games; return its first result from 0 up, or -1."""
    global _pool
    num_slices = min(num_threads, num_games // MIN_GAMES_PER_THREAD)
    if num_slices <= 1:
        return kernel(0, num_games, *args)
    if _pool is None:
        _pool = ThreadPoolExecutor(default_threads(), thread_name_prefix="pylos")
    bounds = [num_games * index // num_slices for index in range(num_slices + 1)]
    others = [
        _pool.submit(kernel, begin, end, *args) for begin, end in itertools.pairwise(bounds[1:])
    ]
    results = [kernel(bounds[0], bounds[1], *args)] + [other.result() for other in others]
    return next((result for result in results if result >= 0), -1)


@jit
def step_games(
    begin: int,
    end: int,
    packed: npt.NDArray[np.int64],
    legal: npt.NDArray[np.int32],
    plies: npt.NDArray[np.int64],
    reached: npt.NDArray[np.int64],
    rules: int,
    actions: npt.NDArray[np.int64],
    max_plies: int,
    draw_reward: float,
    planes: bool,
    observation: npt.NDArray[np.float32],
    action_mask: npt.NDArray[np.int8],
    reward: npt.NDArray[np.float32],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    mover: npt.NDArray[np.int8],
    to_move: npt.NDArray[np.int8],
) -> int:
    """A self-play step: rewards to the mover, ended games restarted, the next views.

    `legal` [games, 3] has the `legal_sets` of each position, so that they are found only once.
    Stops at the first game whose action is illegal and returns it; what it has written by then is
    for the caller to undo.
    """
    for game in range(begin, end):
        side = side_of(packed[game])
        if not is_legal_of(legal[game, 0], legal[game, 1], legal[game, 2], actions[game]):
            return game
        position = play(packed[game], rules, actions[game])
        reached[game] = position
        plies[game] += 1
        cells, sources, landings = legal_sets(position, rules)
        over = not write_mask_of(cells, sources, landings, action_mask[game])
        cut = not over and plies[game] >= max_plies
        if over:  # the side to move has lost
            reward[game] = np.float32(1) if side_of(position) != side else np.float32(-1)
        else:
            reward[game] = np.float32(draw_reward) if cut else np.float32(0)
        terminated[game] = over
        truncated[game] = cut
        mover[game] = side
        if over or cut:
            position = START
            plies[game] = 0
            cells, sources, landings = legal_sets(position, rules)
            write_mask_of(cells, sources, landings, action_mask[game])
        packed[game] = position
        legal[game, 0], legal[game, 1], legal[game, 2] = cells, sources, landings
        to_move[game] = side_of(position)
        write_observation(position, rules, side_of(position), planes, observation[game])
    return -1


@jit
def write_legal_sets(
    begin: int,
    end: int,
    packed: npt.NDArray[np.int64],
    rules: int,
    legal: npt.NDArray[np.int32],
) -> int:
    for game in range(begin, end):
        legal[game, 0], legal[game, 1], legal[game, 2] = legal_sets(packed[game], rules)
    return -1


@jit
def write_views(
    begin: int,
    end: int,
    packed: npt.NDArray[np.int64],
    rules: int,
    planes: bool,
    seats: npt.NDArray[np.int8],
    observation: npt.NDArray[np.float32],
    action_mask: npt.NDArray[np.int8],
) -> int:
    """Each seat's observation, and its mask where it is on turn."""
    for game in range(begin, end):
        write_observation(packed[game], rules, seats[game], planes, observation[game])
        if side_of(packed[game]) == seats[game]:
            write_mask(packed[game], rules, action_mask[game])
        else:
            action_mask[game] = 0
    return -1


# One seat against an opponent

ONGOING: Final = 0
WON: Final = 1
LOST: Final = 2
TRUNCATED: Final = 3
ILLEGAL: Final = 4

TERMINATED: Final = np.array([False, True, True, False, True])  # [status]


def reward_table(draw_reward: float) -> npt.NDArray[np.float64]:
    """[status]: the seat's reward."""
    return np.array([0.0, 1.0, -1.0, draw_reward, -1.0])


@jit
def status_of(packed: int, rules: int, seat: int, plies: int, max_plies: int) -> int:
    """How the game stands for `seat`."""
    if is_over(packed, rules):
        return LOST if side_of(packed) == seat else WON
    return TRUNCATED if plies >= max_plies else ONGOING


@jit
def step_seat(
    games: npt.NDArray[np.int64],
    packed: npt.NDArray[np.int64],
    plies: npt.NDArray[np.int64],
    status: npt.NDArray[np.int8],
    seats: npt.NDArray[np.int8],
    actions: npt.NDArray[np.int64],
    rules: int,
    max_plies: int,
) -> None:
    """Play an action in each of `games`; an illegal one ends the game where it stands."""
    for index in range(len(games)):
        game = games[index]
        after = play_checked(packed[game], rules, actions[index])
        if after < 0:
            status[game] = ILLEGAL
            continue
        packed[game] = after
        plies[game] += 1
        status[game] = status_of(after, rules, seats[game], plies[game], max_plies)


@jit
def opponents_turn(
    games: npt.NDArray[np.int64],
    packed: npt.NDArray[np.int64],
    status: npt.NDArray[np.int8],
    seats: npt.NDArray[np.int8],
    seeds: npt.NDArray[np.int64],
    draws: npt.NDArray[np.int64],
    pending: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
) -> int:
    """Find the games where the opponent is on turn, and draw it a key for each."""
    count = 0
    for index in range(len(games)):
        game = games[index]
        if status[game] == ONGOING and side_of(packed[game]) != seats[game]:
            draws[game] += 1
            pending[count] = game
            keys[count] = draw(seeds[game], draws[game])
            count += 1
    return count


@jit
def draw_seats(
    games: npt.NDArray[np.int64],
    seats: npt.NDArray[np.int8],
    seeds: npt.NDArray[np.int64],
    draws: npt.NDArray[np.int64],
) -> None:
    """Give each of `games` a random seat."""
    for index in range(len(games)):
        game = games[index]
        draws[game] += 1
        seats[game] = pick(draw(seeds[game], draws[game]), 2)
