"""Many runs by one command: Hydra's multirun through its launchers, and sweeps given anew."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pylos_env import PylosError, Rules
from trainers import command
from trainers.alphazero.config import AlphaZeroConfig
from trainers.checkpoints import CheckpointInfo, RunFolder
from trainers.network import NetworkConfig

ALPHAZERO = ("budget.steps=6", "evaluation.games=2", "evaluation.opponents=[]", "gate.games=0")
PPO = ("budget.steps=1024", "evaluation.games=2", "evaluation.opponents=[]")


def sweep(
    trainer: str, launcher: str, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    base = [sys.executable, "-m", f"trainers.{trainer}", "--multirun", "experiment=smoke"]
    return subprocess.run(
        [*base, f"hydra/launcher={launcher}", "hydra.sweep.dir=sweep", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return RunFolder(run, writable=False).load(with_state=False).weights


def test_joblib_runs_both_backends_and_names_the_job_that_is_refused(tmp_path: Path) -> None:
    words = ("selfplay.backend=threads,processes", "budget.games=0,-1", *ALPHAZERO)
    done = sweep("alphazero", "joblib", tmp_path, *words)
    assert done.returncode == 1
    assert "budget.games: expected 0 to" in done.stderr
    assert "budget.games=-1" in done.stderr, "the job is not named"
    threads, processes = (weights_of(tmp_path / "sweep" / number) for number in "02")
    assert all(torch.equal(threads[name], processes[name]) for name in threads)
    assert not (tmp_path / "sweep" / "1" / "checkpoints").exists()
    assert not (tmp_path / "runs").exists()


def test_submitit_runs_each_job_in_a_folder_of_its_own(tmp_path: Path) -> None:
    # one folder for all jobs' logs, made before the first begins; one for each is made too late
    logs = "hydra.launcher.submitit_folder=${hydra.sweep.dir}/.submitit"
    done = sweep("ppo", "submitit_local", tmp_path, logs, "seed=1,2", *PPO)
    assert done.returncode == 0, done.stderr
    first, second = (weights_of(tmp_path / "sweep" / number) for number in "01")
    assert any(not torch.equal(first[name], second[name]) for name in first)
    seeds = [
        RunFolder(tmp_path / "sweep" / number, writable=False)
        .load(with_state=False)
        .info.config["seed"]
        for number in "01"
    ]
    assert seeds == [1, 2]


# What a job does with its folder


def config_of(**changes: object) -> AlphaZeroConfig:
    return dataclasses.replace(AlphaZeroConfig(), **changes)  # type: ignore[arg-type]


def save(folder: Path, config: AlphaZeroConfig) -> None:
    info = CheckpointInfo(
        dataclasses.asdict(config.network), Rules(), "flat", config=config.to_dict()
    )
    with RunFolder(folder) as run:
        run.save(10, {"weight": torch.zeros(1)}, info, {})


def test_a_job_begins_in_its_own_folder(tmp_path: Path) -> None:
    config = config_of()
    command.prepare_job(config, tmp_path / "3")
    assert (config.run, config.resume) == (str(tmp_path / "3"), "")
    assert config.console == "plain", "several live displays would share a terminal"


def test_a_job_that_is_given_again_goes_on_with_its_run(tmp_path: Path) -> None:
    save(tmp_path, config_of(seed=4, run="elsewhere"))
    config = config_of(seed=4, threads=1)
    config.budget.minutes = 20.0
    command.prepare_job(config, tmp_path)
    assert (config.run, config.resume) == ("", str(tmp_path))


def test_a_job_never_goes_on_with_the_run_of_another(tmp_path: Path) -> None:
    save(tmp_path, config_of(seed=4))
    other = config_of(seed=5, network=NetworkConfig("mlp"))
    with pytest.raises(PylosError, match=r"holds a run with other settings \(network.canonical, "):
        command.prepare_job(other, tmp_path)


def test_jobs_do_not_share_a_folder(tmp_path: Path) -> None:
    with pytest.raises(PylosError, match="run: the jobs of a sweep need folders of their own"):
        command.prepare_job(config_of(run="one"), tmp_path)


def test_every_folder_of_a_sweep_over_runs_must_be_there(tmp_path: Path) -> None:
    command.check_resume(["-m", f"resume={tmp_path},{tmp_path}"])
    with pytest.raises(SystemExit, match="no folder 'nowhere'"):
        command.check_resume(["-m", f"resume={tmp_path},nowhere"])
