"""Check a solved four-level table by means that share nothing with the solver.

1. Random positions: the value and distance must follow from those of the positions after every
   whole turn, found by the slow rules of tests/reference.py.
2. Symmetric positions must have one answer, mid-turn too.
3. Games: from positions that it says are won the perfect agent must win against every opponent, in
   no more turns than it says; from drawn ones it must not lose.

    python scripts/check_oracle.py --rules advanced --positions 2000 --games 100
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np

from pylos_env import Outcome, Position, Rules, agents
from pylos_env.agents.perfect import PerfectAgent
from pylos_env.oracle import Oracle
from pylos_env.testing import random_game

OPPONENTS = ["random", "rule_based", "alphabeta:2", "alphabeta:4", "alphabeta:6"]


def load_reference() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "tests" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module


def random_positions(rules: Rules, count: int, seed: int) -> list[Position]:
    """Positions of random games before a whole turn, spread over the length of the games."""
    rng = random.Random(seed)
    found: list[Position] = []
    while len(found) < count:
        game = random_game(rules, rng.randrange(1 << 40))
        positions = [p for p in game.positions() if not p.take_backs_left]
        found += rng.sample(positions, min(5, len(positions)))
    return found[:count]


def check_positions(oracle: Oracle, rules: Rules, count: int) -> None:
    reference = load_reference()
    slow = reference.RefRules(
        rules.squares, rules.lines, rules.min_take_back, rules.empty_reserve_loses
    )
    began = time.monotonic()
    for number, position in enumerate(random_positions(rules, count, seed=1), start=1):
        ends = [
            Position.parse(reference.text(end), rules)
            for end in reference.whole_turns(reference.parse(str(position)), slow)
        ]
        theirs = [(oracle.value(end), oracle.distance(end)) for end in ends]
        wins = [distance for value, distance in theirs if value == -1]
        if not theirs:
            expected = (-1, 0)
        elif wins:
            expected = (1, 1 + min(wins))
        elif any(value == 0 for value, _ in theirs):
            expected = (0, None)
        else:
            expected = (-1, 1 + max(distance for _, distance in theirs))
        answer = (oracle.value(position), oracle.distance(position))
        if answer != expected:
            sys.exit(f"{position}: the table says {answer}, its turns say {expected}")
        if number % 500 == 0:
            print(f"{number} positions agree, {time.monotonic() - began:.0f} s", flush=True)


def check_symmetries(oracle: Oracle, rules: Rules, games: int) -> None:
    positions = [p for seed in range(games) for p in random_game(rules, seed).positions()]
    images = np.array([[p.symmetric(index).packed for index in range(8)] for p in positions])
    answers = oracle.distances(images.ravel()).reshape(images.shape)
    differing = (answers != answers[:, :1]).any(axis=1)
    if differing.any():
        sys.exit(f"{positions[int(differing.argmax())]}: its images have different distances")
    print(f"{len(positions):,} positions and their eight images agree", flush=True)


def play(position: Position, players: tuple[agents.Agent, agents.Agent], turns: int) -> Position:
    """Play at most so many whole turns."""
    while position.outcome is Outcome.ONGOING and turns:
        position = position.play(players[position.side].act(position))
        turns -= not position.take_backs_left
    return position


def check_games(oracle: Oracle, rules: Rules, count: int) -> None:
    for name in OPPONENTS:
        won = drawn = 0
        seed = 0
        while won < count:
            seed += 1
            start = random_positions(rules, 1, seed)[0]
            value, distance = oracle.value(start), oracle.distance(start)
            if value < 0 or start.outcome is not Outcome.ONGOING:
                continue
            perfect, other = PerfectAgent(seed), agents.make(name, seed=seed)
            players = (perfect, other) if start.side == 0 else (other, perfect)
            end = play(start, players, 150 if distance is None else distance)
            if value == 1:
                won += 1
                if end.outcome is Outcome.ONGOING or end.side == start.side:
                    sys.exit(f"{start}: won in {distance}, but {name} held out: {end}")
            else:
                drawn += 1
                if end.outcome is not Outcome.ONGOING and end.side == start.side:
                    sys.exit(f"{start}: drawn, but lost to {name}: {end}")
        print(f"against {name}: {won} won positions won, {drawn} drawn ones held", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rules", default="advanced")
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--games", type=int, default=100, help="won ones, per opponent")
    parser.add_argument("--folder", type=Path, help="of the table")
    options = parser.parse_args()
    rules = Rules.of(options.rules)
    oracle = Oracle.open(rules, options.folder)
    start = Position.start(rules)
    print(f"{rules}: the start has value {oracle.value(start)}, distance {oracle.distance(start)}")
    check_positions(oracle, rules, options.positions)
    check_symmetries(oracle, rules, 200)
    check_games(oracle, rules, options.games)


if __name__ == "__main__":
    main()
