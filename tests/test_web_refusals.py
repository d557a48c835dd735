"""What the server does not put up with, each tried over a real socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets import Origin
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from pylos_web.cli import main
from pylos_web.connection import IDLE, NOT_READING, Connection
from pylos_web.opening import ImpatientProtocol
from pylos_web.security import Gate
from pylos_web.sessions import Limits
from tests.web_tools import Client, Server, Slow, fallback_levels, level, until

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(allowed_origins=("https://pylos.example",)) as running:
        yield running


# Who may connect


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        "https://127.0.0.1",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://127.0.0.1.evil.example",
        "https://pylos.example.evil",
        "http://pylos.example",
        "file://",
    ],
)
def test_foreign_origins_are_refused_before_accept(server: Server, origin: str | None) -> None:
    with pytest.raises(InvalidStatus) as error, server.client(origin=origin):
        pass
    assert error.value.response.status_code == 403
    assert server.sessions == 0


def test_allowed_origins_may_connect(server: Server) -> None:
    with server.client(origin="https://pylos.example") as client:
        assert client.welcome["protocol"] == 1


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "a b", "[::1"])
def test_foreign_hosts_get_nothing(server: Server, host: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert raw.makefile("rb").readline().split()[1] == b"400"
    headers = {"Host": f"evil.example:{server.port}"}
    with (
        pytest.raises(InvalidStatus),
        server.client(origin=f"http://evil.example:{server.port}", additional_headers=headers),
    ):
        pass


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "[::1]", "192.168.0.7", "pylos.example"]
)
def test_own_hosts_are_served(server: Server, host: str) -> None:
    assert httpx.get(f"{server.origin}/health", headers={"Host": host}).status_code == 200


def test_an_origin_that_is_none_is_no_option() -> None:
    with pytest.raises(ValueError, match="is no origin"):
        Gate(lambda *_: None, ("pylos.example",))  # type: ignore[arg-type]


# What a page may load


@pytest.mark.parametrize("path", ["/", "/checkpoints", "/static/main.js", "/none", "/static/none"])
def test_every_answer_carries_the_policy(server: Server, path: str) -> None:
    answer = httpx.get(server.origin + path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "server" not in answer.headers
    assert answer.status_code == (404 if "none" in path else 200)


def test_the_page_loads_nothing_from_elsewhere() -> None:
    static = ROOT / "pylos_web" / "static"
    files = [path for path in static.iterdir() if path.is_file()]
    assert {"index.html", "main.js", "style.css"} <= {path.name for path in files}
    for path in files:
        text = path.read_text(encoding="utf-8")
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)) - {"http://www.w3.org"}
        assert not found, f"{path.name} names {found}"
        assert "innerHTML" not in text
        if path.suffix == ".html":
            assert not re.search(r"<script>|\son\w+=|style=", text)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/docs",
        "/openapi.json",
    ],
)
def test_nothing_else_is_served(server: Server, path: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = raw.makefile("rb").read()
    assert answer.split()[1] == b"404"
    assert b"import" not in answer


# What a client may send


def test_messages_over_64_kb_close_with_1009(server: Server) -> None:
    with server.client() as client:
        client.socket.send(json.dumps({"type": "new_game", "record": "x" * 66_000}))
        assert client.close_code() == 1009
    with server.client() as client:
        client.socket.send(["x" * 30_000] * 3)
        assert client.close_code() == 1009


def test_binary_messages_close_with_1003(server: Server) -> None:
    with server.client() as client:
        client.socket.send(b'{"type": "new_game"}')
        assert client.close_code() == 1003


def test_an_error_of_its_own_closes_with_1011_and_tells_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/secret/path of the server")

    monkeypatch.setattr(Connection, "_obey", fail)
    with server.client() as client:
        client.send(type="hint")
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011
    assert "secret" not in closed.value.rcvd.reason
    assert "secret" in caplog.text


def test_floods_close_with_1008() -> None:
    with (
        Server(limits=Limits(messages_per_second=5, burst=10)) as server,
        server.client() as client,
    ):
        code = None
        try:
            for _ in range(50):
                client.send(type="record")
                time.sleep(0.001)
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else None
        assert (code or client.close_code()) == 1008
        with server.client() as polite:
            for _ in range(10):
                polite.send(type="record")
            assert polite.get("error")["code"] == "no_game"


def test_idle_sockets_are_closed_and_the_game_is_kept() -> None:
    with Server(limits=Limits(idle_seconds=2.0)) as server:
        with server.client() as client:
            begin = time.monotonic()
            client.send(type="new_game")
            token = client.get("joined")["token"]
            assert client.close_code() == IDLE
            assert time.monotonic() - begin > 1.9, "not before it was idle for so long"
        with server.client() as client:
            client.send(type="resume", token=token)
            assert client.state()["plies"] == []


def test_too_many_games_close_with_1013() -> None:
    with (
        Server(limits=Limits(sessions=2)) as server,
        server.client() as first,
        server.client() as second,
        server.client() as third,
    ):
        first.new_game()
        second.new_game()
        third.send(type="new_game")
        assert third.get("error")["code"] == "busy"
        assert third.close_code() == 1013
        assert first.new_game()["plies"] == []


def test_a_forgotten_game_makes_room_for_a_new_one() -> None:
    with Server(limits=Limits(sessions=1)) as server:
        with server.client() as client:
            client.new_game()
        until(lambda: httpx.get(f"{server.origin}/health").json()["connections"] == 0)
        with server.client() as client:
            assert client.new_game()["plies"] == []
        assert server.sessions == 1


def test_games_are_forgotten_in_time() -> None:
    with Server(limits=Limits(keep_seconds=0.05)) as server:
        with server.client() as client:
            client.new_game()
            server.app.state.sessions.sweep()
            assert server.sessions == 1
        until(lambda: not server.app.state.connections)
        time.sleep(0.1)
        server.app.state.sessions.sweep()
        assert server.sessions == 0


def test_too_many_connections_close_with_1013() -> None:
    with Server(limits=Limits(connections=1)) as server, server.client():
        with pytest.raises(ConnectionClosed) as error, server.client():
            pass
        assert error.value.rcvd is not None
        assert error.value.rcvd.code == 1013


def test_a_client_that_does_not_read_is_dropped() -> None:
    limits = Limits(messages_per_second=1e6, burst=10**6, send_seconds=0.3)
    with Server(limits=limits) as server:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.port))
        raw.sendall(
            (
                f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: {server.origin}\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            ).encode()
        )
        until(lambda: len(server.app.state.connections) == 1)
        new_game = b'{"type":"new_game","mode":"human_vs_human"}'
        frame = bytes([0x81, 0x80 | len(new_game), 0, 0, 0, 0]) + new_game
        raw.settimeout(10)
        with raw:
            deadline = time.monotonic() + 15
            while server.app.state.connections and time.monotonic() < deadline:
                try:
                    raw.sendall(frame * 50)
                except OSError:
                    break
                time.sleep(0.01)
            until(lambda: not server.app.state.connections)
    assert NOT_READING == 4409


def test_a_connection_that_asks_for_nothing_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImpatientProtocol, "seconds", 0.2)
    address = ("127.0.0.1", server.port)
    with (
        server.client() as client,
        socket.create_connection(address, timeout=5) as silent,
        socket.create_connection(address, timeout=5) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
        client.send(type="new_game")
        assert client.state()["plies"] == []


# The process


def start(*arguments: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pylos_web", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
    assert match, line
    return process, match[0].rstrip("/")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_games_open_and_leaves_nothing(number: int, tmp_path: Path) -> None:
    process, origin = start(PYLOS_ORACLE=str(tmp_path), PYLOS_LADDER=str(tmp_path))
    try:
        address = origin.replace("http", "ws") + "/ws"
        with connect(address, origin=Origin(origin)) as connected:
            connected.send(
                '{"type":"new_game","mode":"ai_vs_ai","checkpoint":"alphabeta:4","pace_ms":0}'
            )
            connected.recv(timeout=10)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            orphans = children.read_text().split() if children.exists() else []
            process.send_signal(number)
            # how long it takes is measured by scripts/load_web.py
            assert process.wait(timeout=60) == (0 if number == signal.SIGINT else -number)
            assert orphans == []
            assert Client(connected, welcome=False).close_code() == 1012
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_it_listens_on_this_machine_only_unless_told_otherwise() -> None:
    from pylos_web.cli import _parser

    assert _parser().parse_args([]).host == "127.0.0.1"


def test_bad_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path / "tables"))
    assert main(["--ladder", str(tmp_path)]) == 2
    assert "there is no manifest.json" in capsys.readouterr().err
    for options in (["--allow-origin", "example.org"], ["--max-sessions", "0"], ["--port", "x"]):
        with pytest.raises(SystemExit):
            main(options)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen" in capsys.readouterr().err
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "advanced-4.table").write_bytes(b"no table")
    assert main(["--port", "0"]) == 2
    assert "is no oracle table" in capsys.readouterr().err


def test_stopping_the_server_stops_searches() -> None:
    slow = Slow()
    with Server(fallback_levels(level("slow", slow)), Limits(think_seconds=60)) as server:
        connection = server.client()
        client = connection.__enter__()
        client.send(type="new_game", checkpoint="slow", human_color="black")
        assert slow.begun.wait(5)
    assert slow.ended.wait(5)
    assert client.close_code() == 1012
    connection.__exit__(None, None, None)


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_does_not_exist_is_refused(port: str) -> None:
    command = [sys.executable, "-m", "pylos_web", "--port", port]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2
    assert "0-65535" in result.stderr
    assert "Traceback" not in result.stderr
