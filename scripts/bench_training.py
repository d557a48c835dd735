"""How fast the trainer plays and how strong it gets, one run after the other.

    python scripts/bench_training.py --json bench_training.json --plot bench_training.png
    python scripts/bench_training.py --finished runs/strong --simulations 1024 --plot strong.png

Runs `experiment=classic` (2,000 games) and the default recipe (ten minutes) as a user would, reads
their metrics, and then measures the default's last checkpoint at 64 simulations: matches against
random, rule_based and alphabeta:4 from paired openings, and all labelled positions of the oracle.
About 15 minutes on two quiet cores. With `--finished` it trains nothing, and measures the last
checkpoint of a run that is there.
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

import numpy as np

from pylos_env import PylosError, agents
from pylos_env.oracle import benchmark
from trainers.arena import play_match
from trainers.checkpoints import RunFolder

KEPT = "eval/oracle_preserving_won"
OPPONENTS = ("random", "rule_based", "alphabeta:4")
CURVES = {
    KEPT: "value kept in won positions",
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


def by_minutes(folder: Path, tag: str, minutes: float) -> list[tuple[float, float]]:
    """The same by the minutes of training so far, evaluations aside."""
    steps, shares = zip(*series(folder, "perf/progress"), strict=True)
    last = shares[-1]
    return [
        (float(np.interp(step, steps, shares)) / last * minutes, value)
        for step, value in series(folder, tag)
    ]


def classic(folder: Path) -> dict[str, Any]:
    """Its 2,000 games with all learning; the last checkpoint is hardly evaluated."""
    evaluation = ("every_steps=1000000000", "games=2", "opponents=[random]", "oracle_every=0")
    seconds = run(folder, "experiment=classic", *(f"evaluation.{part}" for part in evaluation))
    games = series(folder, "selfplay/games")[-1][1]
    rates = [value for _, value in series(folder, "perf/games_per_minute")]
    return {"games": games, "wall_seconds": seconds, "games_per_minute": sum(rates) / len(rates)}


def measure(folder: Path, simulations: int, games: int) -> dict[str, Any]:
    """The last checkpoint of a run, and how the run got there."""
    played = series(folder, "selfplay/games")[-1][1]
    checkpoint = RunFolder(folder, writable=False).load("latest", with_state=False)
    minutes = checkpoint.info.counters["seconds"] / 60
    agent = agents.make(f"checkpoint:{folder}/latest?simulations={simulations}", seed=0)
    print(f"{agent.name}: the labelled positions", flush=True)
    truth = benchmark(agent, "advanced")
    wins: dict[str, Any] = {}
    for opponent in OPPONENTS:
        print(f"{agent.name}: {games} games against {opponent}", flush=True)
        match = play_match(agent, opponent, "advanced", games=games)
        wins[opponent] = {"wins": match.wins, "draws": match.draws, "games": len(match.games)}
    return {
        "minutes": minutes,
        "steps": checkpoint.info.step,
        "simulations": simulations,
        "games": played,
        "games_per_second": played / minutes / 60,
        "value_kept_in_won_positions": {"share": truth.won.rate, "interval": truth.won.interval},
        "value_kept": {"share": truth.preserving.rate, "interval": truth.preserving.interval},
        "matches": wins,
        "curves": {tag: by_minutes(folder, tag, minutes) for tag in CURVES},
    }


def save_plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (axes, errors) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for tag, label in CURVES.items():
        curve = found["curves"][tag]
        axes.plot(*zip(*((m, 100 * share) for m, share in curve), strict=True), "o-", label=label)
    axes.set_ylabel("%")
    axes.set_ylim(0, 101)
    axes.legend(loc="lower right")
    kept = [(m, share) for m, share in found["curves"][KEPT] if share < 1]
    errors.loglog(*zip(*((m, 100 * (1 - share)) for m, share in kept), strict=True), "o-")
    errors.set_ylabel("% of won positions thrown away")
    errors.xaxis.set_major_formatter("{x:g}")
    errors.xaxis.set_minor_formatter("")
    errors.yaxis.set_major_formatter("{x:g}")
    errors.yaxis.set_minor_formatter("{x:g}")
    for part in (axes, errors):
        part.set_xlabel("minutes of training, evaluations aside")
        part.grid(alpha=0.3, which="both")
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
    parser.add_argument("--finished", type=Path, help="folder of a run to measure instead")
    parser.add_argument("--simulations", type=int, default=64, help="of a move (default 64)")
    parser.add_argument("overrides", nargs="*", help="settings of the default recipe")
    options = parser.parse_args()
    if options.finished is not None and options.overrides:
        parser.error("--finished trains nothing, so settings say nothing")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        found: dict[str, Any] = {}
        name, trained = "finished", options.finished
        if trained is None:
            if not options.skip_classic:
                found["classic"] = classic(folder / "classic")
            name, trained = "default", folder / "default"
            run(trained, f"budget.minutes={options.minutes}", *options.overrides)
        try:
            found[name] = measure(trained, options.simulations, options.games)
        except (PylosError, OSError, IndexError) as error:
            parser.error(f"{trained}: {error}")
    curves = found[name].pop("curves")
    print(json.dumps(found, indent=2))
    found[name]["curves"] = curves
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.plot:
        save_plot(found[name], options.plot)


if __name__ == "__main__":
    main()
