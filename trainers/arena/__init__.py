"""Matches and tournaments between any agents, with intervals that can be trusted.

    result = play_match("alphabeta:4", "rule_based", games=400)
    print(result)                       # score, 95 % interval, Elo difference
    print(tournament(["random", "rule_based", "alphabeta:2"]).table())

On the command line: `pylos-arena`, or `python -m trainers.arena`. The modules, in the order of the
data: `openings`, `games`, `scores`, `sprt`, `results`, `contest`, `cli`.
"""

from trainers.arena.contest import Conditions, Contest, play_match, tournament
from trainers.arena.games import Fixture, Game, Played, play_games
from trainers.arena.openings import Opening, openings
from trainers.arena.results import MatchResult, Tournament
from trainers.arena.scores import Interval, Tally
from trainers.arena.sprt import Sprt, Verdict

__all__ = [
    "Conditions",
    "Contest",
    "Fixture",
    "Game",
    "Interval",
    "MatchResult",
    "Opening",
    "Played",
    "Sprt",
    "Tally",
    "Tournament",
    "Verdict",
    "openings",
    "play_games",
    "play_match",
    "tournament",
]
