"""LiveConsole: the figures of a run on a terminal, kept in place; needs `rich`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainers.metrics.console import MINUTES_LEFT, PROGRESS, readable, result_line
from trainers.metrics.events import Event, Finish, Message, Scalars
from trainers.metrics.tags import TAGS

REFRESHES_PER_SECOND: Final = 2.0


class LiveConsole:
    """The main figures by family, progress and the time left; messages scroll by above them.

    It is drawn by a thread of its own, so the loop only stores what it has to show. A figure that
    is not finite is shown in red, also if it is none of the main ones.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console()
        self._clock = clock
        self._start = clock()
        self._step = 0
        self._values: dict[str, float] = {}
        self._live = Live(
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            get_renderable=self._render,
        )
        self._live.start()

    def write(self, event: Event) -> None:
        match event:
            case Scalars():
                # a new dictionary, as the drawing thread may be reading the old one
                self._values = {**self._values, **event.values}
                self._step = event.step
            case Message():
                self._print(event.text)
            case Finish():
                self._print(result_line(event))

    def flush(self) -> None:
        self._console.file.flush()

    def close(self) -> None:
        self._live.stop()
        self.flush()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        values = self._values
        families: dict[str, list[str]] = {}
        for tag, described in TAGS.items():
            if tag in values and (described.main or not math.isfinite(values[tag])):
                families.setdefault(tag.partition("/")[0], []).append(tag)
        tables = [_table(family, tags, values) for family, tags in families.items()]
        return Group(self._heading(values), Columns(tables, padding=(0, 3)))

    def _heading(self, values: Mapping[str, float]) -> Table:
        """Step, time, and how far the run has come."""
        cells: list[RenderableType] = [
            Text(f"step {self._step:,}", style="bold"),
            Text(f"{_clock_text(self._clock() - self._start)} elapsed"),
        ]
        progress, left = (values.get(tag, math.nan) for tag in (PROGRESS, MINUTES_LEFT))
        if math.isfinite(progress):
            cells += [ProgressBar(total=1, completed=progress, width=24), Text(f"{progress:.0%}")]
        if math.isfinite(left):
            cells.append(Text(f"{_clock_text(60 * left)} left"))
        heading = Table.grid(padding=(0, 2))
        heading.add_row(*cells)
        return heading


def _table(family: str, tags: list[str], values: Mapping[str, float]) -> Table:
    table = Table(
        title=family,
        title_style="bold",
        title_justify="left",
        box=None,
        show_header=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column()
    table.add_column(justify="right")
    for tag in tags:
        style = "" if math.isfinite(values[tag]) else "bold red"
        name = tag.partition("/")[2].replace("_", " ")
        table.add_row(Text(name, style), Text(readable(tag, values[tag]), style))
    return table


def _clock_text(seconds: float) -> str:
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
