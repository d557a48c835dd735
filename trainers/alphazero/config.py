"""Every setting of the AlphaZero trainer: its type, its default, what it does.

The YAML files in `configs/` hold groups and experiments, which list only what differs from here.
`check` refuses what cannot work before any work begins, by name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from trainers.network import NetworkConfig
from trainers.search import SearchConfig
from trainers.settings import (
    ConfigError,
    check_choices,
    check_device,
    check_network,
    check_opponents,
    check_ranges,
    check_rules,
    value_of,
)


@dataclass
class SelfPlayConfig:
    """How games are played to learn from."""

    games: int = 256
    """Games at once in each group."""
    groups: int = 2
    """Groups of games, each with a process or thread of its own."""
    backend: str = "auto"
    """threads, processes, pipelined (one thread walks the trees of one group while the device has
    the leaves of another), or auto: processes where the device is the CPU, pipelined elsewhere.
    Games are the same."""
    compile: bool = True
    """torch.compile of the network that plays where the device is CUDA."""
    plies_per_cycle: int = 16
    """Plies that every game moves on between two rounds of learning."""
    full_share: float = 1.0
    """Share of moves that get all simulations and are learnt from; the others are quick."""
    quick_simulations: int = 8
    """Simulations of a quick move."""
    opening_share: float = 0.9
    """Share of games that begin with random plies."""
    opening_plies: int = 40
    """The most random plies that a game begins with."""
    opening_skew: float = 2.0
    """1: all numbers of random plies are as likely; above 1 fewer are likelier, below 1 more are: a
    uniform share is raised to this power."""
    stray_share: float = 0.2
    """The largest share of random actions in a game; each game has its own, uniform up to here.
    Without them games come to resemble each other, and teach little."""
    repetition_draws: bool = True
    """A game counts as drawn where a position comes again with no random action in between. Without
    it a position that can be played on for ever is worth what the network says it is."""
    temperature_plies: int = 15
    """PUCT: plies drawn at the search's temperature; later ones play the most visited action."""
    inner_visits: int = 0
    """Positions below the root that a full search has visited so often, or proven, are learnt from
    as well: samples that cost no search of their own, but count for `learner.reuse` and take their
    place in the window. Their values are the search's word alone, which `targets.stray_trust` says
    how far to trust. 0: the root alone."""
    memory: int = 65_536
    """Positions whose evaluations each group keeps for as long as the weights stay the same, in 150
    bytes each; many are met several times. 0: none."""
    precision: str = "auto"
    """Of the network that plays: auto (what the device does fastest), float32 or bfloat16."""
    resign: float = 0.95
    """A game ends where the search values it at more than this for either side, and counts as just
    that; 1: every game is played to its end."""
    resign_share: float = 0.9
    """Share of games that may end so; the others are played to their ends all the same."""
    max_plies: int = 200
    """A game of so many plies is broken off, without a winner."""


@dataclass
class ClusterConfig:
    """Self-play as tasks of whole games, on other machines too: see docs/cluster.md."""

    backend: str = "none"
    """none: groups of games as `selfplay` says; ray: tasks for Ray's actors; local: the same tasks
    in this process, to compare."""
    address: str = ""
    """Of the Ray cluster; empty: RAY_ADDRESS, a cluster on this machine, or else a new one."""
    workers: int = 0
    """The most actors at once; 0: as many as there is room for. More are asked of an autoscaler."""
    cpus: int = 1
    """Cores of one actor: its threads are held to them."""
    gpus: float = 0.0
    """Share of a card of one actor; 0: it plays on the CPU."""
    learner_cpus: int = 1
    """Cores of the trainer's own machine that actors leave free."""
    games: int = 256
    """Games of one task, played to their ends."""
    at_once: int = 64
    """Games of a task that move together."""
    tasks_per_cycle: int = 4
    """Tasks that are learnt from between two versions of the weights."""
    in_flight: int = 16
    """Tasks that are under way or waiting, at least one for each actor; the games of the last
    of them were begun with weights that many tasks old."""


@dataclass
class TargetsConfig:
    """What positions are said to be worth."""

    win_discount: float = 1.0
    """A win is worth this to the power of the plies until it comes: below 1, shorter wins count
    more."""
    draw_value: float = 0.0
    """What a draw is worth to both sides: a repetition (`selfplay.repetition_draws`), and a game
    that was broken off where `truncated` is "draw". The search itself counts draws as 0."""
    truncated: str = "bootstrap"
    """Games that were broken off: bootstrap (the search's own value), draw, or mask (no value)."""
    root_share: float = 0.05
    """Share of the search's own value in a target; the rest is the next target of the game, and at
    last its outcome. 0: the outcome alone; 1: the search alone."""
    final_root_share: float = 0.7
    """What that share has become at the end of the run: the stronger the network, the more its
    search knows beyond one game's outcome."""
    stray_trust: float = 0.2
    """The share of the run after which only the search says what a position was worth from which a
    random action was played (`selfplay.stray_share`); until then what followed counts too, less and
    less. Positions inside searches (`selfplay.inner_visits`) have their full weight from then on,
    and a growing one until then."""
    trust_proofs: bool = True
    """A position that the search has proven won or lost is worth exactly that."""
    sharpen: float = 2.0
    """How far the search's own values are moved before they are learnt: towards a win above
    `sharpen_from` (with the defaults 0.5 becomes 0.7, and 0.76 a win), and a little towards 0
    below it. 0: not at all. A search averages over actions that a winner would not play, so values
    that rest on its values stay timid."""
    sharpen_from: float = 0.1
    """The value, of either side, that stays where it is."""


@dataclass
class ReplayConfig:
    """The window of samples to learn from."""

    capacity: int = 1_000_000
    """The most samples."""
    start: int = 20_000
    """Samples to collect before learning begins."""
    growth: float = 0.6
    """The window is at least this share of all samples so far, up to the capacity."""
    easy_share: float = 0.3
    """How often a sample is drawn whose value the network knows already, against one that it has
    wrong by half a win or more; 1: all alike. Before it is learnt from for the first time, what the
    network that played thought of it counts."""


@dataclass
class LearnerConfig:
    """How the network learns."""

    batch: int = 1024
    """Samples of a step."""
    accumulate: int = 1
    """Parts that a batch is split into, for small memories."""
    reuse: float = 2.0
    """How often each sample is learnt from on average: balances learner and self-play. Values of
    single games are noisy, and learning them more than once or twice learns the noise."""
    learning_rate: float = 8e-3
    """At its highest, after the warm-up."""
    matrix_rate: float = 0.01
    """The same for the matrices of residual blocks, which Muon learns: it moves all directions of a
    matrix alike. 0: AdamW learns them too, like everything else."""
    final_share: float = 0.05
    """The schedule ends at this share of the learning rate."""
    schedule: str = "cosine"
    """cosine or constant."""
    warmup: int = 100
    """Steps of linear warm-up."""
    weight_decay: float = 1e-4
    """Of AdamW, on matrices only."""
    clip: float = 1.0
    """Largest norm of a gradient; 0: no limit."""
    value_weight: float = 1.0
    """Weight of the value's loss against the policy's."""
    average: float = 0.995
    """Decay of the averaged weights that play and are saved; 0: the weights themselves."""
    symmetries: bool = True
    """Turn and mirror every sample at random (needs rules that are symmetric); a canonical network
    sees each sample one way only."""
    amp: bool = True
    """Products of matrices in bfloat16 where the device has instructions for it."""
    compile: bool = True
    """torch.compile where the device is CUDA."""
    tf32: bool = True
    """Products of float32 matrices in TF32 where the device is CUDA."""


@dataclass
class GateConfig:
    """The match in which a candidate has to prove itself against the best so far."""

    games: int = 64
    """Games of the match; 0: every candidate becomes the best."""
    threshold: float = 0.5
    """The score that makes a candidate the best."""
    simulations: int = 16
    """Simulations of both sides."""


@dataclass
class EvaluationConfig:
    """How every checkpoint is measured."""

    every_minutes: float = 1.5
    """Minutes between checkpoints; used where the budget is in minutes."""
    every_steps: int = 1000
    """Steps between checkpoints otherwise."""
    early_steps: list[int] = field(default_factory=list)
    """Steps after which there are checkpoints besides: the weak levels of a ladder."""
    games: int = 100
    """Games against each opponent."""
    opponents: list[str] = field(default_factory=lambda: ["random", "rule_based", "alphabeta:4"])
    """Fixed opponents, the anchors of the rating; random is always among them."""
    simulations: int = 64
    """Simulations of the checkpoint."""
    oracle_every: int = 20
    """Each so-many-th of the labelled positions is asked; 0: none (rules without labels)."""
    previous: int = 2
    """Earlier checkpoints that are played too, so that ratings hang together."""


@dataclass
class BudgetConfig:
    """When to stop: the first limit that is set and reached. 0 is no limit."""

    minutes: float = 10.0
    """Of playing and learning: evaluations, about one minute in ten, come on top."""
    games: int = 0
    steps: int = 0


@dataclass
class AlphaZeroConfig:
    """A whole run."""

    rules: str = "advanced"
    """A rule set by name, or a mix."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    threads: int = 0
    """CPU threads of evaluations, and of learning on a card; 0: all cores of this process. On a CPU
    learning has one, and self-play as many as `selfplay.groups`."""
    run: str = ""
    """Folder of the run; empty: made by Hydra under runs/."""
    resume: str = ""
    """Folder of an earlier run to go on with."""
    initial: str = ""
    """A checkpoint, by path or by its level's name in the ladder, whose weights a new run begins
    with; games, targets and optimisers are its own."""
    keep: int = 3
    """The newest checkpoints that are kept whole."""
    console: str = "auto"
    """auto, live, plain or off."""
    wandb: str = ""
    """Weights & Biases project; empty: none."""
    network: NetworkConfig = field(
        default_factory=lambda: NetworkConfig("symmetric", width=256, canonical=True)
    )
    search: SearchConfig = field(default_factory=lambda: SearchConfig(simulations=16))
    selfplay: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    targets: TargetsConfig = field(default_factory=TargetsConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# name: the least and the largest value
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "seed": (0, 2**62),
    "threads": (0, 1024),
    "keep": (1, 10**6),
    "selfplay.plies_per_cycle": (1, 10**6),
    "selfplay.games": (1, 10**6),
    "selfplay.groups": (1, 1024),
    "selfplay.full_share": (0.001, 1),
    "selfplay.quick_simulations": (1, 10**6),
    "selfplay.opening_share": (0, 1),
    "selfplay.opening_plies": (0, 1000),
    "selfplay.opening_skew": (0.01, 100),
    "selfplay.stray_share": (0, 1),
    "selfplay.temperature_plies": (0, 10**6),
    "selfplay.resign": (0, 1),
    "selfplay.resign_share": (0, 1),
    "selfplay.inner_visits": (0, 10**6),
    "selfplay.memory": (0, 2**26),
    "selfplay.max_plies": (1, 10**6),
    "cluster.workers": (0, 10**6),
    "cluster.cpus": (1, 1024),
    "cluster.gpus": (0, 1024),
    "cluster.learner_cpus": (0, 1024),
    "cluster.games": (1, 10**6),
    "cluster.at_once": (1, 10**6),
    "cluster.tasks_per_cycle": (1, 10**6),
    "cluster.in_flight": (1, 10**6),
    "targets.win_discount": (0, 1),
    "targets.draw_value": (-1, 1),
    "targets.root_share": (0, 1),
    "targets.stray_trust": (0, 1),
    "targets.final_root_share": (0, 1),
    "targets.sharpen": (0, 2),
    "targets.sharpen_from": (0, 1),
    "replay.capacity": (1, 10**9),
    "replay.start": (1, 10**9),
    "replay.growth": (0, 1),
    "replay.easy_share": (0.001, 1),
    "learner.batch": (1, 10**7),
    "learner.accumulate": (1, 10**6),
    "learner.reuse": (0.001, 10**6),
    "learner.learning_rate": (0, 10),
    "learner.matrix_rate": (0, 10),
    "learner.final_share": (0, 1),
    "learner.warmup": (0, 10**9),
    "learner.weight_decay": (0, 10),
    "learner.clip": (0, 10**9),
    "learner.value_weight": (0, 1000),
    "learner.average": (0, 0.999999),
    "gate.games": (0, 10**6),
    "gate.threshold": (0, 1),
    "gate.simulations": (1, 10**6),
    "evaluation.every_minutes": (0.01, 10**9),
    "evaluation.every_steps": (1, 10**12),
    "evaluation.games": (2, 10**6),
    "evaluation.simulations": (0, 10**6),
    "evaluation.oracle_every": (0, 10**6),
    "evaluation.previous": (0, 1000),
    "budget.minutes": (0, 10**9),
    "budget.games": (0, 10**15),
    "budget.steps": (0, 10**15),
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "selfplay.backend": ("auto", "threads", "processes", "pipelined"),
    "cluster.backend": ("none", "local", "ray"),
    "selfplay.precision": ("auto", "float32", "bfloat16"),
    "targets.truncated": ("bootstrap", "draw", "mask"),
    "learner.schedule": ("cosine", "constant"),
    "console": ("auto", "live", "plain", "off"),
}


def check(config: AlphaZeroConfig) -> None:
    """Refuse what cannot work; every message begins with the setting's name."""
    check_ranges(config, _RANGES)
    check_choices(config, _CHOICES)
    check_network(config.network)
    try:
        config.search.check()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"search.{error}") from None
    rules = check_rules(config.rules)
    if not rules.symmetric and config.network.kind == "symmetric":
        raise ConfigError(
            f"network.kind: the rules '{rules}' are not symmetric, choose another, such as patterns"
        )
    if not rules.symmetric and config.learner.symmetries:
        raise ConfigError(
            f"learner.symmetries: the rules '{rules}' are not symmetric, set it to false"
        )
    check_opponents("evaluation.opponents", config.evaluation.opponents)
    if any(step < 1 for step in config.evaluation.early_steps):
        raise ConfigError("evaluation.early_steps: expected numbers of 1 or more")
    for name in ("gate.games", "evaluation.games"):
        if value_of(config, name) % 2:
            raise ConfigError(f"{name}: openings are played twice, expected an even number")
    if not any((config.budget.minutes, config.budget.games, config.budget.steps)):
        raise ConfigError("budget: set minutes, games or steps")
    if config.learner.batch % config.learner.accumulate:
        raise ConfigError("learner.accumulate: must divide learner.batch")
    if config.selfplay.inner_visits == 1:
        raise ConfigError(
            "selfplay.inner_visits: expected 0, or 2 and more: after one visit a search knows "
            "what the network said, and no more"
        )
    if config.selfplay.quick_simulations > config.search.simulations:
        raise ConfigError("selfplay.quick_simulations: more than search.simulations")
    if config.cluster.in_flight < config.cluster.tasks_per_cycle:
        raise ConfigError("cluster.in_flight: less than cluster.tasks_per_cycle")
    if config.replay.start > config.replay.capacity:
        raise ConfigError("replay.start: more than replay.capacity")
    check_device(config.device)
