"""What pairs of games say about two players: the score, its interval, the Elo difference.

A pair is one opening played twice with seats swapped. Its two games are not independent (a lopsided
opening is won once by each), so pairs are the units that are counted: a pair gives 0, 0.5, 1, 1.5
or 2 points, of which there are then as many independent draws as there are pairs.

The interval is Wilson's for a share, with the variance that the pairs show in place of the one that
coin flips would have. It stays inside 0 to 1 and does not shrink to nothing when every pair ended
alike.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from pylos_env.oracle.measure import wilson
from trainers.ratings import elo_of

PAIR_SCORES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the points of a pair, by number of half points."""

PairCounts = tuple[int, int, int, int, int]
"""Pairs that gave 0, 1, 2, 3 and 4 half points."""


class Interval(NamedTuple):
    """95 % of the intervals made in this way hold the true value."""

    low: float
    high: float


class Tally(NamedTuple):
    """Games counted from one player's side."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def games(self) -> int:
        return sum(self)

    @property
    def score(self) -> float:
        """The share of points; nan without games."""
        return (self.wins + self.draws / 2) / self.games if self.games else math.nan


def mean_score(pairs: PairCounts) -> float:
    """The share of points; nan without pairs."""
    half_points = sum(number * count for number, count in enumerate(pairs))
    return half_points / (4 * sum(pairs)) if sum(pairs) else math.nan


def score_interval(pairs: PairCounts) -> Interval:
    """The interval of the share of points; everything from 0 to 1 without pairs.

    `ratio` compares the variance of the pairs with that of coin flips, whose chance of heads is the
    score. One pair is added to both, as different as a pair can be: what has been seen n times
    alike may still come out differently once in n.
    """
    num_pairs = sum(pairs)
    if not num_pairs:
        return Interval(0.0, 1.0)
    mean = mean_score(pairs)
    deviations = sum(
        count * (score - mean) ** 2 for score, count in zip(PAIR_SCORES, pairs, strict=True)
    )
    ratio = (deviations + 1) / (num_pairs * mean * (1 - mean) + 1)
    return Interval(*wilson(mean, num_pairs / ratio))


def elo_interval(pairs: PairCounts) -> Interval:
    """The interval of the Elo difference; an end is infinite where all points went one way."""
    low, high = score_interval(pairs)
    return Interval(elo_of(low), elo_of(high))
