"""RLlib's PPO on one seat of Pylos, with RLlib's own action masking module.

    pip install "pylos-env" "ray[rllib]" torch
    python rllib_action_mask.py --iterations 5

Ray pins its Gymnasium version, so give it a virtual environment of its own.

What it shows: `RllibPylos`, a small wrapper that puts observation and mask under the names that
RLlib's `ActionMaskingTorchRLModule` reads (`observations` and `action_mask`, both float32). An
action outside the mask would raise, so a run that ends has played legal moves only.

Everything runs in this process: no workers, one CPU.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import ray
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

import pylos_env  # registers the environment with Gymnasium, also in RLlib's workers

Observation = dict[str, npt.NDArray[np.float32]]


class RllibPylos(gymnasium.Wrapper[Observation, int, npt.NDArray[np.float32], int]):
    """`pylos_env/Pylos-v0` in RLlib's form; `config` holds the options of the environment."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(gymnasium.make("pylos_env/Pylos-v0", **config))
        self.observation_space = spaces.Dict(
            {
                "observations": self.env.observation_space,
                "action_mask": spaces.Box(0.0, 1.0, (self.env.action_space.n,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info), info

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info["illegal_action"]:
            raise pylos_env.IllegalMoveError(f"action {action} is outside the mask")
        return self._with_mask(observation, info), float(reward), terminated, truncated, info

    def _with_mask(self, observation: npt.NDArray[np.float32], info: dict[str, Any]) -> Observation:
        return {
            "observations": observation,
            "action_mask": info["action_mask"].astype(np.float32),
        }


def train(
    iterations: int = 5, steps: int = 2048, opponent: str = "random", seed: int = 0
) -> list[float]:
    """Train for `iterations` of `steps` moves each; the mean return of the games of each."""
    config = (
        PPOConfig()
        .environment(RllibPylos, env_config={"opponent": opponent, "seat": "random"})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=steps,
            minibatch_size=256,
            num_epochs=4,
            lr=1e-3,
            gamma=0.99,
            entropy_coeff=0.01,
        )
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=ActionMaskingTorchRLModule,
                model_config={"fcnet_hiddens": [64, 64], "vf_share_layers": False},
            )
        )
        .debugging(seed=seed)
    )
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        algorithm = config.build_algo()
        returns = []
        for _ in range(iterations):
            results = algorithm.train()
            returns.append(float(results["env_runners"]["episode_return_mean"]))
        algorithm.stop()
    finally:
        ray.shutdown()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train RLlib's PPO on Pylos.")
    parser.add_argument("--iterations", type=int, default=5, help="rounds of play and update")
    parser.add_argument("--steps", type=int, default=2048, help="moves of each iteration")
    parser.add_argument("--opponent", default="random", help="random, rule_based, alphabeta:2, ...")
    parser.add_argument("--seed", type=int, default=0)
    for number, mean in enumerate(train(**vars(parser.parse_args())), start=1):
        print(f"iteration {number}: mean return {mean:+.3f} (+1 won, -1 lost)")
