"""The command `pylos-web`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvicorn

from pylos_env.errors import PylosError
from pylos_env.position import Position
from pylos_web.analysis import Analyst
from pylos_web.levels import Levels
from pylos_web.messages import MAX_MESSAGE_BYTES
from pylos_web.opening import ImpatientProtocol
from pylos_web.security import check_origin
from pylos_web.server import BOARD_3D, create_app
from pylos_web.sessions import Limits
from pylos_web.thinking import Guard
from trainers.manifest import MANIFEST_FILE
from trainers.play.game import Game

PORT: Final = 8000
SHUTDOWN_SECONDS: Final = 2
PING_SECONDS: Final = 20.0
BUILD_3D: Final = "npm --prefix pylos_web/board3d ci && npm --prefix pylos_web/board3d run build"


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        levels = Levels.load(_ladder(options.ladder), options.max_simulations)
        app = create_app(levels, _limits(options), tuple(options.allow_origin))
        _one_thread_each()
        warm_up(levels, app.state.analyst)
        listener = _listen(options.host, options.port)
    except (PylosError, OSError, ImportError) as error:
        print(f"pylos-web: {error}", file=sys.stderr)
        return 2
    with listener:
        _tell(listener, options.open)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", **uvicorn_options()))
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it is meant to end
            asyncio.run(server.serve(sockets=[listener]))
    return 0


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(
        sessions=options.max_sessions,
        connections=2 * options.max_sessions,
        idle_seconds=options.idle_seconds,
        keep_seconds=options.keep_seconds,
        messages_per_second=options.message_rate,
        burst=max(1, int(3 * options.message_rate)),
        workers=options.workers,
        simulations=options.max_simulations,
        think_seconds=options.think_seconds,
    )


def _tell(listener: socket.socket, open_page: bool) -> None:
    """Say where the page is, and open it if asked."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if host == '0.0.0.0' else shown}:{port}/"
    print(f"Pylos is served at {address} (Ctrl-C ends it)", flush=True)
    if not BOARD_3D.exists():
        print(f"The board is flat: for the 3D board run  {BUILD_3D}", flush=True)
    if open_page:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def uvicorn_options() -> dict[str, Any]:
    """How the page is served, wherever it is."""
    return {
        "http": ImpatientProtocol,
        "ws": "websockets-sansio",
        "ws_max_size": MAX_MESSAGE_BYTES,
        "ws_per_message_deflate": False,
        "ws_ping_interval": PING_SECONDS,
        "ws_ping_timeout": PING_SECONDS,
        "timeout_graceful_shutdown": SHUTDOWN_SECONDS,
        "server_header": False,
        "access_log": False,
    }


def warm_up(levels: Levels, analyst: Analyst) -> None:
    """Ask everyone once: whatever is compiled or loaded is then ready."""
    for level in levels.all:
        for name in level.rules:
            position = Position.start(name)
            _, thinker = levels.find(level.id, position.rules)
            thinker.think(position, 0, Guard(60.0))
    game = Game.start(Position.start())
    analyst.hint(game, 0, 0, Guard(60.0))
    analyst.analyse(game, 0, 0, Guard(60.0))
    analyst.review(game, 0, Guard(60.0))


def _one_thread_each() -> None:
    """One search is one thread's work: torch must not spread it over all cores."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; connections that take nothing in are given up after a while."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: inherited by what is accepted
            milliseconds = int(2 * PING_SECONDS * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind((host, port))
        listener.listen(512)
    except (OSError, OverflowError) as error:  # the latter: no such port
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise PylosError(f"cannot listen on {host} port {port}: {reason}") from None
    return listener


def _ladder(given: Path | None) -> Path | None:
    if given is not None:
        if not (given / MANIFEST_FILE).exists():
            raise PylosError(f"--ladder {given}: there is no {MANIFEST_FILE}")
        return given
    try:
        from trainers.players import ladder_folder
    except ModuleNotFoundError as error:
        print(f"Trained levels are left out: they need the package {error.name!r}", file=sys.stderr)
        return None
    return ladder_folder()


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not 0 < value < 1e9:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    read.__name__ = kind.__name__
    return read


def _origin(text: str) -> str:
    try:
        return check_origin(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    limits = Limits()
    parser = argparse.ArgumentParser(
        prog="pylos-web", description="Play Pylos in the browser, on this machine."
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    add("--port", type=int, default=PORT, help="0 takes any free one (default: %(default)s)")
    add("--open", action="store_true", help="open the page in the browser")
    add(
        "--allow-origin",
        action="append",
        default=[],
        type=_origin,
        metavar="ORIGIN",
        help="another origin whose pages may connect, such as https://example.org; repeatable",
    )
    add("--ladder", type=Path, help="folder with a manifest.json (default: the shipped ladder)")
    whole, number = _positive(int), _positive(float)
    add("--max-sessions", type=whole, default=limits.sessions, help="games at once (%(default)s)")
    add(
        "--idle-seconds",
        type=number,
        default=limits.idle_seconds,
        help="a connection that says nothing for so long is closed (%(default)s)",
    )
    add(
        "--keep-seconds",
        type=number,
        default=limits.keep_seconds,
        help="how long a game waits for a lost connection (%(default)s)",
    )
    add(
        "--message-rate",
        type=number,
        default=limits.messages_per_second,
        help="messages a second and connection (%(default)s)",
    )
    add(
        "--workers",
        type=whole,
        default=min(limits.workers, os.cpu_count() or 1),
        help="searches at once (%(default)s)",
    )
    add(
        "--max-simulations",
        type=whole,
        default=limits.simulations,
        help="most simulations a move, whatever a level says (%(default)s)",
    )
    add(
        "--think-seconds",
        type=number,
        default=limits.think_seconds,
        help="longest search (%(default)s)",
    )
    return parser
