"""The arena: paired openings, games that no batch changes, honest intervals, early stops."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pylos_env import IllegalMoveError, Outcome, Position, PylosError, Rules, agents
from pylos_env.record import read_games
from trainers.arena import (
    Conditions,
    Contest,
    Game,
    Played,
    Sprt,
    Verdict,
    cli,
    openings,
    play_games,
    play_match,
    tournament,
)
from trainers.arena.openings import representative
from trainers.arena.scores import PAIR_SCORES, Interval, mean_score, score_interval
from trainers.ratings import Rating, expected_score

ROOT = Path(__file__).resolve().parent.parent


class First(agents.Agent):
    """Always the lowest legal action: a player without chance."""

    name = "first"

    def act(self, position: Position, key: int | None = None) -> int:
        return position.legal_actions()[0]


class Counting(agents.RandomAgent):
    """Random, and remembers how often it was asked and for how many games."""

    def __init__(self, name: str) -> None:
        super().__init__(seed=0)
        self.name = name
        self.sizes: list[int] = []

    def act_batch(
        self, packed: npt.NDArray[np.int64], rules: Rules, keys: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        self.sizes.append(len(packed))
        return super().act_batch(packed, rules, keys)


def facts(games: tuple[Game, ...]) -> list[tuple[int, str, str, tuple[int, ...], float]]:
    return [(g.pair, g.white, g.black, g.actions, g.white_points) for g in games]


# Openings


@pytest.mark.parametrize("plies", [0, 3, 6, 7, 12, 30])
def test_openings_end_between_turns_and_never_end_the_game(plies: int) -> None:
    for opening in itertools.islice(openings("mature", plies, seed=1), 50):
        position = Position.start("mature")
        for action in opening.actions:
            position = position.play(action)
        assert position == opening.position
        assert position.outcome is Outcome.ONGOING
        assert position.take_backs_left == 0
        assert plies <= len(opening.actions) <= plies + 2


def test_openings_are_distinct_up_to_symmetry_as_long_as_possible() -> None:
    many = list(itertools.islice(openings(plies=6, seed=2), 500))
    assert len({representative(opening.position) for opening in many}) == 500
    # corner, edge and centre are all that one ply can do, and they take turns
    single = [representative(o.position) for o in itertools.islice(openings(plies=1), 30)]
    assert len(set(single)) == 3
    assert all(len(set(single[begin : begin + 3])) == 3 for begin in range(0, 30, 3))


def test_symmetric_positions_share_their_representative() -> None:
    for opening in itertools.islice(openings("mature", 20, seed=5), 50):
        images = [opening.position.symmetric(index) for index in range(8)]
        assert {representative(image) for image in images} == {min(i.packed for i in images)}


def test_greedy_rules_know_no_symmetry() -> None:
    positions = [o.position for o in itertools.islice(openings("advanced greedy", 1), 16)]
    assert len({position.packed for position in positions}) == 16


def test_openings_follow_from_the_seed() -> None:
    def first(seed: int, count: int) -> list[tuple[int, ...]]:
        return [o.actions for o in itertools.islice(openings(seed=seed), count)]

    assert first(4, 20) == first(4, 30)[:20]
    assert first(4, 20) != first(5, 20)


def test_openings_longer_than_any_game_are_refused() -> None:
    with pytest.raises(PylosError, match="all over within 400 plies: ask for shorter"):
        next(openings("children", 400))


# Games


def test_every_opening_is_played_twice_with_seats_swapped() -> None:
    result = play_match("rule_based", "random", games=20, seed=3)
    assert len(result.games) == 20
    for number, (straight, swapped) in enumerate(
        zip(result.games[0::2], result.games[1::2], strict=True)
    ):
        assert straight.pair == swapped.pair == number
        assert straight.opening is swapped.opening
        assert (straight.white, straight.black) == ("rule_based", "random")
        assert (swapped.white, swapped.black) == ("random", "rule_based")
        for game in (straight, swapped):
            assert game.actions[: len(game.opening.actions)] == game.opening.actions
    assert result.num_openings == 10


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_the_batch_size_changes_no_game(batch: int) -> None:
    names = ["rule_based", "random", "alphabeta:1"]
    whole = tournament(names, games=16, seed=5, batch=256)
    assert facts(tournament(names, games=16, seed=5, batch=batch).games) == facts(whole.games)


def test_other_players_change_no_game_of_a_match() -> None:
    alone = play_match("rule_based", "random", games=12, seed=6)
    among = tournament(["alphabeta:1", "rule_based", "random"], games=12, seed=6)
    assert facts(among.matches[2].games) == facts(alone.games)


def test_a_seed_gives_the_same_games_and_another_one_others() -> None:
    first = play_match("rule_based", "random", games=12, seed=6)
    assert facts(play_match("rule_based", "random", games=12, seed=6).games) == facts(first.games)
    assert facts(play_match("rule_based", "random", games=12, seed=7).games) != facts(first.games)


def test_swapping_the_players_mirrors_the_result_exactly() -> None:
    result = play_match("rule_based", "alphabeta:1", games=60, seed=8)
    mirror = play_match("alphabeta:1", "rule_based", games=60, seed=8)
    assert (mirror.wins, mirror.draws, mirror.losses) == (
        result.losses,
        result.draws,
        result.wins,
    )
    assert mirror.pairs == result.pairs[::-1]
    assert mirror.score == 1 - result.score
    assert mirror.as_white == result.as_black._replace(
        wins=result.as_black.losses, losses=result.as_black.wins
    )
    assert mirror.elo == pytest.approx(-result.elo)
    assert mirror.interval == pytest.approx((1 - result.interval.high, 1 - result.interval.low))
    assert sorted(facts(mirror.games)) == sorted(facts(result.games))


def test_a_player_without_chance_does_not_replay_one_game() -> None:
    result = play_match(First(), First(), games=60, seed=9)
    assert (result.first, result.second) == ("first", "first (2)")
    assert len({game.actions for game in result.games}) == 30, "one game for each opening"
    assert result.score == 0.5, "both games of a pair are the same one, seen from both sides"


@pytest.mark.parametrize("name", ["random", "rule_based"])
def test_self_against_self_scores_a_half_within_its_interval(name: str) -> None:
    result = play_match(name, name, games=1000, seed=10)
    assert result.interval.low <= 0.5 <= result.interval.high
    assert result.interval.high - result.interval.low < 0.08
    assert result.elo_interval.low <= 0 <= result.elo_interval.high
    assert len({game.actions for game in result.games}) == 1000


def test_each_agent_is_asked_once_a_step_for_all_its_games() -> None:
    players = [Counting(name) for name in ("a", "b", "c")]
    run = Contest(players, Conditions(games=20, opening_plies=6, batch=120))
    for player in players:
        player.sizes.clear()  # the move that everyone is asked for first
    run.play()
    longest = max(len(game.actions) - 6 for game in run.tournament().games)
    for player in players:
        assert len(player.sizes) <= longest
        assert sum(player.sizes[:2]) >= 40, "40 games each, moving at the first or second step"


def test_the_batch_stays_full_while_games_wait() -> None:
    players = [Counting("a"), Counting("b")]
    run = Contest(players, Conditions(games=200, batch=10))
    for player in players:
        player.sizes.clear()
    run.play()
    plies = sum(len(game.actions) - 6 for game in run.match().games)
    asked = sum(player.sizes[step] for player in players for step in range(len(player.sizes)))
    assert asked == plies
    assert max(max(player.sizes) for player in players) <= 10
    assert plies / max(len(player.sizes) for player in players) > 7


def test_the_ply_limit_ends_a_game_as_a_draw() -> None:
    result = play_match("random", "rule_based", games=10, max_plies=12)
    assert (result.wins, result.draws, result.losses) == (0, 10, 0)
    assert {len(game.actions) for game in result.games} == {12}
    assert result.score == 0.5
    endless = play_match("random", "rule_based", games=10, max_plies=None)
    assert endless.draws == 0


def test_an_illegal_action_is_named_with_its_player_and_position() -> None:
    class Stubborn(agents.Agent):
        name = "stubborn"

        def act(self, position: Position, key: int | None = None) -> int:
            return 0 if 0 in position.legal_actions() else 302

    with pytest.raises(IllegalMoveError, match=r"stubborn: action 302 .* is illegal: .*, in .* 0"):
        play_match(Stubborn(), "random", games=4)


def test_an_answer_of_the_wrong_shape_is_refused_before_any_game() -> None:
    class Short(First):
        name = "short"

        def act_batch(self, packed: Any, rules: Rules, keys: Any) -> Any:
            return np.zeros(0, dtype=np.int64)

    with pytest.raises(PylosError, match="short: expected 1 integer actions"):
        Contest([Short(), "random"])


def test_any_agent_will_do() -> None:
    def lowest(position: Position) -> int:
        return position.legal_actions()[0]

    result = play_match(lowest, agents.make("random"), games=4)
    assert (result.first, result.second) == ("lowest", "random")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"games": 7}, "games must be even"),
        ({"games": 0}, "games must be a whole number from 2 up"),
        ({"opening_plies": -1}, "opening_plies must be"),
        ({"max_plies": 0}, "max_plies, unless None"),
        ({"batch": 0}, "batch must be"),
        ({"seed": -1}, "a seed must be"),
        ({"rules": "chess"}, "unknown rules 'chess'"),
        ({"max_plies": 6}, "an opening has 6 plies, so max_plies must be above that, got 6"),
    ],
)
def test_impossible_conditions_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Contest(["random", "rule_based"], Conditions(**change))


def test_a_contest_needs_two_players_and_an_early_stop_no_more() -> None:
    with pytest.raises(PylosError, match="at least two players, got 1"):
        Contest(["random"])
    with pytest.raises(PylosError, match="about two players, got 3"):
        Contest(["random", "rule_based", "alphabeta:1"], sprt=Sprt(0, 10))
    player = First()
    player.name = "two\nlines"
    with pytest.raises(PylosError, match="one line of text"):
        Contest([player, "random"])


# Scores


def pair_distribution(score: float, drawn: float = 0, split: float = 0) -> list[float]:
    """Five chances with this mean: independent games, some drawn, and some pairs always 1 : 1."""
    win = 0.5 + (score - 0.5) / (1 - drawn) / (1 - split)
    won, lost = win * (1 - drawn), (1 - win) * (1 - drawn)
    free = [lost**2, 2 * lost * drawn, drawn**2 + 2 * won * lost, 2 * won * drawn, won**2]
    chances = [(1 - split) * chance for chance in free]
    chances[2] += split
    assert mean(chances) == pytest.approx(score)
    return chances


def mean(chances: list[float]) -> float:
    return float(np.dot(chances, PAIR_SCORES))


@pytest.mark.parametrize(
    "chances",
    [
        pair_distribution(0.5),
        pair_distribution(0.5, drawn=0.5),
        pair_distribution(0.5, split=0.8),
        pair_distribution(0.6, drawn=0.2, split=0.5),
        pair_distribution(0.9),
        pair_distribution(0.97),
        [0.5, 0, 0, 0, 0.5],
        [0.1, 0, 0, 0, 0.9],
    ],
)
@pytest.mark.parametrize("num_pairs", [20, 100])
def test_the_interval_holds_the_true_score_95_times_in_100(
    chances: list[float], num_pairs: int
) -> None:
    samples = np.random.default_rng(1).multinomial(num_pairs, chances, size=1000).tolist()
    held = [low <= mean(chances) <= high for low, high in map(score_interval, samples)]
    assert np.mean(held) >= 0.935


def test_the_interval_respects_the_pairing() -> None:
    independent = score_interval((25, 0, 50, 0, 25))
    always_split = score_interval((1, 0, 98, 0, 1))
    always_alike = score_interval((50, 0, 0, 0, 50))
    width = independent.high - independent.low
    assert width == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(200), rel=0.05)
    assert always_split.high - always_split.low < width / 2.5
    assert always_alike.high - always_alike.low == pytest.approx(width * np.sqrt(2), rel=0.05)


def test_the_interval_never_shrinks_to_nothing_nor_leaves_0_to_1() -> None:
    low, high = score_interval((0, 0, 0, 0, 100))
    assert high == 1
    assert 0.95 < low < 0.97
    low, high = score_interval((0, 0, 100, 0, 0))
    assert 0.01 < high - low < 0.05
    assert low < 0.5 < high
    assert score_interval((0, 0, 0, 0, 0)) == Interval(0, 1)
    assert score_interval((1, 0, 0, 0, 0)).low == 0
    assert np.isnan(mean_score((0, 0, 0, 0, 0)))


def test_a_whole_score_means_an_infinite_elo_difference() -> None:
    result = play_match("alphabeta:1", "random", games=20)
    assert result.score == 1
    assert result.elo == np.inf == result.elo_interval.high
    assert np.isfinite(result.elo_interval.low)
    assert result.to_dict()["elo"] is None
    assert "+inf" in str(result)


# Early stops


def run_test(test: Sprt, chances: list[float], generator: np.random.Generator) -> Verdict:
    counts = [0, 0, 0, 0, 0]
    for outcome in generator.choice(5, size=3000, p=chances).tolist():
        counts[outcome] += 1
        verdict = test.judge((counts[0], counts[1], counts[2], counts[3], counts[4]))
        if verdict is not Verdict.OPEN:
            return verdict
    return Verdict.OPEN


@pytest.mark.parametrize("shape", [{}, {"drawn": 0.4}, {"split": 0.3}])
@pytest.mark.parametrize(("truth", "wrong"), [(0, Verdict.UPPER), (120, Verdict.LOWER)])
def test_the_early_stop_errs_as_seldom_as_it_promises(
    truth: float, wrong: Verdict, shape: dict[str, float]
) -> None:
    chances = pair_distribution(expected_score(truth), **shape)
    generator = np.random.default_rng(2)
    verdicts = [run_test(Sprt(0, 120, 0.1, 0.1), chances, generator) for _ in range(200)]
    assert Verdict.OPEN not in verdicts
    errors = verdicts.count(wrong)
    assert errors <= 200 * 0.1 + 2 * np.sqrt(200 * 0.1 * 0.9)
    assert errors >= 2, "a test that never errs takes longer than it need"


def test_the_log_ratio_is_that_of_the_likeliest_distributions() -> None:
    """Against a search over all distributions on three outcomes with a given mean."""
    wins, splits, losses = 40, 30, 20
    test = Sprt(0, 80)

    def best(score: float) -> float:
        # won - lost = 2 * score - 1 leaves one number free
        lost = np.linspace(1e-6, 1 - score - 1e-6, 200_001)
        won = lost + 2 * score - 1
        fits = (won > 0) & (won + lost < 1)
        lost, won = lost[fits], won[fits]
        logs = wins * np.log(won) + splits * np.log(1 - won - lost) + losses * np.log(lost)
        return float(logs.max())

    expected = best(expected_score(80)) - best(expected_score(0))
    assert test.log_ratio((losses, 0, splits, 0, wins)) == pytest.approx(expected, abs=0.01)
    mirror = Sprt(-80, 0)
    assert mirror.log_ratio((wins, 0, splits, 0, losses)) == pytest.approx(-expected, abs=0.01)
    assert test.log_ratio((0, 0, 0, 0, 0)) == 0


@pytest.mark.parametrize("batch", [4, 64, 500])
def test_a_settled_question_stops_the_match_at_the_same_pair_in_any_batch(batch: int) -> None:
    result = play_match("rule_based", "random", games=500, seed=1, batch=batch, sprt=Sprt(0, 100))
    assert result.verdict is Verdict.UPPER
    assert result.complete
    assert len(result.games) == 24
    assert [game.pair for game in result.games] == sorted(2 * [*range(12)])
    assert result.answer().startswith(
        "settled after 24 games: rule_based is at +100 Elo rather than 0"
    )
    whole = play_match("rule_based", "random", games=500, seed=1)
    assert facts(result.games) == facts(whole.games)[:24]
    assert Sprt(0, 100).judge((0, 0, 0, 0, 12)) is Verdict.UPPER
    assert Sprt(0, 100).judge((0, 0, 0, 0, 11)) is Verdict.OPEN


def test_an_open_question_says_so() -> None:
    result = play_match("random", "random", games=20, sprt=Sprt(-10, 10))
    assert result.verdict is Verdict.OPEN
    assert result.answer().startswith("not settled after 20 games (log-likelihood ratio")
    assert result.complete
    lower = play_match("random", "rule_based", games=500, sprt=Sprt(0, 100))
    assert lower.verdict is Verdict.LOWER
    assert "random is at 0 Elo rather than +100" in lower.answer()
    assert play_match("random", "rule_based", games=2).answer() == ""


@pytest.mark.parametrize(
    "numbers", [(10, 0), (5, 5), (float("nan"), 5), (0, 5000), (0, 10, 0, 0.1), (0, 10, 0.1, 0.5)]
)
def test_a_question_without_an_answer_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(PylosError, match="got"):
        Sprt(*numbers)


# Tournaments


def test_a_tournament_rates_everyone_and_prints_a_cross_table() -> None:
    result = tournament(["random", "rule_based", "alphabeta:2"], games=40, seed=2)
    assert list(result.ratings) == ["alphabeta:2", "rule_based", "random"]
    assert result.ratings["random"][:3] == (0, 0, 0)
    assert [(match.first, match.second) for match in result.matches] == [
        ("random", "rule_based"),
        ("random", "alphabeta:2"),
        ("rule_based", "alphabeta:2"),
    ]
    assert result.between("random", "rule_based") == result.between("rule_based", "random")[::-1]
    assert result.tally("random").games == 80
    head, *rows = result.table().splitlines()
    assert head.split() == ["player", "Elo", "95", "%", "games", "score", "1", "2", "3"]
    assert [row.split()[1] for row in rows[:3]] == list(result.ratings)
    assert "anchor" in rows[2]
    assert rows[0].split()[-1] == f"{result.between('alphabeta:2', 'random').score:.3f}"
    assert result.complete
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["players"][0] == "random"


def test_an_anchor_who_does_not_play_is_refused_before_the_games() -> None:
    def never(game: Game) -> None:
        raise AssertionError("a game was played")

    with pytest.raises(PylosError, match="'perfect' is none of the players"):
        tournament(["random", "rule_based"], anchor="perfect", on_game=never)
    ratings = tournament(["random", "rule_based"], games=4, anchor="rule_based").ratings
    assert ratings["rule_based"] == Rating(0, 0, 0, 4, False)


def test_what_only_the_prior_keeps_finite_is_marked() -> None:
    table = tournament(["random", "alphabeta:2"], games=20).table()
    assert "*" in table.splitlines()[1]
    assert "read it as a lower bound" in table


def test_repeated_openings_are_reported() -> None:
    result = play_match("rule_based", "random", games=12, opening_plies=1)
    assert result.num_openings == 3
    assert "openings came more than once" in str(result)
    assert "more than once" not in str(play_match("rule_based", "random", games=12))
    assert (
        "more than once" in tournament(["rule_based", "random"], games=12, opening_plies=1).table()
    )


def test_a_contest_broken_off_counts_finished_pairs() -> None:
    run = Contest(["random", "rule_based", "alphabeta:1"], Conditions(games=40, batch=20))

    def interrupt(game: Game) -> None:
        if game.pair == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.play(interrupt)
    standings = run.tournament()
    assert not standings.complete
    assert "not all games were played" in standings.table()
    for match in standings.matches:
        assert 0 < len(match.games) < 40
        for straight, swapped in zip(match.games[0::2], match.games[1::2], strict=True):
            assert straight.opening is swapped.opening
            assert straight.white == swapped.black == match.first
    fresh = Contest(["random", "rule_based", "alphabeta:1"], Conditions(games=40)).tournament()
    assert fresh.ratings == {}
    assert "no ratings" in fresh.table()
    assert "no pair was finished" in str(fresh.matches[0])
    assert json.dumps(fresh.to_dict(), allow_nan=False)


# The command line

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_match_is_shown_and_saved(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "games.txt"
    code, out, _ = run("rule_based", "random", "--games", "20", "--save", str(path), "--seed", "3")
    assert code == 0
    expected = play_match("rule_based", "random", games=20, seed=3)
    assert str(expected) in out
    assert "rules advanced, seed 3, openings of 6 plies, a draw after 300 plies" in out
    records = read_games(path)
    assert [record.actions for record in records] == [game.actions for game in expected.games]
    for record, game in zip(records, expected.games, strict=True):
        assert record.tags["White"] == game.white
        assert record.tags["Black"] == game.black
        assert record.tags["Round"] == str(game.pair + 1)
        assert record.tags["Event"] == "pylos-arena, seed 3"
        assert record.result == {1.0: "1-0", 0.0: "0-1"}[game.white_points]


def test_saved_draws_say_why_they_ended(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "games.txt"
    run("rule_based", "random", "--games", "2", "--max-plies", "10", "--save", str(path))
    assert [(r.result, r.tags["Termination"]) for r in read_games(path)] == [("*", "ply limit")] * 2


def test_a_tournament_is_shown_plotted_and_given_as_json(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "ratings.png"
    names = ["random", "rule_based", "alphabeta:1"]
    code, out, _ = run(*names, "--games", "10", "--plot", str(plot), "--rules", "mature")
    assert code == 0
    expected = tournament(names, "mature", games=10)
    assert expected.table() in out
    assert plot.read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(*names, "--games", "10", "--json", "--rules", "mature", "--anchor", "mean")
    data = json.loads(out)
    assert data["rules"] == "mature"
    assert data["matches"] == json.loads(json.dumps(expected.to_dict()))["matches"]
    assert sum(rating["elo"] for rating in data["ratings"].values()) == pytest.approx(0, abs=1e-9)


def test_an_early_stop_is_asked_for_by_option(run: Run) -> None:
    arguments = ["rule_based", "random", "--games", "400", "--sprt", "0", "100"]
    code, out, _ = run(*arguments, "--seed", "1")
    assert code == 0
    assert "settled after 24 games: rule_based is at +100 Elo rather than 0" in out
    _, out, _ = run(*arguments, "--alpha", "0.001", "--beta", "0.001", "--json")
    question = json.loads(out)["matches"][0]["sprt"]
    assert (question["alpha"], question["verdict"]) == (0.001, "elo1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random"], "at least two players"),
        (["random", "random"], "'random' is named twice"),
        (["random", "chess"], "unknown agent 'chess': expected one of random, rule_based"),
        (["random", "alphabeta:x"], "such as 'alphabeta:4'"),
        (["random", "rule_based", "--games", "5"], "games must be even"),
        (["random", "rule_based", "--games", "many"], "invalid int value"),
        (["random", "rule_based", "--rules", "chess"], "unknown rules 'chess'"),
        (["random", "rule_based", "--anchor", "perfect"], "'perfect' is none of the players"),
        (["random", "rule_based", "--save", "{folder}"], "cannot write .*: Is a directory"),
        (["random", "rule_based", "--save", "{folder}/no/g.txt"], "cannot write .*: No such file"),
        (["random", "rule_based", "--plot", "{folder}/no/p.png"], "cannot write .*: No such file"),
        (["random", "rule_based", "--plot", "{folder}/p.xyz"], "name ends in one of"),
        (["random", "rule_based", "--sprt", "10", "0"], "the lower one first, got 10 and 0"),
        (["random", "rule_based", "--alpha", "0.1"], "--alpha belongs to --sprt"),
        (["random", "rule_based", "alphabeta:1", "--sprt", "0", "10"], "about two players"),
    ],
)
def test_mistakes_are_refused_before_anything_is_played(
    run: Run,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Contest, "play", lambda *_: pytest.fail("a game was played"))
    code, out, error = run(*(word.format(folder=tmp_path) for word in arguments))
    assert code == 2
    assert out == ""
    last = error.splitlines()[-1]
    assert last.startswith("pylos-arena: error: ")
    assert re.search(message, last)
    assert list(tmp_path.iterdir()) == [], "a check leaves no file behind"


def test_a_player_who_cannot_play_is_refused_before_anything_is_played(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path))
    code, _, error = run("random", "perfect")
    assert code == 2
    assert "pylos-arena: error: perfect: " in error


def test_a_check_of_the_output_keeps_what_is_there(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "games.txt"
    path.write_text("precious")
    run("random", "chess", "--save", str(path))
    assert path.read_text() == "precious"


def test_ctrl_c_shows_and_saves_the_result_so_far(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Iterator[Played]:
        yield from itertools.islice(play_games(*arguments), 31)
        raise KeyboardInterrupt

    monkeypatch.setattr("trainers.arena.contest.play_games", interrupted)
    path = tmp_path / "games.txt"
    code, out, error = run("random", "rule_based", "--games", "100", "--save", str(path))
    assert code == 130
    assert "stopped: finished pairs only" in error
    saved = read_games(path)
    assert 0 < len(saved) <= 30
    assert f"random - rule_based: {len(saved)} games of 100" in out


def test_a_player_who_breaks_the_rules_ends_the_match_with_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def illegal(*arguments: Any) -> Iterator[Played]:
        raise IllegalMoveError("random: action 302 is illegal")

    monkeypatch.setattr("trainers.arena.contest.play_games", illegal)
    code, _, error = run("random", "rule_based")
    assert code == 1
    assert error == "pylos-arena: error: random: action 302 is illegal\n"


@pytest.mark.parametrize("missing", ["scipy", "matplotlib"])
def test_a_missing_package_is_named_with_the_way_to_install_it(
    run: Run, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    code, _, error = run("random", "rule_based", "--plot", str(tmp_path / "p.png"))
    assert code == 2
    assert missing in error.splitlines()[-1]
    assert "pip install 'pylos-env[train]'" in error


def test_help_names_every_option(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for word in (
        *("--rules", "--games", "--opening-plies", "--max-plies", "--seed", "--batch", "--sprt"),
        *("--alpha", "--beta", "--anchor", "--save", "--plot", "--json", "alphabeta:<depth>"),
    ):
        assert word in out


def in_a_process(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "trainers.arena"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_runs_as_a_module_and_prints_no_bar_into_a_pipe() -> None:
    done = in_a_process("random", "rule_based", "--games", "4")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "random - rule_based: 4 games, 2 pairs from 2 openings" in done.stdout


def test_importing_the_arena_loads_nothing_heavy() -> None:
    heavy = ("torch", "rich", "matplotlib", "hydra")
    code = f"import sys, trainers.arena.cli; print([n for n in {heavy!r} if n in sys.modules])"
    assert in_a_process(code=code).stdout.strip() == "[]"


def test_a_terminal_gets_a_bar_and_ctrl_c_a_result() -> None:
    pexpect = pytest.importorskip("pexpect")
    pytest.importorskip("rich")
    players = ["random", "alphabeta:4"]  # slow enough not to end before Ctrl-C comes
    command = ["-m", "trainers.arena", *players, "--games", "20000", "--batch", "2"]
    child = pexpect.spawn(sys.executable, command, cwd=str(ROOT), encoding="utf-8", timeout=120)
    child.expect(r"([3-9]|[1-9]\d+)/20000")  # two games run: one of three ended ones makes a pair
    child.sendintr()
    child.expect("stopped: finished pairs only")
    child.expect(r"random - alphabeta:4: [1-9]\d* games of 20000")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
