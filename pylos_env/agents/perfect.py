"""The perfect agent: plays from the solved table of the position's rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pylos_env.agents.base import Agent, check_ongoing
from pylos_env.kernel import NUM_ACTIONS
from pylos_env.oracle import Oracle
from pylos_env.position import Position
from pylos_env.rules import Rules


class PerfectAgent(Agent):
    """Wins as fast as it can, keeps draws, resists as long as it can; equal actions by chance."""

    name = "perfect"

    def __init__(self, seed: int | None = None, folder: str | Path | None = None) -> None:
        super().__init__(seed)
        self._folder = folder
        self._oracles: dict[Rules, Oracle] = {}

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        check_ongoing(position)
        rules = position.rules
        if rules not in self._oracles:
            self._oracles[rules] = Oracle.open(rules, self._folder)
        best = self._oracles[rules].best_actions(position)
        policy = np.zeros(NUM_ACTIONS)
        policy[best] = 1 / len(best)
        return policy
