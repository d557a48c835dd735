"""The league: whom the learner plays against, and what every member is worth.

The run begins with a warm-up against `rule_based`. After it the opponent of every new game is drawn
anew: the live policy itself, the newer or the older half of a pool of snapshots, or `rule_based`.
Every game but those of the live policy against itself moves the Elo of both sides.

During a rollout the league does not change: games are begun by a `Lineup`, their results are
counted afterwards. A snapshot that leaves the pool plays its games to their end.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from trainers.checkpoints import EPISODES
from trainers.evaluator import Evaluator
from trainers.ppo.config import LeagueConfig
from trainers.ratings import Elo

# members by number; snapshots have those from FIRST_SNAPSHOT up
LIVE: Final = 0
RULE_BASED: Final = 1
FIRST_SNAPSHOT: Final = 2

SCORE_RATE: Final = 0.02
"""Weight of one game in the recent score against a member."""
LEAST_PRIORITY: Final = 0.01
"""Weight in prioritised draws of a member that always loses: it still comes now and then."""


class GameResult(NamedTuple):
    """A finished training game."""

    opponent: int
    score: float  # of the learner: 1 won, 0.5 broken off, 0 lost; of white where it is both sides
    plies: int


class Lineup(NamedTuple):
    """Who may be drawn as an opponent, and how often."""

    numbers: npt.NDArray[np.int64]  # [members]
    shares: npt.NDArray[np.float64]  # [members], which add up to 1

    def draw(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[keys]: an opponent for each."""
        bounds = self.shares.cumsum()
        index = np.searchsorted(bounds, keys / float(1 << 63) * bounds[-1], side="right")
        drawn: npt.NDArray[np.int64] = self.numbers[np.minimum(index, len(bounds) - 1)]
        return drawn


@dataclass
class Snapshot:
    """An earlier self."""

    number: int
    name: str
    policy: Evaluator
    score: float = 0.5
    """The learner's recent score against it."""


class League:
    """The pool of snapshots with everybody's Elo."""

    def __init__(self, config: LeagueConfig) -> None:
        self.config = config
        self.elo = Elo(config.elo_start, config.elo_k)
        self.warming_up = config.warmup_episodes > 0
        self.pool: list[Snapshot] = []  # oldest first
        self.leaving: list[Snapshot] = []  # out of the pool, with games to finish
        self.rule_based_score = 0.0
        self._warmup_wins: deque[bool] = deque(maxlen=config.warmup_window)
        self._warmup_games = 0
        self._next = FIRST_SNAPSHOT

    # Whom to play

    def lineup(self, key: int = 0) -> Lineup:
        """Whom the new games of a rollout may draw: of the snapshots some, by chance of the key.

        Over many rollouts everybody comes as often as its share says.
        """
        shares = self._shares()
        snapshots = {number: shares.pop(number) for number in list(shares) if number in self}
        if len(snapshots) > self.config.at_once:
            keys = [kernel.draw(key, slot) for slot in range(self.config.at_once)]
            drawn = _lineup_of(snapshots).draw(np.array(keys)).tolist()
            share = sum(snapshots.values()) / len(drawn)
            snapshots = {number: share * drawn.count(number) for number in sorted(set(drawn))}
        return _lineup_of(shares | snapshots)

    def __contains__(self, number: int) -> bool:
        """Whether somebody is in the pool."""
        return any(member.number == number for member in self.pool)

    def _shares(self) -> dict[int, float]:
        config = self.config
        if self.warming_up:
            return {RULE_BASED: 1.0}
        if not self.pool:
            return {LIVE: 1.0}
        others = 1 - config.live_share
        shares = {LIVE: config.live_share, RULE_BASED: others * config.rule_based_share}
        newer = len(self.pool) - len(self.pool) // 2
        older, recent = self.pool[:-newer], self.pool[-newer:]
        recent_share = config.recent_share + (0 if older else config.older_share)
        halves = [(recent, recent_share), (older, config.older_share)]
        if config.prioritised:
            halves = [(self.pool, config.recent_share + config.older_share)]
        for members, share in halves:
            weights = [self._priority(member) for member in members]
            for member, weight in zip(members, weights, strict=True):
                shares[member.number] = others * share * weight / sum(weights)
        return shares

    def _priority(self, member: Snapshot) -> float:
        return max(LEAST_PRIORITY, (1 - member.score) ** 2) if self.config.prioritised else 1.0

    def policies(self) -> Mapping[int, Evaluator]:
        """The networks of everybody who may be in a game."""
        return {member.number: member.policy for member in (*self.pool, *self.leaving)}

    # What happened

    def record(self, results: Iterable[GameResult]) -> None:
        """Count finished games, in their order."""
        snapshots = {member.number: member for member in (*self.pool, *self.leaving)}
        for result in results:
            if result.opponent == LIVE:
                continue
            self.elo.update(_key(LIVE), _key(result.opponent), result.score)
            if result.opponent == RULE_BASED:
                self.rule_based_score += SCORE_RATE * (result.score - self.rule_based_score)
                self._count_warmup(result)
            else:
                member = snapshots[result.opponent]
                member.score += SCORE_RATE * (result.score - member.score)

    def _count_warmup(self, result: GameResult) -> None:
        if not self.warming_up:
            return
        config, wins = self.config, self._warmup_wins
        wins.append(result.score == 1)
        self._warmup_games += 1
        passed = len(wins) == wins.maxlen and sum(wins) > config.warmup_win_rate * len(wins)
        self.warming_up = not passed and self._warmup_games < config.warmup_episodes

    def add(self, policy: Evaluator, episodes: int) -> None:
        """Take a snapshot of the live policy into the pool, and prune it."""
        name = EPISODES.stem(episodes)
        if self.pool and self.pool[-1].name == name:  # no game has ended since
            return
        member = Snapshot(self._next, name, copy.deepcopy(policy))
        self._next += 1
        self.pool.append(member)
        self.elo.ratings[_key(member.number)] = self.elo[_key(LIVE)]
        while len(self.pool) > self.config.pool:
            best = self.best()
            oldest = next(other for other in self.pool if other is not best)
            self.pool.remove(oldest)
            self.leaving.append(oldest)

    def forget(self, playing: Collection[int]) -> None:
        """Let go of those who have left the pool and play no more; `playing` are those who do."""
        for member in [member for member in self.leaving if member.number not in playing]:
            self.leaving.remove(member)
            del self.elo.ratings[_key(member.number)]

    # Elo

    @property
    def current_elo(self) -> float:
        return self.elo[_key(LIVE)]

    @property
    def best_elo(self) -> float:
        """The highest of the learner and the pool."""
        return max([self.current_elo, *(self.elo[_key(member.number)] for member in self.pool)])

    def best(self) -> Snapshot | None:
        """The snapshot with the highest Elo, the newer one among equals."""
        ranked = enumerate(self.pool)
        found = max(
            ranked, key=lambda item: (self.elo[_key(item[1].number)], item[0]), default=None
        )
        return found and found[1]

    def table(self) -> dict[str, float]:
        """Everybody's Elo by name, the highest first."""
        elos = {"live": self.current_elo, "rule_based": self.elo[_key(RULE_BASED)]}
        elos |= {member.name: self.elo[_key(member.number)] for member in self.pool}
        return dict(sorted(elos.items(), key=lambda item: -item[1]))

    # Going on

    def state(self) -> dict[str, Any]:
        return {
            "elo": dict(self.elo.ratings),
            "warming_up": self.warming_up,
            "warmup_wins": list(self._warmup_wins),
            "warmup_games": self._warmup_games,
            "rule_based_score": self.rule_based_score,
            "next": self._next,
            "pool": [_saved(member) for member in self.pool],
            "leaving": [_saved(member) for member in self.leaving],
        }

    def set_state(self, state: Mapping[str, Any], policy: Evaluator) -> None:
        """`policy`: an evaluator of the same make as the snapshots."""
        self.elo.ratings = dict(state["elo"])
        self.warming_up = state["warming_up"]
        self._warmup_wins = deque(state["warmup_wins"], maxlen=self.config.warmup_window)
        self._warmup_games = state["warmup_games"]
        self.rule_based_score = state["rule_based_score"]
        self._next = state["next"]
        self.pool = [_restored(saved, policy) for saved in state["pool"]]
        self.leaving = [_restored(saved, policy) for saved in state["leaving"]]


def _lineup_of(shares: Mapping[int, float]) -> Lineup:
    return Lineup(np.array(list(shares), dtype=np.int64), np.array(list(shares.values())))


def _key(number: int) -> str:
    """What a member is called in the Elo's table."""
    return str(number)


def _saved(member: Snapshot) -> dict[str, Any]:
    weights = dict(member.policy.network.state_dict())
    return {"number": member.number, "name": member.name, "score": member.score, "weights": weights}


def _restored(saved: Mapping[str, Any], policy: Evaluator) -> Snapshot:
    frozen = copy.deepcopy(policy)
    frozen.network.load_state_dict(saved["weights"])
    return Snapshot(saved["number"], saved["name"], frozen, saved["score"])
