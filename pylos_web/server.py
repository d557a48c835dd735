"""The application: the page, the list of levels, and the socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, WebSocket
from fastapi.responses import FileResponse, JSONResponse
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

import pylos_env
from pylos_web.analysis import Analyst
from pylos_web.connection import TRY_LATER, Connection
from pylos_web.levels import Levels
from pylos_web.messages import PROTOCOL, Welcome
from pylos_web.security import Gate
from pylos_web.sessions import Limits, Sessions
from pylos_web.thinking import Pool
from trainers.play.advice import Adviser

log = logging.getLogger("pylos_web")

STATIC: Final = Path(__file__).resolve().parent / "static"
BOARD_3D: Final = STATIC / "dist" / "board3d.js"
SWEEP_SECONDS: Final = 30.0


def create_app(
    levels: Levels,
    limits: Limits | None = None,
    allowed_origins: tuple[str, ...] = (),
    adviser: Adviser | None = None,
) -> FastAPI:
    """The application for these levels. `adviser` stands in for the solved tables in tests."""
    limits = limits or Limits()
    pool = Pool(limits.workers, limits.waiting, limits.think_seconds)
    sessions = Sessions(levels, pool, limits)
    analyst = Analyst(levels, adviser)
    welcome = Welcome(
        server=secrets.token_hex(8),
        version=pylos_env.__version__,
        idle_seconds=int(limits.idle_seconds),
    )
    connections: set[Connection] = set()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(_sweep(sessions))
        yield
        sweeper.cancel()
        sessions.close()
        pool.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Gate, allowed_origins=allowed_origins)
    app.add_exception_handler(Exception, _hide)
    app.state.analyst = analyst
    app.state.sessions = sessions
    app.state.pool = pool
    app.state.connections = connections

    @app.get("/checkpoints")
    async def checkpoints() -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "checkpoints": [dataclasses.asdict(level) for level in levels.all],
            "board3d": BOARD_3D.exists(),
        }

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "sessions": len(sessions), "connections": len(connections)}

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.websocket("/ws")
    async def play(socket: WebSocket) -> None:
        await socket.accept()
        if len(connections) >= limits.connections:
            await socket.close(TRY_LATER, "too many connections")
            return
        connection = Connection(socket, sessions, analyst, pool, limits, welcome)
        connections.add(connection)
        try:
            await connection.run()
        finally:
            connections.discard(connection)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


async def _sweep(sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        sessions.sweep()


async def _hide(request: Request, error: Exception) -> JSONResponse:
    log.error("%s failed", request.url.path, exc_info=error)
    return JSONResponse({"error": "internal"}, status_code=500)
