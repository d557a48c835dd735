"""The search of one game at its board: virtual losses leave no trace, and the tree is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pylos_env import Position, PylosError, Rules
from pylos_env.kernel import side_of
from pylos_env.oracle.labels import load_labels
from tests.test_search import opinionated
from trainers.search import GameSearch, Search, SearchConfig
from trainers.search.tree import NO_NODE, ROOT, Trees

RULES = Rules.of("advanced")
CONFIG = SearchConfig(root="puct", simulations=120, dirichlet_fraction=0.0, temperature=0.0)


def some_positions(count: int) -> list[int]:
    labels = load_labels(RULES)
    step = len(labels.packed) // count
    return labels.packed[::step][:count].tolist()


def trees_of(search: GameSearch) -> Trees:
    return search._trees


def test_one_leaf_at_a_time_is_the_plain_search() -> None:
    """And that one equals a recursive one: see test_search.py."""
    many = Search(RULES, CONFIG, 1)
    for packed in some_positions(30):
        single = GameSearch(RULES, CONFIG, leaves=1).run(packed, opinionated)
        plain = many.run(np.array([packed]), np.zeros(1, dtype=np.int64), opinionated)
        assert single.visits.tolist() == plain.visits.tolist()
        assert single.action == plain.action
        np.testing.assert_allclose(single.value, plain.value, atol=1e-5)
        assert single.proven == plain.proven


def totals(trees: Trees, node: int) -> tuple[int, float]:
    """Visits of a node and the sum of their values, by recursion over the evaluator's values."""
    visits, total = 1, float(trees.value[0, node])
    first = trees.first_edge[0, node]
    for edge in range(first, first + trees.num_edges[0, node]):
        child = trees.child[0, edge]
        if child == NO_NODE:
            assert trees.edge_visits[0, edge] == 0
            assert trees.edge_value[0, edge] == 0
            continue
        below, worth = totals(trees, child)
        same = side_of(trees.packed[0, node]) == side_of(trees.packed[0, child])
        worth = worth if same else -worth
        assert trees.edge_visits[0, edge] == below
        np.testing.assert_allclose(trees.edge_value[0, edge], worth, atol=1e-3)
        visits, total = visits + below, total + worth
    return visits, total


@pytest.mark.parametrize("leaves", [2, 8, 16])
def test_virtual_losses_leave_no_trace(leaves: int) -> None:
    """With nothing proven, every edge holds the sum of the values below it and nothing else."""
    labels = load_labels(RULES)
    opening = labels.packed[(labels.spheres < 12) & (labels.spheres > 4)][:10]
    asked: list[int] = []

    def evaluate(packed: npt.NDArray[np.int64]) -> tuple[npt.NDArray, npt.NDArray]:
        asked.append(len(packed))
        return opinionated(packed)

    for packed in opening.tolist():
        search = GameSearch(RULES, CONFIG, leaves)
        result = search.run(packed, evaluate)
        assert result.visits.sum() == CONFIG.simulations
        assert not trees_of(search).proven[0, : trees_of(search).num_nodes[0]].any()
        assert totals(trees_of(search), ROOT)[0] == CONFIG.simulations + 1
    assert max(asked) == leaves
    assert len(asked) < 0.75 * 10 * CONFIG.simulations  # asked less often than once a simulation


def below(trees: Trees, node: int) -> dict[tuple[int, ...], tuple[float, ...]]:
    """What a tree knows below a node, by the actions that lead there."""
    known: dict[tuple[int, ...], tuple[float, ...]] = {}
    stack: list[tuple[int, tuple[int, ...]]] = [(node, ())]
    while stack:
        node, path = stack.pop()
        first = trees.first_edge[0, node]
        for edge in range(first, first + trees.num_edges[0, node]):
            here = (*path, int(trees.action[0, edge]))
            known[here] = (
                int(trees.edge_visits[0, edge]),
                float(trees.edge_value[0, edge]),
                float(trees.prior[0, edge]),
                int(trees.edge_proven[0, edge]),
            )
            if trees.child[0, edge] != NO_NODE:
                stack.append((int(trees.child[0, edge]), here))
    return known


def test_the_tree_below_the_new_position_is_kept() -> None:
    kept = 0
    for packed in some_positions(30):
        search = GameSearch(RULES, CONFIG, leaves=4)
        action = int(search.run(packed, opinionated).action[0])
        trees = trees_of(search)
        child = trees.child[0, trees.first_edge[0, ROOT] :][: trees.num_edges[0, ROOT]]
        taken = trees.action[0, trees.first_edge[0, ROOT] :][: trees.num_edges[0, ROOT]]
        node = int(child[taken == action][0])
        after = Position.unchecked(packed, RULES).play(action)
        if not after.legal_actions() or trees.num_edges[0, node] == 0:
            continue
        expected = below(trees, node)
        search._go_to(after.packed)
        assert below(trees_of(search), ROOT) == expected
        assert search.kept_visits > 0
        result = search.run(after.packed, opinionated)
        if not result.proven[0]:
            assert result.visits.sum() >= CONFIG.simulations
        kept += 1
    assert kept > 15


def test_a_position_outside_the_tree_begins_anew() -> None:
    search = GameSearch(RULES, CONFIG)
    first, second = some_positions(2)
    search.run(first, opinionated)
    again = search.run(second, opinionated)
    fresh = GameSearch(RULES, CONFIG).run(second, opinionated)
    assert again.visits.tolist() == fresh.visits.tolist()


def test_a_whole_game_fits_the_tree() -> None:
    """Trees have room for some searches; a kept tree that is full still answers."""
    config = SearchConfig(root="puct", simulations=30, dirichlet_fraction=0.0, temperature=0.0)
    search = GameSearch(RULES, config)
    position = Position.start(RULES)
    for _ in range(200):
        action = int(search.run(position.packed, opinionated).action[0])
        position = position.play(action)
        if not position.legal_actions():
            break
    with pytest.raises(PylosError, match="the game is over"):
        search.run(position.packed, opinionated)
