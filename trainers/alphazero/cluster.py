"""Self-play by tasks: which are handed out with which weights, and in which order they are learnt.

Tasks are numbered. `in_flight` of them are out at any time; a cycle learns from the next
`tasks_per_cycle` by number, whenever they came back, and hands out as many new ones with the newest
weights. So what is learnt depends neither on how many workers there are nor on which of them was
fast, slow or lost: the same seed gives the same weights on any cluster, and in this process.

A saved run knows the tasks that were out and their weights, and a resumed one plays them again.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from pylos_env.errors import PylosError
from trainers.alphazero.config import AlphaZeroConfig
from trainers.alphazero.selfplay import Game, Tally
from trainers.alphazero.tasks import Played, Task, play_task, unpack
from trainers.alphazero.workers import by_number, make_evaluator
from trainers.distributed import ALONE, Rank
from trainers.inference import Inference
from trainers.network import PolicyValueNetwork
from trainers.running import torch_threads
from trainers.search.tree import Floats

Weights = dict[str, Floats]


class Pool(Protocol):
    """Somebody who plays tasks."""

    def publish(self, weights: Weights) -> Any:
        """Make a version of the weights known; returns what `submit` is given for it."""

    def submit(self, task: Task, weights: Any) -> None:
        """Have a task played, some time."""

    def collect(self, number: int) -> Played:
        """Wait for a task that was submitted."""

    def figures(self) -> dict[str, float]: ...

    def close(self) -> None: ...


class LocalPool:
    """Plays every task in this process, when it is asked for."""

    def __init__(self, config: AlphaZeroConfig, rank: Rank = ALONE) -> None:
        self._config = config
        device = rank.device(config.device)
        self._inference = Inference(make_evaluator(config, device))
        self._waiting: dict[int, tuple[Task, Weights]] = {}

    def publish(self, weights: Weights) -> Weights:
        return weights

    def submit(self, task: Task, weights: Weights) -> None:
        self._waiting[task.number] = task, weights

    def collect(self, number: int) -> Played:
        task, weights = self._waiting.pop(number)
        self._inference.load(weights)
        with torch_threads(self._config.cluster.cpus):
            return play_task(self._config, task, self._inference)

    def figures(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self._inference.close()


class TaskWorkers:
    """`Workers` over a pool: see the top of this module."""

    def __init__(self, config: AlphaZeroConfig, pool: Pool, rank: Rank = ALONE) -> None:
        self._cluster = config.cluster
        self._pool = pool
        self._stride = rank.count
        self._next = rank.index  # the task to hand out
        self._due = rank.index  # the task to learn from
        self._out: dict[int, Task] = {}
        self._weights: dict[int, Weights] = {}  # by version, as long as a task is out with it
        self._published: dict[int, Any] = {}
        self._version = -1
        self._tallies: list[Tally] = []

    def begin(self, network: PolicyValueNetwork) -> None:
        self._take(network)
        while len(self._out) < self._cluster.in_flight:
            self._hand_out(Task(self._next, self._version))
            self._next += self._stride

    def _take(self, network: PolicyValueNetwork) -> None:
        """The weights become a new version, unless they are still the newest."""
        state = network.state_dict().items()
        weights = {name: tensor.detach().cpu().numpy().copy() for name, tensor in state}
        newest = self._weights.get(self._version)
        if newest is None or any(not np.array_equal(newest[n], weights[n]) for n in weights):
            self._version += 1
            self._add_version(self._version, weights)

    def _add_version(self, version: int, weights: Weights) -> None:
        self._weights[version] = weights
        self._published[version] = self._pool.publish(weights)

    def _hand_out(self, task: Task) -> None:
        self._out[task.number] = task
        self._pool.submit(task, self._published[task.version])

    def finish(self) -> list[Game]:
        games: list[Game] = []
        for _ in range(self._cluster.tasks_per_cycle):
            played = self._pool.collect(self._due)
            games += unpack(played.batch)
            self._tallies.append(played.tally)
            del self._out[self._due]
            self._due += self._stride
        needed = {self._version, *(task.version for task in self._out.values())}
        for version in set(self._weights) - needed:
            del self._weights[version], self._published[version]
        return by_number(games)

    def take_tallies(self) -> list[Tally]:
        tallies, self._tallies = self._tallies, []
        return tallies

    def figures(self) -> dict[str, float]:
        return self._pool.figures()

    # What is out is played again by a resumed run, with the same weights

    def states(self) -> list[dict[str, Any]]:
        weights = {
            version: {name: torch.from_numpy(array) for name, array in arrays.items()}
            for version, arrays in self._weights.items()
        }
        return [
            {
                "next": self._next,
                "due": self._due,
                "version": self._version,
                "tasks": [[task.number, task.version] for task in self._out.values()],
                "weights": weights,
            }
        ]

    def set_states(self, states: list[dict[str, Any]]) -> None:
        if len(states) != 1 or "tasks" not in states[0]:
            raise PylosError("cluster: the run played in groups of games, not by tasks")
        state = states[0]
        self._next, self._due = state["next"], state["due"]
        self._version = state["version"]
        for version, tensors in state["weights"].items():
            self._add_version(version, {name: tensor.numpy() for name, tensor in tensors.items()})
        for number, version in state["tasks"]:
            self._hand_out(Task(number, version))

    def close(self) -> None:
        self._pool.close()
