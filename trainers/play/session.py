"""The table: who sits where, the game between them, and what each typed line answers.

Nothing here knows a terminal: a line goes in, a `Reply` comes out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from pylos_env import agents, kernel, render
from pylos_env.agents import Agent
from pylos_env.errors import PylosError
from pylos_env.notation import STOP_NAME
from pylos_env.position import SIDE_NAMES, Position
from pylos_env.record import GameRecord, write_games
from trainers.files import write_atomically
from trainers.play.advice import Adviser
from trainers.play.game import TERMINATION, Game, read_record
from trainers.play.moves import examples, list_moves, looks_like_move, read_moves, shorten

HUMAN: Final = "human"

MOVES_HELP: Final = """\
A cell is its level, column and row: 1a1 ... 1d4, 2a1 ... 2c3, 3a1 ... 3b2, 4a1.
  2b1          place a sphere
  1a3-2b1      raise a sphere
  x1c2         take a sphere back, once a formation is complete
  stop         take no more back
  2b1x1c2x1d4  a whole turn, the move and all that it takes back"""

COMMANDS: Final = {
    "help": "this list",
    "hint": "what a strong player would do here",
    "eval": "how the players judge the position, and the truth where it is known",
    "moves": "every legal move",
    "undo": "back to your previous decision, the replies to it undone",
    "board": "show the board",
    "position": "the position as text",
    "save": "save FILE writes the game to a file; save! FILE replaces what is there",
    "load": "load FILE goes on with the game of a file",
    "resign": "give the game up",
    "quit": "leave",
}
_ALIASES: Final = {"?": "help", "exit": "quit", "save!": "save!"}
_WITH_FILE: Final = ("save", "save!", "load")
_WORDS: Final = (*COMMANDS, STOP_NAME)

T = TypeVar("T")


class Seat(NamedTuple):
    """A player: an agent, or a person where there is none."""

    name: str
    agent: Agent | None = None

    @classmethod
    def of(cls, name: str) -> Seat:
        """The player of a name: `human`, or any that `agents.make` knows."""
        return cls(name) if name == HUMAN else cls(name, agents.make(name).at_board())


@dataclass(frozen=True)
class Reply:
    """What a line is answered with; `turn` where the text is that of a turn just played."""

    text: str = ""
    error: bool = False
    turn: bool = False
    leave: bool = False


class Think(Protocol):
    """Does a task that takes time; a terminal shows meanwhile who is at work."""

    def __call__(self, who: str, task: Callable[[], T]) -> T: ...


def _think_here(who: str, task: Callable[[], T]) -> T:
    return task()


class Session:
    """One table. `answer` takes what a person types, `agent_turn` lets an agent play its turn.

    Chance comes from the seed and the ply: the same moves get the same replies. `source` is the
    file that the game was read from.
    """

    def __init__(
        self,
        seats: tuple[Seat, Seat],
        game: Game,
        seed: int = 0,
        max_plies: int | None = None,
        colour: bool | None = False,
        source: Path | None = None,
        adviser: Adviser | None = None,
        think: Think | None = None,
    ) -> None:
        self.seats = seats
        self.seed = seed
        self.max_plies = max_plies
        self._colour = colour
        self._adviser = adviser or Adviser()
        self._think = think or _think_here
        self._check_players(game.position)
        self.game = game
        self._earlier = self._decisions(game)  # what undo goes back to
        self._files = {source.resolve(): game} if source else {}  # what saving may replace

    # How things stand

    @property
    def has_people(self) -> bool:
        return any(seat.agent is None for seat in self.seats)

    @property
    def mover(self) -> Seat:
        return self.seats[self.game.position.side]

    @property
    def is_unsaved(self) -> bool:
        """Whether something was played that no file holds."""
        return self.game.plies > 0 and all(game is not self.game for game in self._files.values())

    def is_in(self, path: Path) -> bool:
        """Whether a file holds the game as it stands."""
        return self._files.get(path.resolve()) is self.game

    @property
    def ending(self) -> str | None:
        """Why the game is over; None while it is not."""
        if self.game.is_won:
            return str(self.game.position.outcome.value)
        if self.game.resigned is not None:
            return f"{SIDE_NAMES[self.game.resigned]} resigned"
        if self.max_plies is not None and self.game.plies >= self.max_plies:
            return "ply limit reached"
        return None

    def result(self) -> str:
        """One line on a game that is over."""
        return f"Result: {self.record().result}, {self.ending}, after {self.game.plies} plies"

    def board(self) -> str:
        """The last turn and the board after it."""
        board = render.ansi(self.game.position, self._colour)
        last = self.game.last_turn()
        return f"{last}\n\n{board}" if last else board

    def record(self) -> GameRecord:
        tags = {"White": self.seats[0].name, "Black": self.seats[1].name, **self.game.tags}
        if self.ending and not self.game.is_won:
            tags[TERMINATION] = self.ending
        return GameRecord(self.game.positions[0], self.game.actions, tags)

    # Playing

    def agent_turn(self) -> Reply:
        """The whole turn of the agent to move, its take-backs included."""
        name, agent = self.mover
        assert agent is not None
        side = self.game.position.side
        while self.game.position.side == side and not self.ending:
            try:
                self.game = self.game.play(self._ask(name, agent))
            except PylosError as error:
                raise PylosError(f"{name}: {error}") from error
        return Reply(self.game.last_turn(), turn=True)

    def _ask(self, name: str, agent: Agent) -> int:
        position, key = self.game.position, self._key()
        return self._think(name, lambda: agent.act(position, key))

    def answer(self, line: str) -> Reply:
        """What a typed line brings about: a move or a command."""
        words = line.split(maxsplit=1)
        if not words:
            return Reply()
        argument = words[1].strip() if len(words) > 1 else ""
        try:
            name = find_command(words[0])
            if name is None or name == STOP_NAME:
                return self._move(line.strip() if name is None or argument else STOP_NAME)
            return self._command(name, argument)
        except PylosError as error:
            return Reply(str(error), error=True)

    def _move(self, text: str) -> Reply:
        self._check_ongoing()
        try:
            actions = read_moves(self.game.position, text)
        except PylosError as error:
            raise type(error)(f"{error}\n{examples(self.game.position)}") from None
        self._earlier.append(self.game)
        for action in actions:
            self.game = self.game.play(action)
        if self.game.position.take_backs_left:
            return Reply()
        return Reply(self.game.last_turn(), turn=True)

    # Commands

    def _command(self, name: str, argument: str) -> Reply:
        if name in _WITH_FILE:
            if not argument:
                raise PylosError(f"{name} needs a file: {name} game.txt")
            path = _path(argument)
            if name == "load":
                return Reply(self._load(path))
            self.save(path, over_another=name == "save!")
            return Reply(f"saved in {path}")
        if argument:
            raise PylosError(f"{name} stands alone: {shorten(argument)} means nothing to it")
        if name == "quit":
            return Reply(leave=True)
        answers: dict[str, Callable[[], str]] = {
            "help": help_text,
            "hint": self._hint,
            "eval": self._eval,
            "moves": self._moves,
            "undo": self._undo,
            "board": self.board,
            "position": lambda: str(self.game.position),
            "resign": self._resign,
        }
        return Reply(answers[name]())

    def _hint(self) -> str:
        self._check_ongoing()
        position, key = self.game.position, self._key()
        return "hint: " + self._think("the adviser", lambda: self._adviser.hint(position, key))

    def _eval(self) -> str:
        self._check_ongoing()
        judges = {seat.name: seat.agent for seat in self.seats if seat.agent is not None}
        position = self.game.position
        return self._think("the adviser", lambda: self._adviser.judgements(judges, position))

    def _moves(self) -> str:
        self._check_ongoing()
        return list_moves(self.game.position)

    def _undo(self) -> str:
        if not self._earlier:
            raise PylosError("nothing to undo: this is where you began")
        self.game = self._earlier.pop()
        return f"back to ply {self.game.plies}: {self.ending or self._status()}"

    def _resign(self) -> str:
        self._check_ongoing()
        self._earlier.append(self.game)
        self.game = self.game.resign()
        return (
            f"{self.ending}, {SIDE_NAMES[1 - self.game.position.side]} wins "
            f'(a record keeps that as [{TERMINATION} "{self.ending}"] and the result *)'
        )

    def save(self, path: Path, over_another: bool = False) -> None:
        """Write the game's record; a file that is not this game's is replaced only when asked."""
        try:
            if not over_another and path.resolve() not in self._files and _has_content(path):
                raise PylosError(f"{path} exists: save! {path} replaces it")
            if path.exists() and not path.is_file():  # a pipe is written to, never replaced
                write_games(path, [self.record()])
            else:
                write_atomically(path.resolve(), str(self.record()).encode())
        except OSError as error:
            raise PylosError(f"could not write {path}: {error.strerror or error}") from None
        self._files[path.resolve()] = self.game

    def _load(self, path: Path) -> str:
        record = read_record(path)
        game = Game.of_record(record)
        self._check_players(game.position)
        self._earlier += [self.game, *self._decisions(game)]
        self.game = self._files[path.resolve()] = game
        ended = record.tags.get(TERMINATION)
        note = f" (its record ends there: {ended})" if ended else ""
        rules = game.position.rules
        return f"loaded {path}: rules {rules}, {game.plies} plies, {self._status()}{note}"

    # Inside

    def _key(self) -> int:
        return kernel.draw(self.seed, self.game.plies)

    def _status(self) -> str:
        status = render.status(self.game.position)
        return status[0].lower() + status[1:]

    def _check_ongoing(self) -> None:
        if self.ending:
            raise PylosError(f"the game is over, {self.ending}: undo goes back, quit leaves")

    def _check_players(self, position: Position) -> None:
        """Refuse a game before it begins whose rules a player does not know."""
        for seat in self.seats:
            if seat.agent is not None:
                seat.agent.check_rules(position.rules)

    def _decisions(self, game: Game) -> list[Game]:
        """The game before each turn of a person."""
        return [
            game.cut(ply)
            for ply, position in enumerate(game.positions[:-1])
            if self.seats[position.side].agent is None and not position.take_backs_left
        ]


def find_command(word: str) -> str | None:
    """The command of a word or of its first letters; None for what may be a move."""
    word = word.lower()
    if word in _ALIASES:
        return _ALIASES[word]
    if word in _WORDS:
        return word
    found = [name for name in _WORDS if name.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        raise PylosError(f"{word!r} may be {' or '.join(found)}")
    if looks_like_move(word):
        return None
    close = difflib.get_close_matches(word, _WORDS, n=1)
    tip = f"did you mean {close[0]}?" if close else "help lists both"
    raise PylosError(f"{shorten(word)} is neither a move nor a command: {tip}")


def help_text() -> str:
    rows = [f"  {name:<9} {text}" for name, text in COMMANDS.items()]
    return "\n".join([MOVES_HELP, "", "Commands (the first letters will do):", *rows])


def _path(text: str) -> Path:
    try:
        path = Path(text).expanduser()
        path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise PylosError(f"{shorten(text)} is no file: {error}") from None
    return path


def _has_content(path: Path) -> bool:
    return path.exists() and (not path.is_file() or path.stat().st_size > 0)
