"""Small run folders for the tests: content that follows from the step, and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pylos_env import Rules
from trainers.checkpoints import Checkpoint, CheckpointInfo, RunFolder

INFO = CheckpointInfo(
    network={"kind": "mlp", "sizes": [33, 8]},
    rules=Rules.of("advanced"),
    observation="flat",
    config={"seed": 3, "name": "tëst"},
    commit="0" * 40,
)


def weights_of(step: int, width: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "body.weight": torch.randn(width, width, generator=generator),
        "body.steps": torch.tensor(step),
    }


def state_of(step: int, size: int = 8) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step + 1)
    return {"step": step, "replay": torch.randint(256, (size,), generator=generator)}


def save(run: RunFolder, *steps: int, **options: Any) -> None:
    for step in steps:
        run.save(step, weights_of(step), INFO, state_of(step), **options)


def check_content(checkpoint: Checkpoint, width: int = 4, size: int = 8) -> int:
    """The step, after everything in the checkpoint has been found to be of that step."""
    step = checkpoint.info.step
    for name, tensor in weights_of(step, width).items():
        assert torch.equal(checkpoint.weights[name], tensor)
    assert checkpoint.state is not None
    assert checkpoint.state["step"] == step
    assert torch.equal(checkpoint.state["replay"], state_of(step, size)["replay"])
    return step


def steps_with(run: RunFolder, suffix: str) -> list[int]:
    return sorted(int(path.stem[5:14]) for path in run.checkpoints.glob(f"step_*{suffix}"))


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
