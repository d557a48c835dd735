"""The training loop: play, learn, and now and then evaluate and save.

    python -m trainers.alphazero search.simulations=64 network=resnet seed=3 device=cuda
    python -m trainers.alphazero experiment=smoke
    python -m trainers.alphazero resume=runs/alphazero/first

`train(config)` does the same for library users. A cycle is some plies of self-play of every game;
meanwhile the learner takes as many steps as keep the reuse of samples at its setting, on what the
cycles before have brought, and the games play with the weights that these have left. So no core is
idle, and still, with the same config and seed and a budget in games or steps, two runs give the
same weights, interrupted or not.

Started by `torchrun`, several processes train one network: each plays games of its own and learns
from its own part of every batch. The first of them owns the run folder, evaluates and reports.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pylos_env.batch import default_threads
from pylos_env.errors import PylosError
from pylos_env.observation import Observer
from pylos_env.rules import Rules
from trainers.alphazero.backends import make_workers
from trainers.alphazero.beginning import first_network, grown
from trainers.alphazero.config import AlphaZeroConfig, check
from trainers.alphazero.evaluate import Judge, freeze
from trainers.alphazero.feed import feed
from trainers.alphazero.ladder import enter, rate_ladder
from trainers.alphazero.learner import Learner, StepReport, reports_of
from trainers.alphazero.replay import Replay, View
from trainers.alphazero.reporting import (
    Recent,
    figures_of,
    learning_figures,
    record_of,
    selfplay_figures,
)
from trainers.alphazero.selfplay import Game
from trainers.alphazero.targets import samples_of
from trainers.checkpoints import CheckpointInfo, RunFolder, check_fits, rng_state, set_rng_state
from trainers.distributed import ALONE, Rank, joined
from trainers.evaluator import Evaluator
from trainers.metrics import Metrics, open_metrics
from trainers.network import NetworkConfig
from trainers.running import flushing_denormals, heeding_signals, torch_threads
from trainers.settings import ConfigError


def train(config: AlphaZeroConfig, metrics: Metrics | None = None) -> Path:
    """Run to the end of the budget, or to a signal; returns the run's folder."""
    with joined() as rank:
        return _train(rank.from_leader(config if rank.leads else None), metrics, rank)


def _train(config: AlphaZeroConfig, metrics: Metrics | None, rank: Rank) -> Path:
    check(config)
    if config.learner.batch % (config.learner.accumulate * rank.count):
        raise ConfigError(f"learner.batch: {rank.count} processes cannot share it evenly")
    if config.initial and not config.resume:
        first_network(config)  # what does not fit is refused before there is a folder
    path = Path(config.resume or config.run)
    if str(path) == ".":
        raise PylosError("run: expected a folder for the run, or resume=<folder>")
    with ExitStack() as stack:
        folder: RunFolder | None = None
        if rank.leads:
            folder = RunFolder(path, keep=config.keep, create=not config.resume)
            stack.enter_context(folder)
        trainer = Trainer(config, folder, rank)
        stack.enter_context(closing(trainer.workers))
        stack.enter_context(heeding_signals(trainer.stopped))
        resumed = trainer.resume() if config.resume else None
        if not rank.leads:
            metrics = Metrics([])
        elif metrics is None:
            metrics = open_metrics(
                path,
                resume=resumed,
                console=config.console,  # type: ignore[arg-type]
                wandb_project=config.wandb or None,
            )
        trainer.run(stack.enter_context(metrics))
    return path


class Trainer:
    """One run: everything that `state` saves, and the loop over it."""

    def __init__(
        self, config: AlphaZeroConfig, folder: RunFolder | None, rank: Rank = ALONE
    ) -> None:
        """The folder is the leader's; the other processes of a run have none."""
        self.config = config
        self.rank = rank
        self._folder = folder
        self.rules = Rules.of(config.rules)
        self.device = rank.device(config.device)
        self.threads = config.threads or default_threads()
        self.stopped = threading.Event()
        self.learner = Learner(first_network(config), config.learner, self.device, rank)
        observer = Observer(config.network.observation, self.rules)
        window = replace(
            config.replay,
            capacity=rank.share(config.replay.capacity),
            start=rank.share(config.replay.start),
        )
        self.replay = Replay(window, self.rules, observer)
        self.workers = make_workers(config, rank)
        self.rng = np.random.default_rng(config.seed if rank.leads else [config.seed, rank.index])
        self.view: View = "random" if config.learner.symmetries else "plain"
        if config.network.canonical and self.rules.symmetric:
            self.view = "canonical"
        self.judge = Judge(config, self.threads)
        self.best: Evaluator | None = None
        self.games = 0  # of all processes, as are the samples
        self.samples = 0
        self.seconds = 0.0  # of training, evaluations aside
        self.owed = 0.0  # samples still to be learnt from
        self.evaluated = 0.0  # the budget's clock at the last evaluation
        self.evaluated_step = 0
        self._saved_games = -1
        self._halting = False
        self._recent = Recent()
        self._steps: list[StepReport] = []
        self._finished: list[Game] = []

    @property
    def folder(self) -> RunFolder:
        assert self._folder is not None, "only the leader has the folder"
        return self._folder

    @property
    def halting(self) -> bool:
        """Whether to stop; several processes must agree on it, at the end of a cycle."""
        return self.stopped.is_set() if self.rank.count == 1 else self._halting

    # The loop

    @flushing_denormals()
    def run(self, metrics: Metrics) -> None:
        """Play and learn until the budget is spent or somebody asks to stop."""
        metrics.begin(self.config.to_dict())
        metrics.message(
            f"{self.rules}, {self.config.network.kind} with "
            f"{sum(p.numel() for p in self.learner.network.parameters()):,} weights on "
            f"{self.device}, {self.threads} threads"
            + (f", {self.rank.count} processes" if self.rank.count > 1 else "")
            + (f"; {self.folder.path}" if self.rank.leads else "")
        )
        if self.progress() >= 1:
            metrics.message(
                f"the budget is spent: {self.seconds / 60:.1f} minutes, {self.games:,} games, "
                f"{self.learner.steps:,} steps so far; to go on: {self._larger_budget()}"
            )
            return
        while not self.halting and self.progress() < 1:
            self.cycle()
            if self._finished and self._steps:
                metrics.scalars(self.learner.steps, self._figures())
            if self._evaluation_is_due():
                self.checkpoint(metrics)
        if self.halting:
            metrics.flush()
            self.save(best=False)
            if self.rank.leads:
                metrics.message(
                    f"stopped and saved; go on with: python -m trainers.alphazero "
                    f"resume={self.folder.path}"
                )
            return
        if self.learner.steps and self._clock() > self.evaluated:
            self.checkpoint(metrics)
        elif self.games > self._saved_games:  # nothing was learnt from the last of them
            self.save(best=False)
        if not self.rank.leads:
            return
        if self.learner.steps == 0:
            metrics.message(
                f"nothing was learnt: {self.games:,} games left {self.samples:,} samples, and "
                f"learning begins with {self.config.replay.start:,} (replay.start); go on with: "
                f"python -m trainers.alphazero resume={self.folder.path} {self._larger_budget()}"
            )
        metrics.finish(rate_ladder(self.folder, self.judge))
        metrics.message(f"done: {self.games:,} games, {self.learner.steps:,} steps")

    def cycle(self) -> None:
        """Play with the weights of the last cycle, and learn from what it brought."""
        began = time.monotonic()
        self.workers.begin(self.learner.playing)
        self.learn()
        finished = self.workers.finish()
        samples = samples_of(finished, self.config.targets, self.progress())
        self.replay.add(samples)
        self._finished += finished
        self._agree(len(finished), samples.size, time.monotonic() - began)

    def _agree(self, games: int, samples: int, seconds: float) -> None:
        """Add up what all processes did in a cycle; the clock is the leader's."""
        tallies = self.workers.take_tallies()
        leads = self.rank.leads
        totals = self.rank.sums(
            [
                games,
                samples,
                self.replay.total,
                seconds if leads else 0.0,
                sum(tally.moves for tally in tallies),
                sum(tally.simulations for tally in tallies),
                sum(tally.plies for tally in tallies),
                sum(tally.asked for tally in tallies),
                sum(tally.known for tally in tallies),
                len(self.replay) == 0,
                self.stopped.is_set(),
            ]
        )
        games, samples, self.samples = (int(total) for total in totals[:3])
        seconds, moves, simulations, plies, asked, known, empty, stopped = totals[3:]
        self.games += games
        if self.samples >= self.config.replay.start and not empty:
            self.owed += samples * self.config.learner.reuse
        self.seconds += seconds
        self._recent.add(
            games=games,
            seconds=seconds,
            moves=moves,
            simulations=simulations,
            plies=plies,
            asked=asked,
            known=known,
        )
        self._halting = stopped > 0

    def learn(self) -> None:
        """The learning steps that the samples so far have earned."""
        config = self.config.learner
        size = self.rank.share(config.batch)
        count = self._steps_due()
        begun, drawn = [], []
        with torch_threads(1 if self.device.type == "cpu" else self.threads):
            batches = feed(lambda: self.replay.draw(self.rng, size, self.view), count, self.device)
            for batch in batches:
                self.owed -= config.batch
                begun.append(self.learner.begin_step(batch, self.progress()))
                drawn.append(batch.rows)
            self._steps += reports_of(begun)
            if begun:
                self.replay.learnt(torch.cat(drawn), torch.cat([step.errors for step in begun]))

    def _steps_due(self) -> int:
        if self.progress() >= 1:
            return 0
        due = int(self.owed // self.config.learner.batch)
        limit = self.config.budget.steps
        return min(due, limit - self.learner.steps) if limit else due

    # The budget

    def progress(self) -> float:
        """The share of the budget that is spent."""
        budget = self.config.budget
        shares = [
            spent / limit
            for spent, limit in (
                (self.seconds / 60, budget.minutes),
                (self.games, budget.games),
                (self.learner.steps, budget.steps),
            )
            if limit
        ]
        return min(1.0, max(shares))

    def _larger_budget(self) -> str:
        """A setting with which a run goes on whose budget is spent."""
        spent = {
            "minutes": self.seconds / 60,
            "games": float(self.games),
            "steps": float(self.learner.steps),
        }
        limits = {name: float(getattr(self.config.budget, name)) for name in spent}
        name = max((name for name in limits if limits[name]), key=lambda n: spent[n] / limits[n])
        return f"budget.{name}={2 * max(limits[name], spent[name]):.0f}"

    def _clock(self) -> float:
        """What evaluations are counted by."""
        return self.seconds / 60 if self.config.budget.minutes else float(self.learner.steps)

    def _evaluation_is_due(self) -> bool:
        config = self.config
        interval = (
            config.evaluation.every_minutes
            if config.budget.minutes
            else float(config.evaluation.every_steps)
        )
        step = self.learner.steps
        early = any(self.evaluated_step < due <= step for due in config.evaluation.early_steps)
        return step > 0 and (early or self._clock() >= self.evaluated + interval)

    # Checkpoints

    def checkpoint(self, metrics: Metrics) -> None:
        """Evaluate, ask the gate, save, and enter the ladder."""
        step = self.learner.steps
        self.evaluated = self._clock()
        self.evaluated_step = step
        if not self.rank.leads:
            self.save(best=False)
            return
        frozen = freeze(self.learner.playing, self.rules, self.device)
        metrics.message(f"step {step:,} is evaluated ...")
        with torch_threads(1):
            found = self.judge.evaluate(step, frozen)
            accepted, score = True, None
            if self.best is not None and self.config.gate.games:
                score = self.judge.gate(step, frozen, self.best).score
                accepted = score >= self.config.gate.threshold
        if accepted:
            self.best = frozen
        values = figures_of(found)
        if score is not None:
            values |= {"gate/score": score, "gate/accepted": float(accepted)}
        metrics.scalars(step, values)
        if found.game is not None:
            metrics.game(step, "sample/evaluation", found.game)
        if self._finished:
            sample = record_of(self._finished[-1], self.rules)
            metrics.game(step, "sample/selfplay", sample)
            metrics.picture(step, "sample/position", sample.end)
        metrics.flush()
        self.save(best=accepted)
        enter(self.folder, found, self.config.evaluation.simulations)

    def save(self, best: bool) -> None:
        """Save everything; all processes take part, the leader writes."""
        state = self.state()
        self._saved_games = self.games
        if not self.rank.leads:
            return
        info = CheckpointInfo(
            asdict(self.config.network),
            self.rules,
            self.config.network.observation,
            config=self.config.to_dict(),
            counters={"games": self.games, "samples": self.samples, "seconds": self.seconds},
        )
        weights = self.learner.playing.state_dict()
        self.folder.save(self.learner.steps, weights, info, state, best=best)

    # Going on

    def state(self) -> dict[str, Any]:
        """What a resumed run needs: the leader's own, and what only the other processes know."""
        mine, *others = self.rank.gathered(self._own_state()) or [{}]
        return mine | {
            "others": others,
            "learner": self.learner.state(),
            "judge": self.judge.state(),
            "best": None if self.best is None else dict(self.best.network.state_dict()),
            "games": self.games,
            "samples": self.samples,
            "seconds": self.seconds,
            "owed": self.owed,
            "evaluated": self.evaluated,
            "evaluated_step": self.evaluated_step,
        }

    def _own_state(self) -> dict[str, Any]:
        return {
            "replay": self.replay.state(),
            "groups": self.workers.states(),
            "rng": rng_state(batches=self.rng),
        }

    def resume(self) -> int:
        """Take up the newest good checkpoint of the folder; returns its step."""
        found: tuple[int, dict[str, Any]] | None = None
        parts: list[dict[str, Any]] | None = None
        if self.rank.leads:
            checkpoint = self.folder.load("latest")
            check_fits(checkpoint, self.rules, self.config.network.observation)
            assert checkpoint.state is not None
            common = dict(checkpoint.state)
            theirs = NetworkConfig(**checkpoint.info.network)
            if theirs != self.config.network:
                common |= grown(common, theirs, self.learner)
            found = checkpoint.info.step, common
            own = {name: common.pop(name) for name in ("replay", "groups", "rng")}
            parts = [own, *common.pop("others", [])]
            if len(parts) != self.rank.count:
                raise PylosError(
                    f"the run was trained by {len(parts)} processes, go on with as many: "
                    f"torchrun --nproc-per-node={len(parts)}"
                )
        step, state = self.rank.from_leader(found)
        own = self.rank.scattered(parts)
        self.replay.set_state(own["replay"])
        self.workers.set_states(own["groups"])
        self.learner.set_state(state["learner"])
        self.judge.set_state(state["judge"], self.learner.playing)
        if state["best"] is not None:
            self.best = freeze(self.learner.playing, self.rules, self.device)
            self.best.load(state["best"])
        set_rng_state(own["rng"], batches=self.rng)
        self.games = self._saved_games = state["games"]
        self.samples = state.get("samples", self.replay.total)
        self.seconds = state["seconds"]
        self.owed = state["owed"]
        self.evaluated = state["evaluated"]
        self.evaluated_step = state["evaluated_step"]
        return step

    # Figures

    def _figures(self) -> dict[str, float]:
        """What the last cycles did, for the display."""
        progress, drawn = self.progress(), self.learner.steps * self.config.learner.batch
        figures = {
            **learning_figures(self._steps),
            **selfplay_figures(self._finished),
            **self._recent.figures(),
            "selfplay/games": float(self.games),
            "selfplay/positions": float(self.samples),
            "replay/size": float(len(self.replay) * self.rank.count),
            "replay/reuse": drawn / self.samples,
            "perf/progress": progress,
            "perf/minutes_left": self.seconds / 60 * (1 - progress) / max(progress, 1e-9),
            **self.workers.figures(),
        }
        self._recent, self._steps, self._finished = Recent(), [], self._finished[-1:]
        return figures
