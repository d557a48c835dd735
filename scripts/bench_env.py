"""How fast everything is beside its peers, measured in one run: `python scripts/bench_env.py`.

The contenders of a section take turns, so that a busy moment of the machine hits all of them;
ratios and targets compare medians. A step is one action in one game, and starting the next game is
part of the time. "/core-s" divides by the processor time of all threads. In A and E actions are
recorded first and then replayed, so that choosing them costs nothing ("choosing": A's rate with
it); in B, C and D choosing is part of the loop. Peers: `pip install "pylos-env[bench]"`.
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
    "A": ("Batched self-play, mask and observation written, steps", "pgx"),
    "B": ("Single AEC environment, lean loop, steps", "connect_four raw"),
    "C": ("PettingZoo's documented loop, steps", "connect_four loop"),
    "D": ("The library: legal actions and play, plies", "open_spiel"),
    "E": ("Gymnasium against a random opponent, steps of single games", "sync"),
    "F": ("Start-up in a fresh process, seconds", ""),
}
BATCH_SIZES = (1, 16, 64, 1024, 4096, 16384)
PGX_GAMES = 8192
FREE_ENV_PLIES = 50  # about as long as a random game of Pylos
REFERENCE = Path(__file__).resolve().parent.parent / "tests" / "reference.py"
PACKAGES = ("pylos-env", "numba", "numpy", "gymnasium", "pettingzoo", "open_spiel", "jax", "pgx")
GET_PEERS = 'not installed: pip install "pylos-env[bench]"'

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


def timed(play: Callable[[], int], calls: int = 10, begin: Callable[[], Any] = int) -> Run:
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
    begin: Callable[[], Any],
    step: Callable[[Any], Any],
    choose: Callable[[], Any],
    length: int,
    games: int,
    finish: Callable[[], Any] = int,
) -> Run:
    """Record some actions and time only the steps: all that follows `begin` depends on them."""
    begin()
    script = []
    for _ in range(length):
        script.append(choose())
        step(script[-1])

    def play() -> int:
        for actions in script:
            step(actions)
        finish()
        return length * games

    return timed(play, 1, begin)


# A: batched self-play


def self_play(games: int, threads: int) -> list[Run]:
    env = SelfPlayVectorEnv(games, num_threads=threads)
    agent, rng = agents.make("random"), np.random.default_rng(0)

    def choose() -> Any:
        return agent.act_batch(env.packed, env.rules, rng.integers(1 << 63, size=games))

    def choose_and_step() -> int:
        env.step(choose())
        return games

    length = max(128, min(2048, (1 << 19) // games))
    return [replayed(env.reset, env.step, choose, length, games), timed(choose_and_step)]


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
    state, wait = init(keys), partial(jax.block_until_ready)
    key = jax.random.key(1)

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

    def choose_and_step() -> int:
        play(choose())
        wait(state)
        return PGX_GAMES

    run = replayed(begin, play, choose, 64, PGX_GAMES, finish=lambda: wait(state))
    return [run, timed(choose_and_step)]


# B and C: one AEC environment


def peer(name: str) -> Any:
    return pettingzoo.make("aec", f"classic/{name}-v3")


def lean(env: Any) -> list[Run]:
    """Step, mask, random legal action; nothing else of PettingZoo."""

    def play() -> int:
        env.reset()
        steps, agent = 0, env.agent_selection
        while not (env.terminations[agent] or env.truncations[agent]):
            legal = env.observe(agent)["action_mask"].nonzero()[0]
            env.step(int(legal[int(random() * len(legal))]))
            steps, agent = steps + 1, env.agent_selection
        return steps

    return [timed(play)]


def documented(env: Any) -> list[Run]:
    """The loop of PettingZoo's documentation; its two closing steps of None are not counted."""

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


def wrapped_free_env() -> Any:
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
    if spec is None or spec.loader is None or not REFERENCE.exists():
        raise ImportError(REFERENCE)
    sys.modules["reference"] = reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    rules = reference.PRESETS["advanced"]
    return plies(
        lambda: reference.START,
        lambda state: reference.legal_actions(state, rules),
        lambda state, action: reference.play(state, rules, action),
    )


def gym(make: Callable[..., Any], num_envs: int = 0, length: int = 2048, **kwargs: Any) -> Run:
    """A vector environment of so many, or a single one for 0."""
    vector = {"num_envs": num_envs} if num_envs else {}
    env = make("pylos_env/Pylos-v0", opponent="random", **vector, **kwargs)
    mask: Any = None
    rng = np.random.default_rng(0)

    def begin() -> None:
        nonlocal mask
        mask = env.reset(seed=0)[1]["action_mask"]

    def step(actions: Any) -> None:
        nonlocal mask
        _, _, terminated, truncated, info = env.step(actions)
        if not num_envs and (terminated or truncated):
            _, info = env.reset()
        mask = info["action_mask"]

    def choose() -> Any:
        return (rng.random(mask.shape) * mask).argmax(axis=-1)

    return replayed(begin, step, choose, length, num_envs or 1)


def contenders() -> list[Row]:
    cores, games = batch.default_threads(), (connect_four := "connect_four", "tictactoe")
    rows = [
        Row("A", f"{size}/{label}", f"SelfPlayVectorEnv({size})", partial(self_play, size, threads))
        for size in BATCH_SIZES
        for label, threads in (("one", 1), ("all", cores))
    ]
    for row in rows:
        row.threads = cores if row.key.endswith("all") else 1
    name = f"pgx {connect_four}, {PGX_GAMES} games"
    rows += [
        Row("A", "pgx", name, pgx_connect_four, ours=False, threads=cores),
        Row("B", "raw", "pylos raw_env", lambda: lean(pylos_v0.raw_env())),
        Row("C", "loop", "pylos env()", lambda: documented(pylos_v0.env())),
        Row("C", "raw loop", "pylos raw_env", lambda: documented(pylos_v0.raw_env())),
        Row("C", "ceiling", "no game, wrapped", lambda: documented(wrapped_free_env()), False),
    ]
    for game in games:
        raw, loop = f"{game} raw_env", f"{game} env()"
        rows += [
            Row("B", f"{game} raw", raw, lambda g=game: lean(peer(g).unwrapped), False),
            Row("C", f"{game} loop", loop, lambda g=game: documented(peer(g)), False),
            Row("C", f"{game} raw loop", raw, lambda g=game: documented(peer(g).unwrapped), False),
        ]
    position = (Position.start, Position.legal_actions, Position.play)
    make_vec = partial(gym, gymnasium.make_vec)
    return [
        *rows,
        Row("D", "position", "Position", lambda: plies(*position)),
        Row("D", "open_spiel", "OpenSpiel connect_four (C++)", open_spiel, False),
        Row("D", "plain", "the same rules in plain Python", plain_python, False),
        Row("E", "single", "gymnasium.make", lambda: [gym(gymnasium.make)]),
        Row("E", "vector", "make_vec(1024)", lambda: [make_vec(1024, 128)], True, cores),
        Row("E", "sync", "SyncVectorEnv of 16", lambda: [make_vec(16, 256, vectorization_mode="sync")], False),
    ]
