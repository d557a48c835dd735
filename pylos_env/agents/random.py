"""The random agent: every legal action alike."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.agents.base import CompiledAgent
from pylos_env.position import Position


@jit
def _write_actions(
    packed: npt.NDArray[np.int64],
    rules: int,
    keys: npt.NDArray[np.int64],
    actions: npt.NDArray[np.int64],
) -> None:
    for game in range(len(packed)):
        actions[game] = kernel.random_action(packed[game], rules, keys[game])


class RandomAgent(CompiledAgent):
    """Plays uniformly over the legal actions."""

    name = "random"
    _write_actions = staticmethod(_write_actions)

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        policy = position.action_mask().astype(np.float64)
        policy /= policy.sum()
        return policy
