"""What a run tells of itself: figures of its cycles and evaluations, and games to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pylos_env.position import Position
from pylos_env.record import GameRecord
from pylos_env.rules import Rules
from trainers.alphazero.evaluate import Evaluation
from trainers.alphazero.selfplay import Game

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


def search_figures(games: list[Game]) -> dict[str, float]:
    """What the recorded searches of finished games found."""
    decisions = [decision for game in games for decision in game.decisions]
    if not decisions:
        return {}
    shares = np.concatenate([decision.policy for decision in decisions])
    entropy = -(shares * np.log(np.maximum(shares, SMALLEST))).sum() / len(decisions)
    return {
        "selfplay/policy_entropy": float(entropy),
        "search/root_value": mean([decision.value for decision in decisions]),
        "search/proven": mean([float(decision.proven != 0) for decision in decisions]),
    }


def record_of(game: Game, rules: Rules) -> GameRecord:
    tags = {"Event": "self-play", "Round": str(game.number)}
    return GameRecord(Position(game.start, rules), tuple(game.actions), tags)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
