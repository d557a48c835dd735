"""Games that outlive a connection: tokens to come back with, spectators, limits.

A session has at most one player's connection and any number of spectators. Its AIs think only
while somebody is there.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from pylos_env.errors import PylosError
from pylos_env.position import SIDE_NAMES, Position
from pylos_env.record import GameRecord
from pylos_web.levels import Levels, NetworkThinker, Thinker, Thought
from pylos_web.messages import (
    AiMove,
    Error,
    GameOver,
    Joined,
    NewGame,
    Refusal,
    RemovalPhase,
    ServerMessage,
)
from pylos_web.table import Seat, Table
from pylos_web.thinking import Pool
from trainers.play.game import Game

log = logging.getLogger("pylos_web")

TAKEN_OVER: Final = 4001
"""Close code: the game goes on in another connection."""
MAX_SPECTATORS: Final = 32
MAX_BACKLOG: Final = 32
"""Messages that may wait for a client before its AIs wait for it too."""
BACKLOG_SECONDS: Final = 0.02


@dataclass
class Limits:
    """What the server allows."""

    sessions: int = 256
    """Games at once, those without a connection included."""
    connections: int = 512
    idle_seconds: float = 1800.0
    """How long a connection may say nothing."""
    keep_seconds: float = 1800.0
    """How long a game waits for a lost connection."""
    send_seconds: float = 5.0
    """How long one message may take to send."""
    messages_per_second: float = 20.0
    burst: int = 60
    """Messages that may come at once before that rate counts."""
    workers: int = 2
    """Searches at once."""
    waiting: int = 512
    """Searches that may wait."""
    simulations: int = 1024
    think_seconds: float = 3.0


class Peer(Protocol):
    """A connection, as a session sees it."""

    @property
    def backlog(self) -> int:
        """Messages that wait to be sent."""
        ...

    def send(self, message: ServerMessage) -> None: ...
    def drop(self, code: int, reason: str) -> None: ...


class Session:
    """One game and whoever is connected to it. Everything runs on the event loop."""

    def __init__(self, table: Table, pool: Pool) -> None:
        self.token = secrets.token_urlsafe(18)
        self.watch_token = secrets.token_urlsafe(18)
        self.table = table
        self.player: Peer | None = None
        self.spectators: set[Peer] = set()
        self.pace_ms = 0
        self.paused = False
        self.left_at = time.monotonic()
        self.slot = asyncio.Lock()
        """Held by the search under way: one at a time for the player and the AIs."""
        self._pool = pool
        self._driver: asyncio.Task[None] | None = None

    @property
    def attended(self) -> bool:
        return self.player is not None or bool(self.spectators)

    @property
    def thinking(self) -> bool:
        return self._driver is not None and not self._driver.done()

    # Coming and going

    def join(self, peer: Peer) -> None:
        """Seat a player; whoever held the seat before has lost it."""
        if self.player is not None and self.player is not peer:
            self.player.drop(TAKEN_OVER, "resumed in another connection")
        self.player = peer
        peer.send(Joined(token=self.token, watch=self.watch_token))
        self.go_on()

    def check_room(self, peer: Peer) -> None:
        """Refuse one spectator too many."""
        if len(self.spectators - {peer}) >= MAX_SPECTATORS:
            raise Refusal("busy", "too many people look on already")

    def watch(self, peer: Peer) -> None:
        self.spectators.add(peer)
        peer.send(Joined(token=None, watch=self.watch_token))
        self.go_on()

    def stand_up(self, peer: Peer) -> None:
        """Free the place of a connection."""
        if self.player is peer:
            self.player = None
        self.spectators.discard(peer)

    def leave(self, peer: Peer) -> None:
        """A connection is gone; where it was the last, nobody waits for the search."""
        self.stand_up(peer)
        self.left_at = time.monotonic()
        if self.attended:
            self.tell()
        else:
            self.stop()

    # Playing

    def replace(self, table: Table) -> None:
        """Another game at the same table: the tokens stay."""
        self.stop()
        table.seq = self.table.seq + 1
        self.table = table
        self.paused = False
        self.go_on()

    def change(self, act: Callable[[], None]) -> None:
        """Do what a person asked for, and tell everyone. Undo and resign end a search."""
        act()
        self.stop()
        self.go_on()

    def go_on(self) -> None:
        """Tell how things stand, and let an AI think if it is its turn."""
        wanted = self.table.thinker is not None and self.attended and not self.paused
        if wanted and not self.thinking:
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        self.tell()

    def stop(self) -> None:
        """End a search under way."""
        if self._driver is not None:
            self._driver.cancel()
            self._driver = None

    def tell(self) -> None:
        """The state to everyone, and what follows from it."""
        for peer in self._peers():
            self._tell_state(peer)
        table = self.table
        result = table.result
        if result is not None:
            over = GameOver(seq=table.seq, winner=result.winner, reason=result.reason)
            for peer in self._peers():
                peer.send(over)
        elif table.legal.remove and self.player is not None:
            self.player.send(
                RemovalPhase(
                    seq=table.seq,
                    removable=table.legal.remove,
                    left=table.position.take_backs_left,
                    may_stop=table.legal.stop,
                )
            )

    def _tell_state(self, peer: Peer) -> None:
        peer.send(
            self.table.state(
                watching=peer is not self.player,
                thinking=self.thinking,
                pace_ms=self.pace_ms,
                paused=self.paused,
                watchers=len(self.spectators),
            )
        )

    def _peers(self) -> list[Peer]:
        return [*([self.player] if self.player else []), *self.spectators]

    async def _drive(self) -> None:
        """Play for the AIs until a person is on turn or the game is over."""
        try:
            while (thinker := self.table.thinker) is not None:
                position, key = self.table.position, self.table.key
                begin = time.monotonic()
                async with self.slot:
                    thought = await self._ask(thinker, position, key)
                spent = time.monotonic() - begin
                if self.table.mode == "ai_vs_ai":
                    await asyncio.sleep(max(0.0, self.pace_ms / 1000 - spent))
                while any(peer.backlog > MAX_BACKLOG for peer in self._peers()):
                    await asyncio.sleep(BACKLOG_SECONDS)
                self._play(thought, position, spent)
        except Refusal as refusal:
            self._stuck(refusal.message)
        except Exception:
            log.exception("an AI failed in %s", self.table.position)
            self._stuck("the AI could not move: undo, or begin a new game")

    async def _ask(self, thinker: Thinker, position: Position, key: int) -> Thought:
        if isinstance(thinker, NetworkThinker):
            return await self._pool.ask(thinker.crowd, (position, key))
        return await self._pool.run(functools.partial(thinker.think, position, key))

    def _stuck(self, message: str) -> None:
        self.paused = True
        self._driver = None
        for peer in self._peers():
            peer.send(Error(code="internal", message=message))
        self.tell()

    def _play(self, thought: Thought, position: Position, spent: float) -> None:
        move = position.move_name(thought.action)
        self.table.play(thought.action)
        told = AiMove(
            seq=self.table.seq,
            action=thought.action,
            move=move,
            color=SIDE_NAMES[position.side],
            thinking_time_ms=round(spent * 1000, 1),
            simulations=thought.simulations,
            out_of_time=thought.out_of_time,
        )
        for peer in self._peers():
            peer.send(told)
        if self.table.thinker is None:
            self._driver = None  # this task is about to end: nobody thinks any more
        self.tell()


class Sessions:
    """All games of a server."""

    def __init__(self, levels: Levels, pool: Pool, limits: Limits) -> None:
        self.levels = levels
        self.limits = limits
        self._pool = pool
        self._by_token: dict[str, Session] = {}
        self._by_watch: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def table_for(self, message: NewGame) -> Table:
        """The table that a client asks for."""
        game = _game_of(message)
        rules = game.position.rules
        seats = [Seat(), Seat()]
        if message.mode == "human_vs_ai":
            level, thinker = self.levels.find(message.checkpoint, rules)
            seats[1 if message.human_color == "white" else 0] = Seat(level, thinker)
        elif message.mode == "ai_vs_ai":
            white = self.levels.find(message.checkpoint, rules)
            black = self.levels.find(message.opponent, rules) if message.opponent else white
            seats = [Seat(*white), Seat(*black)]
        return Table(message.mode, (seats[0], seats[1]), game, secrets.randbits(62))

    def open(self, message: NewGame) -> Session:
        """A new session; makes room by forgetting games that nobody is connected to."""
        table = self.table_for(message)
        if len(self) >= self.limits.sessions:
            self._forget_oldest()
        session = Session(table, self._pool)
        session.pace_ms = message.pace_ms
        self._by_token[session.token] = session
        self._by_watch[session.watch_token] = session
        return session

    def resume(self, token: str) -> Session:
        return self._found(self._by_token.get(token))

    def watched(self, token: str) -> Session:
        return self._found(self._by_watch.get(token))

    def _found(self, session: Session | None) -> Session:
        if session is None:
            raise Refusal("unknown_game", "this game is not on the server any more")
        return session

    def sweep(self) -> None:
        """Forget games that have waited long enough."""
        before = time.monotonic() - self.limits.keep_seconds
        for session in list(self._by_token.values()):
            if not session.attended and session.left_at < before:
                self._forget(session)

    def close(self) -> None:
        for session in list(self._by_token.values()):
            self._forget(session)

    def _forget_oldest(self) -> None:
        alone = [session for session in self._by_token.values() if not session.attended]
        if not alone:
            raise Refusal("busy", "the server has as many games as it can hold")
        self._forget(min(alone, key=lambda session: session.left_at))

    def _forget(self, session: Session) -> None:
        session.stop()
        del self._by_token[session.token]
        del self._by_watch[session.watch_token]


def _game_of(message: NewGame) -> Game:
    if message.record is not None:
        try:
            game = Game.of_record(GameRecord.parse(message.record))
        except PylosError as error:
            raise Refusal("bad_record", str(error)) from None
        if str(game.position.rules) not in ("advanced", "children", "standard", "mature"):
            raise Refusal("bad_record", f"the rules '{game.position.rules}' are not played here")
        return game
    if message.position is not None:
        try:
            return Game.start(Position.parse(message.position, message.rules))
        except PylosError as error:
            raise Refusal("bad_position", str(error)) from None
    return Game.start(Position.start(message.rules))
