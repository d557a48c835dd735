"""GamesSink: the sample games of a run, each a file that `pylos_env.read_games` reads.

games/step_000000040_selfplay.txt
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from trainers.files import write_atomically
from trainers.metrics.events import Event, Game, check_resume
from trainers.metrics.tags import MetricsError

_FILE: Final = re.compile(r"step_(\d+)_\w+\.txt")


class GamesSink:
    """Writes each game as it comes."""

    def __init__(self, folder: str | Path, resume: int | None = None) -> None:
        """A new folder; with `resume`, go on with the one there, without games of later steps."""
        self._folder, resume = Path(folder), check_resume(resume)
        for path in self._folder.glob("*.txt"):
            match = _FILE.fullmatch(path.name)
            if match and resume is None:
                raise MetricsError(
                    f"{path} exists: it belongs to another run, which resume= continues"
                )
            if match and int(match[1]) > (resume or 0):
                path.unlink()

    def write(self, event: Event) -> None:
        if isinstance(event, Game):
            self._folder.mkdir(parents=True, exist_ok=True)
            kind = event.tag.rpartition("/")[2]
            path = self._folder / f"step_{event.step:09d}_{kind}.txt"
            write_atomically(path, str(event.record).encode())

    def flush(self) -> None:
        """Nothing waits: each file is whole and on the disk."""

    def close(self) -> None:
        """Nothing is open."""
