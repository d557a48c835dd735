"""Take the pictures of docs/web.md: the page in Chromium, at its best quality.

    python scripts/shoot_web.py                    # into docs/images/web-*.png

Serves the page with the ladder of this machine (`PYLOS_LADDER`, or the shipped one) and its solved
tables; `web-analysis.png` needs the children's one (`pylos-solve --rules children`). Needs
playwright, Debian's chromium and the 3D board (`make web`).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from pylos_env import Position, Rules
from pylos_env.agents import AlphaBetaAgent
from pylos_env.testing import random_game

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
MOST_BYTES = 300_000
WIDE = {"width": 1200, "height": 750}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 1.5,
    "has_touch": True,
    "is_mobile": True,
}
TAKE_BACK = "WBB.BW..BWWB..W./........./..../._w_0"


def game_link(rules: str, plies: int, seed: int) -> str:
    """A sensible game so far, as a link."""
    agent = AlphaBetaAgent(3, seed)
    position, moves = Position.start(rules), list[str]()
    while len(moves) < plies or position.take_backs_left:
        action = agent.act(position, seed * 1000 + len(moves))
        moves.append(position.move_name(action))
        position = position.play(action)
    return f"#rules={rules}&game={','.join(moves)}"


def lost_game_link() -> str:
    """A whole game with mistakes, as a link."""
    record = random_game(Rules.of("children"), 11)
    positions = list(record.positions())
    moves = [p.move_name(a) for p, a in zip(positions, record.actions, strict=False)]
    winner = "w" if positions[-1].outcome.value.startswith("white") else "b"
    return f"#rules=children&game={','.join(moves)}&won={winner}"


class Studio:
    """Opens pages and stores pictures of them."""

    def __init__(self, browser: Browser, origin: str, folder: Path) -> None:
        self._browser = browser
        self._origin = origin
        self._folder = folder

    def shoot(self, name: str, link: str, pose: Callable[[Page], None], **options: Any) -> None:
        context = self._browser.new_context(
            **{"viewport": WIDE, "reduced_motion": "reduce", "color_scheme": "light", **options}
        )
        context.add_init_script("localStorage['pylos.quality'] = '\"full\"'")
        page = context.new_page()
        page.goto(f"{self._origin}/{link}")
        until(page, "!!globalThis.pylos?.state && !!pylos.board3d")
        pose(page)
        until(page, "pylos.board3d.settled && pylos.board3d.renderer.info.render.frame > 0")
        until(page, "pylos.board3d.frame === null")
        page.wait_for_timeout(1500)
        self._store(name, page.screenshot())
        context.close()

    def _store(self, name: str, png: bytes) -> None:
        """Fewer colours until the file is small enough."""
        image = Image.open(BytesIO(png)).convert("RGB")
        for colors in (256, 192, 128, 96, 64):
            packed = BytesIO()
            # MAXCOVERAGE keeps rare colours, such as the red of a mistake
            few = image.quantize(colors, method=Image.Quantize.MAXCOVERAGE)
            image.quantize(palette=few, dither=Image.Dither.FLOYDSTEINBERG).save(packed, "PNG")
            if packed.tell() < MOST_BYTES:
                break
        (self._folder / f"{name}.png").write_bytes(packed.getvalue())
        print(f"{name}.png: {packed.tell():,} bytes, {colors} colours")


def until(page: Page, expression: str) -> None:
    """Playwright's own way needs eval, which the page forbids."""
    end = time.monotonic() + 120
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise SystemExit(f"never came true: {expression}")
        page.wait_for_timeout(50)


def nothing(page: Page) -> None:
    del page


def take_back(page: Page) -> None:
    page.fill("#typed-move", "1c2")
    page.press("#typed-move", "Enter")
    until(page, "pylos.state.phase === 'take_back' && pylos.board3d.settled")


def new_game(page: Page) -> None:
    page.click("#new-open")


def review(page: Page) -> None:
    page.click("#over-review")
    until(page, "document.querySelectorAll('.graph .mistake').length > 0")
    for _ in range(4):
        page.click("text=Next mistake")
    until(page, "/in \\d+ turn/.test(document.querySelector('.judged').textContent)")
    page.mouse.move(5, 5)


def hover(page: Page) -> None:
    cell = page.evaluate("pylos.state.legal.place[0]")
    point = page.evaluate(f"pylos.board3d.screenPoint({cell})")
    page.mouse.move(point["x"], point["y"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="folder")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("there is no chromium")
    server = subprocess.Popen(
        [sys.executable, "-m", "pylos_web", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        match = re.search(r"http://[\d.]+:\d+", server.stdout.readline())
        if match is None:
            raise SystemExit("the server did not start")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            studio = Studio(browser, match[0], options.out)
            studio.shoot("web-3d", game_link("advanced", 50, 6), nothing)
            studio.shoot("web-take-back", f"#position={TAKE_BACK}", take_back)
            studio.shoot("web-analysis", lost_game_link(), review)
            studio.shoot("web-dialog", "", new_game)
            studio.shoot("web-dark", game_link("advanced", 61, 5), hover, color_scheme="dark")
            studio.shoot("web-phone", game_link("advanced", 16, 2), nothing, **PHONE)
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
