"""`pylos-arena`: matches and tournaments on the command line."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pylos_env
from pylos_env import agents
from pylos_env.errors import PylosError
from pylos_env.options import MAX_PLIES
from pylos_env.record import write_games
from pylos_env.rules import PRESETS
from trainers.arena.contest import GAMES, Conditions, Contest, OnGame
from trainers.arena.games import BATCH, Game
from trainers.arena.openings import PLIES
from trainers.arena.plot import check_plot, plot_ratings
from trainers.arena.results import Tournament
from trainers.arena.sprt import Sprt
from trainers.ratings import check_anchor

INSTALL_HINT = "pip install 'pylos-env[train]'"

DESCRIPTION = """\
Let two players play a match, or three and more a tournament of everyone against everyone. Every
opening, a few random plies, is played twice with seats swapped; the same seed gives the same games.
"""

EPILOG = """\
players: {names}

examples:
  pylos-arena alphabeta:4 rule_based
  pylos-arena alphabeta:4 alphabeta:2 --games 2000 --sprt 0 50
  pylos-arena random rule_based alphabeta:2 alphabeta:4 --plot ratings.png --save games.txt

Ctrl-C ends the games and shows the result of the pairs that are finished.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        contest = _prepare(options)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("stopped before the first game", file=sys.stderr)
        return 130
    stopped = False
    try:
        with _progress(contest.num_games) as on_game, _interruptible(on_game) as stoppable:
            contest.play(stoppable)
    except KeyboardInterrupt:
        stopped = True
        print("stopped: finished pairs only, so long games are missing", file=sys.stderr)
    except PylosError as error:
        return _fail(parser, error)
    standings = contest.tournament(options.anchor)
    try:
        _write(contest, standings, options)  # first: whoever reads the output may leave
        _show(contest, standings, options.json)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nothing more to say, and nobody to say it to
    except (PylosError, OSError) as error:
        return _fail(parser, error)
    return 130 if stopped else 0


@contextlib.contextmanager
def _interruptible(on_game: OnGame | None) -> Iterator[OnGame]:
    """Heed Ctrl-C between games (compiled code may swallow it); a second one counts at once."""
    asked = threading.Event()

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def stoppable(game: Game) -> None:
        if on_game is not None:
            on_game(game)
        if asked.is_set():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stoppable
    finally:
        signal.signal(signal.SIGINT, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pylos-arena",
        description=DESCRIPTION,
        epilog=EPILOG.format(names=", ".join(agents.names())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("players", nargs="+", metavar="PLAYER", help="two or more names, see below")
    add(
        "--rules",
        default="advanced",
        help=f"one of {', '.join(PRESETS)}, or a mix such as 'squares lines min=1' "
        "(default: %(default)s)",
    )
    add(
        "--games",
        type=int,
        default=GAMES,
        metavar="N",
        help="games of every two players, an even number (default: %(default)s)",
    )
    add(
        "--opening-plies",
        type=int,
        default=PLIES,
        metavar="N",
        help="random plies before the players take over (default: %(default)s)",
    )
    add(
        "--max-plies",
        type=int,
        default=MAX_PLIES,
        metavar="N",
        help="a game of so many plies is a draw (default: %(default)s)",
    )
    add("--seed", type=int, default=0, metavar="N", help="of openings and players (default: 0)")
    add(
        "--batch",
        type=int,
        default=BATCH,
        metavar="N",
        help="games under way at once; changes speed, not games (default: %(default)s)",
    )
    add(
        "--sprt",
        type=float,
        nargs=2,
        metavar=("ELO0", "ELO1"),
        help="stop a match as soon as it is settled whether the first player is ELO1 above the "
        "second or only ELO0; --games is then the most that is played",
    )
    add(
        "--alpha",
        type=float,
        metavar="P",
        help=f"chance of accepting ELO1 where ELO0 is true (default: {Sprt.alpha})",
    )
    add(
        "--beta",
        type=float,
        metavar="P",
        help=f"chance of accepting ELO0 where ELO1 is true (default: {Sprt.beta})",
    )
    add(
        "--anchor",
        metavar="NAME",
        help="the player rated 0, or 'mean' (default: random if it plays, else mean)",
    )
    add("--save", type=Path, metavar="FILE", help="write the games as text")
    add("--plot", type=Path, metavar="FILE", help="draw the ratings (.png, .svg, .pdf)")
    add("--json", action="store_true", help="print the result as JSON")
    add("--version", action="version", version=pylos_env.__version__)
    return parser


def _prepare(options: argparse.Namespace) -> Contest:
    """Everything that can be refused is refused here, before a game is played."""
    if importlib.util.find_spec("scipy") is None:
        raise PylosError(f"ratings need scipy: {INSTALL_HINT}")
    players: list[str] = options.players
    for name in players:
        if players.count(name) > 1:
            raise PylosError(f"{name!r} is named twice: give each player once")
    check_anchor(players, options.anchor)
    conditions = Conditions(
        options.rules,
        options.games,
        options.opening_plies,
        options.max_plies,
        options.seed,
        options.batch,
    )
    if options.plot is not None:
        check_plot(options.plot)
    for path in (options.save, options.plot):
        if path is not None:
            _check_writable(path)
    return Contest(players, conditions, _question(options))


def _question(options: argparse.Namespace) -> Sprt | None:
    errors = {
        name: value
        for name, value in (("alpha", options.alpha), ("beta", options.beta))
        if value is not None
    }
    if options.sprt is not None:
        elo0, elo1 = options.sprt
        return Sprt(elo0, elo1, **errors)
    for name in errors:
        raise PylosError(f"--{name} belongs to --sprt, which is missing")
    return None


def _check_writable(path: Path) -> None:
    """Open the file as it will be opened, and leave things as they were."""
    existed = path.exists()
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise PylosError(f"cannot write {path}: {error.strerror}") from None
    if not existed:
        path.unlink()


@contextlib.contextmanager
def _progress(num_games: int) -> Iterator[OnGame | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich import progress
        from rich.console import Console
    except ModuleNotFoundError:
        print(f"no progress bar without rich: {INSTALL_HINT}", file=sys.stderr)
        yield None
        return
    bar = progress.Progress(
        progress.TextColumn("games"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("games", total=num_games)
        yield lambda game: bar.advance(task)


def _show(contest: Contest, standings: Tournament, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_facts(contest) | standings.to_dict(), indent=2, allow_nan=False))
        return
    conditions = contest.conditions
    print(
        f"rules {contest.rules}, seed {conditions.seed}, openings of {conditions.opening_plies} "
        f"plies, a draw after {conditions.max_plies} plies"
    )
    print(standings.table() if len(contest.players) > 2 else standings.matches[0])


def _facts(contest: Contest) -> dict[str, Any]:
    conditions = contest.conditions
    return {
        "version": pylos_env.__version__,
        "rules": str(contest.rules),
        "seed": conditions.seed,
        "opening_plies": conditions.opening_plies,
        "max_plies": conditions.max_plies,
    }


def _write(contest: Contest, standings: Tournament, options: argparse.Namespace) -> None:
    if options.save is not None:
        event = f"pylos-arena, seed {contest.conditions.seed}"
        write_games(options.save, (game.record(event) for game in standings.games))
    if options.plot is not None:
        plot_ratings(standings, options.plot)


def _fail(parser: argparse.ArgumentParser, error: Exception) -> int:
    print(f"{parser.prog}: error: {error}", file=sys.stderr)
    return 1
