"""The network that a run begins with, and how one that it goes on with gets more blocks."""

from __future__ import annotations

from typing import Any

import torch

from pylos_env.errors import PylosError
from pylos_env.rules import Rules
from trainers.alphazero.config import AlphaZeroConfig
from trainers.alphazero.learner import Learner
from trainers.checkpoints import check_fits, load_weights
from trainers.network import NetworkConfig, PolicyValueNetwork, build, carried_over
from trainers.players import find_checkpoint, load_evaluator
from trainers.settings import ConfigError


def first_network(config: AlphaZeroConfig) -> PolicyValueNetwork:
    """The network that a run begins with: fresh from the seed, or with another run's weights."""
    rules = Rules.of(config.rules)
    torch.manual_seed(config.seed)
    network = build(config.network, rules)
    if config.initial and not config.resume:
        try:
            checkpoint = load_weights(find_checkpoint(config.initial)[0])
            check_fits(checkpoint, rules)
            theirs = load_evaluator(checkpoint, "cpu").network
            weights = carried_over(theirs.state_dict(), theirs.config, network)
        except PylosError as error:
            raise ConfigError(f"initial: {config.initial}: {error}") from None
        network.load_state_dict(weights)
    return network


def grown(state: dict[str, Any], theirs: NetworkConfig, learner: Learner) -> dict[str, Any]:
    """The parts of a run's state that change where its network gets more blocks."""

    def grow(weights: dict[str, Any]) -> dict[str, Any]:
        try:
            return carried_over(weights, theirs, learner.network)
        except PylosError as error:
            raise PylosError(f"the run was saved with {error}") from None

    fresh = learner.state()  # with fresh optimisers
    fresh |= {name: grow(state["learner"][name]) for name in ("network", "playing")}
    earlier = [[name, grow(weights)] for name, weights in state["judge"]["earlier"]]
    return {
        "learner": fresh | {"steps": state["learner"]["steps"]},
        "judge": state["judge"] | {"earlier": earlier},
        "best": None if state["best"] is None else grow(state["best"]),
    }
