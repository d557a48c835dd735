"""Agents made of a checkpoint: the raw policy, or a tree search over it.

They are built by name, wherever an agent is: `agents.make("checkpoint:runs/first?simulations=64")`.

    checkpoint:runs/first                      the best of a run, or the latest where none is marked
    checkpoint:runs/first/latest               or best (best_elo), or the number of a step
    checkpoint:runs/first/Expert               a level of the run's manifest
    checkpoint:weights.safetensors             one file
    checkpoint:Expert                          a level of the ladder: see `ladder_folder`

Options follow a `?`, joined by `&`: `simulations` (0: the raw policy; the default is what the
manifest says of a level, else 0), `temperature` (raw policy: 0 plays the likeliest action, 1 draws
from the policy) and `device`.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.agents import Agent
from pylos_env.agents.base import check_ongoing
from pylos_env.errors import PylosError
from pylos_env.observation import Observer
from pylos_env.options import check_count
from pylos_env.position import Position
from pylos_env.rules import Rules
from trainers.checkpoints import (
    BEST_LINKS,
    LATEST,
    Checkpoint,
    CheckpointError,
    RunFolder,
    load_weights,
)
from trainers.evaluator import Evaluator
from trainers.manifest import MANIFEST_FILE, Manifest
from trainers.network import NetworkConfig, build, choose_device
from trainers.running import torch_threads
from trainers.search import GameSearch, Search, SearchConfig
from trainers.search.tree import Ints

MAX_BATCH: Final = 4096
MAX_SEARCHES: Final = 512
"""Trees of one search: a few megabytes at 64 simulations."""


def load_evaluator(checkpoint: Checkpoint, device: str = "auto") -> Evaluator:
    """The network of a checkpoint, ready to be asked."""
    info = checkpoint.info
    try:
        network = build(NetworkConfig(**info.network), info.rules)
        network.load_state_dict(checkpoint.weights)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    if (info.observation, info.shape) != (
        network.config.observation,
        Observer(network.config.observation, info.rules).shape,
    ):
        raise CheckpointError(
            f"{checkpoint.path} was trained on {info.observation!r} {list(info.shape)}, but its "
            f"network takes {network.config.observation!r}"
        )
    return Evaluator(network, info.rules, choose_device(device))


class NetworkPlayer(Agent):
    """Plays the network's policy without looking ahead; temperature 0 is its likeliest action."""

    def __init__(
        self,
        evaluator: Evaluator,
        name: str = "network",
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        if not (math.isfinite(temperature) and temperature >= 0):
            raise PylosError(f"temperature: expected 0 or more, got {temperature!r}")
        self.name = name
        self.temperature = temperature
        self._evaluate = evaluator

    def check_rules(self, rules: Rules) -> None:
        self._evaluate.check_rules(rules, self.name)

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        check_ongoing(position)
        policies = self._policies(np.array([position.packed]), position.rules)
        return policies.ravel()

    def act(self, position: Position, key: int | None = None) -> int:
        check_ongoing(position)
        keys = np.array([self._key(key)])
        return int(self.act_batch(np.array([position.packed]), position.rules, keys)[0])

    def act_batch(self, packed: Ints, rules: Rules, keys: Ints) -> Ints:
        actions = [
            _draw(self._policies(packed[part], rules), keys[part])
            for part in _parts(len(packed), MAX_BATCH)
        ]
        return np.concatenate([np.empty(0, dtype=np.int64), *actions])

    def value(self, position: Position) -> float:
        return float(self.value_batch(np.array([position.packed]), position.rules)[0])

    def value_batch(self, packed: Ints, rules: Rules) -> npt.NDArray[np.float64]:
        self._evaluate.check_rules(rules, self.name)
        parts = [self._evaluate(packed[part])[1] for part in _parts(len(packed), MAX_BATCH)]
        return np.concatenate([np.empty(0), *parts])

    def _policies(self, packed: Ints, rules: Rules) -> npt.NDArray[np.float64]:
        self._evaluate.check_rules(rules, self.name)
        logits, _ = self._evaluate(packed)
        mask = np.empty(logits.shape, dtype=np.int8)
        _write_masks(packed, rules.code, mask)
        wide = np.where(mask == 1, logits.astype(np.float64), -np.inf)
        if not np.isfinite(wide[mask == 1]).all():
            raise PylosError(f"{self.name}: the network's logits are not finite")
        wide -= wide.max(axis=1, keepdims=True)
        policies: npt.NDArray[np.float64] = (wide == 0).astype(np.float64)
        if self.temperature > 0:
            policies = np.exp(wide / self.temperature)
        policies /= policies.sum(axis=1, keepdims=True)
        return policies


@jit
def _write_masks(packed: Ints, rules: int, mask: npt.NDArray[np.int8]) -> None:
    for row in range(len(packed)):
        kernel.write_mask(packed[row], rules, mask[row])


def _draw(policies: npt.NDArray[np.float64], keys: Ints) -> Ints:
    """An action from each policy, by the row's key."""
    sums = policies.cumsum(axis=1)
    shares = keys / float(1 << 63) * sums[:, -1]
    actions = (sums <= shares[:, None]).sum(axis=1)
    last = policies.shape[1] - 1 - (policies[:, ::-1] > 0).argmax(axis=1)
    chosen: Ints = np.minimum(actions, last).astype(np.int64)
    return chosen


def _parts(count: int, size: int) -> list[slice]:
    return [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]


class SearchPlayer(Agent):
    """Searches over the network before every action, and plays the best it finds."""

    def __init__(
        self,
        evaluator: Evaluator,
        config: SearchConfig,
        name: str = "search",
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.name = name
        self.config = config
        self._evaluate = evaluator
        self._search: Search | None = None

    def check_rules(self, rules: Rules) -> None:
        self._evaluate.check_rules(rules, self.name)

    def act(self, position: Position, key: int | None = None) -> int:
        check_ongoing(position)
        keys = np.array([self._key(key)])
        return int(self.act_batch(np.array([position.packed]), position.rules, keys)[0])

    def policy(self, position: Position) -> npt.NDArray[np.float64]:
        check_ongoing(position)
        search = self._trees(1, position.rules)
        result = search.run(np.array([position.packed]), np.zeros(1, np.int64), self._evaluate)
        policy = np.zeros(kernel.NUM_ACTIONS)
        policy[result.legal[0, : result.num_legal[0]]] = result.policy[0, : result.num_legal[0]]
        return policy

    def act_batch(self, packed: Ints, rules: Rules, keys: Ints) -> Ints:
        actions = [np.empty(0, dtype=np.int64)]
        for part in _parts(len(packed), MAX_SEARCHES):
            search = self._trees(len(packed[part]), rules)
            actions.append(search.run(packed[part], keys[part], self._evaluate).action)
        return np.concatenate(actions)

    def value(self, position: Position) -> float:
        return float(self.value_batch(np.array([position.packed]), position.rules)[0])

    def value_batch(self, packed: Ints, rules: Rules) -> npt.NDArray[np.float64]:
        values = [np.empty(0)]
        for part in _parts(len(packed), MAX_SEARCHES):
            search = self._trees(len(packed[part]), rules)
            keys = np.zeros(len(packed[part]), dtype=np.int64)
            values.append(search.run(packed[part], keys, self._evaluate).value.astype(np.float64))
        return np.concatenate(values)

    def at_board(self) -> BoardPlayer:
        return BoardPlayer(self._evaluate, self.config, self.name, self._seed)

    def _trees(self, count: int, rules: Rules) -> Search:
        self._evaluate.check_rules(rules, self.name)
        if self._search is None or self._search.num_games < count:
            self._search = Search(rules, self.config, count)
        return self._search


class BoardPlayer(SearchPlayer):
    """A search player at one board: it goes on with the tree of its last move."""

    def __init__(
        self, evaluator: Evaluator, config: SearchConfig, name: str, seed: int | None = None
    ) -> None:
        super().__init__(evaluator, config, name, seed)
        quiet = replace(config, root="puct", dirichlet_fraction=0.0, temperature=0.0)
        self._tree = GameSearch(evaluator.rules, quiet)

    def act(self, position: Position, key: int | None = None) -> int:
        check_ongoing(position)
        self._evaluate.check_rules(position.rules, self.name)
        with torch_threads(1):  # a few leaves at a time: a second core only waits for the first
            return int(self._tree.run(position.packed, self._evaluate).action[0])

    def value(self, position: Position) -> float:
        with torch_threads(1):
            return super().value(position)

    def at_board(self) -> BoardPlayer:
        return self


# By name


@dataclass(frozen=True)
class Options:
    """What follows the `?` of a name."""

    simulations: int | None = None
    temperature: float = 0.0
    device: str = "auto"


def make_player(text: str, seed: int | None = None) -> Agent:
    """The agent of a name without its `checkpoint:`; an entry point of `pylos_env.agents`."""
    which, _, query = text.partition("?")
    if not which:
        raise PylosError("checkpoint: expected a path or a level, such as checkpoint:runs/first")
    options = parse_options(query)
    path, entered = find_checkpoint(which)
    simulations = entered if options.simulations is None else options.simulations
    evaluator = _cached_evaluator(path, path.stat().st_mtime_ns, options.device)
    name = f"checkpoint:{which}" + (f"?{query}" if query else "")
    if simulations == 0:
        return NetworkPlayer(evaluator, name, options.temperature, seed)
    if options.temperature:
        raise PylosError(f"{name}: a temperature goes with simulations=0")
    config = SearchConfig(simulations=simulations, gumbel_scale=0.0)
    return SearchPlayer(evaluator, config, name, seed)


@functools.lru_cache(maxsize=16)
def _cached_evaluator(path: Path, _changed: int, device: str) -> Evaluator:
    """Both seats, and many workers of one process, may ask for one checkpoint."""
    return load_evaluator(load_weights(path), device)


def parse_options(query: str) -> Options:
    readers: dict[str, Callable[[str], Any]] = {
        "simulations": lambda text: check_count("simulations", int(text), least=0),
        "temperature": float,
        "device": str,
    }
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in found:
            raise PylosError(f"the option {name!r} stands twice in {query!r}")
        if name not in readers:
            raise PylosError(f"unknown option {name!r}: expected one of {', '.join(readers)}")
        try:
            found[name] = readers[name](text)
        except ValueError as error:
            raise PylosError(f"{name}={text}: {error}") from None
    return Options(**found)


def ladder_folder() -> Path:
    """The ladder whose levels have names of their own: `PYLOS_LADDER`, or the shipped one."""
    given = os.environ.get("PYLOS_LADDER")
    return Path(given) if given else Path(__file__).resolve().parent / "ladder"


def find_checkpoint(which: str) -> tuple[Path, int]:
    """The file that a path or level names, and the simulations that its manifest gives it."""
    path = Path(which)
    if path.is_file():
        return path, 0
    if (path / "checkpoints").is_dir():
        run = RunFolder(path, writable=False)
        return run.load(run.best() or LATEST, with_state=False).path, 0
    if (path.parent / "checkpoints").is_dir():
        return _in_run(path.parent, path.name, which)
    manifest = ladder_folder() / MANIFEST_FILE
    if "/" in which or not manifest.exists():
        raise CheckpointError(
            f"no checkpoint {which!r}: there is no such file or run folder"
            + ("" if "/" in which else f", and no ladder at {manifest}")
        )
    return _level(manifest, which)


def _in_run(folder: Path, name: str, which: str) -> tuple[Path, int]:
    run = RunFolder(folder, writable=False)
    if name == LATEST or name in BEST_LINKS:
        return run.load(name, with_state=False).path, 0
    if name.isdecimal():
        return run.load(int(name), with_state=False).path, 0
    manifest = folder / MANIFEST_FILE
    if not manifest.exists():
        raise CheckpointError(
            f"no checkpoint {which!r}: expected latest, best or a step; {manifest} does not exist"
        )
    return _level(manifest, name)


def _level(manifest: Path, name: str) -> tuple[Path, int]:
    ladder = Manifest.read(manifest, check_files=False)
    entry = ladder.level(name)
    ladder.check_file(entry)
    return ladder.file(entry), entry.simulations or 0
