"""Matches and tournaments: every pair of players meets over the same paired openings.

A pair of games is one opening played twice with seats swapped. Openings follow from the seed alone,
the chance of a game from the seed, the opening's number and the two names: the same players play
the same games whatever the batch, whoever else takes part, and whoever is named first.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pylos_env import agents
from pylos_env.agents import Agent, AgentLike
from pylos_env.errors import PylosError
from pylos_env.options import MAX_PLIES, check_count, check_max_plies, check_seed
from pylos_env.position import Position
from pylos_env.rules import Rules
from trainers.arena.games import BATCH, Fixture, Game, Played, ask, half_points, play_games
from trainers.arena.openings import PLIES, openings
from trainers.arena.results import MatchResult, Tournament
from trainers.arena.sprt import Sprt, Verdict
from trainers.ratings import check_anchor, groups, rate

GAMES: Final = 200

OnGame = Callable[[Game], None]
"""Called with every game that has ended, in the order in which they end."""


@dataclass
class Conditions:
    """What games are played under."""

    rules: str | Rules = "advanced"
    games: int = GAMES
    """Of each two players; even, since every opening is played twice."""
    opening_plies: int = PLIES
    """Random plies at the beginning of a game."""
    max_plies: int | None = MAX_PLIES
    """A game of so many plies, the opening included, is a draw; None plays on without end."""
    seed: int = 0
    batch: int = BATCH
    """Games under way at once; changes no game, only speed and memory."""

    def __post_init__(self) -> None:
        self.rules = Rules.of(self.rules)
        self.games = check_count("games", self.games, least=2)
        if self.games % 2:
            raise PylosError(
                f"games must be even, since every opening is played twice with seats swapped, "
                f"got {self.games}"
            )
        self.opening_plies = check_count("opening_plies", self.opening_plies, least=0)
        self.max_plies = check_max_plies(self.max_plies)
        self.seed = check_seed(self.seed)
        self.batch = check_count("batch", self.batch)


class Contest:
    """The games of every two of some players, played together.

    Everything is checked when it is made: names, numbers, openings, and each player is asked for
    one move. `play` may be broken off at any time; `match` and `tournament` count the pairs that
    are finished.
    """

    def __init__(
        self,
        players: Sequence[AgentLike],
        conditions: Conditions | None = None,
        sprt: Sprt | None = None,
    ) -> None:
        if len(players) < 2:
            raise PylosError(f"a contest needs at least two players, got {len(players)}")
        if sprt is not None and len(players) != 2:
            raise PylosError(f"an early stop is about two players, got {len(players)}")
        self.conditions = conditions or Conditions()
        self.sprt = sprt
        self.rules = Rules.of(self.conditions.rules)
        self.players = [agents.make(player, seed=0) for player in players]
        self.names = _distinct(
            [
                player if isinstance(player, str) else agent.name
                for player, agent in zip(players, self.players, strict=True)
            ]
        )
        for name, agent in zip(self.names, self.players, strict=True):
            _try_out(name, agent, self.rules)
        self.pairings = list(itertools.combinations(range(len(players)), 2))
        self.openings = list(
            itertools.islice(
                openings(self.rules, self.conditions.opening_plies, self.conditions.seed),
                self.conditions.games // 2,
            )
        )
        self._check_lengths()
        self._games: list[Game | None] = [None] * self.num_games
        self._judged = 0
        self._pairs = [0, 0, 0, 0, 0]
        self._verdict = Verdict.OPEN

    @property
    def num_games(self) -> int:
        return len(self.pairings) * self.conditions.games

    def play(self, on_game: OnGame | None = None) -> None:
        """Play until all games have ended, or the early stop's question is settled."""
        for played in play_games(
            self.players,
            self._fixtures(),
            self.rules,
            self.conditions.max_plies,
            self.conditions.batch,
        ):
            game = self._keep(played)
            if on_game is not None:
                on_game(game)
            if self._settled():
                return

    def match(self, pairing: int = 0) -> MatchResult:
        """The result so far of one of `pairings`, by its number."""
        first, second = self.pairings[pairing]
        pairs = range(len(self.openings) if self._verdict is Verdict.OPEN else self._judged)
        finished = [games for pair in pairs if (games := self._pair(pair, pairing))]
        return MatchResult(
            self.names[first],
            self.names[second],
            tuple(itertools.chain.from_iterable(finished)),
            self.conditions.games,
            self.sprt,
            self._verdict,
        )

    def tournament(self, anchor: str | None = None) -> Tournament:
        """The standings so far; for the anchor see `ratings.rate`."""
        matches = tuple(self.match(pairing) for pairing in range(len(self.pairings)))
        results = [match.result for match in matches]
        ratings = rate(results, anchor) if len(groups(results)) == 1 else {}
        return Tournament(tuple(self.names), matches, ratings)

    def _check_lengths(self) -> None:
        limit = self.conditions.max_plies
        longest = max(len(opening.actions) for opening in self.openings)
        if limit is not None and longest >= limit:
            raise PylosError(
                f"an opening has {longest} plies, so max_plies must be above that, got {limit}"
            )

    def _fixtures(self) -> Iterator[Fixture]:
        """Pair by pair, so that all pairings come along evenly."""
        for pair, opening in enumerate(self.openings):
            for first, second in self.pairings:
                for white, black in ((first, second), (second, first)):
                    stream = _stream(
                        self.conditions.seed, pair, self.names[white], self.names[black]
                    )
                    yield Fixture(white, black, opening, stream)

    def _keep(self, played: Played) -> Game:
        pair, rest = divmod(played.number, 2 * len(self.pairings))
        pairing, swapped = divmod(rest, 2)
        white, black = self.pairings[pairing][:: -1 if swapped else 1]
        game = Game(
            pair,
            self.names[white],
            self.names[black],
            self.openings[pair],
            played.actions,
            played.white_points,
        )
        self._games[played.number] = game
        return game

    def _pair(self, pair: int, pairing: int) -> tuple[Game, Game] | None:
        """The two games of an opening, once both have ended."""
        number = 2 * (pair * len(self.pairings) + pairing)
        straight, swapped = self._games[number : number + 2]
        return (straight, swapped) if straight and swapped else None

    def _settled(self) -> bool:
        """Judge the pairs in their order, not in that of their ends: long games count too."""
        if self.sprt is None:
            return False
        while self._verdict is Verdict.OPEN and self._judged < len(self.openings):
            games = self._pair(self._judged, 0)
            if games is None:
                return False
            self._judged += 1
            self._pairs[half_points(*games)] += 1
            zero, one, two, three, four = self._pairs
            self._verdict = self.sprt.judge((zero, one, two, three, four))
        return self._verdict is not Verdict.OPEN


def play_match(
    first: AgentLike,
    second: AgentLike,
    rules: str | Rules = "advanced",
    games: int = GAMES,
    opening_plies: int = PLIES,
    max_plies: int | None = MAX_PLIES,
    seed: int = 0,
    batch: int = BATCH,
    sprt: Sprt | None = None,
    on_game: OnGame | None = None,
) -> MatchResult:
    """Play a match, both seats equally often; the result is seen from the first player."""
    conditions = Conditions(rules, games, opening_plies, max_plies, seed, batch)
    contest = Contest([first, second], conditions, sprt)
    contest.play(on_game)
    return contest.match()


def tournament(
    players: Sequence[AgentLike],
    rules: str | Rules = "advanced",
    games: int = GAMES,
    opening_plies: int = PLIES,
    max_plies: int | None = MAX_PLIES,
    seed: int = 0,
    batch: int = BATCH,
    anchor: str | None = None,
    on_game: OnGame | None = None,
) -> Tournament:
    """Play a match between every two players and rate them all."""
    conditions = Conditions(rules, games, opening_plies, max_plies, seed, batch)
    contest = Contest(players, conditions)
    check_anchor(contest.names, anchor)
    contest.play(on_game)
    return contest.tournament(anchor)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that tell the players apart: a second `random` becomes `random (2)`."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        found.append(name if name not in found else next(n for n in numbered if n not in found))
    for name in found:
        if len(name.splitlines()) != 1:
            raise PylosError(f"a player's name is one line of text, got {name!r}")
    return found


def _try_out(name: str, agent: Agent, rules: Rules) -> None:
    """Ask for one move: a missing table or a network of other rules shows before the games."""
    start = Position.start(rules)
    try:
        start.play(int(ask(agent, np.array([start.packed]), rules, np.array([0]))[0]))
    except PylosError as error:
        raise type(error)(f"{name}: {error}") from None


def _stream(seed: int, pair: int, white: str, black: str) -> int:
    text = repr((seed, pair, white, black)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
