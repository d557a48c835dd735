"""What searches find out below their roots, and what is learnt from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pylos_env import Position, kernel
from tests.alphazero_tools import tiny
from tests.test_games import knows_nothing
from tests.test_search import RULES, Node, PlainSearch, labelled, opinionated
from trainers.alphazero.config import SelfPlayConfig, TargetsConfig, check
from trainers.alphazero.selfplay import GameGroup
from trainers.alphazero.targets import SHARE, samples_of, sharpened
from trainers.search import Inner, Search, SearchConfig
from trainers.search.inner import join_inner, split_inner
from trainers.settings import ConfigError


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
    records = search.inner(np.arange(len(packed)), 5)
    for position, found in zip(packed.tolist(), records, strict=True):
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
    rows = np.arange(4)
    sizes = [
        sum(len(part.packed) for part in search.inner(rows, visits)) for visits in (1, 4, 16, 64)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 64 * 4
    assert sizes[-1] == 0  # the root is a decision, and not among them
    all_of_them = search.inner(rows, 4)
    some = search.inner(np.array([3, 1]), 4)
    assert [part.packed.tolist() for part in some] == [
        all_of_them[row].packed.tolist() for row in (3, 1)
    ]


def test_records_can_be_joined_and_split() -> None:
    packed = labelled()[0].packed[:5]
    search = Search(RULES, SearchConfig(simulations=32), 5)
    search.run(packed, np.arange(5), opinionated)
    parts = [*search.inner(np.arange(5), 4), *search.inner(np.arange(5), 1000)]
    sizes = np.array([len(part.packed) for part in parts])
    assert sizes[:5].sum() > 10
    assert not sizes[5:].all()
    again = split_inner(join_inner(parts), sizes)
    for one, other in zip(parts, again, strict=True):
        assert [column.tolist() for column in one] == [column.tolist() for column in other]
    assert len(join_inner([]).packed) == 0
    assert split_inner(join_inner([]), np.empty(0, np.int64)) == []


def made_up_group(inner_visits: int) -> GameGroup:
    """Without a memory, to which the made-up network would have to see both colours alike."""
    config = SelfPlayConfig(
        games=8, full_share=0.5, quick_simulations=2, inner_visits=inner_visits, memory=0
    )
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


def test_a_group_of_an_earlier_version_goes_on() -> None:
    """Its decisions knew neither what the network had thought nor what lay below them."""
    group = made_up_group(3)
    for _ in range(6):
        group.step(opinionated)
    state = group.state()
    for game in state["games"]:
        game["decisions"] = [decision[:6] for decision in game["decisions"]]
        del game["inner"]
    again = made_up_group(3)
    again.set_state(state)
    for one, other in zip(group.games, again.games, strict=True):
        assert [d.value for d in one.decisions] == [d.value for d in other.decisions]
        assert all(math.isnan(decision.guess) for decision in other.decisions)
    samples = samples_of(again.games, TargetsConfig())
    assert samples.size > 10
    assert (samples.error == 1).all()


def test_they_are_samples_behind_those_of_the_roots() -> None:
    """Worth what the search says, sharpened, or what it has proved."""
    group = made_up_group(3)
    games = []
    while len(games) < 12:
        games += group.step(opinionated)
    config = TargetsConfig(sharpen=1.0, sharpen_from=0.2, stray_trust=0.5)
    samples = samples_of(games[::-1], config, 1.0)
    roots = samples_of([replace(game, inner=[]) for game in games], config, 1.0)
    games.sort(key=lambda game: game.number)
    records = join_inner([record for game in games for record in game.inner])
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
    alone = opinionated(samples.packed)[1]  # of the network that played
    assert samples.error == pytest.approx(np.abs(samples.value - alone), abs=1e-3)
    assert len(np.unique(alone)) > 20


def test_they_weigh_as_much_as_searches_are_trusted() -> None:
    """By the share of the run that is over; what is proven counts fully at once."""
    group = made_up_group(3)
    games = []
    while len(games) < 12:
        games += group.step(opinionated)
    config = TargetsConfig(stray_trust=0.5)
    size = sum(len(game.decisions) for game in games)
    records = join_inner(
        [inner for game in sorted(games, key=lambda game: game.number) for inner in game.inner]
    )
    proven = records.proven != 0
    assert 0 < proven.sum() < len(proven)
    for progress, trust in ((0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (1.0, 1.0)):
        samples = samples_of(games, config, progress)
        assert (samples.weight[size:][proven] == 1).all()
        assert (samples.weight[size:][~proven] == trust).all()
    unknown = samples_of(games, config, 0.0)
    assert (unknown.error[size:][~proven] == 1).all()  # its policy is learnt from all the same
    assert (samples_of(games, TargetsConfig(stray_trust=0.0)).weight == 1).all()


def test_one_visit_is_refused(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    config.selfplay.inner_visits = 1
    with pytest.raises(ConfigError, match=r"^selfplay\.inner_visits: "):
        check(config)
