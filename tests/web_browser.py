"""A browser for the tests: Debian's Chromium by Playwright, with WebGL drawn by the processor."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pylos_env.notation import CELL_NAMES

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
CHROMIUM = (
    os.environ.get("PYLOS_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
SECONDS = 90.0  # a busy machine without a graphics card draws slowly


@contextmanager
def browser() -> Iterator[Any]:
    """The browser; skips, and says what is left, where there is none."""
    sync_api = pytest.importorskip(
        "playwright.sync_api",
        reason="no playwright: the page is not tried, the server is (test_web_socket)",
    )
    if CHROMIUM is None:
        pytest.skip("there is no chromium: the page is not tried, the server is (test_web_socket)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


class Page:
    """One page, what went wrong in it, and the game that it shows."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.set_default_timeout(1000 * SECONDS)
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # a socket that cannot be opened while the server is away is what the page is to survive
        if message.type == "error" and "WebSocket" not in message.text:
            self.faults.append(message.text)

    def open(self, address: str, view: str = "3d") -> None:
        self.page.goto(address)
        self.until("!!globalThis.pylos?.state" + (" && !!pylos.board3d" if view == "3d" else ""))

    def ask(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def until(self, expression: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression holds; Playwright's own way needs eval, which is forbidden."""
        end = time.monotonic() + seconds
        while not (value := self.ask(expression)):
            assert time.monotonic() < end, f"never came true: {expression}\n{self.faults}"
            self.page.wait_for_timeout(25)
        return value

    # The game

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("pylos.state")
        return found

    def my_turn(self) -> dict[str, Any]:
        """Wait until a person can do something, or the game is over."""
        self.until("!pylos.state.thinking || pylos.state.phase === 'over'")
        return self.state

    def after(self, seq: int) -> dict[str, Any]:
        self.until(f"pylos.state.seq > {seq}")
        return self.my_turn()

    # In 3D

    def look_from_above(self) -> None:
        """Turn the board by dragging, until nothing hides anything."""
        box = self.page.locator("#board3d canvas").bounding_box()
        x, y = box["x"] + 30, box["y"] + 40
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x, y + box["height"] * 0.8, steps=4)
        self.page.mouse.up()
        self.until("pylos.board3d.controls.getPolarAngle() < 0.1")

    def click_cell(self, cell: int) -> None:
        # the board may still be drawing what the page knows already
        self.until(
            f"(({{x, y}}) => pylos.board3d.pick({{clientX: x, clientY: y}}) === {cell})"
            f"(pylos.board3d.screenPoint({cell}))"
        )
        point = self.resting_point(cell)
        self.page.mouse.click(point["x"], point["y"])

    def resting_point(self, cell: int) -> dict[str, float]:
        """Where a cell is drawn once the board no longer turns: a click would miss it before."""
        point = self.ask(f"pylos.board3d.screenPoint({cell})")
        while True:
            self.page.wait_for_timeout(50)
            before, point = point, self.ask(f"pylos.board3d.screenPoint({cell})")
            if abs(point["x"] - before["x"]) + abs(point["y"] - before["y"]) < 0.5:
                return dict(point)

    # By keyboard, in 2D

    def go(self, cell: int) -> None:
        """Walk to a cell by keys, from wherever the focus is."""
        for _ in range(20):
            here = self.ask("Number(document.activeElement.dataset.cell)")
            if here == cell:
                return
            self.page.keyboard.press(_step(here, cell))
        raise AssertionError(f"{CELL_NAMES[cell]} was not reached")

    def press_cell(self, cell: int) -> None:
        self.go(cell)
        self.page.keyboard.press("Enter")

    def snap(self, name: str) -> None:
        """Keep a picture where `PYLOS_SCREENSHOTS` says."""
        folder = os.environ.get("PYLOS_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{folder}/{name}.png")


def _step(here: int, there: int) -> str:
    """The next key on the way: levels first, then rows, then columns."""
    (level, column, row), (level2, column2, row2) = (
        (int(name[0]), "abcd".index(name[1]), int(name[2]))
        for name in (CELL_NAMES[here], CELL_NAMES[there])
    )
    if level != level2:
        return "PageUp" if level2 > level else "PageDown"
    if row != row2:
        return "ArrowDown" if row2 > row else "ArrowUp"
    return "ArrowRight" if column2 > column else "ArrowLeft"


class Relay:
    """Stands between browser and server, and can cut every connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def cut(self) -> None:
        with self._lock:
            for end in self._open:
                with end:
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        continue
            self._open.clear()

    def send_to(self, port: int) -> None:
        """Lead to another server from now on."""
        self._target = port

    def close(self) -> None:
        self._listener.close()
        self.cut()
