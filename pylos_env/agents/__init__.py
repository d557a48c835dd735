"""Decision makers, built by name: `agents.make("alphabeta:4", seed=1).act(position)`.

| name | plays |
|---|---|
| `random` | any legal action |
| `rule_based` | a page of plain rules, one move ahead |
| `alphabeta:<depth>` | the best it finds that many whole turns ahead |
| `perfect` | from a solved table: see `pylos_env.oracle` |
| `checkpoint:<path or level>` | a trained network: see `trainers.players` |

Other packages add names by an entry point of the group `pylos_env.agents`: the name is what stands
before the colon, the object a function `(rest of the name, seed) -> Agent`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

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

GROUP: Final = "pylos_env.agents"


def names() -> list[str]:
    """The names that `make` knows."""
    added = sorted(f"{point.name}:<...>" for point in entry_points(group=GROUP))
    return ["random", "rule_based", "alphabeta:<depth>", "perfect", *added]


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
    for point in entry_points(group=GROUP, name=name):
        return _load(point)(argument, seed)
    raise PylosError(f"unknown agent {agent!r}: expected one of {', '.join(names())}")


def _load(point: EntryPoint) -> Callable[[str, int | None], Agent]:
    try:
        return cast(Callable[[str, int | None], Agent], point.load())
    except ModuleNotFoundError as error:
        raise PylosError(
            f"agents '{point.name}:...' need the package {error.name!r}: "
            "pip install 'pylos-env[train]'"
        ) from error
