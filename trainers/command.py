"""What the trainers' command lines share: the folder of a run, and going on with one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pylos_env.errors import PylosError
from trainers.checkpoints import RunFolder


def run_folder(resume: str, run: str, name: str) -> str:
    """Where Hydra puts a run: the one to go on with, the one asked for, or a new one."""
    return resume or run or f"runs/{name}/{datetime.now():%Y-%m-%d_%H-%M-%S}"


OmegaConf.register_new_resolver("run_folder", run_folder, replace=True, use_cache=True)


def resumed(schema: type, given: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The settings of the run to go on with, with what was typed on top."""
    choices = [word for word in overrides if word.partition("=")[0] in ("network", "experiment")]
    if choices:
        raise PylosError(f"{choices[0]}: a resumed run keeps its network and experiment")
    folder = RunFolder(str(given.resume), writable=False)
    saved = folder.load("latest", with_state=False).info.config
    typed = OmegaConf.from_dotlist([word.lstrip("+") for word in overrides])
    merged = OmegaConf.merge(OmegaConf.structured(schema), dict(saved), typed)
    assert isinstance(merged, DictConfig)
    return merged


def start(given: DictConfig, schema: type, train: Callable[[Any], object]) -> None:
    """Train with what Hydra has composed; a refusal is a sentence and the exit code 1."""
    try:
        if given.resume:
            given = resumed(schema, given, list(HydraConfig.get().overrides.task))
        config: Any = OmegaConf.to_object(given)
        if not config.run and not config.resume:
            config.run = HydraConfig.get().runtime.output_dir
        train(config)
    except (PylosError, OmegaConfBaseException) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def check_resume(words: Sequence[str]) -> None:
    """Refuse a folder that is not there before Hydra makes it."""
    for word in words:
        name, _, folder = word.partition("=")
        if name == "resume" and folder and not Path(folder).is_dir():
            sys.exit(f"resume: there is no folder {folder!r}")
