"""Self-play in batches: the same games as one by one, the same numbers in any thread count."""

from __future__ import annotations

import multiprocessing
from typing import Any

import gymnasium
import numpy as np
import pytest

from pylos_env import IllegalMoveError, Position, Rules, kernel
from pylos_env.observation import Observer
from pylos_env.vector import SelfPlayBatch, SelfPlayVectorEnv

OPTIONS: list[dict[str, Any]] = [
    {},
    {"rules": "mature", "observation": "planes"},
    {"take_back": "greedy"},
    {"rules": "standard", "max_plies": 17, "draw_reward": 0.25},
]


def random_actions(batch: SelfPlayBatch, rng: np.random.Generator) -> np.ndarray:
    noise = rng.random(batch.action_mask.shape) * batch.action_mask
    return noise.argmax(axis=1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_game_is_the_game_of_the_library(options: dict[str, Any]) -> None:
    num_games = 9
    env = SelfPlayVectorEnv(num_games, **options)
    rules = env.rules
    observer = Observer(options.get("observation", "flat"), rules)
    limit = options.get("max_plies", 300)
    positions = [Position.start(rules)] * num_games
    plies = [0] * num_games
    rng = np.random.default_rng(0)
    batch = env.reset()
    ends = 0
    for _ in range(400):
        for game, position in enumerate(positions):
            assert batch.to_move[game] == position.side
            assert np.array_equal(batch.action_mask[game], position.action_mask())
            view = observer.observe(position.packed, position.side)
            assert np.array_equal(batch.observation[game], view)
        actions = random_actions(batch, rng)
        movers = [position.side for position in positions]
        batch = env.step(actions)
        assert batch.mover.tolist() == movers
        for game in range(num_games):
            after = positions[game].play(int(actions[game]))
            plies[game] += 1
            won = not after.legal_actions()
            cut = not won and plies[game] >= limit
            assert env.reached[game] == after.packed
            assert batch.terminated[game] == won
            assert batch.truncated[game] == cut
            reward = (1 if after.side != movers[game] else -1) if won else 0
            assert batch.reward[game] == (env.draw_reward if cut else reward)
            if won or cut:
                after, plies[game] = Position.start(rules), 0
                ends += 1
            positions[game] = after
    assert ends > num_games


def test_the_mover_stays_while_it_takes_back() -> None:
    env = SelfPlayVectorEnv(1)
    env.reset()
    for action in (0, 8, 1, 9, 4, 10):
        batch = env.step([action])
        assert batch.mover[0] != batch.to_move[0]
    batch = env.step([5])
    assert batch.mover[0] == batch.to_move[0] == 0


def test_any_number_of_threads_gives_the_same_games() -> None:
    results = []
    for num_threads in (1, 2, 3):
        env = SelfPlayVectorEnv(13_000, num_threads=num_threads, rules="mature")
        rng = np.random.default_rng(3)
        batch = env.reset()
        rewards = []
        for _ in range(50):
            batch = env.step(random_actions(batch, rng))
            rewards.append(batch.reward.copy())
        results.append((env.packed.copy(), np.stack(rewards), batch.observation.copy()))
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            assert np.array_equal(ours, theirs)


def test_buffers_are_written_in_place() -> None:
    env = SelfPlayVectorEnv(4)
    first = env.reset()
    second = env.step([0, 1, 2, 3])
    assert first is second


def test_a_callers_arrays_are_filled_instead() -> None:
    env = SelfPlayVectorEnv(4)
    mine = env.new_batch()
    kept = env.reset()
    before = kept.observation.copy()
    assert env.step([0, 1, 2, 3], out=mine) is mine
    assert mine.observation[1, 1] == -1
    assert np.array_equal(kept.observation, before)
    rollout = np.zeros((5, 4, 33), dtype=np.float32)  # a row of a larger array serves too
    env.step([4, 5, 6, 7], out=mine._replace(observation=rollout[2]))
    assert rollout[2].any()
    assert not rollout[1].any()


@pytest.mark.parametrize(
    "bad",
    [
        {"observation": np.zeros((4, 32), dtype=np.float32)},
        {"reward": np.zeros(4, dtype=np.float64)},
        {"action_mask": np.zeros((303, 4), dtype=np.int8).T},
    ],
)
def test_unfit_arrays_are_refused(bad: dict[str, Any]) -> None:
    env = SelfPlayVectorEnv(4)
    env.reset()
    with pytest.raises(ValueError, match=f"out.{next(iter(bad))} must be"):
        env.step([0, 1, 2, 3], out=env.new_batch()._replace(**bad))
    env.step([0, 1, 2, 3])


@pytest.mark.parametrize("num_games", [3, 9000])
def test_an_illegal_action_is_named_and_changes_nothing(num_games: int) -> None:
    env = SelfPlayVectorEnv(num_games)
    env.reset()
    env.step(np.arange(num_games) % 16)
    batch = env.step(_legal(env))
    everything = (env.packed, env.plies, env.reached, *batch)
    before = [array.copy() for array in everything]
    actions = _legal(env)
    actions[num_games - 1] = 29
    with pytest.raises(IllegalMoveError, match=rf"game {num_games - 1}: action 29 .*4a1"):
        env.step(actions)
    for kept, now in zip(before, everything, strict=True):
        assert np.array_equal(now, kept)
    env.step(_legal(env))


def _legal(env: SelfPlayVectorEnv) -> np.ndarray:
    return np.array([kernel.legal_actions(int(p), env.rules.code)[0] for p in env.packed])


@pytest.mark.parametrize(
    ("actions", "error"),
    [([0], TypeError), ([0.5, 1], TypeError), ([[0, 1]], TypeError), ([0, 999], IllegalMoveError)],
)
def test_bad_actions_are_refused_and_the_games_go_on(actions: Any, error: type[Exception]) -> None:
    env = SelfPlayVectorEnv(2)
    env.reset()
    with pytest.raises(error):
        env.step(actions)
    assert not env.packed.any()
    env.step([0, 1])


def test_games_can_begin_anywhere() -> None:
    position = Position.parse("WW.BWWB.W.BB..../........./..../. b 0", "mature")
    env = SelfPlayVectorEnv(2, rules="mature")
    batch = env.reset(np.array([position.packed, 0]))
    assert batch.to_move.tolist() == [1, 0]
    assert np.array_equal(batch.action_mask[0], position.action_mask())


@pytest.mark.parametrize("packed", [[0, 1 << 29], [0, 1 << 17], [0], [0.0, 1.0]])
def test_impossible_beginnings_are_refused(packed: list[Any]) -> None:
    env = SelfPlayVectorEnv(2)
    with pytest.raises(ValueError, match=r"expected 2 packed|floats|over|won"):
        env.reset(np.array(packed))


@pytest.mark.parametrize("options", [{"num_games": 0}, {"num_games": 2, "num_threads": 0}])
def test_bad_counts_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="whole number from 1 up"):
        SelfPlayVectorEnv(**options)


def test_rules_can_be_a_record() -> None:
    env = SelfPlayVectorEnv(1, rules=Rules(lines=False))
    assert env.rules == Rules(lines=False)


def _step_in_child(queue: Any) -> None:
    env = SelfPlayVectorEnv(9000, num_threads=2)
    env.reset()
    env.step(np.zeros(9000, dtype=np.int64))
    queue.put(int(env.packed[0]))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_threads_work_in_a_forked_child_too() -> None:
    queue: Any = multiprocessing.get_context("fork").Queue()
    _step_in_child(queue)
    child = multiprocessing.get_context("fork").Process(target=_step_in_child, args=(queue,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert queue.get(timeout=5) == queue.get(timeout=5)


def test_stepping_before_reset_is_an_error() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        SelfPlayVectorEnv(2).step([0, 1])


def test_games_restart_from_given_positions() -> None:
    env = SelfPlayVectorEnv(5)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.restart(np.array([0]), np.array([0]))
    env.reset()
    env.step([0, 1, 2, 3, 4])
    position = Position.start().play(5).play(6).play(7)
    others = env.packed[[0, 2, 4]].tolist()
    batch = env.restart(np.array([1, 3]), np.array([position.packed, kernel.START]))
    assert env.packed.tolist() == [others[0], position.packed, others[1], kernel.START, others[2]]
    assert env.plies.tolist() == [1, 0, 1, 0, 1]
    assert batch.to_move.tolist() == [1, 1, 1, 0, 1]
    assert np.array_equal(batch.action_mask[1], position.action_mask())
    env.step(batch.action_mask.argmax(axis=1))
    assert env.plies.tolist() == [2, 1, 2, 1, 2]
