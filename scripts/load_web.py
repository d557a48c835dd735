"""Many open games against one web server on this machine: how fast moves are answered.

    python scripts/load_web.py --json runs/load_web.json        # all of it: about four minutes
    python scripts/load_web.py --ladder trainers/ladder         # with the strongest shipped network
    python scripts/load_web.py --seconds 10 --games 50 --memory-games 0

Starts its own server on the loopback address and ends it. The games are played against a network
with 64 simulations a move, so searches run all the time. Reported, with the limit that each must
keep, are

- one game alone: what the AI needs for an action, and until its whole turn has arrived;
- the answer to a human move: from sending it to the state in which it stands;
- the AI's answer: what the server needed to think, and until its whole turn arrived;
- how long the server takes to end on SIGTERM with games open, and what is left of it;
- the server's memory over many whole games: 2,400 are an hour of 200 seats, five minutes a game.

`--strict` ends with status 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import re
import shutil
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
FEW = 4
LEVEL, QUICK_LEVEL = f"network@{SIMULATIONS}", f"network@{FEW}"
SEATS = 50  # games open when the server is told to end
LIMITS = {
    "one game: AI thinks, p99 ms": 150.0,
    "human move answered, p99 ms": 100.0,
    "ended after SIGTERM, s": 5.0,
    "processes left": 0.0,
    "memory grown, MB": 10.0,
}
"""The most that each figure may be."""


@dataclass
class Times:
    """Milliseconds."""

    human: list[float] = field(default_factory=list)
    machine: list[float] = field(default_factory=list)
    thinking: list[float] = field(default_factory=list)
    games: int = 0


def write_ladder(folder: Path, source: Path | None) -> None:
    """One network at two levels: `SIMULATIONS` for the times, few for the memory.

    The network is the strongest of the ladder `source`, or an untrained one of the usual size,
    which searches just as long.
    """
    import torch

    from pylos_env import Rules
    from trainers.checkpoints import CheckpointInfo, RunFolder
    from trainers.manifest import MANIFEST_FILE, Manifest
    from trainers.network import NetworkConfig, build

    folder.mkdir()
    if source is not None:
        found = Manifest.read(source / MANIFEST_FILE)
        entry = max(found.checkpoints, key=lambda entry: (entry.rating or 0.0, entry.step))
        file = found.file(entry)
    else:
        torch.manual_seed(0)
        rules, config = Rules.of("advanced"), NetworkConfig()
        with RunFolder(folder / "run") as run:
            info = CheckpointInfo(dataclasses.asdict(config), rules, config.observation)
            run.save(1, build(config, rules).state_dict(), info, {})
            entry = run.enter(1, "Expert", 0.5)
        file = folder / "run" / entry.file
    shutil.copyfile(file, folder / "network.safetensors")
    entry = dataclasses.replace(entry, file="network.safetensors", label="Expert")
    levels = [dataclasses.replace(entry, simulations=count) for count in (SIMULATIONS, FEW)]
    Manifest(folder / MANIFEST_FILE, tuple(levels)).write()


def start_server(ladder: Path, sessions: int) -> tuple[subprocess.Popen[str], str]:
    options = ["--max-sessions", str(sessions), "--message-rate", "100000"]
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
                state = await player.begin(checkpoint=QUICK_LEVEL)
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


def percentiles(name: str, values: list[float]) -> dict[str, float]:
    """Print and give back the median, p99 and most of some milliseconds."""
    if not values:
        raise SystemExit(f"{name}: nothing was measured in so little time")
    middle, late, last = (round(float(p), 1) for p in np.percentile(values, [50, 99, 100]))
    print(f"{name:<34} {len(values):>7,}   {middle:>8.1f} {late:>8.1f} {last:>8.1f}", flush=True)
    return {"count": len(values), "median": middle, "p99": late, "most": last}


async def hold(origin: str, games: int) -> list[ClientConnection]:
    """Open games with searches under way, and leave them open."""
    sockets = []
    for _ in range(games):
        socket = await connect(origin.replace("http", "ws") + "/ws", origin=Origin(origin))
        await socket.send('{"type":"new_game","human_color":"black"}')
        sockets.append(socket)
    return sockets


async def end(process: subprocess.Popen[str], origin: str, games: int) -> tuple[float, int]:
    """Seconds that SIGTERM needs with so many games open, and how many children are left."""
    sockets = await hold(origin, games)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    await asyncio.get_running_loop().run_in_executor(None, process.wait, 30)
    spent = time.monotonic() - begin
    for socket in sockets:
        await socket.close()
    return spent, sum(Path(f"/proc/{child}").exists() for child in children)


def measure_times(ladder: Path, options: argparse.Namespace, report: dict[str, Any]) -> None:
    process, origin = start_server(ladder, options.games + SEATS)
    times, figures = report["milliseconds"], report["figures"]
    try:
        print(f"{'milliseconds':<34} {'count':>7}   {'median':>8} {'p99':>8} {'most':>8}")
        alone = asyncio.run(load(origin, 1, options.seconds / 4, 0.02, LEVEL))
        for name, values in (("AI thinks", alone.thinking), ("AI's turn is there", alone.machine)):
            times[f"one game: {name}"] = percentiles(f"one game: {name}", values)
        many = asyncio.run(load(origin, options.games, options.seconds, options.pause, LEVEL))
        for name, values in (
            ("human move answered", many.human),
            ("AI thinks, queue included", many.thinking),
            ("AI's turn is there", many.machine),
        ):
            shown = f"{options.games} games: {name}"
            times[shown] = percentiles(shown, values)
        spent, left = asyncio.run(end(process, origin, SEATS))
    finally:
        process.kill()
        process.wait()
    figures["one game: AI thinks, p99 ms"] = times["one game: AI thinks"]["p99"]
    human = times[f"{options.games} games: human move answered"]
    figures["human move answered, p99 ms"] = human["p99"]
    figures["ended after SIGTERM, s"] = round(spent, 2)
    figures["processes left"] = left


def measure_memory(ladder: Path, games: int, report: dict[str, Any]) -> None:
    process, origin = start_server(ladder, 64)
    try:
        asyncio.run(play_games(origin, max(8, games // 12), 8))
        sizes = [round(resident(process), 1)]
        for _ in range(6):
            asyncio.run(play_games(origin, games // 6, 8))
            sizes.append(round(resident(process), 1))
    finally:
        process.kill()
        process.wait()
    report["memory"] = {"games": games, "megabytes": sizes}
    report["figures"]["memory grown, MB"] = round(sizes[-1] - sizes[0], 1)
    print(f"memory in MB over {games:,} games: {' '.join(str(size) for size in sizes)}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=200, help="open at once (200)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of play with all of them (60)")
    parser.add_argument(
        "--pause", type=float, default=5.0, help="seconds a person thinks, mean (5)"
    )
    parser.add_argument(
        "--memory-games", type=int, default=2400, help="whole games for the memory (2400; 0: none)"
    )
    parser.add_argument("--ladder", type=Path, help="use the strongest network of this ladder")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--strict", action="store_true", help="status 1 where a limit is missed")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "simulations": SIMULATIONS,
        "network": str(options.ladder or "untrained, of the usual size"),
        "open_games": options.games,
        "milliseconds": {},
        "figures": {},
        "limits": LIMITS,
    }
    with tempfile.TemporaryDirectory() as folder:
        ladder = Path(folder) / "ladder"
        write_ladder(ladder, options.ladder)
        measure_times(ladder, options, report)
        if options.memory_games:
            measure_memory(ladder, options.memory_games, report)
    report["load_after"] = round(os.getloadavg()[0], 2)
    missed = []
    for name, value in report["figures"].items():
        kept = value <= LIMITS[name]
        missed += [] if kept else [name]
        print(f"{name:<34} {value:>8} {'<=' if kept else 'MISSED:'} {LIMITS[name]:g}")
    report["missed"] = missed
    load_text = f"load {report['load_before']} before, {report['load_after']} after"
    print(f"{load_text}, {report['cores']} cores")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(f"numbers: {options.json}")
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
