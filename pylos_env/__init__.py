"""Pylos: the game, its environments, its opponents.

    Position, Rules         play and inspect a game: `Position.start().play(3)`
    GameRecord              whole games as text and files
    agents                  opponents by name: `agents.make("alphabeta:4")`
    oracle                  the exact value of every position, from a solved table
    pylos_v0                PettingZoo AEC environment
    single, vector          Gymnasium environments, one game or many; self-play in batches
    testing                 perft and random games, for your own checks

Importing the package registers `pylos_env/Pylos-v0` with Gymnasium and `pylos/pylos-v0` with
PettingZoo. Nothing is compiled before it is first called.
"""

import gymnasium
import pettingzoo

from pylos_env import agents, oracle, pylos_v0, render, single, testing, vector
from pylos_env.errors import IllegalMoveError, NotationError, PylosError
from pylos_env.position import BLACK, WHITE, Outcome, Position
from pylos_env.record import GameRecord, parse_games, read_games, write_games
from pylos_env.rules import PRESETS, Rules

__version__ = "0.1.0"

__all__ = [
    "BLACK",
    "PRESETS",
    "WHITE",
    "GameRecord",
    "IllegalMoveError",
    "NotationError",
    "Outcome",
    "Position",
    "PylosError",
    "Rules",
    "agents",
    "oracle",
    "parse_games",
    "pylos_v0",
    "read_games",
    "render",
    "single",
    "testing",
    "vector",
    "write_games",
]

# a reloaded module must not register twice: both registries warn of that
if "pylos_env/Pylos-v0" not in gymnasium.registry:
    gymnasium.register(
        id="pylos_env/Pylos-v0",
        entry_point="pylos_env.single:PylosEnv",
        vector_entry_point="pylos_env.vector:PylosVectorEnv",
    )
if "pylos/pylos-v0" not in pettingzoo.aec_registry:
    pettingzoo.register("aec", "pylos/pylos-v0", entry_point="pylos_env.pylos_v0:env")
