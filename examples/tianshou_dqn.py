"""Tianshou's DQN as the first player of Pylos, against random moves.

    pip install "pylos-env" "tianshou>=2.0"
    python tianshou_dqn.py --steps 20000

What it shows: the AEC environment in Tianshou's `PettingZooEnv`, one algorithm per player in
`MultiAgentOffPolicyAlgorithm`. The wrapper hands our `action_mask` on as `obs.mask`, which both
algorithms obey. `illegal` counts the games that a move outside the mask ended: the offender then
gets -1 and the other 0, while all other results add up to zero.

Two things to know about Tianshou 2.0 in games of turns:

- The next observation in the buffer is that of whoever moves next, mostly the opponent, so a DQN
  must not bootstrap from it. We collect whole games and look ahead further than a game lasts: the
  target of every move is the discounted result of its game.
- The trainer's "now training" flag does not reach the players' policies, which therefore explore
  by `eps_inference`. Evaluation stays greedy: its collector has `exploration_noise` off.
"""

import argparse
import logging
from dataclasses import dataclass

import numpy as np
import torch
from tianshou.algorithm import DQN, MARLRandomDiscreteMaskedOffPolicyAlgorithm
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from pylos_env import pylos_v0

MAX_PLIES = 120  # random games end after about 50
NUM_GAMES = 4  # side by side


@dataclass
class Result:
    """Share of games won, and all games with those that an illegal move ended."""

    before: float = 0.0
    after: float = 0.0
    games: int = 0
    illegal: int = 0

    def count(self, returns: np.ndarray) -> np.ndarray:
        """Take the returns [games, 2] of both players, hand on those of the learner."""
        self.games += len(returns)
        self.illegal += int(np.count_nonzero(returns.sum(axis=1)))
        return returns[:, 0]


def make_games() -> DummyVectorEnv:
    return DummyVectorEnv([lambda: PettingZooEnv(pylos_v0.env(max_plies=MAX_PLIES))] * NUM_GAMES)


def make_learner(env: PettingZooEnv) -> DQN:
    net = Net(
        state_shape=env.observation_space["observation"].shape,
        action_shape=env.action_space.n,
        hidden_sizes=[128],
        dueling_param=({"hidden_sizes": [64]}, {"hidden_sizes": [64]}),  # advantages, value
    )
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_inference=0.3)
    optim = AdamOptimizerFactory(lr=1e-3)
    return DQN(policy=policy, optim=optim, gamma=0.98, n_step_return_horizon=MAX_PLIES)


def train(steps: int = 20_000, games: int = 200, seed: int = 0) -> Result:
    """Train for about `steps` moves of both players."""
    np.random.seed(seed)  # noqa: NPY002  (Tianshou draws from NumPy's global generator)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    # Tianshou logs a warning about every result that is a pair, as ours are
    logging.getLogger("tianshou.data.stats").setLevel(logging.ERROR)

    env = PettingZooEnv(pylos_v0.env())
    players = [make_learner(env), MARLRandomDiscreteMaskedOffPolicyAlgorithm(env.action_space)]
    algorithm = MultiAgentOffPolicyAlgorithm(algorithms=players, env=env)
    buffer = VectorReplayBuffer(20_000, NUM_GAMES)
    training = Collector[CollectStats](algorithm, make_games(), buffer, exploration_noise=True)
    evaluation = Collector[CollectStats](algorithm, make_games())
    result = Result()

    def win_rate() -> float:
        stats = evaluation.collect(n_episode=games, reset_before_collect=True)
        return float(np.mean(result.count(stats.returns) > 0))

    result.before = win_rate()
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=training,
            max_epochs=1,
            epoch_num_steps=steps,
            collection_step_num_env_steps=None,
            collection_step_num_episodes=NUM_GAMES,
            batch_size=256,
            update_step_num_gradient_steps_per_sample=0.05,
            multi_agent_return_reduction=result.count,
            verbose=False,
            show_progress=False,
        )
    )
    result.after = win_rate()
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train Tianshou's DQN on Pylos.")
    parser.add_argument("--steps", type=int, default=20_000, help="moves to train for")
    parser.add_argument("--games", type=int, default=200, help="games of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    result = train(**vars(parser.parse_args()))
    print(f"won before training: {result.before:.1%}, after: {result.after:.1%}")
    print(f"games: {result.games}, ended by an illegal move: {result.illegal}")
