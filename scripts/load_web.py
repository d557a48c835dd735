"""Many open games against one web server on this machine: how fast moves are answered.

    python scripts/load_web.py                  # 200 games for a minute, then games for the memory
    python scripts/load_web.py --seconds 10 --games 50 --memory-games 0

Starts its own server on the loopback address and ends it. The games are played against a network
of the usual size with 64 simulations a move, so searches run all the time. Reported are

- one game alone: what the AI needs for an action, and until it has arrived;
- the answer to a human move: from sending it to the state in which it stands;
- the AI's answer: what the server needed to think, and until its move arrived;
- the server's memory over many whole games, one after the other on each connection;
- how long the server takes to end on SIGTERM with all games open, and what is left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from websockets import Origin
from websockets.asyncio.client import ClientConnection, connect

from pylos_env import Position
from pylos_env.agents import RandomAgent

ROOT = Path(__file__).resolve().parent.parent
SIMULATIONS = 64


@dataclass
class Times:
    """Milliseconds."""

    human: list[float] = field(default_factory=list)
    machine: list[float] = field(default_factory=list)
    thinking: list[float] = field(default_factory=list)
    games: int = 0


def write_ladder(folder: Path) -> None:
    """An untrained network of the usual size: it searches as long as a trained one."""
    from dataclasses import asdict

    import torch

    from pylos_env import Rules
    from trainers.checkpoints import CheckpointInfo, RunFolder
    from trainers.network import NetworkConfig, build

    torch.manual_seed(0)
    rules, config = Rules.of("advanced"), NetworkConfig()
    with RunFolder(folder) as run:
        info = CheckpointInfo(asdict(config), rules, config.observation)
        run.save(1, build(config, rules).state_dict(), info, {})
        run.enter(1, "Expert", 0.5, simulations=SIMULATIONS)


def start_server(ladder: Path | None, sessions: int) -> tuple[subprocess.Popen[str], str]:
    options = ["--max-sessions", str(sessions), "--message-rate", "100000"]
    if ladder is not None:
        options += ["--ladder", str(ladder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "pylos_web", "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    match = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
    if match is None:
        process.kill()
        raise SystemExit("the server did not start")
    return process, match[0]


class Player:
    """One connection that plays at random."""

    def __init__(self, socket: ClientConnection, seed: int, times: Times) -> None:
        self._socket = socket
        self._agent = RandomAgent(seed)
        self._times = times

    async def next(self, kind: str) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = json.loads(await self._socket.recv())
            if message["type"] == kind:
                return message
            if message["type"] == "ai_move":
                self._times.thinking.append(message["thinking_time_ms"])
            if message["type"] == "error":
                raise RuntimeError(f"the server refused a legal message: {message}")

    async def send(self, **message: Any) -> None:
        await self._socket.send(json.dumps(message))

    async def begin(self, **options: Any) -> dict[str, Any]:
        await self.send(type="new_game", **options)
        state = await self.next("state")
        while state["thinking"]:
            state = await self.next("state")
        return state

    async def turn(self, state: dict[str, Any]) -> dict[str, Any]:
        """One action of the person, and the AI's answer to it."""
        position = Position.parse(state["board"], state["rules"])
        action = self._agent.act(position)
        begin = time.perf_counter()
        await self.send(type="move", kind="text", text=position.move_name(action), seq=state["seq"])
        state = await self.next("state")
        self._times.human.append(1000 * (time.perf_counter() - begin))
        if state["thinking"]:
            while state["thinking"]:
                state = await self.next("state")
            self._times.machine.append(1000 * (time.perf_counter() - begin))
        return state


async def sit(
    origin: str, number: int, level: str, until: float, pause: float, times: Times
) -> None:
    """Play game after game until the time is up, with a person's pauses."""
    chance = np.random.default_rng(number)
    async with connect(
        origin.replace("http", "ws") + "/ws", origin=Origin(origin), open_timeout=60
    ) as socket:
        player = Player(socket, number, times)
        while time.monotonic() < until:
            state = await player.begin(checkpoint=level)
            while state["phase"] != "over" and time.monotonic() < until:
                await asyncio.sleep(float(chance.exponential(pause)))
                state = await player.turn(state)
            times.games += state["phase"] == "over"


async def load(origin: str, games: int, seconds: float, pause: float, level: str) -> Times:
    times = Times()
    until = time.monotonic() + seconds
    await asyncio.gather(
        *(sit(origin, number, level, until, pause, times) for number in range(games))
    )
    return times


async def play_games(origin: str, games: int, connections: int) -> int:
    """So many whole games as fast as they go, on a few connections."""
    left = iter(range(games))
    actions = 0

    async def one(number: int) -> None:
        nonlocal actions
        times = Times()
        for _ in left:
            async with connect(
                origin.replace("http", "ws") + "/ws", origin=Origin(origin)
            ) as socket:
                player = Player(socket, number, times)
                state = await player.begin()
                while state["phase"] != "over":
                    state = await player.turn(state)
        actions += len(times.human)

    await asyncio.gather(*(one(number) for number in range(connections)))
    return actions


def resident(process: subprocess.Popen[str]) -> float:
    """Megabytes of memory that a process holds."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+)", text)
    assert match is not None
    return int(match[1]) / 1024


def show(name: str, values: list[float]) -> None:
    if not values:
        return
    middle, late, last = np.percentile(values, [50, 99, 100])
    print(f"{name:<30} {len(values):>7,}   {middle:>8.1f} {late:>8.1f} {last:>8.1f}")


async def hold(origin: str, games: int) -> list[ClientConnection]:
    """Open games with searches under way, and leave them open."""
    sockets = []
    for _ in range(games):
        socket = await connect(origin.replace("http", "ws") + "/ws", origin=Origin(origin))
        await socket.send('{"type":"new_game","human_color":"black"}')
        sockets.append(socket)
    return sockets


async def end(process: subprocess.Popen[str], origin: str, games: int) -> tuple[float, bool]:
    """Seconds that SIGTERM needs with so many games open, and whether children are left."""
    sockets = await hold(origin, games)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    await asyncio.get_running_loop().run_in_executor(None, process.wait, 30)
    spent = time.monotonic() - begin
    for socket in sockets:
        await socket.close()
    return spent, any(Path(f"/proc/{child}").exists() for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=200, help="open games")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds a person thinks, mean")
    parser.add_argument("--memory-games", type=int, default=2400, help="whole games for the memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ladder = Path(folder) / "ladder"
        write_ladder(ladder)
        process, origin = start_server(ladder, options.games + 50)
        try:
            level = "step_000000001"
            print(f"{'milliseconds':<30} {'count':>7}   {'median':>8} {'p99':>8} {'most':>8}")
            alone = asyncio.run(load(origin, 1, options.seconds / 4, 0.02, level))
            show("one game: AI thinking", alone.thinking)
            show("one game: AI's answer", alone.machine)
            times = asyncio.run(load(origin, options.games, options.seconds, options.pause, level))
            name = f"{options.games} games"
            show(f"{name}: human move's answer", times.human)
            show(f"{name}: AI, queue included", times.thinking)
            show(f"{name}: AI's answer", times.machine)
            print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            spent, left = asyncio.run(end(process, origin, 50))
            print(f"SIGTERM with 50 games open: ended in {spent:.1f} s, orphans: {left}")
        finally:
            process.kill()
            process.wait()
        if options.memory_games:
            measure_memory(options.memory_games)


def measure_memory(games: int) -> None:
    environment = os.environ.get("PYLOS_LADDER")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["PYLOS_LADDER"] = empty
        process, origin = start_server(None, 64)
    try:
        asyncio.run(play_games(origin, 100, 8))
        sizes = [resident(process)]
        begin = time.monotonic()
        for _ in range(6):
            asyncio.run(play_games(origin, games // 6, 8))
            sizes.append(resident(process))
        shown = " ".join(f"{size:.1f}" for size in sizes)
        print(f"memory in MB over {games:,} games in {time.monotonic() - begin:.0f} s: {shown}")
    finally:
        process.kill()
        process.wait()
        os.environ.pop("PYLOS_LADDER")
        if environment is not None:
            os.environ["PYLOS_LADDER"] = environment


if __name__ == "__main__":
    main()
