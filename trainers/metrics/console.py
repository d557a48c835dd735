"""The console: a live display on a terminal (live.py), plain lines everywhere else.

Both show the main figures of TAGS only; all of them are in the files. `console_sink` chooses.
A plain line is `step=1200 elapsed=63.1 train/loss=0.8132 ...`, made for grep.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, TextIO, cast

from trainers.metrics.events import Event, Finish, Message, Scalars, Sink
from trainers.metrics.optional import load
from trainers.metrics.tags import FINAL, TAGS, MetricsError, Unit

ConsoleMode = Literal["auto", "live", "plain"]

MODES: Final = ("auto", "live", "plain")
INTERVAL: Final = 10.0
PROGRESS: Final = "perf/progress"
MINUTES_LEFT: Final = "perf/minutes_left"

_SUFFIX: Final[Mapping[Unit, str]] = {
    "times": " x",
    "plies": " plies",
    "per second": " /s",
    "per minute": " /min",
    "minutes": " min",
}


def console_sink(mode: ConsoleMode = "auto", interval: float = INTERVAL) -> Sink:
    """The live display or plain lines; `auto` looks whether the output is a terminal."""
    if mode not in MODES:
        raise MetricsError(f"unknown console {mode!r}: expected one of {', '.join(MODES)}")
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if mode == "live" or (mode == "auto" and terminal):
        return cast(Sink, load("trainers.metrics.live", "train").LiveConsole())
    return PlainConsole(interval=interval)


class PlainConsole:
    """A line of the newest figures when `interval` seconds have passed since the last."""

    def __init__(
        self,
        stream: TextIO | None = None,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._interval = interval
        self._clock = clock
        self._start = clock()
        self._last = -math.inf
        self._step = 0
        self._waiting: dict[str, float] = {}

    def write(self, event: Event) -> None:
        match event:
            case Scalars():
                self._waiting |= {
                    tag: value
                    for tag, value in event.values.items()
                    if TAGS[tag].main or tag in (PROGRESS, MINUTES_LEFT)
                }
                self._step = event.step
                if self._waiting and self._clock() - self._last >= self._interval:
                    self._line()
            case Message():
                self._print(event.text)
            case Finish():
                self._rest()
                self._print(result_line(event))

    def flush(self) -> None:
        self._output.flush()

    def close(self) -> None:
        self._rest()
        self.flush()

    @property
    def _output(self) -> TextIO:
        return sys.stdout if self._stream is None else self._stream

    def _rest(self) -> None:
        if self._waiting:
            self._line()

    def _line(self) -> None:
        now = self._clock()
        begin = f"step={self._step} elapsed={now - self._start:.1f}"
        self._print(" ".join([begin, *pairs(self._waiting)]))
        self._waiting = {}
        self._last = now

    def _print(self, text: str) -> None:
        print(text, file=self._output, flush=True)


def readable(tag: str, value: float) -> str:
    """A value as a person reads it, by the unit of its tag."""
    unit = TAGS[tag].unit
    if not math.isfinite(value):
        return str(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit in ("count", "Elo", "per second") and abs(value) >= 100:
        return f"{value:,.0f}{_SUFFIX.get(unit, '')}"
    return f"{value:.4g}{_SUFFIX.get(unit, '')}"


def pairs(values: Mapping[str, float]) -> list[str]:
    """`tag=value` in the order of TAGS."""
    order = list(TAGS)
    return [f"{tag}={values[tag]:.6g}" for tag in sorted(values, key=order.index)]


def result_line(event: Finish) -> str:
    results = [f"{FINAL}{pair}" for pair in pairs(event.results)]
    return " ".join([f"finished step={event.step}", *results])
