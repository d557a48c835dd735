"""Every source of random numbers as plain values, to go on with the very next draw.

What `rng_state` returns fits into a checkpoint's state: NumPy's arrays become lists, which the
restricted reader of states knows.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trainers.files import CheckpointError, CheckpointWarning


def rng_state(**generators: np.random.Generator | torch.Generator) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's random numbers, and of the given generators."""
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": _without_arrays(np.random.get_state(legacy=False)),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "mps": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
        "generators": {},
    }
    for name, generator in generators.items():
        state["generators"][name] = (
            generator.get_state()
            if isinstance(generator, torch.Generator)
            else _without_arrays(generator.bit_generator.state)
        )
    return state


def set_rng_state(
    state: Mapping[str, Any], **generators: np.random.Generator | torch.Generator
) -> None:
    """Go on with the random numbers where `rng_state` stood; the generators must be the same."""
    if set(generators) != set(state["generators"]):
        raise CheckpointError(
            f"the state has the generators {sorted(state['generators'])}, "
            f"but {sorted(generators)} were given"
        )
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        if state["cuda"]:
            torch.cuda.set_rng_state_all(state["cuda"])
    else:
        _warn_of_devices(f"{len(state['cuda'])} CUDA", f"{torch.cuda.device_count()}")
    if state["mps"] is not None:
        if torch.backends.mps.is_available():
            torch.mps.set_rng_state(state["mps"])
        else:
            _warn_of_devices("1 MPS", "0")
    for name, generator in generators.items():
        if isinstance(generator, torch.Generator):
            generator.set_state(state["generators"][name])
        else:
            generator.bit_generator.state = state["generators"][name]


def _warn_of_devices(saved: str, here: str) -> None:
    warnings.warn(
        f"the state has the random numbers of {saved} devices, here are {here}: not restored",
        CheckpointWarning,
        stacklevel=3,
    )


def _without_arrays(value: Any) -> Any:
    """NumPy's arrays as lists: the restricted reader knows no arrays."""
    if isinstance(value, dict):
        return {key: _without_arrays(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
