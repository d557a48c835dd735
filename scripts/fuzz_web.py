"""Sense and nonsense for the web server: nothing may break, and every state must be legal.

    python scripts/fuzz_web.py --json runs/fuzz_web.json       # 100,000 messages on sockets
    python scripts/fuzz_web.py --messages 5000 --reader 0 --seed 3

First the reader of messages alone gets whatever Hypothesis thinks of: it must refuse or read, and
what it has read must be what was written. Then a server is started on the loopback address (and
ended), and several connections send what a walk through the protocol's states suggests: legal
moves, illegal ones, every message type at any moment, fields of wrong types and sizes, broken JSON,
binary frames, resumed and watched games. After every few messages each connection checks the state
that it was told: the position is possible, the list of legal moves is the rules' own, the plies
lead from the start to the board, and the sequence number never goes back. At the end the server
must be up and its error output empty. Ends with status 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from pydantic import ValidationError
from websockets import Origin
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from pylos_env import Position, PylosError, Rules
from pylos_env.geometry import FIRST_RAISE, RAISES, STOP
from pylos_env.testing import random_game
from pylos_web.messages import CLIENT_MESSAGES, ClientMessage

ROOT: Final = Path(__file__).resolve().parent.parent
BATCH: Final = 12
TYPES: Final = (
    *("new_game", "move", "remove", "skip_removal", "undo", "resign", "hint", "analyse"),
    *("review", "record", "pace", "resume", "watch"),
)
BINARY: Final = b"\x00\xff"
TOO_LONG: Final = "x" * 70_000
DUE: Final[dict[str | bytes, int]] = {BINARY: 1003, TOO_LONG: 1009}
"""Messages that end a connection, and the code with which it must end."""
ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, -1, 0, 1, 29, 30, 302, 2**31, 2**63, 10**30, 1.5, -0.0, 1e308),
    *("", "a", "\0", "\ud83d", "é" * 40, "x" * 3000, "../../etc/passwd", "1b2", "stop"),
    *([], [1], [1, 2], [1, 2, 3], [[1]], {}, {"type": "move"}, {"a": {"b": {"c": []}}}),
)


WELL_FORMED: Final[tuple[dict[str, Any], ...]] = (
    {"type": "new_game", "mode": "ai_vs_ai", "checkpoint": "random", "opponent": "rule_based"},
    {"type": "new_game", "human_color": "black", "rules": "mature", "pace_ms": 9},
    {"type": "new_game", "position": "x" * 40, "record": "*"},
    {"type": "move", "kind": "place", "cell": 5, "seq": 3},
    {"type": "move", "kind": "raise", "source": 0, "target": 16},
    {"type": "move", "kind": "text", "text": "1b2"},
    {"type": "remove", "pieces": [1, 2]},
    {"type": "analyse", "ply": 7},
    {"type": "pace", "pace_ms": 10, "paused": True},
    {"type": "resume", "token": "a" * 24},
    {"type": "watch", "token": "a" * 24},
    *({"type": name} for name in ("skip_removal", "undo", "resign", "hint", "review", "record")),
)
FIELDS: Final = sorted({name for message in WELL_FORMED for name in message} | {"extra"})
WORDS: Final = (
    *TYPES,
    *("place", "raise", "text", "human_vs_ai", "ai_vs_ai", "human_vs_human", "white", "black"),
    *("advanced", "children", "standard", "mature", "random", "1b2", "a" * 24),
)


class Wrong(Exception):
    """The server told something that cannot be."""


class Fuzzer:
    """One connection that walks through the protocol."""

    def __init__(self, origin: str, seed: int) -> None:
        self._origin = origin
        self._chance = random.Random(seed)
        self._tokens: list[str] = []
        self._watches: list[str] = []
        self._state: dict[str, Any] | None = None
        self._due: int | None = None
        self.sent = 0
        self.checked = 0
        self.closed = 0
        self.kinds: dict[str, int] = {}

    async def run(self, messages: int) -> None:
        while self.sent < messages:
            try:
                async with connect(
                    self._origin.replace("http", "ws") + "/ws",
                    origin=Origin(self._origin),
                    open_timeout=30,
                ) as socket:
                    self._state = self._due = None
                    await self._talk(socket, messages)
            except ConnectionClosed as closed:
                self.closed += 1
                code = closed.rcvd.code if closed.rcvd else None
                # a client that is still sending its long message may see a reset and no code
                if code != self._due and (code, self._due) != (None, DUE[TOO_LONG]):
                    raise Wrong(
                        f"the connection ended with {closed.rcvd}, not {self._due}"
                    ) from closed

    async def _talk(self, socket: ClientConnection, messages: int) -> None:
        while self.sent < messages:
            for _ in range(BATCH):
                message = self._message()
                await socket.send(message)
                self.sent += 1
                self._due = DUE.get(message)
                while self._due is not None:
                    self._hear(json.loads(await asyncio.wait_for(socket.recv(), 60)))
            mark = f"mark {self.sent}"
            await socket.send(json.dumps({"type": mark}))
            self.sent += 1
            # the answer to what is certainly wrong shows that all before it was read
            while True:
                answer = json.loads(await asyncio.wait_for(socket.recv(), 60))
                self._hear(answer)
                if answer["type"] == "error" and f"'{mark}'" in answer["message"]:
                    break
            if self._state is not None:
                check(self._state)
                self.checked += 1

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        name = f"error {message['code']}" if kind == "error" else kind
        self.kinds[name] = self.kinds.get(name, 0) + 1
        if kind == "error" and message["code"] == "internal":
            raise Wrong(f"the server failed: {message}")
        if kind == "joined":
            self._tokens = [*self._tokens, *([message["token"]] if message["token"] else [])][-4:]
            self._watches = [*self._watches, message["watch"]][-4:]
            self._state = None
        if kind == "state":
            if self._state is not None and message["seq"] < self._state["seq"]:
                raise Wrong(f"the sequence went back from {self._state['seq']}")
            self._state = message

    # What to send

    def _message(self) -> str | bytes:
        chance = self._chance
        roll = chance.random()
        if roll < 0.45:
            return json.dumps(self._sensible())
        if roll < 0.80:
            message = self._sensible()
            name = chance.choice([*message, "seq", "extra"])
            message[name] = chance.choice(ODD)
            return json.dumps(message)
        if roll < 0.90:
            names = ("type", "kind", "cell", "pieces", "seq", "mode", "checkpoint", "token")
            message = {name: chance.choice(ODD) for name in chance.sample(names, 3)}
            return json.dumps({"type": chance.choice(TYPES), **message})
        if roll < 0.995:
            text = json.dumps(self._sensible())
            cut = chance.randrange(len(text))
            return chance.choice([text[:cut], text[cut:], text + text, "[" * 200, "null", "1", ""])
        if roll < 0.998:
            return BINARY
        return TOO_LONG

    def _sensible(self) -> dict[str, Any]:
        """A message that may well be obeyed."""
        chance = self._chance
        if self._state is None or chance.random() < 0.03:
            return self._new_game()
        legal = self._state["legal"]
        moves: list[dict[str, Any]] = [
            *({"type": "move", "kind": "place", "cell": cell} for cell in legal["place"]),
            *(
                {"type": "move", "kind": "raise", "source": source, "target": target}
                for source, target in legal["raise"]
            ),
            *({"type": "remove", "pieces": [cell]} for cell in legal["remove"]),
            *([{"type": "skip_removal"}] if legal["stop"] else []),
        ]
        if moves and chance.random() < 0.75:
            return chance.choice(moves)
        others: list[dict[str, Any]] = [
            {"type": "move", "kind": "place", "cell": chance.randrange(30)},
            {
                "type": "move",
                "kind": "raise",
                "source": chance.randrange(30),
                "target": chance.randrange(30),
            },
            {
                "type": "move",
                "kind": "text",
                "text": chance.choice(["1b2", "2a1x1a1", "stop", "b"]),
            },
            {"type": "remove", "pieces": [chance.randrange(30) for _ in range(2)]},
            {"type": "skip_removal"},
            {"type": "undo"},
            {"type": "undo", "seq": self._state["seq"]},
            {"type": "resign"},
            {"type": "record"},
            {"type": "analyse", "ply": chance.randrange(40)},
            {"type": "pace", "pace_ms": chance.randrange(50), "paused": chance.random() < 0.5},
            {"type": "resume", "token": chance.choice([*self._tokens, "a" * 24])},
            {"type": "watch", "token": chance.choice([*self._watches, "a" * 24])},
        ]
        if chance.random() < 0.05:
            others = [{"type": "hint"}, {"type": "review"}, {"type": "analyse"}]
        return chance.choice(others)

    def _new_game(self) -> dict[str, Any]:
        chance = self._chance
        rules = chance.choice(["advanced", "children", "standard", "mature"])
        message: dict[str, Any] = {
            "type": "new_game",
            "mode": chance.choice(["human_vs_ai", "human_vs_human", "human_vs_human", "ai_vs_ai"]),
            "checkpoint": chance.choice(["random", "rule_based", "alphabeta:2", "none"]),
            "human_color": chance.choice(["white", "black"]),
            "rules": rules,
            "pace_ms": chance.choice([0, 5, 200]),
        }
        game = random_game(Rules.of(rules), chance.randrange(1000))
        if chance.random() < 0.4:
            message["position"] = str(chance.choice(list(game.positions())))
        elif chance.random() < 0.2:
            message["record"] = str(game)
        return message


def check(state: dict[str, Any]) -> None:
    """Everything that a state says must follow from the rules."""
    try:
        board = Position.parse(state["board"], state["rules"])
        position = Position.parse(state["start"], state["rules"])
        for ply in state["plies"]:
            position = position.play(position.legal_actions()[position.legal_moves().index(ply)])
    except (PylosError, ValueError) as error:
        raise Wrong(f"an illegal state: {error}: {state}") from error
    if position != board:
        raise Wrong(f"the plies lead to {position}: {state}")
    if state["reserves"] != dict(zip(("white", "black"), board.reserves, strict=True)):
        raise Wrong(f"wrong reserves: {state}")
    legal = state["legal"]
    told = {
        *legal["place"],
        *(FIRST_RAISE + RAISES.index((source, target)) for source, target in legal["raise"]),
        *legal["remove"],
        *([STOP] if legal["stop"] else []),
    }
    if told and told != set(board.legal_actions()):
        raise Wrong(f"wrong legal moves: {state}")
    mine = state["you"] in ("both", state["turn"])
    if mine and state["phase"] != "over" and not told:
        raise Wrong(f"a person on turn has no moves: {state}")


def json_values() -> st.SearchStrategy[Any]:
    leaves = (
        st.sampled_from(WORDS)
        | st.integers(-2, 310)
        | st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=20)
    )
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
    )


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Messages with other numbers, half of them with some field spoilt."""
    message = dict(draw(st.sampled_from(WELL_FORMED)))
    for name, value in message.items():
        if type(value) is int:
            message[name] = draw(st.integers(-1, 40))
    if draw(st.booleans()):
        message["seq"] = draw(st.integers(-1, 2**31))
    if draw(st.booleans()):
        message[draw(st.sampled_from(FIELDS))] = draw(json_values())
    return message


def texts() -> st.SearchStrategy[str | bytes]:
    """Messages, any JSON, any text, any bytes."""
    wild = json_values().map(json.dumps) | st.text(max_size=60) | st.binary(max_size=60)
    return messages().map(json.dumps) | wild


def fuzz_reader(examples: int, seed: int) -> dict[str, int]:
    """So many texts for the reader of messages; how many it read and refused."""
    counts = {"read": 0, "refused": 0}

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(texts())
    def read(text: str | bytes) -> None:
        try:
            message: ClientMessage = CLIENT_MESSAGES.validate_json(text)
        except ValidationError:
            counts["refused"] += 1
            return
        counts["read"] += 1
        given_fields = json.loads(text)
        told = message.model_dump(mode="json", exclude_unset=True)
        if told != given_fields:
            raise Wrong(f"{text!r} was read as {told}")

    read()
    return counts


def start_server(folder: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pylos_web", "--port", "0", "--message-rate", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYLOS_LADDER": folder, "PYLOS_ORACLE": folder},
    )
    assert process.stdout is not None
    match = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
    if match is None:
        process.kill()
        raise SystemExit("the server did not start")
    return process, match[0]


async def fuzz(origin: str, messages: int, connections: int, seed: int) -> list[Fuzzer]:
    fuzzers = [Fuzzer(origin, seed * 1000 + number) for number in range(connections)]
    await asyncio.gather(*(fuzzer.run(messages // connections) for fuzzer in fuzzers))
    return fuzzers


def summed(counts: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items()))


def fuzz_server(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        process, origin = start_server(folder)
        try:
            begin = time.monotonic()
            fuzzers = asyncio.run(fuzz(origin, options.messages, options.connections, options.seed))
            spent = time.monotonic() - begin
            with urllib.request.urlopen(f"{origin}/health", timeout=10) as answer:
                health = json.load(answer)
        finally:
            process.terminate()
            _, complaints = process.communicate(timeout=10)
    return {
        "messages": sum(fuzzer.sent for fuzzer in fuzzers),
        "states_checked": sum(fuzzer.checked for fuzzer in fuzzers),
        "closed_as_due": sum(fuzzer.closed for fuzzer in fuzzers),
        "answers": summed([fuzzer.kinds for fuzzer in fuzzers]),
        "seconds": round(spent, 1),
        "health": health,
        "complaints": complaints,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000, help="on sockets (100000)")
    parser.add_argument("--connections", type=int, default=8, help="at once (8)")
    parser.add_argument("--reader", type=int, default=20_000, help="for the reader alone (20000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    report: dict[str, Any] = {"seed": options.seed}
    if options.reader:
        report["reader"] = fuzz_reader(options.reader, options.seed)
        print(f"the reader alone: {report['reader']}", flush=True)
    report["server"] = found = fuzz_server(options)
    print(f"{found['messages']:,} messages in {found['seconds']:.0f} s, seed {options.seed}")
    print(f"{found['states_checked']:,} states checked against the rules")
    print(f"{found['closed_as_due']:,} connections closed by the server, as due")
    answers = ", ".join(f"{name} {count:,}" for name, count in found["answers"].items())
    print(f"answers: {answers}")
    print(f"the server afterwards: {found['health']}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(f"numbers: {options.json}")
    if found["complaints"]:
        print(f"the server complained:\n{found['complaints']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
