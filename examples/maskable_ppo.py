"""MaskablePPO on one seat of Pylos, against an opponent of your choice.

    pip install "pylos-env" sb3-contrib
    python maskable_ppo.py --steps 40000 --opponent random

What it shows: `pylos_env/Pylos-v0` answers `action_masks()`, the method sb3-contrib looks for, so
no `ActionMasker` and no wrapper of your own is needed. The masks also come through the wrappers of
`gymnasium.make` and through a `DummyVecEnv` of several games.

The script plays `--games` games before and after training. `illegal` counts the actions outside
the mask, in training and in evaluation: each would end its game at a cost of -1.
"""

import argparse
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import pylos_env  # noqa: F401  (registers the environment with Gymnasium)


@dataclass(frozen=True)
class Result:
    """Share of games won before and after training, and the number of illegal actions."""

    before: float
    after: float
    illegal: int


class CountIllegal(BaseCallback):
    """Adds up `info["illegal_action"]`, in training and in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def _on_step(self) -> bool:
        self.count += sum(info["illegal_action"] for info in self.locals["infos"])
        return True

    def evaluation(self, local: dict[str, Any], _: dict[str, Any]) -> None:
        self.count += local["info"]["illegal_action"]


def make_games(opponent: str, num_envs: int) -> VecEnv:
    """Several games in one process. `Monitor` only records the results of whole games."""

    def make() -> gymnasium.Env[Any, Any]:
        return Monitor(gymnasium.make("pylos_env/Pylos-v0", opponent=opponent, seat="random"))

    return DummyVecEnv([make] * num_envs)


def train(
    steps: int = 40_000,
    games: int = 200,
    opponent: str = "random",
    num_envs: int = 8,
    seed: int = 0,
) -> Result:
    """Train a new policy for `steps` of its own moves."""
    torch.set_num_threads(1)  # the network is tiny: more threads only get in each other's way
    model = MaskablePPO(
        "MlpPolicy",
        make_games(opponent, num_envs),
        n_steps=2048 // num_envs,
        batch_size=256,
        n_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
    )
    counter = CountIllegal()

    def win_rate() -> float:
        """Play the most likely moves. The games still differ: seat and opponent are drawn."""
        env = make_games(opponent, num_envs=1)
        env.seed(seed + 1000)
        rewards, _ = evaluate_policy(
            model, env, games, callback=counter.evaluation, return_episode_rewards=True
        )
        return float(np.mean(np.array(rewards) > 0))

    before = win_rate()
    model.learn(steps, callback=counter)
    return Result(before, win_rate(), counter.count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train MaskablePPO on Pylos.")
    parser.add_argument("--steps", type=int, default=40_000, help="moves to train for")
    parser.add_argument("--games", type=int, default=200, help="games of each evaluation")
    parser.add_argument("--opponent", default="random", help="random, rule_based, alphabeta:2, ...")
    parser.add_argument("--num-envs", type=int, default=8, help="games played side by side")
    parser.add_argument("--seed", type=int, default=0)
    result = train(**vars(parser.parse_args()))
    print(f"won before training: {result.before:.1%}, after: {result.after:.1%}")
    print(f"illegal actions: {result.illegal}")
