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
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.envs import PettingZooWrapper, check_env_specs
from torchrl.modules import MaskedCategorical, ProbabilisticActor

from pylos_env import pylos_v0

MAX_PLIES = 300


@dataclass(frozen=True)
class Result:
    """Share of games won against random moves, and what was seen on the way."""

    before: float
    after: float
    moves: int
    repeats: int
    illegal: int


def make_env(seed: int) -> PettingZooWrapper:
    env = PettingZooWrapper(
        pylos_v0.env(max_plies=MAX_PLIES),
        use_mask=True,
        group_map={"players": ["player_0", "player_1"]},
    )
    env.set_seed(seed)
    return env


def make_policy(env: PettingZooWrapper) -> ProbabilisticActor:
    spec = env.full_action_spec["players", "action"]
    size = env.observation_spec["players", "observation", "observation"].shape[-1]
    net = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, spec.space.n))
    return ProbabilisticActor(
        TensorDictModule(
            net,
            in_keys=[("players", "observation", "observation")],
            out_keys=[("players", "logits")],
        ),
        in_keys={"logits": ("players", "logits"), "mask": ("players", "action_mask")},
        out_keys=[("players", "action")],
        spec=spec,
        distribution_class=MaskedCategorical,
        default_interaction_type=InteractionType.RANDOM,
    )


def against_random(env: PettingZooWrapper, policy: nn.Module, seat: int) -> nn.Module:
    """The policy in one seat, random legal moves in the other."""
    spec = env.full_action_spec["players", "action"]
    ours = torch.arange(2) == seat

    def mix(actions: torch.Tensor) -> torch.Tensor:
        return torch.where(ours, actions, spec.rand())  # the wrapper keeps the spec's mask current

    key = ("players", "action")
    return TensorDictSequential(policy, TensorDictModule(mix, in_keys=[key], out_keys=[key]))


@torch.no_grad()
def win_rate(env: PettingZooWrapper, policy: nn.Module, games: int) -> float:
    """Share of games won against random moves, in both seats by turns."""
    wins = 0
    for game in range(games):
        seat = game % 2
        data = env.rollout(MAX_PLIES, against_random(env, policy, seat))
        wins += int(data["next", "players", "reward"][-1, seat].item() > 0)
    return wins / games


def train(updates: int = 20, games: int = 10, eval_games: int = 100, seed: int = 0) -> Result:
    """Make `updates` steps of REINFORCE, each on `games` new games."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    env = make_env(seed)
    check_env_specs(env)
    policy = make_policy(env)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    before = win_rate(env, policy, eval_games)
    moves = repeats = illegal = 0
    for _ in range(updates):
        with torch.no_grad():
            played = [env.rollout(MAX_PLIES, policy) for _ in range(games)]
        for game in played:
            turn = game["players", "mask"].int().argmax(dim=1)  # [time]
            moves += len(turn)
            repeats += int((turn[1:] == turn[:-1]).sum())
            illegal += int(game["next", "players", "reward"].sum() != 0)
        data = torch.cat(played)
        results = torch.cat(
            [g["next", "players", "reward"][-1:].expand(len(g), -1, -1) for g in played]
        ).squeeze(-1)  # [time, 2]
        log_prob = policy.get_dist(data).log_prob(data["players", "action"])  # [time, 2]
        loss = -(log_prob * results)[data["players", "mask"]].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Result(before, win_rate(env, policy, eval_games), moves, repeats, illegal)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Masked policy gradient on Pylos with TorchRL.")
    parser.add_argument("--updates", type=int, default=20, help="gradient steps")
    parser.add_argument("--games", type=int, default=10, help="games of each gradient step")
    parser.add_argument("--eval-games", type=int, default=100, help="games of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    result = train(**vars(parser.parse_args()))
    print(f"won before training: {result.before:.1%}, after: {result.after:.1%}")
    print(f"moves: {result.moves}, same player again: {result.repeats}, illegal: {result.illegal}")
