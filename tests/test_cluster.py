"""Self-play by tasks: in this process, and on a Ray cluster of several nodes that come and go."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from pylos_env import PylosError, Rules, kernel
from tests.alphazero_tools import composed, last_weights, run_quietly, tiny
from trainers.alphazero.cluster import LocalPool, TaskWorkers
from trainers.alphazero.config import AlphaZeroConfig, ClusterConfig, check
from trainers.alphazero.ray_pool import RayPool, Worker
from trainers.alphazero.selfplay import Game
from trainers.alphazero.tasks import Task, TaskGroup, pack, play_task, unpack
from trainers.alphazero.train import Trainer, train
from trainers.alphazero.workers import make_evaluator
from trainers.checkpoints import RunFolder
from trainers.distributed import Rank
from trainers.inference import Inference
from trainers.metrics import MemorySink, Metrics
from trainers.network import PolicyValueNetwork, build
from trainers.search import drive

RULES = Rules.of("advanced")
TASKS = ClusterConfig("local", games=6, at_once=4, tasks_per_cycle=2, in_flight=5, learner_cpus=0)


def by_tasks(folder: Path, backend: str = "local", **changes: Any) -> AlphaZeroConfig:
    config = tiny(folder, cluster=dataclasses.replace(TASKS, backend=backend), **changes)
    config.search.simulations = config.selfplay.quick_simulations = 3
    config.learner.reuse = 0.3  # two or three steps a cycle
    config.evaluation.every_steps = 1000
    config.evaluation.oracle_every = 0
    config.budget.steps = 12
    return config


def seeded_network(config: AlphaZeroConfig, seed: int = 0) -> PolicyValueNetwork:
    torch.manual_seed(seed)
    return build(config.network, RULES)


def weights_of(network: PolicyValueNetwork) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


def texts(games: list[Game]) -> list[str]:
    """Games in every detail, to compare."""
    with np.printoptions(threshold=10_000, floatmode="unique"):
        return [repr(game) for game in games]


# Tasks


def test_a_task_plays_its_numbers_to_their_ends(tmp_path: Path) -> None:
    config = by_tasks(tmp_path)
    inference = Inference(make_evaluator(config, torch.device("cpu")))
    for number in (0, 3):
        games = unpack(play_task(config, Task(number, 0), inference).batch)
        assert [game.number for game in games] == list(range(6 * number, 6 * number + 6))
        for game in games:
            unfinished = game.truncated or game.drawn or game.resigned
            assert unfinished or kernel.is_over(game.end, RULES.code)


def test_packed_games_are_the_same_games(tmp_path: Path) -> None:
    config = by_tasks(tmp_path)
    config.selfplay.max_plies = 40  # some games are broken off
    config.selfplay.resign = 1.0  # and none before that
    config.selfplay.inner_visits = 2
    evaluator = make_evaluator(config, torch.device("cpu"))
    games = drive(TaskGroup(config, range(12)).walk_to_the_end(), evaluator)
    assert len({game.truncated for game in games}) == 2
    games[0].drawn = True
    again = unpack(pack(games))
    assert texts(again) == texts(games)
    assert [type(value) for value in vars(again[0]).values()] == [
        type(value) for value in vars(games[0]).values()
    ]
    assert unpack(pack([])) == []


def test_tasks_share_no_game_between_processes(tmp_path: Path) -> None:
    config = by_tasks(tmp_path)
    numbers: list[int] = []
    for index in range(3):
        rank = Rank(index, 3)
        with closing(TaskWorkers(config, LocalPool(config), rank)) as workers:
            for _ in range(2):
                workers.begin(seeded_network(config))
                numbers += [game.number for game in workers.finish()]
    assert sorted(numbers) == list(range(3 * 2 * 2 * 6))


class CountingPool(LocalPool):
    """Notes what it is asked for."""

    def __init__(self, config: AlphaZeroConfig) -> None:
        super().__init__(config)
        self.versions = 0
        self.most = 0

    def publish(self, weights: dict[str, Any]) -> dict[str, Any]:
        self.versions += 1
        return super().publish(weights)

    def submit(self, task: Task, weights: dict[str, Any]) -> None:
        super().submit(task, weights)
        self.most = max(self.most, len(self._waiting))


def test_work_in_flight_is_bounded_and_weights_are_sent_once_a_version(tmp_path: Path) -> None:
    config = by_tasks(tmp_path)
    pool = CountingPool(config)
    with closing(TaskWorkers(config, pool)) as workers:
        network = seeded_network(config)
        for seed in (0, 0, 0, 1, 1, 2):
            network.load_state_dict(seeded_network(config, seed).state_dict())
            workers.begin(network)
            workers.finish()
        assert pool.versions == 3
        assert pool.most == TASKS.in_flight
        assert len(workers._weights) <= 3


def test_a_run_by_tasks_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """The tasks that were out are played again with the weights that they were handed out with."""
    run_quietly(by_tasks(tmp_path / "whole"))
    config = by_tasks(tmp_path / "parts")
    with RunFolder(tmp_path / "parts") as folder:
        trainer = Trainer(config, folder)
        cycle, cycles = trainer.cycle, itertools.count(1)

        def counted() -> None:
            cycle()
            if next(cycles) == 3:
                trainer.stopped.set()

        trainer.cycle = counted  # type: ignore[method-assign]
        trainer.run(Metrics([MemorySink()]))
        assert 0 < trainer.learner.steps < 12
    train(dataclasses.replace(config, resume=str(tmp_path / "parts"), run=""), Metrics([]))
    same_weights(tmp_path / "whole", tmp_path / "parts")


def test_groups_and_tasks_are_not_mixed_up(tmp_path: Path) -> None:
    config = by_tasks(tmp_path / "tasks")
    config.budget.steps = 1
    run_quietly(config)
    groups = tiny(tmp_path, run="", resume=str(tmp_path / "tasks"))
    with pytest.raises(PylosError, match="played by tasks"):
        train(groups, Metrics([]))


def same_weights(one: Path, other: Path) -> None:
    first, second = last_weights(one), last_weights(other)
    assert all(torch.equal(first[name], second[name]) for name in first)


# Configs


def test_the_cluster_is_a_group_of_settings() -> None:
    assert composed().cluster.backend == "none"
    assert composed("cluster=ray", "cluster.cpus=2").cluster == ClusterConfig("ray", cpus=2)
    assert composed("cluster=local").cluster.backend == "local"
    with pytest.raises(PylosError, match=r"cluster\.in_flight"):
        check(composed("cluster=ray", "cluster.in_flight=1"))


def test_ray_is_asked_for_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PylosError, match=r"pip install 'pylos-env\[ray\]'"):
        RayPool(by_tasks(tmp_path, "ray"))


def test_the_example_of_a_cluster_is_one() -> None:
    pytest.importorskip("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    path = Path(__file__).resolve().parent.parent / "docs" / "ray-cluster.yaml"
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    validate_config(prepare_config(given))
    assert any("[train,ray]" in command for command in given["setup_commands"])
    with pytest.raises(Exception, match="providers"):
        validate_config(prepare_config(given | {"providers": 1}))


# A Ray cluster of several nodes on this machine

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for actors, and one node for one actor; tests add and remove more."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # actors would starve beside other tests
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 0, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR", namespace="test")
        yield made
        ray.shutdown()
        made.shutdown()


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_cluster_plays_the_games_of_this_process(cluster: Any, tmp_path: Path) -> None:
    """The same tasks, the same weights: every game alike, whoever has played it."""
    config = by_tasks(tmp_path, "ray")
    weights = weights_of(seeded_network(config))
    local = LocalPool(config)
    with closing(RayPool(config)) as pool:
        reference = pool.publish(weights)
        for number in range(4):
            pool.submit(Task(number, 0), reference)
            local.submit(Task(number, 0), weights)
        for number in (2, 0, 3, 1):
            one, other = pool.collect(number), local.collect(number)
            assert texts(unpack(one.batch)) == texts(unpack(other.batch))
        (worker,) = pool.workers()
        about = pool._ray.get(worker.actor.about.remote())
        assert (about["torch"], about["numba"]) == (1, 1), "threads of the actor's share"
        assert about["pid"] != os.getpid()


def test_a_killed_actor_and_nodes_that_come_and_go_change_nothing(
    cluster: Any, tmp_path: Path
) -> None:
    """A run meets all of it and ends with the weights of a run in this process, bit for bit."""
    for backend in ("local", "ray"):
        config = by_tasks(tmp_path / backend, backend)
        config.cluster.games = config.cluster.at_once = 12
        config.learner.reuse = 0.05
        with RunFolder(tmp_path / backend) as folder:
            trainer = Trainer(config, folder)
            with closing(trainer.workers):
                if backend == "ray":
                    seen = disturb(trainer, cluster)
                trainer.run(Metrics([MemorySink()]))
                assert trainer.learner.steps == 12
    assert seen["events"] == ["killed", "joined", "removed"]
    assert seen["pool"].lost == 2
    same_weights(tmp_path / "local", tmp_path / "ray")
    games = [
        RunFolder(tmp_path / name, writable=False).load("latest").info.counters["games"]
        for name in ("local", "ray")
    ]
    assert games[0] == games[1]


def disturb(trainer: Trainer, cluster: Any) -> dict[str, Any]:
    """Kill an actor, add a node and take it away again while a run is under way."""
    workers = trainer.workers
    assert isinstance(workers, TaskWorkers)
    pool = workers._pool
    assert isinstance(pool, RayPool)
    seen: dict[str, Any] = {"events": [], "pool": pool}
    begin, rounds = workers.begin, itertools.count(1)

    def begin_and_disturb(network: PolicyValueNetwork) -> None:
        begin(network)
        number = next(rounds)
        if number == 2:
            victim = busy_one(pool, pool.workers())
            os.kill(victim.pid, signal.SIGKILL)
            seen["events"].append("killed")
        elif number == 3:
            before = {worker.node for worker in pool.workers()}
            seen["node"] = cluster.add_node(num_cpus=1)
            until(lambda: {worker.node for worker in pool.workers()} - before)
            seen["joined"] = next(w for w in pool.workers() if w.node not in before)
            seen["events"].append("joined")
        elif number == 4:  # there are two tasks now, and two actors without any
            until(lambda: seen["joined"].played)
        elif number == 5:
            busy_one(pool, [seen["joined"]])
            cluster.remove_node(seen["node"], allow_graceful=False)
            seen["events"].append("removed")

    workers.begin = begin_and_disturb  # type: ignore[method-assign]
    until(pool.workers)
    return seen


def busy_one(pool: RayPool, among: list[Worker]) -> Worker:
    """One that has a task, if there is one soon; an idle one is missed with its next task."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for worker in among:
            if worker.task is not None:
                return worker
        time.sleep(0.01)
    return among[0]


def test_a_task_that_fails_is_told(cluster: Any, tmp_path: Path) -> None:
    config = by_tasks(tmp_path, "ray")
    with closing(RayPool(config)) as pool:
        weights = weights_of(seeded_network(config))
        weights["policy.bias"] = np.full_like(weights["policy.bias"], np.nan)
        pool.submit(Task(0, 0), pool.publish(weights))
        with pytest.raises(PylosError, match="not finite"):
            pool.collect(0)


def test_the_command_trains_on_a_running_cluster(cluster: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainers.alphazero", "experiment=smoke", "cluster=ray"]
    command += [f"cluster.address={cluster.address}", "cluster.games=8", "cluster.at_once=8"]
    command += ["budget.steps=3", "device=cpu", "evaluation.oracle_every=0", "run=run"]
    child = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert RunFolder(tmp_path / "run", writable=False).load("latest").info.step == 3
