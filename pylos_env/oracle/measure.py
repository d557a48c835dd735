"""`pylos-oracle-bench`: an agent against the truth, on the labelled positions that ship.

    pylos-oracle-bench --agent alphabeta:4

An action *preserves the value* when the position is worth as much after it as before: a won
position stays won, a drawn one is not lost. Only positions where some action does not are counted,
so an agent cannot gain by positions in which nothing can go wrong. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pylos_env import agents, kernel
from pylos_env.agents import Agent, AgentLike
from pylos_env.errors import PylosError
from pylos_env.options import check_count, check_seed
from pylos_env.oracle.labels import SOURCES, Labels, load_labels, values_of
from pylos_env.position import Position
from pylos_env.rules import Rules

PHASES: Final = {"opening": range(10), "middle": range(10, 20), "end": range(20, 30)}
"""By the number of spheres on the board."""
CHUNK: Final = 256
Z_95: Final = 1.959963984540054
"""Standard deviations to each side that hold 95 % of a normal distribution."""

Progress = Callable[[int, int], None]
"""Called with how many positions are done, and of how many."""


def wilson(rate: float, trials: float) -> tuple[float, float]:
    """Wilson's score interval, 95 %, of a share found in so many independent trials."""
    slack = Z_95**2 / trials
    middle = (rate + slack / 2) / (1 + slack)
    half = Z_95 / (1 + slack) * math.sqrt(rate * (1 - rate) / trials + slack / trials / 4)
    return (
        max(0.0, middle - half) if rate > 0 else 0.0,  # exact where rounding would miss the end
        min(1.0, middle + half) if rate < 1 else 1.0,
    )


@dataclass(frozen=True)
class Share:
    """So many hits in so many trials."""

    hits: int
    total: int

    @property
    def rate(self) -> float:
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.rate, self.total) if self.total else (0.0, 1.0)

    def __str__(self) -> str:
        if not self.total:
            return "     -"
        low, high = self.interval
        return f"{self.rate:6.1%}  [{low:6.1%}, {high:6.1%}]  of {self.total:,}"


@dataclass(frozen=True)
class Report:
    """What `benchmark` found. All shares but `wrong_sign` are of value-preserving actions."""

    agent: str
    rules: str
    preserving: Share
    won: Share  # what is missing to 1 are wins thrown away
    drawn: Share
    phases: dict[str, Share]
    sources: dict[str, Share]
    won_by_spheres: dict[int, Share]
    wrong_sign: Share | None
    """How often its estimate calls a won position lost, a lost one won, or either even; None for an
    agent without estimates."""

    def rows(self) -> dict[str, Share | None]:
        return {
            "value preserved": self.preserving,
            "  won positions": self.won,
            "  drawn positions": self.drawn,
            **{f"  {name}": share for name, share in self.phases.items()},
            **{f"  {name} games": share for name, share in self.sources.items()},
            "wrong sign of value": self.wrong_sign,
        }

    def __str__(self) -> str:
        lines = [f"{self.agent}, {self.rules}"]
        for name, share in self.rows().items():
            lines.append(f"{name:<21} {share if share else '     -  it gives no estimates'}")
        return "\n".join(lines)


def benchmark(
    agent: AgentLike,
    rules: str | Rules = "advanced",
    *,
    every: int = 1,
    seed: int = 0,
    labels: Labels | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measure an agent on the shipped positions of a rule set, or on each `every`-th of them.

    `labels` are positions of your own, from `Oracle.label`; they bring their rules.
    """
    labels = labels or load_labels(Rules.of(rules))
    labels = labels.every(check_count("every", every))
    seed = check_seed(seed)
    player = agents.make(agent, seed=seed)
    actions, estimates = _ask(player, labels, seed, progress or (lambda done, total: None))
    return _report(player.name, labels, actions, estimates)


def _ask(
    player: Agent, labels: Labels, seed: int, progress: Progress
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The player's action in each position, and its estimate of each, NaN where it has none."""
    total = len(labels.packed)
    keys = np.array([kernel.draw(seed, row) for row in range(total)], dtype=np.int64)
    actions: list[npt.NDArray[np.int64]] = []
    estimates: list[npt.NDArray[np.float64]] = []
    for begin in range(0, total, CHUNK):
        packed = labels.packed[begin : begin + CHUNK]
        actions.append(player.act_batch(packed, labels.rules, keys[begin : begin + CHUNK]))
        found = player.value_batch(packed, labels.rules)
        estimates.append(np.full(len(packed), np.nan) if found is None else found)
        progress(begin + len(packed), total)
    return np.concatenate(actions), np.concatenate(estimates)


def _report(
    name: str,
    labels: Labels,
    actions: npt.NDArray[np.int64],
    estimates: npt.NDArray[np.float64],
) -> Report:
    values, spheres = labels.values, labels.spheres
    after = values_of(labels.after)
    worst = np.minimum.reduceat(after, labels.begin[:-1])
    kept = after[labels.begin[:-1] + _ranks(labels, actions, name)] == values
    counted = worst < values

    def share(rows: npt.NDArray[np.bool_]) -> Share:
        rows = rows & counted
        return Share(int(kept[rows].sum()), int(rows.sum()))

    wrong_sign = None
    decided = (values != 0) & np.isfinite(estimates)
    if decided.any():
        wrong = estimates[decided] * values[decided] <= 0
        wrong_sign = Share(int(wrong.sum()), int(decided.sum()))
    return Report(
        agent=name,
        rules=str(labels.rules),
        preserving=share(np.ones_like(counted)),
        won=share(values == 1),
        drawn=share(values == 0),
        phases={
            phase: share((spheres >= counts.start) & (spheres < counts.stop))
            for phase, counts in PHASES.items()
        },
        sources={source: share(labels.source == index) for index, source in enumerate(SOURCES)},
        won_by_spheres={
            count: share((values == 1) & (spheres == count))
            for count in np.unique(spheres[counted]).tolist()
        },
        wrong_sign=wrong_sign,
    )


def _ranks(labels: Labels, actions: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.int64]:
    """Where each action stands among the legal ones of its position."""
    ranks = np.empty(len(actions), dtype=np.int64)
    for row, action in enumerate(actions.tolist()):
        legal = kernel.legal_actions(int(labels.packed[row]), labels.rules.code).tolist()
        if action not in legal:
            position = Position.unchecked(int(labels.packed[row]), labels.rules)
            raise PylosError(f"{name} played the illegal action {action} in {position}")
        ranks[row] = legal.index(action)
    return ranks


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done:,} of {total:,} positions", end=end, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="pylos-oracle-bench", description="Measure agents against perfect play."
    )
    parser.add_argument(
        "--agent", required=True, action="append", help=f"{', '.join(agents.names())}; repeatable"
    )
    parser.add_argument("--rules", default="advanced", help="default: advanced")
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="ask only every Nth labelled position: 20 gives a first impression in seconds",
    )
    parser.add_argument("--seed", type=int, default=0, help="of agents that play by chance")
    options = parser.parse_args(arguments)
    try:
        for name in options.agent:
            report = benchmark(
                name, options.rules, every=options.every, seed=options.seed, progress=_show
            )
            print(report, end="\n\n", flush=True)
    except (PylosError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
