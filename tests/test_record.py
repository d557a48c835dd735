"""Game records: text and files that read back as they were written."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pylos_env import (
    GameRecord,
    IllegalMoveError,
    NotationError,
    Position,
    parse_games,
    read_games,
    write_games,
)
from pylos_env.testing import random_game

SQUARE = """
[Rules "mature"]
[White "Ada"]

1. 1a1 1a3 2. 1b1 1b3 3. 1a2 1c3
4. 1b2x1a1x1b1 *
"""


def test_a_record_by_hand() -> None:
    game = GameRecord.parse(SQUARE)
    assert game.tags == {"White": "Ada"}
    assert str(game.start.rules) == "mature"
    assert game.result == "*"
    assert str(game.end) == "....WW..BBB...../........./..../. b 0"
    assert game.turns()[-1] == "1b2x1a1x1b1"
    assert GameRecord.parse(str(game)) == game


def test_a_stop_is_implied_where_fewer_are_taken() -> None:
    game = GameRecord.parse(SQUARE.replace("x1a1x1b1", "x1a1"))
    assert game.actions[-2:] == (0, 29)


def test_a_file_of_many_games_reads_back(tmp_path: Path) -> None:
    games = [random_game(rules, seed) for seed in range(5) for rules in ("advanced", "standard")]
    path = tmp_path / "games.pylos"
    write_games(path, games)
    assert read_games(path) == games
    write_games(path, [])
    assert read_games(path) == []


def test_odd_tags_read_back() -> None:
    game = GameRecord(Position.start(), (3,), {"White": 'a "quoted" \\ name', "Event": "ä ö"})
    assert GameRecord.parse(str(game)) == game


def test_a_game_may_start_anywhere_with_either_side() -> None:
    start = Position.parse("WW.BWWB.W.BB..../........./..../. b 0", "standard")
    game = GameRecord(start, tuple(start.legal_actions()[:1]))
    assert GameRecord.parse(str(game)) == game


def test_a_finished_game_has_its_winner() -> None:
    for seed in range(10):
        game = random_game("advanced", seed)
        assert game.result in ("1-0", "0-1")
        assert f'[Result "{game.result}"]' in str(game)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("1. 1a1", NotationError, "line 1: .*no result"),
        ("1. 1a1 1a1 *", IllegalMoveError, "line 1: .*the cell is taken"),
        ("1. 1a1\n9z9 *", NotationError, "line 2: .*no cell"),
        ("1. 1a1 1-0", NotationError, "line 1: the result is 1-0, but the game stands"),
        ('[Result "0-1"]\n1. 1a1 *', NotationError, "line 1: the result is 0-1"),
        ('[Rules "expert"]\n1. 1a1 *', NotationError, "line 1: .*expert"),
        ('[Rules "mature"\n1. 1a1 *', NotationError, "line 1: .*is no tag"),
        ('[White "a"]\n[White "b"]\n*', NotationError, "line 2: .*stands twice"),
        ('1. 1a1\n[White "a"]\n*', NotationError, "line 2: a tag before"),
        ('[White "a"]\n[Position "x"]\n*', NotationError, "line 2: .*three fields"),
        ("1. 1a1... *", NotationError, "not the beginning of a legal turn"),
    ],
)
def test_bad_records_say_where(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_games(text)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.pylos"
    path.write_text("1. 1a1 1a1 *")
    with pytest.raises(IllegalMoveError, match=r"bad\.pylos: line 1"):
        read_games(path)


def test_one_game_is_asked_for() -> None:
    with pytest.raises(NotationError, match="found 2"):
        GameRecord.parse("1. 1a1 *\n1. 1a2 *")


def test_an_illegal_game_cannot_be_made() -> None:
    with pytest.raises(IllegalMoveError):
        GameRecord(Position.start(), (3, 3))
    with pytest.raises(NotationError, match="bad tag"):
        GameRecord(Position.start(), (), {"Rules": "mature"})
    with pytest.raises(NotationError, match="bad tag"):
        GameRecord(Position.start(), (), {"White": "two\nlines"})


def test_a_stop_on_its_own_is_written() -> None:
    start = Position.parse("WW..WW..BBB...../........./..../. w 2")
    for actions in ((29,), (29, 3), (0, 29, 3)):
        game = GameRecord(start, actions)
        assert GameRecord.parse(str(game)) == game


@pytest.mark.parametrize("value", ["a\rb", "a\x0cb", "a\x85b", "a\u2028b", "a\n", 3])
def test_a_tag_is_one_line_of_text(value: object) -> None:
    with pytest.raises(NotationError, match="bad tag"):
        GameRecord(Position.start(), (), {"White": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("action", [3.7, "3", True])
def test_actions_are_never_rounded(action: object) -> None:
    with pytest.raises(TypeError, match="an action is an integer"):
        GameRecord(Position.start(), (action,))  # type: ignore[arg-type]


def test_a_record_is_a_value() -> None:
    game = GameRecord.parse(SQUARE)
    assert pickle.loads(pickle.dumps(game)) == game
    assert hash(game) == hash(GameRecord.parse(SQUARE))
    with pytest.raises(TypeError):
        game.tags["White"] = "Bob"  # type: ignore[index]


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bom.pylos"
    path.write_text('[White "Ada"]\n1. 1a1 *', encoding="utf-8-sig")
    assert read_games(path)[0].tags == {"White": "Ada"}
