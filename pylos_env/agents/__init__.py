"""Decision makers, built by name: `agents.make("alphabeta:4", seed=1).act(position)`.

| name | plays |
|---|---|
| `random` | any legal action |
| `rule_based` | a page of plain rules, one move ahead |
| `alphabeta:<depth>` | the best it finds that many whole turns ahead |
| `perfect` | from a solved table: see `pylos_env.oracle` |
"""

from __future__ import annotations

from pylos_env.agents.alphabeta import AlphaBetaAgent
from pylos_env.agents.base import Agent, AgentLike, FunctionAgent
from pylos_env.agents.perfect import PerfectAgent
from pylos_env.agents.random import RandomAgent
from pylos_env.agents.rule_based import RuleBasedAgent
from pylos_env.errors import PylosError

__all__ = [
    "Agent",
    "AgentLike",
    "AlphaBetaAgent",
    "FunctionAgent",
    "PerfectAgent",
    "RandomAgent",
    "RuleBasedAgent",
    "make",
    "names",
]


def names() -> list[str]:
    """The names that `make` knows."""
    return ["random", "rule_based", "alphabeta:<depth>", "perfect"]


def make(agent: AgentLike, seed: int | None = None) -> Agent:
    """The agent of a name; a function `position -> action` is wrapped; an Agent stays itself."""
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, type):
        raise TypeError(f"an agent is a name, an Agent or a function, got the class {agent!r}")
    if callable(agent):
        return FunctionAgent(agent, seed)
    if not isinstance(agent, str):
        raise TypeError(f"an agent is a name, an Agent or a function, got {agent!r}")
    name, _, argument = agent.partition(":")
    if agent == "random":
        return RandomAgent(seed)
    if agent == "rule_based":
        return RuleBasedAgent(seed)
    if agent == "perfect":
        return PerfectAgent(seed)
    if name == "alphabeta":
        if not argument.isdecimal():
            raise PylosError(f"{agent!r}: expected a depth in turns, such as 'alphabeta:4'")
        return AlphaBetaAgent(int(argument), seed)
    raise PylosError(f"unknown agent {agent!r}: expected one of {', '.join(names())}")
