"""Metrics: what a training loop emits, checked once and handed to every sink.

    with Metrics([CsvSink(folder / "metrics.csv"), PlainConsole()]) as metrics:
        metrics.begin({"seed": 3, "search": {"simulations": 64}})
        metrics.scalars(step, {"train/loss": loss, "perf/progress": 0.4})
        metrics.game(step, "sample/selfplay", record)
        metrics.flush()                                    # before a checkpoint is saved
        metrics.finish({"eval/rating": 912})

Steps never go back, so files stay in order and a resumed run can cut off what comes after its
checkpoint. `resume` is the step of that checkpoint: everything up to it counts as recorded, and
the next event must belong to a later step. A loop therefore emits what belongs to a step before it
saves the checkpoint of that step.

Non-finite numbers are recorded as they are (`nan`, `inf`, `-inf`), and a message says so when a
tag turns from finite to non-finite: a diverged run is seen, and its files stay readable.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, SupportsFloat

import numpy as np
import numpy.typing as npt

from pylos_env import render
from pylos_env.options import check_count
from pylos_env.position import Position
from pylos_env.record import GameRecord
from trainers.metrics.tags import Kind, MetricsError, check_result, check_tag

PICTURE_SIZE: Final = 320
MESSAGE_TAG: Final = "log/message"

Setting = bool | int | float | str


@dataclass(frozen=True)
class Event:
    """Something that happened at a step of the run; `time` is in seconds since 1970."""

    step: int
    time: float


@dataclass(frozen=True)
class Begin(Event):
    """The hyper-parameters of the run; nested ones have dotted names."""

    settings: Mapping[str, Setting]


@dataclass(frozen=True)
class Scalars(Event):
    """Numbers by tag."""

    values: Mapping[str, float]


@dataclass(frozen=True)
class Picture(Event):
    """A position, to be drawn."""

    tag: str
    position: Position

    def pixels(self) -> npt.NDArray[np.uint8]:
        """The board, uint8 [size, size, 3]."""
        return render.rgb_array(self.position, PICTURE_SIZE, legal=False)


@dataclass(frozen=True)
class Game(Event):
    """A whole game."""

    tag: str
    record: GameRecord


@dataclass(frozen=True)
class Message(Event):
    """A line for whoever watches; it belongs to the last step there was."""

    text: str


@dataclass(frozen=True)
class Finish(Event):
    """The run has reached its end: its final results by tag."""

    results: Mapping[str, float]


class Sink(Protocol):
    """Where events go. A sink takes what it can show and raises when it cannot write."""

    def write(self, event: Event) -> None: ...

    def flush(self) -> None:
        """Hand everything to the system: what was written before now survives a kill."""

    def close(self) -> None:
        """Flush, and let go."""


class MemorySink:
    """Keeps the events in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False

    def write(self, event: Event) -> None:
        self.events.append(event)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Metrics:
    """The one thing a training loop knows of logging; see the module's text."""

    def __init__(
        self,
        sinks: Iterable[Sink],
        resume: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`resume`: the step of the checkpoint that the run goes on from; None for a new run."""
        self._sinks = tuple(sinks)
        self._resume = check_resume(resume)
        self._step = self._resume or 0
        self._clock = clock
        self._not_finite: set[str] = set()
        self._closed = False

    def begin(self, settings: Mapping[str, object]) -> None:
        """Record the hyper-parameters, once, before anything else."""
        self._write(Begin(self._step, self._clock(), flatten(settings)))

    def scalars(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Record numbers that belong together; each tag must be in TAGS."""
        checked = {check_tag(tag, "scalar"): _number(tag, value) for tag, value in values.items()}
        self._advance(step)
        if not checked:
            return
        self._write(Scalars(self._step, self._clock(), checked))
        not_finite = {tag for tag, value in checked.items() if not math.isfinite(value)}
        for tag in sorted(not_finite - self._not_finite):
            self.message(f"warning: {tag} is {checked[tag]} at step {self._step}")
        self._not_finite = self._not_finite.difference(checked) | not_finite

    def picture(self, step: int, tag: str, position: Position) -> None:
        """Record a position as a picture of its board."""
        self._check(tag, "picture", position, Position)
        self._advance(step)
        self._write(Picture(self._step, self._clock(), tag, position))

    def game(self, step: int, tag: str, record: GameRecord) -> None:
        """Record a sample game."""
        self._check(tag, "game", record, GameRecord)
        self._advance(step)
        self._write(Game(self._step, self._clock(), tag, record))

    def message(self, text: str) -> None:
        """Say something at once."""
        self._write(Message(self._step, self._clock(), text))

    def finish(self, results: Mapping[str, SupportsFloat]) -> None:
        """Record the final results of a run that has reached its end."""
        checked = {check_result(tag): _number(tag, value) for tag, value in results.items()}
        self._write(Finish(self._step, self._clock(), checked))

    def flush(self) -> None:
        """Hand all that was emitted to the system; call it before a checkpoint is saved."""
        for sink in self._sinks:
            with _noted(sink):
                sink.flush()

    def close(self) -> None:
        """Close every sink, also when one of them fails; then raise its error."""
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.callback(_close, sink)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self, tag: str, kind: Kind, value: object, expected: type) -> None:
        check_tag(tag, kind)
        if not isinstance(value, expected):
            raise MetricsError(f"{tag} takes a {expected.__name__}, got {value!r}")

    def _advance(self, step: int) -> None:
        step = check_count("a step", step, least=0)
        if self._resume is not None and step <= self._resume:
            raise MetricsError(
                f"step {step} is recorded already: this run goes on after step {self._resume}"
            )
        if step < self._step:
            raise MetricsError(f"step {step} after step {self._step}: steps never go back")
        self._step = step

    def _write(self, event: Event) -> None:
        if self._closed:
            raise MetricsError(f"the metrics are closed, but got {type(event).__name__}")
        for sink in self._sinks:
            with _noted(sink):
                sink.write(event)


def check_resume(step: int | None) -> int | None:
    """The step of a checkpoint to go on from, or None; checked before any file is touched."""
    return None if step is None else check_count("resume, unless None,", step, least=0)


def flatten(settings: Mapping[str, object], prefix: str = "") -> dict[str, Setting]:
    """Nested settings as one level with dotted names; what is no number or bool becomes text."""
    flat: dict[str, Setting] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value if isinstance(value, Setting) else str(value)
    return flat


def _number(tag: str, value: SupportsFloat) -> float:
    """One number as a float: a Python or NumPy scalar, or an array or tensor without dimensions."""
    if isinstance(value, str | bytes) or getattr(value, "ndim", 0) > 0:
        raise MetricsError(f"{tag} takes one number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise MetricsError(f"{tag} takes one number, got {value!r}") from error


def _close(sink: Sink) -> None:
    with _noted(sink):
        sink.close()


@contextlib.contextmanager
def _noted(sink: Sink) -> Iterator[None]:
    """Let an error say which sink it comes from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the metrics' {type(sink).__name__}")
        raise
