"""The PettingZoo environment: the Farama checkers, the contract, saving and copying, bad input."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest

from pylos_env import IllegalMoveError, Position, pylos_v0, testing

with warnings.catch_warnings():
    # PettingZoo's tests import its own connect_four through an import that it deprecates itself
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import api_test, performance_benchmark, render_test, seed_test

OPTIONS: list[dict[str, Any]] = [
    {},
    {"take_back": "greedy"},
    {"observation": "planes"},
    {"observation": "planes", "take_back": "greedy", "rules": "standard"},
    {"rules": "children", "max_plies": 20},
]

# api_test exempts only PettingZoo's own games, by name, from its doubts about dictionary
# observations with masks; and a won game has no legal action, so its mask is all zeros.
KNOWN_DOUBTS = [
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box",
    r"Action mask numpy array is all zeros \(no legal actions\)",
]


@pytest.fixture
def only_known_doubts() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in KNOWN_DOUBTS:
            warnings.filterwarnings("ignore", message=message)
        yield


def play_out(env: Any, seed: int, max_steps: int = 10_000) -> list[tuple[Any, ...]]:
    """Play legal actions by the environment's own loop; returns what each agent saw."""
    rng = np.random.default_rng(seed)
    seen = []
    for agent in env.agent_iter(max_steps):
        observation, reward, termination, truncation, info = env.last()
        mask = observation["action_mask"]
        assert np.array_equal(mask, info["action_mask"])
        seen.append(
            (
                agent,
                observation["observation"].tobytes(),
                mask.tobytes(),
                reward,
                termination,
                truncation,
            )
        )
        action = None if termination or truncation else int(rng.choice(np.flatnonzero(mask)))
        env.step(action)
    return seen


@pytest.mark.usefixtures("only_known_doubts")
@pytest.mark.parametrize("make", [pylos_v0.env, pylos_v0.raw_env])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_api_test(make: Any, options: dict[str, Any]) -> None:
    api_test(make(**options), num_cycles=200)


@pytest.mark.usefixtures("only_known_doubts")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_seed_test(options: dict[str, Any]) -> None:
    seed_test(lambda: pylos_v0.env(**options), num_cycles=200)


@pytest.mark.usefixtures("only_known_doubts")
def test_render_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    render_test(pylos_v0.env)


@pytest.mark.usefixtures("only_known_doubts")
def test_performance_benchmark_runs(capsys: pytest.CaptureFixture[str]) -> None:
    performance_benchmark(pylos_v0.env())
    assert "turns per second" in capsys.readouterr().out


def test_it_is_registered_with_pettingzoo() -> None:
    env = pettingzoo.make("aec", "pylos/pylos-v0", rules="mature", max_plies=7)
    env.reset()
    assert str(env) == "pylos_v0"
    assert (str(env.unwrapped.rules), env.unwrapped.max_plies) == ("mature", 7)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_spaces_hold_what_agents_see(options: dict[str, Any]) -> None:
    env = pylos_v0.env(**options)
    env.reset()
    for agent in env.agent_iter():
        observation, _, termination, truncation, _ = env.last()
        assert env.observation_space(agent).contains(observation)
        done = termination or truncation
        (other,) = set(env.possible_agents) - {agent}
        assert done or not env.observe(other)["action_mask"].any(), "the player who waits"
        env.step(None if done else env.action_space(agent).sample(observation["action_mask"]))


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (33,)),
        ({"take_back": "greedy"}, (32,)),
        ({"observation": "planes"}, (15, 4, 4)),
        ({"observation": "planes", "take_back": "greedy"}, (14, 4, 4)),
    ],
)
def test_observation_shapes(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    env = pylos_v0.raw_env(**options)
    env.reset()
    assert env.observe("player_0")["observation"].shape == shape
    assert env.observation_space("player_0")["observation"].shape == shape
    assert env.observe("player_0")["observation"].dtype == np.float32
    assert env.observe("player_0")["action_mask"].dtype == np.int8


def test_each_agent_sees_its_own_spheres_as_plus_one() -> None:
    env = pylos_v0.env()
    env.reset()
    env.step(3)
    assert env.observe("player_0")["observation"][3] == 1
    assert env.observe("player_1")["observation"][3] == -1


def test_the_same_agent_stays_selected_while_it_takes_back() -> None:
    env = pylos_v0.env()
    env.reset()
    for action in (0, 8, 1, 9, 4, 10):
        env.step(action)
    assert env.agent_selection == "player_0"
    env.step(5)  # completes a square
    assert env.agent_selection == "player_0"
    assert env.observe("player_0")["observation"][32] == 1
    assert env.observe("player_1")["observation"][32] == 1
    env.step(0)
    assert env.agent_selection == "player_0"
    assert env.observe("player_0")["observation"][32] == 0.5
    env.step(29)
    assert env.agent_selection == "player_1"
    assert str(env.unwrapped.position) == ".W..WW..BBB...../........./..../. b 0"


def test_greedy_takes_back_at_once_the_lowest_free_cells() -> None:
    env = pylos_v0.env(take_back="greedy")
    env.reset()
    for action in (0, 8, 1, 9, 4, 10, 5):
        env.step(action)
    assert env.agent_selection == "player_1"
    assert str(env.unwrapped.position) == "....WW..BBB...../........./..../. b 0"


def test_rewards_are_zero_sum_and_come_at_the_end() -> None:
    for seed in range(30):
        env = pylos_v0.env()
        env.reset()
        total = {"player_0": 0.0, "player_1": 0.0}
        for agent, *_, reward, termination, truncation in play_out(env, seed):
            assert reward == 0 or termination or truncation
            total[agent] += reward
        assert sorted(total.values()) == [-1, 1]


def test_a_game_without_a_winner_is_truncated_not_lost() -> None:
    env = pylos_v0.env(max_plies=10, draw_reward=0.25)
    env.reset()
    seen = play_out(env, seed=1)
    assert len(seen) == 12  # ten plies, then each agent learns of the end
    for *_, reward, termination, truncation in seen[-2:]:
        assert (reward, termination, truncation) == (0.25, False, True)


def test_without_a_limit_nothing_is_truncated() -> None:
    env = pylos_v0.env(max_plies=None)
    env.reset()
    assert not any(truncation for *_, truncation in play_out(env, seed=1))


def test_the_illegal_action_ends_the_game_through_the_wrapper() -> None:
    env = pylos_v0.env()
    env.reset()
    env.step(29)
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.rewards == {"player_0": -1, "player_1": 0}
    env.reset()
    assert len(play_out(env, seed=1)) > 20


@pytest.mark.parametrize("bad", [29, 302, 303, -1, 10**30, np.int64(16)])
def test_raw_env_raises_on_an_illegal_action_and_goes_on(bad: Any) -> None:
    env = pylos_v0.raw_env()
    env.reset()
    with pytest.raises(IllegalMoveError, match=str(bad)):
        env.step(bad)
    assert env.get_state().plies == 0
    assert len(play_out(env, seed=2)) > 20


@pytest.mark.parametrize("bad", [1.0, "3", None, [3], np.array([3, 4]), np.float32(3), object()])
def test_raw_env_refuses_what_is_no_action_and_goes_on(bad: Any) -> None:
    env = pylos_v0.raw_env()
    env.reset()
    with pytest.raises(TypeError, match="an action is an integer from 0 to 302"):
        env.step(bad)
    assert len(play_out(env, seed=2)) > 20


@pytest.mark.parametrize("action", [3, np.int32(3), np.int64(3), np.array(3)])
def test_any_integer_type_is_an_action(action: Any) -> None:
    env = pylos_v0.raw_env()
    env.reset()
    env.step(action)
    assert env.position["1d1"] == "W"


def test_after_the_end_only_reset_helps() -> None:
    env = pylos_v0.raw_env()
    env.reset()
    play_out(env, seed=3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    env.step(0)


@pytest.mark.parametrize("seed", [float("nan"), -1, 1.5, "one"])
def test_a_bad_seed_is_refused_and_the_game_goes_on(seed: Any) -> None:
    env = pylos_v0.env()
    env.reset(seed=4)
    env.step(3)
    with pytest.raises(gymnasium.error.Error, match=r"[Ss]eed"):
        env.reset(seed=seed)
    assert env.unwrapped.position["1d1"] == "W"
    env.step(4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rules": "expert"}, ValueError, "advanced, children, standard, mature"),
        ({"rules": 3}, TypeError, "rules"),
        ({"take_back": "some"}, ValueError, "choose.*greedy"),
        ({"observation": "pixels"}, ValueError, "flat.*planes"),
        ({"max_plies": 0}, ValueError, "max_plies"),
        ({"max_plies": 10.5}, ValueError, "max_plies"),
        ({"draw_reward": float("nan")}, ValueError, "draw_reward"),
        ({"render_mode": "video"}, ValueError, "human, rgb_array, ansi"),
        ({"reward": 1}, TypeError, "reward"),
    ],
)
def test_a_bad_option_says_what_is_expected(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pylos_v0.env(**options)


def test_an_unknown_agent_is_named() -> None:
    env = pylos_v0.env()
    env.reset()
    with pytest.raises(ValueError, match="player_9"):
        env.observe("player_9")


COPIES = {
    "clone": lambda env: env.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("make", [pylos_v0.env, pylos_v0.raw_env])
def test_a_copy_keeps_the_game_in_progress(make: Any, how: str) -> None:
    for steps in (0, 7, 8, 30):
        env = make()
        env.reset(seed=5)
        play_out(env, seed=6, max_steps=steps)
        copied = COPIES[how](env)
        assert type(copied) is type(env)
        assert copied.unwrapped.position == env.unwrapped.position
        original = play_out(env, seed=7)
        assert play_out(copied, seed=7) == original, "a copy goes on as the original does"


@pytest.mark.parametrize("make", [pylos_v0.env, pylos_v0.raw_env])
def test_a_copy_is_independent(make: Any) -> None:
    env = make()
    env.reset()
    copied = env.clone()
    copied.step(3)
    assert env.unwrapped.position == Position.start()
    assert env.agent_selection == "player_0"


@pytest.mark.parametrize("make", [pylos_v0.env, pylos_v0.raw_env])
def test_a_saved_state_is_restored_anywhere_in_the_game(make: Any) -> None:
    env = make()
    env.reset()
    play_out(env, seed=1, max_steps=9)
    state = pickle.loads(pickle.dumps(env.get_state()))
    rest = play_out(env, seed=2)
    env.set_state(state)
    assert env.get_state() == state
    assert play_out(env, seed=2) == rest
    fresh = make()
    fresh.set_state(state)  # without a reset
    assert play_out(fresh, seed=2) == rest


def test_restoring_forgets_the_mask_of_the_game_that_was_left() -> None:
    env = pylos_v0.env()
    env.reset()
    start = env.get_state()
    env.step(3)
    env.last()  # the wrapper remembers this mask, in which 3 is illegal
    env.set_state(start)
    env.step(3)
    assert not any(env.terminations.values())


def test_a_state_of_a_game_ended_by_an_illegal_action_is_restored() -> None:
    env = pylos_v0.env()
    env.reset()
    env.step(29)
    ended = env.get_state()
    env.reset()
    env.set_state(ended)
    for _ in env.agent_iter():
        env.step(None)
    assert env.agents == []


def test_a_state_of_other_rules_is_refused() -> None:
    env = pylos_v0.env(rules="mature")
    env.reset()
    other = pylos_v0.env(rules="standard")
    other.reset()
    with pytest.raises(ValueError, match=r"'mature'.*'standard'"):
        other.set_state(env.get_state())
    with pytest.raises(TypeError, match="GameState"):
        other.set_state({"packed": 3})
    bad = env.get_state()._replace(packed=1 << 20)
    with pytest.raises(ValueError, match="floats"):
        env.set_state(bad)
    state = env.get_state()
    for change in (
        {"agents": ("player_7",)},
        {"agents": ("player_0", "player_0")},
        {"agents": ("player_0",)},
        {"agent_selection": "player_1"},
        {"plies": -5},
        {"plies": "x"},
        {"rewards": ("a", "b")},
        {"terminations": (True, False)},
        {"truncations": (False,)},
    ):
        with pytest.raises(ValueError, match="not a state"):
            env.set_state(state._replace(**change))
        assert env.get_state() == state
    assert len(play_out(env, seed=1)) > 20


def test_saving_before_a_game_is_an_error() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        pylos_v0.raw_env().get_state()


def test_the_environment_plays_the_game_of_the_library() -> None:
    game = testing.random_game("mature", seed=8)
    env = pylos_v0.raw_env(rules="mature", max_plies=None)
    env.reset()
    for position, action in zip(game.positions(), game.actions, strict=False):
        assert env.position == position
        assert np.array_equal(env.infos[env.agent_selection]["action_mask"], position.action_mask())
        env.step(action)
    assert env.terminations == {"player_0": True, "player_1": True}
