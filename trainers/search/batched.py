"""Search: tree search over many games at once, with one evaluator call per simulation.

    search = Search(rules, SearchConfig(simulations=64), num_games=256)
    result = search.run(packed, keys, evaluate)

`evaluate(packed) -> (logits, values)` is any function from positions [n] to logits [n, 303] and
values [n] for the side to move. The search knows nothing else of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pylos_env._jit import jit
from pylos_env.errors import PylosError
from pylos_env.kernel import MAX_LEGAL, NUM_ACTIONS, is_over
from pylos_env.options import check_count
from pylos_env.position import Position
from pylos_env.rules import Rules
from trainers.search import roots, tree
from trainers.search.inner import Inner, inner_of
from trainers.search.tree import (
    LEAF_TO_EVALUATE,
    NO_LEAF,
    ROOT,
    UNPROVEN,
    Floats,
    Ints,
    Leaves,
    Trees,
)

Result = TypeVar("Result")
Evaluate = Callable[[Ints], tuple[Floats, Floats]]
Walk = Generator[Ints, tuple[Floats, Floats], Result]
"""Work that asks: it yields positions, is sent their logits and values, and returns a result."""
UNLIMITED = 1 << 30
# settings: the least and the largest value
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "simulations": (1, 10**6),
    "max_considered": (1, NUM_ACTIONS),
    "c_puct": (0, 1000),
    "prior_temperature": (0.01, 1000),
    "fpu_reduction": (0, 1000),
    "gumbel_scale": (0, 1000),
    "c_visit": (0, 10**6),
    "c_scale": (0, 1000),
    "dirichlet_alpha": (0.001, 1000),
    "dirichlet_fraction": (0, 1),
    "temperature": (0, 1000),
}


@dataclass
class SearchConfig:
    """How to search; the defaults are for self-play."""

    simulations: int = 64
    """Simulations per move."""
    root: str = "gumbel"
    """How the root spends them: see `roots`."""
    c_puct: float = 1.5
    """Weight of the priors against the values."""
    prior_temperature: float = 2.0
    """Of the priors: above 1, actions that the network thinks little of are looked at sooner. The
    Gumbel root scores by the logits as they are, and takes priors only for the mean that unvisited
    actions count as."""
    fpu_reduction: float = 0.25
    """How much less than its parent an unvisited action is worth at first."""
    max_considered: int = 16
    """Gumbel: actions that share the simulations."""
    gumbel_scale: float = 1.0
    """Gumbel: 1 explores, 0 plays the best it finds."""
    c_visit: float = 50.0
    """Gumbel: added to the largest visit count to scale values against logits."""
    c_scale: float = 1.0
    """Gumbel: scale of values against logits."""
    dirichlet_alpha: float = 0.3
    """PUCT: shape of the noise at the root."""
    dirichlet_fraction: float = 0.25
    """PUCT: share of the noise in the root's priors; 0 plays without."""
    temperature: float = 1.0
    """PUCT: actions are drawn from visits to the power of 1 / temperature; 0 plays the most."""

    def check(self) -> None:
        """Refuse what cannot work; the message begins with the setting's name."""
        check_count("simulations", self.simulations)
        check_count("max_considered", self.max_considered)
        if self.root not in ("gumbel", "puct"):
            raise ValueError(f"root: expected 'gumbel' or 'puct', got {self.root!r}")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:  # nan is not either
                raise ValueError(f"{name}: expected {low:g} to {high:g}, got {value!r}")


class SearchResult(NamedTuple):
    """What a search found for each game; rows of `legal` and `policy` end at `num_legal`."""

    action: npt.NDArray[np.int64]  # [games]: the action to play
    value: npt.NDArray[np.float32]  # [games]: of the root, for its side to move
    num_legal: npt.NDArray[np.int64]  # [games]
    legal: npt.NDArray[np.int16]  # [games, most]: the legal actions in ascending order
    policy: npt.NDArray[np.float32]  # [games, most]: the improved policy, to learn from
    visits: npt.NDArray[np.int32]  # [games, most]
    proven: npt.NDArray[np.int8]  # [games]: 1 a proven win, -1 a proven loss, 0 neither
    guess: npt.NDArray[np.float32]  # [games]: what the evaluator alone says of the root
    plies: npt.NDArray[np.int32]  # [games]: that all simulations together went down


class Search:
    """Trees for up to `num_games` games, used again by every `run`."""

    def __init__(self, rules: Rules, config: SearchConfig, num_games: int) -> None:
        config.check()
        self.rules = rules
        self.config = config
        self.num_games = check_count("num_games", num_games)
        self._trees = tree.allocate(num_games, config.simulations + 1)
        self._leaves = tree.allocate_leaves(num_games)
        self._noise = np.zeros((num_games, MAX_LEGAL), dtype=np.float32)
        self._rows = np.empty(num_games, dtype=np.int64)

    def run(
        self,
        packed: Ints,
        keys: Ints,
        evaluate: Evaluate,
        simulations: Ints | None = None,
        plies_left: Ints | None = None,
    ) -> SearchResult:
        """Search every position; none may be over.

        `simulations` gives each game its own number, up to the config's. A position that lies
        `plies_left` plies below the root counts as a draw.
        """
        return drive(self.walk(packed, keys, simulations, plies_left), evaluate)

    def walk(
        self,
        packed: Ints,
        keys: Ints,
        simulations: Ints | None = None,
        plies_left: Ints | None = None,
    ) -> Walk[SearchResult]:
        """The same search, for a caller who brings the answers when they are there."""
        games = len(packed)
        if games > self.num_games:
            raise PylosError(f"{games} positions for a search of {self.num_games} games")
        packed = np.ascontiguousarray(packed, dtype=np.int64)
        keys = np.ascontiguousarray(keys, dtype=np.int64)
        check_ongoing(packed, self.rules)
        config = self.config
        if simulations is None:
            simulations = np.full(games, config.simulations)
        elif simulations.min() < 1 or simulations.max() > config.simulations:
            raise PylosError(f"simulations: expected 1 to {config.simulations}, got {simulations}")
        if plies_left is None:
            plies_left = np.full(games, UNLIMITED)
        if not len(keys) == len(simulations) == len(plies_left) == games:
            raise PylosError(
                f"{games} positions with {len(keys)} keys, {len(simulations)} numbers of "
                f"simulations and {len(plies_left)} of plies: expected one for each"
            )
        trees, leaves = self._trees, self._leaves
        kinds, kind_of = np.unique(simulations, return_inverse=True)
        schedule = _schedules(config.max_considered, tuple(kinds.tolist()))

        tree.plant(trees, packed)
        logits, values = yield packed
        code, temperature = self.rules.code, config.prior_temperature
        check_finite(_expand_roots(trees, code, logits, values, temperature))
        gumbel = config.root == "gumbel"
        if gumbel:
            _write_noise(trees, keys, config.gumbel_scale, self._noise)
        elif config.dirichlet_fraction > 0:
            _mix_noise(trees, keys, config.dirichlet_alpha, config.dirichlet_fraction)
        for number in range(int(simulations.max())):
            count = _select(
                trees,
                leaves,
                code,
                number,
                simulations,
                plies_left,
                gumbel,
                self._noise,
                schedule,
                kind_of,
                config.c_puct,
                config.fpu_reduction,
                config.c_visit,
                config.c_scale,
                self._rows,
            )
            if count:
                rows = self._rows[:count]
                logits, values = yield trees.packed[rows, leaves.node[rows]]
            else:
                logits, values = logits[:0], values[:0]
            check_finite(_grow(trees, leaves, code, games, logits, values, temperature))
        return result_of(trees, keys, config, self._noise if gumbel else None)

    def inner(self, games: Ints, visits: int) -> list[Inner]:
        """What the last search found out below the roots of these games.

        Policies are Gumbel's, improved by `c_visit` and `c_scale`, whatever the root.
        """
        config = self.config
        return inner_of(self._trees, games, visits, config.c_visit, config.c_scale)


def result_of(trees: Trees, keys: Ints, config: SearchConfig, noise: Floats | None) -> SearchResult:
    """What the roots say; `noise` [games, edges] is the Gumbel root's, None means PUCT."""
    games = len(keys)
    num_legal = trees.num_edges[:games, ROOT].astype(np.int64)
    shape = (games, int(num_legal.max()))
    result = SearchResult(
        np.empty(games, dtype=np.int64),
        np.empty(games, dtype=np.float32),
        num_legal,
        np.zeros(shape, dtype=np.int16),
        np.zeros(shape, dtype=np.float32),
        np.zeros(shape, dtype=np.int32),
        trees.proven[:games, ROOT].copy(),
        trees.value[:games, ROOT].copy(),
        np.empty(games, dtype=np.int32),
    )
    gumbel = noise is not None
    if noise is None:
        noise = np.empty((0, 0), dtype=np.float32)
    _write_result(
        trees, keys, gumbel, noise, config.c_visit, config.c_scale, config.temperature, result
    )
    return result


def check_ongoing(packed: Ints, rules: Rules) -> None:
    """Refuse to search where the game is over."""
    row = _first_over(packed, rules.code)
    if row >= 0:
        position = Position.unchecked(int(packed[row]), rules)
        raise PylosError(f"row {row}: the game is over in {position}")


def drive(walk: Walk[Result], evaluate: Evaluate) -> Result:
    """Answer a walk's questions one after the other; returns its result."""
    try:
        packed = next(walk)
        while True:
            packed = walk.send(ask(evaluate, packed))
    except StopIteration as end:
        result: Result = end.value
        return result


def ask(evaluate: Evaluate, packed: Ints) -> tuple[Floats, Floats]:
    """The evaluator's answer; one of another shape is refused."""
    return check_answer(packed, *evaluate(packed))


def check_answer(packed: Ints, logits: Floats, values: Floats) -> tuple[Floats, Floats]:
    if logits.shape != (len(packed), NUM_ACTIONS) or values.shape != (len(packed),):
        raise PylosError(
            f"an evaluator gives logits [{len(packed)}, {NUM_ACTIONS}] and values [{len(packed)}], "
            f"got {list(logits.shape)} and {list(values.shape)}"
        )
    return logits, values


def check_finite(finite: bool) -> None:
    """Refuse to go on with numbers that are none."""
    if not finite:
        raise PylosError("the evaluator's logits or values are not finite: has training diverged?")


@functools.cache
def _schedules(max_considered: int, simulations: tuple[int, ...]) -> Any:
    """[kinds, considered, simulations]: the visits that each simulation asks for."""
    table = np.zeros((len(simulations), max_considered + 1, max(simulations)), dtype=np.int32)
    for kind, count in enumerate(simulations):
        for considered in range(1, max_considered + 1):
            table[kind, considered, :count] = roots.halving_schedule(considered, count)
    return table


@jit
def _first_over(packed: Ints, rules: int) -> int:
    for row in range(len(packed)):
        if is_over(packed[row], rules):
            return row
    return -1


@jit
def _expand_roots(
    trees: Trees, rules: int, logits: Floats, values: Floats, temperature: float
) -> bool:
    """Give every root its edges; returns whether all numbers are finite."""
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    finite = True
    for game in range(len(values)):
        trees.value[game, ROOT] = values[game]
        finite &= tree.expand(trees, game, ROOT, rules, logits[game], temperature, legal)
        finite &= np.isfinite(values[game])
    return finite


@jit
def _write_noise(trees: Trees, keys: Ints, scale: float, noise: Floats) -> None:
    for game in range(len(keys)):
        roots.write_gumbel(trees, game, keys[game], scale, noise[game])


@jit
def _mix_noise(trees: Trees, keys: Ints, alpha: float, fraction: float) -> None:
    for game in range(len(keys)):
        roots.mix_dirichlet(trees, game, keys[game], alpha, fraction)


@jit
def _select(
    trees: Trees,
    leaves: Leaves,
    rules: int,
    number: int,
    simulations: Ints,
    plies_left: Ints,
    gumbel: bool,
    noise: Floats,
    schedule: npt.NDArray[np.int32],
    kind_of: Ints,
    c_puct: float,
    fpu_reduction: float,
    c_visit: float,
    c_scale: float,
    rows: Ints,
) -> int:
    """The next simulation of every game; writes to `rows` the games with a leaf to evaluate."""
    scores = np.empty(MAX_LEGAL, dtype=np.float32)
    count = 0
    for game in range(len(simulations)):
        if number >= simulations[game] or trees.proven[game, ROOT] != UNPROVEN:
            leaves.kind[game] = NO_LEAF
            continue
        if gumbel:
            considered = min(trees.num_edges[game, ROOT], schedule.shape[1] - 1)
            visits = schedule[kind_of[game], considered, number]
            edge = roots.gumbel_edge(trees, game, noise[game], visits, c_visit, c_scale, scores)
        else:
            edge = tree.best_edge(trees, game, ROOT, c_puct, fpu_reduction)
        tree.descend(trees, game, rules, edge, plies_left[game], c_puct, fpu_reduction, leaves)
        if leaves.kind[game] == LEAF_TO_EVALUATE:
            rows[count] = game
            count += 1
    return count


@jit
def _grow(
    trees: Trees,
    leaves: Leaves,
    rules: int,
    num_games: int,
    logits: Floats,
    values: Floats,
    temperature: float,
) -> bool:
    """Give every new leaf its value and edges, and carry all leaves' values to their roots.

    The answers are in the order of the games that asked. Returns whether all are finite.
    """
    finite = True
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    row = 0
    for game in range(num_games):
        if leaves.kind[game] == NO_LEAF:
            continue
        node = leaves.node[game]
        if leaves.kind[game] == LEAF_TO_EVALUATE:
            trees.value[game, node] = values[row]
            leaves.value[game] = values[row]
            finite &= tree.expand(trees, game, node, rules, logits[row], temperature, legal)
            finite &= np.isfinite(values[row])
            row += 1
        tree.back_up(trees, game, node, leaves.value[game])
    return finite


@jit
def _write_result(
    trees: Trees,
    keys: Ints,
    gumbel: bool,
    noise: Floats,
    c_visit: float,
    c_scale: float,
    temperature: float,
    result: SearchResult,
) -> None:
    scores = np.empty(MAX_LEGAL, dtype=np.float32)
    for game in range(len(keys)):
        first = trees.first_edge[game, ROOT]
        for number in range(trees.num_edges[game, ROOT]):
            result.legal[game, number] = trees.action[game, first + number]
            result.visits[game, number] = trees.edge_visits[game, first + number]
        if gumbel:
            roots.write_gumbel_policy(trees, game, ROOT, c_visit, c_scale, scores)
            result.value[game] = roots.improved_value(trees, game, ROOT, scores)
            edge = roots.gumbel_choice(
                trees, game, noise[game], c_visit, c_scale, result.policy[game]
            )
        else:
            roots.write_visit_policy(trees, game, scores)
            result.value[game] = roots.root_value(trees, game)
            edge = roots.draw_edge(trees, game, keys[game], scores, temperature)
        result.policy[game, : trees.num_edges[game, ROOT]] = scores[: trees.num_edges[game, ROOT]]
        result.action[game] = trees.action[game, edge]
        result.plies[game] = trees.visits[game, ROOT + 1 : trees.num_nodes[game]].sum()
