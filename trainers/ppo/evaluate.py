"""How strong a checkpoint is by its raw policy: matches, a rating, the oracle's labelled positions.

Every checkpoint meets the fixed opponents over paired openings and plays its likeliest action.
Ratings come from all games of the run so far, anchored on `random` at 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from pylos_env import oracle
from pylos_env.oracle.labels import has_labels
from pylos_env.oracle.measure import Report
from pylos_env.record import GameRecord
from pylos_env.rules import Rules
from trainers.arena import MatchResult, play_match
from trainers.evaluator import Evaluator
from trainers.manifest import label_of
from trainers.network import PolicyValueNetwork
from trainers.players import NetworkPlayer
from trainers.ppo.config import PPOConfig
from trainers.ratings import Rating, Result, rate
from trainers.running import workers

ANCHOR: Final = "random"


@dataclass
class Evaluation:
    """What was found out about one checkpoint."""

    name: str
    rating: Rating
    draw_rate: float
    reward: float
    """Mean over all games: 1 won, 0 drawn, -1 lost."""
    win_rates: dict[str, float] = field(default_factory=dict)
    """By opponent; draws count nothing."""
    truth: Report | None = None
    game: GameRecord | None = None

    @property
    def label(self) -> str:
        return label_of(self.rating.elo)

    def figures(self) -> dict[str, float]:
        """By tag; what was not measured is left out."""
        values = {
            "eval/avg_episode_reward": self.reward,
            "eval/draw_rate": self.draw_rate,
            "eval/rating": self.rating.elo,
            "eval/rating_low": self.rating.low,
            "eval/rating_high": self.rating.high,
        }
        for opponent, win_rate in self.win_rates.items():
            kind = opponent.partition(":")[0]
            if kind in ("random", "rule_based", "alphabeta"):
                values[f"eval/win_rate_vs_{kind}"] = win_rate
        if self.truth is not None:
            values["eval/oracle_preserving"] = self.truth.preserving.rate
            values["eval/oracle_preserving_won"] = self.truth.won.rate
            values["eval/oracle_preserving_drawn"] = self.truth.drawn.rate
            if self.truth.wrong_sign is not None:
                values["eval/value_wrong_sign"] = self.truth.wrong_sign.rate
        return {name: value for name, value in values.items() if value == value}


class Judge:
    """Evaluates the checkpoints of one run, and remembers every result for the ratings."""

    def __init__(self, config: PPOConfig, threads: int) -> None:
        self._config = config
        self._rules = Rules.of(config.rules)
        self._threads = threads
        self.results: list[Result] = []

    def evaluate(self, name: str, network: PolicyValueNetwork, device: torch.device) -> Evaluation:
        """Play and measure one checkpoint, which `name` stands for in the ratings."""
        config = self._config.evaluation
        evaluator = Evaluator(copy.deepcopy(network), self._rules, device)
        player = NetworkPlayer(evaluator, name, seed=0)
        matches = self._matches(player)
        self.results += [match.result for match in matches]
        games = sum(len(match.games) for match in matches)
        truth = None
        if config.oracle_every and has_labels(self._rules):
            truth = oracle.benchmark(player, self._rules, every=config.oracle_every)
        return Evaluation(
            name,
            self.ratings()[name],
            sum(match.draws for match in matches) / games,
            sum(match.wins - match.losses for match in matches) / games,
            {match.second: match.wins / len(match.games) for match in matches},
            truth,
            matches[-1].games[0].record("evaluation"),
        )

    def ratings(self) -> dict[str, Rating]:
        return rate(self.results, ANCHOR)

    def _matches(self, player: NetworkPlayer) -> list[MatchResult]:
        """A match against each opponent; side by side, since one match leaves cores idle."""
        config = self._config.evaluation
        opponents = list(dict.fromkeys([ANCHOR, *config.opponents]))

        def match(opponent: str) -> MatchResult:
            seed = self._config.seed
            return play_match(player, opponent, self._rules, games=config.games, seed=seed)

        with workers(self._threads) as pool:
            return list(pool.map(match, opponents))

    # Going on

    def state(self) -> dict[str, Any]:
        return {"results": [[r.first, r.second, r.wins, r.draws, r.losses] for r in self.results]}

    def set_state(self, state: dict[str, Any]) -> None:
        self.results = [Result(*result) for result in state["results"]]
