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

    def check_rules(self, rules: Rules) -> None:
        self._oracle(rules)

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        check_ongoing(position)
        best = self._oracle(position.rules).best_actions(position)
        policy = np.zeros(NUM_ACTIONS)
        policy[best] = 1 / len(best)
        return policy

    def value(self, position: Position) -> float:
        """The truth: 1 won, 0 drawn, -1 lost."""
        return float(self._oracle(position.rules).value(position))

    def value_batch(self, packed: npt.NDArray[np.int64], rules: Rules) -> npt.NDArray[np.float64]:
        return self._oracle(rules).values(packed).astype(np.float64)

    def _oracle(self, rules: Rules) -> Oracle:
        if rules not in self._oracles:
            self._oracles[rules] = Oracle.open(rules, self._folder)
        return self._oracles[rules]
