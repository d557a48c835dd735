"""`pylos-alphazero`: the command line of the trainer, by Hydra."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pylos_env.errors import PylosError
from trainers import paths
from trainers.alphazero.config import AlphaZeroConfig
from trainers.checkpoints import RunFolder

GROUPS: Final = ("network", "cluster", "experiment")

ConfigStore.instance().store(name="schema", node=AlphaZeroConfig)


def run_folder(resume: str, run: str, name: str) -> str:
    """Where Hydra puts a run: the one to go on with, the one asked for, or a new one."""
    return resume or run or f"runs/{name}/{datetime.now():%Y-%m-%d_%H-%M-%S}"


OmegaConf.register_new_resolver("run_folder", run_folder, replace=True, use_cache=True)


def resumed(given: DictConfig, overrides: list[str]) -> DictConfig:
    """The settings of the run to go on with, with what was typed on top."""
    choices = [word for word in overrides if word.partition("=")[0] in GROUPS]
    if choices:
        raise PylosError(f"{choices[0]}: a resumed run keeps its network, cluster and experiment")
    folder = RunFolder(str(given.resume), writable=False)
    saved = folder.load("latest", with_state=False).info.config
    typed = OmegaConf.from_dotlist([word.lstrip("+") for word in overrides])
    schema = OmegaConf.structured(AlphaZeroConfig)
    return OmegaConf.merge(schema, dict(saved), typed)  # type: ignore[return-value]


@hydra.main(
    version_base="1.3", config_path=str(paths.configs() / "alphazero"), config_name="config"
)
def launch(given: DictConfig) -> None:
    from trainers.alphazero.train import train  # torch, only once the settings are known

    try:
        if given.resume and not follows():
            given = resumed(given, list(HydraConfig.get().overrides.task))
        config: Any = OmegaConf.to_object(given)
        if not config.run and not config.resume and not follows():
            config.run = HydraConfig.get().runtime.output_dir
        train(config)
    except (PylosError, OmegaConfBaseException) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def follows() -> bool:
    """Whether `torchrun` has started this process behind another, whose settings it takes over."""
    return int(os.environ.get("RANK", "0")) > 0


def main() -> None:
    if follows():  # the run's folder is the leader's
        sys.argv += ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none"]
    for word in sys.argv[1:]:
        name, _, folder = word.partition("=")
        if name == "resume" and folder and not Path(folder).is_dir():  # Hydra would make it
            sys.exit(f"resume: there is no folder {folder!r}")
    launch()


if __name__ == "__main__":
    main()
