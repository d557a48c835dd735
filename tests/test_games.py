"""AlphaZero's self-play: openings, random actions, repetitions, resigning."""

from __future__ import annotations

import numpy as np
import pytest

from pylos_env import Position, kernel
from tests.alphazero_tools import RULES
from trainers.alphazero import selfplay
from trainers.alphazero.config import SelfPlayConfig, TargetsConfig
from trainers.alphazero.selfplay import Decision, Game, GameGroup
from trainers.alphazero.targets import value_targets
from trainers.search import SearchConfig
from trainers.search.tree import Floats, Ints


def knows_nothing(packed: Ints) -> tuple[Floats, Floats]:
    return np.zeros((len(packed), 303), np.float32), np.zeros(len(packed), np.float32)


def play_group(games: int, stride: int = 1, **settings: object) -> dict[int, Game]:
    config = SelfPlayConfig(games=games, quick_simulations=2, **settings)  # type: ignore[arg-type]
    group = GameGroup(RULES, SearchConfig(simulations=4), config, 7, 0, stride)
    finished: dict[int, Game] = {}
    for _ in range(70):
        finished |= {game.number: game for game in group.step(knows_nothing)}
    return finished


def test_a_game_plays_alike_in_any_group() -> None:
    large, small = play_group(24), play_group(6)
    common = sorted(set(large) & set(small))
    assert len(common) >= 5
    for number in common:
        assert large[number].start == small[number].start
        assert large[number].actions == small[number].actions
        for one, other in zip(large[number].decisions, small[number].decisions, strict=True):
            assert one.packed == other.packed
            assert one.policy.tolist() == other.policy.tolist()


def test_random_actions_have_their_share() -> None:
    """Each game strays in a share of its own, uniform up to the largest."""
    assert not any(d.strays for g in play_group(24, stray_share=0.0).values() for d in g.decisions)
    games = play_group(48, stray_share=0.6, opening_share=0.0, resign=1.0).values()
    shares = [np.mean([d.strays for d in game.decisions]) for game in games]
    assert 0.15 < np.mean(shares) < 0.35  # some random actions are the search's own
    assert max(shares) > 0.4
    assert min(shares) < 0.1


@pytest.mark.parametrize("draws", [True, False])
def test_a_position_that_comes_again_is_a_draw(draws: bool) -> None:
    config = SelfPlayConfig(games=2, opening_share=0.0, stray_share=0.0, repetition_draws=draws)
    group = GameGroup(RULES, SearchConfig(simulations=8), config, 7, 0, 1)
    start = Position.start(RULES)
    assert group.games[0].seen == {start.packed}
    group.games[0].seen |= {start.play(action).packed for action in start.legal_actions()}
    finished = group.step(knows_nothing)
    assert [game.number for game in finished] == ([0] if draws else [])
    for game in finished:
        assert game.drawn
        assert not game.truncated
        assert len(game.actions) == 1
        assert selfplay.winner_of(game) is None
        for truncated in ("bootstrap", "mask"):
            targets = TargetsConfig(0.9, -0.2, truncated, 0.0, 0.0)
            assert value_targets(game, targets) == [(pytest.approx(0.9 * -0.2), 1.0)]
    again = GameGroup(RULES, SearchConfig(simulations=8), config, 7, 0, 1)
    again.set_state(group.state())
    assert again.games[1].seen == group.games[1].seen == {start.packed, int(group.packed[1])}


def test_what_a_random_action_brings_back_is_no_repetition() -> None:
    config = SelfPlayConfig(games=8, opening_share=0.0, stray_share=1.0, resign=1.0)
    group = GameGroup(RULES, SearchConfig(simulations=2, gumbel_scale=0.0), config, 7, 0, 1)
    start = Position.start(RULES)
    after = {start.play(action).packed for action in start.legal_actions()}
    for game in group.games:
        game.seen |= after
    group.step(knows_nothing)
    strayed = [game.decisions[0].strays for game in group.games if game.actions]
    assert any(strayed)
    for row, game in enumerate(group.games):
        if game.actions:
            assert game.decisions[0].strays  # the others were drawn at once
            assert game.seen == {int(group.packed[row])}
    again = GameGroup(RULES, SearchConfig(simulations=2, gumbel_scale=0.0), config, 7, 0, 1)
    again.set_state(group.state())
    assert [game.seen for game in again.games] == [game.seen for game in group.games]


def test_games_obey_the_rules_and_their_decisions_lie_on_them() -> None:
    for game in play_group(24).values():
        position = Position(game.start, RULES)
        positions = [position]
        for action in game.actions:
            position = position.play(action)
            positions.append(position)
        assert position.packed == game.end
        assert bool(position.legal_actions()) == (game.truncated or game.drawn or game.resigned)
        for decision in game.decisions:
            assert positions[decision.ply].packed == decision.packed
            assert len(decision.policy) == len(positions[decision.ply].legal_actions())


def test_the_ply_limit_breaks_games_off_without_a_winner() -> None:
    games = play_group(12, max_plies=9, opening_share=0.0).values()
    assert all(len(game.actions) == 9 and game.truncated for game in games)
    assert all(selfplay.winner_of(game) is None for game in games)


def test_a_game_is_resigned_where_the_search_is_sure() -> None:
    """With a search that sees the ends of games, which are sure: 1 to -1."""
    played = play_group(24, resign=1.0)
    resigned = play_group(24, resign=0.9, resign_share=1.0)
    assert not any(game.resigned for game in played.values())
    ended = [game for game in resigned.values() if game.resigned]
    assert len(ended) > len(resigned) / 2
    for game in ended:
        assert abs(game.last_value) > 0.9
        assert game.decisions[-1].packed == game.end
        ahead = kernel.side_of(game.end)
        assert selfplay.winner_of(game) == (ahead if game.last_value > 0 else 1 - ahead)
        if game.number in played:
            assert played[game.number].actions[: len(game.actions)] == game.actions
            assert len(played[game.number].actions) > len(game.actions)


def test_a_game_cools_down_after_its_temperature_plies() -> None:
    """Drawn from the visits until then; the most visited action from there on."""
    config = SelfPlayConfig(
        games=64, opening_share=0.0, stray_share=0.0, temperature_plies=3, quick_simulations=1
    )
    search = SearchConfig(root="puct", simulations=16, dirichlet_fraction=0.0)
    group = GameGroup(RULES, search, config, 7, 0, 1)
    for _ in range(6):
        group.step(knows_nothing)
    most = np.array(
        [
            [
                kernel_action(decision) == action
                for decision, action in zip(game.decisions, game.actions, strict=True)
            ]
            for game in group.games
        ]
    )
    assert most[:, 3:].all()
    assert 0.02 < most[:, :3].mean() < 0.5  # sixteen actions with a visit each, or nearly


def kernel_action(decision: Decision) -> int:
    """The most visited action of a recorded search, the first of equals."""
    legal = np.empty(kernel.MAX_LEGAL, np.int64)
    kernel.write_legal(decision.packed, RULES.code, legal)
    return int(legal[decision.policy.argmax()])


def test_a_share_of_games_is_not_resigned() -> None:
    games = play_group(64, resign=0.9, resign_share=0.5).values()
    assert 0.25 < np.mean([game.resigned for game in games]) < 0.75
    assert not any(game.resigned for game in play_group(16, resign=0.9, resign_share=0.0).values())


def test_openings_and_full_searches_have_their_shares() -> None:
    games = list(play_group(64, opening_share=0.5, opening_plies=10, full_share=0.3).values())
    started = np.mean([game.start != 0 for game in games])
    assert 0.3 < started < 0.65
    recorded = sum(len(game.decisions) for game in games)
    assert recorded / sum(len(game.actions) for game in games) == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("skew", [1.0, 2.0])
def test_openings_are_as_long_as_their_skew_has_it(skew: float) -> None:
    """Of 5 numbers of plies, n is drawn with chance ((n + 1) / 5)^(1 / skew) - (n / 5)^(1 / skew).

    No sphere can be raised or taken back so early, so spheres count the plies.
    """
    config = SelfPlayConfig(games=4000, opening_share=1.0, opening_plies=4, opening_skew=skew)
    group = GameGroup(RULES, SearchConfig(simulations=1), config, 7, 0, 1)
    spheres = np.bitwise_count(group.packed & ((1 << kernel.SIDE_SHIFT) - 1))
    shares = np.bincount(spheres, minlength=5) / 4000
    assert shares == pytest.approx(np.diff((np.arange(6) / 5) ** (1 / skew)), abs=0.03)


def test_openings_end_with_a_turn() -> None:
    for key in range(300):
        start = selfplay.random_opening(RULES.code, key, key % 40)
        assert not kernel.take_backs_left(start)
        assert not kernel.is_over(start, RULES.code)
