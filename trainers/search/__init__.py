"""Tree search over many games at once; it knows no network, the evaluator is passed in."""

from trainers.search.batched import Evaluate, Search, SearchConfig, SearchResult

__all__ = ["Evaluate", "Search", "SearchConfig", "SearchResult"]
