"""An early stop: the sequential probability ratio test between two Elo differences.

After every pair the test compares how well two claims explain the pairs so far: "the difference is
`elo0`" and "it is `elo1`". Where one is likely enough against the other, the question is settled.
Whatever a claim leaves open, how often pairs are split or drawn, is filled in as favourably as the
claim allows: the generalised test of the five pair outcomes (pentanomial), with exact maximum
likelihood under each claim and no normal approximation.

If the true difference is `elo0`, the test accepts `elo1` with a chance of about `alpha`; if it is
`elo1`, it accepts `elo0` with a chance of about `beta`. In between it answers either way, and
takes longest.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pylos_env.errors import PylosError
from trainers.arena.scores import PAIR_SCORES, PairCounts
from trainers.ratings import expected_score

UNSEEN: Final = 1e-3
"""Pairs that an outcome not seen yet counts for, so that it stays possible."""
MAX_ELO: Final = 3000
POLE_MARGIN: Final = 1e-12


class Verdict(enum.Enum):
    """How the question stands."""

    OPEN = "not settled"
    LOWER = "elo0"
    UPPER = "elo1"


@dataclass(frozen=True)
class Sprt:
    """The question: is the first player `elo1` points above the second, or only `elo0`?"""

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not -MAX_ELO <= self.elo0 < self.elo1 <= MAX_ELO:
            raise PylosError(
                f"the test needs two Elo differences from {-MAX_ELO} to {MAX_ELO}, the lower one "
                f"first, got {self.elo0:g} and {self.elo1:g}"
            )
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < 0.5:
                raise PylosError(
                    f"{name}, a chance of a wrong answer, must lie between 0 and 0.5, "
                    f"got {getattr(self, name)!r}"
                )

    @property
    def bounds(self) -> tuple[float, float]:
        """The log-likelihood ratios at which the lower and the upper claim are accepted."""
        return (
            math.log(self.beta / (1 - self.alpha)),
            math.log((1 - self.beta) / self.alpha),
        )

    def log_ratio(self, pairs: PairCounts) -> float:
        """How much better `elo1` explains the pairs than `elo0`, as a logarithm."""
        if not sum(pairs):
            return 0.0
        counts = [max(count, UNSEEN) for count in pairs]
        lower = _most_likely(counts, expected_score(self.elo0))
        upper = _most_likely(counts, expected_score(self.elo1))
        return sum(
            count * math.log(above / below)
            for count, below, above in zip(counts, lower, upper, strict=True)
        )

    def judge(self, pairs: PairCounts) -> Verdict:
        ratio, (low, high) = self.log_ratio(pairs), self.bounds
        if ratio >= high:
            return Verdict.UPPER
        return Verdict.LOWER if ratio <= low else Verdict.OPEN


def _most_likely(counts: Sequence[float], score: float) -> list[float]:
    """Of all distributions over the five outcomes with this mean score, the likeliest.

    With Lagrange's multiplier t it is share / (1 + t * (outcome - score)).
    """
    from scipy.optimize import brentq

    total = sum(counts)
    terms = [
        (count / total, outcome - score) for outcome, count in zip(PAIR_SCORES, counts, strict=True)
    ]

    def excess(t: float) -> float:
        return sum(share * distance / (1 + t * distance) for share, distance in terms)

    # every share is positive: the excess falls from +inf to -inf between the two poles
    least, most = (-(1 - POLE_MARGIN) / distance for _, distance in (terms[-1], terms[0]))
    t = brentq(excess, least, most, xtol=POLE_MARGIN)
    return [share / (1 + t * distance) for share, distance in terms]
