"""Terminal play: what people type, what the table answers, and the program in a real terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylos_env import GameRecord, Position, PylosError, Rules, agents, parse_games, read_games
from pylos_env.agents import Agent
from pylos_env.geometry import STOP
from pylos_env.options import MAX_PLIES
from pylos_env.oracle import OracleError
from pylos_env.rules import PRESETS, TAKE_BACK_MODES
from pylos_env.testing import random_game
from trainers.play import main, terminal
from trainers.play.advice import Adviser
from trainers.play.game import Game
from trainers.play.moves import list_moves, read_moves
from trainers.play.session import COMMANDS, HUMAN, Reply, Seat, Session
from trainers.play.terminal import Terminal, run

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 60  # kernels may be compiled in the first program that a machine runs
SQUARE_AT_1B2 = "WW..W....B..B.B./........./..../. w 0"
TO_RAISE = "WW..BB.........W/........./..../. w 0"
PAIR = (Seat(HUMAN), Seat(HUMAN))


@pytest.fixture(autouse=True)
def no_tables(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine has solved must not decide what these tests see."""
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path_factory.mktemp("tables")))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Programs heed Ctrl-C even where the tests run in the background, which ignores it."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def table(
    text: str | None = None,
    seats: tuple[Seat, Seat] = PAIR,
    rules: str | Rules = "advanced",
    **options: Any,
) -> Session:
    start = Position.start(rules) if text is None else Position.parse(text, rules)
    return Session(seats, Game.start(start), **options)


def tell(session: Session, *lines: str) -> str:
    """The last answer; every line must be accepted."""
    reply = Reply()
    for line in lines:
        reply = session.answer(line)
        assert not reply.error, f"{line}: {reply.text}"
    return reply.text


def refuse(session: Session, line: str) -> str:
    """The complaint about a line, which must change nothing."""
    before = session.game
    reply = session.answer(line)
    assert reply.error, line
    assert session.game is before
    return reply.text


# Moves


def test_a_move_alone_is_one_step_and_the_take_backs_follow() -> None:
    session = table(SQUARE_AT_1B2)
    assert tell(session, "1b2") == ""
    assert session.game.position.take_backs_left == 2
    assert session.game.last_turn() == "1. white 1b2..."
    assert tell(session, "x1a1") == ""
    assert tell(session, "x1b1") == "1. white 1b2x1a1x1b1"
    assert session.game.position.side == 1


def test_a_stop_ends_the_steps() -> None:
    session = table(SQUARE_AT_1B2)
    assert tell(session, "1b2", "stop") == "1. white 1b2"
    assert session.game.position.side == 1


def test_a_move_with_take_backs_is_a_whole_turn() -> None:
    for text, taken in (("1b2x1a1x1b1", 2), ("1b2x1b2", 1)):
        session = table(SQUARE_AT_1B2)
        assert tell(session, text) == f"1. white {text}"
        assert session.game.position.reserves[0] == 15 - 4 + taken


def test_two_take_backs_may_be_typed_at_once() -> None:
    assert tell(table(SQUARE_AT_1B2), "1b2", "x1a1x1b1") == "1. white 1b2x1a1x1b1"


def test_what_must_be_taken_back_cannot_be_left_out() -> None:
    session = table(SQUARE_AT_1B2, rules="squares lines min=2")
    assert "at least 2 must be taken back" in refuse(session, "1b2x1a1")
    tell(session, "1b2")
    assert "at least 2 must be taken back" in refuse(session, "stop")
    tell(session, "x1a1x1b1")


@pytest.mark.parametrize("mode", TAKE_BACK_MODES)
@pytest.mark.parametrize("rules", PRESETS)
def test_every_game_can_be_typed_step_by_step_or_turn_by_turn(rules: str, mode: Any) -> None:
    game = random_game(Rules.of(rules, mode), seed=11)
    steps = table(rules=game.start.rules)
    for position, action in zip(game.positions(), game.actions, strict=False):
        tell(steps, position.move_name(action))
    assert steps.game.actions == game.actions

    turns = table(rules=game.start.rules)
    lines = [tell(turns, text) or tell(turns, "stop") for text in game.turns()]
    assert turns.game.actions == game.actions
    assert [line.split()[2] for line in lines] == game.turns()
    assert turns.ending == game.end.outcome.value


def test_turns_are_numbered_as_in_the_record() -> None:
    session = table("W.............../........./..../. b 0")
    assert tell(session, "1b2") == "1. black 1b2"
    assert tell(session, "1c3") == "2. white 1c3"
    assert tell(session, "1d4") == "2. black 1d4"
    assert "1. - 1b2\n2. 1c3 1d4\n" in str(session.record())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1A1", "in small letters; did you mean 1a1?"),
        ("1 c 1", "without spaces; did you mean 1c1?"),
        ("1B2 X1A1", "in small letters and without spaces; did you mean 1b2x1a1?"),
        ("a3", "has no level; did you mean 1a3?"),
        ("xa1", "has no level; did you mean x1a1 or x2a1 or x3a1 or x4a1?"),
        ("12a", "the column comes before the row; did you mean 1a2?"),
        ("a21", "the level comes first; did you mean 2a1 or 1a2?"),
        ("1d42b1", "'-' between its cells, a take-back with x; did you mean 1d4-2b1?"),
        ("1d4 2b1", "without spaces; did you mean 1d4-2b1?"),
        ("1d4->2b1", "did you mean 1d4-2b1?"),
        ("1c1 1d1", "one turn at a time; did you mean 1c1?"),
        ("5a1", "expected a level 1-4, a column a-d and a row 1-4"),
        ("1e1", "expected a level 1-4"),
        ("2d1", "level 2 is 3x3, from 2a1 to 2c3"),
        ("1a1-1b1", "can only be raised to a higher level"),
        ("1b2x1a1x1b1x1a2", "at most two"),
        ("1a1", "1a1: the cell is taken"),
        ("2b2", "2b2: nothing to rest on, the four cells below must be filled; 1b2 is free"),
        ("1c1-2a1", "no own sphere stands on 1c1"),
        ("1d4-2a1", "has no support"),
        ("x1a1", "nothing may be taken back now"),
        ("stop", "nothing may be taken back now"),
        ("1c1x1a1", "nothing is left to take back after that"),
        ("1.1c1", "is no cell"),
        ("x", "is no cell"),
        ("1" * 500, "'1111111111111111111111111111111111111...' is no move"),
        ("\x00\x1b[2J1", r"'\x00\x1b[2j1' is no cell"),
    ],
)
def test_a_wrong_move_is_explained_and_nothing_is_lost(text: str, meant: str) -> None:
    session = table("WW..W....B..B.BW/........./..../. w 0")
    complaint = refuse(session, text)
    assert meant in complaint
    assert "legal here: 1c1, 1d1, 1b2, 1c2 ('moves' lists all 9)" in complaint
    assert "action " not in complaint
    assert str(session.game.position) not in complaint


def test_missing_levels_are_told_from_what_is_legal() -> None:
    session = table("WBBBWB........../........./..../. w 0")
    assert "did you mean 2a1?" in refuse(session, "a1")
    assert "1a1: the cell is taken; 2a1 is free to play" in refuse(session, "1a1")


def test_who_is_taking_back_is_told_so() -> None:
    session = table(SQUARE_AT_1B2)
    tell(session, "1b2")
    assert "takes back (x1a1 takes that one)" in refuse(session, "1a1")
    assert "white has completed a formation" in refuse(session, "1c1")
    assert "x1b3: no own sphere stands there" in refuse(session, "x1b3")
    assert "legal here: x1a1, x1b1, x1a2, x1b2 ('moves' lists all 5)" in refuse(session, "1d1-2a1")


def test_reading_moves_plays_nothing() -> None:
    position = Position.parse(SQUARE_AT_1B2)
    assert read_moves(position, "1b2x1a1") == [5, 0, 29]
    assert read_moves(position, "1b2") == [5]
    with pytest.raises(PylosError, match="empty text"):
        read_moves(position, "")


def test_moves_are_listed_by_kind() -> None:
    assert list_moves(Position.parse(TO_RAISE)).splitlines() == [
        "12 to place, 1 to raise",
        "place, level 1  1c1 1d1 1c2 1d2 1a3 1b3 1c3 1d3 1a4 1b4 1c4",
        "place, level 2  2a1",
        "raise 1d4       1d4-2a1",
    ]
    square = Position.parse(SQUARE_AT_1B2)
    assert "; * completes a formation" in list_moves(square)
    assert " 1b2* " in list_moves(square)
    assert list_moves(square.play(5)).splitlines() == [
        "take back  x1a1 x1b1 x1a2 x1b2   (2 at most, one at a time or as x..x..)",
        "stop       ends the turn",
    ]
    mature = Position.parse(SQUARE_AT_1B2, "mature").play(5)
    assert "stop" not in list_moves(mature)
    greedy = Position.parse(SQUARE_AT_1B2, Rules.of("advanced", "greedy"))
    assert list_moves(greedy).count("*") == 2, "the mark and its explanation"


# Commands


def test_every_command_is_helped_with_and_found_by_its_first_letters() -> None:
    text = tell(table(), "help")
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert tell(table(), "?") == tell(table(), "HELP") == tell(table(), "he") == text
    assert tell(table(), "po") == str(Position.start())
    assert table().answer("q").leave
    assert table().answer("exit").leave
    assert not table().answer("").text
    assert not table().answer("  \t ").error


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("h", "'h' may be help or hint"),
        ("s", "'s' may be save or stop"),
        ("resgin", "did you mean resign?"),
        ("castle", "'castle' is neither a move nor a command: help lists both"),
        ("undo 3", "undo stands alone: '3'"),
        ("save", "save needs a file: save game.txt"),
        ("load", "load needs a file"),
        ("undo", "nothing to undo"),
        ("save a\x00b", "is no file"),
        ("save ~nobody-of-this-name/x", "is no file"),
        ("load ~nobody-of-this-name/x", "is no file"),
        ("load no-such-file.txt", "could not read no-such-file.txt: No such file"),
        ("stop now", "is no cell"),
    ],
)
def test_a_wrong_command_is_explained(line: str, complaint: str) -> None:
    assert complaint in refuse(table(), line)


def test_undo_goes_back_one_decision_in_a_game_of_two_people() -> None:
    session = table(SQUARE_AT_1B2)
    tell(session, "1b2", "x1a1", "stop", "1d1")
    assert tell(session, "undo") == "back to ply 3: black to move"
    assert tell(session, "undo") == "back to ply 2: white may take back 1 sphere"
    assert tell(session, "undo") == "back to ply 1: white may take back 2 spheres"
    assert tell(session, "undo") == "back to ply 0: white to move"
    assert "nothing to undo" in refuse(session, "undo")


def test_undo_takes_the_replies_of_an_agent_back_and_they_come_again() -> None:
    session = table(seats=(Seat(HUMAN), Seat.of("random")), seed=4)
    replies = []
    for _ in range(2):
        tell(session, "1b2")
        session.agent_turn()
        tell(session, "1a1" if session.game.position["1a1"] == "." else "1d1")
        session.agent_turn()
        replies.append(session.game.actions)
        assert tell(session, "undo") == "back to ply 2: white to move"
        tell(session, "undo")
        assert session.game.plies == 0
    assert replies[0] == replies[1], "chance is in the seed and the ply"


def test_resigning_ends_the_game_is_recorded_and_can_be_undone() -> None:
    session = table()
    tell(session, "1b2")
    text = tell(session, "resign")
    assert "black resigned, white wins" in text
    assert '[Termination "black resigned"] and the result *' in text
    assert session.result() == "Result: *, black resigned, after 1 plies"
    record = GameRecord.parse(str(session.record()))
    assert record.tags["Termination"] == "black resigned"
    assert record.result == "*"
    for line in ("1c3", "hint", "eval", "moves", "resign"):
        assert "the game is over, black resigned: undo goes back" in refuse(session, line)
    tell(session, "undo", "1c3")
    assert "Termination" not in session.record().tags


def test_the_ply_limit_ends_a_game_without_a_winner() -> None:
    session = table(seats=(Seat.of("random"), Seat.of("random")), max_plies=3)
    while not session.ending:
        session.agent_turn()
    assert session.result() == "Result: *, ply limit reached, after 3 plies"
    assert session.record().tags["Termination"] == "ply limit reached"


def test_board_and_position_are_shown_on_request() -> None:
    session = table()
    tell(session, "1b2")
    board = tell(session, "board")
    assert board.startswith("1. white 1b2\n\n")
    assert "14 in reserve" in board
    assert "Black to move" in board
    assert "\x1b" not in board
    assert tell(session, "position") == ".....W........../........./..../. b 0"


# Hints and evaluations


@pytest.mark.parametrize(
    ("rules", "adviser"), [("advanced", "checkpoint:Expert"), ("mature", "alphabeta:6")]
)
def test_a_hint_comes_from_the_strongest_player_where_no_table_is(rules: str, adviser: str) -> None:
    session = table(SQUARE_AT_1B2, rules=rules)
    turn, _, source = tell(session, "hint").removeprefix("hint: ").partition(" (")
    assert source == f"{adviser}; no solved table for '{rules}': pylos-solve makes one)"
    tell(session, turn.removesuffix(", then stop"))
    session = table(SQUARE_AT_1B2, rules=rules)
    tell(session, "1b2")
    assert tell(session, "hint").startswith(("hint: x", "hint: stop"))


def test_a_hint_comes_from_a_search_where_no_ladder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_LADDER", str(tmp_path))
    assert "(alphabeta:6; no solved table" in tell(table(SQUARE_AT_1B2), "hint")


class FakeOracle:
    """Likes 1b2 and takes nothing back; sure of the outcome that it was given."""

    def __init__(self, value: int, distance: int | None) -> None:
        self._answer = value, distance

    def best_actions(self, position: Position) -> list[int]:
        return [STOP if position.take_backs_left else 5]

    def value(self, position: Position) -> int:
        return self._answer[0]

    def distance(self, position: Position) -> int | None:
        return self._answer[1]


class Knowing(Adviser):
    def __init__(self, value: int, distance: int | None) -> None:
        super().__init__()
        self._fake = FakeOracle(value, distance)

    def oracle(self, rules: Rules) -> Any:
        return self._fake


@pytest.mark.parametrize(
    ("value", "distance", "text"),
    [
        (1, 12, "white wins in 12 turns"),
        (1, 1, "white wins in 1 turn"),
        (-1, 8, "black wins in 8 turns"),
        (0, None, "a draw by endless play"),
    ],
)
def test_a_solved_table_gives_the_hint_and_the_exact_verdict(
    value: int, distance: int | None, text: str
) -> None:
    session = table(adviser=Knowing(value, distance))
    assert tell(session, "hint") == f"hint: 1b2 (perfect; {text})"
    assert tell(session, "eval").splitlines()[-1] == f"exact: {text}"


def test_a_hint_says_when_nothing_should_be_taken_back() -> None:
    text = tell(table(SQUARE_AT_1B2, adviser=Knowing(1, 3)), "hint")
    assert text == "hint: 1b2, then stop (perfect; white wins in 3 turns)"


def test_a_damaged_table_is_an_error_and_not_passed_over() -> None:
    path = Path(os.environ["PYLOS_ORACLE"]) / "advanced-4.table"
    path.write_bytes(b"no table")
    assert "is no oracle table" in refuse(table(), "hint")
    assert "is no oracle table" in refuse(table(), "eval")


class Hopeful(Agent):
    name = "hopeful"

    def act(self, position: Position, key: int | None = None) -> int:
        return position.legal_actions()[0]

    def value(self, position: Position) -> float:
        return 0.25


def test_an_evaluation_is_the_agents_own_where_it_has_one() -> None:
    session = table(seats=(Seat(HUMAN), Seat("hopeful", Hopeful())))
    assert tell(session, "eval").splitlines() == [
        "hopeful: +0.25 for white (1 is won, -1 is lost)",
        "exact: no solved table for 'advanced': pylos-solve makes one",
    ]


def test_an_agent_without_evaluation_is_named_and_the_adviser_stands_in() -> None:
    lines = tell(table(seats=(Seat(HUMAN), Seat.of("rule_based"))), "eval").splitlines()
    assert lines[0] == "rule_based: gives no evaluation"
    assert lines[1].startswith("checkpoint:Expert: ")
    assert len(lines) == 3


def test_questions_leave_the_game_as_it_would_have_gone() -> None:
    def replies(*questions: str) -> tuple[int, ...]:
        session = table(seats=(Seat(HUMAN), Seat.of("alphabeta:2")), seed=2)
        for line in ("1b2", "1c1"):
            tell(session, *questions, line)
            session.agent_turn()
        return session.game.actions

    assert replies() == replies("hint", "eval", "moves", "board")


# Files


def test_a_saved_game_is_loaded_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "my game.txt"
    session = table(SQUARE_AT_1B2)
    tell(session, "1b2", "x1a1")
    assert tell(session, f"save {path}") == f"saved in {path}"
    assert not session.is_unsaved
    other = table(rules="mature")
    text = tell(other, f"load {path}")
    assert text == f"loaded {path}: rules advanced, 2 plies, white may take back 1 sphere"
    assert other.game.positions == session.game.positions
    assert not other.is_unsaved
    assert tell(other, "stop") == "1. white 1b2x1a1"
    tell(other, f"save {path}")
    assert read_games(path)[0].turns() == ["1b2x1a1"]


def test_a_loaded_game_can_be_undone_and_so_can_the_loading(tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    path.write_text(
        '[Event "Cup"]\n[White "x"]\n[Termination "black resigned"]\n1. 1a1 1b2 2. 1c3 *'
    )
    session = table(seats=(Seat(HUMAN), Seat.of("random")))
    tell(session, "1d4")
    session.agent_turn()
    before = session.game
    text = tell(session, f"load {path}")
    assert text.endswith("black to move (its record ends there: black resigned)")
    assert not session.ending
    assert dict(session.record().tags) == {"White": HUMAN, "Black": "random", "Event": "Cup"}
    assert tell(session, "undo") == "back to ply 2: white to move"
    assert tell(session, "undo") == "back to ply 0: white to move"
    tell(session, "undo")
    assert session.game is before


def test_a_file_of_others_is_not_replaced_by_accident(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    session = table()
    tell(session, "1a1")
    assert f"{path} exists: save! {path} replaces it" in refuse(session, f"save {path}")
    assert path.read_text() == "dear diary"
    tell(session, f"save! {path}", "1b1", f"save {path}")
    assert read_games(path)[0].turns() == ["1a1", "1b1"]
    empty = tmp_path / "empty.txt"
    empty.touch()
    tell(session, f"save {empty}")


def test_saving_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    session = table()
    tell(session, "1a1")
    assert "could not write" in refuse(session, f"save {tmp_path / 'no' / 'game.txt'}")
    assert "could not write" in refuse(session, f"save! {tmp_path}")
    assert "could not write" in refuse(session, f"save {tmp_path / ('n' * 400)}")
    assert session.is_unsaved


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()), daemon=True)
    reader.start()
    session = table()
    tell(session, "1a1", f"save! {path}")
    reader.join(TIMEOUT)
    assert GameRecord.parse(found[0]).turns() == ["1a1"]
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no games: expected one"),
        (b"1. 1a1 *\n1. 1b1 *\n", "holds 2 games: expected one"),
        (b"\xff\xfe\x00", "is no text"),
        (b"1. 1a1 1a1 *", "line 1: action 0 (1a1) is illegal: the cell is taken"),
        (b'[Rules "chess"]\n*', "unknown rules 'chess'"),
        (b"1. 1a1", "has no result"),
    ],
)
def test_a_file_that_is_no_game_is_refused_and_the_game_stays(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "game.txt"
    path.write_bytes(content)
    assert complaint in refuse(table(), f"load {path}")
    assert "could not read" in refuse(table(), f"load {tmp_path}")


# Agents


def test_a_player_without_its_table_is_refused_before_the_game() -> None:
    perfect = Seat.of("perfect")
    with pytest.raises(OracleError, match="no table for 'advanced'"):
        table(seats=(Seat(HUMAN), perfect))


def test_a_game_is_not_loaded_for_a_player_without_its_table(tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    path.write_text("1. 1a1 *")
    session = table()
    session.seats = (Seat(HUMAN), Seat.of("perfect"))
    assert "no table for 'advanced'" in refuse(session, f"load {path}")


def test_an_illegal_action_of_an_agent_is_an_error_with_its_name() -> None:
    stubborn = agents.make(lambda position: 0)
    session = table(seats=(Seat("stubborn", stubborn), Seat(HUMAN)))
    session.agent_turn()
    tell(session, "1b1")
    before = session.game
    with pytest.raises(PylosError, match=r"stubborn: action 0 \(1a1\) is illegal: the cell"):
        session.agent_turn()
    assert session.game is before


def test_an_agent_plays_its_take_backs_in_one_turn() -> None:
    session = table(SQUARE_AT_1B2, seats=(Seat.of("rule_based"), Seat(HUMAN)))
    reply = session.agent_turn()
    assert reply.turn
    assert reply.text.startswith("1. white 1b2x")
    assert session.game.position.side == 1


def test_a_failing_agent_leaves_the_game_on_the_screen_and_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "game.txt"
    stubborn = Seat("stubborn", agents.make(lambda position: position.legal_actions()[0] and 0))
    for save in (None, path):
        session = table(seats=(stubborn, stubborn))
        assert run(session, Terminal(False, False), save) == 1
        output = capsys.readouterr()
        assert "pylos-play: stubborn: action 0 (1a1) is illegal" in output.err
        assert ("1. 1a1" in output.out) == (save is None)
    assert read_games(path)[0].turns() == ["1a1"]


def test_thinking_hands_errors_on() -> None:
    def fail() -> int:
        raise KeyError("lost")

    screen = Terminal(False, False)
    with pytest.raises(KeyError, match="lost"):
        screen.think("someone", fail)
    assert not screen.is_thinking
    assert screen.think("someone", lambda: 7) == 7


# The program without a terminal


Piped = Callable[..., tuple[int, str, str]]


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Piped:
    """Exit code, output and complaints of the program, run in this process on a typed text."""

    def play(typed: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return play


def test_a_piped_game_is_one_line_a_turn_without_prompts(piped: Piped) -> None:
    typed = "1b2\nfoo\n1b2\nx1a1\nstop\n\nquit\n1d1\n"
    start = ("--position", SQUARE_AT_1B2, "--black", HUMAN)
    code, out, err = piped(typed, *start)
    assert code == 0
    assert out.splitlines()[0] == "1. white 1b2x1a1"
    assert out.splitlines()[1] == "This game is in no file:"
    assert parse_games(out.partition("file:\n")[2])[0].turns() == ["1b2x1a1"]
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "'foo' is neither a move nor a command",
        "white has completed a formation and takes back (x1b2 takes that one)",
        "legal here",
    ]


def test_the_end_of_the_input_leaves_with_the_game_on_the_screen(piped: Piped) -> None:
    code, out, err = piped("1b2", "--seed", "1")
    assert (code, err) == (0, "")
    assert out.startswith("1. white 1b2\n1. black ")
    assert parse_games(out.partition("file:\n")[2])[0].tags["Black"] == "rule_based"
    assert piped("") == (0, "", "")


def test_a_finished_game_is_announced_once_and_saved(piped: Piped, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    path.write_text("an older game")
    last = "WWWWWBWWWWBBBBBB/WWWWBBBBB/WWBB/. b 0"
    players = ("--white", "random", "--black", HUMAN)
    typed = "4a1\nmoves\nposition\nundo\n4a1\n"
    code, out, err = piped(typed, *players, "--position", last, "--save", str(path))
    assert code == 0
    assert out.splitlines() == [
        "1. black 4a1",
        "Result: 0-1, black wins, after 1 plies",
        f"saved in {path}",
        "WWWWWBWWWWBBBBBB/WWWWBBBBB/WWBB/B w 0",
        "back to ply 0: black to move",
        "1. black 4a1",
        "Result: 0-1, black wins, after 1 plies",
        f"saved in {path}",
    ]
    assert err == "the game is over, black wins: undo goes back, quit leaves\n"
    assert read_games(path)[0].result == "0-1"


def test_resigned_games_are_saved_with_their_end(piped: Piped, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    code, out, _ = piped("1b2\nresign\n", "--save", str(path))
    assert code == 0
    assert "Result: *, white resigned, after 2 plies" in out
    assert read_games(path)[0].tags["Termination"] == "white resigned"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk to write to")
def test_a_full_disk_leaves_the_game_on_the_screen(piped: Piped) -> None:
    code, out, err = piped("1b2\n", "--save", "/dev/full")
    assert code == 1
    assert err == "pylos-play: could not write /dev/full: No space left on device\n"
    assert parse_games(out.partition("file:\n")[2])


def test_nothing_is_saved_before_anything_is_played(piped: Piped, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    path.write_text("an older game")
    assert piped("quit\n", "--save", str(path)) == (0, "", "")
    assert path.read_text() == "an older game"


def test_agents_play_the_same_game_for_the_same_seed(piped: Piped, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    players = ("--white", "random", "--black", "rule_based", "--rules", "mature")

    def game(seed: str, *more: str) -> str:
        code, out, err = piped("", *players, "--seed", seed, *more)
        assert (code, err) == (0, "")
        return out

    first = game("5")
    assert game("5") == first
    assert game("6") != first
    assert first.splitlines()[-1].startswith("Result: ")
    assert game("5", "--save", str(path)) == f"{first}saved in {path}\n"
    turns = [line.split()[2] for line in first.splitlines()[:-1]]
    (record,) = read_games(path)
    assert record.turns() == turns
    assert dict(record.tags) == {"White": "random", "Black": "rule_based"}
    # the rest of a loaded game comes from the same seed too
    record = GameRecord(record.start, record.actions[:9])
    path.write_text(str(record))
    rest = game("5", "--load", str(path))
    assert first.endswith(rest)


def test_agents_stop_at_the_limit(piped: Piped) -> None:
    both = ("--white", "random", "--black", "random", "--max-plies", "4")
    code, out, _ = piped("", *both)
    assert code == 0
    assert len(out.splitlines()) == 5
    assert out.splitlines()[-1] == "Result: *, ply limit reached, after 4 plies"


def test_only_agents_among_themselves_are_stopped_unasked(
    piped: Piped, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def look(session: Session, *_: object) -> int:
        limits.append(session.max_plies)
        return 0

    monkeypatch.setattr(terminal, "run", look)
    piped("", "--white", "random", "--black", "random")
    piped("", "--white", "random", "--black", "random", "--max-plies", "20")
    piped("", "--white", "random", "--black", HUMAN)
    assert limits == [MAX_PLIES, 20, None]


def test_a_game_goes_back_into_the_file_it_came_from(piped: Piped, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    path.write_text("1. 1a1 *")
    both = ("--white", HUMAN, "--black", HUMAN, "--load", str(path))
    assert piped("quit\n", *both) == (0, "", "")
    code, out, err = piped(f"1b2\nsave {path}\n", *both)
    assert (code, out, err) == (0, f"1. black 1b2\nsaved in {path}\n", "")
    assert read_games(path)[0].turns() == ["1a1", "1b2"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--white", "hal"], "unknown agent 'hal'"),
        (["--black", "alphabeta:0"], "from 1 to"),
        (["--black", "alphabeta"], "expected a depth"),
        (["--black", "perfect"], "no table for 'advanced'"),
        (["--black", "checkpoint:novice", "--rules", "children"], "trained under the rules"),
        (["--rules", "chess"], "unknown rules 'chess'"),
        (["--seed", "-1"], "a seed must be a whole number from 0 up"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--max-plies", "0"], "max_plies"),
        (["--delay", "-1"], "--delay must be a number of seconds from 0 up, got -1.0"),
        (["--delay", "nan"], "--delay must be"),
        (["--position", "WW w 0"], "expected 4 levels"),
        (["--position", ""], "expected three fields"),
        (["--load", "no-such-file.txt"], "could not read no-such-file.txt"),
        (["--load", "."], "could not read ."),
        (["--save", "."], "--save .: that is a folder"),
        (["--save", "no-such-folder/game.txt"], "a folder that does not exist"),
        (["--load", "a", "--position", "b"], "not allowed with argument --load"),
        (["--colour-me-surprised"], "unrecognized arguments"),
        (["game.txt"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as leaving:  # argparse's way
        code = leaving.code
    output = capsys.readouterr()
    assert code == 2
    assert output.out == ""
    assert complaint in output.err
    assert output.err.startswith("pylos-play: ")
    assert len(output.err.splitlines()) == 1


def test_other_rules_than_the_loaded_games_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "game.txt"
    path.write_text('[Rules "mature"]\n*')
    assert main(["--load", str(path), "--rules", "children"]) == 2
    assert (
        "played by the rules 'mature', but --rules asks for 'children'" in capsys.readouterr().err
    )


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trainers.play", *arguments]


def test_odd_bytes_in_a_pipe_are_a_wrong_move_and_no_failure() -> None:
    result = subprocess.run(
        program("--black", HUMAN),
        input=b"1b2\n\xff\xfe1\n1c3\r\nhint\n",
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        timeout=TIMEOUT,
        check=False,
    )
    assert result.returncode == 0
    assert b"1. white 1b2\n1. black 1c3\nhint: " in result.stdout.replace(b"\r\n", b"\n")
    assert b"is no cell" in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_reader_that_leaves_is_no_failure_to_report() -> None:
    with subprocess.Popen(
        program("--white", "random", "--black", "random"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT) == 1


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_an_interrupted_match_of_agents_prints_what_was_played(ctrl_c: None) -> None:
    slow = program("--white", "random", "--black", "alphabeta:20", "--seed", "1")
    process = subprocess.Popen(
        slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err == ""
    assert first.startswith("1. white ")
    assert parse_games(rest.partition("file:\n")[2])[0].turns() == [first.split()[2]]


def test_it_plays_without_what_only_trainers_need() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'rich', 'hydra', 'tensorboard', 'safetensors', 'scipy'):\n"
        "    sys.modules[name] = None\n"
        "from trainers.play import main\n"
        "sys.exit(main(['--white', 'random', '--black', 'random', '--max-plies', '2']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


# The program in a terminal


@pytest.fixture
def spawn(ctrl_c: None) -> Iterator[Any]:
    """Starts the program in a pseudo-terminal of its own; no program outlives its test."""
    pexpect = pytest.importorskip("pexpect")
    children = []

    def start(*arguments: str, **environment: str) -> Any:
        command, *rest = program(*arguments)
        settings = {**os.environ, "TERM": "dumb", "NO_COLOR": "", **environment}
        with warnings.catch_warnings():  # Python 3.12 warns of every fork beside other threads
            warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
            child = pexpect.spawn(
                command,
                rest,
                cwd=str(ROOT),
                env=settings,
                encoding="utf-8",
                timeout=TIMEOUT,
                dimensions=(50, 120),
            )
        child.logfile_read = io.StringIO()
        children.append(child)
        return child

    yield start
    for child in children:
        child.close(force=True)


def leave(child: Any, ctrl_c: bool = False) -> tuple[int, str]:
    """The exit code and what was written last, by itself or after Ctrl-C."""
    pexpect = pytest.importorskip("pexpect")
    for _ in range(TIMEOUT // 10):
        if ctrl_c:  # again where it fell between two keys: readline misses it there
            child.send("\x03")
        if child.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=10) == 0:
            break
    rest: str = child.before
    child.close()
    assert "Traceback" not in rest
    return child.exitstatus, rest.replace("\r\n", "\n")


def test_a_game_in_a_terminal(spawn: Any, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    child = spawn("--position", SQUARE_AT_1B2, "--black", "alphabeta:1", "--seed", "3")
    child.expect_exact("Pylos, rules advanced: white is human, black is alphabeta:1.")
    child.expect_exact("level 1")
    child.expect_exact("White to move")
    for line, answer in (
        ("1A1", "did you mean 1a1?"),
        ("b2", "did you mean 1b2?"),
        ("2a1", "nothing to rest on"),
        ("nonsense", "neither a move nor a command"),
        ("moves", "completes a formation"),
        ("hint", "(checkpoint:Expert; no solved table"),
        ("eval", "alphabeta:1: +"),
    ):
        child.expect_exact("\nwhite> ")
        child.sendline(line)
        child.expect_exact(answer)
    child.expect_exact("\nwhite> ")
    child.sendline("1b2")
    child.expect_exact("1. white 1b2...")
    child.expect_exact("[W]")
    child.expect_exact("White may take back 2 spheres")
    child.expect_exact("\nwhite takes back> ")
    child.sendline("x1a1")
    child.expect_exact("White may take back 1 sphere")
    child.expect_exact("\nwhite takes back> ")
    child.sendline("stop")
    child.expect(r"\n1\. black (\S+)")
    reply = child.match[1]
    child.expect_exact("White to move")
    child.expect_exact("\nwhite> ")
    child.sendline("undo")
    child.expect_exact("back to ply 2: white may take back 1 sphere")
    child.expect_exact("\nwhite takes back> ")
    child.sendline("stop")
    child.expect(r"\n1\. black (\S+)")
    assert child.match[1] == reply
    child.expect_exact("\nwhite> ")
    child.sendline(f"save {path}")
    child.expect_exact(f"saved in {path}")
    child.sendline("resign")
    child.expect_exact("white resigned, black wins")
    child.expect_exact("Result: *, white resigned")
    assert "level 1" not in child.before, "the board has not changed"
    child.expect_exact("\ngame over> ")
    child.sendline(f"load {path}")
    child.expect_exact(f"loaded {path}: rules advanced")
    child.expect_exact("\nwhite> ")
    child.sendline("quit")
    assert leave(child)[0] == 0
    assert read_games(path)[0].turns() == ["1b2x1a1", reply]


def test_two_people_share_a_terminal(spawn: Any) -> None:
    child = spawn("--black", "human")
    for side, move in (("white", "1a1"), ("black", "1b2"), ("white", "1c3")):
        child.expect_exact(f"\n{side}> ")
        child.sendline(move)
    child.expect_exact("2. white 1c3")
    child.expect_exact("\nblack> ")
    child.sendeof()
    code, rest = leave(child)
    assert code == 0
    assert parse_games(rest.partition("file:\n")[2])[0].turns() == ["1a1", "1b2", "1c3"]
    assert child.logfile_read.getvalue().count("1. white 1a1\r\n") == 1, "above the board only"


def test_ctrl_c_leaves_with_the_game_on_the_screen(spawn: Any) -> None:
    child = spawn("--black", "human")
    child.expect_exact("\nwhite> ")
    child.sendline("1a1")
    child.expect_exact("\nblack> ")
    child.send("1b")
    child.expect_exact("1b")
    code, rest = leave(child, ctrl_c=True)
    assert code == 130
    assert parse_games(rest.partition("file:\n")[2])[0].turns() == ["1a1"]


def test_ctrl_c_need_not_wait_for_a_thinking_agent(spawn: Any, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    child = spawn("--black", "alphabeta:20", "--save", str(path))
    child.expect_exact("\nwhite> ")
    child.sendline("1a1")
    child.expect_exact("alphabeta:20 is thinking ...")
    code, rest = leave(child, ctrl_c=True)
    assert code == 130
    assert f"saved in {path}" in rest
    assert read_games(path)[0].turns() == ["1a1"]


def test_lines_can_be_edited_and_recalled(spawn: Any) -> None:
    pytest.importorskip("readline")
    child = spawn("--black", "human", TERM="xterm")
    child.expect_exact("white> ")
    child.sendline("position")
    child.expect_exact("................/........./..../. w 0")
    child.expect_exact("white> ")
    child.send("\x1b[A")  # the arrow up brings the last line back
    child.expect_exact("position")
    child.sendline("")
    child.expect_exact("................/........./..../. w 0")
    child.expect_exact("white> ")
    child.sendline("quit")
    assert leave(child)[0] == 0


def test_the_board_is_in_colour_unless_that_is_unwanted(spawn: Any) -> None:
    agents_play = ("--white", "random", "--black", "random", "--max-plies", "2")
    assert "\x1b[" in leave(spawn(*agents_play, TERM="xterm"))[1]
    assert "\x1b[" not in leave(spawn(*agents_play, TERM="xterm", NO_COLOR="1"))[1]
    assert "\x1b[" not in leave(spawn(*agents_play, "--no-color", TERM="xterm"))[1]


def test_watched_agents_show_their_boards_when_given_time(spawn: Any) -> None:
    both = ("--white", "random", "--black", "random", "--max-plies", "3", "--seed", "1")
    code, quick = leave(spawn(*both))
    assert code == 0
    assert quick.count("level 1") == 1
    assert [line[:8] for line in quick.splitlines()[1:4]] == ["1. white", "1. black", "2. white"]
    code, slow = leave(spawn(*both, "--delay", "0.01"))
    assert code == 0
    assert slow.count("level 1") == 4
    assert slow.splitlines()[-1] == "Result: *, ply limit reached, after 3 plies"
