"""Where self-play happens: in threads of this process, or in processes of their own.

All play the same games: a game is drawn from (seed, number, ply), and a round uses the weights
that it was begun with. Threads share Python's lock, which costs about half of two cores' speed;
processes do not, but take some seconds to start. On a card one thread is enough: it walks the trees
of one group while the device has the leaves of another. `cluster` plays whole games elsewhere.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from pylos_env.errors import PylosError
from pylos_env.rules import Rules
from trainers.alphazero.config import AlphaZeroConfig, SelfPlayConfig
from trainers.alphazero.selfplay import Game, GameGroup, Tally
from trainers.distributed import ALONE, Rank
from trainers.evaluator import Evaluator, has_kernel
from trainers.inference import Inference
from trainers.network import PolicyValueNetwork, build, fast_dtype
from trainers.running import spawning, torch_threads
from trainers.search import Walk, drive, drive_together

Weights = dict[str, torch.Tensor]


class Workers(Protocol):
    """Plays every group of games some plies on, while the caller does something else."""

    def begin(self, network: PolicyValueNetwork) -> None:
        """Begin a round with these weights, which may change meanwhile."""

    def finish(self) -> list[Game]:
        """Wait for the round; returns the games that ended, by number."""

    def take_tallies(self) -> list[Tally]: ...

    def figures(self) -> dict[str, float]:
        """Metrics of its own."""

    def states(self) -> list[dict[str, Any]]:
        """The games under way, a record for each group."""

    def set_states(self, states: list[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


def local_workers(config: AlphaZeroConfig, rank: Rank = ALONE) -> Workers:
    """The backend on this machine that a config asks for."""
    backend = config.selfplay.backend
    device = rank.device(config.device)
    if backend == "auto":
        several = config.selfplay.groups > 1
        backend = "processes" if device.type == "cpu" and several else "threads"
        if device.type == "cuda":
            backend = "pipelined"
    if backend == "processes":
        return Processes(config, rank)
    return Pipelined(config, rank) if backend == "pipelined" else Threads(config, rank)


def make_group(config: AlphaZeroConfig, index: int, rank: Rank = ALONE) -> GameGroup:
    groups = config.selfplay.groups
    return GameGroup(
        Rules.of(config.rules),
        config.search,
        config.selfplay,
        config.seed,
        rank.index * groups + index,
        rank.count * groups,
        config.network.canonical,
    )


def make_evaluator(config: AlphaZeroConfig, device: torch.device) -> Evaluator:
    """A network that plays; `take` gives it its weights."""
    rules = Rules.of(config.rules)
    by_kernel = device.type == "cpu" and has_kernel(config.network)
    dtype = torch.float32 if by_kernel else fast_dtype(device)
    if config.selfplay.precision != "auto":
        dtype = getattr(torch, config.selfplay.precision)
    with torch.random.fork_rng(devices=[]):
        return Evaluator(build(config.network, rules), rules, device, dtype)


def walk_plies(group: GameGroup, plies: int) -> Walk[list[Game]]:
    """A round with new weights."""
    group.forget()
    finished: list[Game] = []
    for _ in range(plies):
        finished += yield from group.walk()
    return finished


def play_plies(group: GameGroup, evaluator: Evaluator, plies: int) -> list[Game]:
    return drive(walk_plies(group, plies), evaluator)


def by_number(games: list[Game]) -> list[Game]:
    return sorted(games, key=lambda game: game.number)


def check_groups(states: list[dict[str, Any]], config: SelfPlayConfig) -> None:
    """A run goes on with the groups that it had, and with their games."""
    if states and "tasks" in states[0]:
        raise PylosError("cluster.backend: the run played by tasks, set it to ray or local")
    if len(states) != config.groups:
        raise PylosError(f"selfplay.groups: the run has {len(states)}, got {config.groups}")
    games = len(states[0]["games"])
    if games != config.games:
        raise PylosError(f"selfplay.games: the run has {games}, got {config.games}")


class Threads:
    """A thread for each group, one network for all."""

    def __init__(self, config: AlphaZeroConfig, rank: Rank = ALONE) -> None:
        self._config = config.selfplay
        self._plies = config.selfplay.plies_per_cycle
        self._evaluator = make_evaluator(config, rank.device(config.device))
        self._groups = [make_group(config, i, rank) for i in range(config.selfplay.groups)]
        self._pool = ThreadPoolExecutor(len(self._groups))
        self._playing: list[Future[list[Game]]] = []

    def begin(self, network: PolicyValueNetwork) -> None:
        self._evaluator.take(network)
        self._playing = [self._pool.submit(self._play, group) for group in self._groups]

    def _play(self, group: GameGroup) -> list[Game]:
        alone = len(self._groups) == 1
        with torch_threads(torch.get_num_threads() if alone else 1):
            return play_plies(group, self._evaluator, self._plies)

    def finish(self) -> list[Game]:
        return by_number([game for future in self._playing for game in future.result()])

    def take_tallies(self) -> list[Tally]:
        return [group.take_tally() for group in self._groups]

    def figures(self) -> dict[str, float]:
        return {}

    def states(self) -> list[dict[str, Any]]:
        return [group.state() for group in self._groups]

    def set_states(self, states: list[dict[str, Any]]) -> None:
        check_groups(states, self._config)
        for group, state in zip(self._groups, states, strict=True):
            group.set_state(state)

    def close(self) -> None:
        self._pool.shutdown()


class Pipelined(Threads):
    """One thread for all groups: it walks the trees of one while the device has another's leaves.

    On a CPU the network runs in a second thread.
    """

    def __init__(self, config: AlphaZeroConfig, rank: Rank = ALONE) -> None:
        super().__init__(config, rank)
        cuda = self._evaluator.device.type == "cuda"
        self._inference = Inference(
            self._evaluator, background=not cuda, compiled=cuda and config.selfplay.compile
        )

    def begin(self, network: PolicyValueNetwork) -> None:
        self._inference.take(network)
        self._playing = [self._pool.submit(self._play_all)]

    def _play_all(self) -> list[Game]:
        walks = [walk_plies(group, self._plies) for group in self._groups]
        return [game for games in drive_together(walks, self._inference.submit) for game in games]

    def close(self) -> None:
        super().close()
        self._inference.close()


class Processes:
    """A process for each group, with a network of its own."""

    def __init__(self, config: AlphaZeroConfig, rank: Rank = ALONE) -> None:
        context = spawning()
        self._config = config.selfplay
        self._tallies: list[Tally] = []
        self._ends: list[Connection] = []
        self._processes = []
        for index in range(config.selfplay.groups):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(config, index, rank, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._ends.append(mine)
            self._processes.append(process)

    def begin(self, network: PolicyValueNetwork) -> None:
        weights = {name: tensor.cpu().numpy() for name, tensor in network.state_dict().items()}
        self._send("play", [weights] * len(self._ends))

    def finish(self) -> list[Game]:
        games: list[Game] = []
        for index in range(len(self._ends)):
            found, tally = self._receive(index)
            games += found
            self._tallies.append(tally)
        return by_number(games)

    def take_tallies(self) -> list[Tally]:
        tallies, self._tallies = self._tallies, []
        return tallies

    def figures(self) -> dict[str, float]:
        return {}

    def states(self) -> list[dict[str, Any]]:
        self._send("state", [None] * len(self._ends))
        return [self._receive(index) for index in range(len(self._ends))]

    def set_states(self, states: list[dict[str, Any]]) -> None:
        check_groups(states, self._config)
        self._send("set_state", states)

    def _send(self, task: str, contents: Sequence[Any]) -> None:
        """Give every process its part of a task."""
        for index, content in enumerate(contents):
            try:
                self._ends[index].send((task, content))
            except OSError:  # the pipe is broken
                raise self._death(index) from None

    def _receive(self, index: int) -> Any:
        try:
            kind, answer = self._ends[index].recv()
        except (EOFError, OSError):
            raise self._death(index) from None
        if kind == "error":
            raise PylosError(f"self-play process {index}: {answer}")
        return answer

    def _death(self, index: int) -> PylosError:
        self._processes[index].join(timeout=2)
        code = self._processes[index].exitcode
        return PylosError(f"self-play process {index} ended by itself, with exit code {code}")

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(timeout=2)
            process.kill()


def _serve(config: AlphaZeroConfig, index: int, rank: Rank, end: Connection) -> None:
    """What a process does until the other end of its pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it is for the trainer, which saves first
    torch.set_num_threads(1)
    group = make_group(config, index, rank)
    evaluator = make_evaluator(config, rank.device(config.device))
    while True:
        try:
            task, content = end.recv()
        except EOFError:
            return
        try:
            if task == "play":
                evaluator.load(content)
                games = play_plies(group, evaluator, config.selfplay.plies_per_cycle)
                answer: Any = (games, group.take_tally())
            elif task == "state":
                answer = group.state()
            else:
                group.set_state(content)
                continue
        except Exception as error:
            end.send(("error", f"{type(error).__name__}: {error}"))
            raise
        end.send(("done", answer))
