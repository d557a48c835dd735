"""Position: the friendly, checked view; and the text forms it reads and writes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from pylos_env import (
    BLACK,
    PRESETS,
    WHITE,
    IllegalMoveError,
    NotationError,
    Outcome,
    Position,
    PylosError,
    Rules,
)
from pylos_env.geometry import RAISE_INDEX
from pylos_env.notation import CELL_NAMES, parse_cell

START = "................/........./..../. w 0"
# white completes a square at 1b2
CORNER = "WW..W...BBB...../........./..../. w 0"


def action(text: str) -> int:
    if "-" in text:
        source, target = text.split("-")
        return RAISE_INDEX[parse_cell(source), parse_cell(target)]
    return parse_cell(text)


def test_the_start() -> None:
    position = Position.start()
    assert str(position) == START
    assert (position.side, position.take_backs_left, position.packed) == (WHITE, 0, 0)
    assert position.reserves == (15, 15)
    assert position.outcome is Outcome.ONGOING
    assert position.legal_actions() == list(range(16))
    assert position.rules == PRESETS["advanced"]


def test_playing_gives_a_new_position() -> None:
    start = Position.start()
    after = start.play(3)
    assert (str(start), str(after)) == (START, "...W............/........./..../. b 0")
    assert after.side == BLACK
    assert after.reserves == (14, 15)
    assert (after["1d1"], after[3], after["1a1"]) == ("W", "W", ".")


def test_the_action_numbers_of_raises() -> None:
    assert action("1a1-2a1") == 30
    assert action("1a1-4a1") == 30 + 13
    assert action("2a1-3a1") == 30 + 224
    assert action("3b2-4a1") == 302


def test_raised_sphere_must_land_higher() -> None:
    position = Position.parse("WWBBWBBW......../........./..../. w 0")
    assert "1a1-2b1" in position.legal_moves()
    with pytest.raises(NotationError, match="higher"):
        position.play("1a1-1c3")


def test_a_sphere_cannot_land_on_a_square_it_is_part_of() -> None:
    position = Position.parse("WB..BW........../........./..../. w 0")
    assert "2a1" in position.legal_moves()
    with pytest.raises(IllegalMoveError, match="no support once the sphere is lifted"):
        position.play("1a1-2a1")


def test_a_held_sphere_is_neither_raised_nor_taken_back() -> None:
    position = Position.parse("WBB.BWB.BBW...../WB......./..../. w 0")
    with pytest.raises(IllegalMoveError, match="another sphere rests on 1a1"):
        position.play(action("1a1-2b2"))


def test_the_second_sphere_may_be_one_that_the_first_uncovered() -> None:
    position = Position.parse("WB..BW..WWW...../W......../..../. w 0", "advanced")
    turn = position.play("1d3x2a1x1a1")
    assert str(turn) == ".B..BW..WWWW..../........./..../. b 0"


def test_the_sphere_just_played_may_be_taken_back() -> None:
    assert str(Position.parse(CORNER).play("1b2x1b2")) == CORNER.replace("w 0", "b 0")


def test_every_listed_move_can_be_typed() -> None:
    position = Position.parse(CORNER).play(action("1b2"))
    assert position.legal_moves() == ["x1a1", "x1b1", "x1a2", "x1b2", "stop"]
    assert position.play("stop") == position.play(29)
    assert position.play("x1a1") == position.play(0).play(29), "text is the whole rest of a turn"
    with pytest.raises(IllegalMoveError, match="nothing may be taken back"):
        Position.parse(CORNER).play("stop")


def test_the_turn_ends_by_itself_after_two() -> None:
    position = Position.parse(CORNER).play(action("1b2"))
    position = position.play(0)
    assert (position.side, position.take_backs_left) == (WHITE, 1)
    position = position.play(1)
    assert (position.side, position.take_backs_left) == (BLACK, 0)


def test_stop_waits_for_the_minimum() -> None:
    position = Position.parse(CORNER, "mature").play(action("1b2"))
    with pytest.raises(IllegalMoveError, match="at least 1 must be taken back"):
        position.play(29)
    assert position.play(0).play(29).side == BLACK
    with pytest.raises(IllegalMoveError, match="at least 1 must be taken back"):
        Position.parse(CORNER, "mature").play("1b2")


def test_an_empty_reserve_loses_where_the_rules_say_so() -> None:
    full = Position.parse("WWWWWWWWWWBBBBBB/WWWWW..../..../. w 0", "standard")
    assert full.reserves == (0, 9)
    assert full.outcome is Outcome.BLACK_WINS
    assert full.legal_actions() == []
    same = Position.parse(str(full), "advanced")
    assert same.outcome is Outcome.ONGOING
    assert all("-" in move for move in same.legal_moves())


def test_the_apex_wins_at_once() -> None:
    text = "WWWWWBWWWWBBBBBB/WWWWWBBBB/WBBB/. b 0"
    white, black = Position.parse(text).reserves
    assert (white, black) == (0, 1)
    end = Position.parse(text).play("4a1")
    assert end.outcome is Outcome.BLACK_WINS
    assert end.legal_actions() == []
    with pytest.raises(IllegalMoveError, match="the game is over, black wins"):
        end.play(0)


def test_no_legal_move_loses() -> None:
    text = "WWWWWBWWWWBBBBBB/WWWWWBBBB/WBBB/. w 0"
    assert Position.parse(text, "advanced").outcome is Outcome.BLACK_WINS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected three fields"),
        ("................/........./..../. w", "expected three fields"),
        ("................/........./.... w 0", "expected 4 levels"),
        ("............./........./..../. w 0", "level 1 .* has 13 characters, expected 16"),
        ("................/......../..../. w 0", "level 2 .* has 8 characters, expected 9"),
        ("..x............./........./..../. w 0", "'x' at 1c1"),
        ("................/........./..../. x 0", "side to move is 'x'"),
        ("................/........./..../. w 3", "take-backs left is '3'"),
        ("................/........./..../. w -1", "take-backs left is '-1'"),
        ("WWW.WW........../.W......./..../. w 0", "2b1 floats, nothing at 1c2 below"),
        ("WWWWWWWWWWWWWWWW/........./..../. w 0", "white has 16 spheres"),
        ("................/........./..../. w 2", "cannot have just completed"),
        ("WW..W.........../........./..../. w 2", "cannot have just completed"),
        ("WW.............B/........./..../. w 1", "cannot have just completed"),
        ("WWWWWBWWWWBBBBBB/WWWWWBBBB/BBBW/B b 0", "has placed 4a1 and won"),
    ],
)
def test_impossible_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(NotationError, match=message):
        Position.parse(text)


@pytest.mark.parametrize("rules", ["children", "advanced greedy"])
def test_take_backs_are_refused_where_no_player_chooses_them(rules: str) -> None:
    with pytest.raises(NotationError, match="no player ever chooses"):
        Position.parse("WW..WW........../........./..../. w 2", rules)


@pytest.mark.parametrize("packed", [-1, 1 << 63, 3 << 61, 1 | 1 << 30, 1 << 16])
def test_impossible_packed_positions_are_refused(packed: int) -> None:
    with pytest.raises(NotationError):
        Position(packed)


@pytest.mark.parametrize("bad", [3.5, None, b"x", "text"])
def test_wrong_types_are_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        Position(bad)
    with pytest.raises(TypeError):
        Position.start(rules=3)  # type: ignore[arg-type]
    if not isinstance(bad, str):
        with pytest.raises(TypeError):
            Position.parse(bad)
        with pytest.raises(TypeError):
            Position.start().play(bad)


@pytest.mark.parametrize(
    ("move", "error", "message"),
    [
        ("", NotationError, "empty text is no move"),
        ("5a1", NotationError, "no cell"),
        ("1e1", NotationError, "no cell"),
        ("2d1", NotationError, "off the board: level 2 is 3x3"),
        ("1a1x", NotationError, "no cell"),
        ("1b2x1a1x1b1x1a2", NotationError, "takes back 3"),
        ("1b2x1c1", IllegalMoveError, "no own sphere stands there"),
        ("1a1", IllegalMoveError, "the cell is taken"),
        ("2a1", IllegalMoveError, "the four cells below"),
        ("x1a1", IllegalMoveError, "nothing may be taken back"),
        ("1d4x1a1", IllegalMoveError, "nothing is left to take back after 1d4"),
        ("1d4-2a1", IllegalMoveError, "no own sphere stands on 1d4"),
    ],
)
def test_bad_moves_say_what_is_wrong(move: str, error: type[Exception], message: str) -> None:
    position = Position.parse(CORNER)
    with pytest.raises(error, match=message):
        position.play(move)


@pytest.mark.parametrize("number", [-1, 303, 10**30, 16, 302])
def test_illegal_actions_are_named_with_the_position(number: int) -> None:
    with pytest.raises(IllegalMoveError) as caught:
        Position.start().play(number)
    assert str(number) in str(caught.value)
    assert START in str(caught.value)


def test_a_move_while_taking_back_is_refused() -> None:
    position = Position.parse(CORNER).play(action("1b2"))
    with pytest.raises(IllegalMoveError, match="white is taking back"):
        position.play("1d4")
    with pytest.raises(IllegalMoveError, match="must take a sphere back or stop"):
        position.play(100)


def test_errors_are_value_errors_of_one_family() -> None:
    assert issubclass(IllegalMoveError, PylosError)
    assert issubclass(NotationError, PylosError)
    assert issubclass(PylosError, ValueError)


def test_it_never_changes() -> None:
    position = Position.start()
    with pytest.raises(AttributeError, match="never changes"):
        position.packed = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="never changes"):
        del position.rules


def test_it_is_equal_hashable_and_survives_copies() -> None:
    position = Position.parse(CORNER, "mature")
    assert pickle.loads(pickle.dumps(position)) == position
    assert copy.deepcopy(position) == position
    assert len({position, Position.parse(CORNER, "mature"), Position.parse(CORNER)}) == 2
    assert position != Position.parse(CORNER)
    assert position != "text"
    assert eval(repr(position).replace("Position(", "Position.parse(")) == position


def test_numpy_integers_serve_everywhere_and_bools_nowhere() -> None:
    assert Position.start().play(np.int16(3)) == Position.start().play(3)
    assert Position(np.int64(0)) == Position.start()
    assert Rules(min_take_back=np.int64(1)) == Rules(min_take_back=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an action is an integer"):
        Position.start().play(True)


def test_masks_are_fresh_arrays() -> None:
    position = Position.start()
    mask = position.action_mask()
    mask[:] = 1
    assert position.action_mask().sum() == 16
    assert position.action_mask().dtype == np.int8


def test_cells_by_number_and_name() -> None:
    with pytest.raises(IndexError, match="off the board"):
        Position.start()[30]
    with pytest.raises(NotationError):
        Position.start()["9z9"]
    assert CELL_NAMES[0] == "1a1"
    assert CELL_NAMES[15] == "1d4"
    assert CELL_NAMES[16] == "2a1"
    assert CELL_NAMES[29] == "4a1"


@pytest.mark.parametrize(
    ("text", "message"),
    [("expert", "expert"), ("", "unknown rules"), ("squares min=3", "min=3")],
)
def test_unknown_rules_list_the_right_ones(text: str, message: str) -> None:
    with pytest.raises(NotationError, match=message):
        Rules.of(text)


@pytest.mark.parametrize(
    "options",
    [
        {"min_take_back": 3},
        {"min_take_back": True},
        {"squares": 1},
        {"take_back": "auto"},
        {"lines": None},
    ],
)
def test_bad_rules_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Rules(**options)


def test_the_four_presets() -> None:
    table = {
        name: (r.squares, r.lines, r.min_take_back, r.empty_reserve_loses)
        for name, r in PRESETS.items()
    }
    assert table == {
        "advanced": (True, True, 0, False),
        "children": (False, False, 0, True),
        "standard": (True, False, 1, True),
        "mature": (True, True, 1, True),
    }
    assert Rules() == PRESETS["advanced"]
