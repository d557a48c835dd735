"""Uses everything once, so that the image holds its compiled kernels. Run by the Dockerfile.

Kernels go to NUMBA_CACHE_DIR, for the processor that NUMBA_CPU_NAME names. The folders are left
open to every user: where a kernel cannot be added to the cache, Numba does not read it either.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = [
    "trainers.alphazero experiment=smoke",
    "trainers.alphazero experiment=smoke selfplay.backend=processes search.root=puct",
    "trainers.alphazero experiment=smoke network=resnet network.blocks=1 network.channels=8",
    "trainers.ppo experiment=smoke",
    "trainers.ppo experiment=smoke network=resnet network.blocks=1 network.channels=8",
    "trainers.arena random rule_based alphabeta:2 --games 4",
    "trainers.play --white rule_based --black alphabeta:2",
    "pylos_env.oracle.measure --agent alphabeta:2 --every 500",
    "pylos_env.oracle.solve --rules advanced --levels 3 --out tables",
]

ENVIRONMENTS = """
import gymnasium
from pylos_env import Position, pylos_v0
from pylos_env.testing import perft
from pylos_env.vector import SelfPlayVectorEnv

for observation in ("flat", "planes"):
    env = pylos_v0.env(observation=observation, render_mode="ansi")
    env.reset(seed=1)
    env.step(0)
    env.last()
    env.render()
    gymnasium.make("pylos_env/Pylos-v0", opponent="random", observation=observation).reset(seed=1)
    envs = gymnasium.make_vec(
        "pylos_env/Pylos-v0", num_envs=4, opponent="random", observation=observation
    )
    mask = envs.reset(seed=1)[1]["action_mask"]
    envs.step(mask.argmax(axis=1))
    games = SelfPlayVectorEnv(4, observation=observation)
    games.step(games.reset().action_mask.argmax(axis=1))
perft(Position.start(), 3)
"""

WEB = """
from pylos_web.cli import warm_up
from pylos_web.levels import Levels
from pylos_web.server import create_app
from trainers.players import ladder_folder

for folder in (ladder_folder(), None):
    levels = Levels.load(folder, 800)
    warm_up(levels, create_app(levels).state.analyst)
"""


def main() -> None:
    """Run all of it in a folder that goes away; one failure fails the build."""
    cache = Path(os.environ["NUMBA_CACHE_DIR"])
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            run("-m", *command.split(), folder=folder)
        run("-c", ENVIRONMENTS, folder=folder)
        run("-c", WEB, folder=folder)
    for path in [cache, *cache.rglob("*")]:
        path.chmod(0o1777 if path.is_dir() else 0o644)
    print(f"{len(list(cache.rglob('*.nbc')))} kernels in {cache}")


def run(*arguments: str, folder: str) -> None:
    """One Python process; what it prints is shown only where it fails."""
    print("warming:", " ".join(" ".join(arguments).split())[:80], flush=True)
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "HOME": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        sys.exit(f"{arguments} failed:\n{result.stdout}")


if __name__ == "__main__":
    main()
