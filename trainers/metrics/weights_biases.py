"""WandbSink: a run on Weights & Biases; needs the extra `wandb`."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from trainers.metrics.events import (
    Begin,
    Event,
    Finish,
    Game,
    Picture,
    Scalars,
    check_resume,
)
from trainers.metrics.optional import load
from trainers.metrics.tags import FINAL


class WandbSink:
    """One W&B run, known by its id.

    W&B takes steps in rising order and cannot take one back. A resumed run therefore leaves out
    the steps that its first part recorded after the checkpoint: a loop that resumes bit for bit
    would repeat the same numbers. A run closed without `finish` is marked as failed there.
    """

    def __init__(
        self, project: str, run_id: str, folder: str | Path, resume: int | None = None
    ) -> None:
        self._wandb = load("wandb", "wandb")
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._run: Any = self._wandb.init(
            project=project,
            id=run_id,
            name=run_id,
            dir=str(folder),
            resume="never" if check_resume(resume) is None else "allow",
        )
        self._first = int(self._run.step)
        self._finished = False

    def write(self, event: Event) -> None:
        match event:
            case Begin():
                self._run.config.update(dict(event.settings), allow_val_change=True)
            case Scalars():
                self._log(event, dict(event.values))
            case Picture():
                self._log(event, {event.tag: self._wandb.Image(event.pixels())})
            case Game():
                page = f"<pre>{html.escape(str(event.record))}</pre>"
                self._log(event, {event.tag: self._wandb.Html(page)})
            case Finish():
                results = {FINAL + tag: value for tag, value in event.results.items()}
                self._run.summary.update(results)
                self._finished = True

    def flush(self) -> None:
        """Nothing to do: W&B's own process already has what was logged."""

    def close(self) -> None:
        self._run.finish(exit_code=0 if self._finished else 1)

    def _log(self, event: Event, values: dict[str, Any]) -> None:
        if event.step >= self._first:
            self._run.log(values, step=event.step)
