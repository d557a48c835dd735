"""How well can a network learn the truth? Teach it exact values instead of those of self-play.

    pylos-solve --rules advanced
    python scripts/teach_truth.py --seconds 90 kind=symmetric width=256 blocks=2

It bounds what any targets of self-play could do in that time of one core. Half of the positions
come from random games, half from games of a level of the ladder with many random actions; each
stands once up to symmetry and exchange of colours, and the labelled ones are left out.
A position's value is the table's, its policy even over the actions that keep it. At the end the
network answers the labelled positions, by its policy alone and with 64 simulations.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from pylos_env import kernel, oracle
from pylos_env._jit import jit, popcount
from pylos_env.observation import Observer
from pylos_env.oracle import Oracle
from pylos_env.oracle.labels import load_labels, values_of
from pylos_env.rules import Rules
from trainers.alphazero.config import LearnerConfig, ReplayConfig, SelfPlayConfig
from trainers.alphazero.evaluate import freeze, player
from trainers.alphazero.learner import Learner
from trainers.alphazero.replay import Replay
from trainers.alphazero.selfplay import GameGroup
from trainers.alphazero.targets import SHARE, Samples
from trainers.checkpoint_file import load_weights
from trainers.evaluator import write_canonical
from trainers.network import NetworkConfig, build
from trainers.players import find_checkpoint, load_evaluator
from trainers.running import flushing_denormals
from trainers.search import SearchConfig
from trainers.search.tree import Ints

RULES = Rules.of("advanced")
STRAYS = (0.2, 0.4, 0.8)
"""The largest share of random actions in each third of the games."""
CHUNK = 200_000


def draw_positions(count: int, seed: int) -> Ints:
    """Half of them from random games, evenly over the number of spheres, half from played ones."""
    found = np.empty(count // 2, dtype=np.int64)
    parts = [found[: _write_random(RULES.code, seed, found)]]
    level = load_evaluator(load_weights(find_checkpoint("Expert")[0]), "cpu")
    for stray in STRAYS:
        config = SelfPlayConfig(stray_share=stray, resign=1.0, quick_simulations=1)
        group = GameGroup(RULES, SearchConfig(simulations=2), config, seed, 0, 1, canonical=True)
        left = count // 2 // len(STRAYS)
        while left > 0:
            for game in group.step(level):
                played = np.array([decision.packed for decision in game.decisions], dtype=np.int64)
                parts.append(played[:left])
                left -= len(played)
    positions = np.unique(_one_of_a_kind(np.concatenate(parts)))
    return np.setdiff1d(positions, _one_of_a_kind(load_labels(RULES).packed))


@jit
def _write_random(rules: int, seed: int, found: Ints) -> int:
    """Fill `found` with positions of random games; returns how many there are."""
    most = len(found) // 29 + 1
    counts = np.zeros(31, dtype=np.int64)
    number = 0
    for game in range(40 * len(found)):
        position, key = kernel.START, kernel.draw(seed, game)
        for ply in range(200):
            action = kernel.random_action(position, rules, kernel.draw(key, ply))
            position = kernel.play(position, rules, action)
            if kernel.is_over(position, rules):
                break
            spheres = popcount(kernel.spheres_of(position, 0) | kernel.spheres_of(position, 1))
            if counts[spheres] < most and kernel.draw(key, 1000 + ply) % 4 == 0:
                counts[spheres] += 1
                found[number] = position
                number += 1
                if number == len(found):
                    return number
    return number


def _one_of_a_kind(packed: Ints) -> Ints:
    """Positions as their side to move sees them, under the symmetry that comes first."""
    seen, shown = np.empty_like(packed), np.empty_like(packed)
    _write_seen(packed, seen)
    write_canonical(seen, shown, np.empty_like(packed))
    return shown


@jit
def _write_seen(packed: Ints, seen: Ints) -> None:
    for row in range(len(packed)):
        side = kernel.side_of(packed[row])
        own = kernel.spheres_of(packed[row], side)
        other = kernel.spheres_of(packed[row], 1 - side)
        seen[row] = kernel.pack(own, other, 0, kernel.take_backs_left(packed[row]))


def true_samples(truth: Oracle, packed: Ints) -> Samples:
    """Positions with their exact values, and policies even over what keeps them."""
    labels = truth.label(packed)
    counts = np.diff(labels.begin)
    keeps = values_of(labels.after) == np.repeat(labels.values, counts)
    kept = np.add.reduceat(keeps, labels.begin[:-1], dtype=np.int64)
    policy = (SHARE * keeps / np.repeat(kept, counts)).astype(np.uint16)
    weight = np.ones(len(packed), dtype=np.float32)
    values, untried = labels.values.astype(np.float32), weight.astype(np.float16)
    return Samples(packed, values, weight, untried, labels.begin, policy)


@flushing_denormals()
def teach(learner: Learner, replay: Replay, seconds: float, canonical: bool) -> None:
    rng = np.random.default_rng(0)
    batch = learner.config.batch
    view = "canonical" if canonical else "random"
    learner.step(replay.draw(rng, batch, view), 0.0)  # kernels are compiled
    began = shown = time.process_time()
    value_losses: list[float] = []
    while (spent := time.process_time() - began) < seconds:
        report = learner.step(replay.draw(rng, batch, view), spent / seconds)
        value_losses.append(report.value_loss)
        if time.process_time() > shown + 20:
            shown = time.process_time()
            loss = np.mean(value_losses[-200:])
            print(f"{spent:.0f} s, {learner.steps * batch:,} samples, value {loss:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="of learning, on one core")
    parser.add_argument("--positions", type=int, default=2_000_000, help="to learn from")
    parser.add_argument("--every", type=int, default=1, help="ask each so-many-th labelled one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("network", nargs="*", help="settings such as kind=patterns width=128")
    options = parser.parse_args()
    settings: dict[str, Any] = {"kind": "symmetric", "canonical": True}
    for setting in options.network:
        name, _, value = setting.partition("=")
        words = {"true": True, "false": False}
        settings[name] = int(value) if value.isdigit() else words.get(value, value)
    try:
        config = NetworkConfig(**settings)
        config.check()
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    network = build(config, RULES)
    truth = Oracle.open(RULES)
    packed = draw_positions(options.positions, options.seed)
    replay = Replay(
        ReplayConfig(len(packed), len(packed)), RULES, Observer(config.observation, RULES)
    )
    for begin in range(0, len(packed), CHUNK):
        replay.add(true_samples(truth, packed[begin : begin + CHUNK]))
    print(f"{config}: {len(replay):,} positions", flush=True)
    learner = Learner(network, LearnerConfig(), torch.device("cpu"))
    teach(learner, replay, options.seconds, config.canonical)
    frozen = freeze(learner.playing, RULES, torch.device("cpu"))
    for simulations in (0, 64):
        name = f"{simulations} simulations, {learner.steps * learner.config.batch:,} samples"
        print(oracle.benchmark(player(frozen, simulations, name), RULES, every=options.every))


if __name__ == "__main__":
    main()
