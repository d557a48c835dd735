"""What the tests of AlphaZero share: a tiny run, made-up samples, configs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pylos_env import Rules
from pylos_env.observation import Observer
from pylos_env.testing import random_game
from trainers import paths
from trainers.alphazero.cli import AlphaZeroConfig  # from here, since that registers it
from trainers.alphazero.config import (
    BudgetConfig,
    EvaluationConfig,
    GateConfig,
    LearnerConfig,
    ReplayConfig,
    SelfPlayConfig,
)
from trainers.alphazero.replay import Batch, Replay
from trainers.alphazero.targets import SHARE, Samples
from trainers.alphazero.train import train
from trainers.checkpoints import RunFolder
from trainers.metrics import MemorySink, Metrics, Scalars
from trainers.network import NetworkConfig
from trainers.search import SearchConfig

RULES = Rules.of("advanced")


def tiny(folder: Path, **changes: object) -> AlphaZeroConfig:
    """A run of a second or two."""
    config = AlphaZeroConfig(
        run=str(folder),
        device="cpu",
        console="off",
        network=NetworkConfig(width=16, blocks=1),
        search=SearchConfig(simulations=6),
        selfplay=SelfPlayConfig(
            games=8,
            backend="threads",
            quick_simulations=3,
            plies_per_cycle=6,
            full_share=0.5,
            memory=64,  # too small for a round: what it drops must not depend on the past
        ),
        replay=ReplayConfig(start=60, capacity=2000, easy_share=0.5),
        learner=LearnerConfig(batch=32, warmup=3, reuse=3.0),
        gate=GateConfig(games=2, simulations=2),
        evaluation=EvaluationConfig(
            every_steps=15, games=2, opponents=["rule_based"], simulations=2, oracle_every=1000
        ),
        budget=BudgetConfig(minutes=0, steps=40),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def numbered(first: int, count: int) -> Samples:
    """Samples whose value is their number."""
    positions = [p for p in random_game(RULES, 3).positions() if p.legal_actions()]
    chosen = [positions[number % len(positions)] for number in range(first, first + count)]
    sizes = [len(p.legal_actions()) for p in chosen]
    ones = enumerate(sizes, first)
    policies = [np.eye(size, dtype=np.float32)[number % size] for number, size in ones]
    return Samples(
        np.array([p.packed for p in chosen], dtype=np.int64),
        np.arange(first, first + count, dtype=np.float32),
        np.ones(count, dtype=np.float32),
        np.ones(count, dtype=np.float16),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        (np.concatenate(policies) * SHARE).astype(np.uint16),
    )


def make_replay(**settings: float) -> Replay:
    config = ReplayConfig(**settings)  # type: ignore[arg-type]
    return Replay(config, RULES, Observer("flat", RULES))


def fixed_batch(replay: Replay, size: int) -> Batch:
    return replay.batch(np.arange(size) % len(replay), np.zeros(size, dtype=np.int64))


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    return RunFolder(folder, writable=False).load("latest").weights


def run_quietly(config: AlphaZeroConfig) -> list[Scalars]:
    sink = MemorySink()
    train(config, Metrics([sink]))
    return [event for event in sink.events if isinstance(event, Scalars)]


def composed(*overrides: str) -> AlphaZeroConfig:
    with initialize_config_dir(str(paths.configs() / "alphazero"), version_base="1.3"):
        config = OmegaConf.to_object(compose("config", overrides=list(overrides)))
    assert isinstance(config, AlphaZeroConfig)
    return config
