"""One socket: what it may send and how fast, what it is answered, how it ends.

| close code | why |
|---|---|
| 1003 | a binary message |
| 1008 | too many messages |
| 1009 | a message over 64 KB (the protocol library sees to that) |
| 1011 | an error of the server's own |
| 1012 | the server stops (the protocol library sees to that) |
| 1013 | too many connections or games |
| 4001 | the game was resumed in another connection |
| 4408 | nothing was said for too long |
| 4409 | the client does not read what it is sent |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from pylos_web.analysis import Analyst
from pylos_web.messages import (
    CLIENT_MESSAGES,
    AskAnalysis,
    AskHint,
    AskRecord,
    AskReview,
    ClientMessage,
    Error,
    ErrorCode,
    NewGame,
    Place,
    Raise,
    Record,
    Refusal,
    Remove,
    Resign,
    Resume,
    ServerMessage,
    SetPace,
    SkipRemoval,
    Typed,
    Undo,
    Watch,
    Welcome,
)
from pylos_web.sessions import BACKLOG_SECONDS, MAX_BACKLOG, Limits, Session, Sessions
from pylos_web.thinking import Guard, OutOfTime, Pool

log = logging.getLogger("pylos_web")

UNSUPPORTED: Final = 1003
POLICY: Final = 1008
INTERNAL: Final = 1011
TRY_LATER: Final = 1013
IDLE: Final = 4408
NOT_READING: Final = 4409

MAX_QUEUE: Final = 256
"""Messages that may wait to be sent."""
CLOSE_SECONDS: Final = 2.0
LAST_WORDS_SECONDS: Final = 0.5
"""For what is still to be sent before a connection is closed."""


class Bucket:
    """Lets `burst` through at once and `rate` a second from then on."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left = float(burst)
        self._at = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _End(Exception):
    """The connection is to be closed with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """Talks to one client until either side has had enough."""

    def __init__(
        self,
        socket: WebSocket,
        sessions: Sessions,
        analyst: Analyst,
        pool: Pool,
        limits: Limits,
        welcome: Welcome,
    ) -> None:
        self._socket = socket
        self._sessions = sessions
        self._analyst = analyst
        self._pool = pool
        self._limits = limits
        self._bucket = Bucket(limits.messages_per_second, limits.burst)
        self._queue: asyncio.Queue[ServerMessage] = asyncio.Queue(MAX_QUEUE)
        self._end: asyncio.Future[_End] = asyncio.get_running_loop().create_future()
        self._session: Session | None = None
        self._search: asyncio.Task[None] | None = None
        self._slot = asyncio.Lock()
        self._wanted: dict[str, Callable[[Guard], ServerMessage]] = {}
        self._heard_at = time.monotonic()
        self.send(welcome)

    # As a session sees it

    @property
    def backlog(self) -> int:
        return self._queue.qsize()

    def send(self, message: ServerMessage) -> None:
        """Queue a message; a client that reads nothing is dropped."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.drop(NOT_READING, "too many messages are not read")

    def drop(self, code: int, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(_End(code, reason))

    # The conversation

    async def run(self) -> None:
        """Serve until the end, and leave nothing behind."""
        loop = asyncio.get_running_loop()
        reader, writer, idler, ended = tasks = [
            loop.create_task(part)
            for part in (self._read(), self._write(), self._watch_idle(), self._ended())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()  # first: nothing that it reads may join a game again
            self._stop_search()
            if self._session is not None:
                self._session.leave(self)
            await self._flush(writer)
            for task in tasks:
                task.cancel()
            found = await asyncio.gather(ended, reader, writer, idler, return_exceptions=True)
            await self._close([end for end in found if end is not None])

    async def _flush(self, writer: asyncio.Task[None]) -> None:
        """Let the last words out."""
        empty = asyncio.get_running_loop().create_task(self._queue.join())
        await asyncio.wait(
            [writer, empty], timeout=LAST_WORDS_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        empty.cancel()

    async def _ended(self) -> None:
        raise await self._end

    async def _close(self, ends: list[BaseException]) -> None:
        for end in ends:
            if isinstance(end, asyncio.CancelledError | WebSocketDisconnect):
                continue
            if not isinstance(end, _End):
                log.error("a connection failed", exc_info=end)
                end = _End(INTERNAL, "an error of the server's own")
            # the client may be gone, or may not read: neither is to hold this task up
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._socket.close(end.code, end.reason)
            return

    async def _read(self) -> None:
        while True:
            while self.backlog > MAX_BACKLOG:  # who does not read is not read either
                await asyncio.sleep(BACKLOG_SECONDS)
            event = await self._socket.receive()
            if event["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(event.get("code", 1006))
            self._heard_at = time.monotonic()
            text = event.get("text")
            if text is None:
                raise _End(UNSUPPORTED, "messages are text")
            if not self._bucket.take():
                raise _End(POLICY, "too many messages")
            self._answer(text)

    async def _write(self) -> None:
        while True:
            message = await self._queue.get()
            text = message.model_dump_json(by_alias=True)
            try:
                # not wait_for: in Python 3.11 that can swallow a cancellation
                async with asyncio.timeout(self._limits.send_seconds):
                    await self._socket.send_text(text)
            except TimeoutError:
                raise _End(NOT_READING, "messages are not read") from None
            except RuntimeError:  # closed by the other side between two messages
                raise WebSocketDisconnect(1006) from None
            self._queue.task_done()

    async def _watch_idle(self) -> None:
        while True:
            left = self._heard_at + self._limits.idle_seconds - time.monotonic()
            if left <= 0:
                raise _End(IDLE, "nothing was said for too long")
            await asyncio.sleep(left)

    # Messages

    def _answer(self, text: str) -> None:
        try:
            message = CLIENT_MESSAGES.validate_json(text)
        except ValidationError as error:
            self._complain("bad_message", _explain(error), None)
            return
        try:
            self._obey(message)
        except Refusal as refusal:
            self._complain(refusal.code, refusal.message, message.type)
            if refusal.code == "busy" and isinstance(message, NewGame):
                raise _End(TRY_LATER, "too many games") from None

    def _complain(self, code: ErrorCode, message: str, re: str | None) -> None:
        self.send(Error(code=code, message=message, re=re))

    def _obey(self, message: ClientMessage) -> None:
        match message:
            case NewGame():
                self._new_game(message)
            case Resume():
                session = self._sessions.resume(message.token)
                self._leave(session)
                session.join(self)
            case Watch():
                session = self._sessions.watched(message.token)
                session.check_room(self)
                self._leave(session)
                session.watch(self)
            case AskAnalysis() | AskReview() | AskRecord():
                self._tell_of(self._joined(), message)
            case _:
                self._play(self._own(), message)

    def _new_game(self, message: NewGame) -> None:
        session = self._session
        if session is not None and session.player is self:
            table = self._sessions.table_for(message)
            self._stop_search()
            session.pace_ms = message.pace_ms
            session.replace(table)
            return
        session = self._sessions.open(message)
        self._leave(session)
        session.join(self)

    def _leave(self, session: Session) -> None:
        """Go over to another session, or to another place in the same one."""
        self._stop_search()
        if self._session is session:
            session.stand_up(self)
        elif self._session is not None:
            self._session.leave(self)
        self._session = session

    def _joined(self) -> Session:
        if self._session is None:
            raise Refusal("no_game", "begin with new_game, resume or watch")
        return self._session

    def _own(self) -> Session:
        session = self._joined()
        if session.player is not self:
            raise Refusal("not_allowed", "who looks on cannot play")
        return session

    def _play(
        self,
        session: Session,
        message: Place | Raise | Typed | Remove | SkipRemoval | Undo | Resign | AskHint | SetPace,
    ) -> None:
        table = session.table
        match message:
            case Undo():
                table.check(message.seq)
                session.paused = False
                session.change(table.undo)
            case Resign():
                table.check(message.seq)
                session.change(table.resign)
            case AskHint():
                table.check_person()
                game, seq, key = table.game, table.seq, table.key
                self._think("hint", lambda guard: self._analyst.hint(game, seq, key, guard))
            case SetPace():
                session.pace_ms = message.pace_ms
                session.paused = message.paused and table.mode == "ai_vs_ai"
                session.stop()
                session.go_on()
            case _:
                self._stop_search()
                session.change(lambda: table.move(message))

    def _tell_of(self, session: Session, message: AskAnalysis | AskReview | AskRecord) -> None:
        table = session.table
        game, seq = table.game, table.seq
        match message:
            case AskRecord():
                self.send(Record(seq=seq, text=str(table.record())))
            case AskReview():
                self._think("review", lambda guard: self._analyst.review(game, seq, guard))
            case AskAnalysis():
                ply = game.plies if message.ply is None else message.ply
                if ply > game.plies:
                    raise Refusal("bad_message", f"the game has {game.plies} plies")
                self._think("analyse", lambda guard: self._analyst.analyse(game, seq, ply, guard))

    # One search a connection

    def _think(self, re: str, task: Callable[[Guard], ServerMessage]) -> None:
        """Search and send what is found; a newer question takes the place of one of its kind."""
        self._wanted[re] = task
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(self._find())

    async def _find(self) -> None:
        """Work through what is wanted, one after the other."""
        while self._wanted:
            re = next(iter(self._wanted))
            task = self._wanted.pop(re)
            try:
                self.send(await self._run(task))
            except Refusal as refusal:
                self._complain(refusal.code, refusal.message, re)
            except OutOfTime:
                self._complain("busy", "this took too long: try again shortly", re)
            except Exception:
                log.exception("%s failed", re)
                self._complain("internal", "this could not be worked out", re)
        self._search = None

    async def _run(self, task: Callable[[Guard], ServerMessage]) -> ServerMessage:
        session = self._joined()
        # the AI's search counts as its opponent's one
        async with session.slot if session.player is self else self._slot:
            return await self._pool.run(task)

    def _stop_search(self) -> None:
        self._wanted.clear()
        if self._search is not None:
            self._search.cancel()
            self._search = None


def _explain(error: ValidationError) -> str:
    """Where a message is wrong, without its content: that may be anything."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:80]
    return f"{place}: {first['msg']}"[:200] if place else str(first["msg"])[:200]
