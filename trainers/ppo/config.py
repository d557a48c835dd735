"""Every setting of the PPO trainer: its type, its default, what it does.

The YAML files in `configs/` hold groups and experiments, which list only what differs from here.
`check` refuses what cannot work before any work begins, by name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from trainers.network import NetworkConfig
from trainers.settings import (
    ConfigError,
    check_choices,
    check_device,
    check_network,
    check_opponents,
    check_ranges,
    check_rules,
)


@dataclass
class RolloutConfig:
    """How games are played to learn from."""

    games: int = 512
    """Games at once in each group."""
    groups: int = 2
    """Groups of games, each with a thread of its own."""
    plies: int = 64
    """Plies that every game moves on between two updates."""
    opening_share: float = 0.5
    """Share of games that begin with random plies."""
    opening_plies: int = 20
    """The most random plies that a game begins with; their number is uniform up to here."""
    symmetries: bool = True
    """Every decision is made on the board turned or mirrored at random (needs rules that are
    symmetric): the policy learns from all eight views. A canonical network has a single one."""
    max_plies: int = 200
    """A game of so many plies is broken off, without a winner."""
    draw_reward: float = 0.0
    """To the mover of a game that is broken off, on top of what the last position is worth."""


@dataclass
class UpdateConfig:
    """How the network learns from a rollout."""

    gamma: float = 1.0
    """Discount of a ply."""
    gae_lambda: float = 0.95
    """Generalised advantage estimation: 0 trusts the value head, 1 the outcome of the game."""
    clip: float = 0.2
    """How far the probability of an action may move before its gradient is cut off."""
    epochs: int = 2
    """Passes over a rollout."""
    minibatch: int = 2048
    """Learning plies of an optimiser step; what is left over is dealt anew in the next epoch."""
    shards: int = 2
    """Parts of a minibatch, each with a thread of its own; their gradients are added."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy over legal actions."""
    value_weight: float = 0.5
    """Weight of the value's loss against the policy's."""
    max_grad_norm: float = 0.5
    """Largest norm of a gradient."""
    learning_rate: float = 3e-3
    """Of Adam, at the beginning."""
    schedule: str = "linear"
    """linear (falls to 0 at the end of the budget) or constant."""
    target_kl: float = 0.0
    """No further epoch once the policy has moved so far, in nats; 0: no limit."""


@dataclass
class LeagueConfig:
    """Whom the learner plays against."""

    warmup_win_rate: float = 0.5
    """Every game is against rule_based until this share of the last `warmup_window` is won."""
    warmup_window: int = 400
    """Games of the warm-up that its win rate is of."""
    warmup_episodes: int = 2000
    """The warm-up ends after so many games at the latest; 0: there is none."""
    live_share: float = 0.8
    """After the warm-up: share of games in which the live policy plays both sides."""
    recent_share: float = 0.7
    """Of the other games: share against the newer half of the pool."""
    older_share: float = 0.2
    """Of the other games: share against the older half of the pool."""
    rule_based_share: float = 0.1
    """Of the other games: share against rule_based; the three add up to 1."""
    prioritised: bool = False
    """Draw from the whole pool, those more often that the learner loses against."""
    at_once: int = 2
    """The most snapshots that new games of one rollout are against: each takes a call of its
    network at every ply. Every rollout draws others, by the shares above."""
    pool: int = 20
    """The most snapshots in the pool; the best and the newest always stay."""
    snapshot_every: int = 10
    """Updates between two snapshots."""
    elo_start: float = 1000.0
    """Elo of the learner and of rule_based at first; a snapshot begins with the learner's."""
    elo_k: float = 32.0
    """The most that one game moves an Elo."""


@dataclass
class EvaluationConfig:
    """How every checkpoint is measured: by its raw policy, without search."""

    every_minutes: float = 1.5
    """Minutes between checkpoints; used where the budget is in minutes."""
    every_steps: int = 2_000_000
    """Environment steps between checkpoints otherwise."""
    games: int = 200
    """Games against each opponent."""
    opponents: list[str] = field(default_factory=lambda: ["random", "rule_based", "alphabeta:4"])
    """Fixed opponents, the anchors of the rating; random is always among them."""
    oracle_every: int = 10
    """Each so-many-th of the labelled positions is asked; 0: none (rules without labels)."""


@dataclass
class BudgetConfig:
    """When to stop: the first limit that is set and reached. 0 is no limit."""

    minutes: float = 10.0
    episodes: int = 0
    steps: int = 0
    """Environment steps of both seats."""


@dataclass
class PPOConfig:
    """A whole run."""

    rules: str = "advanced"
    """A rule set by name, or a mix."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    precision: str = "auto"
    """Of products of matrices, in play and in updates alike: float32, bfloat16, or auto (bfloat16
    where the device has instructions for it)."""
    threads: int = 0
    """CPU threads; 0: all cores of this process."""
    run: str = ""
    """Folder of the run; empty: made by Hydra under runs/."""
    resume: str = ""
    """Folder of an earlier run to go on with."""
    keep: int = 3
    """The newest checkpoints that are kept whole."""
    console: str = "auto"
    """auto, live, plain or off."""
    wandb: str = ""
    """Weights & Biases project; empty: none."""
    network: NetworkConfig = field(
        default_factory=lambda: NetworkConfig("patterns", width=128, canonical=True)
    )
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    league: LeagueConfig = field(default_factory=LeagueConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# name: the least and the largest value
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "seed": (0, 2**62),
    "threads": (0, 1024),
    "keep": (1, 10**6),
    "rollout.games": (1, 10**7),
    "rollout.groups": (1, 1024),
    "rollout.plies": (1, 10**6),
    "rollout.opening_share": (0, 1),
    "rollout.opening_plies": (0, 1000),
    "rollout.max_plies": (1, 10**6),
    "rollout.draw_reward": (-1, 1),
    "update.gamma": (0, 1),
    "update.gae_lambda": (0, 1),
    "update.clip": (0, 10),
    "update.epochs": (1, 1000),
    "update.minibatch": (1, 10**8),
    "update.shards": (1, 1024),
    "update.entropy_weight": (0, 10),
    "update.value_weight": (0, 1000),
    "update.max_grad_norm": (1e-6, 10**9),
    "update.learning_rate": (0, 10),
    "update.target_kl": (0, 10**9),
    "league.warmup_win_rate": (0, 1),
    "league.warmup_window": (1, 10**6),
    "league.warmup_episodes": (0, 10**12),
    "league.live_share": (0, 1),
    "league.recent_share": (0, 1),
    "league.older_share": (0, 1),
    "league.rule_based_share": (0, 1),
    "league.at_once": (1, 1000),
    "league.pool": (2, 1000),
    "league.snapshot_every": (1, 10**9),
    "league.elo_start": (-(10**6), 10**6),
    "league.elo_k": (1e-6, 10**4),
    "evaluation.every_minutes": (0.01, 10**9),
    "evaluation.every_steps": (1, 10**15),
    "evaluation.games": (2, 10**6),
    "evaluation.oracle_every": (0, 10**6),
    "budget.minutes": (0, 10**9),
    "budget.episodes": (0, 10**15),
    "budget.steps": (0, 10**15),
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "precision": ("auto", "float32", "bfloat16"),
    "update.schedule": ("linear", "constant"),
    "console": ("auto", "live", "plain", "off"),
}


def check(config: PPOConfig) -> None:
    """Refuse what cannot work; every message begins with the setting's name."""
    check_ranges(config, _RANGES)
    check_choices(config, _CHOICES)
    check_network(config.network)
    rules = check_rules(config.rules)
    if not rules.symmetric and config.rollout.symmetries:
        raise ConfigError(
            f"rollout.symmetries: the rules '{rules}' are not symmetric, set it to false"
        )
    league = config.league
    total = league.recent_share + league.older_share + league.rule_based_share
    if abs(total - 1) > 1e-6:
        raise ConfigError(
            "league.recent_share, league.older_share and league.rule_based_share: expected a sum "
            f"of 1, got {total:g}"
        )
    if config.update.shards > config.update.minibatch:
        raise ConfigError("update.shards: more than update.minibatch")
    if 0 < league.warmup_episodes < league.warmup_window:
        raise ConfigError(
            "league.warmup_window: more than league.warmup_episodes, so no win rate would end it"
        )
    check_opponents("evaluation.opponents", config.evaluation.opponents)
    if config.evaluation.games % 2:
        raise ConfigError("evaluation.games: openings are played twice, expected an even number")
    if not any((config.budget.minutes, config.budget.episodes, config.budget.steps)):
        raise ConfigError("budget: set minutes, episodes or steps")
    check_device(config.device)
