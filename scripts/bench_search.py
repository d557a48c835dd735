"""How many simulations a second the tree search does, and where their time goes.

    python scripts/bench_search.py --json bench_search.json --plot bench_search.png

256 games with 64 simulations a move from positions of real games, on one core. Beside it, with the
same network: a plain tree search in Python, one game at a time, which asks the network about one
position after the other; once with rules in plain Python too, once with this package's compiled
ones. And where JAX is installed, mctx's search over pgx's Connect Four with a network of 2x128 on
all cores, and ours with such a network. Contenders take turns; rates are medians. The peers are in
`search_peers.py`; mctx needs `pip install "pylos-env[bench]"`.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from search_peers import (
    C_PUCT,
    GAMES,
    MAX_CONSIDERED,
    SIMULATIONS,
    CompiledBoard,
    Counts,
    Mctx,
    Plain,
    PythonBoard,
    load_reference,
)
from torch import nn

from pylos_env import Position, Rules
from pylos_env.kernel import NUM_ACTIONS
from pylos_env.observation import Observer
from pylos_env.oracle.labels import load_labels
from trainers.alphazero.config import AlphaZeroConfig
from trainers.evaluator import Evaluator
from trainers.network import NetworkConfig, PolicyValueNetwork, build
from trainers.running import workers
from trainers.search import Search, SearchConfig, batched

RULES = Rules.of("advanced")
CONFIG = SearchConfig(
    simulations=SIMULATIONS,
    gumbel_scale=0.0,
    c_puct=C_PUCT,
    prior_temperature=1.0,  # as its peers
    max_considered=MAX_CONSIDERED,
)
CPU = torch.device("cpu")
PARTS = {"_select": "select", "_grow": "expand and back up"}


def network(layers: tuple[int, ...]) -> PolicyValueNetwork:
    """A plain network over the flat observation."""
    torch.manual_seed(0)
    sizes = (33, *layers)
    body = nn.Sequential(
        *(
            part
            for inputs, outputs in itertools.pairwise(sizes)
            for part in (nn.Linear(inputs, outputs), nn.ReLU())
        )
    )
    heads = nn.Linear(layers[-1], NUM_ACTIONS), nn.Linear(layers[-1], 1)
    return PolicyValueNetwork(body, *heads, NetworkConfig(kind="mlp"))


def default_network() -> PolicyValueNetwork:
    """What the default recipe trains; in float32 a kernel of ours runs it on a CPU."""
    torch.manual_seed(0)
    return build(AlphaZeroConfig().network, RULES)


def positions(count: int) -> Any:
    """Positions in which at least five spheres are left to place, so that no search ends early."""
    labels = load_labels(RULES)
    return labels.packed[labels.spheres < 20][:count].copy()


# Ours


class Ours:
    """The batched search over one network."""

    def __init__(self, net: PolicyValueNetwork, dtype: torch.dtype = torch.float32) -> None:
        self._evaluate = Evaluator(net, RULES, CPU, dtype)
        self._search = Search(RULES, CONFIG, GAMES)
        self._packed = positions(GAMES)
        self.run()  # compile

    def run(self) -> Counts:
        began, cpu = time.perf_counter(), time.process_time()
        keys = np.zeros(GAMES, dtype=np.int64)
        result = self._search.run(self._packed, keys, self._evaluate)
        seconds = time.perf_counter() - began
        return int(result.visits.sum()), seconds, time.process_time() - cpu

    def split(self, runs: int = 5) -> dict[str, float]:
        """The share of each part in the time of a search."""
        spent = dict.fromkeys([*PARTS.values(), "network"], 0.0)
        evaluate = self._evaluate
        with timed_parts(spent):
            began = time.perf_counter()
            for _ in range(runs):
                self._evaluate = timed("network", evaluate, spent)  # type: ignore[assignment]
                self.run()
            total = time.perf_counter() - began
        self._evaluate = evaluate
        spent["rest"] = total - sum(spent.values())
        return {name: seconds / total for name, seconds in spent.items()}


class OnAllCores:
    """The same search in a thread for each core."""

    def __init__(self, layers: tuple[int, ...]) -> None:
        self._searches = [Ours(network(layers)) for _ in range(os.cpu_count() or 1)]
        self._pool = workers(len(self._searches))

    def run(self) -> Counts:
        began, cpu = time.perf_counter(), time.process_time()
        found = self._pool.map(lambda search: search.run()[0], self._searches)
        simulations = sum(found)
        return simulations, time.perf_counter() - began, time.process_time() - cpu


def timed(name: str, do: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        began = time.perf_counter()
        result = do(*arguments)
        spent[name] += time.perf_counter() - began
        return result

    return call


@contextmanager
def timed_parts(spent: dict[str, float]) -> Iterator[None]:
    """Put a clock around the kernels that the search calls."""
    kernels = {name: getattr(batched, name) for name in PARTS}
    for name, kernel in kernels.items():
        setattr(batched, name, timed(PARTS[name], kernel, spent))
    try:
        yield
    finally:
        for name, kernel in kernels.items():
            setattr(batched, name, kernel)


# The run


class Row(NamedTuple):
    """Medians over the rounds."""

    name: str
    rate: float  # simulations a second
    core_rate: float  # simulations a second of processor time
    network: str


def measure(contenders: dict[str, tuple[Any, str]], seconds: float, rounds: int) -> list[Row]:
    """Take turns; each turn lasts some seconds."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, (contender, _) in contenders.items():
            print(f"\rround {number + 1} of {rounds}: {name:40}", end="", flush=True)
            simulations, spent, cpu = 0, 0.0, 0.0
            while spent < seconds:
                counts = contender.run()
                simulations, spent, cpu = (
                    simulations + counts[0],
                    spent + counts[1],
                    cpu + counts[2],
                )
            rates[name].append((simulations / spent, simulations / cpu))
    print("\r" + " " * 70 + "\r", end="")
    return [
        Row(name, median(r[0] for r in found), median(r[1] for r in found), contenders[name][1])
        for name, found in rates.items()
    ]


def save_plot(rows: list[Row], split: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (bars, parts) = pyplot.subplots(1, 2, figsize=(12, 4.5), width_ratios=[3, 2])
    names = [f"{row.name}\n{row.network}" for row in rows]
    bars.barh(names, [row.core_rate for row in rows], color="#8c6239")
    for number, row in enumerate(rows):
        bars.text(row.core_rate * 1.1, number, f"{row.core_rate:,.0f}", va="center")
    bars.set_xscale("log")
    bars.set_xlim(right=max(row.core_rate for row in rows) * 6)
    bars.set_xlabel("simulations per second of one core")
    bars.invert_yaxis()
    parts.barh(list(split), [share * 100 for share in split.values()], color="#c9a26b")
    for number, share in enumerate(split.values()):
        parts.text(share * 100 + 1, number, f"{share:.0%}", va="center")
    parts.set_xlim(0, 100)
    parts.set_xlabel("share of a search's time, 3x256 in float32, %")
    parts.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw them into this PNG file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    large, small = (256, 256, 256), (128, 128)
    ours = Ours(network(large))
    starts = [Position.unchecked(int(packed), RULES) for packed in positions(8)]
    reference = load_reference()
    python_boards = [PythonBoard.of(position, reference) for position in starts]
    observer = Observer("flat", RULES)
    compiled_boards = [CompiledBoard(position, observer) for position in starts]
    contenders: dict[str, tuple[Any, str]] = {
        "batched": (ours, "3x256, float32"),
        "batched, bfloat16": (Ours(network(large), torch.bfloat16), "3x256, bfloat16"),
        "plain Python": (Plain(network(large), python_boards), "3x256, float32, batch 1"),
        "plain Python, rules compiled": (
            Plain(network(large), compiled_boards),
            "3x256, float32, batch 1",
        ),
        "batched, small": (Ours(network(small)), "2x128, float32"),
        "batched, all cores": (OnAllCores(small), "2x128, float32, all cores"),
        "batched, default": (Ours(default_network()), "symmetric, kernel"),
        "batched, default, torch": (
            Ours(default_network(), torch.bfloat16),
            "symmetric, torch, bfloat16",
        ),
    }
    if all(importlib.util.find_spec(name) for name in ("jax", "mctx", "pgx")):
        contenders["mctx, Connect Four"] = (Mctx(small), "2x128, float32, all cores")
    else:
        print('mctx, pgx: not installed: pip install "pylos-env[bench]"')
    rows = measure(contenders, options.seconds, options.rounds)
    split = ours.split()
    found = {row.name: row for row in rows}
    for row in rows:
        print(f"{row.name:28} {row.network:27} {row.rate:10,.0f}/s {row.core_rate:10,.0f}/core-s")
    print("time: " + ", ".join(f"{name} {share:.0%}" for name, share in split.items()))
    ratios = {
        f"{ours} over {name}": found[ours].rate / found[name].rate
        for name in ("plain Python", "plain Python, rules compiled")
        for ours in ("batched", "batched, bfloat16")
    }
    kernel, layers = found["batched, default"], found["batched, default, torch"]
    ratios["the default network's kernel over torch"] = kernel.rate / layers.rate
    if "mctx, Connect Four" in found:
        peer = found["mctx, Connect Four"]
        ratios["all cores over mctx"] = found["batched, all cores"].rate / peer.rate
        ratios["one core over mctx on all"] = found["batched, small"].rate / peer.rate
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.1f}x")
    if options.json:
        figures = {
            "machine": {"cores": os.cpu_count(), "processor": platform.processor()},
            "games": GAMES,
            "simulations": CONFIG.simulations,
            "rows": [row._asdict() for row in rows],
            "time": split,
            "ratios": ratios,
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if options.plot:
        save_plot(rows, split, options.plot)


if __name__ == "__main__":
    main()
