"""The random agent: every legal action alike."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.agents.base import Agent
from pylos_env.position import Position
from pylos_env.rules import Rules


class RandomAgent(Agent):
    """Plays uniformly over the legal actions."""

    name = "random"

    def act(self, position: Position, key: int | None = None) -> int:
        key = self.next_key() if key is None else key
        return kernel.random_action(position.packed, position.rules.code, key)

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        policy = position.action_mask().astype(np.float64)
        policy /= policy.sum()
        return policy

    def act_batch(
        self, packed: npt.NDArray[np.int64], rules: Rules, keys: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        actions = np.empty(len(packed), dtype=np.int64)
        _act_batch(packed, rules.code, keys, actions)
        return actions


@jit
def _act_batch(
    packed: npt.NDArray[np.int64],
    rules: int,
    keys: npt.NDArray[np.int64],
    actions: npt.NDArray[np.int64],
) -> None:
    for game in range(len(packed)):
        actions[game] = kernel.random_action(packed[game], rules, keys[game])
