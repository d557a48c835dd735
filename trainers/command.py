"""What the trainers' command lines share: the folder of a run, going on with one, and sweeps.

A job of a sweep (`--multirun`) runs in a process of a launcher's making: it prints plain lines, as
others write to the same terminal, and fails by an exception, which Hydra carries back. Its folder
is `<hydra.sweep.dir>/<number>`. Where that holds the job's run already, since the sweep is given
anew or a cluster has put the job back into its queue, the job goes on with it.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pylos_env.errors import PylosError
from trainers.checkpoints import RunFolder

FREE_SETTINGS: Final = {"run", "resume", "console", "wandb", "keep", "threads", "budget"}
"""What may differ when a run goes on."""
GROUPS: Final = ("network", "cluster", "experiment")
"""Of a run's configs; what they set is saved with it."""
_SETTING: Final = re.compile(r"\+{0,2}(?!hydra\.)([A-Za-z][\w.]*)=.*", re.DOTALL)
"""A setting on the command line, not one of Hydra's own."""


def run_folder(resume: str, run: str, name: str) -> str:
    """Where Hydra puts a run: the one to go on with, the one asked for, or a new one."""
    return resume or run or f"runs/{name}/{datetime.now():%Y-%m-%d_%H-%M-%S}"


OmegaConf.register_new_resolver("run_folder", run_folder, replace=True, use_cache=True)


def resumed(schema: type, given: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The settings of the run to go on with, with what was typed on top."""
    choices = [word for word in overrides if word.partition("=")[0] in GROUPS]
    if choices:
        raise PylosError(f"{choices[0]}: a resumed run keeps its {', '.join(GROUPS)}")
    folder = RunFolder(str(given.resume), writable=False)
    saved = folder.load("latest", with_state=False).info.config
    typed = OmegaConf.create()
    for name in (word.lstrip("+").partition("=")[0] for word in overrides):
        OmegaConf.update(typed, name, OmegaConf.select(given, name))  # as Hydra has read it
    merged = OmegaConf.merge(OmegaConf.structured(schema), dict(saved), typed)
    assert isinstance(merged, DictConfig)
    return merged


def start(given: DictConfig, schema: type, train: Callable[[Any], object]) -> None:
    """Train with what Hydra has composed; a refusal is a sentence and the exit code 1."""
    hydra = HydraConfig.get()
    sweeping = hydra.mode == RunMode.MULTIRUN
    try:
        if given.resume and not follows():
            given = resumed(schema, given, list(hydra.overrides.task))
        config: Any = OmegaConf.to_object(given)
        if sweeping:
            prepare_job(config, Path(hydra.runtime.output_dir))
        elif not config.run and not config.resume and not follows():
            config.run = hydra.runtime.output_dir
        train(config)
    except KeyboardInterrupt:
        sys.exit(130)
    except (PylosError, OmegaConfBaseException) as error:
        if sweeping:
            raise
        print(error, file=sys.stderr)
        if not (given.resume or given.run or follows()):
            leave_nothing(Path(hydra.runtime.output_dir), hydra.job.name)
        sys.exit(1)


def leave_nothing(folder: Path, job: str) -> None:
    """Remove the folder that Hydra made for a refused run, if nothing but its record is there."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {".hydra", f"{job}.log"}:
        shutil.rmtree(folder)


def follows() -> bool:
    """Whether `torchrun` has started this process behind another, whose settings it takes over."""
    return int(os.environ.get("RANK", "0")) > 0


def prepare_job(config: Any, folder: Path) -> None:
    """Settle where a job of a sweep writes, and that it goes on with what is there."""
    if config.console == "auto":
        config.console = "plain"
    if config.resume:
        return
    if config.run:
        raise PylosError("run: the jobs of a sweep need folders of their own, set hydra.sweep.dir")
    config.run = str(folder)
    if not (folder / "checkpoints").is_dir():
        return
    run = RunFolder(folder, writable=False)
    if run.latest() is None:
        return
    saved = run.load("latest", with_state=False).info.config
    other = different_settings(saved, config.to_dict())
    if other:
        raise PylosError(
            f"hydra.sweep.dir: {folder} holds a run with other settings ({', '.join(other)})"
        )
    config.resume, config.run = str(folder), ""


def different_settings(saved: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Dotted names of what differs and would make another run of it."""
    names = []
    for name in sorted({*saved, *given} - FREE_SETTINGS):
        before, now = saved.get(name), given.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            names += [f"{name}.{inner}" for inner in different_settings(before, now)]
        elif before != now:
            names.append(name)
    return names


def check_names(words: Sequence[str], schema: type) -> None:
    """Refuse a setting that there is not, also behind a `+`, and name the nearest there is."""
    names = {*GROUPS, *_names(schema())}
    for word in words:
        match = _SETTING.fullmatch(word)
        if match is None or match[1] in names:
            continue
        name = match[1]
        near = difflib.get_close_matches(name, names, n=1)
        sys.exit(f"{name}: there is no such setting" + (f", perhaps {near[0]}?" if near else ""))


def _names(config: Any, before: str = "") -> Iterator[str]:
    """The dotted names of all settings, and of their groups."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        yield before + field.name
        if dataclasses.is_dataclass(value):
            yield from _names(value, f"{before}{field.name}.")


def check_resume(words: Sequence[str]) -> None:
    """Refuse a folder that is not there before Hydra makes it."""
    sweeping = not {"-m", "--multirun"}.isdisjoint(words)
    for word in words:
        name, _, value = word.partition("=")
        for folder in value.split(",") if sweeping else [value]:
            if name == "resume" and folder and not Path(folder).is_dir():
                sys.exit(f"resume: there is no folder {folder!r}")
