"""One interface for self-play, three places: threads or processes here, tasks, a Ray cluster."""

from __future__ import annotations

from trainers.alphazero.cluster import LocalPool, TaskWorkers
from trainers.alphazero.config import AlphaZeroConfig
from trainers.alphazero.ray_pool import RayPool
from trainers.alphazero.workers import Workers, local_workers
from trainers.distributed import ALONE, Rank


def make_workers(config: AlphaZeroConfig, rank: Rank = ALONE) -> Workers:
    """The backend that a config asks for."""
    if config.cluster.backend == "ray":
        return TaskWorkers(config, RayPool(config, rank), rank)
    if config.cluster.backend == "local":
        return TaskWorkers(config, LocalPool(config, rank), rank)
    return local_workers(config, rank)
