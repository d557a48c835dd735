"""PPO's league: whom it draws, what it counts, whom it keeps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from pylos_env import Rules, kernel
from trainers.evaluator import Evaluator
from trainers.network import NetworkConfig, build
from trainers.ppo.config import LeagueConfig, RolloutConfig
from trainers.ppo.games import GameGroup
from trainers.ppo.league import LIVE, RULE_BASED, GameResult, League
from trainers.ppo.ppo import collect
from trainers.ratings import expected_score

RULES = Rules.of("advanced")


def policy(seed: int = 0) -> Evaluator:
    torch.manual_seed(seed)
    return Evaluator(build(NetworkConfig(width=8, blocks=1), RULES), RULES, torch.device("cpu"))


def league(snapshots: int = 0, **settings: object) -> League:
    """A league past its warm-up."""
    found = League(LeagueConfig(**{"warmup_episodes": 0, **settings}))  # type: ignore[arg-type]
    for episodes in range(1, snapshots + 1):
        found.add(policy(), episodes)
    return found


def drawn_shares(found: League, rollouts: int = 4000, count: int = 20) -> dict[int, float]:
    """How often everybody is drawn by the games of many rollouts."""
    keys = np.array([kernel.draw(9, row) for row in range(rollouts * count)])
    counts: Counter[int] = Counter()
    for rollout, drawn in enumerate(keys.reshape(rollouts, count)):
        counts.update(found.lineup(kernel.draw(8, rollout)).draw(drawn).tolist())
    return {number: counts[number] / len(keys) for number in counts}


def numbers(found: League) -> list[int]:
    return [member.number for member in found.pool]


def games(opponent: int, *scores: float) -> list[GameResult]:
    return [GameResult(opponent, score, 40) for score in scores]


# Whom it draws


def test_opponents_come_as_often_as_they_should() -> None:
    found = league(7, live_share=0.4)
    shares = drawn_shares(found)
    older, newer = numbers(found)[:3], numbers(found)[3:]
    assert shares[LIVE] == pytest.approx(0.4, abs=0.01)
    assert shares[RULE_BASED] == pytest.approx(0.6 * 0.1, abs=0.01)
    for number in newer:
        assert shares[number] == pytest.approx(0.6 * 0.7 / 4, abs=0.01)
    for number in older:
        assert shares[number] == pytest.approx(0.6 * 0.2 / 3, abs=0.01)


def test_a_rollout_draws_a_few_snapshots_only() -> None:
    found = league(7, at_once=2)
    drawn = [set(found.lineup(kernel.draw(8, key)).numbers.tolist()) for key in range(40)]
    assert all({LIVE, RULE_BASED} < members and len(members) <= 4 for members in drawn)
    assert set.union(*drawn) == {LIVE, RULE_BASED, *numbers(found)}
    for key in range(40):
        assert found.lineup(key).shares.sum() == pytest.approx(1)


def test_a_single_snapshot_gets_the_shares_of_both_halves() -> None:
    found = league(1, live_share=0.0)
    shares = drawn_shares(found)
    assert shares[numbers(found)[0]] == pytest.approx(0.9, abs=0.01)
    assert shares[RULE_BASED] == pytest.approx(0.1, abs=0.01)


def test_without_snapshots_it_plays_itself() -> None:
    assert drawn_shares(league()) == {LIVE: 1.0}


def test_prioritised_draws_prefer_whom_it_loses_against() -> None:
    found = league(4, live_share=0.0, prioritised=True)
    for member, score in zip(found.pool, (1.0, 0.5, 0.0, 0.75), strict=True):
        member.score = score
    shares = drawn_shares(found)
    weights = np.array([0.01, 0.25, 1.0, 0.0625])
    for number, share in zip(numbers(found), 0.9 * weights / weights.sum(), strict=True):
        assert shares.get(number, 0.0) == pytest.approx(share, abs=0.01)


def test_the_warm_up_is_against_rule_based_until_half_is_won() -> None:
    found = league(warmup_episodes=1000, warmup_window=10)
    assert drawn_shares(found) == {RULE_BASED: 1.0}
    found.record(games(RULE_BASED, *[1.0] * 5, *[0.0] * 5))
    assert found.warming_up, "half is not more than half"
    found.record(games(RULE_BASED, *[0.5] * 9))
    assert found.warming_up, "draws are not won"
    found.record(games(RULE_BASED, *[1.0] * 6))
    assert not found.warming_up
    found.record(games(RULE_BASED, *[0.0] * 20))
    assert not found.warming_up, "it does not come back"


def test_the_warm_up_ends_at_its_limit() -> None:
    found = league(warmup_episodes=30, warmup_window=10)
    found.record(games(RULE_BASED, *[0.0] * 29))
    assert found.warming_up
    found.record(games(RULE_BASED, 0.0))
    assert not found.warming_up


def test_an_opponent_stays_for_a_whole_game() -> None:
    """While the league draws others, games under way keep theirs."""
    found = league(3, live_share=0.0)
    config = RolloutConfig(games=16, plies=1, opening_share=0.0)
    group = GameGroup(RULES, config, 1, 0, 1, found.lineup())
    live, opponents, changes = policy(1), group.opponents.copy(), 0
    for ply in range(150):
        if ply == 20:
            found.add(policy(2), 99)
        rollout = collect(group, live, found.policies(), found.lineup(), config, 1.0)
        ended = rollout.sign[0] == 0
        assert np.array_equal(group.opponents[~ended], opponents[~ended])
        changes += int((group.opponents != opponents).sum())
        opponents = group.opponents.copy()
    assert changes > 10


# What it counts


def test_elo_moves_by_the_rule() -> None:
    found = league(1)
    (snapshot,) = numbers(found)
    live = 1000.0
    others = {RULE_BASED: 1000.0, snapshot: 1000.0}
    results = [(RULE_BASED, 1.0), (snapshot, 0.5), (RULE_BASED, 0.0), (snapshot, 1.0)]
    for opponent, score in results:
        found.record(games(opponent, score))
        gain = 32 * (score - 1 / (1 + 10 ** ((others[opponent] - live) / 400)))
        live, others[opponent] = live + gain, others[opponent] - gain
    assert found.current_elo == pytest.approx(live)
    assert found.table()["rule_based"] == pytest.approx(others[RULE_BASED])
    assert found.table()["ep_000001"] == pytest.approx(others[snapshot])
    assert sum(found.table().values()) == pytest.approx(3000), "what one gains another loses"
    assert found.best_elo == pytest.approx(max(live, others[snapshot]))


def test_games_against_itself_are_not_rated() -> None:
    found = league(1)
    found.record(games(LIVE, 1.0, 1.0, 1.0))
    assert set(found.table().values()) == {1000.0}


def test_a_snapshot_begins_with_the_learners_elo() -> None:
    found = league()
    found.record(games(RULE_BASED, *[1.0] * 8))
    found.add(policy(), 50)
    assert found.table()["ep_000050"] == found.current_elo > 1050


def test_scores_follow_recent_games() -> None:
    found = league(1)
    (number,) = numbers(found)
    found.record(games(number, *[1.0] * 300))
    assert found.pool[0].score > 0.99
    assert expected_score(found.current_elo - found.elo[str(number)]) > 0.95
    found.record(games(RULE_BASED, *[0.5] * 300))
    assert found.rule_based_score == pytest.approx(0.5, abs=0.01)


# Whom it keeps


def test_the_best_and_the_newest_are_never_pruned() -> None:
    found = league(pool=4)
    for episodes in range(1, 30):
        found.add(policy(), episodes)
        if episodes == 3:
            found.elo.ratings[str(found.pool[-1].number)] = 2000.0
        names = [member.name for member in found.pool]
        assert len(names) <= 4
        assert names[-1] == f"ep_{episodes:06d}"
        if episodes >= 3:
            assert "ep_000003" in names
    assert names == ["ep_000003", "ep_000027", "ep_000028", "ep_000029"]


def test_who_leaves_finishes_its_games() -> None:
    found = league(3, pool=3)
    first = found.pool[0].number
    found.elo.ratings[str(found.pool[1].number)] = 1200.0
    found.add(policy(), 9)
    assert first not in numbers(found)
    assert first in found.policies()
    assert first not in drawn_shares(found)
    found.forget({first})
    found.record(games(first, 1.0))
    found.forget({LIVE, RULE_BASED})
    assert first not in found.policies()
    assert str(first) not in found.elo.ratings


def test_a_snapshot_does_not_learn_on() -> None:
    live = policy(1)
    found = league()
    found.add(live, 1)
    before = {k: v.clone() for k, v in found.pool[0].policy.network.state_dict().items()}
    with torch.no_grad():
        for parameter in live.network.parameters():
            parameter.add_(1.0)
    after = found.pool[0].policy.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_two_snapshots_without_a_game_between_are_one() -> None:
    found = league(2)
    found.add(policy(), 2)
    assert [member.name for member in found.pool] == ["ep_000001", "ep_000002"]


def test_a_league_survives_its_state() -> None:
    found = league(5, pool=4, warmup_episodes=100, warmup_window=10)
    found.record(games(RULE_BASED, 1.0, 0.0, 0.5))
    found.record(games(numbers(found)[1], 1.0))
    again = league(pool=4, warmup_episodes=100, warmup_window=10)
    again.set_state(found.state(), policy(7))
    for one in (found, again):
        one.record(games(RULE_BASED, *[1.0] * 7))
        one.add(policy(3), 77)
    assert again.table() == found.table()
    assert again.warming_up == found.warming_up
    assert again.lineup().numbers.tolist() == found.lineup().numbers.tolist()
    for one, other in zip(again.pool, found.pool, strict=True):
        assert (one.number, one.score) == (other.number, other.score)
        theirs = other.policy.network.state_dict()
        for name, tensor in one.policy.network.state_dict().items():
            assert torch.equal(tensor, theirs[name])
