"""GameSearch: the search of one game at its board, by PUCT without noise.

Two things that many games at once do not need. **Leaves in batches**: one game's simulations follow
one another, so several are begun before the evaluator is asked, and while it is, each counts as
lost on the edges of its path (*virtual loss*), which sends the next one elsewhere. **A tree that is
kept**: after both sides have moved, the new position is mostly in the tree already, and what was
found out about it stays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit
from pylos_env.kernel import MAX_LEGAL
from pylos_env.options import check_count
from pylos_env.rules import Rules
from trainers.search import tree
from trainers.search.batched import (
    UNLIMITED,
    Evaluate,
    SearchConfig,
    SearchResult,
    ask,
    check_finite,
    check_ongoing,
    result_of,
)
from trainers.search.tree import (
    LEAF_TO_EVALUATE,
    NO_NODE,
    ROOT,
    UNPROVEN,
    Floats,
    Leaves,
    Trees,
)

GAME = 0
"""The only row of the trees."""
MOST_LEAVES = 8
KEPT_SEARCHES = 8
"""Room for so many searches' nodes in one tree."""


class GameSearch:
    """One tree that lives as long as the game goes on."""

    def __init__(self, rules: Rules, config: SearchConfig, leaves: int | None = None) -> None:
        """`leaves` is how many positions the evaluator is asked about at once.

        Unless it is given, a sixteenth of the simulations, and no more than `MOST_LEAVES`: what is
        begun before anything is known of it is chosen less well.
        """
        config.check()
        if leaves is None:
            leaves = min(MOST_LEAVES, max(1, config.simulations // 16))
        self.rules = rules
        self.config = config
        nodes = KEPT_SEARCHES * config.simulations + 1
        self._trees, self._spare = tree.allocate(1, nodes), tree.allocate(1, nodes)
        self._leaf = tree.allocate_leaves(1)
        self._waiting = np.empty(check_count("leaves", leaves), dtype=np.int32)

    @property
    def kept_visits(self) -> int:
        """Simulations of the tree so far."""
        return int(self._trees.visits[GAME, ROOT]) if self._trees.num_nodes[GAME] else 0

    def holds(self, packed: int) -> bool:
        """Whether the tree has found out something about a position."""
        return _find(self._trees, packed) != NO_NODE

    def run(self, packed: int, evaluate: Evaluate, plies_left: int = UNLIMITED) -> SearchResult:
        """`config.simulations` more for this position; the result has one row."""
        roots = np.array([packed], dtype=np.int64)
        check_ongoing(roots, self.rules)
        self._go_to(packed)
        if self._trees.num_edges[GAME, ROOT] == 0:
            tree.plant(self._trees, roots)
            logits, values = ask(evaluate, roots)
            temperature = self.config.prior_temperature
            check_finite(
                _expand(self._trees, self.rules.code, ROOT, logits[0], values[0], temperature)
            )
        done = 0
        while done < self.config.simulations and self._trees.proven[GAME, ROOT] == UNPROVEN:
            done += self._round(evaluate, self.config.simulations - done, plies_left)
        return result_of(self._trees, np.zeros(1, dtype=np.int64), self.config, None)

    def _go_to(self, packed: int) -> None:
        """Keep what the tree holds below a position, or nothing."""
        node = _find(self._trees, packed)
        if node == NO_NODE:
            self._trees.num_edges[GAME, ROOT] = 0
        elif node != ROOT:
            _copy_below(self._trees, self._spare, node)
            self._trees, self._spare = self._spare, self._trees

    def _round(self, evaluate: Evaluate, most: int, plies_left: int) -> int:
        """Some simulations with one question to the evaluator; returns how many."""
        trees, waiting, config = self._trees, self._waiting, self.config
        done, count = _collect(
            trees,
            self._leaf,
            self.rules.code,
            plies_left,
            config.c_puct,
            config.fpu_reduction,
            min(most, len(waiting)),
            waiting,
        )
        if count:
            nodes = waiting[:count]
            logits, values = ask(evaluate, trees.packed[GAME, nodes])
            temperature = config.prior_temperature
            check_finite(_finish(trees, self.rules.code, nodes, logits, values, temperature))
        return done


@jit
def _expand(
    trees: Trees, rules: int, node: int, logits: Floats, value: float, temperature: float
) -> bool:
    trees.value[GAME, node] = value
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    finite = tree.expand(trees, GAME, node, rules, logits, temperature, legal)
    return finite and bool(np.isfinite(value))


@jit
def _add_virtual_loss(trees: Trees, node: int, losses: int) -> None:
    """Count a simulation as lost, for the side that chose it, on every edge of its path."""
    while trees.parent[GAME, node] != NO_NODE:
        edge = trees.parent_edge[GAME, node]
        trees.edge_visits[GAME, edge] += losses
        trees.edge_value[GAME, edge] -= np.float32(losses)
        node = trees.parent[GAME, node]


@jit
def _collect(
    trees: Trees,
    leaf: Leaves,
    rules: int,
    plies_left: int,
    c_puct: float,
    fpu_reduction: float,
    most: int,
    waiting: npt.NDArray[np.int32],
) -> tuple[int, int]:
    """Begin up to `most` simulations; returns how many, and how many wait for the evaluator.

    One that meets a node still waiting ends the round: it is begun again in the next.
    """
    done, count = 0, 0
    while done < most and trees.proven[GAME, ROOT] == UNPROVEN:
        edge = tree.best_edge(trees, GAME, ROOT, c_puct, fpu_reduction)
        tree.descend(trees, GAME, rules, edge, plies_left, c_puct, fpu_reduction, leaf)
        node = leaf.node[GAME]
        if leaf.kind[GAME] == LEAF_TO_EVALUATE:
            waiting[count] = node
            count += 1
            _add_virtual_loss(trees, node, 1)
        else:
            met = False
            for number in range(count):
                met = met or waiting[number] == node
            if met:
                break
            tree.back_up(trees, GAME, node, leaf.value[GAME])
        done += 1
    return done, count


@jit
def _finish(
    trees: Trees,
    rules: int,
    nodes: npt.NDArray[np.int32],
    logits: Floats,
    values: Floats,
    temperature: float,
) -> bool:
    """Give the waiting leaves their values and edges; returns whether all numbers are finite."""
    finite = True
    for node in nodes:
        _add_virtual_loss(trees, node, -1)
    for number in range(len(nodes)):
        answer, value = logits[number], values[number]
        finite &= _expand(trees, rules, nodes[number], answer, value, temperature)
        tree.back_up(trees, GAME, nodes[number], value)
    return finite


@jit
def _find(trees: Trees, packed: int) -> int:
    """The expanded node of a position with the most visits."""
    best, most = NO_NODE, 0
    for node in range(trees.num_nodes[GAME]):
        if (
            trees.packed[GAME, node] == packed
            and trees.num_edges[GAME, node] > 0
            and trees.visits[GAME, node] >= most
        ):
            best, most = node, trees.visits[GAME, node]
    return best


@jit
def _copy_below(trees: Trees, into: Trees, top: int) -> None:
    """Make `into` the part of the tree below a node, which becomes its root.

    Nodes are copied in the order in which they are met, so the arrays are queue and copy in one.
    """
    source = np.empty(trees.packed.shape[1], dtype=np.int32)  # [nodes of `into`]
    into.num_nodes[GAME] = 0
    into.used_edges[GAME] = 0
    tree.add_node(into, GAME, trees.packed[GAME, top], NO_NODE, NO_NODE)
    source[ROOT] = top
    node = ROOT
    while node < into.num_nodes[GAME]:
        old = source[node]
        into.visits[GAME, node] = trees.visits[GAME, old]
        into.value[GAME, node] = trees.value[GAME, old]
        into.proven[GAME, node] = trees.proven[GAME, old]
        count = trees.num_edges[GAME, old]
        into.num_edges[GAME, node] = count
        begin, first = trees.first_edge[GAME, old], into.used_edges[GAME]
        into.first_edge[GAME, node] = first
        into.used_edges[GAME] = first + count
        for number in range(count):
            theirs, mine = begin + number, first + number
            into.action[GAME, mine] = trees.action[GAME, theirs]
            into.logit[GAME, mine] = trees.logit[GAME, theirs]
            into.prior[GAME, mine] = trees.prior[GAME, theirs]
            into.edge_visits[GAME, mine] = trees.edge_visits[GAME, theirs]
            into.edge_value[GAME, mine] = trees.edge_value[GAME, theirs]
            into.edge_proven[GAME, mine] = trees.edge_proven[GAME, theirs]
            child = trees.child[GAME, theirs]
            if child == NO_NODE:
                into.child[GAME, mine] = NO_NODE
            else:
                copy = tree.add_node(into, GAME, trees.packed[GAME, child], node, mine)
                into.child[GAME, mine] = copy
                source[copy] = child
        node += 1
