"""How fast the trainer plays and how strong it gets, one run after the other.

    python scripts/bench_training.py --json bench_training.json --plot bench_training.png

Runs `experiment=classic` (2,000 games) and the default recipe (ten minutes) as a user would, reads
their metrics, and then measures the default's last checkpoint at 64 simulations: matches against
random, rule_based and alphabeta:4 from paired openings, and all labelled positions of the oracle.
About 15 minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pylos_env import agents
from pylos_env.oracle import benchmark
from trainers.arena import play_match

OPPONENTS = ("random", "rule_based", "alphabeta:4")
CURVES = {
    "eval/oracle_preserving_won": "value kept in won positions",
    "eval/win_rate_vs_alphabeta": "wins against alphabeta:4",
    "eval/win_rate_vs_rule_based": "wins against rule_based",
}


def run(folder: Path, *overrides: str) -> float:
    """Train in a process of its own; returns the seconds it took, set-up and evaluations too."""
    began = time.monotonic()
    command = [sys.executable, "-m", "trainers.alphazero", f"run={folder}", *overrides]
    print("$ " + " ".join(command[1:]), flush=True)
    subprocess.run(command, check=True)
    return time.monotonic() - began


def series(folder: Path, tag: str) -> list[tuple[int, float]]:
    """The steps and values of a tag in a run's metrics."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tag"] == tag]
    return [(int(row["step"]), float(row["value"])) for row in rows]


def classic(folder: Path) -> dict[str, Any]:
    """Its 2,000 games with all learning; the last checkpoint is hardly evaluated."""
    evaluation = ("every_steps=1000000000", "games=2", "opponents=[random]", "oracle_every=0")
    seconds = run(folder, "experiment=classic", *(f"evaluation.{part}" for part in evaluation))
    games = series(folder, "selfplay/games")[-1][1]
    rates = [value for _, value in series(folder, "perf/games_per_minute")]
    return {"games": games, "wall_seconds": seconds, "games_per_minute": sum(rates) / len(rates)}


def default(folder: Path, minutes: float, overrides: list[str], games: int) -> dict[str, Any]:
    run(folder, f"budget.minutes={minutes}", *overrides)
    played = series(folder, "selfplay/games")[-1][1]
    agent = agents.make(f"checkpoint:{folder}/latest?simulations=64", seed=0)
    truth = benchmark(agent, "advanced")
    wins: dict[str, Any] = {}
    for opponent in OPPONENTS:
        match = play_match(agent, opponent, "advanced", games=games)
        wins[opponent] = {"wins": match.wins, "draws": match.draws, "games": len(match.games)}
    return {
        "minutes": minutes,
        "games": played,
        "games_per_second": played / minutes / 60,
        "value_kept_in_won_positions": {"share": truth.won.rate, "interval": truth.won.interval},
        "value_kept": {"share": truth.preserving.rate, "interval": truth.preserving.interval},
        "matches": wins,
        "curves": {tag: series(folder, tag) for tag in CURVES},
    }


def save_plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    last = max(step for curve in found["curves"].values() for step, _ in curve)
    for tag, label in CURVES.items():
        curve = found["curves"][tag]
        minutes = [step / last * found["minutes"] for step, _ in curve]
        axes.plot(minutes, [100 * value for _, value in curve], marker="o", label=label)
    axes.set_xlabel("minutes of training on this machine (by learning steps)")
    axes.set_ylabel("%")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of the default recipe")
    parser.add_argument("--games", type=int, default=400, help="of each match (default 400)")
    parser.add_argument("--folder", type=Path, help="keep the runs here")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw the learning curve into this PNG file")
    parser.add_argument("--skip-classic", action="store_true", help="only the default recipe")
    parser.add_argument("overrides", nargs="*", help="settings of the default recipe")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        found: dict[str, Any] = {}
        if not options.skip_classic:
            found["classic"] = classic(folder / "classic")
        found["default"] = default(
            folder / "default", options.minutes, options.overrides, options.games
        )
    curves = found["default"].pop("curves")
    print(json.dumps(found, indent=2))
    found["default"]["curves"] = curves
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.plot:
        save_plot(found["default"], options.plot)


if __name__ == "__main__":
    main()
