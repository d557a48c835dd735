"""Tree search, of many games at once or of one at its board; the evaluator is passed in."""

from trainers.search.batched import Evaluate, Search, SearchConfig, SearchResult, Walk, drive
from trainers.search.inner import Inner
from trainers.search.memory import Memory, remembered
from trainers.search.pipeline import Pending, drive_together
from trainers.search.single import GameSearch

__all__ = [
    "Evaluate",
    "GameSearch",
    "Inner",
    "Memory",
    "Pending",
    "Search",
    "SearchConfig",
    "SearchResult",
    "Walk",
    "drive",
    "drive_together",
    "remembered",
]
