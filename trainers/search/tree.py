"""The trees of many games in flat arrays, and the kernels that walk them.

One tree per game, all of one size, allocated once. A node is a position; its edges are the legal
actions of that position only. One simulation of every game is

    select     walk down from each root to a leaf, make the leaf's node
    (evaluate) the caller asks its evaluator about all leaves at once
    expand     give the leaf its edges and priors
    back_up    carry the value to the root

Every value is from the side to move of its node. Crossing an edge keeps its sign where the same
player moves on (taking spheres back) and turns it where the turn passes.

A node is *proven* when the end of the game is in sight: won if some action leads to a position lost
for the other side, lost if all actions lead to won ones. A position that repeats one on the path to
it counts as a draw, and so does one at the ply limit: neither proves anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit
from pylos_env.kernel import MAX_LEGAL, is_over, play, side_of, write_legal

ROOT: Final = 0
NO_NODE: Final = -1
EDGES_PER_NODE: Final = 16
"""Room for edges; random play has 7 per position. A tree without room left grows no deeper."""

# what is known of a node, or stands behind an edge, for its side to move
UNPROVEN: Final = 0
PROVEN_WIN: Final = 1
PROVEN_LOSS: Final = -1

# what `select` found
LEAF_TO_EVALUATE: Final = 0
LEAF_KNOWN: Final = 1
NO_LEAF: Final = 2  # the game's search is over

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Trees(NamedTuple):
    """Edges of a node lie side by side from `first_edge` on, in the order of their actions."""

    packed: npt.NDArray[np.int64]  # [games, nodes]
    parent_edge: npt.NDArray[np.int32]  # [games, nodes]: the edge that led here
    parent: npt.NDArray[np.int32]  # [games, nodes]
    first_edge: npt.NDArray[np.int32]  # [games, nodes]
    num_edges: npt.NDArray[np.int32]  # [games, nodes]; 0 before expansion
    visits: npt.NDArray[np.int32]  # [games, nodes]
    value: npt.NDArray[np.float32]  # [games, nodes]: the evaluator's
    proven: npt.NDArray[np.int8]  # [games, nodes]
    num_nodes: npt.NDArray[np.int32]  # [games]
    used_edges: npt.NDArray[np.int32]  # [games]
    action: npt.NDArray[np.int16]  # [games, edges]
    logit: npt.NDArray[np.float32]  # [games, edges]
    prior: npt.NDArray[np.float32]  # [games, edges]
    child: npt.NDArray[np.int32]  # [games, edges]; NO_NODE before the first visit
    edge_visits: npt.NDArray[np.int32]  # [games, edges]
    edge_value: npt.NDArray[np.float32]  # [games, edges]: sum over visits, for the parent's side
    edge_proven: npt.NDArray[np.int8]  # [games, edges], for the parent's side


class Leaves(NamedTuple):
    """Where each game's simulation ended."""

    node: npt.NDArray[np.int32]  # [games]
    kind: npt.NDArray[np.int8]  # [games]
    value: npt.NDArray[np.float32]  # [games]: of a known leaf


def allocate(num_games: int, num_nodes: int) -> Trees:
    num_edges = num_nodes * EDGES_PER_NODE + MAX_LEGAL
    nodes, edges = (num_games, num_nodes), (num_games, num_edges)
    return Trees(
        packed=np.empty(nodes, dtype=np.int64),
        parent_edge=np.empty(nodes, dtype=np.int32),
        parent=np.empty(nodes, dtype=np.int32),
        first_edge=np.empty(nodes, dtype=np.int32),
        num_edges=np.empty(nodes, dtype=np.int32),
        visits=np.empty(nodes, dtype=np.int32),
        value=np.empty(nodes, dtype=np.float32),
        proven=np.empty(nodes, dtype=np.int8),
        num_nodes=np.zeros(num_games, dtype=np.int32),
        used_edges=np.zeros(num_games, dtype=np.int32),
        action=np.empty(edges, dtype=np.int16),
        logit=np.empty(edges, dtype=np.float32),
        prior=np.empty(edges, dtype=np.float32),
        child=np.empty(edges, dtype=np.int32),
        edge_visits=np.empty(edges, dtype=np.int32),
        edge_value=np.empty(edges, dtype=np.float32),
        edge_proven=np.empty(edges, dtype=np.int8),
    )


def allocate_leaves(num_games: int) -> Leaves:
    return Leaves(
        np.empty(num_games, dtype=np.int32),
        np.empty(num_games, dtype=np.int8),
        np.empty(num_games, dtype=np.float32),
    )


@jit
def add_node(trees: Trees, game: int, packed: int, parent: int, edge: int) -> int:
    node = trees.num_nodes[game]
    trees.num_nodes[game] = node + 1
    trees.packed[game, node] = packed
    trees.parent[game, node] = parent
    trees.parent_edge[game, node] = edge
    trees.num_edges[game, node] = 0
    trees.visits[game, node] = 0
    trees.value[game, node] = 0
    trees.proven[game, node] = UNPROVEN
    return int(node)


@jit
def plant(trees: Trees, packed: Ints) -> None:
    """Begin every game's tree anew at its position."""
    for game in range(len(packed)):
        trees.num_nodes[game] = 0
        trees.used_edges[game] = 0
        add_node(trees, game, packed[game], NO_NODE, NO_NODE)


@jit
def expand(
    trees: Trees,
    game: int,
    node: int,
    rules: int,
    logits: Floats,
    temperature: float,
    legal: Ints,
) -> bool:
    """Give a node its edges; `logits` [303]; `legal` is room for the legal actions.

    Priors are the logits' softmax at a temperature. Returns whether all logits are finite.
    """
    count = write_legal(trees.packed[game, node], rules, legal)
    first = trees.used_edges[game]
    if first + count > trees.action.shape[1]:
        return True
    trees.used_edges[game] = first + count
    trees.first_edge[game, node] = first
    trees.num_edges[game, node] = count
    largest = np.float32(-np.inf)
    for number in range(count):
        largest = max(largest, logits[legal[number]])
    total = np.float32(0)
    sharpness = np.float32(1 / temperature)
    for number in range(count):
        edge = first + number
        trees.action[game, edge] = legal[number]
        trees.logit[game, edge] = logits[legal[number]] - largest
        trees.prior[game, edge] = np.exp(sharpness * trees.logit[game, edge])
        trees.child[game, edge] = NO_NODE
        trees.edge_visits[game, edge] = 0
        trees.edge_value[game, edge] = 0
        trees.edge_proven[game, edge] = UNPROVEN
        total += trees.prior[game, edge]
    for edge in range(first, first + count):
        trees.prior[game, edge] /= total
    return bool(np.isfinite(total))


@jit
def best_edge(trees: Trees, game: int, node: int, c_puct: float, fpu_reduction: float) -> int:
    """The edge that PUCT follows from an expanded node.

    Unvisited actions are worth what the node is worth so far, less `fpu_reduction` times the root
    of the prior visited. Actions proven to lose come last.
    """
    first = trees.first_edge[game, node]
    last = first + trees.num_edges[game, node]
    seen = np.float32(0)
    total = np.float32(0)
    visits = 0
    for edge in range(first, last):
        if trees.edge_visits[game, edge] > 0:
            seen += trees.prior[game, edge]
            total += trees.edge_value[game, edge]
            visits += trees.edge_visits[game, edge]
    mean = (trees.value[game, node] + total) / (1 + visits)
    unvisited = mean - np.float32(fpu_reduction) * np.sqrt(seen)
    scale = np.float32(c_puct) * np.sqrt(np.float32(visits + 1))
    best, best_score = first, np.float32(-np.inf)
    for edge in range(first, last):
        count = trees.edge_visits[game, edge]
        worth = trees.edge_value[game, edge] / count if count > 0 else unvisited
        score = worth + scale * trees.prior[game, edge] / np.float32(1 + count)
        if trees.edge_proven[game, edge] == PROVEN_LOSS:
            score -= np.float32(1000)
        if score > best_score:
            best, best_score = edge, score
    return int(best)


@jit
def _repeats(trees: Trees, game: int, node: int, packed: int) -> bool:
    """Whether a position stands on the path from the root to `node`."""
    while node != NO_NODE:
        if trees.packed[game, node] == packed:
            return True
        node = trees.parent[game, node]
    return False


@jit
def descend(
    trees: Trees,
    game: int,
    rules: int,
    root_edge: int,
    plies_left: int,
    c_puct: float,
    fpu_reduction: float,
    leaves: Leaves,
) -> None:
    """One simulation of one game: from the root by `root_edge` down to a leaf."""
    node, edge, depth = ROOT, root_edge, 1
    while True:
        child = trees.child[game, edge]
        if child == NO_NODE:
            packed = play(trees.packed[game, node], rules, trees.action[game, edge])
            full = trees.num_nodes[game] >= trees.packed.shape[1]
            if full:
                break
            child = add_node(trees, game, packed, node, edge)
            trees.child[game, edge] = child
            leaves.node[game] = child
            leaves.kind[game] = LEAF_KNOWN
            if is_over(packed, rules):  # the side to move has lost
                leaves.value[game] = -1
                trees.proven[game, child] = PROVEN_LOSS
            elif depth >= plies_left or _repeats(trees, game, node, packed):
                leaves.value[game] = 0
            else:
                leaves.kind[game] = LEAF_TO_EVALUATE
            return
        node = child
        if trees.proven[game, node] != UNPROVEN or trees.num_edges[game, node] == 0:
            break
        edge = best_edge(trees, game, node, c_puct, fpu_reduction)
        depth += 1
    # a node known already: proven, a draw, or one that found no room for its edges
    leaves.node[game] = node
    leaves.kind[game] = LEAF_KNOWN
    if trees.proven[game, node] != UNPROVEN:
        leaves.value[game] = trees.proven[game, node]
    else:
        leaves.value[game] = trees.value[game, node]


@jit
def _prove(trees: Trees, game: int, node: int) -> int:
    """What the edges of a node prove of it."""
    first = trees.first_edge[game, node]
    all_lost = True
    for edge in range(first, first + trees.num_edges[game, node]):
        if trees.edge_proven[game, edge] == PROVEN_WIN:
            return PROVEN_WIN
        all_lost = all_lost and trees.edge_proven[game, edge] == PROVEN_LOSS
    return PROVEN_LOSS if all_lost else UNPROVEN


@jit
def back_up(trees: Trees, game: int, node: int, value: float) -> None:
    """Carry a leaf's value, and what is proven by it, up to the root."""
    while True:
        trees.visits[game, node] += 1
        parent = trees.parent[game, node]
        if parent == NO_NODE:
            return
        edge = trees.parent_edge[game, node]
        same = side_of(trees.packed[game, node]) == side_of(trees.packed[game, parent])
        proven = trees.proven[game, node]
        value = value if same else -value
        trees.edge_visits[game, edge] += 1
        trees.edge_value[game, edge] += np.float32(value)
        if proven != UNPROVEN and trees.edge_proven[game, edge] == UNPROVEN:
            trees.edge_proven[game, edge] = proven if same else -proven
            if trees.proven[game, parent] == UNPROVEN:
                found = _prove(trees, game, parent)
                trees.proven[game, parent] = found
                if found != UNPROVEN:
                    value = float(found)
        node = parent
