"""CsvSink: the numbers of a run as a CSV file.

One row for each number: `step,time,tag,value`. The long form takes tags that appear later, or in a
resumed run, without a new header. Steps never decrease from row to row. `time` is in seconds since
1970; `nan`, `inf` and `-inf` stand as such; final results have `final/` before their tag.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainers.metrics.events import Event, Finish, Scalars, check_resume
from trainers.metrics.tags import FINAL, MetricsError

HEADER: Final = "step,time,tag,value"


class CsvSink:
    """Appends rows, handing each event to the system as it comes."""

    def __init__(self, path: str | Path, resume: int | None = None) -> None:
        """A new file; with `resume`, go on with the one there, rows after that step cut off."""
        path, resume = Path(path), check_resume(resume)
        if resume is None and path.exists():
            raise MetricsError(f"{path} exists: it belongs to another run, which resume= continues")
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume is not None and path.exists():
            _cut(path, resume)
        self._file = path.open("a", encoding="utf-8", newline="")
        if not self._file.tell():
            self._file.write(f"{HEADER}\n")

    def write(self, event: Event) -> None:
        if isinstance(event, Scalars):
            self._rows(event, event.values)
        elif isinstance(event, Finish):
            self._rows(event, {FINAL + tag: value for tag, value in event.results.items()})

    def _rows(self, event: Event, values: Mapping[str, float]) -> None:
        begin = f"{event.step},{event.time:.3f}"
        self._file.write("".join(f"{begin},{tag},{value!r}\n" for tag, value in values.items()))
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _cut(path: Path, last: int) -> None:
    """Cut off the rows of steps after `last`, and a row that a kill left without its end."""
    with path.open("r+b") as file:
        keep = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") or (number > 1 and _step(path, number, line) > last):
                break
            if number == 1 and line.decode(errors="replace").strip() != HEADER:
                raise MetricsError(f"{path} is no file of metrics: expected the header {HEADER}")
            keep += len(line)
        file.truncate(keep)
        file.flush()
        os.fsync(file.fileno())


def _step(path: Path, number: int, line: bytes) -> int:
    fields = line.split(b",")
    if len(fields) != 4 or not fields[0].isdigit():
        raise MetricsError(f"{path}, line {number}: expected {HEADER}, got {line!r}")
    return int(fields[0])
