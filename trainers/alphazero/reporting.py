"""What a run tells of itself: figures of its cycles and evaluations, and games to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pylos_env.position import Position
from pylos_env.record import GameRecord
from pylos_env.rules import Rules
from trainers.alphazero.evaluate import Evaluation
from trainers.alphazero.learner import StepReport
from trainers.alphazero.selfplay import Game, winner_of

SMALLEST: Final = 1e-30
"""Smaller shares of a policy count nothing in its entropy."""


@dataclass
class Recent:
    """What all processes did since the last report."""

    games: int = 0
    seconds: float = 1e-9
    moves: float = 0
    simulations: float = 0
    plies: float = 0
    asked: float = 0
    known: float = 0

    def add(
        self,
        *,
        games: int,
        seconds: float,
        moves: float,
        simulations: float,
        plies: float,
        asked: float,
        known: float,
    ) -> None:
        self.games += games
        self.seconds += seconds
        self.moves += moves
        self.simulations += simulations
        self.plies += plies
        self.asked += asked
        self.known += known

    def figures(self) -> dict[str, float]:
        found = {
            "search/depth": self.plies / max(1.0, self.simulations),
            "perf/simulations_per_second": self.simulations / self.seconds,
            "perf/positions_per_second": self.moves / self.seconds,
            "perf/games_per_minute": 60 * self.games / self.seconds,
        }
        if self.asked:
            found["perf/known_share"] = self.known / self.asked
        return found


def learning_figures(steps: list[StepReport]) -> dict[str, float]:
    """What the last learning steps did, at least one."""
    return {
        "train/loss": mean([step.loss for step in steps]),
        "train/policy_loss": mean([step.policy_loss for step in steps]),
        "train/value_loss": mean([step.value_loss for step in steps]),
        "train/entropy": mean([step.entropy for step in steps]),
        "train/grad_norm": mean([step.grad_norm for step in steps]),
        "train/learning_rate": steps[-1].learning_rate,
    }


def selfplay_figures(games: list[Game]) -> dict[str, float]:
    """How the last games went, at least one, and what their recorded searches found."""
    decided = [winner for game in games if (winner := winner_of(game)) is not None]
    decisions = [decision for game in games for decision in game.decisions]
    figures = {
        "selfplay/game_length": mean([float(len(game.actions)) for game in games]),
        "selfplay/draw_rate": 1 - len(decided) / len(games),
    }
    if decided:
        figures["selfplay/first_player_score"] = 1 - mean([float(winner) for winner in decided])
    if decisions:
        shares = np.concatenate([decision.policy for decision in decisions])
        entropy = -(shares * np.log(np.maximum(shares, SMALLEST))).sum() / len(decisions)
        figures["selfplay/policy_entropy"] = float(entropy)
        figures["search/root_value"] = mean([decision.value for decision in decisions])
        figures["search/proven"] = mean([float(decision.proven != 0) for decision in decisions])
    return figures


def figures_of(found: Evaluation) -> dict[str, float]:
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


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
