"""`pylos-solve`: fill the complete table of a rule set.

    pylos-solve --rules mature              a few gigabytes and a quarter of an hour
    pylos-solve --rules mature --levels 3   the small board, in seconds

Passes run on all cores and report as they go. The table is saved while they run; a run that was
stopped goes on where the last save was.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import mmap
import os
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

if sys.platform != "win32":  # which has no such locks
    import fcntl

from pylos_env.batch import default_threads
from pylos_env.errors import PylosError
from pylos_env.options import check_count
from pylos_env.oracle import board as boards
from pylos_env.oracle import passes
from pylos_env.oracle.board import Board
from pylos_env.oracle.passes import Table
from pylos_env.oracle.table import (
    BLOCK,
    FORMAT,
    HEADER_BYTES,
    Header,
    OracleError,
    check_header,
    checksum,
    read_header,
    table_path,
    write_header,
)
from pylos_env.rules import Rules

STRETCH: Final = 1 << 20
MAX_DISTANCE: Final = 253
SPARE_BYTES: Final = 400 << 20  # Python, Numba, the board's tables

# the share of a four-level run's time that is over before a pass, as the runs of docs/oracle.md had
# it; distances grow rare towards the end, but nobody knows beforehand how far they go
TYPICAL_PASSES: Final = (0, 5, 9, 17, 25, 33, 49, 77)
TYPICAL_SHARES: Final = (0.0, 0.12, 0.25, 0.45, 0.66, 0.77, 0.87, 1.0)

DURATIONS: Final = {2: "a second", 3: "seconds", 4: "5 to 20 minutes"}

Report = Callable[[str], None]


class Stretch(NamedTuple):
    """A part of one class, small enough for a thread to report often."""

    occupied: int
    base: int
    first: int
    last: int


def stretches(board: Board) -> list[Stretch]:
    masks, bases = boards.classes(board)
    return [
        Stretch(occupied, base, first, min(1 << occupied.bit_count(), first + STRETCH))
        for occupied, base in zip(masks.tolist(), bases.tolist(), strict=True)
        for first in range(0, 1 << occupied.bit_count(), STRETCH)
    ]


def allocate(size: int) -> Table:
    """Zeroed memory in huge pages where the system has them: half the time is spent on look-ups."""
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


class Clock:
    """Guesses the time left of a run that begins with pass `first`."""

    def __init__(self, first: int) -> None:
        self._began = time.monotonic()
        self._first = self._share(first)

    def time_left(self, passes: float) -> str:
        """After so many passes, a part of one included."""
        share = self._share(passes)
        if share <= self._first:
            return "; the time left is not known yet"
        spent = time.monotonic() - self._began
        left = spent * (1 - share) / (share - self._first)
        return f"; about {left / 60:.0f} min left" if left >= 90 else f"; about {left:.0f} s left"

    def _share(self, passes: float) -> float:
        return float(np.interp(passes, TYPICAL_PASSES, TYPICAL_SHARES))


class Solver:
    """One run: `solve()` returns the path of the finished file."""

    def __init__(
        self,
        rules: str | Rules,
        levels: int | None = None,
        folder: str | Path | None = None,
        threads: int | None = None,
        report: Report = print,
    ) -> None:
        given = Rules.of(rules)
        levels = given.levels if levels is None else levels
        self.rules = dataclasses.replace(given, levels=4)  # the board's size is the board's matter
        if self.rules.take_back != "choose":
            raise PylosError(f"only rules where players choose are solved, got '{self.rules}'")
        self.board = boards.build(levels)
        self.path = table_path(self.rules, levels, folder)
        self.threads = default_threads() if threads is None else check_count("threads", threads)
        self.report = report
        self.stop = False  # set to leave after the pass under way
        self._work = stretches(self.board)
        self._num_blocks = -(-self.board.size // BLOCK)
        self._checksums = [-1] * self._num_blocks  # of the table as it was last saved
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._progress = self.path.with_name(self.path.name + ".progress")

    def solve(self) -> Path:
        """Run every pass that is still to do; a stopped run raises `KeyboardInterrupt`."""
        self._check_room()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._alone(), ThreadPoolExecutor(self.threads) as pool:
            table = allocate(self.board.size)
            distance = self._resume(table)
            clock = Clock(distance) if self.board.levels == 4 else None  # others take seconds
            while distance <= MAX_DISTANCE:
                if self.stop:
                    raise KeyboardInterrupt
                count = self._pass(pool, table, distance, clock)
                distance += 1
                self._save(pool, table, distance)
                if count == 0:
                    return self._finish(table)
        raise OracleError(f"a distance beyond {MAX_DISTANCE} does not fit a byte")

    def _pass(
        self, pool: ThreadPoolExecutor, table: Table, distance: int, clock: Clock | None
    ) -> int:
        """All positions of one distance; returns how many there are, or were a turn before."""
        began = time.monotonic()
        name = f"{'won' if distance % 2 else 'lost'} in {distance}"
        if distance == 0:
            run = partial(passes.begin, self.board, self.rules.code, table)
        elif distance % 2:
            run = partial(passes.mark_won, self.board, self.rules.code, table, distance=distance)
        else:
            run = partial(passes.mark_lost, self.board, self.rules.code, table, distance=distance)
        total = done = 0
        results = pool.map(lambda part: run(*part), self._work)
        for part, count in zip(self._work, results, strict=True):
            total += count
            done += part.last - part.first
            share = done / self.board.size
            _show(f"{name}: {share:.0%}" + (clock.time_left(distance + share) if clock else ""))
        _show("")
        what = "positions lost a turn before" if distance % 2 else "positions"
        spent = time.monotonic() - began
        left = clock.time_left(distance + 1) if clock else ""
        self.report(f"{name}: {total:,} {what}, {spent:.1f} s{left}")
        return total

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep a second run away from the files of this one; a killed run leaves no lock."""
        if sys.platform == "win32":
            yield
            return
        path = self.path.with_name(self.path.name + ".lock")
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OracleError(f"another run is filling {self.path}") from None
            yield
            path.unlink(missing_ok=True)

    # Saving: a half-written save mixes two passes, and running the later one again mends it. Every
    # block must be as the save before or as this one left it; anything else is damage.

    def _save(self, pool: ThreadPoolExecutor, table: Table, distance: int) -> None:
        """Bring the file up to date; `distance` is the next pass."""
        found = list(pool.map(partial(checksum, table), range(self._num_blocks)))
        self._write_progress(max(0, distance - 1), [self._checksums, found])
        with self._partial.open("r+b" if self._partial.exists() else "w+b") as file:
            for block, (now, then) in enumerate(zip(found, self._checksums, strict=True)):
                if now != then:
                    file.seek(HEADER_BYTES + block * BLOCK)
                    file.write(table[block * BLOCK : (block + 1) * BLOCK].data)
        self._checksums = found
        self._write_progress(distance, [found])

    def _write_progress(self, distance: int, checksums: list[list[int]]) -> None:
        state = {
            "format": FORMAT,
            "code": self.rules.code,
            "distance": distance,
            "checksums": checksums,
        }
        new = self._progress.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, self._progress)

    def _resume(self, table: Table) -> int:
        """Load what an earlier run has saved; returns the pass to go on with."""
        try:
            state = json.loads(self._progress.read_text())
            length = self._partial.stat().st_size
        except FileNotFoundError:
            return 0
        except ValueError:
            state, length = {}, 0
        if (
            state.get("format") != FORMAT
            or state.get("code") != self.rules.code
            or length != HEADER_BYTES + self.board.size
        ):
            self.report(f"{self._partial} is of another run: beginning anew")
            return 0
        with self._partial.open("rb") as file:
            file.seek(HEADER_BYTES)
            file.readinto(table.data)
        found = [checksum(table, block) for block in range(self._num_blocks)]
        for block, known in enumerate(zip(*state["checksums"], strict=True)):
            if found[block] not in known:
                self.report(f"{self._partial} is damaged in block {block}: beginning anew")
                table[:] = 0
                return 0
        self._checksums = found
        self.report(f"going on from {self._partial}")
        return int(state["distance"])

    def _finish(self, table: Table) -> Path:
        start = int(table[self._work[-1].base])  # the empty board is the last class
        header = Header(
            FORMAT,
            str(self.rules),
            self.rules.code,
            self.board.levels,
            self.board.size,
            start,
            self._checksums,
        )
        write_header(self._partial, header)
        verify(self._partial, self.rules, self.board.levels)
        os.replace(self._partial, self.path)
        self._progress.unlink()
        return self.path

    def _check_room(self) -> None:
        need = self.board.size + SPARE_BYTES
        self.report(
            f"{self.rules}, {self.board.levels} levels: {need / 1e9:.1f} GB of memory, "
            f"{self.board.size / 1e9:.1f} GB in {self.path}, {DURATIONS[self.board.levels]} on two "
            "quiet cores; Ctrl-C saves after the pass under way"
        )
        free = _available_memory()
        if free is not None and free < need:
            raise OracleError(
                f"{need / 1e9:.1f} GB of memory are needed, {free / 1e9:.1f} are free"
            )
        folder = next(path for path in self.path.parents if path.exists())
        room = shutil.disk_usage(folder).free
        there = self._partial.stat().st_size if self._partial.exists() else 0
        if room + there < self.board.size + HEADER_BYTES:
            raise OracleError(
                f"{self.board.size / 1e9:.1f} GB of disk are needed in {folder}, "
                f"{room / 1e9:.1f} are free"
            )


def verify(path: Path, rules: Rules, levels: int) -> Header:
    """Read a whole file and compare every checksum; it must be of these rules and levels."""
    header = read_header(path)
    check_header(path, header, rules, levels)
    with path.open("rb") as file:  # read, not mapped: mapped pages would count as memory taken
        file.seek(HEADER_BYTES)
        for block, expected in enumerate(header.checksums):
            if zlib.crc32(file.read(BLOCK)) != expected:
                raise OracleError(f"{path}: block {block} is damaged; build the table again")
    return header


class Counts(NamedTuple):
    """How the positions with so many spheres end, each counted once for all its symmetries."""

    spheres: int
    won: int
    drawn: int
    lost: int


def count_values(path: Path) -> list[Counts]:
    """Won, drawn and lost positions of a finished table by the number of spheres on the board."""
    header = read_header(path)
    masks, _ = boards.classes(boards.build(header.levels))
    rows = []
    with path.open("rb") as file:
        file.seek(HEADER_BYTES)
        for spheres in sorted(set(np.bitwise_count(masks).tolist()), reverse=True):
            left = int((1 << spheres) * (np.bitwise_count(masks) == spheres).sum())
            found = np.zeros(256, dtype=np.int64)
            while left:
                block = np.frombuffer(file.read(min(left, BLOCK)), dtype=np.uint8)
                found += np.bincount(block, minlength=256)
                left -= len(block)
            drawn, won = found[passes.UNDECIDED], found[2 : passes.NO_POSITION : 2].sum()
            lost = found[1 : passes.NO_POSITION : 2].sum()
            rows.append(Counts(spheres, int(won), int(drawn), int(lost)))
    return rows[::-1]


def _available_memory() -> int | None:
    """Bytes that a process may take without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


def _show(text: str) -> None:
    """A line that the next one overwrites, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}" if text else "\r" + " " * 60 + "\r", end="", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pylos-solve", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rules", help="a preset (advanced, ...) or a mix; with --levels 3 or 2 advanced if none"
    )
    parser.add_argument(
        "--levels", type=int, help="4 (default: gigabytes and minutes), 3 or 2 (seconds)"
    )
    parser.add_argument("--out", type=Path, help="folder of the table (default: the user's cache)")
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--verify", action="store_true", help="only check a finished table")
    parser.add_argument(
        "--counts", action="store_true", help="also print won, drawn, lost positions"
    )
    options = parser.parse_args(arguments)
    if options.rules is None and options.levels not in (2, 3):
        parser.error("--rules: which? The whole board takes gigabytes and minutes")
    try:
        solver = Solver(options.rules or "advanced", options.levels, options.out, options.threads)
        if options.verify or solver.path.exists():
            header = verify(solver.path, solver.rules, solver.board.levels)
            print(f"{solver.path} is whole")
        else:

            def leave(*_: object) -> None:
                solver.stop = True
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends it at once
                print("stopping after this pass ...", file=sys.stderr)

            signal.signal(signal.SIGTERM, leave)
            signal.signal(signal.SIGINT, leave)
            path = solver.solve()
            header = read_header(path)
            print(f"{path}: {path.stat().st_size:,} bytes")
    except FileNotFoundError as error:
        print(f"no such table: {error.filename}", file=sys.stderr)
        return 1
    except (PylosError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("saved; the same command goes on", file=sys.stderr)
        return 130
    print(f"the first player {passes.describe(header.start)}")
    if options.counts:
        print(f"{'spheres':>7} {'won':>13} {'drawn':>13} {'lost':>13}")
        for row in count_values(solver.path):
            print(f"{row.spheres:>7} {row.won:>13,} {row.drawn:>13,} {row.lost:>13,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
