"""The Gymnasium environment: one seat against an opponent."""

from __future__ import annotations

import contextlib
import copy
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pylos_env import IllegalMoveError, Position, agents
from pylos_env.single import PylosEnv

OPTIONS: list[dict[str, Any]] = [
    {},
    {"seat": 1},
    {"seat": "random", "opponent": "rule_based", "observation": "planes"},
    {"take_back": "greedy", "opponent": "alphabeta:1", "seat": 1},
    {"rules": "standard", "max_plies": 30, "draw_reward": -0.5},
]


def play_game(env: Any, rng: np.random.Generator, **reset: Any) -> list[Any]:
    observation, info = env.reset(**reset)
    seen = [observation.tobytes(), info["action_mask"].tobytes()]
    while True:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        observation, reward, terminated, truncated, info = env.step(action)
        seen += [observation.tobytes(), info["action_mask"].tobytes(), reward, terminated]
        if terminated or truncated:
            return [*seen, truncated]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_check_env_without_a_warning(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("pylos_env/Pylos-v0", **options).unwrapped)


def test_the_id_can_name_the_module_to_import() -> None:
    env = gymnasium.make("pylos_env:pylos_env/Pylos-v0", opponent="rule_based", seat=1)
    assert isinstance(env.unwrapped, PylosEnv)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_learner_is_on_turn_until_the_game_is_over(options: dict[str, Any]) -> None:
    env = PylosEnv(**options)
    rng = np.random.default_rng(1)
    for seed in range(10):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            assert env.position.side == env.seat
            assert env.observation_space.contains(observation)
            assert np.array_equal(info["action_mask"], env.position.action_mask())
            assert np.array_equal(env.action_masks(), info["action_mask"].astype(bool))
            action = rng.choice(np.flatnonzero(info["action_mask"]))
            observation, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        lost = env.position.side == env.seat
        if terminated:
            assert reward == (-1 if lost else 1)
            assert not info["action_mask"].any()
        else:
            assert reward == env.draw_reward


def test_the_same_seed_gives_the_same_games() -> None:
    env = PylosEnv(opponent="rule_based", seat="random")
    first = [play_game(env, np.random.default_rng(3), seed=11)]
    first += [play_game(env, np.random.default_rng(3)) for _ in range(3)]
    again = PylosEnv(opponent="rule_based", seat="random")
    second = [play_game(again, np.random.default_rng(3), seed=11)]
    second += [play_game(again, np.random.default_rng(3)) for _ in range(3)]
    assert first == second
    assert first[0] != first[1], "games after the first are other ones"


def test_a_random_seat_is_drawn_anew_for_every_game() -> None:
    env = PylosEnv(seat="random")
    seats = []
    for seed in [1, *[None] * 40]:
        env.reset(seed=seed)
        seats.append(env.seat)
    assert set(seats) == {0, 1}


def test_an_illegal_action_costs_one_and_ends_the_game() -> None:
    env = PylosEnv()
    env.reset(seed=1)
    before = env.position
    _, reward, terminated, truncated, info = env.step(29)
    assert (reward, terminated, truncated, info["illegal_action"]) == (-1, True, False, True)
    assert env.position == before
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    assert env.step(0)[4]["illegal_action"] is False


@pytest.mark.parametrize("bad", [1.5, "3", None, [3], np.array([1, 2])])
def test_what_is_no_action_is_refused_and_the_game_goes_on(bad: Any) -> None:
    env = PylosEnv()
    env.reset(seed=1)
    with pytest.raises(TypeError, match="an action is an integer from 0 to 302"):
        env.step(bad)
    env.step(0)


@pytest.mark.parametrize("bad", [303, -1, 10**25])
def test_an_action_out_of_range_is_refused_and_the_game_goes_on(bad: int) -> None:
    env = PylosEnv()
    env.reset(seed=1)
    with pytest.raises(IllegalMoveError, match="expected 0-302"):
        env.step(bad)
    env.step(0)


@pytest.mark.parametrize("seed", [float("nan"), -1, "one"])
def test_a_bad_seed_is_refused_and_the_game_goes_on(seed: Any) -> None:
    env = PylosEnv()
    env.reset(seed=1)
    with pytest.raises(gymnasium.error.Error, match=r"[Ss]eed"):
        env.reset(seed=seed)
    env.step(0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"opponent": "human"}, ValueError, "random, rule_based, alphabeta:<depth>"),
        ({"opponent": 3}, TypeError, "an agent is a name"),
        ({"seat": 2}, ValueError, "0, 1 or 'random'"),
        ({"seat": True}, ValueError, "0, 1 or 'random'"),
        ({"rules": ""}, ValueError, "advanced"),
        ({"max_plies": -3}, ValueError, "max_plies"),
        ({"render_mode": "svg"}, ValueError, "human, rgb_array, ansi"),
    ],
)
def test_a_bad_option_says_what_is_expected(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        PylosEnv(**options)


def test_stepping_before_reset_is_an_error() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        PylosEnv().step(0)


def test_a_function_can_be_the_opponent() -> None:
    seen: list[Position] = []

    def highest(position: Position) -> int:
        seen.append(position)
        return position.legal_actions()[-1]

    env = PylosEnv(opponent=highest, seat=1)
    env.reset(seed=1)
    assert seen == [Position.start()]
    assert env.position["1d4"] == "W"


def test_an_agent_object_can_be_the_opponent() -> None:
    class Lowest(agents.Agent):
        def act(self, position: Position, key: int | None = None) -> int:
            return position.legal_actions()[0]

    env = PylosEnv(opponent=Lowest(), seat=1)
    env.reset(seed=1)
    assert env.position["1a1"] == "W"


def test_an_opponents_illegal_action_is_never_replaced_and_loses_nothing() -> None:
    env = PylosEnv(opponent=lambda position: 29)
    env.reset(seed=1)
    with pytest.raises(IllegalMoveError, match="action 29"):
        env.step(0)
    assert env.position == Position.start()
    env.opponent = agents.make("random")
    env.step(0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_keeps_the_game_and_its_chance(copied: Any) -> None:
    env = PylosEnv(seat=1)
    env.reset(seed=9)
    env.step(env.position.legal_actions()[0])
    other = copied(env)
    for _ in range(5):
        action = env.position.legal_actions()[0]
        assert env.step(action)[0].tolist() == other.step(action)[0].tolist()


def test_the_wheel_of_arguments_reaches_the_environment_through_make() -> None:
    env = gymnasium.make("pylos_env/Pylos-v0", rules="mature", take_back="greedy", seat=1)
    env.reset(seed=1)
    assert str(env.unwrapped.rules) == "mature greedy"
    assert env.observation_space.shape == (32,)


class Failing(agents.Agent):
    """Plays at random until it is told to fail."""

    fails = False

    def act(self, position: Position, key: int | None = None) -> int:
        if self.fails:
            raise RuntimeError("out of order")
        return agents.make("random").act(position, key)


def test_an_opponent_that_fails_changes_nothing() -> None:
    opponent = Failing()
    env, twin = PylosEnv(opponent=opponent, seat=1), PylosEnv(seat=1)
    env.reset(seed=5)
    twin.reset(seed=5)
    for _ in range(3):
        action = env.position.legal_actions()[-1]
        opponent.fails = True
        with pytest.raises(RuntimeError):
            env.step(action)
        with pytest.raises(RuntimeError):
            env.reset()
        with pytest.raises(RuntimeError):
            env.reset(seed=9)
        opponent.fails = False
        env.step(action)
        twin.step(action)
        assert env.position == twin.position
    env.reset()
    twin.reset()
    assert env.position == twin.position, "not even its chance has moved on"


def test_a_failed_reset_keeps_the_seat_of_the_game() -> None:
    opponent = Failing()
    env = PylosEnv(opponent=opponent, seat="random")
    for seed in range(10):
        env.reset(seed=1)
        seat = env.seat
        opponent.fails = True
        with contextlib.suppress(RuntimeError):
            env.reset(seed=seed)
            seat = env.seat  # the learner moved first: nothing failed
        opponent.fails = False
        assert (env.seat, env.position.side) == (seat, seat)


def test_a_bool_is_no_action() -> None:
    env = PylosEnv()
    env.reset(seed=1)
    with pytest.raises(TypeError, match="an action is an integer"):
        env.step(True)


@pytest.mark.parametrize("value", [10**400, "1", None, True])
def test_a_draw_reward_must_be_a_number(value: Any) -> None:
    with pytest.raises(ValueError, match="draw_reward"):
        PylosEnv(draw_reward=value)


def test_a_huge_ply_limit_is_no_limit() -> None:
    env = PylosEnv(max_plies=2**70)
    env.reset(seed=1)
    env.step(0)
