"""Tree search, of many games at once or of one at its board; the evaluator is passed in."""

from trainers.search.batched import Evaluate, Search, SearchConfig, SearchResult
from trainers.search.single import GameSearch

__all__ = ["Evaluate", "GameSearch", "Search", "SearchConfig", "SearchResult"]
