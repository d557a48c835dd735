"""Pictures: what is drawn must be where the cell is, and nothing else."""

from __future__ import annotations

import re
import sys

import gymnasium
import numpy as np
import pytest

from pylos_env import Position, render
from pylos_env.geometry import APEX, CELLS, NUM_CELLS, RAISE_INDEX, STOP, SUPPORTS
from pylos_env.render import scene
from pylos_env.testing import random_game

SIZE = 320
UNIT = SIZE / scene.EXTENT
EARLY = "WB...WB..WB...../........./..../. w 0"
TAKING_BACK = "WWWBBWBWWWW.BBBB/BB.BW.WW./W.B./. b 2"
WON = "WBWBWBWBBWBWBWBW/BWBWBWBWB/WBWB/W b 0"


def picture(position, **options):
    return render.rgb_array(position, SIZE, **options).astype(int)


def place(cell):
    return scene.pixel(scene.centre(cell), SIZE)


def hollow(cell):
    """Where the middle of an empty cell's hollow appears."""
    x, y, z = scene.centre(cell)
    return scene.pixel((x, y, z + scene.SURFACE), SIZE)


def changed_near(first, second, middle, reach):
    row, col = middle
    radius = round(reach * UNIT)
    rows = slice(max(0, row - radius), row + radius + 1)
    cols = slice(max(0, col - radius), col + radius + 1)
    return bool((first[rows, cols] != second[rows, cols]).any())


def pile_below(cell):
    """Mask of all the cells that a sphere there needs."""
    mask = SUPPORTS[cell]
    for below in range(NUM_CELLS):
        if SUPPORTS[cell] >> below & 1:
            mask |= pile_below(below)
    return mask


def on_top_of_a_pile(cell, letter):
    """The position in which that sphere stands on the smallest possible pile."""
    other = "B" if letter == "W" else "W"
    letters = ["."] * NUM_CELLS
    letters[cell] = letter
    for index, below in enumerate(c for c in range(NUM_CELLS) if pile_below(cell) >> c & 1):
        letters[below] = (other, letter)[index % 2]
    text = "".join(letters)
    board = "/".join((text[:16], text[16:25], text[25:29], text[29:]))
    return Position.parse(f"{board} {other.lower()} 0")


# The picture


@pytest.mark.parametrize("size", [64, 201, 640])
def test_picture_is_a_square_of_bytes(size):
    array = render.rgb_array(Position.start(), size)
    assert array.shape == (size, size, 3)
    assert array.dtype == np.uint8
    assert array.flags.c_contiguous


@pytest.mark.parametrize("cell", range(NUM_CELLS))
def test_sphere_has_its_colour_where_its_cell_projects(cell):
    row, col = place(cell)
    patches = {}
    for letter in "WB":
        array = picture(on_top_of_a_pile(cell, letter), legal=False)
        patches[letter] = array[row - 3 : row + 4, col - 3 : col + 4].mean()
    assert patches["W"] > 170
    assert patches["B"] < 90


def test_all_cells_project_to_different_places():
    places = [place(cell) for cell in range(NUM_CELLS)]
    nearest = min(
        np.hypot(a[0] - b[0], a[1] - b[1]) for index, a in enumerate(places) for b in places[:index]
    )
    assert nearest > 0.15 * UNIT


def test_higher_levels_are_drawn_higher_and_later_rows_nearer():
    for cell, (level, row, col) in enumerate(CELLS):
        if level:
            below = [place(c) for c in range(NUM_CELLS) if SUPPORTS[cell] >> c & 1]
            assert place(cell)[0] < np.mean([row for row, _ in below])
        if row:
            assert place(cell)[0] > place(CELLS.index((level, row - 1, col)))[0]
        if col:
            assert place(cell)[1] > place(CELLS.index((level, row, col - 1)))[1]


@pytest.mark.parametrize("cell", [3, 12, 20])
def test_placed_sphere_changes_the_field_only_near_its_cell(cell):
    before = Position.parse(EARLY)
    after = before.play(cell)
    change = np.abs(picture(before, legal=False) - picture(after, legal=False)).max(axis=-1)
    different = change > 8  # the faint end of a shadow reaches further
    points = scene.ground_points(*scene.screen(SIZE), scene.SURFACE)
    in_field = (np.abs(points[..., 0]) < 2.1) & (np.abs(points[..., 1]) < 2.1)
    rows, cols = np.nonzero(different & in_field)
    row, col = place(cell)
    assert rows.size
    assert np.hypot(rows - row, cols - col).max() < 1.6 * UNIT


@pytest.mark.parametrize(("seat", "letter"), [(0, "W"), (1, "B")])
def test_trays_hold_exactly_the_reserves(seat, letter):
    full = picture(Position.start(), legal=False)
    position = Position.parse(EARLY)
    array = picture(position, legal=False)
    for index in range(15):
        row, col = scene.pixel(scene.tray_centre(seat, index), SIZE)
        same = np.abs(array[row, col] - full[row, col]).max() < 30
        assert same == (index < position.reserves[seat]), (letter, index)


def gold(array, seat):
    """How golden the frame of a tray is: its two outer edges against plain wood."""
    y = sum(scene.TRAY_ROWS[seat]) / 2
    values = []
    for x in (-2.56, 2.56):
        row, col = scene.pixel((x, y, scene.SURFACE), SIZE)
        red, green, _ = array[row - 1 : row + 2, col - 1 : col + 2].reshape(-1, 3).max(axis=0)
        values.append(min(red, green))
    return min(values)


@pytest.mark.parametrize(("text", "seat"), [(EARLY, 0), (TAKING_BACK, 1), (WON, 0)])
def test_side_to_move_or_winner_is_framed(text, seat):
    array = picture(Position.parse(text))
    assert gold(array, seat) > gold(array, 1 - seat) + 40


def test_winner_gets_a_star():
    won = picture(Position.parse(WON))
    row, col = scene.pixel((2.33, sum(scene.TRAY_ROWS[0]) / 2, scene.SURFACE), SIZE)
    red, green, blue = won[row, col]
    assert red > 230
    assert green > 180
    assert blue < 150


def test_legal_cells_are_marked_and_only_they():
    position = Position.parse(EARLY)
    plain, marked = picture(position, legal=False), picture(position)
    playable = {action for action in position.legal_actions() if action < NUM_CELLS}
    for cell in range(16):
        assert changed_near(plain, marked, hollow(cell), 0.2) == (
            cell in playable or cell == 0  # 1a1 may rise
        ), cell
    assert changed_near(plain, marked, hollow(20), 0.2)


def test_sphere_that_may_rise_has_a_chevron():
    position = Position.parse(EARLY)
    plain, marked = picture(position, legal=False), picture(position)
    assert changed_near(plain, marked, place(0), 0.1)
    assert not changed_near(plain, marked, place(1), 0.1)


def test_removable_spheres_are_ringed_while_taking_back():
    position = Position.parse(TAKING_BACK)
    plain, marked = picture(position, legal=False), picture(position)
    removable = {action for action in position.legal_actions() if action != STOP}
    assert removable == {3, 15, 27}
    for cell in removable:
        row, col = place(cell)
        edge = row, col + round(0.46 * UNIT)
        red, green, _ = marked[edge]
        assert red > green + 60
        assert not changed_near(plain, marked, (row, col), 0.25)
    row, col = hollow(11)  # empty, but nothing may be placed now
    assert not changed_near(plain, marked, (row - round(0.13 * UNIT), col), 0.05)


def test_nothing_is_marked_when_the_game_is_over():
    position = Position.parse(WON)
    np.testing.assert_array_equal(picture(position, legal=False), picture(position))


def test_last_action_is_marked():
    before = Position.parse(EARLY)
    raised = before.play("1a1-2b2")
    plain = picture(raised, legal=False)
    marked = picture(raised, legal=False, last=RAISE_INDEX[0, 20])
    assert changed_near(plain, marked, hollow(0), 0.2)
    row, col = place(20)
    assert changed_near(plain, marked, (row, col + round(0.46 * UNIT)), 0.03)
    assert not changed_near(plain, marked, place(1), 0.3)


def test_stop_leaves_no_mark():
    position = Position.parse(EARLY)
    np.testing.assert_array_equal(picture(position), picture(position, last=STOP))
    won = Position.parse(WON)
    assert (picture(won) != picture(won, last=APEX)).any()


def test_marks_ring_any_cell_and_win_over_the_others():
    position = Position.parse(EARLY)
    array = picture(position, marks=[2])
    row, col = hollow(2)
    around = array[row - 10 : row + 11, col - 10 : col + 11].reshape(-1, 3)
    assert (around[:, 2] > around[:, 0] + 60).any()
    assert not (around[:, 1] > around[:, 2] + 60).any()


def test_pictures_are_deterministic_and_independent():
    position = Position.parse(TAKING_BACK)
    first = render.rgb_array(position, SIZE)
    copy = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(render.rgb_array(position, SIZE), copy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 10}, "at least 64"),
        ({"marks": [30]}, "cells 0-29"),
        ({"last": 303}, "action 0-302"),
    ],
)
def test_impossible_requests_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        render.rgb_array(Position.start(), **options)


# Text


def plain_text(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def sample_positions():
    return [
        position for seed in range(5) for position in list(random_game(seed=seed).positions())[::6]
    ]


def read_back(text):
    """The letters of all cells, found below their column's letter and beside their row's number."""
    lines = text.split("\n")
    starts = [match.start() for match in re.finditer("level", lines[0])]
    letters = []
    for level, start in enumerate(starts):
        size = 4 - level
        assert lines[0][start:].startswith(f"level {level + 1}")
        columns = [lines[1].index(letter, start) for letter in "abcd"[:size]]
        for row in range(size):
            assert lines[2 + row][: columns[0]].rstrip(" [").endswith(str(row + 1))
            letters += [lines[2 + row][column] for column in columns]
    return letters


def test_every_cell_has_its_letter_at_its_place():
    for position in sample_positions():
        playable = set(position.legal_actions()) if not position.take_backs_left else set()
        letters = read_back(render.ansi(position, colour=False))
        expected = [
            "+" if cell in playable and position[cell] == "." else position[cell]
            for cell in range(NUM_CELLS)
        ]
        if position.reserves[position.side]:
            assert letters == expected, position
        else:  # only raises: their targets are marked, too
            assert [letter.replace("+", ".") for letter in letters] == [
                letter.replace("+", ".") for letter in expected
            ]


@pytest.mark.parametrize("colour", [False, True])
def test_board_lines_are_equally_wide(colour):
    for position in sample_positions():
        lines = render.ansi(position, colour=colour).split("\n")
        assert len({len(plain_text(line)) for line in lines[:6]}) == 1
        assert lines[6] == ""


def test_removable_spheres_stand_in_brackets():
    position = Position.parse(TAKING_BACK)
    text = render.ansi(position, colour=False)
    board = "\n".join(text.split("\n")[:6])
    assert board.count("[B]") == 3
    assert "[W]" not in board
    assert "+" not in board


def test_risers_are_marked_in_text():
    board = render.ansi(Position.parse(EARLY), colour=False).split("\n")[:6]
    assert "".join(board).count("^") == 1
    assert "1  W^ B" in board[2]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (EARLY, "White to move"),
        (TAKING_BACK, "Black may take back 2 spheres"),
        (WON, "White wins"),
    ],
)
def test_text_says_whose_turn_it_is_or_who_has_won(text, status):
    assert status in render.ansi(Position.parse(text), colour=False)


def test_text_counts_both_reserves():
    text = render.ansi(Position.parse(TAKING_BACK), colour=False)
    assert re.search(r"^  white +WWW\.{12} +3 in reserve$", text, re.MULTILINE)
    assert re.search(r"^> black +BBBB\.{11} +4 in reserve$", text, re.MULTILINE)


def test_colour_changes_nothing_but_colour():
    for position in sample_positions():
        assert plain_text(render.ansi(position, colour=True)) == render.ansi(position, colour=False)


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"),
    [(True, None, True), (False, None, False), (True, "1", False), (True, "", True)],
)
def test_colour_needs_a_terminal_that_wants_it(monkeypatch, terminal, no_color, coloured):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert ("\x1b[" in render.ansi(Position.start())) == coloured
    assert "\x1b[" in render.ansi(Position.start(), colour=True)
    assert "\x1b[" not in render.ansi(Position.start(), colour=False)


# Modes


def test_unknown_mode_is_refused_with_the_right_ones():
    for mode in (None, *render.RENDER_MODES):
        assert render.check_mode(mode) == mode
    with pytest.raises(ValueError, match=r"'rgb'.*human, rgb_array, ansi"):
        render.check_mode("rgb")
    with pytest.raises(ValueError, match="one of rgb_array, ansi"):
        render.check_mode("human", window=False)


def test_show_gives_what_each_mode_promises():
    position = Position.parse(EARLY)
    assert render.show(position, "ansi") == render.ansi(position)
    np.testing.assert_array_equal(render.show(position, "rgb_array"), render.rgb_array(position))


# The window


@pytest.fixture
def pygame(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    yield pytest.importorskip("pygame")
    sys.modules["pygame"].display.quit()


def test_window_opens_at_the_first_show_and_closes_twice(pygame):
    window = render.Window(size=128, fps=1000)
    assert not window.is_open
    assert not pygame.display.get_init()
    window.close()
    position = Position.parse(EARLY)
    window.show(position)
    assert window.is_open
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, render.rgb_array(position, 128))
    assert pygame.display.get_caption()[0] == "Pylos: White to move"
    window.close()
    window.close()
    assert not window.is_open
    assert not pygame.display.get_init()
    window.show(position)
    assert window.is_open
    window.close()


def test_window_closed_by_its_user_stays_closed_without_an_error(pygame):
    window = render.Window(size=128, fps=1000)
    window.show(Position.start())
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window.show(Position.start())
    assert not window.is_open
    window.show(Position.start())
    assert not window.is_open
    window.close()


def test_window_survives_the_end_of_another(pygame):
    first, second = (render.Window(size=128, fps=1000) for _ in range(2))
    first.show(Position.start())
    second.show(Position.start())
    second.close()
    first.show(Position.start())
    assert first.is_open
    first.close()


def test_window_keeps_to_its_frame_rate(pygame):
    window = render.Window(size=64, fps=20)
    window.show(Position.start())
    begin = pygame.time.get_ticks()
    for _ in range(3):
        window.show(Position.start())
    assert pygame.time.get_ticks() - begin >= 3 * 45
    window.close()


def test_missing_pygame_gives_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(
        gymnasium.error.DependencyNotInstalled, match=r'pip install "pylos-env\[human\]"'
    ):
        render.Window().show(Position.start())
