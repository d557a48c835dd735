"""The Gymnasium vector environment: exactly N single ones, in every autoreset mode."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pylos_env import IllegalMoveError, Position, agents
from pylos_env.single import PylosEnv
from pylos_env.vector import PylosVectorEnv

NUM_ENVS = 6
OPTIONS: list[dict[str, Any]] = [
    {},
    {"seat": 1},
    {"seat": "random", "opponent": "rule_based"},
    {"opponent": "alphabeta:2", "observation": "planes", "rules": "mature"},
    {"take_back": "greedy", "seat": "random"},
    {"max_plies": 12, "draw_reward": 0.5, "seat": "random"},
]
MODES = list(AutoresetMode)


def actions_for(infos: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Legal actions, now and then an illegal one; anything where a game is over."""
    actions = np.zeros(NUM_ENVS, dtype=np.int64)
    for game, mask in enumerate(infos["action_mask"]):
        legal = np.flatnonzero(mask)
        wild = rng.random() < 0.01 or not legal.size
        actions[game] = rng.integers(303) if wild else rng.choice(legal)
    return actions


def assert_same(ours: Any, theirs: Any) -> None:
    assert data_equivalence(ours, theirs, exact=True), f"{ours}\n{theirs}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_behaves_exactly_as_single_environments(
    options: dict[str, Any], mode: AutoresetMode
) -> None:
    ours = gymnasium.make_vec(
        "pylos_env/Pylos-v0", num_envs=NUM_ENVS, autoreset_mode=mode, **options
    )
    assert isinstance(ours, PylosVectorEnv)
    assert ours.metadata["autoreset_mode"] is mode
    theirs = SyncVectorEnv([lambda: PylosEnv(**options)] * NUM_ENVS, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space

    rng = np.random.default_rng(0)
    result = ours.reset(seed=40)
    assert_same(result, theirs.reset(seed=40))
    infos = result[1]
    ends = 0
    for _ in range(300):
        actions = actions_for(infos, rng)
        result = ours.step(actions)
        assert_same(result, theirs.step(actions))
        *_, terminated, truncated, infos = result
        over = terminated | truncated
        ends += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            again = ours.reset(options={"reset_mask": over})
            assert_same(again, theirs.reset(options={"reset_mask": over.copy()}))
            masks = np.where(over[:, None], again[1]["action_mask"], infos["action_mask"])
            infos = {"action_mask": masks}
    assert ends > 10


def test_seeds_can_be_given_one_by_one() -> None:
    seeds = [5, None, 7, 8, 9, 10]
    ours = PylosVectorEnv(NUM_ENVS, seat=1)
    theirs = SyncVectorEnv([lambda: PylosEnv(seat=1)] * NUM_ENVS)
    ours.reset(seed=1)
    theirs.reset(seed=1)
    observation, _ = ours.reset(seed=seeds)
    expected, _ = theirs.reset(seed=seeds)
    seeded = [0, 2, 3, 4, 5]
    assert np.array_equal(observation[seeded], expected[seeded])
    assert np.array_equal(observation, expected), "None goes on with the game's own stream"


def test_rows_are_independent_of_their_neighbours() -> None:
    """A game plays alike in any company: alone, or as one of many."""
    many = PylosVectorEnv(8, seat=1, opponent="rule_based")
    alone = PylosVectorEnv(1, seat=1, opponent="rule_based")
    many.reset(seed=100)
    alone.reset(seed=103)
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = np.array([rng.choice(p.legal_actions() or [0]) for p in many.positions])
        all_games = many.step(actions)
        one_game = alone.step(actions[3:4])
        for ours, theirs in zip(all_games[:4], one_game[:4], strict=True):
            assert np.array_equal(ours[3:4], theirs)


def test_results_are_fresh_arrays() -> None:
    env = PylosVectorEnv(4)
    first = env.reset(seed=1)
    kept = copy.deepcopy(first)
    second = env.step(np.zeros(4, dtype=np.int64))
    assert_same(first, kept)
    assert not np.shares_memory(first[0], second[0])


def test_a_finished_game_must_be_reset_where_autoreset_is_disabled() -> None:
    env = PylosVectorEnv(3, autoreset_mode="Disabled")
    env.reset(seed=1)
    env.step(np.array([0, 29, 0]))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"games \[1\]"):
        env.step(np.array([1, 1, 1]))
    env.reset(options={"reset_mask": np.array([False, True, False])})
    actions = np.array([position.legal_actions()[0] for position in env.positions])
    assert not env.step(actions)[2].any()


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        ([0, 0], TypeError),
        ([0.0, 1.0, 2.0], TypeError),
        ("abc", TypeError),
        (None, TypeError),
        ([0, 303, 0], IllegalMoveError),
        ([0, -1, 0], IllegalMoveError),
    ],
)
def test_bad_actions_are_refused_and_the_games_go_on(actions: Any, error: type[Exception]) -> None:
    env = PylosVectorEnv(3)
    env.reset(seed=1)
    with pytest.raises(error):
        env.step(actions)
    assert env.positions == (Position.start(),) * 3
    env.step([0, 1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs"),
        ({"num_envs": 2.5}, "num_envs"),
        ({"seat": "left"}, "0, 1 or 'random'"),
        ({"autoreset_mode": "Later"}, "NextStep, SameStep, Disabled"),
        ({"render_mode": "human"}, "rgb_array, ansi"),
    ],
)
def test_a_bad_option_says_what_is_expected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PylosVectorEnv(**options)


@pytest.mark.parametrize("seed", [[1, 2], "ab", -1, float("nan"), [1, float("nan"), 2]])
def test_bad_seeds_are_refused(seed: Any) -> None:
    env = PylosVectorEnv(3)
    with pytest.raises((ValueError, TypeError, gymnasium.error.Error)):
        env.reset(seed=seed)
    env.reset(seed=1)


@pytest.mark.parametrize(
    "mask", [[True, False], np.array([1, 0, 1]), np.zeros(3, dtype=bool), np.ones(2, dtype=bool)]
)
def test_a_bad_reset_mask_is_refused(mask: Any) -> None:
    env = PylosVectorEnv(3)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": mask})


def test_stepping_before_reset_is_an_error() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        PylosVectorEnv(2).step([0, 0])


def test_an_opponents_illegal_action_is_named_and_undoes_the_step() -> None:
    def stubborn(position: Position) -> int:
        return 7

    env = PylosVectorEnv(3, opponent=stubborn)
    env.reset(seed=1)
    env.step([0, 1, 2])
    before = env.positions
    with pytest.raises(IllegalMoveError, match="stubborn in game 0: action 7"):
        env.step([3, 4, 5])
    assert env.positions == before


def test_render_gives_one_picture_a_game() -> None:
    env = PylosVectorEnv(2, render_mode="ansi")
    env.reset(seed=1)
    frames = env.render()
    assert frames is not None
    assert len(frames) == 2
    assert all(isinstance(frame, str) for frame in frames)
    env.close()


def test_a_game_that_was_never_begun_cannot_be_stepped() -> None:
    env = PylosVectorEnv(3, seat=1)
    env.reset(seed=1, options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"games \[1\]"):
        env.step([0, 0, 0])
    env.reset(options={"reset_mask": np.array([False, True, False])})
    env.step([position.legal_actions()[0] for position in env.positions])


@pytest.mark.parametrize("answer", [10**30, 303, -1, 2.5, True, None])
def test_an_opponents_nonsense_is_refused_and_undoes_the_step(answer: Any) -> None:
    env = PylosVectorEnv(2, opponent=lambda position: answer)
    env.reset(seed=1)
    with pytest.raises((TypeError, IllegalMoveError)):
        env.step([0, 1])
    assert env.positions == (Position.start(),) * 2


def test_an_opponent_must_answer_every_game() -> None:
    class Lazy(agents.Agent):
        def act(self, position: Position, key: int | None = None) -> int:
            return 0

        def act_batch(self, packed: Any, rules: Any, keys: Any) -> Any:
            return np.zeros(1, dtype=np.int64)

    env = PylosVectorEnv(3, opponent=Lazy())
    env.reset(seed=1)
    with pytest.raises(TypeError, match="expected 3 integer actions"):
        env.step([1, 2, 3])


def test_a_huge_ply_limit_is_no_limit() -> None:
    env = PylosVectorEnv(2, max_plies=2**70)
    env.reset(seed=1)
    env.step([0, 1])
