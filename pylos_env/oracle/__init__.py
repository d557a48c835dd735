"""Perfect play: solve a rule set once, then ask for the truth about any position.

pylos-solve --rules mature                       # fills the table, see `solve`
oracle = Oracle.open(rules="mature")
oracle.value(position), oracle.distance(position), oracle.best_actions(position)
"""

from pylos_env.oracle.query import Oracle, Verdict
from pylos_env.oracle.table import OracleError

__all__ = ["Oracle", "OracleError", "Verdict"]
