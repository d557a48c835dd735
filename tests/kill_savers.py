"""Savers killed at random moments: every run must load afterwards, with nothing damaged in it.

`python -m tests.kill_savers FOLDER --kills 500 --seed 2` prints how many steps were saved, how many
kills came while a file was being written, and after how many kills a saver that writes its files in
place, for comparison, had left a damaged one.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.run_tools import INFO, check_content, state_of, weights_of
from trainers import checkpoints, files
from trainers.checkpoints import CheckpointWarning, RunFolder, load_weights

WIDTH, SIZE = 64, 20_000
LONGEST_LIFE = 0.15  # seconds
IN_PLACE_AT_MOST = 200  # kills


class SlowFile(io.FileIO):
    """A file on a slow disk, so that kills come amid writing and not only amid syncing."""

    def write(self, data: Any) -> int:
        part = len(data) // 8 + 1
        for begin in range(0, len(data), part):
            super().write(data[begin : begin + part])
            time.sleep(0.0005)
        return len(data)


def write_in_place(path: Path, content: bytes) -> None:
    with SlowFile(str(path), "wb") as file:
        file.write(content)
        os.fsync(file.fileno())


def save_for_ever(path: Path, report: int) -> None:
    """Save step after step; one byte goes out at the beginning and one after each save."""
    run = RunFolder(path, keep=2)
    step = run.load().info.step
    os.write(report, b"x")
    while True:
        step += 1
        run.save(step, weights_of(step, WIDTH), INFO, state_of(step, SIZE), best=step % 3 == 0)
        os.write(report, b"x")
        if step % 10 == 0:
            run.enter(step, "Novice", 0.5)
            metadata = run.metadata()
            metadata.add_elo(step, 1000 + step)
            run.write_metadata(metadata)


def check_run(path: Path) -> int:
    """The newest step, after all that the folder holds has been found whole."""
    with warnings.catch_warnings(), RunFolder(path, keep=2) as run:
        warnings.simplefilter("error")
        step = check_content(run.load(), WIDTH, SIZE)
        assert check_content(run.load("best"), WIDTH, SIZE) == step - step % 3
        assert check_content(run.load(run.checkpoints / "latest.safetensors"), WIDTH, SIZE) == step
        for entry in run.manifest().checkpoints:
            assert load_weights(run.path / entry.file).info.step == entry.step
        assert all(point["elo"] == 1000 + point["step"] for point in run.metadata().elo_history)
        names = [file.name for folder in (run.path, run.checkpoints) for file in folder.iterdir()]
        assert not [name for name in names if name.endswith((".tmp", ".damaged"))]
    return step


def start_run(path: Path) -> None:
    with RunFolder(path) as run:
        run.save(0, weights_of(0, WIDTH), INFO, state_of(0, SIZE), best=True)


def kill_one(path: Path, chance: random.Random, in_place: bool = False) -> tuple[int, bool]:
    """Start a saver and kill it: how many saves returned, and whether it was amid writing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        files.open = SlowFile  # type: ignore[attr-defined]
        if in_place:
            checkpoints.write_atomically = write_in_place  # type: ignore[assignment, attr-defined]
        save_for_ever(path, writing)
    os.close(writing)
    assert os.read(reading, 1) == b"x", "the saver could not begin"
    time.sleep(chance.uniform(0, LONGEST_LIFE))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as reports:
        saves = len(reports.read())
    return saves, any(file.name.endswith(".tmp") for file in path.rglob("*"))


def kill_many(path: Path, kills: int, seed: int) -> tuple[int, int]:
    """Steps saved, and kills amid writing."""
    chance = random.Random(seed)
    start_run(path)
    step = times_amid = 0
    for _ in range(kills):
        saves, amid = kill_one(path, chance)
        reached = check_run(path)
        assert reached - step - saves in (0, 1), "a save that returned was lost"
        step = reached
        times_amid += amid
    return step, times_amid


def kills_until_damage_in_place(path: Path, seed: int) -> int:
    chance = random.Random(seed)
    start_run(path)
    for kills in range(1, IN_PLACE_AT_MOST + 1):
        kill_one(path, chance, in_place=True)
        try:
            check_run(path)
        except CheckpointWarning:
            return kills
    raise AssertionError("no damage found: these kills prove nothing")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        *kill_many(options.folder / "run", options.kills, options.seed),
        kills_until_damage_in_place(options.folder / "in_place", options.seed),
    )
