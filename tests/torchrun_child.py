"""What `torchrun` starts in test_distributed.py: each process writes what it ends with.

torchrun --nproc-per-node=2 tests/torchrun_child.py <folder>
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import torch

from pylos_env import Rules
from pylos_env.observation import Observer
from tests.alphazero_tools import fixed_batch, numbered, tiny
from trainers.alphazero.config import AlphaZeroConfig, LearnerConfig, ReplayConfig
from trainers.alphazero.learner import Learner
from trainers.alphazero.replay import Batch, Replay
from trainers.alphazero.train import Trainer, _train
from trainers.checkpoints import RunFolder
from trainers.distributed import Rank, joined
from trainers.metrics import Metrics
from trainers.network import NetworkConfig, build

RULES = Rules.of("advanced")
STEPS = 4
STOP = 3  # steps of a run
NETWORKS = {
    "resmlp": NetworkConfig(width=16, blocks=1),
    "wdl": NetworkConfig(width=16, blocks=1, value_head="wdl"),
    "resnet": NetworkConfig("resnet", blocks=1, channels=4),
}


def joined_batch(network: NetworkConfig) -> Batch:
    """Values are known for few samples of the first half and most of the second."""
    replay = Replay(ReplayConfig(), RULES, Observer(network.observation, RULES))
    samples = numbered(0, 64)
    replay.add(samples._replace(value=samples.value / 64))
    weight = (torch.arange(64) >= 32).float()
    weight[::5] = 1 - weight[::5]
    return fixed_batch(replay, 64)._replace(weight=weight)


def learn(network: NetworkConfig, accumulate: int, rank: Rank) -> Learner:
    """Steps on this process's part of the batch."""
    torch.manual_seed(0)
    # Muon would make much of the last digits, in which sums of two parts differ
    config = LearnerConfig(amp=False, accumulate=accumulate, warmup=0, matrix_rate=0.0)
    learner = Learner(build(network, RULES), config, torch.device("cpu"), rank)
    batch = joined_batch(network)
    size = rank.share(64)
    part = Batch(*(tensor[rank.index * size :][:size] for tensor in batch))
    for _ in range(STEPS):
        learner.step(part, 0.0)
    return learner


def short(folder: Path) -> AlphaZeroConfig:
    config = tiny(folder)
    config.learner.reuse = 0.8
    config.evaluation.every_steps = 5
    config.evaluation.oracle_every = 0
    config.budget.steps = 12
    return config


def interrupt(folder: Path, rank: Rank) -> None:
    """A whole run, and one that is stopped by the second process alone and then resumed."""
    _train(short(folder / "whole"), Metrics([]), rank)
    config = short(folder / "parts")
    run = RunFolder(folder / "parts") if rank.leads else None
    trainer = Trainer(config, run, rank)
    cycle = trainer.cycle

    def counted() -> None:
        if trainer.learner.steps >= STOP and not rank.leads:
            trainer.stopped.set()
        cycle()

    trainer.cycle = counted  # type: ignore[method-assign]
    trainer.run(Metrics([]))
    assert 0 < trainer.learner.steps < 12
    trainer.workers.close()
    if run is not None:
        run.close()
    _train(dataclasses.replace(config, resume=str(folder / "parts"), run=""), Metrics([]), rank)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    with joined() as rank:
        found = {
            f"{name} {parts}": dict(learn(network, parts, rank).playing.state_dict())
            for name, network in NETWORKS.items()
            for parts in (1, 2)
        }
        torch.save(found, folder / f"rank{rank.index}.pt")
        interrupt(folder, rank)


if __name__ == "__main__":
    main()
