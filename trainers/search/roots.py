"""How a search begins at its root: Gumbel with sequential halving, or PUCT with Dirichlet noise.

**Gumbel** (Danihelka et al., Policy improvement by planning with Gumbel, 2022). Every legal action
gets one Gumbel variable; the `max_considered` actions with the largest sum of it and their logit
share the simulations, and after each phase the worse half leaves. Scores and the learning target
use *completed* values: an action that was not visited counts as the mean that the visited ones
suggest. Below the root the search follows PUCT.

**PUCT** (Silver et al., AlphaZero, 2018). Dirichlet noise is mixed into the root's priors; the
target is the share of visits, and the action is drawn from it at a temperature.

All chance comes from a key per game: the n-th variable of a game is the same in any batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pylos_env._jit import jit
from pylos_env.kernel import draw
from trainers.search.tree import (
    PROVEN_LOSS,
    PROVEN_WIN,
    ROOT,
    UNPROVEN,
    Floats,
    Trees,
)

# streams of chance within one key
GUMBEL_STREAM: Final = 1
DIRICHLET_STREAM: Final = 2
ACTION_STREAM: Final = 3
NO_EDGE: Final = -1


def halving_schedule(num_considered: int, simulations: int) -> list[int]:
    """For each simulation, how often the edge it follows has been visited before.

    Phases of about equal length; in each one every action still in the race is visited equally
    often, and then the better half stays.
    """
    if num_considered <= 1:
        return list(range(simulations))
    phases = (num_considered - 1).bit_length()
    left = num_considered
    visits = 0
    schedule: list[int] = []
    while len(schedule) < simulations:
        rounds = max(1, simulations // (phases * left))
        for _ in range(rounds):
            schedule += [visits] * left
            visits += 1
        left = max(2, left // 2)
    return schedule[:simulations]


@jit
def uniform(key: int, stream: int, number: int) -> float:
    """The number-th variable of a stream, in (0, 1)."""
    return (draw(draw(key, stream), number) + 0.5) / 9223372036854775808.0


@jit
def write_gumbel(trees: Trees, game: int, key: int, scale: float, noise: Floats) -> None:
    """A Gumbel variable for each edge of the root into `noise` [edges of the root]."""
    for number in range(trees.num_edges[game, ROOT]):
        u = uniform(key, GUMBEL_STREAM, number)
        noise[number] = np.float32(-scale * np.log(-np.log(u))) if scale > 0 else np.float32(0)


@jit
def _gamma(shape: float, key: int, first: int) -> float:
    """A gamma variable (Marsaglia and Tsang 2000), from the variables of a stream from `first`."""
    boosted = shape + 1.0
    d = boosted - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    number = first + 1
    while True:
        u1 = uniform(key, DIRICHLET_STREAM, number)
        u2 = uniform(key, DIRICHLET_STREAM, number + 1)
        u3 = uniform(key, DIRICHLET_STREAM, number + 2)
        number += 3
        normal = np.sqrt(-2.0 * np.log(u1)) * np.cos(2.0 * np.pi * u2)
        v = (1.0 + c * normal) ** 3
        if v > 0 and np.log(u3) < 0.5 * normal * normal + d - d * v + d * np.log(v):
            boost = uniform(key, DIRICHLET_STREAM, first) ** (1.0 / shape)
            return float(d * v * boost)


@jit
def mix_dirichlet(trees: Trees, game: int, key: int, alpha: float, fraction: float) -> None:
    """Mix Dirichlet noise into the priors of the root."""
    count = trees.num_edges[game, ROOT]
    first = trees.first_edge[game, ROOT]
    noise = np.empty(count)
    for number in range(count):
        noise[number] = _gamma(alpha, key, number << 20)
    total = max(noise.sum(), 1e-300)
    for number in range(count):
        edge = first + number
        kept = (1 - fraction) * trees.prior[game, edge]
        trees.prior[game, edge] = np.float32(kept + fraction * noise[number] / total)


@jit
def root_value(trees: Trees, game: int) -> float:
    """What the search makes of the root: exact where proven, else the mean of its simulations."""
    if trees.proven[game, ROOT] != UNPROVEN:
        return float(trees.proven[game, ROOT])
    first = trees.first_edge[game, ROOT]
    total, visits = float(trees.value[game, ROOT]), 1
    for edge in range(first, first + trees.num_edges[game, ROOT]):
        total += trees.edge_value[game, edge]
        visits += trees.edge_visits[game, edge]
    return total / visits


@jit
def improved_value(trees: Trees, game: int, node: int, policy: Floats) -> float:
    """What a node is worth under its improved policy: exact where proven.

    The mean of a Gumbel root's simulations would not do: it spreads them over many actions, good
    and bad, only to find the best.
    """
    if trees.proven[game, node] != UNPROVEN:
        return float(trees.proven[game, node])
    first = trees.first_edge[game, node]
    total, seen = 0.0, 0.0
    for number in range(trees.num_edges[game, node]):
        if trees.edge_visits[game, first + number] > 0:
            total += policy[number] * edge_worth(trees, game, first + number, 0.0)
            seen += policy[number]
    return total / seen if seen > 0 else float(trees.value[game, node])


@jit
def edge_worth(trees: Trees, game: int, edge: int, unvisited: float) -> float:
    """An action's value for the root's side: exact where proven."""
    if trees.edge_proven[game, edge] != UNPROVEN:
        return float(trees.edge_proven[game, edge])
    visits = trees.edge_visits[game, edge]
    return trees.edge_value[game, edge] / visits if visits > 0 else unvisited


@jit
def write_improved(
    trees: Trees, game: int, node: int, c_visit: float, c_scale: float, scores: Floats
) -> None:
    """The logit of each edge of a node plus its scaled completed value, into `scores`."""
    first = trees.first_edge[game, node]
    count = trees.num_edges[game, node]
    seen, seen_worth, visits, most = 0.0, 0.0, 0, 0
    for edge in range(first, first + count):
        times = trees.edge_visits[game, edge]
        if times > 0:
            seen += trees.prior[game, edge]
            seen_worth += trees.prior[game, edge] * edge_worth(trees, game, edge, 0.0)
            visits += times
            most = max(most, times)
    mixed = float(trees.value[game, node])
    if visits > 0:
        mixed = (mixed + visits * seen_worth / max(seen, 1e-12)) / (1 + visits)
    scale = (c_visit + most) * c_scale
    for number in range(count):
        worth = edge_worth(trees, game, first + number, mixed)
        scores[number] = np.float32(trees.logit[game, first + number] + scale * (worth + 1) / 2)


@jit
def gumbel_edge(
    trees: Trees,
    game: int,
    noise: Floats,
    visits: int,
    c_visit: float,
    c_scale: float,
    scores: Floats,
) -> int:
    """Among the root's edges with so many visits, the one with the best score.

    Where none has so many (others were proven and left the race), the visits do not count; edges
    proven to lose come last.
    """
    first = trees.first_edge[game, ROOT]
    last = first + trees.num_edges[game, ROOT]
    most = 0
    for edge in range(first, last):
        most = max(most, trees.edge_visits[game, edge])
    scale = (c_visit + most) * c_scale
    best, best_score = NO_EDGE, np.float32(0)
    for edge in range(first, last):
        proven = trees.edge_proven[game, edge]
        if trees.edge_visits[game, edge] != visits or proven == PROVEN_LOSS:
            continue
        # unvisited ones are all worth the same, whatever that is
        worth = edge_worth(trees, game, edge, 0.0)
        score = np.float32(trees.logit[game, edge] + scale * (worth + 1) / 2) + noise[edge - first]
        if best == NO_EDGE or score > best_score:
            best, best_score = edge, score
    if best != NO_EDGE:
        return int(best)
    return _best_of_all(trees, game, noise, c_visit, c_scale, scores)


@jit
def _best_of_all(
    trees: Trees, game: int, noise: Floats, c_visit: float, c_scale: float, scores: Floats
) -> int:
    """The root's edge with the best score; edges proven to lose come last."""
    write_improved(trees, game, ROOT, c_visit, c_scale, scores)
    first = trees.first_edge[game, ROOT]
    best, best_loses, best_score = NO_EDGE, False, np.float32(0)
    for number in range(trees.num_edges[game, ROOT]):
        loses = trees.edge_proven[game, first + number] == PROVEN_LOSS
        score = scores[number] + noise[number]
        better = score > best_score if loses == best_loses else best_loses
        if best == NO_EDGE or better:
            best, best_loses, best_score = first + number, loses, score
    return int(best)


@jit
def is_refuted(trees: Trees, game: int, node: int, edge: int) -> bool:
    """Whether an edge of a node must not be played: a proven win stands beside it, or it loses.

    In a lost position no edge is worse than the others.
    """
    proven = trees.proven[game, node]
    if proven == PROVEN_WIN:
        return bool(trees.edge_proven[game, edge] != PROVEN_WIN)
    return bool(proven != PROVEN_LOSS and trees.edge_proven[game, edge] == PROVEN_LOSS)


@jit
def write_gumbel_policy(
    trees: Trees, game: int, node: int, c_visit: float, c_scale: float, policy: Floats
) -> None:
    """The learning target: the softmax of logits plus scaled completed values, into `policy`."""
    first = trees.first_edge[game, node]
    count = trees.num_edges[game, node]
    write_improved(trees, game, node, c_visit, c_scale, policy)
    largest = np.float32(-np.inf)
    for number in range(count):
        if not is_refuted(trees, game, node, first + number):
            largest = max(largest, policy[number])
    total = np.float32(0)
    for number in range(count):
        if is_refuted(trees, game, node, first + number):
            policy[number] = 0
        else:
            policy[number] = np.exp(policy[number] - largest)
        total += policy[number]
    policy[:count] /= total


@jit
def gumbel_choice(
    trees: Trees, game: int, noise: Floats, c_visit: float, c_scale: float, scores: Floats
) -> int:
    """The edge to play: of the most visited the best score; a proven win before all."""
    write_improved(trees, game, ROOT, c_visit, c_scale, scores)
    first = trees.first_edge[game, ROOT]
    best, best_visits, best_score = first, -1, np.float32(0)
    for number in range(trees.num_edges[game, ROOT]):
        edge = first + number
        if is_refuted(trees, game, ROOT, edge):
            continue
        visits = trees.edge_visits[game, edge]
        score = scores[number] + noise[number]
        if visits > best_visits or (visits == best_visits and score > best_score):
            best, best_visits, best_score = edge, visits, score
    return int(best)


@jit
def write_visit_policy(trees: Trees, game: int, policy: Floats) -> None:
    """The share of visits of each root edge, refuted ones aside, into `policy`."""
    first = trees.first_edge[game, ROOT]
    count = trees.num_edges[game, ROOT]
    total = np.float32(0)
    for number in range(count):
        refuted = is_refuted(trees, game, ROOT, first + number)
        policy[number] = 0 if refuted else trees.edge_visits[game, first + number]
        total += policy[number]
    if total == 0:
        for number in range(count):
            refuted = is_refuted(trees, game, ROOT, first + number)
            policy[number] = 0 if refuted else trees.prior[game, first + number]
            total += policy[number]
    policy[:count] /= total


@jit
def draw_edge(trees: Trees, game: int, key: int, policy: Floats, temperature: float) -> int:
    """An edge of the root drawn from `policy` sharpened by a temperature; 0: the largest."""
    first = trees.first_edge[game, ROOT]
    count = trees.num_edges[game, ROOT]
    if temperature <= 0:
        return int(first + policy[:count].argmax())
    weights = (policy[:count] / policy[:count].max()).astype(np.float64) ** (1 / temperature)
    share = uniform(key, ACTION_STREAM, 0) * weights.sum()
    for number in range(count):
        share -= weights[number]
        if share < 0:
            return int(first + number)
    return int(first + policy[:count].argmax())
