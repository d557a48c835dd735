"""The built-in opponents: legal, repeatable, and as strong as they claim."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from pylos_env import Outcome, Position, PylosError, Rules, agents, kernel
from pylos_env.agents import alphabeta, features
from pylos_env.rules import PRESETS, TAKE_BACK_MODES
from pylos_env.testing import random_game

NAMES = ["random", "rule_based", "alphabeta:2"]


def match_score(first: str, second: str, games: int, rules: str = "advanced") -> float:
    """Share of points of `first`, half the games with each seat; a game without end is a half."""
    code = Rules.of(rules).code
    players = (agents.make(first), agents.make(second))
    packed = np.zeros(games, dtype=np.int64)
    first_seat = np.arange(games) % 2
    points = np.full(games, 0.5)
    playing = np.arange(games)
    for ply in range(300):
        over = np.array([kernel.is_over(int(packed[game]), code) for game in playing], dtype=bool)
        loser = packed[playing[over]] >> kernel.SIDE_SHIFT & 1
        points[playing[over]] = loser != first_seat[playing[over]]
        playing = playing[~over]
        if not playing.size:
            break
        keys = np.array([kernel.draw(int(game), ply) for game in playing])
        movers = packed[playing] >> kernel.SIDE_SHIFT & 1 != first_seat[playing]
        for seat, player in enumerate(players):
            chosen = movers == seat
            games_now = playing[chosen]
            actions = player.act_batch(packed[games_now], Rules.of(rules), keys[chosen])
            for game, action in zip(games_now.tolist(), actions.tolist(), strict=True):
                packed[game] = kernel.play_checked(int(packed[game]), code, action)
                assert packed[game] >= 0, "an illegal action"
    return float(points.mean())


@pytest.mark.parametrize("rules", PRESETS)
def test_rule_based_beats_random(rules: str) -> None:
    assert match_score("rule_based", "random", 400, rules) >= 0.95


@pytest.mark.parametrize("rules", PRESETS)
def test_alphabeta_4_beats_rule_based_clearly(rules: str) -> None:
    assert match_score("alphabeta:4", "rule_based", 200, rules) >= 0.75


def test_looking_further_ahead_is_stronger() -> None:
    assert match_score("alphabeta:4", "alphabeta:2", 200) >= 0.65


@pytest.mark.parametrize("mode", TAKE_BACK_MODES)
@pytest.mark.parametrize("rules", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_legal_in_every_position_of_a_game(
    name: str, rules: str, mode: str
) -> None:
    agent = agents.make(name, seed=1)
    game = random_game(Rules.of(rules, mode), seed=9)  # type: ignore[arg-type]
    for position in list(game.positions())[:-1]:
        legal = position.legal_actions()
        assert agent.act(position) in legal
        policy = agent.policy(position)
        assert policy.shape == (303,)
        assert policy.sum() == pytest.approx(1)
        assert set(np.flatnonzero(policy).tolist()) <= set(legal)


@pytest.mark.parametrize("name", NAMES)
def test_a_key_decides_and_batches_change_nothing(name: str) -> None:
    positions = [p for seed in range(3) for p in list(random_game("mature", seed).positions())[:-1]]
    packed = np.array([position.packed for position in positions])
    keys = np.array([kernel.draw(5, index) for index in range(len(positions))])
    together = agents.make(name).act_batch(packed, Rules.of("mature"), keys)
    alone = agents.make(name)
    for position, key, action in zip(positions, keys.tolist(), together.tolist(), strict=True):
        assert alone.act(position, key) == action


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_repeats_the_choices_of_an_agent(name: str) -> None:
    start = Position.start()
    first = [agents.make(name, seed=4).act(start) for _ in range(3)]
    agent = agents.make(name, seed=4)
    row = [agent.act(start) for _ in range(12)]
    assert set(first) == {row[0]}
    agent.seed(4)
    assert [agent.act(start) for _ in range(12)] == row
    assert len(set(row)) > 1, "equal moves are chosen among by chance"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_alphabeta_equals_plain_minimax(depth: int) -> None:
    agent = agents.AlphaBetaAgent(depth)
    for seed, rules in enumerate(["advanced", "mature", "standard", "children"]):
        for position in list(random_game(rules, seed).positions())[10::7]:
            points = minimax(position, depth)
            assert agent.value(position) == pytest.approx(math.tanh(points / 400))


def minimax(position: Position, depth: int) -> int:
    if position.outcome is not Outcome.ONGOING:
        return -alphabeta.WIN - depth
    if depth == 0:
        return alphabeta.evaluate(position.packed, position.rules.code)
    best = -alphabeta.INFINITY
    for action in position.legal_actions():
        after = position.play(action)
        if after.take_backs_left:
            best = max(best, minimax(after, depth))
        else:
            best = max(best, -minimax(after, depth - 1))
    return best


@pytest.mark.parametrize("name", ["rule_based", "alphabeta:1", "alphabeta:3"])
def test_a_win_on_the_board_is_taken(name: str) -> None:
    position = Position.parse("WWWWWBWWWWBBBBBB/WWWWBBBBB/WWBB/. b 0")
    assert position.reserves == (0, 1)
    assert agents.make(name).act(position) == 29


@pytest.mark.parametrize("name", ["rule_based", "alphabeta:2"])
def test_formations_are_completed_and_blocked(name: str) -> None:
    completes = Position.parse("WW..W....B..B.B./........./..../. w 0")
    assert agents.make(name, seed=1).act(completes) == 5
    blocks = Position.parse("BB..B....W....W./........./..../. w 0")
    assert agents.make(name, seed=1).act(blocks) == 5


def test_threats_are_the_cells_that_complete_a_formation() -> None:
    position = Position.parse("WW..W....B..B.B./........./..../. w 0")
    own = position.white
    cells = kernel.open_cells(own | position.black, position.rules.code)
    found = features.threats(own, cells, position.rules.code)
    brute = [
        cell
        for cell in range(30)
        if cells >> cell & 1 and kernel.completes(own | 1 << cell, cell, position.rules.code)
    ]
    assert [cell for cell in range(30) if found >> cell & 1] == brute == [5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("human", "random, rule_based, alphabeta:<depth>"),
        ("alphabeta", "alphabeta:4"),
        ("alphabeta:x", "alphabeta:4"),
        ("alphabeta:0", "from 1 to"),
        ("alphabeta:99", "from 1 to"),
        ("random:3", "random, rule_based"),
        ("", "random, rule_based"),
    ],
)
def test_a_wrong_name_lists_the_right_ones(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agents.make(name)
    assert issubclass(PylosError, ValueError)


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(TypeError, match="an agent is a name"):
        agents.make(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must define act or policy"):

        class Idle(agents.Agent):
            pass


def test_an_agent_may_give_a_distribution_only() -> None:
    class Halves(agents.Agent):
        def policy(self, position: Position) -> np.ndarray:
            policy = np.zeros(303)
            policy[[3, 7]] = 0.25, 0.75
            return policy

    agent = Halves(seed=1)
    counts = [agent.act(Position.start()) for _ in range(400)]
    assert set(counts) == {3, 7}
    assert 240 < counts.count(7) < 360
    assert agents.make(agent) is agent


OVER = Position.parse("WWWWWBWWWWBBBBBB/WWWWWBBBB/WBBB/. w 0")


@pytest.mark.parametrize("name", NAMES)
def test_no_action_is_given_for_a_game_that_is_over(name: str) -> None:
    with pytest.raises(PylosError, match="the game is over, black wins"):
        agents.make(name).act(OVER)
    assert kernel.random_action(OVER.packed, OVER.rules.code, 5) == -1


@pytest.mark.parametrize("name", NAMES)
def test_any_key_from_zero_up_will_do(name: str) -> None:
    agent = agents.make(name)
    for key in (0, 2**63 - 1, 2**63, 2**70 + 3, np.int64(9)):
        assert agent.act(Position.start(), key) in range(16)  # type: ignore[arg-type]
    for bad in (-1, 1.5, float("nan"), "key"):
        with pytest.raises(ValueError, match="whole number from 0 up"):
            agent.act(Position.start(), bad)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="whole number from 0 up"):
            agents.make(name, seed=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shares",
    [np.zeros(303), np.full(303, np.nan), np.full(303, -1.0), np.ones(5), np.full(303, np.inf)],
)
def test_a_policy_that_is_no_distribution_is_refused(shares: np.ndarray) -> None:
    class Odd(agents.Agent):
        def policy(self, position: Position) -> np.ndarray:
            return shares

    with pytest.raises(PylosError, match="a policy is 303 shares"):
        Odd().act(Position.start())


def test_the_last_key_still_picks_a_possible_action() -> None:
    class Sure(agents.Agent):
        def policy(self, position: Position) -> np.ndarray:
            return np.eye(303)[3]

    assert Sure().act(Position.start(), key=2**63 - 1) == 3


def test_a_class_is_no_agent() -> None:
    with pytest.raises(TypeError, match="got the class"):
        agents.make(agents.RandomAgent)


def test_a_pickled_searcher_leaves_its_table_behind() -> None:
    agent = agents.make("alphabeta:4", seed=3)
    agent.act(Position.start())
    data = pickle.dumps(agent)
    assert len(data) < 10_000
    assert pickle.loads(data).act(Position.start(), key=5) == agent.act(Position.start(), key=5)
