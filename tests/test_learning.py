"""A real learning test: AlphaZero learns the small board until it hardly ever errs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pylos_env import kernel, oracle
from pylos_env.oracle import Oracle, solve
from pylos_env.rules import Rules
from trainers.alphazero.config import (
    AlphaZeroConfig,
    BudgetConfig,
    EvaluationConfig,
    GateConfig,
    LearnerConfig,
    ReplayConfig,
    SelfPlayConfig,
    TargetsConfig,
)
from trainers.alphazero.selfplay import random_opening
from trainers.alphazero.train import train
from trainers.checkpoints import RunFolder
from trainers.metrics import MemorySink, Metrics
from trainers.network import NetworkConfig
from trainers.players import SearchPlayer, load_evaluator
from trainers.search import SearchConfig

RULES = Rules.of("advanced levels=3")


def random_positions(count: int) -> np.ndarray:
    """Positions of random games, none of them twice."""
    keys = [kernel.draw(77, number) for number in range(count)]
    found = {random_opening(RULES.code, key, kernel.pick(kernel.draw(key, 5), 20)) for key in keys}
    return np.array(sorted(found - {kernel.START}), dtype=np.int64)


def test_alphazero_learns_the_small_board(tmp_path: Path) -> None:
    """At 64 simulations at least 99 % of its actions keep the exact value, where some would not."""
    config = AlphaZeroConfig(
        rules=str(RULES),
        run=str(tmp_path / "run"),
        device="cpu",
        console="off",
        network=NetworkConfig("patterns", width=64, blocks=2, canonical=True),
        search=SearchConfig(simulations=24, c_scale=0.25),
        selfplay=SelfPlayConfig(
            games=256,
            groups=1,
            plies_per_cycle=8,
            quick_simulations=24,
            opening_share=0.9,
            opening_plies=20,
        ),
        targets=TargetsConfig(root_share=0.1, final_root_share=0.5, sharpen=0.0),
        replay=ReplayConfig(start=4000, easy_share=1.0),
        # float32, to be alike on any processor
        learner=LearnerConfig(batch=256, reuse=4.0, learning_rate=6e-3, matrix_rate=0.0, amp=False),
        gate=GateConfig(games=0),
        evaluation=EvaluationConfig(every_steps=10**9, games=2, opponents=[], simulations=1),
        budget=BudgetConfig(minutes=0, steps=3000),
    )
    train(config, Metrics([MemorySink()]))
    checkpoint = RunFolder(tmp_path / "run", writable=False).load("latest", with_state=False)
    learnt = SearchPlayer(
        load_evaluator(checkpoint, "cpu"), SearchConfig(simulations=64, gumbel_scale=0.0), seed=0
    )
    solve.Solver("advanced", 3, tmp_path, report=lambda text: None).solve()
    labels = Oracle.open(RULES, tmp_path).label(random_positions(10_000))
    report = oracle.benchmark(learnt, RULES, labels=labels)
    assert report.preserving.total > 2000
    assert report.preserving.rate >= 0.99, report
    assert oracle.benchmark("rule_based", RULES, labels=labels).preserving.rate < 0.8
