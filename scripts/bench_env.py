"""How fast the environments are, side by side with their peers, all measured in one run.

    python scripts/bench_env.py                                # everything, a few minutes
    python scripts/bench_env.py --only A,D --seconds 0.2 --repeats 3

A  batched self-play      B  single AEC environment, lean loop    C  PettingZoo's documented loop
D  the library itself     E  Gymnasium, single and vectorised     F  start-up in fresh processes

The contenders of a section take turns, `--repeats` times, so that a busy moment of the machine hits
all of them. Ratios and targets compare medians. A step is one action of one game; rates per
core-second divide by the processor time of all threads. In A and E actions are recorded first and
replayed, so choosing them is not in the time ("choosing" shows A's rate with it); in B, C and D it
is. Starting the next game always is. Peers come with `pip install "pylos-env[bench]"`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pettingzoo
from pettingzoo.env_registry.exceptions import FailedToImport
from pettingzoo.utils import wrappers

from pylos_env import Position, agents, batch, pylos_v0
from pylos_env.vector import SelfPlayVectorEnv

ROOT = Path(__file__).resolve().parent.parent
ENV_ID = "pylos_env/Pylos-v0"
PACKAGES = ("pylos-env", "numba", "numpy", "gymnasium", "pettingzoo", "open_spiel", "jax", "pgx")
GET_PEERS = 'not installed: pip install "pylos-env[bench]"'
BATCH_SIZES = (1, 16, 64, 1024, 4096, 16384)
PGX_GAMES = 8192
FREE_ENV_PLIES = 50  # about as long as a random game of Pylos
MAX_CHILD_REPEATS = 3  # compiling everything takes seconds each time


class Sample(NamedTuple):
    """One measurement."""

    steps: int
    wall: float  # seconds
    cpu: float  # seconds, of all threads


Run = Callable[[float], Sample]
Build = Callable[[], list[Run]]  # the run and, in section A, the one that chooses actions as well


@dataclass
class Row:
    """One contender. Of start-up rows the numbers are seconds, of all others steps per second."""

    section: str
    key: str
    name: str
    ours: bool = True
    threads: int = 1
    note: str = ""
    wall: list[float] = field(default_factory=list)  # [repeats], per wall-clock second
    core: list[float] = field(default_factory=list)  # [repeats], per core-second
    choosing: list[float] = field(default_factory=list)  # [repeats], per wall-clock second

    @property
    def per_second(self) -> float:
        return statistics.median(self.wall)

    @property
    def per_core(self) -> float:
        return statistics.median(self.core)


Contender = tuple[Row, Build]


# How a contender is timed


def timed(play: Callable[[], int]) -> Run:
    """Call `play`, which returns the number of its steps, until the time is over."""

    def run(seconds: float) -> Sample:
        steps, wall, cpu = 0, time.perf_counter(), time.process_time()
        while not steps or time.perf_counter() - wall < seconds:
            steps += play()
        return Sample(steps, time.perf_counter() - wall, time.process_time() - cpu)

    return run


def record(
    begin: Callable[[], Any], play: Callable[[Any], Any], choose: Callable[[], Any], length: int
) -> list[Any]:
    """Actions that `replay` can play again: what follows `begin` depends on them alone."""
    begin()
    script = []
    for _ in range(length):
        script.append(choose())
        play(script[-1])
    return script


def replay(
    begin: Callable[[], Any],
    play: Callable[[Any], Any],
    script: list[Any],
    games: int,
    finish: Callable[[], Any] = lambda: None,
) -> Run:
    """Time the recorded steps and nothing else."""

    def run(seconds: float) -> Sample:
        steps, total_wall, total_cpu = 0, 0.0, 0.0
        while not steps or total_wall < seconds:
            begin()
            wall, cpu = time.perf_counter(), time.process_time()
            for actions in script:
                play(actions)
            finish()
            total_wall += time.perf_counter() - wall
            total_cpu += time.process_time() - cpu
            steps += len(script) * games
        return Sample(steps, total_wall, total_cpu)

    return run


def measure(contenders: list[Contender], seconds: float, repeats: int) -> list[Row]:
    """Let the contenders take turns; one whose package is missing gets a note instead."""
    ready = []
    for row, build in contenders:
        print(f"  preparing {row.name}", file=sys.stderr)
        try:
            runs = build()
        except (ImportError, FailedToImport, FileNotFoundError):
            row.note = GET_PEERS
            continue
        for run in runs:
            run(0)  # compile, fill the caches
        ready.append((row, runs))
    for repeat in range(repeats):
        print(f"  repeat {repeat + 1} of {repeats}", file=sys.stderr)
        for row, runs in ready:
            sample = runs[0](seconds)
            row.wall.append(sample.steps / sample.wall)
            row.core.append(sample.steps / sample.cpu)
            for run in runs[1:]:
                sample = run(seconds)
                row.choosing.append(sample.steps / sample.wall)
    return [row for row, _ in contenders]


# A: batched self-play


def self_play(games: int, threads: int) -> list[Run]:
    env = SelfPlayVectorEnv(games, num_threads=threads)
    agent, rng = agents.make("random"), np.random.default_rng(0)

    def choose() -> Any:
        return agent.act_batch(env.packed, env.rules, rng.integers(1 << 63, size=games))

    def choose_and_step() -> int:
        env.step(choose())
        return games

    script = record(env.reset, env.step, choose, length=max(128, min(2048, (1 << 19) // games)))
    return [replay(env.reset, env.step, script, games), timed(choose_and_step)]


def pgx_connect_four(scan: bool) -> list[Run]:
    """All games in one jitted step, or a whole recording in one jitted `lax.scan`."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp
    import pgx
    from pgx.experimental import auto_reset

    env = pgx.make("connect_four")
    keys = jax.random.split(jax.random.key(0), PGX_GAMES)
    init = jax.jit(jax.vmap(env.init))
    step_all = jax.vmap(auto_reset(env.step, env.init))
    step = jax.jit(step_all)
    draw = jax.jit(lambda key, mask: jax.random.categorical(key, jnp.log(mask)))
    stream = iter(jax.random.split(jax.random.key(1), 1 << 16))
    state: Any = None

    def begin() -> None:
        nonlocal state
        state = jax.block_until_ready(init(keys))

    def play(actions: Any) -> None:
        nonlocal state
        state = step(state, actions, keys)

    def choose() -> Any:
        return draw(next(stream), state.legal_action_mask)

    def choose_and_step() -> int:
        play(choose())
        jax.block_until_ready(state)
        return PGX_GAMES

    def finish() -> None:
        jax.block_until_ready(state)

    script = record(begin, play, choose, length=64)
    if not scan:
        return [replay(begin, play, script, PGX_GAMES, finish), timed(choose_and_step)]

    whole = jax.jit(
        lambda first, script: jax.lax.scan(
            lambda at, actions: (step_all(at, actions, keys), None), first, script
        )[0]
    )

    def play_all(actions: Any) -> None:
        nonlocal state
        state = whole(state, actions)

    return [replay(begin, play_all, [jnp.stack(script)], PGX_GAMES * len(script), finish)]


def section_a() -> list[Contender]:
    cores = batch.default_threads()
    contenders: list[Contender] = []
    for games in BATCH_SIZES:
        for label, threads in (("1", 1), ("all", cores))[: 1 if cores == 1 else 2]:
            row = Row("A", f"self_play-{games}-{label}", f"SelfPlayVectorEnv, {games} games")
            row.threads = threads
            contenders.append((row, lambda g=games, t=threads: self_play(g, t)))  # type: ignore[misc]
    name = f"pgx connect_four, {PGX_GAMES} games"
    step = Row("A", "pgx", name, False, cores)
    scan = Row("A", "pgx-scan", f"{name}, lax.scan", False, cores)
    contenders.append((step, lambda: pgx_connect_four(scan=False)))
    contenders.append((scan, lambda: pgx_connect_four(scan=True)))
    return contenders


# B and C: one AEC environment


def peer(name: str) -> Any:
    return pettingzoo.make("aec", f"classic/{name}-v3")


def observed_mask(env: Any, agent: str) -> Any:
    return env.observe(agent)["action_mask"]


def info_mask(env: Any, agent: str) -> Any:
    return env.infos[agent]["action_mask"]


def lean(env: Any, mask: Callable[[Any, str], Any] = observed_mask) -> list[Run]:
    """Step, mask, random legal action; nothing else of PettingZoo."""
    rng = random.Random(0)

    def play() -> int:
        env.reset()
        steps, agent = 0, env.agent_selection
        while not (env.terminations[agent] or env.truncations[agent]):
            legal = mask(env, agent).nonzero()[0]
            env.step(int(legal[int(rng.random() * len(legal))]))
            steps, agent = steps + 1, env.agent_selection
        return steps

    return [timed(play)]


def documented(env: Any) -> list[Run]:
    """The loop of PettingZoo's documentation. The two closing steps of None are not counted."""
    for seed, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed)

    def play() -> int:
        env.reset()
        steps = 0
        for agent in env.agent_iter():
            observation, _, termination, truncation, _ = env.last()
            if termination or truncation:
                env.step(None)
            else:
                env.step(env.action_space(agent).sample(observation["action_mask"]))
                steps += 1
        return steps

    return [timed(play)]


class FreeEnv(pylos_v0.raw_env):
    """Spaces of Pylos, no game: what the documented loop costs if an environment costs nothing."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self._left = FREE_ENV_PLIES
        self._view = super().observe("player_0")

    def step(self, action: int | None) -> None:
        if not self._left:
            self._was_dead_step(action)
            return
        self._left -= 1
        self.agent_selection = self.possible_agents[self._left & 1]
        if not self._left:
            self.terminations = dict.fromkeys(self.agents, True)

    def observe(self, agent: str) -> Any:
        return self._view


def wrapped_free_env() -> Any:
    env = wrappers.TerminateIllegalWrapper(FreeEnv(), illegal_reward=-1)
    return wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(env))


def section_b() -> list[Contender]:
    return [
        (Row("B", "raw", "pylos raw_env"), lambda: lean(pylos_v0.raw_env())),
        (
            Row("B", "raw-infos", "pylos raw_env, mask from infos"),
            lambda: lean(pylos_v0.raw_env(), info_mask),
        ),
        (
            Row("B", "connect_four-raw", "connect_four raw_env", False),
            lambda: lean(peer("connect_four").unwrapped),
        ),
        (
            Row("B", "tictactoe-raw", "tictactoe raw_env", False),
            lambda: lean(peer("tictactoe").unwrapped),
        ),
    ]


def section_c() -> list[Contender]:
    contenders: list[Contender] = [
        (Row("C", "env", "pylos env()"), lambda: documented(pylos_v0.env())),
        (Row("C", "env-raw", "pylos raw_env"), lambda: documented(pylos_v0.raw_env())),
        (
            Row("C", "ceiling", "no game, same wrappers: ceiling", False),
            lambda: documented(wrapped_free_env()),
        ),
    ]
    for name in ("connect_four", "tictactoe"):
        row, raw = Row("C", name, f"{name} env()", False), Row("C", "", f"{name} raw_env", False)
        raw.key = f"{name}-documented-raw"
        contenders.append((row, lambda n=name: documented(peer(n))))  # type: ignore[misc]
        contenders.append((raw, lambda n=name: documented(peer(n).unwrapped)))  # type: ignore[misc]
    return contenders


def note_wrappers(rows: list[Row]) -> None:
    """How much of the documented loop PettingZoo's wrappers take."""
    measured = {row.key: row for row in rows if row.wall}
    for name, raw in (
        ("env", "env-raw"),
        ("connect_four", "connect_four-documented-raw"),
        ("tictactoe", "tictactoe-documented-raw"),
    ):
        if name in measured and raw in measured:
            share = 1 - measured[name].per_core / measured[raw].per_core
            measured[name].note = f"wrappers take {share:.0%} of the time"


# D: the library


def play_positions() -> int:
    position, steps = Position.start(), 0
    while actions := position.legal_actions():
        position = position.play(actions[int(random.random() * len(actions))])
        steps += 1
    return steps


def open_spiel_connect_four() -> list[Run]:
    import pyspiel

    game = pyspiel.load_game("connect_four")

    def play() -> int:
        state, steps = game.new_initial_state(), 0
        while actions := state.legal_actions():
            state.apply_action(actions[int(random.random() * len(actions))])
            steps += 1
        return steps

    return [timed(play)]


def plain_python_rules() -> list[Run]:
    """The tests' reference implementation of the same rules."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tests" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = reference
    spec.loader.exec_module(reference)
    rules = reference.PRESETS["advanced"]

    def play() -> int:
        state, steps = reference.START, 0
        while actions := reference.legal_actions(state, rules):
            state = reference.play(state, rules, actions[int(random.random() * len(actions))])
            steps += 1
        return steps

    return [timed(play)]


def section_d() -> list[Contender]:
    return [
        (Row("D", "position", "Position"), lambda: [timed(play_positions)]),
        (Row("D", "open_spiel", "OpenSpiel connect_four (C++)", False), open_spiel_connect_four),
        (Row("D", "plain", "our rules in plain Python", False), plain_python_rules),
    ]


# E: Gymnasium


def gym_single() -> list[Run]:
    env = gymnasium.make(ENV_ID, opponent="random")
    rng = random.Random(0)
    info: dict[str, Any] = {}

    def begin() -> None:
        nonlocal info
        _, info = env.reset(seed=0)

    def play(action: int) -> None:
        nonlocal info
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            _, info = env.reset()

    script = record(
        begin, play, lambda: rng.choice(info["action_mask"].nonzero()[0].tolist()), 2048
    )
    return [replay(begin, play, script, games=1)]


def gym_vector(num_envs: int, mode: str, length: int) -> list[Run]:
    env = gymnasium.make_vec(ENV_ID, num_envs, vectorization_mode=mode, opponent="random")
    rng = np.random.default_rng(0)
    infos: dict[str, Any] = {}

    def begin() -> None:
        nonlocal infos
        _, infos = env.reset(seed=0)

    def play(actions: Any) -> None:
        nonlocal infos
        *_, infos = env.step(actions)

    def choose() -> Any:
        mask = infos["action_mask"]
        return (rng.random(mask.shape) * mask).argmax(axis=1)

    return [replay(begin, play, record(begin, play, choose, length), num_envs)]


def section_e() -> list[Contender]:
    sync = Row("E", "gym-sync", "SyncVectorEnv of 16 single ones", False)
    return [
        (Row("E", "gym-single", "gymnasium.make"), gym_single),
        (
            Row("E", "gym-vector", "make_vec, 1024 envs", threads=batch.default_threads()),
            lambda: gym_vector(1024, "vector_entry_point", 128),
        ),
        (sync, lambda: gym_vector(16, "sync", 256)),
    ]


# F: start-up, each in a fresh process


class Child(NamedTuple):
    """What a fresh process does, and which part of it is timed."""

    key: str
    name: str
    cache: str  # the folder for compiled kernels: empty for the first child that uses it
    before: str
    timed: str


_RAW = (
    "from pylos_env import pylos_v0",
    "env = pylos_v0.raw_env(); env.reset(); env.last(); env.step(0)",
)
_BATCH = (
    "import numpy; from pylos_env.vector import SelfPlayVectorEnv; zeros = numpy.zeros(4096, int)",
    "env = SelfPlayVectorEnv(4096); env.reset(); env.step(zeros)",
)
CHILDREN = (
    Child("python", "python starts and ends", "none", "", ""),
    Child("dependencies", "import of the dependencies", "none", "", "import numba, pettingzoo"),
    Child("import", "import pylos_env", "none", "", "import pylos_env"),
    Child("raw-cold", "raw_env's first step, no cache", "raw", *_RAW),
    Child("raw-warm", "raw_env's first step, cached", "raw", *_RAW),
    Child("batch-cold", "first step of 4096 games, no cache", "batch", *_BATCH),
    Child("batch-warm", "first step of 4096 games, cached", "batch", *_BATCH),
)
CHILD_CODE = """
import time
{before}
wall, cpu = time.perf_counter(), time.process_time()
{timed}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
COUNT_COMPILED = """
import gc
from numba.core.dispatcher import Dispatcher
found = [thing for thing in gc.get_objects() if issubclass(type(thing), Dispatcher)]
print(len(found), sum(len(dispatcher.overloads) for dispatcher in found))
"""


def run_child(code: str, cache: Path) -> list[float]:
    """The numbers that a fresh interpreter prints."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def section_f(repeats: int) -> list[Row]:
    rows = {child.key: Row("F", child.key, child.name) for child in CHILDREN}
    rows["python"].ours = rows["dependencies"].ours = False
    for repeat in range(min(repeats, MAX_CHILD_REPEATS)):
        print(f"  repeat {repeat + 1} of {min(repeats, MAX_CHILD_REPEATS)}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for child in CHILDREN:
                code = CHILD_CODE.format(before=child.before, timed=child.timed)
                start = time.perf_counter()
                wall, cpu = run_child(code, Path(folder, child.cache))
                if child.key == "python":
                    wall = time.perf_counter() - start
                    (cpu,) = run_child("import time; print(time.process_time())", Path(folder))
                rows[child.key].wall.append(wall)
                rows[child.key].core.append(cpu)
            kernels, compiled = run_child("import pylos_env\n" + COUNT_COMPILED, Path(folder))
            rows["import"].note = f"{compiled:.0f} of {kernels:.0f} kernels compiled"
    return list(rows.values())


# Targets


class Target(NamedTuple):
    """A wish beside a row, judged by the numbers of this run."""

    key: str
    text: str
    wanted: float
    value: Callable[[dict[str, Row]], float]
    at_most: bool = False


TARGETS = (
    Target("self_play-4096-1", "5 M per core-s", 5e6, lambda r: r["self_play-4096-1"].per_core),
    Target(
        "self_play-4096-1",
        "1000x connect_four env()",
        1000,
        lambda r: r["self_play-4096-1"].per_core / r["connect_four"].per_core,
    ),
    Target(
        "self_play-4096-1",
        "3x the faster pgx, per core-s",
        3,
        lambda r: r["self_play-4096-1"].per_core / max(r["pgx"].per_core, r["pgx-scan"].per_core),
    ),
    Target(
        "self_play-4096-all",
        "10 M/s on two cores",
        10e6,
        lambda r: r["self_play-4096-all"].per_second,
    ),
    Target(
        "raw",
        "3x connect_four raw_env",
        3,
        lambda r: r["raw"].per_core / r["connect_four-raw"].per_core,
    ),
    Target(
        "env", "80 % of the ceiling", 80, lambda r: 100 * r["env"].per_core / r["ceiling"].per_core
    ),
    Target("position", "200 k/s", 2e5, lambda r: r["position"].per_second),
    Target("import", "1 s", 1, lambda r: r["import"].per_second, True),
    Target("raw-cold", "5 s", 5, lambda r: r["raw-cold"].per_second, True),
    Target("raw-warm", "0.5 s", 0.5, lambda r: r["raw-warm"].per_second, True),
    Target("batch-cold", "5 s", 5, lambda r: r["batch-cold"].per_second, True),
    Target("batch-warm", "0.5 s", 0.5, lambda r: r["batch-warm"].per_second, True),
)


def judge(target: Target, rows: dict[str, Row]) -> str:
    sign = "<=" if target.at_most else ">="
    try:
        value = target.value(rows)
    except (KeyError, statistics.StatisticsError):
        return f"{sign} {target.text}: not measured"
    met = value <= target.wanted if target.at_most else value >= target.wanted
    return f"{sign} {target.text}: {'met' if met else 'MISSED'} ({short(value)})"


# What comes out


class Section(NamedTuple):
    """A title, and the row that the ratios of its rows refer to."""

    title: str
    peer: str


SECTIONS = {
    "A": Section("Batched self-play, steps with mask and observation written", "pgx"),
    "B": Section("Single AEC environment, lean loop", "connect_four-raw"),
    "C": Section("PettingZoo's documented loop", "connect_four"),
    "D": Section("Library: legal actions and play", "open_spiel"),
    "E": Section("Gymnasium against a random opponent, steps of single games", "gym-sync"),
    "F": Section("Start-up, seconds in a fresh process", ""),
}


def short(value: float) -> str:
    for limit, unit in ((1e6, " M"), (1e3, " k")):
        if value >= limit * 0.9995:
            return f"{value / limit:.3g}{unit}" if value < 999.5 * limit else f"{value:.3g}"
    return f"{value:.3g}"


def cells_of(row: Row, peer: Row | None) -> list[str]:
    if not row.wall:
        return [row.name, str(row.threads)] + [""] * 7
    best = min if row.section == "F" else max
    ratios = ["", ""]
    if peer is not None and peer.wall:
        ratios = [
            f"{row.per_second / peer.per_second:.3g}x",
            f"{row.per_core / peer.per_core:.3g}x",
        ]
    return [
        row.name,
        str(row.threads),
        short(row.per_second),
        short(best(row.wall)),
        short(row.per_core),
        short(best(row.core)),
        short(statistics.median(row.choosing)) if row.choosing else "",
        *ratios,
    ]


def print_table(rows: dict[str, Row]) -> None:
    for letter, section in SECTIONS.items():
        own = [row for row in rows.values() if row.section == letter]
        if not own:
            continue
        peer = rows.get(section.peer)
        unit = ("wall", "cpu") if letter == "F" else ("/s", "/core-s")
        ratios = ("x /s", "x /core-s") if peer else ("", "")
        choosing = "choosing" if letter == "A" else ""
        print(f"\n{letter}. {section.title}" + (f"; ratios to {peer.name}" if peer else ""))
        print_line(["", "threads", unit[0], "best", unit[1], "best", choosing, *ratios], "target")
        for row in own:
            remarks = [judge(target, rows) for target in TARGETS if target.key == row.key]
            remarks += [row.note] if row.note else []
            print_line(cells_of(row, peer), remarks[0] if remarks else "")
            for remark in remarks[1:]:
                print_line([""] * 9, remark)


def print_line(cells: list[str], remark: str) -> None:
    numbers = "".join(f"{cell:>10}" for cell in cells[2:])
    print(f"  {cells[0]:<36}{cells[1]:>7}{numbers}  {remark}".rstrip())


def machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"cpu": cpu, "cores": batch.default_threads(), "load": load, "versions": versions}


def print_machine(described: dict[str, Any]) -> None:
    load = described["load"]
    print(f"{described['cpu']}, {described['cores']} cores for this process, {platform.system()}")
    print(", ".join(f"{name} {version}" for name, version in described["versions"].items()))
    if load is not None:
        busy = "  WARNING: the machine is busy, rates will be too low" if load > 0.5 else ""
        print(f"load average at the start: {load:.2f}{busy}")


def save_plot(rows: dict[str, Row], path: Path, described: dict[str, Any]) -> None:
    """Steps per core-second as bars; runs on one thread stand for ours where there are several."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"no plot: matplotlib is {GET_PEERS}")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    shown = [
        row for row in rows.values() if row.wall and row.section != "F" and row.key[-4:] != "-all"
    ]
    if not shown:
        print("no plot: only start-up was measured")
        return
    ours, theirs, ink = "#1f6f8b", "#d98c3f", "#333333"
    height, letter = 0.0, ""
    figure, axes = plt.subplots(figsize=(9, 0.27 * (len(shown) + 2 * 5) + 1), layout="constrained")
    ticks = []
    for row in shown:
        if row.section != letter:
            letter = row.section
            height -= 1.6
            title = f"{letter}. {SECTIONS[letter].title}"
            axes.text(0, height, title, transform=axes.get_yaxis_transform(), weight="bold")
            height -= 0.1
        height -= 1
        ticks.append(height)
        axes.barh(height, row.per_core, height=0.8, color=ours if row.ours else theirs)
        axes.text(row.per_core * 1.08, height, short(row.per_core), va="center", color=ink, size=8)
    axes.set_xscale("log")
    slowest, fastest = min(row.per_core for row in shown), max(row.per_core for row in shown)
    axes.set_xlim(10 ** np.floor(np.log10(slowest / 1.5)), fastest * 3)
    axes.set_ylim(height - 0.8, -0.6)
    axes.set_yticks(ticks, [row.name for row in shown], size=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e3e3e3")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("steps per core-second, logarithmic")
    axes.set_title(f"pylos-env and its peers\n{described['cpu']}", size=11, loc="left")
    legend = [Patch(color=ours, label="pylos-env"), Patch(color=theirs, label="peer or reference")]
    figure.legend(handles=legend, loc="upper right", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"plot: {path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement (0.5)")
    parser.add_argument("--repeats", type=int, default=5, help="of each contender (5)")
    parser.add_argument("--only", default="A,B,C,D,E,F", help="sections, such as A,D")
    json_file = Path("runs/bench_env.json")
    parser.add_argument("--json", type=Path, default=json_file, help=f"results ({json_file})")
    parser.add_argument("--plot", type=Path, help="PNG of the rates per core-second")
    arguments = parser.parse_args()
    arguments.only = arguments.only.upper().replace(" ", "").split(",")
    if not set(arguments.only) <= set(SECTIONS) or arguments.repeats < 1:
        parser.error(f"--only takes sections of {','.join(SECTIONS)}; --repeats a number from 1 up")
    return arguments


def main() -> None:
    """Measure, print, save."""
    arguments = parse_arguments()
    described = machine()
    print_machine(described)
    contenders = {"A": section_a, "B": section_b, "C": section_c, "D": section_d, "E": section_e}
    rows: list[Row] = []
    for letter in (letter for letter in SECTIONS if letter in arguments.only):
        print(f"{letter}. {SECTIONS[letter].title}", file=sys.stderr)
        if letter == "F":
            rows += section_f(arguments.repeats)
        else:
            rows += measure(contenders[letter](), arguments.seconds, arguments.repeats)
    note_wrappers(rows)
    by_key = {row.key: row for row in rows}
    print_table(by_key)
    print()
    result = {
        "machine": described,
        "seconds": arguments.seconds,
        "repeats": arguments.repeats,
        "rows": [asdict(row) for row in rows],
        "targets": [{"row": target.key, "result": judge(target, by_key)} for target in TARGETS],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"numbers: {arguments.json}")
    if arguments.plot:
        save_plot(by_key, arguments.plot, described)


if __name__ == "__main__":
    main()
