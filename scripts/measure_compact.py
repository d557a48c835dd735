"""What would it take to ship perfect play without the solved table? One table, three measurements.

1. What the table weighs up to each number of spheres: a byte for each index, values only (two
   bits), and both compressed.
2. How often a search of one second proves a win or a loss, by number of spheres (a draw it cannot).
3. How large a winner's book would be: one best action for every position that can arise when the
   winner of the empty board follows the book and the other side does anything.

    python scripts/measure_compact.py --rules advanced
"""

from __future__ import annotations

import argparse
import random
import time
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pylos_env import Position, Rules, agents, kernel
from pylos_env.oracle import Oracle, board
from pylos_env.oracle.query import _RANKS, _successors
from pylos_env.oracle.table import HEADER_BYTES, table_path
from pylos_env.testing import random_game

Ints = npt.NDArray[np.int64]
PART = 1 << 24


def weigh(path: Path) -> None:
    """Sizes by number of spheres, from sparse boards on; parts of 16 MB stand for large ones."""
    masks, bases = board.classes(board.build(4))
    counts = np.bitwise_count(masks).astype(np.int64)
    table = np.memmap(path, dtype=np.uint8, mode="r", offset=HEADER_BYTES)
    sums = np.zeros(4)
    print(f"{'up to':>5} {'bytes':>14} {'compressed':>14} {'values':>14} {'compressed':>14}")
    for spheres in range(30):
        rows = counts == spheres
        first, size = int(bases[rows].min()), int((1 << spheres) * rows.sum())
        sample = np.array(table[first : first + min(size, PART)])
        values = np.where(sample == 0, 0, 1 + (sample & 1)).astype(np.uint8)
        values[sample == 255] = 1  # never asked for: whatever compresses best
        values = np.pad(values, (0, -len(values) % 4)).reshape(-1, 4)
        packed = values @ np.array([1, 4, 16, 64], dtype=np.uint8)
        ratio = size / len(sample)
        sums += [
            size,
            ratio * len(zlib.compress(sample.tobytes(), 9)),
            size / 4,
            ratio * len(zlib.compress(packed.tobytes(), 9)),
        ]
        print(f"{spheres:>5} " + " ".join(f"{total:>14,.0f}" for total in sums), flush=True)


def search(rules: Rules, oracle: Oracle, seconds: float, per_count: int) -> None:
    """How many positions of random games a search decides in the time given."""
    rng = random.Random(1)
    heaps: defaultdict[int, list[Position]] = defaultdict(list)
    for seed in range(600):
        for position in random_game(rules, seed).positions():
            if not position.take_backs_left and position.legal_actions():
                heaps[15 * 2 - sum(position.reserves)].append(position)
    print(f"{'spheres':>7} {'decided':>8} {'median distance':>16}")
    for spheres in sorted(heaps):
        sample = rng.sample(heaps[spheres], min(per_count, len(heaps[spheres])))
        decided = 0
        for position in sample:
            spent = last = 0.0
            depth = 0
            while spent + 4 * last < seconds and depth < 20:  # the next depth takes some 4 times
                depth += 1
                began = time.thread_time()
                value = agents.AlphaBetaAgent(depth).value(position)
                last = time.thread_time() - began
                spent += last
                if abs(value) == 1:
                    decided += 1
                    break
        known = [oracle.distance(position) or 999 for position in sample]
        median = f"{np.median(known):.0f}"
        print(f"{spheres:>7} {decided / len(sample):>8.0%} {median:>16}", flush=True)


def canonical(packed: Ints) -> Ints:
    """The smallest image of each position between turns."""
    images = [[kernel.symmetric(position, index) for index in range(8)] for position in packed]
    return np.unique(np.array(images).min(axis=1))


def book(rules: Rules, oracle: Oracle, limit: int) -> None:
    """Positions that a book of the winning side has to hold, turn by turn."""
    winner = 0 if oracle.value(Position.start(rules)) == 1 else 1
    front = np.array([kernel.START])
    seen = np.empty(0, dtype=np.int64)
    turn = 0
    while len(front):
        side = int(front[0] >> kernel.SIDE_SHIFT & 1)
        if side == winner:
            front = np.setdiff1d(front, seen)
            seen = np.union1d(seen, front)
            print(f"turn {turn}: {len(front):,} positions, {len(seen):,} in all", flush=True)
            if len(seen) > limit:
                print(f"stopped: more than {limit:,}")
                return
        ended: list[Ints] = []
        while len(front):  # through the take-backs of one turn
            _, after, begin = _successors(front, rules.code)
            if side == winner:
                ranks = _RANKS[oracle._bytes_after(after)]
                best = np.repeat(np.maximum.reduceat(ranks, begin[:-1]), np.diff(begin))
                rows = np.flatnonzero(ranks == best)
                parents = np.repeat(np.arange(len(front)), np.diff(begin))[rows]
                _, first = np.unique(parents, return_index=True)
                after = after[rows[first]]
            taking = after >> kernel.TAKE_BACK_SHIFT != 0
            ended.append(after[~taking])
            front = np.unique(after[taking])
        front = canonical(np.concatenate(ended))
        alive = [not kernel.is_over(int(position), rules.code) for position in front]
        front = front[alive]
        turn += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rules", default="advanced")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each search")
    parser.add_argument("--per-count", type=int, default=20, help="searches per number of spheres")
    parser.add_argument("--limit", type=int, default=20_000_000, help="positions of the book")
    options = parser.parse_args()
    rules = Rules.of(options.rules)
    oracle = Oracle.open(rules)
    weigh(table_path(rules))
    book(rules, oracle, options.limit)
    search(rules, oracle, options.seconds, options.per_count)


if __name__ == "__main__":
    main()
