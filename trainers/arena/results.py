"""The results of matches and tournaments, as numbers, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from trainers.arena.games import Game, half_points
from trainers.arena.openings import representative
from trainers.arena.scores import (
    Interval,
    PairCounts,
    Tally,
    elo_interval,
    mean_score,
    score_interval,
)
from trainers.arena.sprt import Sprt, Verdict
from trainers.ratings import Rating, Result, elo_of

REPEATED: Final = (
    "openings came more than once: games between players without chance repeat, "
    "and the intervals count them as if they were new"
)


def elo_text(value: float) -> str:
    """A whole number with its sign."""
    return f"{value:+.0f}" if abs(value) >= 0.5 else "0"


@dataclass(frozen=True)
class MatchResult:
    """Two players' games, always whole pairs, seen from the first player."""

    first: str
    second: str
    games: tuple[Game, ...]
    """In the order of the pairs; in each pair the first player has white, then black."""
    games_asked: int
    sprt: Sprt | None = None
    """The question of an early stop, where one was asked."""
    verdict: Verdict = Verdict.OPEN
    """What that question came to."""

    @cached_property
    def as_white(self) -> Tally:
        return _tally([game.points(0) for game in self.games[0::2]])

    @cached_property
    def as_black(self) -> Tally:
        return _tally([game.points(1) for game in self.games[1::2]])

    @property
    def tally(self) -> Tally:
        return Tally(*(sum(counts) for counts in zip(self.as_white, self.as_black, strict=True)))

    @property
    def wins(self) -> int:
        return self.tally.wins

    @property
    def draws(self) -> int:
        return self.tally.draws

    @property
    def losses(self) -> int:
        return self.tally.losses

    @cached_property
    def pairs(self) -> PairCounts:
        """How many pairs gave the first player 0, 0.5, 1, 1.5 and 2 points."""
        counts = [0, 0, 0, 0, 0]
        for white, black in zip(self.games[0::2], self.games[1::2], strict=True):
            counts[half_points(white, black)] += 1
        return counts[0], counts[1], counts[2], counts[3], counts[4]

    @property
    def score(self) -> float:
        """The first player's share of the points; nan without games."""
        return mean_score(self.pairs)

    @property
    def interval(self) -> Interval:
        """95 % interval of the score, see `scores`."""
        return score_interval(self.pairs)

    @property
    def elo(self) -> float:
        """The first player's Elo above the second; infinite where all points went one way."""
        return elo_of(self.score) if self.games else math.nan

    @property
    def elo_interval(self) -> Interval:
        return elo_interval(self.pairs)

    @property
    def complete(self) -> bool:
        """Whether all games were played, or the question was settled."""
        return len(self.games) == self.games_asked or self.verdict is not Verdict.OPEN

    @cached_property
    def num_openings(self) -> int:
        """Different openings, symmetric ones counted as one."""
        return len({representative(game.opening.position) for game in self.games})

    @property
    def result(self) -> Result:
        """What `ratings.rate` takes."""
        return Result(self.first, self.second, *self.tally)

    def answer(self) -> str:
        """How the early-stop question stands, in a sentence; empty where none was asked."""
        if self.sprt is None:
            return ""
        ratio, (low, high) = self.sprt.log_ratio(self.pairs), self.sprt.bounds
        numbers = f"log-likelihood ratio {ratio:+.2f}, bounds {low:+.2f} and {high:+.2f}"
        if self.verdict is Verdict.OPEN:
            return f"not settled after {len(self.games)} games ({numbers})"
        claims = (self.sprt.elo0, self.sprt.elo1)
        taken, left = claims if self.verdict is Verdict.LOWER else claims[::-1]
        return (
            f"settled after {len(self.games)} games: "
            f"{self.first} is at {_signed(taken)} Elo rather than {_signed(left)} ({numbers})"
        )

    def __str__(self) -> str:
        head = f"{self.first} - {self.second}: {len(self.games)} games"
        if not self.games:
            return f"{head}, no pair was finished"
        if not self.complete:
            head += f" of {self.games_asked}"
        head += f", {len(self.games) // 2} pairs from {self.num_openings} openings"
        score, elo = self.interval, self.elo_interval
        lines = [
            head,
            f"  score     {self.score:.3f}  (95 %: {score.low:.3f} to {score.high:.3f})  "
            f"{self.wins} won, {self.draws} drawn, {self.losses} lost",
            f"  as white  {self.as_white.score:.3f}  as black  {self.as_black.score:.3f}",
            f"  Elo       {elo_text(self.elo)}  "
            f"(95 %: {elo_text(elo.low)} to {elo_text(elo.high)})",
            f"  pairs     {_pairs_text(self.pairs)}",
        ]
        if self.sprt:
            lines.append(f"  {self.answer()}")
        if self.num_openings < len(self.games) // 2:
            lines.append(f"  {REPEATED}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a number that is not finite becomes None."""
        return {
            "first": self.first,
            "second": self.second,
            "games": len(self.games),
            "games_asked": self.games_asked,
            "openings": self.num_openings,
            "wins": self.wins,
            "draws": self.draws,
            "losses": self.losses,
            "score": _number(self.score),
            "score_interval": [_number(end) for end in self.interval],
            "score_as_white": _number(self.as_white.score),
            "score_as_black": _number(self.as_black.score),
            "elo": _number(self.elo),
            "elo_interval": [_number(end) for end in self.elo_interval],
            "pairs": list(self.pairs),
            "complete": self.complete,
            "sprt": self._question(),
        }

    def _question(self) -> dict[str, Any] | None:
        if self.sprt is None:
            return None
        return {
            "elo0": self.sprt.elo0,
            "elo1": self.sprt.elo1,
            "alpha": self.sprt.alpha,
            "beta": self.sprt.beta,
            "log_ratio": self.sprt.log_ratio(self.pairs),
            "bounds": list(self.sprt.bounds),
            "verdict": self.verdict.value,
        }


@dataclass(frozen=True)
class Tournament:
    """Everyone against everyone: the matches and the ratings they give, the strongest first."""

    players: tuple[str, ...]
    matches: tuple[MatchResult, ...]
    ratings: Mapping[str, Rating]
    """Empty while no games link all players."""

    @property
    def complete(self) -> bool:
        return all(match.complete for match in self.matches)

    @property
    def games(self) -> tuple[Game, ...]:
        return tuple(game for match in self.matches for game in match.games)

    def tally(self, player: str) -> Tally:
        """All games of a player."""
        tallies = [self._seen_from(player, match) for match in self.matches]
        return Tally(*(sum(counts) for counts in zip(*tallies, strict=True)))

    def between(self, player: str, other: str) -> Tally:
        """The games of two players, from the first one's side."""
        for match in self.matches:
            if {player, other} == {match.first, match.second}:
                return self._seen_from(player, match)
        return Tally()

    def table(self) -> str:
        """The cross table: rating with its interval, games, score, and the score against each."""
        order = list(self.ratings) or sorted(self.players, key=lambda name: -_rank(self, name))
        head = ["", "player", "Elo", "95 %", "games", "score", *map(str, range(1, len(order) + 1))]
        rows = [head, *(self._row(number, name, order) for number, name in enumerate(order, 1))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(width) if column == 1 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(lines + self._notes())

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a number that is not finite becomes None."""
        return {
            "players": list(self.players),
            "complete": self.complete,
            "ratings": {name: rating._asdict() for name, rating in self.ratings.items()},
            "matches": [match.to_dict() for match in self.matches],
        }

    def _seen_from(self, player: str, match: MatchResult) -> Tally:
        if player == match.first:
            return match.tally
        return Tally(*match.tally[::-1]) if player == match.second else Tally()

    def _row(self, number: int, name: str, order: Sequence[str]) -> list[str]:
        tally = self.tally(name)
        rating = self.ratings.get(name)
        return [
            str(number),
            name,
            f"{elo_text(rating.elo)}{'*' if rating.by_prior else ' '}" if rating else "",
            _range(rating) if rating else "",
            str(tally.games),
            _score(tally),
            *("-" if other == name else _score(self.between(name, other)) for other in order),
        ]

    def _notes(self) -> list[str]:
        notes = []
        if not self.ratings:
            notes.append("no ratings: games do not link all players yet")
        if any(rating.by_prior for rating in self.ratings.values()):
            notes.append(
                "* one side won every game that links it with the anchor: the distance is finite "
                "only by the prior, read it as a lower bound"
            )
        if any(match.num_openings < len(match.games) // 2 for match in self.matches):
            notes.append(REPEATED)
        if not self.complete:
            notes.append("not all games were played")
        return notes


def _tally(points: Sequence[float]) -> Tally:
    return Tally(points.count(1.0), points.count(0.5), points.count(0.0))


def _pairs_text(pairs: PairCounts) -> str:
    names = ("0", "0.5", "1", "1.5", "2")
    return ", ".join(f"{count}x {name}" for name, count in zip(names, pairs, strict=True) if count)


def _rank(tournament: Tournament, name: str) -> float:
    tally = tournament.tally(name)
    return tally.score if tally.games else -1.0


def _score(tally: Tally) -> str:
    return f"{tally.score:.3f}" if tally.games else ""


def _range(rating: Rating) -> str:
    if rating.low == rating.high:
        return "anchor"
    return f"{elo_text(rating.low)} to {elo_text(rating.high)}"


def _signed(value: float) -> str:
    return f"{value:+g}" if value else "0"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
