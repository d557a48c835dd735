"""The training loop: play, learn, and now and then evaluate and save.

    python -m trainers.alphazero search.simulations=64 network=resnet seed=3 device=cuda
    python -m trainers.alphazero experiment=smoke
    python -m trainers.alphazero resume=runs/alphazero/first

`train(config)` does the same for library users. A cycle is some plies of self-play of every game;
meanwhile the learner takes as many steps as keep the reuse of samples at its setting, on what the
cycles before have brought, and the games play with the weights that these have left. So no core is
idle, and still, with the same config and seed and a budget in games or steps, two runs give the
same weights, interrupted or not.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pylos_env.batch import default_threads
from pylos_env.errors import PylosError
from pylos_env.observation import Observer
from pylos_env.position import Position
from pylos_env.record import GameRecord
from pylos_env.rules import Rules
from trainers.alphazero.config import AlphaZeroConfig, check
from trainers.alphazero.evaluate import Evaluation, Judge, checkpoint_name, freeze
from trainers.alphazero.learner import Learner, StepReport
from trainers.alphazero.replay import Replay, View
from trainers.alphazero.selfplay import Game, winner_of
from trainers.alphazero.targets import samples_of
from trainers.alphazero.workers import make_workers, torch_threads
from trainers.checkpoints import CheckpointInfo, RunFolder, check_fits, rng_state, set_rng_state
from trainers.metrics import Metrics, open_metrics
from trainers.network import build, choose_device
from trainers.players import Evaluator


def train(config: AlphaZeroConfig, metrics: Metrics | None = None) -> Path:
    """Run to the end of the budget, or to a signal; returns the run's folder."""
    check(config)
    folder = Path(config.resume or config.run)
    if str(folder) == ".":
        raise PylosError("run: expected a folder for the run, or resume=<folder>")
    with RunFolder(folder, keep=config.keep, create=not config.resume) as run:
        trainer = Trainer(config, run)
        with closing(trainer.workers), _heeding_signals(trainer):
            resumed = trainer.resume() if config.resume else None
            with metrics or open_metrics(
                folder,
                resume=resumed,
                console=config.console,  # type: ignore[arg-type]
                wandb_project=config.wandb or None,
            ) as sinks:
                trainer.run(sinks)
    return folder


class Trainer:
    """One run: everything that `state` saves, and the loop over it."""

    def __init__(self, config: AlphaZeroConfig, folder: RunFolder) -> None:
        self.config = config
        self.folder = folder
        self.rules = Rules.of(config.rules)
        self.device = choose_device(config.device)
        self.threads = config.threads or default_threads()
        self.stopped = threading.Event()
        torch.manual_seed(config.seed)
        network = build(config.network, self.rules)
        self.learner = Learner(network, config.learner, self.device)
        observer = Observer(config.network.observation, self.rules)
        self.replay = Replay(config.replay, self.rules, observer)
        self.workers = make_workers(config)
        self.rng = np.random.default_rng(config.seed)
        self.view: View = "random" if config.learner.symmetries else "plain"
        if config.network.canonical and self.rules.symmetric:
            self.view = "canonical"
        self.judge = Judge(config, self.threads)
        self.best: Evaluator | None = None
        self.games = 0
        self.seconds = 0.0  # of training, evaluations aside
        self.owed = 0.0  # samples still to be learnt from
        self.evaluated = 0.0  # the budget's clock at the last evaluation
        self._cycle_seconds = 0.0
        self._steps: list[StepReport] = []
        self._finished: list[Game] = []

    # The loop

    def run(self, metrics: Metrics) -> None:
        """Play and learn until the budget is spent or somebody asks to stop."""
        metrics.begin(self.config.to_dict())
        metrics.message(
            f"{self.rules}, {self.config.network.kind} with "
            f"{sum(p.numel() for p in self.learner.network.parameters()):,} weights on "
            f"{self.device}, {self.threads} threads; {self.folder.path}"
        )
        while not self.stopped.is_set() and self.progress() < 1:
            self.cycle()
            if self._finished and self._steps:
                metrics.scalars(self.learner.steps, self._figures())
            if self._evaluation_is_due():
                self.checkpoint(metrics)
        if self.stopped.is_set():
            metrics.flush()
            self.save(best=False)
            metrics.message(
                f"stopped and saved; go on with: python -m trainers.alphazero "
                f"resume={self.folder.path}"
            )
            return
        if self.learner.steps and self._clock() > self.evaluated:
            self.checkpoint(metrics)
        results = self._finish_ladder()
        metrics.finish(results)
        metrics.message(f"done: {self.games:,} games, {self.learner.steps:,} steps")

    def cycle(self) -> None:
        """Play with the weights of the last cycle, and learn from what it brought."""
        began = time.monotonic()
        self.workers.begin(self.learner.playing)
        self.learn()
        finished = self.workers.finish()
        samples = samples_of(finished, self.config.targets)
        self.replay.add(samples)
        self.games += len(finished)
        if self.replay.total >= self.config.replay.start:
            self.owed += samples.size * self.config.learner.reuse
        self._finished += finished
        self._cycle_seconds += time.monotonic() - began
        self.seconds += time.monotonic() - began

    def learn(self) -> None:
        """The learning steps that the samples so far have earned."""
        config = self.config.learner
        with torch_threads(1 if self.device.type == "cpu" else self.threads):
            while self.owed >= config.batch and self.progress() < 1:
                self.owed -= config.batch
                batch = self.replay.draw(self.rng, config.batch, self.view)
                self._steps.append(self.learner.step(batch, self.progress()))

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
        return self.learner.steps > 0 and self._clock() >= self.evaluated + interval

    # Checkpoints

    def checkpoint(self, metrics: Metrics) -> None:
        """Evaluate, ask the gate, save, and enter the ladder."""
        step = self.learner.steps
        self.evaluated = self._clock()
        frozen = freeze(self.learner.playing, self.rules, self.device)
        with torch_threads(1):
            found = self.judge.evaluate(step, frozen)
            accepted, score = True, None
            if self.best is not None and self.config.gate.games:
                score = self.judge.gate(step, frozen, self.best).score
                accepted = score >= self.config.gate.threshold
        if accepted:
            self.best = frozen
        values = _figures_of(found)
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
        self._enter(found)

    def save(self, best: bool) -> Path:
        info = CheckpointInfo(
            asdict(self.config.network),
            self.rules,
            self.config.network.observation,
            config=self.config.to_dict(),
            counters={"games": self.games, "samples": self.replay.total, "seconds": self.seconds},
        )
        weights = self.learner.playing.state_dict()
        return self.folder.save(self.learner.steps, weights, info, self.state(), best=best)

    def _enter(self, found: Evaluation) -> None:
        assert found.rating is not None
        self.folder.enter(
            found.step,
            found.label,
            found.win_rates["random"],
            rating=found.rating.elo,
            rating_low=found.rating.low,
            rating_high=found.rating.high,
            oracle_score=found.truth.preserving.rate if found.truth else None,
            simulations=self.config.evaluation.simulations,
        )
        metadata = self.folder.metadata()
        metadata.add_elo(found.step, found.rating.elo)
        self.folder.write_metadata(metadata)

    def _finish_ladder(self) -> dict[str, float]:
        """Rate the whole ladder by all games of the run; returns the last checkpoint's figures."""
        if not self.judge.results:
            return {}
        from dataclasses import replace

        from trainers.alphazero.evaluate import label_of

        ratings = self.judge.ratings()
        manifest = self.folder.manifest(check_files=False)
        for entry in manifest.checkpoints:
            rating = ratings[checkpoint_name(entry.step)]
            manifest = manifest.with_entry(
                replace(
                    entry,
                    label=label_of(rating.elo),
                    rating=rating.elo,
                    rating_low=rating.low,
                    rating_high=rating.high,
                )
            )
        manifest.write()
        last = manifest.checkpoints[-1]
        results = {"eval/win_rate_vs_random": last.win_rate_vs_random}
        if last.rating is not None:
            results["eval/rating"] = last.rating
        if last.oracle_score is not None:
            results["eval/oracle_preserving"] = last.oracle_score
        return results

    # Going on

    def state(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state(),
            "replay": self.replay.state(),
            "groups": self.workers.states(),
            "judge": self.judge.state(),
            "best": None if self.best is None else dict(self.best.network.state_dict()),
            "rng": rng_state(batches=self.rng),
            "games": self.games,
            "seconds": self.seconds,
            "owed": self.owed,
            "evaluated": self.evaluated,
        }

    def resume(self) -> int:
        """Take up the newest good checkpoint of the folder; returns its step."""
        checkpoint = self.folder.load("latest")
        check_fits(checkpoint, self.rules, self.config.network.observation)
        state = checkpoint.state
        assert state is not None
        self.learner.set_state(state["learner"])
        self.replay.set_state(state["replay"])
        groups = self.config.selfplay.groups
        if len(state["groups"]) != groups:
            raise PylosError(f"selfplay.groups: the run has {len(state['groups'])}, got {groups}")
        self.workers.set_states(state["groups"])
        self.judge.set_state(state["judge"], self.learner.playing)
        if state["best"] is not None:
            self.best = freeze(self.learner.playing, self.rules, self.device)
            self.best.network.load_state_dict(state["best"])
        set_rng_state(state["rng"], batches=self.rng)
        self.games = state["games"]
        self.seconds = state["seconds"]
        self.owed = state["owed"]
        self.evaluated = state["evaluated"]
        return checkpoint.info.step

    # Figures

    def _figures(self) -> dict[str, float]:
        """What the last cycles did, for the display."""
        steps, games = self._steps, self._finished
        tallies = self.workers.take_tallies()
        seconds = max(self._cycle_seconds, 1e-9)
        decided = [winner for game in games if (winner := winner_of(game)) is not None]
        progress = self.progress()
        figures = {
            "train/loss": _mean([s.loss for s in steps]),
            "train/policy_loss": _mean([s.policy_loss for s in steps]),
            "train/value_loss": _mean([s.value_loss for s in steps]),
            "train/entropy": _mean([s.entropy for s in steps]),
            "train/grad_norm": _mean([s.grad_norm for s in steps]),
            "train/learning_rate": steps[-1].learning_rate,
            "selfplay/games": float(self.games),
            "selfplay/positions": float(self.replay.total),
            "selfplay/game_length": _mean([float(len(game.actions)) for game in games]),
            "selfplay/draw_rate": 1 - len(decided) / len(games),
            "replay/size": float(len(self.replay)),
            "perf/simulations_per_second": sum(t.simulations for t in tallies) / seconds,
            "perf/positions_per_second": sum(t.moves for t in tallies) / seconds,
            "perf/games_per_minute": 60 * len(games) / seconds,
            "perf/progress": progress,
            "perf/minutes_left": self.seconds / 60 * (1 - progress) / max(progress, 1e-9),
        }
        if decided:
            figures["selfplay/first_player_score"] = 1 - _mean([float(w) for w in decided])
        self._steps, self._finished = [], games[-1:]
        self._cycle_seconds = 0.0
        return figures


def _figures_of(found: Evaluation) -> dict[str, float]:
    assert found.rating is not None
    values = {
        "eval/win_rate_vs_random": found.win_rates["random"],
        "eval/draw_rate": found.draw_rate,
        "eval/rating": found.rating.elo,
        "eval/rating_low": found.rating.low,
        "eval/rating_high": found.rating.high,
    }
    for name, rate in found.win_rates.items():
        if name.startswith("alphabeta"):
            values["eval/win_rate_vs_alphabeta"] = rate
        elif name == "rule_based":
            values["eval/win_rate_vs_rule_based"] = rate
    if found.truth is not None:
        values["eval/oracle_preserving"] = found.truth.preserving.rate
        values["eval/oracle_preserving_won"] = found.truth.won.rate
        values["eval/oracle_preserving_drawn"] = found.truth.drawn.rate
        if found.truth.wrong_sign is not None:
            values["eval/value_wrong_sign"] = found.truth.wrong_sign.rate
    return {name: value for name, value in values.items() if value == value}


def record_of(game: Game, rules: Rules) -> GameRecord:
    tags = {"Event": "self-play", "Round": str(game.number)}
    return GameRecord(Position(game.start, rules), tuple(game.actions), tags)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@contextmanager
def _heeding_signals(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the cycle under way; a second Ctrl-C ends the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        trainer.stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
