"""Several processes train one network, started by torchrun, over Gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pylos_env import PylosError
from tests import torchrun_child
from tests.alphazero_tools import last_weights, tiny
from trainers.alphazero.train import train
from trainers.checkpoints import RunFolder
from trainers.distributed import ALONE, Rank, rank_here
from trainers.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.xdist_group("torchrun")  # they share what two processes have done


def torchrun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes have left behind."""
    folder = tmp_path_factory.mktemp("two")
    child = torchrun(folder, str(ROOT / "tests" / "torchrun_child.py"), str(folder))
    assert child.returncode == 0, child.stderr
    return folder


def weights(folder: Path, rank: int) -> dict[str, dict[str, torch.Tensor]]:
    found: dict[str, dict[str, torch.Tensor]] = torch.load(folder / f"rank{rank}.pt")
    return found


def test_two_processes_end_with_equal_weights(done: Path) -> None:
    """Averaged weights and running statistics too, to the last bit."""
    first, second = weights(done, 0), weights(done, 1)
    assert len(first) == 6
    for name in first:
        assert all(torch.equal(first[name][key], second[name][key]) for key in first[name]), name


@pytest.mark.parametrize("name", ["resmlp", "wdl"])
@pytest.mark.parametrize("parts", [1, 2])
def test_two_processes_learn_as_one_on_the_joined_batch(done: Path, name: str, parts: int) -> None:
    """Values are known for few samples of one part: the loss is the mean over both parts."""
    network = torchrun_child.NETWORKS[name]
    alone = torchrun_child.learn(network, 1, ALONE).playing.state_dict()
    torch.manual_seed(0)
    fresh = torchrun_child.build(network, torchrun_child.RULES).state_dict()
    together = weights(done, 0)[f"{name} {parts}"]
    for key, value in alone.items():
        assert torch.allclose(together[key], value, atol=2e-5), key
    assert any(not torch.allclose(fresh[key], alone[key], atol=1e-3) for key in alone)


def test_processes_stop_together_and_go_on_bit_for_bit(done: Path) -> None:
    whole, parts = last_weights(done / "whole"), last_weights(done / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    state = RunFolder(done / "whole", writable=False).load("latest").state
    assert state is not None
    numbers = [
        {game["number"] for group in own["groups"] for game in group["games"]}
        for own in (state, *state["others"])
    ]
    assert len(numbers) == 2
    assert not numbers[0] & numbers[1], "no game is played twice"


def test_a_run_keeps_its_number_of_processes(done: Path) -> None:
    config = tiny(done, run="", resume=str(done / "whole"))
    config.budget.steps = 50
    with pytest.raises(PylosError, match="--nproc-per-node=2"):
        train(config, Metrics([]))


def test_the_command_trains_under_torchrun(tmp_path: Path) -> None:
    words = ["experiment=smoke", "budget.steps=4", "device=cpu", "evaluation.oracle_every=0"]
    child = torchrun(tmp_path, "-m", "trainers.alphazero", "run=first", "console=plain", *words)
    assert child.returncode == 0, child.stderr
    assert child.stdout.count("done: ") == 1, "the leader alone reports"
    run = RunFolder(tmp_path / "first", writable=False)
    assert run.load("latest").info.step == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    child = torchrun(tmp_path, "-m", "trainers.alphazero", "learner.batch=33", "run=first")
    assert child.returncode != 0
    assert "learner.batch: 2 processes cannot share it evenly" in child.stderr


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert rank_here() == ALONE
    environ: dict[str, Any] = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    rank = rank_here()
    assert rank == Rank(5, 8, 1)
    assert rank.share(1024) == 128
    assert rank.device("cpu").type == "cpu"
