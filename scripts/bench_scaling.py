"""What bounds training, by measurement here and by a model for larger machines.

    python scripts/bench_scaling.py --json scaling.json --plot scaling.png --write docs/scaling.md

Measures on this machine: self-play of one core, the learner on one core, what a game costs in bytes
and in time of the trainer's own process, what it costs to send weights, and then actors beside a
learner on a Ray cluster of this machine. A model of four constants is fitted and compared with the
last of these; with `--write` its tables replace those between the marks in a Markdown file. About
five minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pylos_env.observation import Observer
from pylos_env.rules import Rules
from trainers.alphazero.config import AlphaZeroConfig, ClusterConfig
from trainers.alphazero.learner import Learner
from trainers.alphazero.ray_pool import RayPool
from trainers.alphazero.replay import Replay
from trainers.alphazero.targets import samples_of
from trainers.alphazero.tasks import Played, Task, play_task, unpack
from trainers.alphazero.workers import make_evaluator
from trainers.inference import Inference
from trainers.network import PolicyValueNetwork, build

RULES = Rules.of("advanced")
CPU = torch.device("cpu")
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")

# Assumed, not measured: no card and no second machine was at hand.
CARD_STEPS = 150.0  # learning steps of a batch of 1024 a second on a card
LINK_BYTES = 1.0e9  # a second between two machines: 10 Gbit/s, a fifth of it lost


@dataclass
class Constants:
    """What the model is made of."""

    games_per_core: float
    """Self-play games a second of one core."""
    decisions_per_game: float
    bytes_per_game: float
    """On the wire, from an actor to the trainer."""
    trainer_seconds_per_game: float
    """Of the trainer's process: read, unpack, make samples, add to the window."""
    learner_samples: float
    """Samples a second of one core, drawn and learnt."""
    weights_bytes: float
    publish_seconds: float
    """To put a version of the weights into the object store and have an actor fetch it."""
    task_seconds: float
    """Overhead of one task: hand out, start, answer."""
    reuse: float
    batch: int


@dataclass
class Site:
    """A machine, or several."""

    name: str
    actor_cores: int
    learners: int = 1
    learner_samples: float | None = None
    """Of one learner; None: a core's, as measured."""
    machines: int = 1


def limits(constants: Constants, site: Site, tasks_per_cycle: int, games: int) -> dict[str, float]:
    """Games a second that each part could do if it alone were the limit."""
    c = constants
    per_task = c.task_seconds / games
    actors = site.actor_cores / (1 / c.games_per_core + per_task)
    speed = site.learner_samples or c.learner_samples
    learning = c.decisions_per_game * c.reuse / speed
    gradients = 0.0
    if site.learners > 1:  # twice the weights over the link in every step of a batch for each
        steps = c.decisions_per_game * c.reuse / (c.batch * site.learners)
        gradients = steps * 2 * c.weights_bytes / LINK_BYTES
    trainer = site.learners / (learning + c.trainer_seconds_per_game) if learning else 0.0
    trainer = 1 / (1 / trainer + gradients)
    found = {"actors": actors, "learner and trainer": trainer}
    if site.machines > 1:
        away = (site.machines - 1) / site.machines  # of the games; a version goes to each machine
        version = c.weights_bytes * (site.machines - 1) / (tasks_per_cycle * games)
        found["link"] = site.learners * LINK_BYTES / (c.bytes_per_game * away + version)
    return found


def timed(work: Callable[[], object], seconds: float) -> float:
    """Seconds of one call, the mean over as many as fit; the first one warms up."""
    work()
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        work()
        count += 1
    return (time.perf_counter() - began) / count


def measure(config: AlphaZeroConfig, seconds: float) -> tuple[Constants, PolicyValueNetwork]:
    """The constants that need no cluster."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = build(config.network, RULES)
    inference = Inference(make_evaluator(config, CPU))
    inference.take(network)
    played = play_task(config, Task(0, 0), inference)
    number, games, began = 1, 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        played = play_task(config, Task(number, 0), inference)
        number, games = number + 1, games + config.cluster.games
    rate = games / (time.perf_counter() - began)
    sent = pickle.dumps(played, protocol=5)
    window = replace(config.replay, start=1)
    replay = Replay(window, RULES, Observer(config.network.observation, RULES))

    def take_in() -> None:
        found: Played = pickle.loads(sent)
        replay.add(samples_of(unpack(found.batch), config.targets))

    cost = timed(take_in, seconds / 4) / config.cluster.games
    learner = Learner(network, config.learner, CPU)
    rng = np.random.default_rng(0)
    batch = config.learner.batch
    step = timed(
        lambda: learner.step(replay.draw(rng, batch, "canonical"), 0.0), max(3.0, seconds / 2)
    )
    decisions = sum(len(game.decisions) for game in unpack(played.batch)) / config.cluster.games
    weights = sum(t.numel() * t.element_size() for t in network.state_dict().values())
    constants = Constants(
        rate,
        decisions,
        len(sent) / config.cluster.games,
        cost,
        batch / step,
        float(weights),
        0.0,
        0.0,
        config.learner.reuse,
        batch,
    )
    return constants, network


def measure_cluster(
    config: AlphaZeroConfig,
    constants: Constants,
    network: PolicyValueNetwork,
    most: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Overheads of Ray, then actors with and without a learner beside them."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - actors and learner alike
    ray.init(num_cpus=most, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}

    class Echo:
        def fetch(self, weights: Any) -> int:
            return len(weights)

        def nothing(self) -> None:
            return None

    echo = ray.remote(Echo).remote()
    constants.task_seconds = timed(lambda: ray.get(echo.nothing.remote()), 2.0)
    whole = timed(lambda: ray.get(echo.fetch.remote(ray.put(weights))), 2.0)
    constants.publish_seconds = max(0.0, whole - constants.task_seconds)
    ray.kill(echo)
    rows = []
    for actors in range(1, most + 1):
        for learning in (False, True):
            cluster = replace(config.cluster, workers=actors, learner_cpus=0)
            rate, samples = run_actors(replace(config, cluster=cluster), weights, learning, seconds)
            row = {"actors": actors, "learner": learning, "games": rate, "samples": samples}
            print(row, flush=True)
            rows.append(row)
    ray.shutdown()
    return rows


def run_actors(
    config: AlphaZeroConfig, weights: dict[str, Any], learning: bool, seconds: float
) -> tuple[float, float]:
    """Games and learnt samples a second of so many actors, and a learner in this process."""
    pool = RayPool(config)
    replay = Replay(config.replay, RULES, Observer(config.network.observation, RULES))
    reference = pool.publish(weights)
    ahead = 2 * config.cluster.workers
    for number in range(ahead):
        pool.submit(Task(number, 0), reference)
    first = pool.collect(0)  # compiled, started
    replay.add(samples_of(unpack(first.batch), config.targets))
    stop = threading.Event()
    steps = 0
    learner = Learner(build(config.network, RULES), config.learner, CPU)
    rng = np.random.default_rng(0)

    def learn() -> None:
        nonlocal steps
        torch.set_num_threads(1)
        while not stop.is_set():
            learner.step(replay.draw(rng, config.learner.batch, "canonical"), 0.0)
            steps += 1

    thread = threading.Thread(target=learn)
    if learning:
        thread.start()
    began, number, games = time.perf_counter(), 1, 0
    while time.perf_counter() < began + seconds:
        pool.submit(Task(number + ahead - 1, 0), reference)
        replay.add(samples_of(unpack(pool.collect(number).batch), config.targets))
        number, games = number + 1, games + config.cluster.games
    elapsed = time.perf_counter() - began
    stop.set()
    if learning:
        thread.join()
    pool.close()
    return games / elapsed, steps * config.learner.batch / elapsed


def fit(constants: Constants, rows: list[dict[str, Any]]) -> float:
    """Self-play rate of a core by least squares over the actors alone; returns its residual."""
    alone = [(row["actors"], row["games"]) for row in rows if not row["learner"]]
    if not alone:
        return 0.0
    actors, games = np.array(alone, dtype=float).T
    constants.games_per_core = float((actors * games).sum() / (actors**2).sum())
    predicted = actors * constants.games_per_core
    return float(np.abs(predicted / games - 1).max())


def measure_all(config: AlphaZeroConfig, seconds: float, actors: int) -> dict[str, Any]:
    constants, network = measure(config, seconds)
    rows = measure_cluster(config, constants, network, actors, seconds)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count() or 1,
        "residual": fit(constants, rows),
        "constants": vars(constants),
        "actors_x_learner": rows,
    }


def sites(cores: int) -> list[Site]:
    card = CARD_STEPS * 1024
    return [
        Site(f"{cores} cores, one of them learning", max(1, cores - 1)),
        Site("64 cores, one of them learning", 63),
        Site("1 GPU + 64 cores", 63, learner_samples=card),
        Site("8 nodes of 64 cores, 1 GPU", 511, learner_samples=card, machines=8),
        Site("8 nodes of 64 cores and 1 GPU, 8 learners", 504, 8, card, 8),
    ]


def tables(found: dict[str, Any]) -> str:
    """The measured constants, the check of the model, and what it says of larger machines."""
    c = found["constants"]
    lines = [
        f"Measured {found['date']} on {found['cores']} cores{found['note']}:",
        "",
        "| constant | value |",
        "|---|---|",
        f"| self-play of one core | {c['games_per_core']:.1f} games/s |",
        f"| decisions of a game that are learnt from | {c['decisions_per_game']:.1f} |",
        f"| a game on the wire | {c['bytes_per_game']:,.0f} bytes |",
        f"| a game in the trainer's process | {1e3 * c['trainer_seconds_per_game']:.2f} ms |",
        f"| learner on one core | {c['learner_samples']:,.0f} samples/s |",
        f"| a version of the weights | {c['weights_bytes'] / 1e6:.2f} MB, published and fetched in "
        f"{1e3 * c['publish_seconds']:.1f} ms |",
        f"| overhead of a task | {1e3 * c['task_seconds']:.1f} ms |",
        "",
        "| actors | learner beside them | games/s | samples/s learnt |",
        "|---|---|---|---|",
    ]
    for row in found["actors_x_learner"]:
        learner = "yes" if row["learner"] else "no"
        lines.append(
            f"| {row['actors']} | {learner} | {row['games']:.1f} | {row['samples']:,.0f} |"
        )
    lines += [
        "",
        f"A rate proportional to the actors misses these by {100 * found['residual']:.0f} % at "
        "most (actors alone; there are no more cores than actors).",
        "",
        "| site | actors could | learner and trainer could | link could | so: games/s | bound by |",
        "|---|---|---|---|---|---|",
    ]
    for site in found["sites"]:
        parts = site["limits"]
        link = f"{parts['link']:,.0f}" if "link" in parts else "-"
        lines.append(
            f"| {site['name']} | {parts['actors']:,.0f} | {parts['learner and trainer']:,.0f} | "
            f"{link} | {min(parts.values()):,.0f} | {min(parts, key=parts.__getitem__)} |"
        )
    return "\n".join(lines)


def save_plot(found: dict[str, Any], constants: Constants, config: Any, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    cores = np.unique(np.logspace(0, np.log10(512), 60).astype(int))
    card = CARD_STEPS * 1024
    kinds = {
        "learner on a core": Site("", 1),
        "learner on a card (assumed)": Site("", 1, learner_samples=card),
        "8 learners on cards (assumed)": Site("", 1, 8, card, 8),
    }
    for label, kind in kinds.items():
        rates = [
            min(limits(constants, replace(kind, actor_cores=n), *config).values())
            for n in cores.tolist()
        ]
        axes.plot(cores, rates, label=label)
    alone = [row for row in found["actors_x_learner"] if not row["learner"]]
    axes.plot(
        [row["actors"] for row in alone],
        [row["games"] for row in alone],
        "ko",
        label="measured, actors alone",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("cores that play")
    axes.set_ylabel("games per second")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def write_between_marks(path: Path, text: str) -> None:
    begin, end = MARKS
    whole = path.read_text(encoding="utf-8")
    pattern = re.escape(begin) + ".*" + re.escape(end)
    new, count = re.subn(pattern, lambda _: f"{begin}\n{text}\n{end}", whole, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{path} lacks the marks {begin} and {end}")
    path.write_text(new, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--actors", type=int, default=os.cpu_count() or 1, help="the most actors")
    parser.add_argument("--games", type=int, default=256, help="of one task")
    parser.add_argument("--note", default="", help="words about this machine, for the table")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw the model into this PNG file")
    parser.add_argument("--again", type=Path, help="read the measurements from this file instead")
    parser.add_argument("--write", type=Path, help="renew the tables in this Markdown file")
    options = parser.parse_args()
    cluster = ClusterConfig("ray", games=options.games)
    config = AlphaZeroConfig(run=tempfile.gettempdir(), device="cpu", cluster=cluster)
    if options.again:
        found = json.loads(options.again.read_text())
        constants = Constants(**found["constants"])
    else:
        found = measure_all(config, options.seconds, options.actors)
        found["note"] = f" ({options.note})" if options.note else ""
        constants = Constants(**found["constants"])
    pace = config.cluster.tasks_per_cycle, config.cluster.games
    found["assumed"] = {"card_steps": CARD_STEPS, "link_bytes": LINK_BYTES}
    found["sites"] = [
        {**vars(site), "limits": limits(constants, site, *pace)} for site in sites(found["cores"])
    ]
    text = tables(found)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.plot:
        save_plot(found, constants, pace, options.plot)
    if options.write:
        write_between_marks(options.write, text)


if __name__ == "__main__":
    main()
