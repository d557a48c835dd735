"""Ratings: known strengths come back, intervals hold them, and nothing depends on the order."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from trainers.ratings import (
    Elo,
    Rating,
    RatingError,
    Result,
    check_anchor,
    elo_of,
    expected_score,
    groups,
    rate,
)

STRENGTHS = {"random": 0.0, "b": 100.0, "c": 150.0, "d": 300.0, "e": 600.0}


def simulate(
    strengths: dict[str, float], games: int, seed: int, drawn: float = 0.0
) -> list[Result]:
    """Round robin; `drawn` is the share of draws, which leaves every expected score as it is."""
    generator = np.random.default_rng(seed)
    results = []
    for first, second in itertools.combinations(strengths, 2):
        score = expected_score(strengths[first] - strengths[second])
        draws = drawn * min(score, 1 - score)
        wins, draw_count, losses = generator.multinomial(
            games, [score - draws / 2, draws, 1 - score - draws / 2]
        ).tolist()
        results.append(Result(first, second, wins, draw_count, losses))
    return results


def test_four_hundred_points_are_ten_to_one() -> None:
    assert expected_score(400) == pytest.approx(10 / 11)
    assert expected_score(0) == 0.5
    assert expected_score(-400) + expected_score(400) == 1
    assert expected_score(-1e6) == 0
    for score in (0.01, 0.3, 0.5, 0.99):
        assert expected_score(elo_of(score)) == pytest.approx(score)
    assert elo_of(1) == math.inf == -elo_of(0)
    with pytest.raises(RatingError, match="between 0 and 1"):
        elo_of(1.01)


def test_two_players_get_the_difference_of_their_score() -> None:
    ratings = rate([Result("a", "random", 7500, 0, 2500)])
    assert ratings["a"].elo == pytest.approx(elo_of(0.75), abs=0.1)
    assert ratings["random"] == Rating(0, 0, 0, 10000, False)
    margin = 1.96 * 400 / math.log(10) / math.sqrt(10000 * 0.75 * 0.25)
    assert ratings["a"].high - ratings["a"].elo == pytest.approx(margin, rel=1e-3)
    assert ratings["a"].elo - ratings["a"].low == pytest.approx(margin, rel=1e-3)


def test_a_draw_is_half_a_win_for_each() -> None:
    drawn = rate([Result("a", "random", 10, 20, 30)])
    assert drawn == rate([Result("a", "random", 20, 0, 40)])


def test_ratings_recover_known_strengths() -> None:
    ratings = rate(simulate(STRENGTHS, games=20_000, seed=1))
    assert list(ratings) == ["e", "d", "c", "b", "random"]
    for name, elo in STRENGTHS.items():
        assert ratings[name].elo == pytest.approx(elo, abs=8)
        assert ratings[name].games == 80_000


@pytest.mark.parametrize("games", [20, 200])
def test_intervals_hold_the_truth_about_95_times_in_100(games: int) -> None:
    held = [
        rating.low <= STRENGTHS[name] <= rating.high
        for seed in range(200)
        for name, rating in rate(simulate(STRENGTHS, games, seed)).items()
        if name != "random"
    ]
    assert 0.925 <= np.mean(held) <= 0.975


def test_draws_make_intervals_too_wide_never_too_narrow() -> None:
    held = [
        rating.low <= STRENGTHS[name] <= rating.high
        for seed in range(100)
        for name, rating in rate(simulate(STRENGTHS, 100, seed, drawn=0.8)).items()
        if name != "random"
    ]
    assert np.mean(held) >= 0.95


def test_the_rated_maximum_beats_everything_near_it() -> None:
    results = simulate(STRENGTHS, games=50, seed=3, drawn=0.3)
    best = {name: rating.elo for name, rating in rate(results).items()}

    def likelihood(elos: dict[str, float]) -> float:
        total = 0.0
        for first, second, wins, draws, losses in (
            (r.first, r.second, r.wins, r.draws, r.losses) for r in results
        ):
            # half a drawn game each, over four equal opponents: a quarter of a game a pairing
            share = expected_score(elos[first] - elos[second])
            total += (wins + draws / 2 + 0.125) * math.log(share)
            total += (losses + draws / 2 + 0.125) * math.log(1 - share)
        return total

    for name, step in itertools.product(best, (-0.01, 0.01)):
        assert likelihood({**best, name: best[name] + step}) < likelihood(best)


def test_order_and_portions_change_no_bit() -> None:
    results = simulate(STRENGTHS, games=37, seed=5, drawn=0.4)
    expected = rate(results)
    parts = [part for result in results for part in split(result)]
    for seed in range(5):
        random.Random(seed).shuffle(parts)
        assert rate(parts) == expected
        assert list(rate(parts)) == list(expected)


def split(result: Result) -> Iterator[Result]:
    """The same games in three portions, one of them seen from the other side."""
    first, second = result.first, result.second
    yield Result(first, second, result.wins, 0, 0)
    yield Result(second, first, 0, result.draws, 0)
    yield Result(second, first, result.losses, 0, 0)


def test_random_is_zero_where_it_plays_else_the_mean() -> None:
    results = simulate(STRENGTHS, games=100, seed=7)
    by_default = rate(results)
    assert by_default["random"][:3] == (0, 0, 0)
    others = [result for result in results if result.first != "random"]
    assert sum(rating.elo for rating in rate(others).values()) == pytest.approx(0, abs=1e-9)
    assert all(rating.low < rating.elo < rating.high for rating in rate(others).values())


def test_an_anchor_shifts_all_alike() -> None:
    results = simulate(STRENGTHS, games=100, seed=8)
    by_default, by_c = rate(results), rate(results, anchor="c")
    assert by_c["c"][:3] == (0, 0, 0)
    for name in STRENGTHS:
        assert by_c[name].elo == pytest.approx(by_default[name].elo - by_default["c"].elo)
    assert by_c["b"].high - by_c["b"].low < by_default["e"].high - by_default["e"].low
    mean = rate(results, anchor="mean")
    assert sum(rating.elo for rating in mean.values()) == pytest.approx(0, abs=1e-9)
    with pytest.raises(
        RatingError, match="'z' is none of the players: expected 'mean' or one of b"
    ):
        rate(results, anchor="z")
    assert check_anchor(["a", "random"], None) == "random"
    assert check_anchor(["a", "b"], None) == "mean"


@pytest.mark.parametrize("games", [1, 10, 1000, 1_000_000])
def test_a_perfect_score_stays_finite_and_says_so(games: int) -> None:
    ratings = rate([Result("a", "random", games, 0, 0)])
    assert ratings["a"].elo == pytest.approx(elo_of((games + 0.5) / (games + 1)), rel=1e-6)
    assert ratings["a"].by_prior
    assert not ratings["random"].by_prior
    assert math.isfinite(ratings["a"].low)
    assert math.isfinite(ratings["a"].high)
    lost = rate([Result("a", "random", 0, 0, games)])
    assert lost["a"].elo == pytest.approx(-ratings["a"].elo)


def test_a_group_that_never_lost_to_the_rest_is_marked() -> None:
    results = [
        Result("strong", "stronger", 3, 0, 7),
        Result("random", "strong", 0, 0, 10),
        Result("random", "weak", 2, 0, 8),
    ]
    marked = {name for name, rating in rate(results).items() if rating.by_prior}
    assert marked == {"strong", "stronger"}
    assert all(rating.by_prior for rating in rate(results, anchor="mean").values())
    linked = [*results, Result("random", "strong", 0, 1, 0)]
    assert not any(rating.by_prior for rating in rate(linked).values())


def test_wide_pools_are_rated_too() -> None:
    strengths = {f"player{number}": 400.0 * number for number in range(20)}
    ratings = rate(simulate(strengths, games=100, seed=2), anchor="player0")
    assert list(ratings) == [f"player{number}" for number in reversed(range(20))]
    assert ratings["player19"].elo == pytest.approx(7600, rel=0.1)


def test_pools_that_no_game_links_are_refused_by_name() -> None:
    results = [
        Result("a", "b", 1, 1, 1),
        Result("c", "d", 2, 0, 1),
        Result("b", "c", 0, 0, 0),
    ]
    with pytest.raises(RatingError, match="2 groups, so they cannot be compared: a, b; c, d"):
        rate(results)
    assert groups(results) == [["a", "b"], ["c", "d"]]
    assert groups([*results, Result("b", "c", 0, 0, 1)]) == [["a", "b", "c", "d"]]
    with pytest.raises(RatingError, match="no results"):
        rate([])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("a", "a", 1, 0, 0), "against itself"),
        (("a", "b", -1, 0, 0), "wins must be a whole number"),
        (("a", "b", 0, 0.5, 0), "draws must be a whole number"),
        (("a", "b", 0, 0, True), "losses must be a whole number"),
    ],
)
def test_a_result_counts_games_of_two_players(
    fields: tuple[str, str, int, int, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Result(*fields)


def test_online_elo_starts_at_1000_and_moves_by_at_most_32() -> None:
    elo = Elo()
    assert elo["new"] == 1000
    assert elo.expected("a", "b") == 0.5
    assert elo.update("a", "b", 1) == 16
    assert elo.ratings == {"a": 1016, "b": 984}
    assert elo.update("b", "a", 0.5) == pytest.approx(32 * (0.5 - expected_score(-32)))
    elo = Elo(ratings={"master": 3000.0})
    assert elo.update("beginner", "master", 1) == pytest.approx(32, abs=0.01)


def test_online_elo_is_zero_sum_and_finds_the_strengths() -> None:
    elo = Elo(k=4)
    generator = random.Random(11)
    sums = [0.0] * len(STRENGTHS)
    for count in range(40_000):
        first, second = generator.sample(sorted(STRENGTHS), 2)
        won = generator.random() < expected_score(STRENGTHS[first] - STRENGTHS[second])
        elo.update(first, second, 1.0 if won else 0.0)
        if count >= 20_000:
            sums = [total + elo[name] for total, name in zip(sums, STRENGTHS, strict=True)]
    assert sum(elo.ratings.values()) == pytest.approx(1000 * len(STRENGTHS))
    for (name, strength), total in zip(STRENGTHS.items(), sums, strict=True):
        assert total / 20_000 - sums[0] / 20_000 == pytest.approx(strength, abs=30), name


def test_online_elo_refuses_what_is_no_game() -> None:
    with pytest.raises(RatingError, match="against itself"):
        Elo().update("a", "a", 1)
    with pytest.raises(RatingError, match=r"0, 0\.5 or 1, got 0\.7"):
        Elo().update("a", "b", 0.7)
    with pytest.raises(RatingError, match="above 0, got 0"):
        Elo(k=0)
