"""The training run: play, learn, and now and then evaluate and save. The algorithm is in ppo.py.

    python -m trainers.ppo update.learning_rate=1e-3 network=mlp seed=3
    python -m trainers.ppo experiment=smoke
    python -m trainers.ppo resume=runs/ppo/first

`train(config)` does the same for library users. Groups of games and shards of minibatches have
threads of their own, and what they bring is put together in a fixed order: with the same config and
seed and a budget in steps or episodes, two runs give the same weights, interrupted or not.
"""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from pylos_env import kernel
from pylos_env.batch import default_threads
from pylos_env.errors import PylosError
from pylos_env.rules import Rules
from trainers.checkpoints import (
    EPISODES,
    CheckpointInfo,
    RunFolder,
    check_fits,
    rng_state,
    set_rng_state,
)
from trainers.evaluator import Evaluator
from trainers.metrics import Metrics, open_metrics
from trainers.network import build, choose_device, mixed_precision
from trainers.ppo.config import PPOConfig, check
from trainers.ppo.evaluate import Evaluation, Judge
from trainers.ppo.games import GameGroup
from trainers.ppo.league import GameResult, League, Lineup
from trainers.ppo.ppo import Learner, Rollout, StepReport, UpdateReport, collect, samples_of
from trainers.running import flushing_denormals, heeding_signals, torch_threads, workers

LINEUP_STREAM: Final = -1
"""Of chance: no game has this number."""


def train(config: PPOConfig, metrics: Metrics | None = None) -> Path:
    """Run to the end of the budget, or to a signal; returns the run's folder."""
    check(config)
    folder = Path(config.resume or config.run)
    if str(folder) == ".":
        raise PylosError("run: expected a folder for the run, or resume=<folder>")
    with RunFolder(folder, config.keep, create=not config.resume, naming=EPISODES) as run:
        trainer = Trainer(config, run)
        resumed = trainer.resume() if config.resume else None
        with (
            metrics
            or open_metrics(
                folder,
                resume=resumed,
                console=config.console,  # type: ignore[arg-type]
                wandb_project=config.wandb or None,
            ) as sinks,
            heeding_signals(trainer.stopped),
        ):
            trainer.run(sinks)
    return folder


class Trainer:
    """One run: everything that `state` saves, and the loop over it."""

    def __init__(self, config: PPOConfig, folder: RunFolder) -> None:
        self.config = config
        self.folder = folder
        self.rules = Rules.of(config.rules)
        self.device = choose_device(config.device)
        self.threads = config.threads or default_threads()
        self.stopped = threading.Event()
        torch.manual_seed(config.seed)
        network = build(config.network, self.rules)
        self.learner = Learner(network, config.update, self.rules, self.device, config.precision)
        self.live = Evaluator(copy.deepcopy(network), self.rules, self.device)
        self.league = League(config.league)
        lineup, count = self.league.lineup(), config.rollout.groups
        self.groups = [
            GameGroup(self.rules, config.rollout, config.seed, index, count, lineup)
            for index in range(count)
        ]
        self.rng = np.random.default_rng(config.seed)
        self.judge = Judge(config, self.threads)
        self.steps = 0
        self.episodes = 0
        self.seconds = 0.0  # of training, evaluations aside
        self.evaluated = 0.0  # the budget's clock at the last evaluation
        self.best_elo: float | None = None  # of a checkpoint
        self._last_figures: dict[str, float] = {}  # of the last evaluation
        self._reports: list[UpdateReport] = []
        self._finished: list[GameResult] = []
        self._interval = (0, 0.0)  # steps and seconds since the last figures

    # The loop

    @flushing_denormals()
    def run(self, metrics: Metrics) -> None:
        """Play and learn until the budget is spent or somebody asks to stop."""
        metrics.begin(self.config.to_dict())
        metrics.message(
            f"{self.rules}, {self.config.network.kind} with "
            f"{sum(p.numel() for p in self.learner.network.parameters()):,} weights on "
            f"{self.device}, {self.threads} threads; {self.folder.path}"
        )
        # groups and shards keep the cores busy
        with torch_threads(1), workers(self.threads) as pool:
            while not self.stopped.is_set() and self.progress() < 1:
                warming_up = self.league.warming_up
                self.iterate(pool)
                if warming_up and not self.league.warming_up:
                    metrics.message(f"the warm-up is over after {self.episodes:,} games")
                if self._finished and self._reports:
                    metrics.scalars(self.steps, self._figures())
                if self._evaluation_is_due():
                    self.checkpoint(metrics)
            if not self.stopped.is_set() and self._clock() > self.evaluated:
                self.checkpoint(metrics)
        if self.stopped.is_set():
            metrics.flush()
            self.save(best=False)
            metrics.message(
                f"stopped and saved; go on with: python -m trainers.ppo resume={self.folder.path}"
            )
            return
        metrics.finish(self._finish_ladder())
        metrics.message(f"done: {self.episodes:,} games, {self.steps:,} steps")

    def iterate(self, pool: ThreadPoolExecutor) -> None:
        """A rollout of every group, and the update that learns from it."""
        began = time.monotonic()
        config, update = self.config, self.config.update
        key = kernel.draw(kernel.draw(config.seed, LINEUP_STREAM), self.learner.updates)
        lineup = self.league.lineup(key)
        rollouts = list(pool.map(lambda group: self._play(group, lineup), self.groups))
        samples = samples_of(rollouts, update.gamma, update.gae_lambda)
        if len(samples.view):
            report = self.learner.update(samples, self.progress(), self.rng, pool)
            self._reports.append(report)
            self.live.take(self.learner.network)
        self._count_games()
        steps = config.rollout.plies * config.rollout.games * len(self.groups)
        self.steps += steps
        self.seconds += time.monotonic() - began
        self._interval = self._interval[0] + steps, self._interval[1] + time.monotonic() - began

    def _play(self, group: GameGroup, lineup: Lineup) -> Rollout:
        config, frozen = self.config, self.league.policies()
        with mixed_precision(self.device, config.precision):
            return collect(group, self.live, frozen, lineup, config.rollout, config.update.gamma)

    def _count_games(self) -> None:
        """Hand the finished games to the league, which may take a snapshot."""
        league = self.league
        finished = [result for group in self.groups for result in group.take_results()]
        league.record(finished)
        self.episodes += len(finished)
        self._finished += finished
        due = self.learner.updates % self.config.league.snapshot_every == 0 or not league.pool
        if due and not league.warming_up:
            league.add(self.live, self.episodes)
        league.forget({number for group in self.groups for number in group.opponents.tolist()})

    # The budget

    def progress(self) -> float:
        """The share of the budget that is spent."""
        budget = self.config.budget
        shares = [
            spent / limit
            for spent, limit in (
                (self.seconds / 60, budget.minutes),
                (self.episodes, budget.episodes),
                (self.steps, budget.steps),
            )
            if limit
        ]
        return min(1.0, max(shares))

    def _clock(self) -> float:
        """What evaluations are counted by."""
        return self.seconds / 60 if self.config.budget.minutes else float(self.steps)

    def _evaluation_is_due(self) -> bool:
        config = self.config
        interval = (
            config.evaluation.every_minutes
            if config.budget.minutes
            else float(config.evaluation.every_steps)
        )
        return self._clock() >= self.evaluated + interval

    # Checkpoints

    def checkpoint(self, metrics: Metrics) -> None:
        """Evaluate, save, and enter the ladder."""
        self.evaluated = self._clock()
        name = EPISODES.stem(self.episodes)
        found = self.judge.evaluate(name, self.learner.network, self.device)
        self._last_figures = found.figures()
        metrics.scalars(self.steps, self._last_figures)
        if found.game is not None:
            metrics.game(self.steps, "sample/evaluation", found.game)
            metrics.picture(self.steps, "sample/position", found.game.end)
        metrics.flush()
        elo = self.league.current_elo
        best = self.best_elo is None or elo >= self.best_elo
        self.best_elo = elo if best else self.best_elo
        self.save(best)
        self._enter(found)

    def save(self, best: bool) -> Path:
        info = CheckpointInfo(
            asdict(self.config.network),
            self.rules,
            self.config.network.observation,
            config=self.config.to_dict(),
            counters={
                "episodes": self.episodes,
                "steps": self.steps,
                "updates": self.learner.updates,
                "seconds": self.seconds,
            },
        )
        weights = self.learner.network.state_dict()
        return self.folder.save(self.episodes, weights, info, self.state(), best=best)

    def _enter(self, found: Evaluation) -> None:
        self.folder.enter(
            self.episodes,
            found.label,
            found.win_rates["random"],
            rating=found.rating.elo,
            rating_low=found.rating.low,
            rating_high=found.rating.high,
            oracle_score=found.truth.preserving.rate if found.truth else None,
            simulations=0,
        )
        metadata = self.folder.metadata()
        metadata.add_elo(self.episodes, self.league.current_elo, best=self.league.best_elo)
        metadata.facts["league"] = self.league.table()
        self.folder.write_metadata(metadata)

    def _finish_ladder(self) -> dict[str, float]:
        """Rate the whole ladder by all games of the run; returns the last checkpoint's figures."""
        ratings = self.judge.ratings()
        manifest = self.folder.manifest(check_files=False)
        steps = [entry.step for entry in manifest.checkpoints]  # some of a part that was lost
        rated = {s: ratings[name][:3] for s in steps if (name := EPISODES.stem(s)) in ratings}
        manifest = manifest.with_ratings(rated)
        manifest.write()
        last = manifest.checkpoints[-1]
        results = self._last_figures | {
            "eval/win_rate_vs_random": last.win_rate_vs_random,
            "league/current_elo": self.league.current_elo,
            "env/episodes": float(self.episodes),
        }
        for name, value in (
            ("", last.rating),
            ("_low", last.rating_low),
            ("_high", last.rating_high),
        ):
            if value is not None:
                results[f"eval/rating{name}"] = value
        if last.oracle_score is not None:
            results["eval/oracle_preserving"] = last.oracle_score
        return results

    # Going on

    def state(self) -> dict[str, Any]:
        return {
            "network": dict(self.learner.network.state_dict()),
            "optimiser": self.learner.optimiser.state_dict(),
            "updates": self.learner.updates,
            "groups": [group.state() for group in self.groups],
            "league": self.league.state(),
            "judge": self.judge.state(),
            "rng": rng_state(minibatches=self.rng),
            "steps": self.steps,
            "episodes": self.episodes,
            "seconds": self.seconds,
            "evaluated": self.evaluated,
            "best_elo": self.best_elo,
        }

    def resume(self) -> int:
        """Take up the newest good checkpoint of the folder; returns its environment steps."""
        checkpoint = self.folder.load("latest")
        check_fits(checkpoint, self.rules, self.config.network.observation)
        state = checkpoint.state
        assert state is not None
        saved, rollout = state["groups"], self.config.rollout
        for name, here, there in (
            ("rollout.groups", rollout.groups, len(saved)),
            ("rollout.games", rollout.games, len(saved[0]["games"][0])),
        ):
            if here != there:
                raise PylosError(f"{name}: the run has {there}, got {here}")
        self.learner.network.load_state_dict(state["network"])
        self.learner.load_optimiser(state["optimiser"])
        self.learner.updates = state["updates"]
        self.live.take(self.learner.network)
        for group, games in zip(self.groups, saved, strict=True):
            group.set_state(games)
        self.league.set_state(state["league"], self.live)
        self.judge.set_state(state["judge"])
        set_rng_state(state["rng"], minibatches=self.rng)
        self.steps = state["steps"]
        self.episodes = state["episodes"]
        self.seconds = state["seconds"]
        self.evaluated = state["evaluated"]
        self.best_elo = state["best_elo"]
        return self.steps

    # Figures

    def _figures(self) -> dict[str, float]:
        """What the last updates did, for the display."""
        reports, games, league = self._reports, self._finished, self.league
        steps, seconds = self._interval
        progress = self.progress()
        means = np.mean([report.steps for report in reports], axis=0).tolist()
        figures = {
            f"train/{name}": mean for name, mean in zip(StepReport._fields, means, strict=True)
        }
        figures |= {
            "train/explained_variance": reports[-1].explained_variance,
            "train/learning_rate": reports[-1].learning_rate,
            "league/current_elo": league.current_elo,
            "league/best_elo": league.best_elo,
            "league/pool_size": float(len(league.pool)),
            "league/rule_based_score": league.rule_based_score,
            "env/episode_length": float(np.mean([game.plies for game in games])),
            "env/episodes": float(self.episodes),
            "perf/steps_per_second": steps / max(seconds, 1e-9),
            "perf/games_per_minute": 60 * len(games) / max(seconds, 1e-9),
            "perf/progress": progress,
            "perf/minutes_left": self.seconds / 60 * (1 - progress) / max(progress, 1e-9),
        }
        self._reports, self._finished, self._interval = [], [], (0, 0.0)
        return figures
