"""`pylos-alphazero`: the command line of the trainer, by Hydra."""

from __future__ import annotations

import sys

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from trainers import command, paths
from trainers.alphazero.config import AlphaZeroConfig

ConfigStore.instance().store(name="schema", node=AlphaZeroConfig)


@hydra.main(
    version_base="1.3", config_path=str(paths.configs() / "alphazero"), config_name="config"
)
def launch(given: DictConfig) -> None:
    from trainers.alphazero.train import train  # torch, only once the settings are known

    command.start(given, AlphaZeroConfig, train)


def main() -> None:
    command.check_names(sys.argv[1:], AlphaZeroConfig)
    command.check_resume(sys.argv[1:])
    if command.follows():  # the run's folder is the leader's
        sys.argv += ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none"]
    launch()


if __name__ == "__main__":
    main()
