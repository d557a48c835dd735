"""Proximal policy optimisation for a game of two, top to bottom: play, advantages, losses, update.

Schulman et al. 2017, with masks. Every value is from the side to move. What is worth v to the side
to move next is worth `sign * v` to the mover: +1 where the mover stays on turn (taking spheres
back), -1 where the turn passes, 0 where the game is over. A game that is broken off is not over:
what its last position is worth is added to the reward.

An opponent's ply is part of the world: nothing is learnt from it, and rewards and values pass
through it, discounted and with their sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pylos_env import agents
from pylos_env._jit import jit
from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.kernel import (
    MAX_LEGAL,
    SIDE_SHIFT,
    side_of,
    write_legal,
    write_observation,
)
from pylos_env.observation import Observer
from pylos_env.rules import Rules
from trainers.evaluator import Evaluator
from trainers.network import MASKED, Output, PolicyValueNetwork, mixed_precision
from trainers.ppo.config import RolloutConfig, UpdateConfig
from trainers.ppo.games import GameGroup, draw_actions, write_views
from trainers.ppo.league import RULE_BASED, Lineup

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

UNTURNED: Final = np.argsort(ACTION_SYMMETRIES, axis=1)
"""[8, 303]: the action on the board that an action on the turned board stands for."""
EPSILON: Final = 1e-8
BATCH_STEP: Final = 64
"""Batches of a rollout have so many rows, or twice, three times, ... as many."""
SMALLEST: Final = -60.0
"""Log-probabilities below it are as good as none, and slow where their share underflows."""


# Play


class Rollout(NamedTuple):
    """What a group of games has played: a row for each ply, a column for each game."""

    view: Ints  # [plies, games]: the position as it was looked at
    action: Ints  # [plies, games]: in that view
    log_prob: Floats  # [plies, games]: of the learner's actions, when they were drawn
    value: Floats  # [plies, games]: the learner's estimate at its own plies
    reward: Floats  # [plies, games]: to the mover
    sign: Floats  # [plies, games]: of the next ply's value, see above
    learns: Bools  # [plies, games]: whether the learner moved
    last_value: Floats  # [games]: the estimate where the rollout ends, for the side to move


def collect(
    games: GameGroup,
    live: Evaluator,
    frozen: Mapping[int, Evaluator],
    lineup: Lineup,
    config: RolloutConfig,
    gamma: float,
) -> Rollout:
    """Move every game of a group on by some plies."""
    shape = (config.plies, config.games)
    rollout = Rollout(
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
        np.empty(shape, np.float32),
        np.empty(shape, np.float32),
        np.empty(shape, np.bool_),
        np.empty(config.games, np.float32),
    )
    canonical = live.network.config.canonical and games.rules.symmetric
    turns = np.empty(config.games, dtype=np.int64)
    cut: list[tuple[int, Ints, Ints]] = []  # ply, games and positions where games were broken off
    for ply in range(config.plies):
        keys = games.keys()
        write_views(
            games.env.packed, keys[1], canonical, config.symmetries, turns, rollout.view[ply]
        )
        rollout.learns[ply] = games.learner_moves()
        decide(games, live, frozen, keys[0], rollout, ply)
        batch = games.step(UNTURNED[turns, rollout.action[ply]])
        rollout.reward[ply] = batch.reward
        ended = batch.terminated | batch.truncated
        stays = batch.mover == batch.to_move
        rollout.sign[ply] = np.where(ended, 0, np.where(stays, 1, -1))
        if batch.truncated.any():
            rows = np.flatnonzero(batch.truncated)
            cut.append((ply, rows, games.env.reached[rows]))
        if ended.any():
            games.replace(np.flatnonzero(ended), lineup)
    for ply, rows, reached in cut:
        _, values = live(reached)
        stays = (reached >> SIDE_SHIFT & 1) == (rollout.view[ply, rows] >> SIDE_SHIFT & 1)
        rollout.reward[ply, rows] += gamma * np.where(stays, values, -values)
    rollout.last_value[:] = live(games.env.packed)[1]
    return rollout


def decide(
    games: GameGroup,
    live: Evaluator,
    frozen: Mapping[int, Evaluator],
    keys: Ints,
    rollout: Rollout,
    ply: int,
) -> None:
    """Everybody's actions at one ply: one call of each network for all of its games."""
    rules, views = games.rules, rollout.view[ply]
    rows = np.flatnonzero(rollout.learns[ply])
    logits, values = ask(live, views[rows])
    actions, log_probs = draw_actions(views[rows], rules.code, logits, keys[rows])
    rollout.action[ply, rows] = actions
    rollout.log_prob[ply, rows] = log_probs
    rollout.value[ply, rows] = values
    others = np.flatnonzero(~rollout.learns[ply])
    opponents = games.opponents[others]
    for opponent in np.unique(opponents).tolist():
        rows = others[opponents == opponent]
        if opponent == RULE_BASED:
            actions = _RULE_BASED_AGENT.act_batch(views[rows], rules, keys[rows])
        else:
            logits, _ = ask(frozen[opponent], views[rows])
            actions, _ = draw_actions(views[rows], rules.code, logits, keys[rows])
        rollout.action[ply, rows] = actions


def ask(network: Evaluator, views: Ints) -> tuple[Floats, Floats]:
    """Logits and values of some positions.

    Their number is filled up: a product of matrices in bfloat16 is prepared anew for every number
    of rows that has not come before, and that takes longer than the product.
    """
    count = len(views)
    filled = np.zeros(-(-count // BATCH_STEP) * BATCH_STEP, dtype=np.int64)
    filled[:count] = views
    logits, values = network.ask(filled)
    return logits[:count], values[:count]


_RULE_BASED_AGENT: Final = agents.make("rule_based", seed=0)


# Advantages


@jit
def advantages_of(rollout: Rollout, gamma: float, gae_lambda: float) -> Floats:
    """[plies, games]: generalised advantage estimation, at the learner's plies; 0 elsewhere."""
    plies, games = rollout.value.shape
    advantages = np.zeros((plies, games), dtype=np.float32)
    for game in range(games):
        following = np.float64(rollout.last_value[game])  # what the next ply is worth to its mover
        trace = 0.0
        for ply in range(plies - 1, -1, -1):
            factor = gamma * rollout.sign[ply, game]
            target = rollout.reward[ply, game] + factor * following
            if rollout.learns[ply, game]:
                value = np.float64(rollout.value[ply, game])
                trace = target - value + factor * gae_lambda * trace
                advantages[ply, game] = trace
                following = value
            else:
                trace = factor * trace
                following = target
    return advantages


class Samples(NamedTuple):
    """The learning plies of all rollouts."""

    view: Ints  # [samples]
    action: Ints  # [samples]
    log_prob: Floats  # [samples]
    value: Floats  # [samples]
    advantage: Floats  # [samples]
    target: Floats  # [samples]: of the value head


def samples_of(rollouts: Sequence[Rollout], gamma: float, gae_lambda: float) -> Samples:
    columns: list[list[Any]] = []
    for rollout in rollouts:
        advantages = advantages_of(rollout, gamma, gae_lambda)
        arrays = (rollout.view, rollout.action, rollout.log_prob, rollout.value, advantages)
        columns.append([array[rollout.learns] for array in arrays])
    view, action, log_prob, value, advantage = (
        np.concatenate(parts) for parts in zip(*columns, strict=True)
    )
    return Samples(view, action, log_prob, value, advantage, advantage + value)


def explained_variance(samples: Samples) -> float:
    """1 where the value head foretells the returns, 0 where it does no better than a constant."""
    spread = float(samples.target.var())
    return 1 - float((samples.target - samples.value).var()) / spread if spread else 0.0


# Losses


class Batch(NamedTuple):
    """Samples as the network sees them."""

    observation: Tensor  # [batch, ...]
    legal: Tensor  # [batch, most]: the actions that were legal when one was chosen, then zeros
    masked: Tensor  # [batch, most]: which of these are none
    chosen: Tensor  # [batch]: which of these was chosen
    log_prob: Tensor  # [batch]
    advantage: Tensor  # [batch], normalised over all samples
    target: Tensor  # [batch]


class Losses(NamedTuple):
    """Means over a batch."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def log_policy_of(output: Output, batch: Batch) -> Tensor:
    """[batch, most]: log-probabilities over the legal actions alone."""
    logits = output.logits.gather(1, batch.legal).float()
    return logits.masked_fill(batch.masked, MASKED).log_softmax(dim=-1)


def losses_of(output: Output, batch: Batch, clip: float) -> Losses:
    """The clipped surrogate, the squared error of the value, and what to watch."""
    log_policy = log_policy_of(output, batch)
    log_prob = log_policy.gather(1, batch.chosen[:, None]).squeeze(1)
    log_ratio = log_prob - batch.log_prob
    ratio = log_ratio.exp()
    gain = torch.minimum(batch.advantage * ratio, batch.advantage * ratio.clamp(1 - clip, 1 + clip))
    error = 0.5 * (output.value.float() - batch.target) ** 2
    shares = log_policy.clamp(min=SMALLEST)
    entropy = -(shares.exp() * shares).sum(dim=-1)
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip).float().mean()
    return Losses(-gain.mean(), error.mean(), entropy.mean(), approx_kl, clip_fraction)


# Update


class StepReport(NamedTuple):
    """What one optimiser step did, or several on average."""

    grad_norm: float
    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_fraction: float


class UpdateReport(NamedTuple):
    """What one update did."""

    learning_rate: float
    explained_variance: float
    steps: StepReport


class Learner:
    """The network, its optimiser, and how they learn from samples."""

    def __init__(
        self,
        network: PolicyValueNetwork,
        config: UpdateConfig,
        rules: Rules,
        device: torch.device,
        precision: str = "float32",
    ) -> None:
        # evaluation mode throughout: a ratio must compare like with like
        self.network = network.to(device).eval()
        self.config = config
        self.updates = 0
        self._rules = rules
        self._device = device
        self._precision = precision
        self._observer = Observer(network.config.observation, rules)
        self._parameters = list(network.parameters())
        self.optimiser = torch.optim.Adam(
            self._parameters,
            config.learning_rate,
            eps=1e-5,
            fused=device.type in ("cpu", "cuda"),
        )

    def learning_rate(self, progress: float) -> float:
        falls = self.config.schedule == "linear"
        return self.config.learning_rate * (max(0.0, 1 - progress) if falls else 1)

    def update(
        self,
        samples: Samples,
        progress: float,
        rng: np.random.Generator,
        pool: ThreadPoolExecutor,
    ) -> UpdateReport:
        """Some epochs over the samples; `progress` is the share of the run that is over."""
        config, size = self.config, len(samples.view)
        rate = self.learning_rate(progress)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        advantage = samples.advantage
        advantage = (advantage - advantage.mean()) / (advantage.std() + EPSILON)
        normalised = samples._replace(advantage=advantage)
        batch = min(config.minibatch, size)
        steps: list[StepReport] = []
        for _ in range(config.epochs):
            dealt = rng.permutation(size)[: size // batch * batch].reshape(-1, batch)
            steps += [self._step(normalised, rows, pool) for rows in dealt]
            moved = np.mean([step.approx_kl for step in steps[-len(dealt) :]])
            if config.target_kl and moved > config.target_kl:
                break
        self.updates += 1
        means = StepReport(*np.mean(steps, axis=0).tolist())
        return UpdateReport(rate, explained_variance(samples), means)

    def _step(self, samples: Samples, rows: Ints, pool: ThreadPoolExecutor) -> StepReport:
        """One optimiser step on some samples; every shard has a thread of its own."""
        shards = np.array_split(rows, min(self.config.shards, len(rows)))
        weights = [len(shard) / len(rows) for shard in shards]
        found = list(pool.map(lambda shard: self._gradients(samples, shard), shards))
        for index, parameter in enumerate(self._parameters):
            total = found[0][0][index].mul_(weights[0])
            for weight, (gradients, _) in zip(weights[1:], found[1:], strict=True):
                total.add_(gradients[index], alpha=weight)
            parameter.grad = total
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.max_grad_norm)
        self.optimiser.step()
        means = sum(weight * losses for weight, (_, losses) in zip(weights, found, strict=True))
        assert isinstance(means, Tensor)
        return StepReport(float(norm), *means.tolist())

    def _gradients(self, samples: Samples, rows: Ints) -> tuple[tuple[Tensor, ...], Tensor]:
        """Gradients of a shard's loss, and its losses."""
        config = self.config
        batch = self.batch(samples, rows)
        with mixed_precision(self._device, self._precision):
            output = self.network(batch.observation)
        losses = losses_of(output, batch, config.clip)
        loss = (
            losses.policy
            + config.value_weight * losses.value
            - config.entropy_weight * losses.entropy
        )
        gradients = torch.autograd.grad(loss, self._parameters)
        return gradients, torch.stack(losses).detach().cpu()

    def load_optimiser(self, state: dict[str, Any]) -> None:
        fused = self.optimiser.defaults["fused"]
        self.optimiser.load_state_dict(state)
        for group in self.optimiser.param_groups:
            group["fused"] = fused  # of this device, not of the one that saved

    def batch(self, samples: Samples, rows: Ints) -> Batch:
        """Some samples; the mask follows from the position, as it did when the action was drawn."""
        observation = np.empty((len(rows), self._observer.size), dtype=np.float32)
        legal = np.zeros((len(rows), MAX_LEGAL), dtype=np.int64)
        masked = np.ones((len(rows), MAX_LEGAL), dtype=np.bool_)
        chosen = np.empty(len(rows), dtype=np.int64)
        most = _write_batch(
            samples.view[rows],
            samples.action[rows],
            self._rules.code,
            self._observer.planes,
            observation,
            legal,
            masked,
            chosen,
        )
        arrays = (
            observation.reshape(-1, *self._observer.shape),
            legal[:, :most],
            masked[:, :most],
            chosen,
            samples.log_prob[rows],
            samples.advantage[rows],
            samples.target[rows],
        )
        return Batch(*(torch.from_numpy(array).to(self._device) for array in arrays))


@jit
def _write_batch(
    views: Ints,
    actions: Ints,
    rules: int,
    planes: bool,
    observation: Floats,
    legal: Ints,
    masked: Bools,
    chosen: Ints,
) -> int:
    """Fill what the network sees; return the most legal actions that a position has."""
    most = 0
    for row in range(len(views)):
        write_observation(views[row], rules, side_of(views[row]), planes, observation[row])
        count = write_legal(views[row], rules, legal[row])
        masked[row, :count] = False
        chosen[row] = np.searchsorted(legal[row, :count], actions[row])
        most = max(most, count)
    return most
