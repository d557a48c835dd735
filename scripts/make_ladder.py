"""Make the ladder that ships with the package from the checkpoints of one run.

    python scripts/make_ladder.py runs/strong --levels 1602:0 4837:0 4837:16 9000:64

A level is a step of the run and the simulations it plays with (0: its raw policy); instead of a
step it may be the file of a checkpoint, such as a level of the older ladder. All levels and the
fixed players meet in a tournament, each level is measured on the oracle's labelled positions,
and the weights are stored in half precision. An older ladder in the folder is replaced when all
of that is done.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from pylos_env.agents import Agent, AgentLike
from pylos_env.oracle import benchmark
from trainers.alphazero.evaluate import player
from trainers.arena import tournament
from trainers.checkpoint_file import encode_weights, load_weights
from trainers.checkpoints import Checkpoint, CheckpointError, RunFolder
from trainers.files import sha256_of
from trainers.manifest import MANIFEST_FILE, Manifest, ManifestEntry, label_of
from trainers.players import load_evaluator

FOLDER = Path(__file__).resolve().parent.parent / "trainers" / "ladder"
ANCHOR = "random"
FIXED = (ANCHOR, "rule_based", "alphabeta:2", "alphabeta:4")


def find(which: str, folder: Path | None) -> Checkpoint:
    """The checkpoint of a step in a run's folder, or of a file."""
    if not which.isdecimal():
        return load_weights(which)
    if folder is None:
        raise CheckpointError(f"step {which}: of which run?")
    return RunFolder(folder, writable=False).load(int(which), with_state=False)


def store(found: Checkpoint, folder: Path) -> Path:
    """Its weights in half precision, without where the run lay."""
    halves = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in found.weights.items()
    }
    path = folder / found.path.resolve().name
    path.write_bytes(encode_weights(found.info.public(), path.stem, halves, state_sha256=""))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="folder of the run")
    parser.add_argument("--levels", nargs="+", required=True, metavar="STEP|FILE:SIMULATIONS")
    parser.add_argument("--games", type=int, default=100, help="of each pairing (default 100)")
    parser.add_argument("--every", type=int, default=4, help="of the labelled positions")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the ladder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen: dict[str, tuple[Checkpoint, int]] = {}
    for text in options.levels:
        which, _, simulations = text.rpartition(":")
        if not (which and simulations.isdecimal()):
            parser.error(f"{text}: expected a step or a file, a colon, and simulations")
        try:
            found = find(which, options.run)
        except CheckpointError as error:
            parser.error(str(error))
        name = f"{found.info.step}:{simulations}"
        if name in chosen:
            parser.error(f"{text}: there is a level {name} already")
        same = [other for other, _ in chosen.values() if other.path.name == found.path.name]
        if any(sha256_of(other.path) != sha256_of(found.path) for other in same):
            parser.error(f"{text}: another file of a level has the same name")
        chosen[name] = found, int(simulations)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out, prefix=".new-") as folder:
        entries = measure(chosen, Path(folder), options.games, options.every)
        for old in options.out.glob("*.safetensors"):
            old.unlink()
        for new in Path(folder).iterdir():
            new.rename(options.out / new.name)
    Manifest(options.out / MANIFEST_FILE, tuple(entries)).write()


def measure(
    chosen: dict[str, tuple[Checkpoint, int]], folder: Path, games: int, every: int
) -> list[ManifestEntry]:
    """Store the levels in a folder, let them play and answer; returns their entries."""
    levels: dict[str, tuple[Path, int]] = {}
    players: list[AgentLike] = [*FIXED]
    agents: dict[str, Agent] = {}
    for text, (found, simulations) in chosen.items():
        path = store(found, folder)
        levels[text] = path, simulations
        agents[text] = player(load_evaluator(load_weights(path)), simulations, text)
        players.append(agents[text])

    played = 0
    total = games * len(players) * (len(players) - 1) // 2

    def show(*_: object) -> None:
        nonlocal played
        played += 1
        print(f"\r{played:,} of {total:,} games", end="", file=sys.stderr, flush=True)

    standings = tournament(players, games=games, anchor=ANCHOR, on_game=show)
    print(file=sys.stderr)
    print(standings.table())
    entries = []
    for text, (path, simulations) in levels.items():
        info = load_weights(path).info
        rating = standings.ratings[text]
        truth = benchmark(agents[text], info.rules, every=every)
        against = next(
            match for match in standings.matches if {match.first, match.second} == {text, ANCHOR}
        )
        wins = against.wins if against.first == text else against.losses
        entries.append(
            ManifestEntry(
                file=path.name,
                step=info.step,
                win_rate_vs_random=wins / len(against.games),
                label=label_of(rating.elo),
                timestamp=info.timestamp,
                rating=round(rating.elo, 1),
                rating_low=round(rating.low, 1),
                rating_high=round(rating.high, 1),
                oracle_score=truth.preserving.rate,
                simulations=simulations,
                sha256=sha256_of(path),
            )
        )
        print(f"{text}: {label_of(rating.elo)}, {rating.elo:.0f}; kept {truth.preserving}")
        print(f"    in won positions {truth.won}")
    return entries


if __name__ == "__main__":
    main()
