"""Pylos in a terminal: `pylos-play --white human --black alphabeta:4`.

moves       what people type, read and explained
game        a game as it stands
advice      hints and evaluations
session     the table: a typed line in, a reply out
terminal    the screen, the keyboard, the command line
"""

from trainers.play.terminal import main

__all__ = ["main"]
