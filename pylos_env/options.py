"""Checks for the options that all environments share: a clear error for a bad value."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pylos_env.errors import IllegalMoveError
from pylos_env.geometry import NUM_ACTIONS

Seat = Literal[0, 1, "random"]

MAX_PLIES: Final = 300
"""Default length of a game before it is truncated; random games end after about 50 actions."""


def check_max_plies(value: Any) -> int | None:
    if value is None:
        return None
    if not _is_whole(value) or value < 1:
        raise ValueError(f"max_plies must be a whole number from 1 up, or None, got {value!r}")
    return int(value)


def ply_limit(max_plies: int | None) -> int:
    """`max_plies` as the kernels take it."""
    return 1 << 62 if max_plies is None else max_plies


def check_draw_reward(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"draw_reward must be a finite number, got {value!r}")
    return float(value)


def check_seat(value: Any) -> Seat:
    if value == "random":
        return "random"
    if not _is_whole(value) or value not in (0, 1):
        raise ValueError(f"unknown seat {value!r}: expected 0, 1 or 'random'")
    return 1 if value else 0


def check_count(name: str, value: Any) -> int:
    if not _is_whole(value) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1 up, got {value!r}")
    return int(value)


def check_action(action: Any) -> int:
    """An action number; whether it is legal is for the rules to say."""
    try:
        number = operator.index(action)
    except TypeError:
        raise TypeError(
            f"an action is an integer from 0 to {NUM_ACTIONS - 1}, got {action!r}"
        ) from None
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


def _is_whole(value: Any) -> bool:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
