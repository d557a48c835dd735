"""The screen, the keyboard and the command line of `pylos-play`.

On a terminal there are boards, prompts and colour. Everywhere else the program reads moves and
commands line by line and prints one line a turn; complaints go to the error stream.

Exit codes: 0 the game was played or left, 1 a player or the disk failed, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from pylos_env import agents
from pylos_env.errors import PylosError
from pylos_env.options import MAX_PLIES, check_max_plies, check_seed
from pylos_env.position import SIDE_NAMES, Position
from pylos_env.rules import PRESETS, Rules
from trainers.manifest import LABELS
from trainers.play.game import Game, read_record
from trainers.play.session import HUMAN, Seat, Session

PATIENCE: Final = 0.3
"""Seconds before a terminal says who is thinking."""

T = TypeVar("T")


class Terminal:
    """Where a session is shown and typed."""

    def __init__(self, watched: bool, typed: bool) -> None:
        """`watched`: somebody looks at the output; `typed`: and writes the input by hand."""
        self.watched = watched
        self.typed = typed
        self.is_thinking = False
        if typed:
            with contextlib.suppress(ImportError):  # line editing, on systems that have it
                import readline  # noqa: F401

    def say(self, text: str) -> None:
        print(text, flush=True)

    def complain(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def read(self, prompt: str) -> str | None:
        """The next line; None at the end of the input."""
        if self.typed:
            try:
                return input(prompt)
            except EOFError:
                print()
                return None
        return (sys.stdin and sys.stdin.readline()) or None

    def think(self, who: str, task: Callable[[], T]) -> T:
        """Run a task in a thread of its own, so that Ctrl-C need not wait for its end."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)  # raised again where the result is asked for

        self.is_thinking = True
        threading.Thread(target=work, daemon=True).start()
        if not wait([future], PATIENCE).done:
            self._wait(future, f"{who} is thinking ..." if self.watched else "")
        self.is_thinking = False
        return future.result()

    def _wait(self, future: Future[Any], note: str) -> None:
        print(note, end="", flush=True)
        # in short waits: a long one cannot be interrupted on every system
        while not wait([future], PATIENCE).done:
            pass
        if note:
            print(f"\r{' ' * len(note)}\r", end="", flush=True)


# A game from the welcome to the farewell


def run(session: Session, terminal: Terminal, save: Path | None = None, delay: float = 0) -> int:
    """Play a session until it is left; the exit code. `save` is written when a game ends."""
    code = 0
    try:
        _play(session, terminal, save, delay)
    except KeyboardInterrupt:
        if terminal.watched:
            terminal.say("")
        code = 130
    except PylosError as error:
        terminal.complain(f"pylos-play: {error}")
        code = 1
    finally:
        is_kept = _keep(session, terminal, save)
    # agents that came to an end have shown all their moves
    if session.is_unsaved and (session.has_people or code):
        terminal.say(f"This game is in no file:\n\n{session.record()}".rstrip())
    return code if is_kept else code or 1


def _play(session: Session, terminal: Terminal, save: Path | None, delay: float) -> None:
    boards = terminal.typed if session.has_people else terminal.watched and delay > 0
    shown: Game | None = None
    if terminal.watched:
        terminal.say(_welcome(session))
    while True:
        agent_to_move = session.mover.agent is not None and not session.ending
        # people see the board when it is their turn, and when all is over
        if session.game is not shown and not (session.has_people and agent_to_move):
            shown = session.game
            is_new = session.game.resigned is None  # who resigns has the board before his eyes
            if is_new and (boards or (terminal.watched and session.ending)):
                terminal.say(f"\n{session.board()}\n")
            if session.ending:
                terminal.say(session.result())
                _keep(session, terminal, save)
        if agent_to_move:
            reply = session.agent_turn()
            time.sleep(0 if session.has_people else delay)
        elif session.has_people:
            line = terminal.read(_prompt(session))
            if line is None:
                return
            reply = session.answer(line)
        else:
            return
        if reply.leave:
            return
        if reply.error:
            terminal.complain(reply.text)
        elif reply.text and not (reply.turn and boards):  # a board names the turn that led to it
            terminal.say(reply.text)


def _welcome(session: Session) -> str:
    white, black = (seat.name for seat in session.seats)
    text = f"Pylos, rules {session.game.position.rules}: white is {white}, black is {black}."
    return f"{text}\nType a move such as 1b2, or help." if session.has_people else text


def _prompt(session: Session) -> str:
    if session.ending:
        return "game over> "
    side = SIDE_NAMES[session.game.position.side]
    return f"{side} takes back> " if session.game.position.take_backs_left else f"{side}> "


def _keep(session: Session, terminal: Terminal, path: Path | None) -> bool:
    """Write the game to the file it is to be kept in; False where that fails."""
    if path is None or not session.game.plies or session.is_in(path):
        return True
    try:
        session.save(path, over_another=True)
    except PylosError as error:
        terminal.complain(f"pylos-play: {error}")
        return False
    terminal.say(f"saved in {path}")
    return True


# The command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help shows what there is)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pylos-play",
        description="Play Pylos in the terminal, or watch agents play.",
        epilog=f"Players: {HUMAN}, {', '.join(agents.names())}. The trained levels are "
        f"{', '.join(f'checkpoint:{label.lower()}' for label in LABELS)}; a run of your own is "
        "checkpoint:runs/alphazero/<run>?simulations=64.",
    )
    parser.add_argument("--white", default=HUMAN, metavar="PLAYER", help="default: %(default)s")
    parser.add_argument(
        "--black", default="rule_based", metavar="PLAYER", help="default: %(default)s"
    )
    parser.add_argument(
        "--rules", help=f"{', '.join(PRESETS)}, or a mix (default: advanced, or the loaded game's)"
    )
    parser.add_argument("--seed", type=int, help="the same seed and moves give the same game")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--load", type=Path, metavar="FILE", help="go on with a recorded game")
    begin.add_argument("--position", metavar="TEXT", help="begin at a position")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write the game there at its end (replaced)"
    )
    parser.add_argument(
        "--max-plies",
        type=int,
        metavar="N",
        help=f"stop after N actions (default: {MAX_PLIES} when agents play each other, else never)",
    )
    parser.add_argument(
        "--delay",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="show the board and wait after each turn when agents play each other",
    )
    parser.add_argument("--no-color", action="store_true", help="also by NO_COLOR=1")
    return parser


def _session(options: argparse.Namespace, terminal: Terminal) -> Session:
    """The table as the command line lays it; raises where that cannot be."""
    if not (math.isfinite(options.delay) and options.delay >= 0):
        raise PylosError(f"--delay must be a number of seconds from 0 up, got {options.delay}")
    if options.save is not None:
        _check_writable(options.save)
    seats = Seat.of(options.white), Seat.of(options.black)
    max_plies = check_max_plies(options.max_plies)
    if max_plies is None and all(seat.agent for seat in seats):
        max_plies = MAX_PLIES
    return Session(
        seats,
        _game(options),
        seed=secrets.randbits(62) if options.seed is None else check_seed(options.seed),
        max_plies=max_plies,
        colour=None if terminal.watched and not options.no_color else False,
        source=options.load,
        think=terminal.think,
    )


def _game(options: argparse.Namespace) -> Game:
    if options.load is None:
        rules = options.rules or "advanced"
        if options.position is None:
            return Game.start(Position.start(rules))
        return Game.start(Position.parse(options.position, rules))
    record = read_record(options.load)
    if options.rules is not None and Rules.of(options.rules) != record.start.rules:
        raise PylosError(
            f"{options.load} is played by the rules '{record.start.rules}', "
            f"but --rules asks for '{options.rules}'"
        )
    return Game.of_record(record)


def _check_writable(path: Path) -> None:
    """Better now than at the end of a long game."""
    if path.is_dir() or not path.parent.is_dir():
        raise PylosError(f"--save {path}: that is a folder, or in a folder that does not exist")
    target = path if path.exists() and not path.is_file() else path.parent
    if not os.access(target, os.W_OK):
        raise PylosError(f"--save {path}: nothing may be written there")


def main(arguments: list[str] | None = None) -> int:
    """The command `pylos-play`."""
    options = _parser().parse_args(arguments)
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):  # odd bytes are no move, and no reason to fail
            stream.reconfigure(errors=errors)
    watched = sys.stdout is not None and sys.stdout.isatty()
    typed = watched and sys.stdin is not None and sys.stdin.isatty()
    terminal = Terminal(watched, typed)
    try:
        try:
            session = _session(options, terminal)
        except (ValueError, OSError, ImportError) as error:
            terminal.complain(f"pylos-play: {' '.join(str(error).split())}")
            return 2
        code = run(session, terminal, options.save, options.delay)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # whoever read the output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    if terminal.is_thinking:
        # the thread left behind runs compiled code, which an orderly exit would pull from under it
        sys.stdout.flush()
        os._exit(code)
    return code
