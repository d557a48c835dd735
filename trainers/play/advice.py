"""What to play and how things stand: hints, judgements of agents, and the exact truth.

Values are from the side to move, from -1 (lost) to 1 (won).
"""

from __future__ import annotations

from typing import Final

from pylos_env import agents
from pylos_env.agents import Agent, AlphaBetaAgent
from pylos_env.errors import PylosError
from pylos_env.geometry import STOP
from pylos_env.oracle import Oracle
from pylos_env.oracle.table import table_path
from pylos_env.position import SIDE_NAMES, Outcome, Position
from pylos_env.rules import Rules

STRONGEST: Final = "checkpoint:Expert"
HINT_DEPTH: Final = 6


class Adviser:
    """Perfect play where its table exists, else the strongest player that there is."""

    def __init__(self) -> None:
        self._players: dict[Rules, Agent] = {}
        self._oracles: dict[Rules, Oracle] = {}

    def player(self, rules: Rules) -> Agent:
        """The ladder's strongest level, or a search where it cannot play these rules."""
        if rules not in self._players:
            try:
                level = agents.make(STRONGEST)
                level.check_rules(rules)
                self._players[rules] = level.at_board()
            except PylosError:  # no ladder or a damaged one, no torch, other rules
                self._players[rules] = AlphaBetaAgent(HINT_DEPTH)
        return self._players[rules]

    def oracle(self, rules: Rules) -> Oracle | None:
        """The solved table of the rules; None where there is none, an error where it is damaged."""
        if rules not in self._oracles:
            if not table_path(rules).exists():
                return None
            self._oracles[rules] = Oracle.open(rules)
        return self._oracles[rules]

    def hint(self, position: Position, key: int) -> str:
        """The rest of the turn as the adviser would play it, and who the adviser is."""
        actions, after = list[int](), position
        while after.side == position.side and after.outcome is Outcome.ONGOING:
            actions.append(self._action(after, key))
            after = after.play(actions[-1])
        text = position.actions_text(actions)
        if not position.take_backs_left and actions[1:] == [STOP]:
            text += ", then stop"  # a formation whose owner had better take nothing back
        if self.oracle(position.rules) is None:
            return f"{text} ({self.player(position.rules).name}; {_no_table(position.rules)})"
        return f"{text} (perfect; {self.exact(position)})"

    def _action(self, position: Position, key: int) -> int:
        oracle = self.oracle(position.rules)
        if oracle is None:
            return self.player(position.rules).act(position, key)
        best = oracle.best_actions(position)
        return best[key % len(best)]

    def exact(self, position: Position) -> str:
        """Who wins under best play by both, and when."""
        oracle = self.oracle(position.rules)
        if oracle is None:
            return _no_table(position.rules)
        value, distance = oracle.value(position), oracle.distance(position)
        if not value:
            return "a draw by endless play"
        return f"{_winner(position, value)} wins in {distance} turn{'s' if distance != 1 else ''}"

    def judgements(self, judges: dict[str, Agent], position: Position) -> str:
        """A line for each judge, by name, and the exact truth.

        The adviser's player speaks up where no judge has an evaluation.
        """
        values = {name: judge.value(position) for name, judge in judges.items()}
        if all(value is None for value in values.values()):
            player = self.player(position.rules)
            values[player.name] = player.value(position)
        lines = [judgement(name, value, position) for name, value in values.items()]
        return "\n".join([*lines, f"exact: {self.exact(position)}"])


def judgement(name: str, value: float | None, position: Position) -> str:
    """An agent's evaluation in words."""
    if value is None:
        return f"{name}: gives no evaluation"
    return f"{name}: {value:+.2f} for {SIDE_NAMES[position.side]} (1 is won, -1 is lost)"


def _winner(position: Position, value: int) -> str:
    return SIDE_NAMES[position.side if value > 0 else 1 - position.side]


def _no_table(rules: Rules) -> str:
    return f"no solved table for '{rules}': pylos-solve makes one"
