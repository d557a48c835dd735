"""Checks of what users hand in: a clear error for a bad value, and plain types inside."""

from __future__ import annotations

import math
import numbers
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pylos_env.errors import IllegalMoveError
from pylos_env.geometry import NUM_ACTIONS

Seat = Literal[0, 1, "random"]

MAX_PLIES: Final = 300
"""Default length of a game before it is truncated; random games end after about 50 actions."""

_NO_LIMIT: Final = 1 << 62
_WORD: Final = (1 << 63) - 1


def is_whole(value: Any) -> bool:
    """Whether it is an integer of Python's or NumPy's; a bool is none."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_whole(value: Any, what: str) -> int:
    """A Python int; `what` says in the error what was expected."""
    if not is_whole(value):
        raise TypeError(f"{what}, got {value!r}")
    return int(value)


def check_between(value: Any, low: int, high: int, name: str) -> int:
    if not is_whole(value) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
    return int(value)


def check_count(name: str, value: Any, least: int = 1) -> int:
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number from {least} up, got {value!r}")
    return int(value)


def check_seed(value: Any) -> int:
    """A seed as the kernels take it: any integer from 0 up, folded to 63 bits."""
    return check_count("a seed", value, least=0) & _WORD


def check_max_plies(value: Any) -> int | None:
    return None if value is None else check_count("max_plies, unless None,", value)


def ply_limit(max_plies: int | None) -> int:
    """`max_plies` as the kernels take it."""
    return _NO_LIMIT if max_plies is None else min(max_plies, _NO_LIMIT)


def check_draw_reward(value: Any) -> float:
    try:
        reward = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        reward = math.nan
    if not math.isfinite(reward):
        raise ValueError(f"draw_reward must be a finite number, got {value!r}")
    return reward


def check_seat(value: Any) -> Seat:
    if isinstance(value, str) and value == "random":
        return "random"
    if not is_whole(value) or int(value) not in (0, 1):
        raise ValueError(f"unknown seat {value!r}: expected 0, 1 or 'random'")
    return 1 if value else 0


def check_action(action: Any) -> int:
    """An action number; whether it is legal is for the rules to say."""
    number = check_whole(action, f"an action is an integer from 0 to {NUM_ACTIONS - 1}")
    if not 0 <= number < NUM_ACTIONS:
        raise IllegalMoveError(f"action {number} does not exist: expected 0-{NUM_ACTIONS - 1}")
    return number


def check_actions(actions: Any, count: int) -> npt.NDArray[np.int64]:
    """One number for each game as a contiguous int64 array [games]; their range is not checked."""
    array = np.asarray(actions)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise TypeError(
            f"expected {count} integer actions, one a game, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def check_action_range(actions: npt.NDArray[np.int64]) -> None:
    if actions.min() < 0 or actions.max() >= NUM_ACTIONS:
        game = int(np.flatnonzero((actions < 0) | (actions >= NUM_ACTIONS))[0])
        raise IllegalMoveError(
            f"game {game}: action {actions[game]} does not exist: expected 0-{NUM_ACTIONS - 1}"
        )
