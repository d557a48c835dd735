"""Ratings from results: maximum likelihood over a pool of players, and the online Elo of a league.

The model is Bradley and Terry's on the Elo scale: a player 400 points above another scores 10 : 1.
A draw counts half a win for each. `rate` maximises the likelihood of all results at once, so a
rating depends on who was beaten and not on the order of the games; the intervals come from the
Fisher information and are of the distance to the anchor, which stands at 0 by definition (one is
enough to fix the scale; other players that never change get their ratings from games like all).
Games count as independent: pairs from one opening with seats swapped mostly vary less than that,
and so do draws, which makes the intervals a little too wide rather than too narrow.

The likelihood alone has no maximum where one player, or one group, won every game against the
rest. Each player is therefore given half a drawn game, spread over its opponents in proportion to
the games played. Where only this keeps a distance finite, the rating says `by_prior`: the games
show a lower bound, and the number grows with the number of games won.

SciPy does the maximising. choix was considered: it knows neither draws nor intervals nor anchors,
and what it does beyond SciPy (partial rankings, networks) is not asked here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env.errors import PylosError
from pylos_env.options import check_count
from pylos_env.oracle.measure import Z_95

ELO_PER_LOGIT: Final = 400 / math.log(10)
PRIOR_GAMES: Final = 0.5
"""Drawn games given to each player, see above."""
ROUGH_TOLERANCE: Final = 1e-3
"""Points by which a player's score and its expected score may differ before the last steps."""
NEWTON_STEPS: Final = 3
MEAN: Final = "mean"

FloatArray = npt.NDArray[np.float64]


class RatingError(PylosError):
    """Results from which no ratings follow."""


def expected_score(elo: float) -> float:
    """The share of points expected of a player `elo` points above its opponent."""
    return (1 + math.tanh(elo / ELO_PER_LOGIT / 2)) / 2


def elo_of(score: float) -> float:
    """The Elo difference at which `score` is expected; infinite for 0 and 1."""
    if not 0 <= score <= 1:
        raise RatingError(f"a score lies between 0 and 1, got {score!r}")
    if score in (0, 1):
        return math.inf if score else -math.inf
    return ELO_PER_LOGIT * math.log(score / (1 - score))


@dataclass(frozen=True)
class Result:
    """The games of two players, counted from the first one's side."""

    first: str
    second: str
    wins: int
    draws: int
    losses: int

    def __post_init__(self) -> None:
        if self.first == self.second:
            raise RatingError(f"{self.first!r} cannot be rated by games against itself")
        for name in ("wins", "draws", "losses"):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least=0))


class Rating(NamedTuple):
    """A player's strength in Elo, its 95 % interval, and the games behind it."""

    elo: float
    low: float
    high: float
    games: int
    by_prior: bool
    """The games alone set no finite distance from the anchor, see `ratings`."""


def rate(results: Iterable[Result], anchor: str | None = None) -> dict[str, Rating]:
    """Ratings of all players, the strongest first.

    The anchor stands at 0: the player of that name, or "mean" for the pool's mean. Without one it
    is `random` where it has played, else the mean. The same results in any order and any portions
    give the same ratings to the last bit.
    """
    names, wins = _count(results)
    games = wins + wins.T
    _check_connected(names, games)
    weights = _anchor_weights(names, check_anchor(names, anchor))
    strengths, covariance = _fit(_with_prior(wins))
    shift = np.eye(len(names)) - weights  # row by row: the player minus the anchor
    elos = ELO_PER_LOGIT * (shift @ strengths)
    spread = np.diag(shift @ covariance @ shift.T)
    margins = ELO_PER_LOGIT * Z_95 * np.sqrt(np.maximum(spread, 0))
    decided = _decided(wins, weights)
    ratings = {
        name: Rating(
            float(elos[index]),
            float(elos[index] - margins[index]),
            float(elos[index] + margins[index]),
            int(games[index].sum()),
            not decided[index],
        )
        for index, name in enumerate(names)
    }
    return dict(sorted(ratings.items(), key=lambda item: (-item[1].elo, item[0])))


def groups(results: Iterable[Result]) -> list[list[str]]:
    """Players linked by games, directly or through others; ratings need a single group."""
    names, wins = _count(results)
    return _groups(names, wins + wins.T)


def _count(results: Iterable[Result]) -> tuple[list[str], FloatArray]:
    """The names in order, and [players, players] the points of each against each.

    Points are whole halves, which floats add without rounding: the order cannot matter.
    """
    results = list(results)
    names = sorted({name for result in results for name in (result.first, result.second)})
    index = {name: number for number, name in enumerate(names)}
    wins = np.zeros((len(names), len(names)))
    for result in results:
        first, second = index[result.first], index[result.second]
        wins[first, second] += result.wins + result.draws / 2
        wins[second, first] += result.losses + result.draws / 2
    return names, wins


def _groups(names: list[str], games: FloatArray) -> list[list[str]]:
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(games > 0, directed=False)
    return [
        [name for name, label in zip(names, labels, strict=True) if label == group]
        for group in range(count)
    ]


def _check_connected(names: list[str], games: FloatArray) -> None:
    if not names:
        raise RatingError("no results to rate")
    separate = _groups(names, games)
    if len(separate) > 1:
        listed = "; ".join(", ".join(group) for group in separate)
        raise RatingError(
            f"no games link these {len(separate)} groups, so they cannot be compared: {listed}"
        )


def check_anchor(names: Sequence[str], anchor: str | None) -> str:
    """The anchor that `rate` takes for these players."""
    if anchor is None:
        return "random" if "random" in names else MEAN
    if anchor != MEAN and anchor not in names:
        raise RatingError(
            f"the anchor {anchor!r} is none of the players: expected {MEAN!r} or one of "
            f"{', '.join(names)}"
        )
    return anchor


def _anchor_weights(names: list[str], anchor: str) -> FloatArray:
    """[players]: the mix of players that stands at 0."""
    if anchor in names:
        return np.array([float(name == anchor) for name in names])
    return np.full(len(names), 1 / len(names))


def _with_prior(wins: FloatArray) -> FloatArray:
    games = wins + wins.T
    shares = games / games.sum(axis=1, keepdims=True)
    drawn: FloatArray = PRIOR_GAMES * (shares + shares.T)
    return wins + drawn / 2


def _fit(wins: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Strengths in logits and their covariance, the first player fixed at 0."""
    from scipy.optimize import minimize
    from scipy.special import expit

    games = wins + wins.T
    total = float(games.sum()) / 2

    def probabilities(free: FloatArray) -> FloatArray:
        strengths = np.concatenate([[0.0], free])
        chances: FloatArray = expit(strengths[:, None] - strengths[None, :])
        return chances

    def loss(free: FloatArray) -> float:
        strengths = np.concatenate([[0.0], free])
        gaps = strengths[None, :] - strengths[:, None]
        return float((wins * np.logaddexp(0, gaps)).sum() / total)

    def gradient(free: FloatArray) -> FloatArray:
        excess: FloatArray = (games * probabilities(free) - wins).sum(axis=1)
        return excess[1:] / total

    def information(free: FloatArray) -> FloatArray:
        chance = probabilities(free)
        weights = games * chance * (1 - chance)
        matrix: FloatArray = np.diag(weights.sum(axis=1)) - weights
        return matrix[1:, 1:]

    fit = minimize(
        loss,
        np.zeros(len(wins) - 1),
        jac=gradient,
        hess=lambda free: information(free) / total,
        method="trust-exact",
        options={"gtol": ROUGH_TOLERANCE / total, "maxiter": 1000},
    )
    if not fit.success:
        raise RatingError(f"no maximum of the likelihood was found: {fit.message}")
    free: FloatArray = fit.x
    for _ in range(NEWTON_STEPS):  # the loss is too flat here to compare, its gradient is exact
        free = free - np.linalg.solve(information(free), total * gradient(free))
    strengths = np.concatenate([[0.0], free])
    covariance = np.zeros_like(wins)
    covariance[1:, 1:] = np.linalg.inv(information(free))
    return strengths, covariance


def _decided(wins: FloatArray, weights: FloatArray) -> npt.NDArray[np.bool_]:
    """Whose distance from the anchor is finite by the games alone.

    It is within a set of players in which everyone has scored against the rest, directly or by way
    of others (Ford 1957).
    """
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(wins > 0, directed=True, connection="strong")
    anchors = set(labels[weights > 0].tolist())
    return np.array([anchors == {label} for label in labels.tolist()])


class Elo:
    """Ratings that move with every result: what a league of changing players needs.

    Newcomers begin at `start`. What one player gains the other loses.
    """

    def __init__(
        self, start: float = 1000.0, k: float = 32.0, ratings: Mapping[str, float] | None = None
    ) -> None:
        if not k > 0:
            raise RatingError(f"k, the most that one game moves, must be above 0, got {k!r}")
        self.start = start
        self.k = k
        self.ratings = dict(ratings or {})

    def __getitem__(self, name: str) -> float:
        return self.ratings.get(name, self.start)

    def expected(self, first: str, second: str) -> float:
        """The share of points expected of the first player."""
        return expected_score(self[first] - self[second])

    def update(self, first: str, second: str, score: float) -> float:
        """Count one game: 1 won by the first, 0.5 drawn, 0 lost. Returns the points it gained."""
        if first == second:
            raise RatingError(f"{first!r} cannot be rated by a game against itself")
        if score not in (0, 0.5, 1):
            raise RatingError(f"the score of a game is 0, 0.5 or 1, got {score!r}")
        gain = self.k * (score - self.expected(first, second))
        self.ratings[first], self.ratings[second] = self[first] + gain, self[second] - gain
        return gain
