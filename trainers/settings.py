"""Settings of a trainer: what cannot work is refused by name, before any work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pylos_env import agents
from pylos_env.errors import PylosError
from pylos_env.rules import Rules
from trainers.network import NetworkConfig, choose_device


class ConfigError(PylosError):
    """A setting that cannot work; the message begins with its name."""


def value_of(config: Any, name: str) -> Any:
    """The value of a dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def check_ranges(config: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Each value must lie between its least and its largest; nan does not."""
    for name, (low, high) in ranges.items():
        value = value_of(config, name)
        if not low <= value <= high:
            raise ConfigError(f"{name}: expected {low:g} to {high:g}, got {value!r}")


def check_choices(config: Any, choices: Mapping[str, tuple[str, ...]]) -> None:
    for name, known in choices.items():
        value = value_of(config, name)
        if value not in known:
            raise ConfigError(f"{name}: expected one of {known}, got {value!r}")


def check_network(network: NetworkConfig) -> None:
    try:
        network.check()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"network.{error}") from None


def check_rules(rules: str) -> Rules:
    try:
        return Rules.of(rules)
    except PylosError as error:
        raise ConfigError(f"rules: {error}") from None


def check_opponents(name: str, opponents: Sequence[str]) -> None:
    """Each must be somebody whom `agents.make` knows."""
    for opponent in opponents:
        try:
            agents.make(opponent)
        except PylosError as error:
            raise ConfigError(f"{name}: {error}") from None


def check_device(device: str) -> None:
    try:
        choose_device(device)
    except PylosError as error:
        raise ConfigError(f"device: {error}") from None
