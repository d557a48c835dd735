"""Perfect play: solve a rule set once, then ask for the truth about any position.

pylos-solve --rules mature                       # fills the table, see `solve`
oracle = Oracle.open(rules="mature")
oracle.value(position), oracle.distance(position), oracle.best_actions(position)

benchmark("alphabeta:4")                         # needs no table, see `measure`
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pylos_env.oracle.labels import Labels
from pylos_env.oracle.query import Oracle, Verdict
from pylos_env.oracle.table import OracleError

__all__ = ["Labels", "Oracle", "OracleError", "Verdict", "benchmark"]


def __getattr__(name: str) -> Any:
    if name == "benchmark":  # late, since it stands above the agents, and these above the oracle
        return import_module("pylos_env.oracle.measure").benchmark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
