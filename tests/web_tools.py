"""A web server in this process, clients for it, and stand-ins for trained levels and tables."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from websockets import Origin
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from pylos_env import Position, Rules, agents
from pylos_env.oracle import Oracle, Verdict
from pylos_env.position import Outcome
from pylos_web.cli import uvicorn_options, warm_up
from pylos_web.levels import FALLBACKS, AgentThinker, Level, Levels, Thinker, Thought
from pylos_web.server import create_app
from pylos_web.sessions import Limits
from pylos_web.thinking import Guard
from trainers.play.advice import Adviser

RULES = ("advanced", "children", "standard", "mature")
TIMEOUT = 20.0


class Client:
    """A socket that speaks the protocol."""

    def __init__(self, socket: ClientConnection, welcome: bool = True) -> None:
        self.socket = socket
        self.welcome = self.get("welcome") if welcome else {}

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def next(self, timeout: float = TIMEOUT) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout=timeout))
        return message

    def get(self, kind: str, timeout: float = TIMEOUT) -> dict[str, Any]:
        """The next message of this type; what comes before it is passed over."""
        end = time.monotonic() + timeout
        while True:
            message = self.next(max(0.01, end - time.monotonic()))
            if message["type"] == kind:
                return message

    def state(self, **wanted: Any) -> dict[str, Any]:
        """The next state with these fields."""
        while True:
            state = self.get("state")
            if all(state[name] == value for name, value in wanted.items()):
                return state

    def new_game(self, **options: Any) -> dict[str, Any]:
        """Begin a game; the state in which a person is on turn, or which is over."""
        self.send(type="new_game", **options)
        return self.state(thinking=False)

    def move(self, text: str, thinking: bool = False) -> dict[str, Any]:
        self.send(type="move", kind="text", text=text)
        return self.state(thinking=thinking)

    def refusal(self, **message: Any) -> str:
        """The code of the error that a message meets."""
        self.send(**message)
        code: str = self.get("error")["code"]
        return code

    def close_code(self, timeout: float = TIMEOUT) -> int:
        """The code with which the server closes, after whatever it still says."""
        try:
            while True:
                self.socket.recv(timeout=timeout)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006


class Server:
    """The application on a free port of this machine, in a thread."""

    def __init__(
        self,
        levels: Levels | None = None,
        limits: Limits | None = None,
        adviser: Adviser | None = None,
        allowed_origins: tuple[str, ...] = (),
    ) -> None:
        levels = levels or fallback_levels()
        self.app = create_app(
            levels,
            limits or Limits(messages_per_second=10_000, burst=10_000),
            allowed_origins,
            adviser or NoTables(),
        )
        config = uvicorn.Config(self.app, port=0, log_level="critical", **uvicorn_options())
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        # kernels may have to be compiled: that is not what the tests wait for
        warm_up(fallback_levels(), self.app.state.analyst)

    def __enter__(self) -> Server:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()

    @property
    def sessions(self) -> int:
        return len(self.app.state.sessions)

    @contextlib.contextmanager
    def client(self, origin: str | None = "own", **options: Any) -> Iterator[Client]:
        own = Origin(self.origin) if origin == "own" else None if origin is None else Origin(origin)
        address = f"ws://127.0.0.1:{self.port}/ws"
        with connect(address, origin=own, open_timeout=TIMEOUT, **options) as socket:
            yield Client(socket)


def until(condition: Any, seconds: float = TIMEOUT) -> None:
    """Wait for something that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# Who is played against


class NoTables(Adviser):
    """What a machine has solved must not decide what these tests see."""

    def oracle(self, rules: Rules) -> Oracle | None:
        return None


def fallback_levels(*more: tuple[Level, Thinker]) -> Levels:
    entries: list[tuple[Level, Thinker]] = [
        (Level(name, label, "agent", text, RULES), AgentThinker(name))
        for name, label, text in FALLBACKS
    ]
    return Levels([*entries, *more])


def level(name: str, thinker: Thinker) -> tuple[Level, Thinker]:
    return Level(name, name.title(), "agent", "For a test.", RULES), thinker


class Slow:
    """Thinks until it is stopped, and tells of it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def think(self, position: Position, key: int, guard: Guard) -> Thought:
        self.begun.set()
        try:
            while True:
                guard.check()
                time.sleep(0.005)
        finally:
            self.ended.set()


class Failing:
    """Has a secret in its exception."""

    def think(self, position: Position, key: int, guard: Guard) -> Thought:
        raise RuntimeError("/secret/path of the server")


class Plays:
    """Plays given moves, one after the other."""

    def __init__(self, *moves: str) -> None:
        self._moves = list(moves)

    def think(self, position: Position, key: int, guard: Guard) -> Thought:
        move = self._moves.pop(0)
        return Thought(position.legal_actions()[position.legal_moves().index(move)])


# What stands in for a solved table


class SmallOracle:
    """Exact values by trying everything: the rules 'children' know no cycles."""

    def __init__(self) -> None:
        self.rules = Rules.of("children")
        self._known: dict[int, tuple[int, int]] = {}

    def _solve(self, position: Position) -> tuple[int, int]:
        if position.packed not in self._known:
            best = (-1, 0)
            found = [self._solve(position.play(action)) for action in position.legal_actions()]
            wins = [distance for value, distance in found if value < 0]
            if position.outcome is Outcome.ONGOING:
                longest = max((distance for _, distance in found), default=0)
                best = (1, min(wins) + 1) if wins else (-1, longest + 1)
            self._known[position.packed] = best
        return self._known[position.packed]

    def value(self, position: Position) -> int:
        return self._solve(position)[0]

    def distance(self, position: Position) -> int | None:
        return self._solve(position)[1]

    def best_actions(self, position: Position) -> list[int]:
        legal = position.legal_actions()
        found = [self._solve(position.play(action)) for action in legal]
        best = max((-value, value * distance) for value, distance in found)
        return [
            action
            for action, (value, distance) in zip(legal, found, strict=True)
            if (-value, value * distance) == best
        ]

    def classify(self, position: Position) -> dict[int, Verdict]:
        before = self.value(position)
        verdicts = {
            (1, 1): Verdict.KEEPS_WIN,
            (1, -1): Verdict.WIN_TO_LOSS,
            (-1, -1): Verdict.LOST,
        }
        return {
            action: verdicts[before, -self.value(position.play(action))]
            for action in position.legal_actions()
        }

    def values(self, packed: Any) -> Any:
        return np.array([self.value(Position(int(code), self.rules)) for code in packed])

    def distances(self, packed: Any) -> Any:
        return np.array([self.distance(Position(int(code), self.rules)) for code in packed])


class SmallTables(Adviser):
    """Knows the children's rules."""

    def __init__(self) -> None:
        super().__init__()
        self.small = SmallOracle()

    def oracle(self, rules: Rules) -> Oracle | None:
        return self.small if rules == self.small.rules else None  # type: ignore[return-value]


# A ladder of networks that know nothing


def write_ladder(folder: Path, simulations: tuple[int, ...] = (0, 16), width: int = 32) -> Path:
    """A run folder whose manifest lists untrained networks, one for each number of simulations."""
    import torch

    from trainers.checkpoints import CheckpointInfo, RunFolder
    from trainers.network import NetworkConfig, build

    rules = Rules.of("advanced")
    config = NetworkConfig(width=width, blocks=1)
    labels = ("Beginner", "Novice", "Intermediate", "Advanced", "Expert")
    with RunFolder(folder, keep=len(simulations)) as run:
        for step, count in enumerate(simulations, start=1):
            torch.manual_seed(step)
            info = CheckpointInfo(asdict(config), rules, config.observation)
            run.save(step, build(config, rules).state_dict(), info, {})
            run.enter(
                step,
                labels[step - 1],
                0.5 + step / 10,
                rating=1000.0 + 100 * step,
                rating_low=950.0 + 100 * step,
                rating_high=1050.0 + 100 * step,
                simulations=count,
            )
    return folder


def play_out(client: Client, state: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Play a person's side at random until the game is over."""
    player = agents.make("random", seed)
    while state["phase"] != "over":
        position = Position.parse(state["board"], state["rules"])
        client.send(
            type="move",
            kind="text",
            text=position.move_name(player.act(position)),
            seq=state["seq"],
        )
        state = client.state(thinking=False)
    return state
