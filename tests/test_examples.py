"""Every example runs, with tiny numbers, where its library is installed.

RLlib pins an older Gymnasium and has an environment of its own: `make test-rllib`.
"""

from __future__ import annotations

import importlib.util
import inspect
import runpy
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pylos_env
from pylos_env import pylos_v0

EXAMPLES = Path(__file__).parent.parent / "examples"
LIBRARIES = {
    "maskable_ppo": "sb3_contrib",
    "optuna_study": "optuna",
    "rllib_action_mask": "ray.rllib",
    "tianshou_dqn": "tianshou",
    "torchrl_pettingzoo": "torchrl",
}


def load(name: str) -> ModuleType:
    """Import an example, or skip the test where its library is missing."""
    library = LIBRARIES[name]
    where = "make test-rllib" if library == "ray.rllib" else "pip install -e '.[dev]'"
    pytest.importorskip(library, reason=f"needs {library}: {where}")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LIBRARIES)


@pytest.mark.parametrize("name", LIBRARIES)
def test_help_names_every_option_of_train(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in inspect.signature(module.train).parameters:
        assert f"--{option.replace('_', '-')} " in text


# MaskablePPO


def test_maskable_ppo_learns_to_beat_random_by_legal_moves() -> None:
    result = load("maskable_ppo").train(steps=16_384, games=60, seed=0)
    assert result.illegal == 0
    assert result.after >= 0.65  # 0.77 to 0.88 on four seeds, of 100 games each


def test_maskable_ppo_example_would_notice_illegal_moves() -> None:
    example = load("maskable_ppo")
    counter = example.CountIllegal()
    games = example.make_games("random", num_envs=2)
    model = example.MaskablePPO("MlpPolicy", games, n_steps=16, batch_size=32, seed=0, device="cpu")
    model.learn(32, callback=counter, use_masking=False)
    assert counter.count > 0


def test_masks_reach_maskable_ppo_through_wrappers_and_several_games() -> None:
    games = load("maskable_ppo").make_games("random", num_envs=3)
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

    games.seed(0)
    games.reset()
    assert is_masking_supported(games)
    masks = get_action_masks(games)
    assert masks.dtype == np.bool_
    positions = games.get_attr("position")
    np.testing.assert_array_equal(masks, [position.action_mask() for position in positions])


# TorchRL

torchrl_and_pettingzoo = pytest.mark.filterwarnings(
    "ignore:PettingZoo in TorchRL is tested using version:UserWarning"
)


@torchrl_and_pettingzoo
def test_torchrl_plays_legal_moves_and_lets_a_player_move_twice() -> None:
    result = load("torchrl_pettingzoo").train(updates=2, games=3, eval_games=4)
    assert result.illegal == 0
    assert result.repeats > 0
    assert result.moves > 2 * 3 * 30


@torchrl_and_pettingzoo
def test_torchrl_policy_draws_from_the_mask_of_the_player_on_turn() -> None:
    example = load("torchrl_pettingzoo")
    env = example.make_env()
    data = env.rollout(example.MAX_PLIES, example.make_policy(env))
    turn = data["players", "mask"]  # [time, 2]
    assert (turn.sum(dim=1) == 1).all()
    assert (
        data["players", "action_mask"].gather(-1, data["players", "action"][..., None])[turn].all()
    )
    assert data["next", "players", "reward"].flatten(1).abs().sum(dim=1).tolist() == [
        *[0] * (len(data) - 1),
        2,
    ]


# Tianshou


def test_tianshou_dqn_plays_legal_moves() -> None:
    result = load("tianshou_dqn").train(steps=400, games=8)
    assert result.illegal == 0
    assert result.games >= 8 + 8 + 4


def test_tianshou_example_would_notice_illegal_moves() -> None:
    example = load("tianshou_dqn")
    env = example.PettingZooEnv(pylos_v0.env())
    observation, _ = env.reset()
    _, rewards, terminated, _, _ = env.step(observation["mask"].index(False))
    result = example.Result()
    result.count(np.array([rewards, [1, -1], [0, 0]]))
    assert terminated
    assert (result.games, result.illegal) == (3, 1)


# RLlib


def test_rllib_trains_with_its_masking_module() -> None:
    returns = load("rllib_action_mask").train(iterations=1, steps=256)
    assert len(returns) == 1
    assert -1 <= returns[0] <= 1


def test_rllib_adapter_names_and_types_and_refuses_illegal_moves() -> None:
    env = load("rllib_action_mask").RllibPylos({"opponent": "random", "seat": 1})
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    np.testing.assert_array_equal(observation["action_mask"], info["action_mask"])
    observation, reward, *_ = env.step(int(observation["action_mask"].argmax()))
    assert env.observation_space.contains(observation)
    assert isinstance(reward, float)
    with pytest.raises(pylos_env.IllegalMoveError, match="outside the mask"):
        env.step(int(observation["action_mask"].argmin()))


# Optuna

TINY = {
    "alphazero": [
        "network.width=16",
        "selfplay={games: 32, backend: threads, groups: 1, plies_per_cycle: 8, opening_plies: 8}",
        "replay.start=100",
        "learner={batch: 64, warmup: 5}",
    ],
    "ppo": ["network.width=16", "rollout={games: 32, plies: 16}", "update.minibatch=256"],
}


@pytest.mark.parametrize(("trainer", "budget"), [("alphazero", 150), ("ppo", 2048)])
def test_optuna_study_goes_on_where_it_stopped(
    trainer: str, budget: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load("optuna_study")
    options = {
        "trainer": trainer,
        "budget": budget,
        "rules": "advanced levels=3",
        "every": 100,
        "folder": str(tmp_path),
        "overrides": TINY[trainer],
    }
    first = example.train(trials=1, **options)
    assert first.trials == 1
    assert 0 < first.share < 1
    second = example.train(trials=2, **options)
    assert second.trials == 2
    assert second.share >= first.share
    assert set(second.knobs) == set(first.knobs)
    assert capsys.readouterr().out.count("trial ") == 2, "a finished trial was run again"
    assert len(list(tmp_path.glob(f"{trainer}_*/checkpoints"))) == 2
    assert (tmp_path / f"{trainer}.png").stat().st_size > 10_000
