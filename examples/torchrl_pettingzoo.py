"""TorchRL on both seats of Pylos: a masked policy learns from games against itself.

    pip install "pylos-env" torchrl
    python torchrl_pettingzoo.py --updates 20

What it shows: the AEC environment in TorchRL's `PettingZooWrapper`. Both players form one group, so
every entry has a row per player and one network serves both:

    ("players", "observation", "observation")  [time, 2, 33]   each player's own view
    ("players", "action_mask")                 [time, 2, 303]  for `MaskedCategorical`
    ("players", "mask")                        [time, 2]       True for the player on turn

TorchRL asks both rows for an action and uses the one on turn. Turns need not alternate: a player
who takes spheres back moves again, which `repeats` counts. `illegal` counts the games that a move
outside the mask ended; all others are zero-sum.

The learner is plain REINFORCE: each move is reinforced by its player's result, +1 or -1.
"""

import argparse
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.envs import PettingZooWrapper, check_env_specs
from torchrl.modules import MaskedCategorical, ProbabilisticActor

from pylos_env import pylos_v0

ACTION = ("players", "action")
REWARD = ("next", "players", "reward")
MAX_PLIES = 300


@dataclass
class Result:
    """Share of games won against random moves, and what was seen in all games."""

    before: float = 0.0
    after: float = 0.0
    moves: int = 0
    repeats: int = 0
    illegal: int = 0

    def count(self, game: TensorDictBase) -> None:
        turn = game["players", "mask"].int().argmax(dim=1)  # [time]
        self.moves += len(turn)
        self.repeats += int((turn[1:] == turn[:-1]).sum())
        self.illegal += int(game[REWARD].sum() != 0)


def make_env() -> PettingZooWrapper:
    players = {"players": ["player_0", "player_1"]}
    return PettingZooWrapper(pylos_v0.env(max_plies=MAX_PLIES), use_mask=True, group_map=players)


def make_policy(env: PettingZooWrapper) -> ProbabilisticActor:
    view = ("players", "observation", "observation")
    spec = env.full_action_spec[ACTION]
    size = env.observation_spec[view].shape[-1]
    net = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, spec.space.n))
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=[view], out_keys=[("players", "logits")]),
        in_keys={"logits": ("players", "logits"), "mask": ("players", "action_mask")},
        out_keys=[ACTION],
        spec=spec,
        distribution_class=MaskedCategorical,
        default_interaction_type=InteractionType.RANDOM,
    )


def against_random(env: PettingZooWrapper, policy: nn.Module, seat: int) -> nn.Module:
    ours = torch.arange(2) == seat
    spec = env.full_action_spec[ACTION]  # the wrapper keeps its mask current
    mix = TensorDictModule(
        lambda actions: torch.where(ours, actions, spec.rand()), [ACTION], [ACTION]
    )
    return TensorDictSequential(policy, mix)


def train(updates: int = 20, games: int = 10, eval_games: int = 100, seed: int = 0) -> Result:
    """Make `updates` steps of REINFORCE, each on `games` new games."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    env = make_env()
    check_env_specs(env)
    policy = make_policy(env)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    result = Result()

    def play(policy: nn.Module) -> TensorDictBase:
        with torch.no_grad():
            game = env.rollout(MAX_PLIES, policy)
        result.count(game)
        return game

    def win_rate() -> float:
        seats = [number % 2 for number in range(eval_games)]
        rewards = [play(against_random(env, policy, seat))[REWARD][-1, seat] for seat in seats]
        return sum(reward.item() > 0 for reward in rewards) / eval_games

    result.before = win_rate()
    for _ in range(updates):
        losses = []
        for game in [play(policy) for _ in range(games)]:
            log_prob = policy.get_dist(game).log_prob(game[ACTION])  # [time, 2]
            final = game[REWARD][-1].squeeze(-1)  # [2]
            losses.append(-(log_prob * final)[game["players", "mask"]])
        optimizer.zero_grad()
        torch.cat(losses).mean().backward()
        optimizer.step()
    result.after = win_rate()
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Masked policy gradient on Pylos with TorchRL.")
    parser.add_argument("--updates", type=int, default=20, help="gradient steps")
    parser.add_argument("--games", type=int, default=10, help="games of each gradient step")
    parser.add_argument("--eval-games", type=int, default=100, help="games of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    result = train(**vars(parser.parse_args()))
    print(f"won before training: {result.before:.1%}, after: {result.after:.1%}")
    print(f"moves: {result.moves}, same player again: {result.repeats}, illegal: {result.illegal}")
