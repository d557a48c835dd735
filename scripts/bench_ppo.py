"""Speed and learning curves beside sb3-contrib's MaskablePPO: `python scripts/bench_ppo.py`.

Both train on this package's environments, with the very same network (the peer gets our body as its
feature extractor and heads of the same sizes), on the same cores, in one run. Ours has its default
settings: what it does with symmetries, precision and opponents is part of it.

1. Speed: the two take turns. Environment steps of both seats a second, rollout and update included;
   the peer's opponent moves inside its environment, and its plies count too. The peer runs as it
   comes (10 epochs, minibatches of 64; 8 games), with the settings of our `experiment=classic`, and
   made as fast as we could: as few epochs as ours, with every combination of games and torch
   threads below. There is a ratio to each; the fastest one is the strictest.
2. Learning: each trains for `--seconds` of wall-clock time. Now and then both play the same match
   against `rule_based` (paired openings, likeliest actions); that time is not counted.

Writes runs/bench_ppo.json and runs/bench_ppo.png. Needs `pip install "pylos-env[dev]"`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gymnasium
import matplotlib
import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

matplotlib.use("Agg")
from matplotlib import pyplot

import pylos_env  # noqa: F401  (registers the environment with Gymnasium)
from pylos_env import Rules, kernel
from pylos_env.agents import Agent
from pylos_env.batch import default_threads
from pylos_env.observation import Observer
from trainers.arena import play_match
from trainers.checkpoints import EPISODES, RunFolder
from trainers.metrics import MemorySink, Metrics, Scalars
from trainers.network import NetworkConfig, build
from trainers.ppo.config import BudgetConfig, EvaluationConfig, PPOConfig
from trainers.ppo.train import Trainer, train
from trainers.running import torch_threads, workers

RULES = Rules.of("advanced")
PEER_GAMES = (8, 64)
PEER_STEPS = 2048  # of all games in a rollout, as is usual
BARS = (0.8, 0.95)
"""Win rates against rule_based: what the customer asked for, and what we did."""
PACKAGES = ("pylos-env", "torch", "numba", "sb3-contrib", "stable-baselines3")


class Setting(NamedTuple):
    """How the peer runs."""

    games: int
    epochs: int
    minibatch: int
    threads: int  # of torch

    def __str__(self) -> str:
        return (
            f"{self.games} games, {self.epochs} epochs, minibatches of {self.minibatch}, "
            f"{self.threads} torch threads"
        )


class Point(NamedTuple):
    """A point of a learning curve."""

    seconds: float
    steps: int
    win_rate: float


# Ours


def our_config(network: NetworkConfig, folder: str, seed: int) -> PPOConfig:
    return PPOConfig(run=folder, device="cpu", console="off", network=network, seed=seed)


class OurSpeed:
    """Rounds of play and update, one after the other."""

    def __init__(self, network: NetworkConfig, seed: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        run = RunFolder(self._folder.name, naming=EPISODES)
        self._trainer = Trainer(our_config(network, self._folder.name, seed), run)

    def measure(self, seconds: float) -> float:
        trainer = self._trainer
        with torch_threads(1), workers(trainer.threads) as pool:
            self._warm_up(pool)
            began, before = time.perf_counter(), trainer.steps
            while time.perf_counter() - began < seconds:
                trainer.iterate(pool)
            return (trainer.steps - before) / (time.perf_counter() - began)

    def _warm_up(self, pool: ThreadPoolExecutor) -> None:
        if not self._trainer.steps:  # kernels are compiled in the first round
            self._trainer.iterate(pool)


def our_curve(
    network: NetworkConfig, seconds: float, points: int, games: int, seed: int
) -> list[Point]:
    with tempfile.TemporaryDirectory() as folder:
        config = our_config(network, folder, seed)
        config.budget = BudgetConfig(minutes=seconds / 60)
        config.evaluation = EvaluationConfig(
            every_minutes=seconds / 60 / points,
            games=games,
            opponents=["rule_based"],
            oracle_every=0,
        )
        sink = MemorySink()
        train(config, Metrics([sink]))
    found, progress = [Point(0.0, 0, 0.0)], 0.0
    for event in sink.events:
        if isinstance(event, Scalars):
            progress = event.values.get("perf/progress", progress)
            if "eval/win_rate_vs_rule_based" in event.values:
                win_rate = event.values["eval/win_rate_vs_rule_based"]
                found.append(Point(progress * seconds, event.step, win_rate))
    return found


# The peer


class Body(BaseFeaturesExtractor):
    """The body of one of our networks."""

    def __init__(self, observation_space: Any, network: NetworkConfig) -> None:
        body = build(network, RULES).body
        with torch.no_grad():
            size = body(torch.zeros(1, *observation_space.shape)).shape[1]
        super().__init__(observation_space, size)
        self.body = body

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.body(observations)
        return features


class CountPlies(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the plies of both seats."""

    plies = 0

    def reset(self, **options: Any) -> Any:
        answer = self.env.reset(**options)
        self.plies += self.env.unwrapped._game.plies  # type: ignore[attr-defined]
        return answer

    def step(self, action: Any) -> Any:
        game = self.env.unwrapped
        before = game._game.plies  # type: ignore[attr-defined]
        answer = self.env.step(action)
        self.plies += game._game.plies - before  # type: ignore[attr-defined]
        return answer


class Watch(BaseCallback):
    """Stops at a time, and calls `at_point` whenever the next point is due."""

    def __init__(self, seconds: float, points: int, at_point: Any) -> None:
        super().__init__()
        self._seconds, self._points, self._at_point = seconds, points, at_point
        self._done = 0

    def _on_training_start(self) -> None:
        self._began = time.perf_counter()

    def _on_step(self) -> bool:
        return time.perf_counter() - self._began < self._seconds

    def _on_rollout_start(self) -> None:  # the update is over
        self.between()

    def between(self) -> None:
        elapsed = time.perf_counter() - self._began
        if elapsed >= (self._done + 1) * self._seconds / self._points:
            self._done = int(elapsed / self._seconds * self._points)
            self._at_point(elapsed)
            self._began += time.perf_counter() - self._began - elapsed  # not counted


class Peer(Agent):
    """MaskablePPO with our network, against an opponent; as an agent it plays its likeliest."""

    name = "MaskablePPO"

    def __init__(self, network: NetworkConfig, opponent: str, setting: Setting, seed: int) -> None:
        super().__init__(seed)
        self.setting = setting
        self._observer = Observer("flat", RULES)

        def make() -> Any:
            options = {"opponent": opponent, "seat": "random", "max_plies": 200}
            return CountPlies(gymnasium.make("pylos_env/Pylos-v0", **options))

        heads = [256] if network.kind == "mlp_deep" else []
        self.envs = DummyVecEnv([make] * setting.games)
        self.model = MaskablePPO(
            "MlpPolicy",
            self.envs,
            n_steps=PEER_STEPS // setting.games,
            batch_size=setting.minibatch,
            n_epochs=setting.epochs,
            seed=seed,
            device="cpu",
            policy_kwargs={
                "features_extractor_class": Body,
                "features_extractor_kwargs": {"network": network},
                "net_arch": {"pi": heads, "vf": heads},
                "activation_fn": torch.nn.ReLU,
            },
        )

    @property
    def plies(self) -> int:
        return sum(env.plies for env in self.envs.envs)  # type: ignore[attr-defined]

    def learn(self, seconds: float, points: int = 1, at_point: Any = lambda elapsed: None) -> None:
        watch = Watch(seconds, points, at_point)
        self.model.learn(1 << 60, callback=watch, reset_num_timesteps=False)

    def measure(self, seconds: float) -> float:
        with torch_threads(self.setting.threads):
            began, before = time.perf_counter(), self.plies
            self.learn(seconds)
            return (self.plies - before) / (time.perf_counter() - began)

    def act(self, position: Any, key: int | None = None) -> int:
        return int(self.act_batch(np.array([position.packed]), position.rules, np.zeros(1))[0])

    def act_batch(
        self, packed: npt.NDArray[np.int64], rules: Rules, keys: npt.NDArray[Any]
    ) -> npt.NDArray[np.int64]:
        views = np.stack([self._observer.observe(p, kernel.side_of(p)) for p in packed.tolist()])
        masks = np.empty((len(packed), kernel.NUM_ACTIONS), dtype=np.int8)
        for row, position in enumerate(packed.tolist()):
            kernel.write_mask(position, rules.code, masks[row])
        actions, _ = self.model.predict(views, action_masks=masks, deterministic=True)
        return np.asarray(actions, dtype=np.int64)


def peer_curve(peer: Peer, seconds: float, points: int, games: int) -> list[Point]:
    found = [Point(0.0, 0, 0.0)]

    def at_point(elapsed: float) -> None:
        match = play_match(peer, "rule_based", RULES, games=games)
        found.append(Point(elapsed, peer.plies, match.wins / games))

    peer.learn(seconds, points, at_point)
    if found[-1].seconds < seconds:
        at_point(seconds)
    return found


# The report


def draw(report: dict[str, Any], path: Path) -> None:
    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    for name, speed in (("ours", "ours"), ("MaskablePPO", "peer")):
        points = report["curves"][name]
        rate = report["steps_per_second"][speed]
        axis.plot(
            [point["seconds"] / 60 for point in points],
            [point["win_rate"] for point in points],
            marker=".",
            label=f"{name}: {rate:,.0f} steps/s",
        )
    for bar in BARS:
        axis.axhline(bar, color="grey", linewidth=0.8, linestyle="--")
    axis.set_xlabel("minutes of training")
    axis.set_ylabel("games won against rule_based")
    axis.set_ylim(0, 1)
    axis.legend(loc="center right")
    axis.set_title(f"The same network ({report['network']['kind']}), {report['cores']} cores")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    network = PPOConfig().network
    if options.network:
        network = NetworkConfig(kind=options.network, width=options.width)
    cores = default_threads()
    epochs = PPOConfig().update.epochs
    default, classic = Setting(8, 10, 64, threads=1), Setting(8, 4, 256, threads=1)
    fast = [
        Setting(games, epochs, minibatch=256, threads=threads)
        for games in PEER_GAMES
        for threads in dict.fromkeys((1, cores))
    ]
    ours = OurSpeed(network, options.seed)
    settings = list(dict.fromkeys((default, classic, *fast)))
    peers = [Peer(network, options.opponent, key, options.seed) for key in settings]
    speeds: dict[str, list[float]] = {"ours": [], **{str(peer.setting): [] for peer in peers}}
    for _ in range(options.repeats):
        speeds["ours"].append(ours.measure(options.speed_seconds))
        for peer in peers:
            speeds[str(peer.setting)].append(peer.measure(options.speed_seconds))
    medians = {name: median(found) for name, found in speeds.items()}
    best = max(settings, key=lambda setting: medians[str(setting)])
    ratios = {
        name: medians["ours"] / medians[str(setting)]
        for name, setting in (
            ("to_its_defaults", default),
            ("to_classic_settings", classic),
            ("to_its_fastest", best),
        )
    }
    for name, found in medians.items():
        print(f"{'ours' if name == 'ours' else 'MaskablePPO, ' + name}: {found:,.0f} steps/s")
    print(", ".join(f"ratio {name}: {ratio:.1f}" for name, ratio in ratios.items()), flush=True)
    curves = {
        "ours": our_curve(network, options.seconds, options.points, options.games, options.seed)
    }
    with torch_threads(best.threads):
        peer = Peer(network, options.opponent, best, options.seed)
        curves["MaskablePPO"] = peer_curve(peer, options.seconds, options.points, options.games)
    return {
        "network": asdict(network),
        "weights": sum(p.numel() for p in build(network, RULES).parameters()),
        "cores": cores,
        "machine": platform.processor() or platform.machine(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "opponent_of_the_peer": options.opponent,
        "our_config": PPOConfig(network=network).to_dict(),
        "peer_of_the_curve": best._asdict(),
        "steps_per_second": {"ours": medians["ours"], "peer": medians[str(best)]},
        "ratios": ratios,
        "all_speeds": speeds,
        "curves": {name: [point._asdict() for point in found] for name, found in curves.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Our PPO beside sb3-contrib's MaskablePPO.")
    parser.add_argument("--seconds", type=float, default=300, help="of training for a curve")
    parser.add_argument("--speed-seconds", type=float, default=8, help="of one speed round")
    parser.add_argument("--repeats", type=int, default=3, help="speed rounds of each")
    parser.add_argument("--points", type=int, default=10, help="of a curve")
    parser.add_argument("--games", type=int, default=200, help="of the match at each point")
    parser.add_argument(
        "--network", help="mlp, mlp_deep, resmlp or patterns instead of the default"
    )
    parser.add_argument(
        "--width", type=int, default=PPOConfig().network.width, help="of the last two"
    )
    parser.add_argument("--opponent", default="rule_based", help="whom the peer trains against")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the two files")
    options = parser.parse_args()
    report = measure(options)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bench_ppo.json").write_text(json.dumps(report, indent=2) + "\n")
    draw(report, options.out / "bench_ppo.png")
    for name, points in report["curves"].items():
        print(f"{name}: {points[-1]['win_rate']:.1%} against rule_based in the end")


if __name__ == "__main__":
    main()
