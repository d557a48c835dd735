"""Agent: a position in, an action or a distribution out."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env.errors import PylosError
from pylos_env.options import check_action, check_seed
from pylos_env.position import Position
from pylos_env.rules import Rules


def check_ongoing(position: Position) -> None:
    if kernel.is_over(position.packed, position.rules.code):
        raise PylosError(f"the game is over, {position.outcome.value}, in {position}")


class Agent:
    """A decision maker. Subclasses give `act` or `policy`; each default is made of the other.

    Chance comes in as a `key`, a non-negative 63-bit integer: the same position and key give the
    same action, however games are batched. Without a key the agent draws the next of its own
    stream, which `seed` sets.
    """

    name: str = "agent"

    def __init__(self, seed: int | None = None) -> None:
        self.seed(seed)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.act is Agent.act and cls.policy is Agent.policy:
            raise TypeError(f"{cls.__name__} must define act or policy")

    def seed(self, seed: int | None = None) -> None:
        """Restart the agent's own stream of keys; None takes a seed from the system."""
        self._seed = secrets.randbits(62) if seed is None else check_seed(seed)
        self._count = 0

    def _key(self, key: int | None) -> int:
        """The given key, or the next of the agent's own."""
        if key is not None:
            return check_seed(key)
        self._count += 1
        return kernel.draw(self._seed, self._count)

    def act(self, position: Position, key: int | None = None) -> int:
        """A legal action for the side to move; the game must not be over."""
        check_ongoing(position)
        policy = np.asarray(self.policy(position), dtype=np.float64)
        if (
            policy.shape != (kernel.NUM_ACTIONS,)
            or not np.isfinite(policy).all()
            or policy.min() < 0
            or not policy.any()
        ):
            raise PylosError(f"{self.name}: a policy is {kernel.NUM_ACTIONS} shares, not all zero")
        share = self._key(key) / (1 << 63) * policy.sum()
        last = int(np.flatnonzero(policy)[-1])  # for a share that rounding pushes past the end
        return min(int(np.searchsorted(policy.cumsum(), share, side="right")), last)

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        """A distribution over the 303 actions, zero for the illegal ones."""
        check_ongoing(position)
        policy = np.zeros(kernel.NUM_ACTIONS)
        policy[self.act(position, key=0)] = 1
        return policy

    def check_rules(self, rules: Rules) -> None:
        """Refuse rules that it cannot play, before a game begins; most agents play any."""

    def act_batch(
        self, packed: npt.NDArray[np.int64], rules: Rules, keys: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """An action for each of many packed positions: `act` row by row."""
        return np.array(
            [
                self.act(Position.unchecked(int(position), rules), int(key))
                for position, key in zip(packed, keys, strict=True)
            ],
            dtype=np.int64,
        )

    def value(self, position: Position) -> float | None:
        """The agent's own estimate for the side to move, in [-1, 1]; None where it has none."""
        return None

    def value_batch(
        self, packed: npt.NDArray[np.int64], rules: Rules
    ) -> npt.NDArray[np.float64] | None:
        """`value` of each of many packed positions, NaN where it has none; None where it never has.

        The default asks row by row.
        """
        if type(self).value is Agent.value:
            return None
        values = [self.value(Position.unchecked(int(position), rules)) for position in packed]
        return np.array(values, dtype=np.float64)  # None becomes NaN

    def at_board(self) -> Agent:
        """The agent for one game, with a memory for it where it can use one.

        Then its choice depends on the moves before, not only on position and key.
        """
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


AgentLike = str | Agent | Callable[[Position], int]
"""What serves as an agent: a name, an agent, or a function from a position to an action."""


class CompiledAgent(Agent):
    """An agent whose choices come from a kernel over many positions."""

    def act(self, position: Position, key: int | None = None) -> int:
        check_ongoing(position)
        packed, keys = np.array([position.packed]), np.array([self._key(key)])
        return int(self.act_batch(packed, position.rules, keys)[0])

    def act_batch(
        self, packed: npt.NDArray[np.int64], rules: Rules, keys: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        actions = np.empty(len(packed), dtype=np.int64)
        self._write_actions(packed, rules.code, keys, actions)
        return actions

    def _write_actions(
        self,
        packed: npt.NDArray[np.int64],
        rules: int,
        keys: npt.NDArray[np.int64],
        actions: npt.NDArray[np.int64],
    ) -> None:
        """Fill `actions` [games]."""
        raise NotImplementedError


class FunctionAgent(Agent):
    """A plain function `position -> action` as an agent."""

    def __init__(self, function: Callable[[Position], int], seed: int | None = None) -> None:
        super().__init__(seed)
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    def act(self, position: Position, key: int | None = None) -> int:
        return check_action(self._function(position))
