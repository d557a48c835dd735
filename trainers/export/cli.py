"""`pylos-export`: a checkpoint as ONNX, as safetensors, and with a model card."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pylos_env.agents import Agent
from pylos_env.errors import PylosError
from pylos_env.oracle import benchmark
from pylos_env.oracle.labels import has_labels
from pylos_env.oracle.measure import Report
from trainers.checkpoint_file import Checkpoint, encode_weights, load_weights
from trainers.evaluator import Evaluator
from trainers.export import onnx_file
from trainers.export.card import CARD_FILE, ONNX_FILE, WEIGHTS_FILE, Facts, card
from trainers.export.model import Exported
from trainers.export.onnx_file import Difference, ExportError
from trainers.files import make_folder, write_atomically
from trainers.manifest import MANIFEST_FILE, Manifest, ManifestEntry
from trainers.players import (
    NetworkPlayer,
    SearchPlayer,
    find_checkpoint,
    load_evaluator,
    parse_options,
)
from trainers.search import SearchConfig

TOLERANCE = 1e-4
POSITIONS = 1000
EVERY = 4
PREFIX = "checkpoint:"

DESCRIPTION = f"""\
Write a checkpoint for use elsewhere: {ONNX_FILE} (checked against the network on random positions),
{WEIGHTS_FILE} and a model card, {CARD_FILE}.
"""
EPILOG = """\
checkpoints:
  runs/first                 the best of a run, or the latest where none is marked
  runs/first/latest          or best, a step, or a level of the run's manifest
  weights.safetensors        one file
  Expert                     a level of the ladder
  Expert?simulations=64      measured, and meant to play, with so many simulations a move

examples:
  pylos-export runs/alphazero/first
  pylos-export Expert --out exported/expert --every 1
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        folder = export(
            options.checkpoint,
            options.out,
            onnx=not options.no_onnx,
            tolerance=options.tolerance,
            positions=options.positions,
            every=options.every,
            seed=options.seed,
            force=options.force,
        )
    except (PylosError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"written: {folder}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pylos-export",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", help="a run, a file or a level, see below")
    parser.add_argument(
        "--out", type=Path, help="folder to write (default: exported/<the checkpoint's name>)"
    )
    parser.add_argument("--no-onnx", action="store_true", help="weights and card only")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help=f"the largest difference of a logit or value that passes (default {TOLERANCE:g})",
    )
    parser.add_argument(
        "--positions",
        type=int,
        default=POSITIONS,
        help=f"random positions of the check (default {POSITIONS})",
    )
    parser.add_argument(
        "--every",
        type=int,
        default=EVERY,
        help="measure the card's oracle score on each so-many-th labelled position; 0: not at all "
        f"(default {EVERY})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random positions (default 0)")
    parser.add_argument("--force", action="store_true", help="replace the files of an older export")
    return parser


def export(
    name: str,
    out: Path | None = None,
    *,
    onnx: bool = True,
    tolerance: float = TOLERANCE,
    positions: int = POSITIONS,
    every: int = EVERY,
    seed: int = 0,
    force: bool = False,
) -> Path:
    """Write the files and return their folder; when it raises, nothing has been written."""
    for option, value, least in (
        ("positions", positions, 1),
        ("every", every, 0),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ExportError(f"{option}: expected {least} or more, got {value}")
    if not tolerance > 0:
        raise ExportError(f"tolerance: expected more than 0, got {tolerance}")
    if onnx:
        onnx_file.check_installed()
    which, _, query = name.removeprefix(PREFIX).partition("?")
    asked = parse_options(query)
    if asked.temperature:
        raise ExportError("temperature: that is up to whoever plays, and not part of an export")
    path, entered = find_checkpoint(which)
    checkpoint = load_weights(path)
    saved_as = path.resolve().stem  # of a link, what it leads to
    folder = out or Path("exported") / saved_as
    _check_free(folder, force)

    entry = entry_of(path, entered)
    simulations = entered or (entry.simulations if entry else 0) or 0
    if asked.simulations is not None:
        simulations = asked.simulations
    evaluator = load_evaluator(checkpoint, asked.device)
    files: dict[str, bytes] = {WEIGHTS_FILE: _weights(checkpoint, saved_as)}
    difference = None
    if onnx:
        on_cpu = load_evaluator(checkpoint, "cpu")
        files[ONNX_FILE], difference = _onnx(on_cpu, checkpoint, positions, seed)
        print(f"largest difference between ONNX and torch: {difference}", flush=True)
        onnx_file.check_difference(difference, tolerance)
    facts = Facts(
        _title(which, saved_as, entry),
        checkpoint.info,
        sum(weight.numel() for weight in evaluator.network.parameters()),
        entry,
        simulations,
        _measure(evaluator, simulations, every),
        difference,
        has_labels(checkpoint.info.rules),
    )
    files[CARD_FILE] = card(facts).encode()
    _write(folder, files)
    return folder


def _title(which: str, saved_as: str, entry: ManifestEntry | None) -> str:
    """A level is called by its label, everything else by what it was saved as."""
    level = entry is not None and which.rpartition("/")[2].casefold() == entry.label.casefold()
    return f"Pylos {entry.label} ({saved_as})" if entry and level else f"Pylos {saved_as}"


def entry_of(path: Path, simulations: int) -> ManifestEntry | None:
    """The line of a checkpoint in the manifest of its run or ladder, where there is one."""
    real = path.resolve()
    for folder in (real.parent, real.parent.parent):
        if (folder / MANIFEST_FILE).is_file():
            manifest = Manifest.read(folder / MANIFEST_FILE, check_files=False)
            found = [e for e in manifest.checkpoints if manifest.file(e).resolve() == real]
            # one file may stand for several levels, which search more or less
            same = [e for e in found if (e.simulations or 0) == simulations]
            if found:
                return (same or found)[0]
    return None


def _weights(checkpoint: Checkpoint, saved_as: str) -> bytes:
    """The checkpoint's own content, without where the run lay and the state of its training."""
    return encode_weights(checkpoint.info.public(), saved_as, checkpoint.weights, state_sha256="")


def _onnx(
    evaluator: Evaluator, checkpoint: Checkpoint, positions: int, seed: int
) -> tuple[bytes, Difference]:
    facts = checkpoint.info.public().to_metadata()
    data = onnx_file.encode(Exported(evaluator.network, evaluator.rules), facts)
    return data, onnx_file.compare(data, evaluator, positions, seed)


def _measure(evaluator: Evaluator, simulations: int, every: int) -> dict[int, Report]:
    """The raw policy and, where it searches, the player against the truth."""
    if not every or not has_labels(evaluator.rules):
        return {}
    players: dict[int, Agent] = {0: NetworkPlayer(evaluator, seed=0)}
    if simulations:
        config = SearchConfig(simulations=simulations, gumbel_scale=0.0)
        players[simulations] = SearchPlayer(evaluator, config, seed=0)
    return {
        count: benchmark(player, evaluator.rules, every=every) for count, player in players.items()
    }


def _check_free(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder} is a file: expected a folder to write")
    there = [name for name in (ONNX_FILE, WEIGHTS_FILE, CARD_FILE) if (folder / name).exists()]
    if there and not force:
        raise ExportError(f"{folder} has {', '.join(there)} already: --force replaces what it has")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """All files or none: written aside first, and moved when all of them are whole."""
    made = not folder.exists()
    aside = folder.with_name(f".{folder.name or 'export'}.{secrets.token_hex(8)}.tmp")
    make_folder(folder.parent)
    try:
        make_folder(aside)
        for name, content in files.items():
            write_atomically(aside / name, content)
        if made:
            os.replace(aside, folder)
            return
        for name in files:
            os.replace(aside / name, folder / name)
    except OSError as error:
        raise ExportError(f"could not write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
