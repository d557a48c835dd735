"""Pictures of a position: as text for a terminal, as an array, in a window.

    ansi(position)         the four levels side by side, whose turn it is, the reserves
    rgb_array(position)    uint8 [size, size, 3]: the pyramid on its board, seen from the front
    Window().show(...)     the same in a window (needs pygame: pip install "pylos-env[human]")

In all of them row 1 is the far one and column a the left one; black's reserve lies behind the
board, white's in front.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from pylos_env.geometry import (
    APEX,
    CELL_INDEX,
    FIRST_RAISE,
    NUM_ACTIONS,
    NUM_CELLS,
    NUM_LEVELS,
    RAISES,
    STOP,
)
from pylos_env.position import BLACK, SIDE_NAMES, WHITE, Outcome, Position
from pylos_env.render.picture import LANDING, LAST, MARKED, REMOVABLE, Drawing, draw

RENDER_MODES: Final = ("human", "rgb_array", "ansi")
MIN_SIZE: Final = 64


def check_mode(render_mode: str | None, window: bool = True) -> str | None:
    """The mode itself, if there is such a one; `window=False` where nothing can be shown."""
    modes = RENDER_MODES if window else RENDER_MODES[1:]
    if render_mode is not None and render_mode not in modes:
        raise ValueError(
            f"unknown render_mode {render_mode!r}: expected None or one of {', '.join(modes)}"
        )
    return render_mode


def show(
    position: Position,
    render_mode: str | None,
    window: Window | None = None,
    last: int | None = None,
) -> npt.NDArray[np.uint8] | str | None:
    """What an environment's `render()` returns in this mode; `human` needs the window."""
    if check_mode(render_mode, window=window is not None) is None:
        gymnasium.logger.warn("render() does nothing: no render_mode was given to the env")
        return None
    if render_mode == "ansi":
        return ansi(position)
    if render_mode == "rgb_array":
        return rgb_array(position, last=last)
    assert window is not None
    window.show(position, last=last)
    return None


class _Hints(NamedTuple):
    """What the side to move can do, as masks of cells."""

    landings: int = 0
    risers: int = 0
    removable: int = 0


def _hints(position: Position) -> _Hints:
    landings = risers = cells = 0
    for action in position.legal_actions():
        if action < FIRST_RAISE:
            cells |= 1 << action
        else:
            source, target = RAISES[action - FIRST_RAISE]
            risers |= 1 << source
            landings |= 1 << target
    if position.take_backs_left:
        return _Hints(removable=cells & ~(1 << STOP))
    return _Hints(cells | landings, risers)


def status(position: Position) -> str:
    """One line: who has won, or who is to do what."""
    if position.outcome is not Outcome.ONGOING:
        return str(position.outcome.value).capitalize()
    side, left = SIDE_NAMES[position.side].capitalize(), position.take_backs_left
    if not left:
        return f"{side} to move"
    return f"{side} may take back {left} sphere{'s' if left > 1 else ''}"


# Text

Paint = Callable[[str, str], str]

_RESET: Final = "\x1b[0m"
_STYLES: Final = {
    "W": "\x1b[1;38;5;94;48;5;230m",
    "B": "\x1b[1;38;5;223;48;5;238m",
    ".": "\x1b[38;5;94;48;5;137m",
    "+": "\x1b[1;38;5;22;48;5;137m",
    "W[": "\x1b[1;38;5;124;48;5;230m",
    "B[": "\x1b[1;38;5;210;48;5;238m",
    "label": "\x1b[38;5;245m",
    "strong": "\x1b[1m",
}
_LEVEL_GAP: Final = "    "


def ansi(position: Position, colour: bool | None = None) -> str:
    """The position as text; in colour if asked for, by default on a terminal without NO_COLOR.

    `+` is a cell where a sphere may come to stand, `W^` one that may rise, `[W]` one that may be
    taken back.
    """
    if colour is None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        colour = sys.stdout is not None and sys.stdout.isatty() and not plain
    hints = _hints(position)

    def paint(text: str, style: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if colour else text

    levels = range(NUM_LEVELS)
    lines = [
        _LEVEL_GAP.join(_level_line(position, hints, level, line, paint) for level in levels)
        for line in range(-2, NUM_LEVELS)
    ]
    return "\n".join([*lines, "", *_footer(position, hints, paint)])


def _level_line(position: Position, hints: _Hints, level: int, line: int, paint: Paint) -> str:
    """One line of a level: its title, its column letters, or a row; blank below the last row."""
    size = NUM_LEVELS - level
    if line == -2:
        return paint(f"  {f'level {level + 1}':<{max(3 * size, 7)}}", "strong")
    padding = " " * max(0, 7 - 3 * size)  # the title is wider than a level of one or two columns
    if line == -1:
        letters = "".join(f" {letter} " for letter in "abcd"[:size])
        return paint(f"  {letters}{padding}", "label")
    if line >= size:
        return " " * (2 + 3 * size) + padding
    cells = (CELL_INDEX[level, line, col] for col in range(size))
    row = "".join(_cell_text(position, hints, cell, paint) for cell in cells)
    return paint(f"{line + 1} ", "label") + row + padding


def _cell_text(position: Position, hints: _Hints, cell: int, paint: Paint) -> str:
    letter = position[cell]
    if hints.removable >> cell & 1:
        return paint(f"[{letter}]", f"{letter}[")
    if hints.landings >> cell & 1:
        return paint(" + ", "+")
    return paint(f" {letter}^" if hints.risers >> cell & 1 else f" {letter} ", letter)


def _footer(position: Position, hints: _Hints, paint: Paint) -> list[str]:
    lines = []
    for seat, (letter, count) in enumerate(zip("WB", position.reserves, strict=True)):
        arrow = ">" if position.outcome is Outcome.ONGOING and seat == position.side else " "
        row = paint(letter * count, letter) + "." * (position.rules.spheres - count)
        lines.append(f"{arrow} {SIDE_NAMES[seat]}  {row}  {count:2} in reserve")
    legend = [
        text
        for mask, text in (
            (hints.landings, "+ free to play"),
            (hints.risers, "^ may rise"),
            (hints.removable, "[ ] may be taken back"),
        )
        if mask
    ]
    last = paint(status(position), "strong")
    return [*lines, "", last + ("   " + paint("   ".join(legend), "label") if legend else "")]


# The picture


def rgb_array(
    position: Position,
    size: int = 640,
    legal: bool = True,
    last: int | None = None,
    marks: Iterable[int] = (),
) -> npt.NDArray[np.uint8]:
    """The picture, uint8 [size, size, 3].

    The tray of the side to move is framed in gold; when the game is over, that of the winner, with
    a star. `legal`: green rings where a sphere may come to stand, chevrons on spheres that may
    rise, red rings on spheres that may be taken back. `last`: the action that led here, in amber.
    `marks`: further cells to ring, in blue.
    """
    size = operator.index(size)
    if size < MIN_SIZE:
        raise ValueError(f"size must be at least {MIN_SIZE} pixels, got {size}")
    hints = _hints(position) if legal else _Hints()
    rings = dict.fromkeys(_cells(hints.landings), LANDING)
    rings |= dict.fromkeys(_cells(hints.removable), REMOVABLE)
    rings |= dict.fromkeys(_last_cells(position, last), LAST)
    for cell in marks:
        if not 0 <= cell < NUM_CELLS:
            raise ValueError(f"marks must be cells 0-{NUM_CELLS - 1}, got {cell}")
        rings[cell] = MARKED
    outcome = position.outcome
    leader = position.side if outcome is Outcome.ONGOING else int(outcome is Outcome.BLACK_WINS)
    spheres = {
        cell: WHITE if position.white >> cell & 1 else BLACK
        for cell in _cells(position.white | position.black)
    }
    drawing = Drawing(
        spheres=spheres,
        reserves=position.reserves,
        leader=leader,
        won=outcome is not Outcome.ONGOING,
        take_backs=position.take_backs_left,
        rings=rings,
        chevrons=frozenset(_cells(hints.risers)),
    )
    return draw(drawing, size)


def _cells(mask: int) -> list[int]:
    return [cell for cell in range(NUM_CELLS) if mask >> cell & 1]


def _last_cells(position: Position, last: int | None) -> tuple[int, ...]:
    """The cells that the action before this position concerned."""
    if last is None:
        return ()
    if not 0 <= last < NUM_ACTIONS:
        raise ValueError(f"last must be an action 0-{NUM_ACTIONS - 1}, got {last}")
    if last >= FIRST_RAISE:
        return RAISES[last - FIRST_RAISE]
    stopped = last == STOP and position[APEX] == "."
    return () if stopped else (last,)


# The window


class Window:
    """A window that opens at the first `show`. Closed by its user, it stays closed, silently."""

    def __init__(self, size: int = 640, fps: float = 4) -> None:
        self.size = size
        self.fps = fps
        self._pygame: Any = None
        self._screen: Any = None
        self._clock: Any = None
        self._dismissed = False

    @property
    def is_open(self) -> bool:
        return self._screen is not None

    def show(
        self,
        position: Position,
        legal: bool = True,
        last: int | None = None,
        marks: Iterable[int] = (),
    ) -> None:
        """Draw the position, then wait as `fps` demands."""
        if self._dismissed:
            return
        # pygame has one display for the whole process: another window's end may have closed it
        if self._screen is None or not self._pygame.display.get_init():
            self._open()
        pygame = self._pygame
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.close()
                self._dismissed = True
                return
        picture = rgb_array(position, self.size, legal, last, marks)
        image = pygame.image.frombuffer(picture.tobytes(), (self.size, self.size), "RGB")
        self._screen.blit(image, (0, 0))
        pygame.display.set_caption(f"Pylos: {status(position)}")
        pygame.display.flip()
        self._clock.tick(self.fps)

    def close(self) -> None:
        """Close the window, if it is open; the next `show` opens it again."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None

    def _open(self) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as error:
            raise gymnasium.error.DependencyNotInstalled(
                'the window needs pygame: pip install "pylos-env[human]"'
            ) from error
        self._pygame = pygame
        # only the display: a sound device, which pygame.init() wants too, may be missing
        pygame.display.init()
        self._screen = pygame.display.set_mode((self.size, self.size))
        self._clock = pygame.time.Clock()
