"""Tasks of self-play on a Ray cluster.

Actors keep nothing but a network to put weights into. Each is tied to one machine and to its share
of that machine's cores; a thread of the trainer follows the cluster, starts actors where there is
room, hands each one task at a time and takes the games in as soon as they are there. An actor or a
machine that is lost costs the tasks it had: they are handed out again, and give the same games.
Weights are put into the object store once per version; every machine fetches them once.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import torch

from pylos_env.errors import PylosError
from trainers.alphazero.cluster import Weights
from trainers.alphazero.config import AlphaZeroConfig
from trainers.alphazero.tasks import Played, Task, play_task
from trainers.alphazero.workers import make_evaluator
from trainers.distributed import ALONE, Rank
from trainers.inference import Inference

LOOK_SECONDS: Final = 0.5
"""How often machines are counted."""
WAIT_SECONDS: Final = 0.05
MOST_LOSSES: Final = 20
"""A task that is lost this often is taken to be what kills its actors."""


class Player:
    """The actor: plays tasks with the weights that come with them."""

    def __init__(self, config: AlphaZeroConfig) -> None:
        threads = config.cluster.cpus
        pin_threads(threads)
        device = torch.device("cuda" if config.cluster.gpus else "cpu")
        compiled = device.type == "cuda" and config.selfplay.compile
        self._config = config
        self._inference = Inference(make_evaluator(config, device), compiled=compiled)
        self._version = -1

    def about(self) -> dict[str, int]:
        """Called first, and answered once the actor is there."""
        from pylos_env.batch import default_threads

        threads = {"torch": torch.get_num_threads(), "numba": default_threads()}
        return {"pid": os.getpid(), **threads}

    def play(self, task: Task, weights: Weights) -> Played:
        if task.version != self._version:
            self._inference.load(weights)
            self._version = task.version
        return play_task(self._config, task, self._inference)


def pin_threads(count: int) -> None:
    """Hold torch, Numba and what they call to so many threads."""
    from numba.core import config

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(count)
    config.reload_config()  # type: ignore[no-untyped-call]
    torch.set_num_threads(count)


@dataclass(eq=False)
class Worker:
    """An actor as the trainer sees it."""

    actor: Any
    node: str
    pid: int = 0
    task: Task | None = None
    played: int = 0


class RayPool:
    """Plays tasks by actors wherever the cluster has room."""

    def __init__(self, config: AlphaZeroConfig, rank: Rank = ALONE) -> None:
        self._ray = _import_ray()
        self._config = config
        self._settings = config.cluster
        self._rank = rank
        self._connected = self._connect()
        self._home = self._ray.get_runtime_context().get_node_id()
        self._config_ref = self._ray.put(config)
        self._actor_class = self._ray.remote(Player)
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Task, Any]] = deque()
        self._versions: dict[int, Any] = {}  # of tasks that are out, by task number
        self._running: dict[Any, Worker] = {}  # by the reference to their answer
        self._idle: list[Worker] = []
        self._done: dict[int, Played] = {}
        self._losses: dict[int, int] = {}
        self._looked = -LOOK_SECONDS
        self._failure: BaseException | None = None
        self._closed = False
        self.lost = 0
        self._thread = threading.Thread(target=self._serve, name="ray pool", daemon=True)
        self._thread.start()

    def _connect(self) -> bool:
        """Join the cluster; returns whether this was our doing."""
        if self._ray.is_initialized():
            return False
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
        try:
            self._ray.init(
                address=self._settings.address or None,
                namespace="pylos",
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError) as error:
            address = self._settings.address
            raise PylosError(f"cluster.address: no Ray cluster at {address!r}: {error}") from None
        if self._settings.workers and self._rank.leads:
            self._ask_autoscaler()
        return True

    def _ask_autoscaler(self) -> None:
        """A cluster that can grow is told how large it should be."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[self._share()] * self._settings.workers)

    def _share(self) -> dict[str, float]:
        gpus = {"GPU": self._settings.gpus} if self._settings.gpus else {}
        return {"CPU": float(self._settings.cpus), **gpus}

    # What the trainer calls

    def publish(self, weights: Weights) -> Any:
        return self._ray.put(weights)

    def submit(self, task: Task, weights: Any) -> None:
        with self._changed:
            self._waiting.append((task, weights))
            self._changed.notify_all()

    def collect(self, number: int) -> Played:
        with self._changed:
            while number not in self._done:
                if self._failure is not None:
                    raise PylosError(f"cluster: {self._failure}") from self._failure
                self._changed.wait()
            return self._done.pop(number)

    def figures(self) -> dict[str, float]:
        return {"cluster/workers": float(len(self.workers())), "cluster/lost": float(self.lost)}

    def workers(self) -> list[Worker]:
        """The actors that are there."""
        with self._changed:
            return [worker for worker in [*self._running.values(), *self._idle] if worker.pid]

    def close(self) -> None:
        self._closed = True
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        for worker in [*self._running.values(), *self._idle]:
            self._ray.kill(worker.actor)
        if self._connected:
            self._ray.shutdown()

    # What its thread does

    def _serve(self) -> None:
        try:
            while not self._closed:
                self._follow()
                self._hand_out()
                if not self._running:
                    with self._changed:
                        self._changed.wait(WAIT_SECONDS)
                    continue
                ready, _ = self._ray.wait(list(self._running), timeout=WAIT_SECONDS)
                for reference in ready:
                    self._take(reference)
        except BaseException as error:  # told by `collect`
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _follow(self) -> None:
        """Start actors where there is room; those of lost machines fail by themselves."""
        if time.monotonic() < self._looked + LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        here = [*self._running.values(), *self._idle]
        for node, room in self._rooms().items():
            for _ in range(room - sum(worker.node == node for worker in here)):
                if self._settings.workers and len(here) >= self._settings.workers:
                    return
                here.append(self._start(node))

    def _rooms(self) -> dict[str, int]:
        """How many actors each machine has room for, this process's part of them."""
        share = self._share()
        rooms: dict[str, int] = {}
        for node in self._ray.nodes():
            if not node["Alive"]:
                continue
            there = dict(node["Resources"])
            if node["NodeID"] == self._home:
                there["CPU"] = there.get("CPU", 0) - self._settings.learner_cpus
            room = min(int(there.get(name, 0) // amount) for name, amount in share.items())
            rooms[node["NodeID"]] = max(0, room)
        if not any(rooms.values()) and self._home in rooms and not self._settings.gpus:
            rooms[self._home] = 1  # a machine too small to leave a core free
        ranks = self._rank.count
        return {node: (room + self._rank.index) // ranks for node, room in rooms.items()}

    def _start(self, node: str) -> Worker:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = self._actor_class.options(
            num_cpus=self._settings.cpus,
            num_gpus=self._settings.gpus,
            max_restarts=0,  # a new one is started where there is room, maybe elsewhere
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._config_ref)
        worker = Worker(actor, node)
        with self._changed:
            self._running[actor.about.remote()] = worker
        return worker

    def _hand_out(self) -> None:
        with self._changed:
            while self._idle and self._waiting:
                worker = self._idle.pop(0)
                task, weights = self._waiting.popleft()
                worker.task = task
                self._versions[task.number] = weights
                self._running[worker.actor.play.remote(task, weights)] = worker

    def _take(self, reference: Any) -> None:
        """Take in what an actor has answered, or its loss."""
        from ray.exceptions import RayError, RayTaskError

        worker = self._running[reference]
        try:
            answer = self._ray.get(reference)
        except RayTaskError as error:
            raise PylosError(f"a task of self-play failed: {error}") from error
        except RayError as error:
            self._lose(reference, error)
            return
        with self._changed:
            del self._running[reference]
            if worker.task is None:
                worker.pid = answer["pid"]
            else:
                worker.played += 1
                self._done[worker.task.number] = answer
                del self._versions[worker.task.number]
                self._losses.pop(worker.task.number, None)
                worker.task = None
            self._idle.append(worker)
            self._changed.notify_all()

    def _lose(self, reference: Any, error: Exception) -> None:
        """An actor is gone: its task goes to the next one, first of all."""
        worker = self._running[reference]
        with self._changed:
            del self._running[reference]
            self.lost += 1
            if worker.task is not None:
                number = worker.task.number
                self._losses[number] = self._losses.get(number, 0) + 1
                if self._losses[number] >= MOST_LOSSES:
                    raise PylosError(f"task {number} was lost {MOST_LOSSES} times: {error}")
                self._waiting.appendleft((worker.task, self._versions.pop(number)))
        self._ray.kill(worker.actor)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise PylosError("cluster=ray needs Ray: pip install 'pylos-env[ray]'") from None
    return ray
