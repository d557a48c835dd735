"""What the training loops have to tell, and where it is written.

A loop emits events through `Metrics` and knows no more. Sinks write them: TensorBoard, a CSV file,
files of games, the console, Weights & Biases. `TAGS` is the table of everything that can be
emitted; docs/metrics.md explains each. `open_metrics` makes the usual sinks of a run folder.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from trainers.metrics.console import INTERVAL, MODES, PlainConsole, console_sink
from trainers.metrics.csv_file import CsvSink
from trainers.metrics.events import (
    Begin,
    Event,
    Finish,
    Game,
    MemorySink,
    Message,
    Metrics,
    Picture,
    Scalars,
    Sink,
    check_resume,
)
from trainers.metrics.games_folder import GamesSink
from trainers.metrics.tags import FINAL, TAGS, MetricsError, Tag
from trainers.metrics.tensorboard import TensorBoardSink
from trainers.metrics.weights_biases import WandbSink

__all__ = [
    "FINAL",
    "TAGS",
    "Begin",
    "CsvSink",
    "Event",
    "Finish",
    "Game",
    "GamesSink",
    "MemorySink",
    "Message",
    "Metrics",
    "MetricsError",
    "Picture",
    "PlainConsole",
    "Scalars",
    "Sink",
    "Tag",
    "TensorBoardSink",
    "WandbSink",
    "console_sink",
    "open_metrics",
]


def open_metrics(
    folder: str | Path,
    *,
    resume: int | None = None,
    csv: bool = True,
    tensorboard: bool = True,
    games: bool = True,
    wandb_project: str | None = None,
    console: Literal["auto", "live", "plain", "off"] = "auto",
    interval: float = INTERVAL,
) -> Metrics:
    """The metrics of a run folder: `metrics.csv`, event files, `games/`, the console, and W&B.

    `resume`: the step of the checkpoint that the run goes on from. `interval`: seconds between two
    plain lines on the console. The run on W&B, if one is asked for, is called as the folder is.
    """
    folder, resume = Path(folder), check_resume(resume)
    if console not in (*MODES, "off"):
        raise MetricsError(f"unknown console {console!r}: expected {', '.join(MODES)} or off")
    sinks: list[Sink] = []
    with contextlib.ExitStack() as stack:

        def add(sink: Sink) -> None:
            stack.callback(sink.close)
            sinks.append(sink)

        if wandb_project is not None:  # first: what is likeliest to fail leaves no file behind
            add(WandbSink(wandb_project, folder.resolve().name, folder, resume))
        if tensorboard:
            add(TensorBoardSink(folder, resume))
        if csv:
            add(CsvSink(folder / "metrics.csv", resume))
        if games:
            add(GamesSink(folder / "games", resume))
        if console != "off":  # last: from here on a live display holds the terminal
            add(console_sink(console, interval))
        metrics = Metrics(sinks, resume)
        stack.pop_all()
    return metrics
