"""The page in a real browser: whole games by mouse and by keyboard, and all that may go wrong.

Needs playwright, chromium and, for the 3D board, its build; skips with a reason where one is
missing. `PYLOS_SCREENSHOTS` names a folder to keep pictures in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pylos_env import Position, parse_games
from pylos_web import server as server_module
from pylos_web.levels import Levels
from pylos_web.server import BOARD_3D
from pylos_web.sessions import Limits
from tests.web_browser import Page, Relay, browser
from tests.web_tools import Server, Slow, SmallTables, fallback_levels, level, write_ladder

ROOT = Path(__file__).resolve().parent.parent
AXE = ROOT / "pylos_web" / "board3d" / "node_modules" / "axe-core" / "axe.min.js"

SQUARE_AT_1B2 = "WW..W....B..B.B./........./..../._w_0"
TO_RAISE = "WW..BB.........W/........./..../._w_0"

needs_3d = pytest.mark.skipif(
    not BOARD_3D.exists(),
    reason="the 3D board is not built (make web): the same is tried on the 2D board",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(adviser=SmallTables()) as running:
        yield running


Visit = Callable[..., Page]


@pytest.fixture
def visit(chromium: Any, server: Server) -> Iterator[Visit]:
    """Opens pages without motion, and sees at the end that nothing went wrong in them."""
    contexts: list[Any] = []
    pages: list[Page] = []

    def new(hash: str = "", view: str = "3d", origin: str | None = None, **options: Any) -> Page:
        settings = {
            "viewport": {"width": 900, "height": 700},
            "reduced_motion": "reduce",
            **options,
        }
        script = settings.pop("script", None)
        context = chromium.new_context(**settings)
        contexts.append(context)
        if view == "2d":
            context.add_init_script("localStorage['pylos.view'] ??= '\"2d\"'")
        if script:
            context.add_init_script(script)
        page = Page(context.new_page())
        pages.append(page)
        page.open(f"{origin or server.origin}/{hash}", view if BOARD_3D.exists() else "2d")
        return page

    yield new
    faults = [fault for page in pages for fault in page.faults]
    for context in contexts:
        context.close()
    assert faults == []


def play_level(page: Page, choice: str, human: str = "white") -> None:
    """Begin a game against a level by the dialog."""
    seq = page.state["seq"]
    page.page.click("#new-open")
    page.page.check("input[name=mode][value=human_vs_ai]")
    page.page.check(f"input[name=color][value={human}]")
    page.page.locator("#level").fill(choice)
    page.page.click("#new-start")
    page.after(seq)


def some_step(state: dict[str, Any], chance: random.Random) -> tuple[str, list[int]]:
    """A legal step of the state: its kind and its cells. Raises are rare, so they go first."""
    legal = state["legal"]
    if legal["remove"]:
        return "remove", [chance.choice(legal["remove"])]
    if legal["raise"] and (chance.random() < 0.5 or not legal["place"]):
        return "raise", chance.choice(legal["raise"])
    # from the top down: the game is then over sooner
    return "place", [max(legal["place"])]


def whole_game(page: Page, act: Callable[[int], None], seed: int) -> set[str]:
    """Play until the game is over; the kinds of steps that were made."""
    chance = random.Random(seed)
    kinds = set()
    state = page.my_turn()
    while state["phase"] != "over":
        kind, cells = some_step(state, chance)
        for cell in cells:
            act(cell)
        kinds.add(kind)
        state = page.after(state["seq"])
    assert state["result"]["reason"] == "won"
    return kinds


@needs_3d
def test_a_whole_game_by_clicks_in_3d(visit: Visit) -> None:
    page = visit()
    play_level(page, "0")
    page.look_from_above()
    whole_game(page, page.click_cell, seed=3)
    assert "wins" in page.page.inner_text("#status")
    page.snap("3d-game-over")


def test_a_whole_game_by_keyboard_in_2d(visit: Visit) -> None:
    page = visit(view="2d")
    play_level(page, "1", human="black")
    page.page.locator("#board2d .cell").first.focus()
    whole_game(page, page.press_cell, seed=5)
    assert "wins" in page.page.inner_text("#status")
    said = page.page.inner_text("#announcer")
    assert "places" in said
    assert "wins" in said
    assert "win" in page.page.inner_text("#over-title")
    seq = page.state["seq"]
    page.page.click("#over-again")
    again = page.after(seq)
    assert (again["you"], again["players"]["white"]["level"]) == ("black", "rule_based")
    assert not page.page.locator("#over").is_visible()
    assert page.ask("document.activeElement.className").startswith("cell")


@needs_3d
def test_spheres_are_raised_by_two_clicks_in_3d(visit: Visit) -> None:
    page = visit(f"#position={TO_RAISE}")
    page.look_from_above()
    page.click_cell(15)
    assert page.ask("pylos.interaction.selected") == 15
    assert page.ask("pylos.board3d.spheres.pulses.length") == 1
    page.snap("3d-selected")
    page.click_cell(16)
    assert page.after(0)["plies"] == ["1d4-2a1"]


@needs_3d
def test_two_spheres_are_taken_back_by_clicks_and_moves_undone(visit: Visit) -> None:
    page = visit(f"#position={SQUARE_AT_1B2}")
    page.look_from_above()
    page.click_cell(5)
    state = page.after(0)
    assert state["phase"] == "take_back"
    assert "may take back up to two spheres" in page.page.inner_text("#status")
    page.snap("3d-take-back")
    page.click_cell(0)
    page.click_cell(4) if page.after(state["seq"])["legal"]["remove"] else None
    page.until("pylos.state.turn === 'black'")
    assert page.state["plies"] == ["1b2", "x1a1", "x1a2"]
    page.page.click("#undo")
    page.until("pylos.state.plies.length === 2")
    page.page.click("#done")
    page.until("pylos.state.turn === 'black'")
    assert page.state["plies"] == ["1b2", "x1a1", "stop"]


@needs_3d
def test_motion_ends_where_the_sphere_belongs(visit: Visit) -> None:
    page = visit(f"#position={TO_RAISE}", reduced_motion="no-preference")
    page.look_from_above()
    # a slow machine may draw no frame of a motion: what counts is that one was begun
    page.ask(
        "(() => { const motions = pylos.board3d.spheres.motions, set = motions.set;"
        " globalThis.begun = 0;"
        " motions.set = (...what) => { begun += 1; return set.apply(motions, what); }; })()"
    )
    page.click_cell(15)
    page.click_cell(16)
    page.until("begun === 1 && pylos.board3d.settled")
    found, wanted = page.ask(
        "[pylos.board3d.spheres.at(16).mesh.position, pylos.board3d.spheres.points[16]]"
        ".map(({x, y, z}) => [x, y, z])"
    )
    assert found == pytest.approx(wanted)
    page.page.keyboard.press("u")
    page.until("pylos.board3d.spheres.at(15) && !pylos.board3d.spheres.at(16)")


@needs_3d
def test_nothing_is_drawn_while_nothing_happens(visit: Visit) -> None:
    page = visit()
    page.until("pylos.board3d.frame === null")
    before = page.ask("pylos.board3d.renderer.info.render.frame")
    page.page.wait_for_timeout(600)
    assert page.ask("pylos.board3d.renderer.info.render.frame") == before


def test_a_take_back_of_two_and_a_raise_by_keyboard(visit: Visit) -> None:
    page = visit(f"#position={SQUARE_AT_1B2}", view="2d")
    page.page.locator("#board2d .cell").first.focus()
    page.press_cell(5)
    page.after(0)
    for cell in (0, 4):
        label = page.page.locator(f"[data-cell='{cell}']").get_attribute("aria-label")
        assert "can be taken back" in label
        page.press_cell(cell)
        page.until(f"pylos.snaps.at(-1).cells[{cell}] === '.'")
    assert page.state["turn"] == "black"
    page = visit(f"#position={TO_RAISE}", view="2d")
    page.page.locator("#board2d .cell").first.focus()
    page.press_cell(15)
    assert "raise 1d4 here" in page.page.locator("[data-cell='16']").get_attribute("aria-label")
    page.page.keyboard.press("Escape")
    assert page.ask("pylos.interaction.selected") is None
    page.press_cell(15)
    page.press_cell(16)
    assert page.after(0)["plies"] == ["1d4-2a1"]


def test_hints_typed_moves_and_explanations(visit: Visit) -> None:
    page = visit(f"#position={SQUARE_AT_1B2}", view="2d")
    page.page.keyboard.press("h")
    page.until("document.getElementById('message').textContent.startsWith('Hint: ')")
    assert page.page.locator(".cell.hint").count() >= 1
    page.page.keyboard.press("/")
    page.page.keyboard.type("b2")
    page.page.keyboard.press("Enter")
    page.until("document.getElementById('message').textContent.includes('did you mean 1b2')")
    page.page.fill("#typed-move", "1b2x1a1x1a2")
    page.page.press("#typed-move", "Enter")
    assert page.after(0)["plies"] == ["1b2", "x1a1", "x1a2"]
    page.page.locator("[data-cell='25']").click()
    assert "four cells below" in page.page.inner_text("#message")


# The truth on screen


def test_the_analysis_shows_exact_verdicts_and_mistakes(visit: Visit) -> None:
    from pylos_env import Rules
    from pylos_env.testing import random_game

    record = random_game(Rules.of("children"), 11)
    start = list(record.positions())[-9]
    position, plies = start, []
    for action in record.actions[-8:]:
        plies.append(position.move_name(action))
        position = position.play(action)
    won = "w" if position.outcome.value.startswith("white") else "b"
    text = str(start).replace(" ", "_")
    page = visit(f"#rules=children&start={text}&game={','.join(plies)}&won={won}", view="2d")
    assert page.state["phase"] == "over"
    page.page.click("#over-review")
    page.until("document.querySelectorAll('.graph .mistake').length > 0")
    assert "?" in page.page.inner_text("#moves")
    page.page.click("text=Next mistake")
    assert "turns the win into a loss" in page.page.inner_text(".note")
    assert page.page.locator("#moves .now.bad").count() == 1
    page.page.click("#first")
    page.until("document.querySelector('.verdict').textContent.startsWith('Exact: ')")
    page.until("/(wins|loses) in \\d+ turn/.test(document.querySelector('.judged').textContent)")
    assert "Looking back" in page.page.inner_text("#review-note")
    page.page.keyboard.press("]")
    assert page.ask("pylos.ply") == 1
    page.page.locator("#moves button").last.click()
    assert page.ask("pylos.viewPly") is None
    page.snap("analysis")


# Links, records, spectators


def test_positions_and_games_are_links(visit: Visit) -> None:
    page = visit(f"#position={SQUARE_AT_1B2}", view="2d")
    page.page.fill("#typed-move", "1b2")
    page.page.press("#typed-move", "Enter")
    page.after(0)
    page.page.click("#game-box summary")
    for button in ("#copy-position", "#copy-game"):
        page.page.click(button)
        link = page.page.input_value("#link")
        other = visit(link[len(page.ask("location.origin")) + 1 :], view="2d")
        assert other.state["board"] == page.state["board"]
    assert other.state["plies"] == ["1b2"]
    page.page.fill("#typed-move", "x1a1")
    page.page.press("#typed-move", "Enter")
    page.until("pylos.state.plies.length === 2")
    start = SQUARE_AT_1B2.replace("_", " ")
    after = Position.parse(start).play(5)
    for ply, board in enumerate((start, str(after), str(after.play(0)))):
        page.ask(f"pylos.look({ply})")
        page.page.click("#copy-position")
        assert page.page.input_value("#link").endswith(quote(board.replace(" ", "_"), safe="._"))


def test_records_are_saved_and_loaded(visit: Visit, tmp_path: Path) -> None:
    page = visit(f"#position={TO_RAISE}", view="2d")
    page.page.fill("#typed-move", "1d4-2a1")
    page.page.press("#typed-move", "Enter")
    seq = page.after(0)["seq"]
    page.page.click("#game-box summary")
    with page.page.expect_download() as download:
        page.page.click("#save")
    saved = tmp_path / "game.txt"
    download.value.save_as(saved)
    assert parse_games(saved.read_text())[0].turns() == ["1d4-2a1"]
    page.page.set_input_files("#load-file", saved)
    page.until(f"pylos.state.seq > {seq}")
    assert page.state["plies"][0] == "1d4-2a1"
    saved.write_text("this is no game")
    page.page.set_input_files("#load-file", saved)
    page.until("document.getElementById('message').textContent.includes('no result')")


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("#position=" + "." * 16 + "/W......../..../._w_0", "floats"),
        ("#game=1a1,1a1", "1a1"),
    ],
)
def test_a_link_that_cannot_be_is_explained(visit: Visit, link: str, reason: str) -> None:
    page = visit(link, view="2d")
    assert page.state["plies"] == []
    assert reason in page.page.inner_text("#message")


def test_the_dialog_tells_how_strong_a_level_is(visit: Visit, tmp_path: Path) -> None:
    levels = Levels.load(write_ladder(tmp_path, (0, 2)), 800)
    with Server(levels) as other:
        page = visit(view="2d", origin=other.origin)
        page.page.click("#new-open")
        page.page.locator("#level").fill("1")
        assert page.page.inner_text("#level-label") == "Novice"
        assert page.page.inner_text("#level-rating") == "1200 ± 50"
        assert "tries 2 lines of play" in page.page.inner_text("#level-text")
        spoken = page.page.get_attribute("#level", "aria-valuetext")
        assert spoken == "Novice, rating 1200 plus or minus 50"
        page.page.select_option("#rules", "mature")
        assert page.page.inner_text("#level-low") == "Beginner"
        assert page.page.inner_text("#level-rating") == "", "nothing was trained for these rules"
        page.page.select_option("#rules", "advanced")
        page.page.locator("#level").fill("0")
        seq = page.state["seq"]
        page.page.click("#new-start")
        assert page.after(seq)["players"]["black"]["level"] == levels.all[0].id


def test_a_spectator_follows_and_cannot_move(visit: Visit) -> None:
    player = visit("#position=" + TO_RAISE, view="2d")
    watch = player.ask("pylos.tokens.watch")
    spectator = visit(f"#watch={watch}", view="2d")
    assert spectator.state["you"] == "none"
    player.page.fill("#typed-move", "1c1")
    player.page.press("#typed-move", "Enter")
    spectator.until("pylos.state.plies.length === 1")
    assert not spectator.page.locator("#typed").is_visible()
    assert not spectator.page.locator("#undo").is_visible()


def test_two_machines_play_and_pause(visit: Visit) -> None:
    page = visit(view="2d")
    page.page.click("#new-open")
    page.page.check("input[name=mode][value=ai_vs_ai]")
    page.page.click("#new-start")
    page.until("pylos.state.mode === 'ai_vs_ai' && pylos.state.plies.length > 1")
    page.page.click("#pause")
    page.until("pylos.state.paused")
    assert "Paused" in page.page.inner_text("#status")
    page.page.locator("#pace").fill("0")
    page.page.click("#pause")
    page.until("pylos.state.phase === 'over'")


# What may go wrong


def test_a_killed_socket_comes_back_to_the_same_game(visit: Visit, server: Server) -> None:
    relay = Relay(server.port)
    page = visit(f"#position={TO_RAISE}", view="2d", origin=relay.origin)
    page.page.fill("#typed-move", "1d4-2a1")
    page.page.press("#typed-move", "Enter")
    page.after(0)
    token = page.ask("pylos.tokens.token")
    page.ask(
        "(() => { const node = document.getElementById('connection'); globalThis.told = [];"
        " new MutationObserver(() => told.push(node.textContent)).observe(node,"
        " {childList: true}); })()"
    )
    relay.cut()
    page.until("told.some(text => text.startsWith('Connection lost'))")
    page.until("document.getElementById('connection').dataset.status === 'open'")
    page.until("document.getElementById('message').textContent === 'Connected again.'")
    assert page.ask("pylos.tokens.token") == token
    assert page.state["plies"] == ["1d4-2a1"]
    seq = page.state["seq"]
    page.page.fill("#typed-move", "1d1")
    page.page.press("#typed-move", "Enter")
    assert page.after(seq)["plies"] == ["1d4-2a1", "1d1"]
    relay.close()


def test_a_server_restart_is_told_and_the_game_goes_on(visit: Visit, server: Server) -> None:
    relay = Relay(server.port)
    page = visit(f"#position={SQUARE_AT_1B2}", view="2d", origin=relay.origin)
    page.page.fill("#typed-move", "1b2")
    page.page.press("#typed-move", "Enter")
    board = page.after(0)["board"]
    with Server() as other:
        relay.send_to(other.port)
        relay.cut()
        page.until("document.getElementById('message').textContent.includes('has restarted')")
        page.until("pylos.connection.ready && pylos.state.seq === 0")
        assert "has restarted" in page.page.inner_text("#message")
        assert page.state["board"] == board
        assert page.state["phase"] == "take_back"
        relay.close()


def test_a_reload_goes_on_with_the_game(visit: Visit) -> None:
    page = visit(f"#position={TO_RAISE}", view="2d")
    page.page.fill("#typed-move", "1c1")
    page.page.press("#typed-move", "Enter")
    page.after(0)
    page.page.reload()
    page.until("!!globalThis.pylos?.state")
    assert page.state["plies"] == ["1c1"]


def test_without_the_3d_build_the_page_plays_flat_and_says_how_to_get_it(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_module, "BOARD_3D", tmp_path / "none.js")
    page = visit(view="none")
    assert "npm --prefix pylos_web/board3d" in page.page.inner_text("#no3d")
    seq = page.state["seq"]
    page.page.locator("[data-cell='5']").click()
    assert page.after(seq)["plies"][0] == "1b2"


@needs_3d
def test_without_webgl_the_page_plays_flat(visit: Visit) -> None:
    page = visit(view="none", script="HTMLCanvasElement.prototype.getContext = () => null;")
    page.until("!document.getElementById('no3d').hidden")
    assert "WebGL" in page.page.inner_text("#no3d")
    assert page.page.locator("[data-cell='5']").is_visible()


def test_an_undo_stops_a_thinking_machine(visit: Visit) -> None:
    levels = fallback_levels(level("slow", Slow()))
    patient = Limits(messages_per_second=10_000, burst=10_000, think_seconds=600)
    with Server(levels, patient) as slow:
        page = visit(view="2d", origin=slow.origin)
        play_level(page, "4")
        page.page.locator("[data-cell='5']").click()
        page.until("pylos.state.thinking")
        assert "thinking" in page.page.inner_text("#status")
        page.page.click("#undo")
        page.until("!pylos.state.thinking && pylos.state.plies.length === 0")


# Everyone


@needs_3d
def test_a_phone_plays_by_touch(visit: Visit) -> None:
    page = visit(
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        device_scale_factor=2,
    )
    play_level(page, "0")
    assert page.ask("document.documentElement.scrollWidth") <= 390
    seq = page.state["seq"]
    point = page.ask("pylos.board3d.screenPoint(5)")
    page.page.touchscreen.tap(point["x"], point["y"])
    assert page.after(seq)["plies"][0] == "1b2"
    page.snap("phone-3d")
    page.page.click("#view")
    assert page.ask("document.documentElement.scrollWidth") <= 390
    widths = page.ask(
        "[...document.querySelectorAll('.cell')].map(cell => cell.getBoundingClientRect().width)"
    )
    assert min(widths) >= 40
    page.snap("phone-2d")


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: npm ci in pylos_web/board3d"
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, scheme: str) -> None:
    page = visit(f"#position={SQUARE_AT_1B2}", view="2d", color_scheme=scheme)
    page.page.evaluate(AXE.read_text(encoding="utf-8"))

    def check(what: str) -> None:
        found = page.ask("axe.run({resultTypes: ['violations']}).then(r => r.violations)")
        serious = [
            (v["id"], [node["target"] for node in v["nodes"]][:4])
            for v in found
            if v["impact"] in ("serious", "critical")
        ]
        assert serious == [], what

    page.page.fill("#typed-move", "1b2")
    page.page.press("#typed-move", "Enter")
    page.after(0)
    page.page.click("#analysis-box summary")
    page.page.click("#game-box summary")
    page.until("document.querySelectorAll('.judged button').length > 0")
    page.until("document.querySelectorAll('.graph svg').length > 0")
    check("the 2D board in the removal phase, all panels open")
    page.snap(f"2d-{scheme}")
    page.page.click("#new-open")
    check("the dialog of a new game")
    page.snap(f"dialog-{scheme}")
    page.page.click("#new-cancel")
    page.page.click("#help-open")
    check("the rules")
    page.page.keyboard.press("Escape")
    if BOARD_3D.exists():
        page.page.click("#view")
        check("the 3D board")


def test_every_cell_is_reached_by_keys_and_labelled(visit: Visit) -> None:
    page = visit(view="2d")
    cells = page.page.locator("#board2d button.cell")
    assert cells.count() == 30
    cells.first.focus()
    for cell in range(30):
        page.go(cell)
        name = page.ask("document.activeElement.getAttribute('aria-label')")
        assert name.startswith(page.ask("document.activeElement.title"))
        assert name.endswith("place here" if cell < 16 else "empty")
    assert page.ask("document.querySelectorAll('.cell[tabindex=\"0\"]').length") == 1
    page.page.keyboard.press("f")
    assert page.ask("document.getElementById('board2d').classList.contains('flipped')")


def test_the_position_shown_is_the_servers(visit: Visit) -> None:
    page = visit(view="2d")
    play_level(page, "2")
    chance = random.Random(1)
    for _ in range(6):
        state = page.my_turn()
        kind, cells = some_step(state, chance)
        for cell in cells:
            page.page.locator(f"[data-cell='{cell}']").click()
        state = page.after(state["seq"])
        shown = page.ask("pylos.snaps.at(-1).cells.join('')")
        assert shown == state["board"].split()[0].replace("/", ""), kind
        Position.parse(state["board"])
