"""What searches find out below their roots, and what is learnt from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pylos_env import Position, kernel
from tests.test_games import knows_nothing
from tests.test_search import RULES, Node, PlainSearch, labelled, opinionated
from trainers.alphazero.config import SelfPlayConfig, TargetsConfig
from trainers.alphazero.selfplay import GameGroup
from trainers.alphazero.targets import SHARE, samples_of, sharpened
from trainers.search import Inner, Search, SearchConfig, joined, parted


def nodes_below(node: Node) -> Iterator[Node]:
    for child in node.children.values():
        if child.visits:
            yield child
            yield from nodes_below(child)


def plain_policy(node: Node, config: SearchConfig) -> tuple[list[float], float]:
    """Gumbel's improved policy of a node, and what it is worth under it, by lists."""
    legal = list(node.children)
    children = list(node.children.values())
    logits = opinionated(np.array([node.position.packed]))[0][0, legal].astype(float)
    signs = [1 if c.position.side == node.position.side else -1 for c in children]
    worths = [
        (float(s * c.proven) if c.proven else c.total / c.visits) if c.visits else None
        for c, s in zip(children, signs, strict=True)
    ]
    seen = [(c.prior, w) for c, w in zip(children, worths, strict=True) if w is not None]
    visits = sum(child.visits for child in children)
    mixed = node.value
    if visits:
        mean = sum(p * w for p, w in seen) / sum(p for p, _ in seen)
        mixed = (node.value + visits * mean) / (1 + visits)
    scale = (config.c_visit + max(child.visits for child in children)) * config.c_scale
    policy = []
    logits -= logits.max()
    for logit, worth, child, sign in zip(logits, worths, children, signs, strict=True):
        proven = sign * child.proven if child.visits else 0
        refuted = proven != 1 if node.proven == 1 else node.proven == 0 and proven == -1
        completed = mixed if worth is None else worth
        policy.append(0.0 if refuted else math.exp(logit + scale * (completed + 1) / 2 - scale))
    policy = [share / sum(policy) for share in policy]
    if node.proven:
        return policy, float(node.proven)
    known = [(p, w) for p, w in zip(policy, worths, strict=True) if w is not None]
    total = sum(p for p, _ in known)
    return policy, sum(p * w for p, w in known) / total if total else node.value


def test_they_are_what_a_plain_search_knows_there() -> None:
    """Positions visited often enough or proved, with values and policies of a plain recursion."""
    config = SearchConfig(simulations=60, root="puct", dirichlet_fraction=0)
    labels, rows = labelled()
    rows = np.concatenate([rows[:6], np.flatnonzero(labels.spheres >= 26)[:6]])
    packed = labels.packed[rows]
    search = Search(RULES, config, len(packed))
    search.run(packed, np.zeros(len(packed), np.int64), opinionated)
    proofs = 0
    for position, found in zip(packed.tolist(), search.inner(len(packed), 5), strict=True):
        plain = PlainSearch(Position(position, RULES), config)
        for _ in range(60):
            if not plain.root.proven:
                plain.simulate(plain.root, [plain.root.position])
        nodes = [n for n in nodes_below(plain.root) if n.expanded and (n.visits >= 5 or n.proven)]
        nodes.sort(key=lambda node: node.position.packed)
        proofs += sum(node.proven != 0 for node in nodes)
        assert found.packed.tolist() != [position]
        assert sorted(found.packed.tolist()) == [node.position.packed for node in nodes]
        for row, node in zip(np.argsort(found.packed, kind="stable"), nodes, strict=True):
            begin = found.num_legal[:row].sum()
            policy, value = plain_policy(node, config)
            shares = found.policy[begin : begin + found.num_legal[row]]
            assert found.proven[row] == node.proven
            assert found.value[row] == pytest.approx(value, abs=1e-4)
            assert found.guess[row] == pytest.approx(node.value)
            assert shares.tolist() == pytest.approx(policy, abs=1e-3)
    assert proofs > 5


def test_more_visits_leave_fewer() -> None:
    packed = np.full(4, kernel.START)
    search = Search(RULES, SearchConfig(simulations=64), 4)
    search.run(packed, np.arange(4), opinionated)
    sizes = [sum(len(part.packed) for part in search.inner(4, visits)) for visits in (1, 4, 16, 64)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 64 * 4
    assert sizes[-1] == 0  # the root is a decision, and not among them


def test_records_can_be_joined_and_parted() -> None:
    packed = labelled()[0].packed[:5]
    search = Search(RULES, SearchConfig(simulations=32), 5)
    search.run(packed, np.arange(5), opinionated)
    parts = [*search.inner(5, 4), *search.inner(5, 1000)]
    sizes = np.array([len(part.packed) for part in parts])
    assert sizes[:5].sum() > 10
    assert not sizes[5:].all()
    again = parted(joined(parts), sizes)
    for one, other in zip(parts, again, strict=True):
        assert [column.tolist() for column in one] == [column.tolist() for column in other]
    assert len(joined([]).packed) == 0
    assert parted(joined([]), np.empty(0, np.int64)) == []


def made_up_group(inner_visits: int) -> GameGroup:
    config = SelfPlayConfig(games=8, full_share=0.5, quick_simulations=2, inner_visits=inner_visits)
    return GameGroup(RULES, SearchConfig(simulations=16), config, 7, 0, 1)


def test_a_group_of_games_records_them_with_its_decisions() -> None:
    """One record for each decision; none unless asked for; games are the same either way."""
    group, plain = made_up_group(3), made_up_group(0)
    for _ in range(6):
        group.step(knows_nothing)
        plain.step(knows_nothing)
    assert [game.actions for game in group.games] == [game.actions for game in plain.games]
    assert not any(game.inner for game in plain.games)
    assert any(len(record.packed) for game in group.games for record in game.inner)
    for game in group.games:
        assert len(game.inner) == len(game.decisions)
    again = made_up_group(3)
    again.set_state(group.state())
    for one, other in zip(group.games, again.games, strict=True):
        for record, same in zip(one.inner, other.inner, strict=True):
            assert isinstance(same, Inner)
            assert [c.dtype for c in record] == [c.dtype for c in same]
            assert [c.tolist() for c in record] == [c.tolist() for c in same]


def test_they_are_samples_behind_those_of_the_roots() -> None:
    """Worth what the search says, sharpened, or what it has proved."""
    group = made_up_group(3)
    games = []
    while len(games) < 12:
        games += group.step(knows_nothing)
    config = TargetsConfig(sharpen=1.0, sharpen_from=0.2)
    samples = samples_of(games, config)
    roots = samples_of([replace(game, inner=[]) for game in games], config)
    records = joined([record for game in games for record in game.inner])
    size = roots.size
    assert samples.size == size + len(records.packed)
    for all_of_them, first in zip(samples[:4], roots[:4], strict=True):
        assert all_of_them[:size].tolist() == first.tolist()
    assert samples.packed[size:].tolist() == records.packed.tolist()
    assert (samples.weight[size:] == 1).all()
    proven = records.proven != 0
    assert proven.any()
    assert samples.value[size:][proven].tolist() == records.proven[proven].tolist()
    own = sharpened(records.value, 1.0, 0.2)
    assert samples.value[size:][~proven] == pytest.approx(own[~proven])
    assert np.diff(samples.begin)[size:].tolist() == records.num_legal.tolist()
    shares = samples.policy[samples.begin[size] :] / SHARE
    assert shares == pytest.approx(records.policy, abs=1e-4)
    guesses = [decision.guess for game in games for decision in game.decisions]
    guesses += records.guess.tolist()
    assert samples.error == pytest.approx(np.abs(samples.value - guesses), abs=1e-3)
    distrusted = samples_of(games, TargetsConfig(sharpen=0.0, trust_proofs=False))
    assert distrusted.value[size:] == pytest.approx(records.value)
