"""How strong a checkpoint is: matches, a rating, the oracle's labelled positions, a label.

Every checkpoint meets fixed opponents and a few earlier checkpoints over paired openings. Ratings
come from all games of the run so far, anchored on `random` at 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Final

import torch

from pylos_env import oracle
from pylos_env.agents import Agent, AgentLike
from pylos_env.oracle.labels import has_labels
from pylos_env.oracle.measure import Report
from pylos_env.record import GameRecord
from pylos_env.rules import Rules
from trainers.alphazero.config import AlphaZeroConfig
from trainers.arena import MatchResult, play_match
from trainers.evaluator import Evaluator
from trainers.manifest import label_of
from trainers.network import PolicyValueNetwork
from trainers.players import NetworkPlayer, SearchPlayer
from trainers.ratings import Rating, Result, rate
from trainers.running import workers
from trainers.search import SearchConfig

ANCHOR: Final = "random"


@dataclass
class Evaluation:
    """What was found out about one checkpoint."""

    step: int
    win_rates: dict[str, float] = field(default_factory=dict)
    """By opponent; draws count nothing."""
    draw_rate: float = 0.0
    rating: Rating | None = None
    truth: Report | None = None
    game: GameRecord | None = None

    @property
    def label(self) -> str:
        return label_of(self.rating.elo if self.rating else 0.0)


def freeze(network: PolicyValueNetwork, rules: Rules, device: torch.device) -> Evaluator:
    """A copy of a network that later learning does not touch."""
    return Evaluator(copy.deepcopy(network), rules, device)


def player(evaluator: Evaluator, simulations: int, name: str) -> Agent:
    """A checkpoint as an agent; without simulations its raw policy."""
    if simulations == 0:
        return NetworkPlayer(evaluator, name, seed=0)
    return SearchPlayer(
        evaluator, SearchConfig(simulations=simulations, gumbel_scale=0.0), name, seed=0
    )


class Judge:
    """Evaluates checkpoints of one run, and remembers every result for the ratings."""

    def __init__(self, config: AlphaZeroConfig, threads: int) -> None:
        self._config = config
        self._rules = Rules.of(config.rules)
        self._threads = threads
        self._earlier: list[tuple[str, Evaluator]] = []
        self.results: list[Result] = []

    def evaluate(self, step: int, evaluator: Evaluator) -> Evaluation:
        """Play and measure one checkpoint; it becomes an opponent of later ones."""
        config = self._config.evaluation
        name = checkpoint_name(step)
        fixed = list(dict.fromkeys([ANCHOR, *config.opponents]))
        earlier = [player(other, config.simulations, name) for name, other in self._earlier]
        matches = self._matches(evaluator, name, [*fixed, *earlier])
        found = Evaluation(step)
        for match in matches:
            self.results.append(match.result)
            if match.second in fixed:
                found.win_rates[match.second] = match.wins / len(match.games)
        against_fixed = [match for match in matches if match.second in fixed]
        games = sum(len(match.games) for match in against_fixed)
        found.draw_rate = sum(match.draws for match in against_fixed) / games
        found.rating = self.ratings()[name]
        found.game = against_fixed[-1].games[0].record("evaluation")
        if config.oracle_every and has_labels(self._rules):
            found.truth = oracle.benchmark(
                player(evaluator, config.simulations, name),
                self._rules,
                every=config.oracle_every,
            )
        self._earlier = [*self._earlier, (name, evaluator)][-config.previous :]
        if config.previous == 0:
            self._earlier = []
        return found

    def gate(self, step: int, candidate: Evaluator, best: Evaluator) -> MatchResult:
        """The candidate's match against the best so far."""
        config = self._config.gate
        return play_match(
            player(candidate, config.simulations, checkpoint_name(step)),
            player(best, config.simulations, "best"),
            self._rules,
            games=config.games,
            seed=self._config.seed + step,
        )

    def ratings(self) -> dict[str, Rating]:
        return rate(self.results, ANCHOR)

    def _matches(
        self, evaluator: Evaluator, name: str, opponents: list[AgentLike]
    ) -> list[MatchResult]:
        """A match against each; side by side, since one match leaves cores idle."""
        config = self._config.evaluation

        def match(opponent: AgentLike) -> MatchResult:
            return play_match(
                player(evaluator, config.simulations, name),
                opponent,
                self._rules,
                games=config.games,
                seed=self._config.seed,
            )

        with workers(self._threads) as pool:
            return list(pool.map(match, opponents))

    # For a resumed run

    def state(self) -> dict[str, object]:
        return {
            "results": [[r.first, r.second, r.wins, r.draws, r.losses] for r in self.results],
            "earlier": [
                [name, dict(evaluator.network.state_dict())] for name, evaluator in self._earlier
            ],
        }

    def set_state(self, state: dict[str, object], network: PolicyValueNetwork) -> None:
        results, earlier = state["results"], state["earlier"]
        assert isinstance(results, list)
        assert isinstance(earlier, list)
        self.results = [Result(*result) for result in results]
        self._earlier = []
        for name, weights in earlier:
            evaluator = freeze(network, self._rules, next(network.parameters()).device)
            evaluator.load(weights)
            self._earlier.append((name, evaluator))


def checkpoint_name(step: int) -> str:
    return f"step {step}"
