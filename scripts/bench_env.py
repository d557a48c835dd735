"""How fast everything is beside its peers, measured in one run: `python scripts/bench_env.py`.

The contenders of a section take turns, so that a busy moment of the machine hits all of them;
ratios and targets compare medians. A step is one action in one game, and starting the next game is
part of the time. "/core-s" divides by the processor time of all threads. In A and E actions are
recorded first and then replayed, so that choosing them costs nothing ("choosing": A's rate with
it); in B, C and D choosing is part of the loop. "threads" are those allowed (small batches
stay on one), "cores" those really used: processor time over wall-clock time. In F that includes the
threads that numpy's BLAS starts and lets spin. Peers: `pip install "pylos-env[bench]"`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import random
from statistics import median
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pettingzoo
from pettingzoo.env_registry.exceptions import FailedToImport
from pettingzoo.utils import wrappers

from pylos_env import Position, agents, batch, pylos_v0
from pylos_env.vector import SelfPlayVectorEnv

SECTIONS = {  # title, and the row that ratios refer to
    "A": ("Batched self-play, mask and observation written, actions prepared outside", "pgx"),
    "B": ("One AEC environment, lean loop: step, mask, random legal action", "connect_four raw"),
    "C": ("One AEC environment, PettingZoo's documented loop", "connect_four loop"),
    "D": ("Library: legal actions, random choice, play", "open_spiel"),
    "E": ("Gymnasium, random opponent, actions prepared outside, steps of single envs", "sync"),
    "F": ("Start-up in a fresh process, seconds", ""),
}
BATCH_SIZES = (1, 16, 64, 1024, 4096, 16384)
PGX_GAMES = 8192
FREE_ENV_PLIES = 50  # about as long as a random game of Pylos
REFERENCE = Path(__file__).resolve().parent.parent / "tests" / "reference.py"
POSITION = (Position.start, Position.legal_actions, Position.play)
SYNC = {"num_envs": 16, "vectorization_mode": "sync"}
PACKAGES = ("pylos-env", "numba", "numpy", "gymnasium", "pettingzoo", "open-spiel", "jax", "pgx")
GET_PEERS = 'not installed: pip install "pylos-env[bench]"'

Do = Callable[[], Any]
Run = Callable[[float], tuple[float, float]]  # seconds -> steps a second, steps a core-second


@dataclass
class Row:
    """A contender: steps per second, or plain seconds in section F; one number a repeat."""

    section: str
    key: str
    name: str
    build: Callable[[], list[Run]]  # the run and, in A, the one that also chooses the actions
    ours: bool = True
    threads: int = 1
    note: str = ""
    wall: list[float] = field(default_factory=list)
    core: list[float] = field(default_factory=list)
    choosing: list[float] = field(default_factory=list)


def timed(play: Callable[[], int], calls: int = 10, begin: Do = lambda: None) -> Run:
    """Call `play`, which returns its number of steps, until the time is up; `begin` is free."""

    def run(seconds: float) -> tuple[float, float]:
        steps, wall, cpu = 0, 0.0, 0.0
        while not steps or wall < seconds:
            begin()
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            for _ in range(calls):
                steps += play()
            cpu += time.process_time() - cpu_start
            wall += time.perf_counter() - wall_start
        return steps / wall, steps / cpu

    return run


def replayed(
    begin: Do, step: Callable[[Any], Any], choose: Do, games: int, length: int, wait: Do
) -> list[Run]:
    """Two runs: recorded actions, where only the steps are timed, and steps with choosing."""
    begin()
    script = []
    for _ in range(length):
        script.append(choose())
        step(script[-1])

    def play() -> int:  # what happens after `begin` depends on the actions alone
        for actions in script:
            step(actions)
        wait()
        return length * games

    def choose_and_play() -> int:
        step(choose())
        wait()
        return games

    return [timed(play, 1, begin), timed(choose_and_play)]


# A: batched self-play


def self_play(games: int, threads: int) -> list[Run]:
    env = SelfPlayVectorEnv(games, num_threads=threads)
    agent, rng = agents.make("random"), np.random.default_rng(0)

    def choose() -> Any:
        return agent.act_batch(env.packed, env.rules, rng.integers(1 << 63, size=games))

    length = max(128, min(2048, (1 << 19) // games))
    return replayed(env.reset, env.step, choose, games, length, lambda: None)


def pgx_connect_four() -> list[Run]:
    """As documented: a vmapped, jitted step with automatic reset, called from Python."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import pgx
    from pgx.experimental import auto_reset

    env = pgx.make("connect_four")
    keys = jax.random.split(jax.random.key(0), PGX_GAMES)
    init, step = jax.jit(jax.vmap(env.init)), jax.jit(jax.vmap(auto_reset(env.step, env.init)))
    draw = jax.jit(lambda key, mask: jax.random.categorical(key, jax.numpy.log(mask)))
    state, key, wait = init(keys), jax.random.key(1), partial(jax.block_until_ready)

    def begin() -> None:
        nonlocal state
        state = wait(init(keys))

    def play(actions: Any) -> None:
        nonlocal state
        state = step(state, actions, keys)

    def choose() -> Any:
        nonlocal key
        key, now = jax.random.split(key)
        return draw(now, state.legal_action_mask)

    return replayed(begin, play, choose, PGX_GAMES, 64, lambda: wait(state))


# B and C: one AEC environment


def lean(make: Callable[[], Any]) -> list[Run]:
    """Step, mask, random legal action; no wrappers and nothing else of PettingZoo."""
    env = make().unwrapped

    def play() -> int:
        env.reset()
        steps, agent = 0, env.agent_selection
        while not (env.terminations[agent] or env.truncations[agent]):
            legal = env.observe(agent)["action_mask"].nonzero()[0]
            env.step(int(legal[int(random() * len(legal))]))
            steps, agent = steps + 1, env.agent_selection
        return steps

    return [timed(play)]


def documented(make: Callable[[], Any], raw: bool = False) -> list[Run]:
    """The loop of PettingZoo's documentation; its two closing steps of None are not counted."""
    env = make().unwrapped if raw else make()

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
    """The spaces of Pylos and no game: what is left is PettingZoo's share of a loop."""

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
        self.terminations = dict.fromkeys(self.agents, not self._left)

    def observe(self, agent: str) -> Any:
        return self._view


def free_env() -> Any:
    env = wrappers.TerminateIllegalWrapper(FreeEnv(), illegal_reward=-1)
    return wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(env))


# D: the library, and E: Gymnasium


def plies(
    start: Callable[[], Any], legal: Callable[[Any], Any], play: Callable[[Any, int], Any]
) -> list[Run]:
    def game() -> int:
        state, steps = start(), 0
        while actions := legal(state):
            # OpenSpiel's states change in place and return nothing
            state = play(state, actions[int(random() * len(actions))]) or state
            steps += 1
        return steps

    return [timed(game)]


def open_spiel() -> list[Run]:
    import pyspiel

    game, state = pyspiel.load_game("connect_four"), pyspiel.State
    return plies(game.new_initial_state, state.legal_actions, state.apply_action)


def plain_python() -> list[Run]:
    """The tests' slow and obvious implementation of the same rules."""
    spec = importlib.util.spec_from_file_location("reference", REFERENCE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["reference"] = reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    rules = reference.PRESETS["advanced"]
    return plies(
        lambda: reference.START,
        lambda state: reference.legal_actions(state, rules),
        lambda state, action: reference.play(state, rules, action),
    )


def gym(make: Callable[..., Any], length: int, **kwargs: Any) -> list[Run]:
    """A single environment, or a vector of `num_envs`."""
    env = make("pylos_env/Pylos-v0", opponent="random", **kwargs)
    rng, mask, single = np.random.default_rng(0), np.ones(1), "num_envs" not in kwargs

    def begin() -> None:
        nonlocal mask
        mask = env.reset(seed=0)[1]["action_mask"]

    def step(actions: Any) -> None:
        nonlocal mask
        _, _, terminated, truncated, info = env.step(actions)
        if single and (terminated or truncated):
            _, info = env.reset()
        mask = info["action_mask"]

    def choose() -> Any:
        return (rng.random(mask.shape) * mask).argmax(axis=-1)

    return replayed(begin, step, choose, kwargs.get("num_envs", 1), length, lambda: None)[:1]


def contenders() -> list[Row]:
    cores = batch.default_threads()
    vector = partial(gym, gymnasium.make_vec)
    rows = [
        Row("A", "pgx", f"pgx connect_four, {PGX_GAMES} games", pgx_connect_four, False, cores),
        Row("B", "raw", "pylos raw_env", partial(lean, pylos_v0.env)),
        Row("C", "loop", "pylos env()", partial(documented, pylos_v0.env)),
        Row("C", "raw loop", "pylos raw_env", partial(documented, pylos_v0.env, raw=True)),
        Row("C", "ceiling", "no game, wrapped: ceiling", partial(documented, free_env), False),
        Row("D", "position", "Position", partial(plies, *POSITION)),
        Row("D", "open_spiel", "OpenSpiel connect_four (C++)", open_spiel, False),
        Row("D", "plain", "the same rules in plain Python", plain_python, False),
        Row("E", "single", "gymnasium.make", partial(gym, gymnasium.make, 2048)),
        Row("E", "vector", "make_vec(1024)", partial(vector, 128, num_envs=1024), True, cores),
        Row("E", "sync", "SyncVectorEnv of 16 single ones", partial(vector, 256, **SYNC), False),
    ]
    for game in ("connect_four", "tictactoe"):
        make = partial(pettingzoo.make, "aec", f"classic/{game}-v3")
        loop, raw_loop = partial(documented, make), partial(documented, make, raw=True)
        rows += [
            Row("B", f"{game} raw", f"{game} raw_env", partial(lean, make), False),
            Row("C", f"{game} loop", f"{game} env()", loop, False),
            Row("C", f"{game} raw loop", f"{game} raw_env", raw_loop, False),
        ]
    for size in reversed(BATCH_SIZES):
        for label, threads in (("all", cores), ("one", 1)):
            run = partial(self_play, size, threads)
            name = f"SelfPlayVectorEnv, {size} game{'s' * (size > 1)}"
            rows.insert(0, Row("A", f"{size}/{label}", name, run, True, threads))
    return rows


def measure(rows: list[Row], seconds: float, repeats: int) -> None:
    """Let the rows of a section take turns; one whose package is missing gets a note instead."""
    ready: list[tuple[Row, list[Run]]] = []
    for row in rows:
        print(f"  preparing {row.name}", file=sys.stderr)
        try:
            ready.append((row, row.build()))
        except (ImportError, FailedToImport):
            row.note = GET_PEERS
        except FileNotFoundError as error:
            row.note = f"not found: {error.filename}"
    for _, runs in ready:
        for run in runs:
            run(0)  # compile, fill caches
    for repeat in range(repeats):
        print(f"  repeat {repeat + 1} of {repeats}", file=sys.stderr)
        for row, (run, *others) in ready:
            wall, core = run(seconds)
            row.wall.append(wall)
            row.core.append(core)
            row.choosing += [other(seconds)[0] for other in others]


# F: start-up

RAW = "env = pylos_v0.raw_env(); env.reset(); env.last(); env.step(0)"
GAMES = "env = vector.SelfPlayVectorEnv(4096); env.reset(); env.step(numpy.zeros(4096, int))"
IMPORTS = "import numpy; from pylos_env import pylos_v0, vector"
CHILDREN = (  # key, name, folder for compiled kernels (new ones are empty), not timed, timed
    ("python", "python alone", "", "", "pass"),
    ("dependencies", "import numba, pettingzoo", "", "", "import numba, pettingzoo"),
    ("import", "import pylos_env", "", "", "import pylos_env"),
    ("raw cold", "first step of raw_env, no cache", "raw", IMPORTS, RAW),
    ("raw warm", "first step of raw_env, cached", "raw", IMPORTS, RAW),
    ("games cold", "first step of 4096 games, no cache", "games", IMPORTS, GAMES),
    ("games warm", "first step of 4096 games, cached", "games", IMPORTS, GAMES),
)
CHILD = """
import time
{before}
wall, cpu = time.perf_counter(), time.process_time()
{timed}
print(time.perf_counter() - wall, time.process_time() - cpu, time.process_time())
"""
COUNT = """
import gc, pylos_env, numba.core.dispatcher as numba
found = [thing for thing in gc.get_objects() if issubclass(type(thing), numba.Dispatcher)]
print(len(found), sum(len(dispatcher.overloads) for dispatcher in found))
"""


def in_child(code: str, cache: Path) -> list[float]:
    """The numbers that a fresh interpreter prints, and the seconds that it lived."""
    start, environment = time.perf_counter(), os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    words = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    return [*map(float, words.split()), time.perf_counter() - start]


def start_up(repeats: int) -> list[Row]:
    rows = [Row("F", key, name, list, threads=0) for key, name, *_ in CHILDREN]
    for repeat in range(min(repeats, 3)):
        print(f"  repeat {repeat + 1} of {min(repeats, 3)}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for row, (key, _, cache, before, timed) in zip(rows, CHILDREN, strict=True):
                code = CHILD.format(before=before, timed=timed)
                wall, cpu, cpu_life, life = in_child(code, Path(folder, cache))
                row.wall.append(life if key == "python" else wall)
                row.core.append(cpu_life if key == "python" else cpu)
                if key == "import":
                    found, compiled, _ = in_child(COUNT, Path(folder))
                    row.note = f"{compiled:.0f} of {found:.0f} kernels compiled by it"
    return rows


# Results


class Target(NamedTuple):
    """A wish beside a row, judged by this run: a rate or, with `over`, a ratio."""

    key: str
    text: str
    wanted: float
    per_core: bool = True
    over: str = ""


TARGETS = (
    Target("4096/one", ">= 5 M per core-second", 5e6),
    Target("4096/one", ">= 1000x connect_four env()", 1000, over="connect_four loop"),
    Target("4096/one", ">= 3x pgx per core-second", 3, over="pgx"),
    Target("4096/all", ">= 10 M/s on two cores", 10e6, per_core=False),
    Target("raw", ">= 3x connect_four raw_env", 3, over="connect_four raw"),
    Target("loop", ">= 0.8 of the wrappers' ceiling", 0.8, over="ceiling"),
    Target("position", ">= 200 k/s", 2e5, per_core=False),
    Target("import", "< 1 s", 1, per_core=False),
    Target("raw cold", "< 5 s", 5, per_core=False),
    Target("raw warm", "< 0.5 s", 0.5, per_core=False),
    Target("games cold", "< 5 s", 5, per_core=False),
    Target("games warm", "< 0.5 s", 0.5, per_core=False),
)


def judge(target: Target, rows: dict[str, Row]) -> str:
    values = []
    for key in (target.key, *([target.over] if target.over else [])):
        if key not in rows or not rows[key].wall:
            return f"{target.text}: not measured"
        values.append(median(rows[key].core if target.per_core else rows[key].wall))
    value = values[0] / values[1] if target.over else values[0]
    met = value < target.wanted if target.text.startswith("<") else value >= target.wanted
    used = cores_used(rows[target.key])
    busy = f", only {used:.2f} cores used" if "/all" in target.key and used < 1.8 else ""
    return f"{target.text}: {'met' if met else 'MISSED'} ({short(value)}{busy})"


def short(value: float) -> str:
    """Three digits: 12.3 M, 456 k, 0.789."""
    scale, unit = (1e6, " M") if value >= 999_500 else (1e3, " k") if value >= 999.5 else (1, "")
    return f"{value / scale:#.3g}".rstrip(".") + unit


def remarks(row: Row, rows: dict[str, Row]) -> list[str]:
    """Targets and notes."""
    lines = [judge(target, rows) for target in TARGETS if target.key == row.key]
    raw = rows.get(row.key.replace("loop", "raw loop"), row)
    if raw is not row and row.wall and raw.wall:
        share = 1 - median(row.core) / median(raw.core)
        lines.append(f"wrappers take {share:.0%} of its time")
    return lines + [row.note] * bool(row.note)


def cores_used(row: Row) -> float:
    """Median over the repeats; rates and, in F, seconds stand in opposite proportion."""
    pairs = zip(row.wall, row.core, strict=True)
    return median(core / wall if row.section == "F" else wall / core for wall, core in pairs)


def numbers_of(row: Row, peer: Row | None) -> list[str]:
    """Cores used, median and best per second and per core-second, ratios, rate with choosing."""
    if not row.wall:
        return []
    best = min if row.section == "F" else max
    columns = [f"{cores_used(row):.2f}"]
    columns += [short(pick(values)) for values in (row.wall, row.core) for pick in (median, best)]
    if peer is not None and peer.wall:
        columns.append(f"{median(row.wall) / median(peer.wall):.3g}")
        columns.append(f"{median(row.core) / median(peer.core):.3g}")
    columns += [""] * (7 - len(columns))
    return columns + ([short(median(row.choosing))] if row.choosing else [])


def print_table(rows: dict[str, Row]) -> None:
    for letter, (title, peer_key) in SECTIONS.items():
        own = [row for row in rows.values() if row.section == letter]
        if not own:
            continue
        peer = rows.get(peer_key)
        print(f"\n{letter}. {title}" + (f"; ratios to {peer.name}" if peer else ""))
        head = ["cores", "/s", "best", "/core-s", "best", "x /s", "x /core-s"] + ["choosing"] * (
            letter == "A"
        )
        head = ["cores", "wall", "best", "cpu", "best"] if letter == "F" else head
        print_line("", "threads", head, "target")
        for row in own:
            first, *others = remarks(row, rows) or [""]
            print_line(row.name, str(row.threads or "-"), numbers_of(row, peer), first)
            for other in others:
                print_line("", "", [], other)


def print_line(name: str, threads: str, numbers: list[str], remark: str) -> None:
    columns = "".join(f"{number:>10}" for number in numbers)
    print(f"  {name:<35}{threads:>7}{columns:<80}  {remark}".rstrip())


def machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    installed = {
        d.name.lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()
    }
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": batch.default_threads(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,
        "python": platform.python_version(),
        **{name: installed.get(name, "not installed") for name in PACKAGES},
    }


def save_plot(rows: list[Row], path: Path, title: str) -> None:
    """Steps per core-second as bars; of our batches those on one thread."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        print(f"no plot, matplotlib is {GET_PEERS}")
        return
    shown = [row for row in rows if row.wall and row.section != "F" and "/all" not in row.key]
    if not shown:
        return
    colours = {True: "#1f6f8b", False: "#d98c3f"}
    figure = Figure(figsize=(9, 0.27 * len(shown) + 4), layout="constrained")
    axes = figure.subplots()
    ticks: list[float] = []
    height, section = 0.0, ""
    for row in shown:
        if row.section != section:
            section, height = row.section, height - 1.7
            text = f"{section}. {SECTIONS[section][0]}"
            axes.text(0, height, text, transform=axes.get_yaxis_transform(), weight="bold")
        height -= 1
        ticks.append(height)
        rate = median(row.core)
        axes.barh(height, rate, height=0.8, color=colours[row.ours])
        axes.text(rate * 1.08, height, short(rate), va="center", size=8)
    rates = [median(row.core) for row in shown] or [1]
    axes.set_xscale("log")
    axes.set_xlim(10 ** np.floor(np.log10(min(rates) / 1.5)), max(rates) * 3)
    axes.set_ylim(height - 0.8, -0.6)
    axes.set_yticks(ticks, [row.name for row in shown], size=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e3e3e3")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}")
    axes.set_xlabel("steps per core-second (logarithmic)")
    axes.set_title(title, size=11, loc="left")
    labels = {True: "pylos-env", False: "peers and references"}
    handles = [Patch(color=colours[ours], label=labels[ours]) for ours in labels]
    figure.legend(handles=handles, loc="upper right", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"plot: {path}")


def parse_arguments() -> argparse.Namespace:
    sections = "\n".join(f"  {letter}  {title}" for letter, (title, _) in SECTIONS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nSections:\n{sections}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="of a measurement (0.5)")
    parser.add_argument("--repeats", type=int, default=5, help="of each contender (5)")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, such as A,D")
    parser.add_argument(
        "--json", type=Path, default="runs/bench_env.json", help="all numbers (runs/bench_env.json)"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default="runs/bench_env.png",
        help="PNG file of the rates per core-second (runs/bench_env.png)",
    )
    arguments = parser.parse_args()
    if not set(arguments.only.split(",")) <= set(SECTIONS) or arguments.repeats < 1:
        parser.error("--only takes letters such as A,D and --repeats a number from 1 up")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    described = machine()
    print(", ".join(f"{name} {value}" for name, value in described.items()))
    if described["load"] > 0.5:
        print("WARNING: the machine is busy: rates will be too low, those on all cores most")
    rows: list[Row] = []
    for letter in sorted(set(arguments.only.split(","))):
        print(f"{letter}. {SECTIONS[letter][0]}", file=sys.stderr)
        if letter == "F":
            rows += start_up(arguments.repeats)
        else:
            own = [row for row in contenders() if row.section == letter]
            measure(own, arguments.seconds, arguments.repeats)
            rows += own
    by_key = {row.key: row for row in rows}
    print_table(by_key)
    result = {
        "machine": described,
        "seconds": arguments.seconds,
        "repeats": arguments.repeats,
        "rows": [{k: v for k, v in vars(row).items() if k != "build"} for row in rows],
        "targets": [[target.key, judge(target, by_key)] for target in TARGETS],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nnumbers: {arguments.json}")
    save_plot(rows, arguments.plot, f"pylos-env beside its peers\n{described['cpu']}")


if __name__ == "__main__":
    main()
