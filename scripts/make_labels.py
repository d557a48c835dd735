"""Draw the labelled positions that ship with the package from a solved table.

Half come from random games, half from games of agents of all strengths that now and then play at
random. Each half is spread evenly over the number of spheres on the board, and holds no position
twice up to symmetry. Of the positions asked for,

    60 %  are won, and some legal action lets the win go
    15 %  are drawn, and some legal action loses (none where the rule set has no draws)
    25 %  are lost: nothing can be thrown away, but an estimate of their value can be wrong

    python scripts/make_labels.py --rules advanced --positions 20000
    python scripts/make_labels.py --rules children --positions 4000
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pylos_env import Position, Rules, agents, kernel
from pylos_env.oracle import Oracle
from pylos_env.oracle.labels import SOURCES, values_of, write_labels

FOLDER = Path(__file__).resolve().parent.parent / "pylos_env" / "oracle" / "positions"
PLAYERS = ["rule_based", "alphabeta:2", "alphabeta:4", "perfect"]
SHARES = {1: 0.60, 0: 0.15, -1: 0.25}  # of won, drawn, lost positions
MAX_PLIES = 200
Ints = npt.NDArray[np.int64]


def play_games(rules: Rules, count: int, source: str, seed: int) -> Ints:
    """Every position of many games in which somebody has a choice."""
    rng = np.random.default_rng(seed)
    pool = [agents.make(name) for name in PLAYERS]
    players = rng.integers(len(pool), size=(count, 2))
    noise = rng.choice([0.05, 0.1, 0.2, 0.4], size=(count, 2))  # share of random actions
    packed = np.full(count, kernel.START, dtype=np.int64)
    games = np.arange(count)
    seen: list[Ints] = []
    for _ in range(MAX_PLIES):
        here = packed[games]
        sides = here >> kernel.SIDE_SHIFT & 1
        keys = rng.integers(1 << 62, size=len(games))
        actions = agents.make("random").act_batch(here, rules, keys)
        if source == "played":
            chosen = rng.random(len(games)) >= noise[games, sides]
            for number, player in enumerate(pool):
                rows = np.flatnonzero(chosen & (players[games, sides] == number))
                actions[rows] = player.act_batch(here[rows], rules, keys[rows])
        after = [
            kernel.play(int(position), rules.code, int(action))
            for position, action in zip(here, actions, strict=True)
        ]
        packed[games] = after
        games = games[[not kernel.is_over(position, rules.code) for position in after]]
        seen.append(packed[games])
        if not len(games):
            break
    found = np.unique(np.concatenate(seen))
    choices = [kernel.count_legal(int(position), rules.code) > 1 for position in found]
    return found[choices]


def draw_positions(
    oracle: Oracle, found: Ints, wanted: dict[int, int], seen: set[int], seed: int
) -> Ints:
    """So many positions of each value, evenly over the number of spheres, none seen before."""
    rng = random.Random(seed)
    labels = oracle.label(found)
    values = labels.values
    worst = np.minimum.reduceat(values_of(labels.after), labels.begin[:-1])
    useful = (values == -1) | (worst < values)
    chosen: list[int] = []
    for value, number in wanted.items():
        heaps: defaultdict[int, list[int]] = defaultdict(list)
        for row in np.flatnonzero(useful & (values == value)).tolist():
            heaps[int(labels.spheres[row])].append(row)
        for heap in heaps.values():
            rng.shuffle(heap)
        end = len(chosen) + number
        while len(chosen) < end and any(heaps.values()):
            for heap in heaps.values():
                while heap and len(chosen) < end:
                    position = Position.unchecked(int(found[heap.pop()]), oracle.rules)
                    image = min(position.symmetric(index).packed for index in range(8))
                    if image not in seen:
                        seen.add(image)
                        chosen.append(position.packed)
                        break
    return np.array(chosen, dtype=np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rules", default="advanced")
    parser.add_argument("--positions", type=int, default=20_000)
    parser.add_argument("--games", type=int, default=6_000, help="to draw from, of each source")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rules = Rules.of(options.rules)
    oracle = Oracle.open(rules)
    parts, sources = [], []
    seen: set[int] = set()
    for number, source in enumerate(SOURCES):
        found = play_games(rules, options.games, source, options.seed + number)
        wanted = {value: round(share * options.positions / 2) for value, share in SHARES.items()}
        chosen = draw_positions(oracle, found, wanted, seen, options.seed)
        print(f"{source}: {len(found):,} positions played, {len(chosen):,} chosen", flush=True)
        parts.append(chosen)
        sources.append(np.full(len(chosen), number, dtype=np.uint8))
    packed, source = np.concatenate(parts), np.concatenate(sources)
    order = np.random.default_rng(options.seed).permutation(len(packed))
    labels = oracle.label(packed[order])._replace(source=source[order])
    path = FOLDER / f"{rules}.npz"
    FOLDER.mkdir(exist_ok=True)
    write_labels(path, labels)
    counts = {value: int((labels.values == value).sum()) for value in (1, 0, -1)}
    print(f"{path}: {len(packed):,} positions, {path.stat().st_size:,} bytes; {counts}")


if __name__ == "__main__":
    sys.exit(main())
