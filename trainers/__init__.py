"""Self-play trainers for Pylos and what they stand on: search, networks, matches, ratings."""
