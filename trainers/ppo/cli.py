"""`pylos-ppo`: the command line of the trainer, by Hydra."""

from __future__ import annotations

import sys

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from trainers import command, paths
from trainers.ppo.config import PPOConfig

ConfigStore.instance().store(name="ppo_schema", node=PPOConfig)


@hydra.main(version_base="1.3", config_path=str(paths.configs() / "ppo"), config_name="config")
def launch(given: DictConfig) -> None:
    from trainers.ppo.train import train  # torch, only once the settings are known

    command.start(given, PPOConfig, train)


def main() -> None:
    command.check_names(sys.argv[1:], PPOConfig)
    command.check_resume(sys.argv[1:])
    launch()


if __name__ == "__main__":
    main()
