"""The server over a real socket: every message and what it is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pylos_env import Position, Rules, parse_games
from pylos_env.testing import random_game
from pylos_web.levels import Levels
from pylos_web.sessions import MAX_SPECTATORS, TAKEN_OVER, Limits
from tests.web_tools import (
    Client,
    Failing,
    Plays,
    Server,
    Slow,
    SmallTables,
    fallback_levels,
    level,
    play_out,
    until,
    write_ladder,
)

SQUARE_AT_1B2 = "WW..W....B..B.B./........./..../. w 0"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(adviser=SmallTables()) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as connected:
        yield connected


def test_the_first_word_is_the_servers(client: Client) -> None:
    assert client.welcome["protocol"] == 1
    assert set(client.welcome) == {"type", "protocol", "server", "version", "idle_seconds"}


def test_a_person_plays_a_level_to_the_end(client: Client) -> None:
    state = client.new_game(mode="human_vs_ai", checkpoint="rule_based")
    assert state["players"]["black"] == {"kind": "ai", "name": "Novice", "level": "rule_based"}
    assert state["legal"]["place"] == list(range(16))
    client.send(type="move", kind="place", cell=5, seq=state["seq"])
    assert client.get("state")["thinking"]
    answer = client.get("ai_move")
    assert answer["color"] == "black"
    assert answer["thinking_time_ms"] >= 0
    state = client.state(thinking=False)
    assert (state["seq"], state["turn"]) == (answer["seq"], "white")
    assert state["plies"][-1] == answer["move"]
    state = play_out(client, state)
    over = client.get("game_over")
    assert over["reason"] == "won"
    assert over["winner"] == state["result"]["winner"]
    assert client.refusal(type="move", kind="place", cell=0) == "game_over"
    assert client.refusal(type="hint") == "game_over"


def test_the_machine_begins_where_the_person_is_black(client: Client) -> None:
    state = client.new_game(human_color="black")
    assert (len(state["plies"]), state["turn"], state["you"]) == (1, "black", "black")


def test_two_machines_play_at_the_asked_pace(client: Client) -> None:
    client.send(
        type="new_game", mode="ai_vs_ai", checkpoint="random", opponent="rule_based", pace_ms=10_000
    )
    assert client.state(thinking=True)["players"]["black"]["level"] == "rule_based"
    client.send(type="pace", pace_ms=0, paused=True)
    paused = client.state(paused=True)
    assert not paused["thinking"]
    assert client.refusal(type="move", kind="place", cell=0) == "not_your_turn"
    assert client.refusal(type="resign") == "not_allowed"
    assert client.refusal(type="undo") == "nothing_to_undo"
    client.send(type="pace", pace_ms=0)
    assert client.get("game_over")["winner"] in ("white", "black", None)


def test_two_people_share_a_screen(client: Client) -> None:
    state = client.new_game(mode="human_vs_human")
    assert state["you"] == "both"
    for text in ("1b2", "1c3", "1b3"):
        state = client.move(text)
    assert (state["turn"], state["plies"]) == ("black", ["1b2", "1c3", "1b3"])


def test_a_formation_opens_the_removal_phase(client: Client) -> None:
    client.new_game(mode="human_vs_human", position=SQUARE_AT_1B2)
    client.send(type="move", kind="place", cell=5)
    phase = client.get("removal_phase")
    assert (phase["removable"], phase["left"], phase["may_stop"]) == ([0, 1, 4, 5], 2, True)
    assert client.refusal(type="move", kind="place", cell=2) == "illegal_move"
    assert client.refusal(type="remove", pieces=[9]) == "illegal_move"
    client.send(type="remove", pieces=[0])
    assert client.get("removal_phase")["left"] == 1
    client.send(type="skip_removal")
    assert client.state()["turn"] == "black"
    client.send(type="undo")
    client.send(type="remove", pieces=[4])
    state = client.state(turn="black")
    assert state["reserves"]["white"] == 13


def test_a_raise_is_played(client: Client) -> None:
    client.new_game(mode="human_vs_human", position="WW..BB.........W/........./..../. w 0")
    client.send(type="move", kind="raise", source=15, target=16)
    assert client.state(turn="black")["plies"] == ["1d4-2a1"]


def test_undo_and_resign(client: Client) -> None:
    state = client.new_game()
    assert not state["may_undo"]
    client.send(type="move", kind="place", cell=5)
    state = client.state(thinking=False)
    assert state["may_undo"]
    client.send(type="undo", seq=state["seq"])
    assert client.state()["plies"] == []
    client.send(type="resign")
    assert client.get("game_over") == {
        "type": "game_over",
        "seq": state["seq"] + 2,
        "winner": "black",
        "reason": "resigned",
    }


def test_a_stale_message_changes_nothing(client: Client) -> None:
    state = client.new_game(mode="human_vs_human")
    for kind in ("undo", "resign", "skip_removal"):
        assert client.refusal(type=kind, seq=state["seq"] + 1) == "stale"
    assert client.refusal(type="move", kind="place", cell=1, seq=7) == "stale"
    assert client.move("1a1")["plies"] == ["1a1"]


def test_a_hint_is_a_legal_turn(client: Client) -> None:
    client.new_game(mode="human_vs_human", position=SQUARE_AT_1B2)
    client.send(type="hint")
    hint = client.get("hint")
    position = Position.parse(SQUARE_AT_1B2)
    for action, move in zip(hint["actions"], hint["moves"], strict=True):
        assert position.move_name(action) == move
        position = position.play(action)
    assert position.side == 1
    assert "6 turns deep" in hint["text"]


# The truth, from a stand-in for a solved table


def near_the_end(plies: int) -> tuple[str, Position]:
    record = random_game(Rules.of("children"), 2)
    position = list(record.positions())[-1 - plies]
    return str(position), position


def test_an_analysis_has_the_exact_verdict_of_every_move(client: Client) -> None:
    text, position = near_the_end(7)
    client.new_game(mode="human_vs_human", rules="children", position=text)
    client.send(type="analyse")
    analysis = client.get("analysis")
    oracle = SmallTables().small
    sign = 1 if position.side == 0 else -1
    assert analysis["value"] == oracle.value(position) * sign
    assert analysis["distance"] == oracle.distance(position)
    assert f"wins in {analysis['distance']} turn" in analysis["exact"]
    assert {move["action"] for move in analysis["moves"]} == set(position.legal_actions())
    for move in analysis["moves"]:
        after = position.play(move["action"])
        assert move["value"] == -oracle.value(after)
        assert move["distance"] == (oracle.distance(after) or 0) + 1
        assert move["verdict"] in ("keeps the win", "turns the win into a loss", "loses anyway")
    ranks = [(-move["value"], move["value"] * move["distance"]) for move in analysis["moves"]]
    assert ranks == sorted(ranks)


def test_a_review_marks_the_mistakes_of_a_game(client: Client) -> None:
    record = random_game(Rules.of("children"), 11)
    cut = record.actions[-8:]
    start = list(record.positions())[-9]
    client.new_game(mode="human_vs_human", rules="children", position=str(start))
    position = start
    for action in cut:
        client.send(type="move", kind="text", text=position.move_name(action))
        position = position.play(action)
    client.get("game_over")
    client.send(type="review")
    review = client.get("review")
    oracle = SmallTables().small
    assert review["exact"]
    position = start
    expected = []
    for action in cut:
        after = position.play(action)
        expected.append(oracle.value(position) == 1 and oracle.value(after) == 1)
        position = after
    found = [point["mistake"] == "turns the win into a loss" for point in review["points"][1:]]
    assert found == expected
    assert any(found)
    assert abs(review["points"][-1]["white"]) == 1


def test_without_a_table_a_search_judges(client: Client) -> None:
    client.new_game(mode="human_vs_human")
    client.move("1b2")
    client.send(type="analyse", ply=0)
    analysis = client.get("analysis")
    assert (analysis["ply"], analysis["value"], analysis["distance"]) == (0, None, None)
    assert "no solved table" in analysis["exact"]
    assert len(analysis["moves"]) == 16
    client.send(type="review")
    review = client.get("review")
    assert (review["exact"], len(review["points"])) == (False, 2)
    assert client.refusal(type="analyse", ply=9) == "bad_message"


def test_a_finished_game_is_analysed_too(client: Client) -> None:
    record = random_game(Rules.of("advanced"), 1)
    client.new_game(mode="human_vs_human", record=str(record))
    client.send(type="analyse")
    analysis = client.get("analysis")
    assert analysis["moves"] == []
    assert abs(analysis["estimate"]) == 1


# Records, positions, levels


def test_a_record_is_loaded_and_given_back(client: Client) -> None:
    record = random_game(Rules.of("mature"), 9)
    state = client.new_game(mode="human_vs_human", record=str(record))
    assert (state["rules"], state["phase"], len(state["plies"])) == (
        "mature",
        "over",
        len(record.actions),
    )
    client.send(type="record")
    assert parse_games(client.get("record")["text"])[0].actions == record.actions


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"position": "nonsense"}, "bad_position"),
        ({"position": "................/........W/..../. w 0"}, "bad_position"),
        ({"record": "1. 9z9 *"}, "bad_record"),
        ({"record": '[Rules "advanced greedy"]\n\n*'}, "bad_record"),
        ({"record": ""}, "bad_record"),
        ({"checkpoint": "alphabeta:99"}, "unknown_level"),
        ({"checkpoint": "checkpoint:runs"}, "unknown_level"),
        ({"mode": "ai_vs_ai", "opponent": "perfect"}, "unknown_level"),
    ],
)
def test_a_game_that_cannot_be_is_refused(
    client: Client, options: dict[str, str], code: str
) -> None:
    assert client.refusal(type="new_game", **options) == code


def test_every_question_needs_a_game(client: Client) -> None:
    for kind in ("undo", "resign", "skip_removal", "hint", "analyse", "review", "record"):
        assert client.refusal(type=kind) == "no_game"
    assert client.refusal(type="move", kind="place", cell=1) == "no_game"
    assert client.refusal(type="remove", pieces=[1]) == "no_game"
    assert client.refusal(type="pace", pace_ms=1) == "no_game"


def test_nonsense_is_answered_and_the_game_goes_on(client: Client) -> None:
    client.new_game(mode="human_vs_human")
    for text in (
        "",
        "{",
        "[]",
        '{"type": "move", "kind": "place", "cell": 99}',
        "\u0000",
        "é" * 99,
    ):
        client.socket.send(text)
        assert client.get("error")["code"] == "bad_message"
    assert client.move("1a1")["plies"] == ["1a1"]


def test_checkpoints_lists_the_levels_of_a_ladder(tmp_path: Path) -> None:
    levels = Levels.load(write_ladder(tmp_path, (0, 64)), 800)
    with Server(levels) as server, server.client() as client:
        answer = httpx.get(f"{server.origin}/checkpoints").json()
        beginner, novice = answer["checkpoints"][:2]
        assert (beginner["label"], novice["rating"], novice["simulations"]) == (
            "Beginner",
            1200,
            64,
        )
        assert "path" not in str(answer)
        assert str(tmp_path) not in str(answer)
        wanted = {"type": "new_game", "checkpoint": novice["id"], "rules": "mature"}
        assert client.refusal(**wanted) == "unsuitable_level"
        client.new_game(checkpoint=novice["id"])
        client.send(type="move", kind="place", cell=5)
        answer = client.get("ai_move")
        assert answer["simulations"] == 64
        client.send(type="analyse")
        moves = client.get("analysis")["moves"]
        assert sum(move["share"] for move in moves) == pytest.approx(1, abs=0.01)
        client.send(type="hint")
        assert client.get("hint")["text"].endswith(f"({novice['label']})")


# Coming back


def test_a_lost_game_is_resumed_by_its_token(server: Server) -> None:
    with server.client() as first:
        first.send(type="new_game", mode="human_vs_human")
        token = first.get("joined")["token"]
        first.state()
        first.move("1b2")
        first.socket.socket.close()  # no goodbye: the cable is cut
    with server.client() as second:
        second.send(type="resume", token=token)
        assert second.get("joined")["token"] == token
        assert second.state()["plies"] == ["1b2"]
        assert second.move("1c3")["plies"] == ["1b2", "1c3"]


def test_who_resumes_takes_the_seat_over(server: Server) -> None:
    with server.client() as first, server.client() as second:
        first.send(type="new_game")
        token = first.get("joined")["token"]
        second.send(type="resume", token=token)
        second.state()
        assert first.close_code() == TAKEN_OVER
        second.send(type="resume", token=token)
        assert second.state()["you"] == "white"


def test_unknown_tokens_are_refused(client: Client) -> None:
    client.send(type="new_game")
    watch = client.get("joined")["watch"]
    assert client.refusal(type="resume", token="a" * 24) == "unknown_game"
    assert client.refusal(type="watch", token="a" * 24) == "unknown_game"
    assert client.refusal(type="resume", token=watch) == "unknown_game"


def test_spectators_see_everything_and_touch_nothing(server: Server) -> None:
    with server.client() as player, server.client() as spectator:
        player.send(type="new_game", mode="human_vs_human")
        watch = player.get("joined")["watch"]
        player.state()
        spectator.send(type="watch", token=watch)
        assert spectator.get("joined") == {"type": "joined", "token": None, "watch": watch}
        assert spectator.state()["you"] == "none"
        assert player.state(watchers=1)["watchers"] == 1
        player.move("1b2")
        seen = spectator.state(plies=["1b2"])
        assert seen["legal"] == {"place": [], "raise": [], "remove": [], "stop": False}
        for kind in ("undo", "resign", "hint", "skip_removal"):
            assert spectator.refusal(type=kind) == "not_allowed"
        assert spectator.refusal(type="move", kind="place", cell=1) == "not_allowed"
        spectator.send(type="analyse")
        assert spectator.get("analysis")["ply"] == 1
        player.new_game(mode="human_vs_human")
        assert spectator.state(plies=[])["plies"] == []


def test_a_player_may_step_back_and_look_on(server: Server) -> None:
    with server.client() as client:
        client.send(type="new_game", mode="human_vs_human")
        joined = client.get("joined")
        client.state()
        client.send(type="watch", token=joined["watch"])
        assert client.state()["you"] == "none"
        assert client.refusal(type="undo") == "not_allowed"
        client.send(type="resume", token=joined["token"])
        state = client.state()
        assert (state["you"], state["watchers"]) == ("both", 0)


def test_too_many_spectators_are_turned_away(server: Server) -> None:
    with server.client() as player:
        player.send(type="new_game")
        watch = player.get("joined")["watch"]
        session = server.app.state.sessions.watched(watch)
        session.spectators = {object() for _ in range(MAX_SPECTATORS)}
        with server.client() as late:
            assert late.refusal(type="watch", token=watch) == "busy"
        session.spectators = set()


# Searches


def test_a_search_ends_when_its_client_leaves() -> None:
    slow = Slow()
    with Server(fallback_levels(level("slow", slow)), Limits(think_seconds=60)) as server:
        with server.client() as client:
            client.send(type="new_game", checkpoint="slow", human_color="black")
            assert client.state()["thinking"]
            assert slow.begun.wait(5)
        assert slow.ended.wait(5)
        until(lambda: server.app.state.pool.unfinished == 0)
        assert server.sessions == 1


def test_the_ai_thinks_again_when_its_player_comes_back() -> None:
    slow = Slow()
    with Server(fallback_levels(level("slow", slow)), Limits(think_seconds=60)) as server:
        with server.client() as client:
            client.send(type="new_game", checkpoint="slow", human_color="black")
            token = client.get("joined")["token"]
            assert slow.begun.wait(5)
        assert slow.ended.wait(5)
        slow.begun.clear()
        with server.client() as client:
            client.send(type="resume", token=token)
            assert client.state()["thinking"]
            assert slow.begun.wait(5)


def test_undo_ends_a_search_and_moves_are_answered_meanwhile() -> None:
    slow = Slow()
    with (
        Server(fallback_levels(level("slow", slow)), Limits(think_seconds=60)) as server,
        server.client() as client,
        server.client() as other,
    ):
        client.new_game(checkpoint="slow")
        client.send(type="move", kind="place", cell=0)
        assert slow.begun.wait(5)
        begin = time.monotonic()
        other.new_game(mode="human_vs_human")
        other.move("1b2")
        assert time.monotonic() - begin < 1
        assert client.refusal(type="hint") == "not_your_turn"
        client.send(type="undo")
        assert client.state(thinking=False)["plies"] == []
        assert slow.ended.wait(5)


def test_searches_that_cannot_wait_are_refused() -> None:
    slow = Slow()
    limits = Limits(workers=1, waiting=0, think_seconds=60)
    with (
        Server(fallback_levels(level("slow", slow)), limits) as server,
        server.client() as first,
        server.client() as second,
    ):
        first.send(type="new_game", checkpoint="slow", human_color="black")
        assert slow.begun.wait(5)
        second.new_game(mode="human_vs_human")
        assert second.refusal(type="hint") == "busy"


def test_one_connection_has_one_search() -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    class Counted(SmallTables):
        def exact(self, position: Position) -> str:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.1)
            with lock:
                running[0] -= 1
            return super().exact(position)

    with Server(adviser=Counted(), limits=Limits(workers=4)) as server, server.client() as client:
        client.new_game(mode="human_vs_human")
        for _ in range(5):
            client.send(type="analyse")
            client.send(type="review")
        client.get("review")
        assert most[0] == 1


def test_no_exception_text_reaches_a_client() -> None:
    with (
        Server(fallback_levels(level("failing", Failing()))) as server,
        server.client() as client,
    ):
        client.send(type="new_game", checkpoint="failing", human_color="black")
        error = client.get("error")
        assert error["code"] == "internal"
        assert "secret" not in str(error)
        client.state(paused=True)
        assert client.new_game(mode="human_vs_human")["plies"] == []


def test_a_machine_takes_back_move_by_move() -> None:
    plays = Plays("1b2", "x1a1", "stop")
    with (
        Server(fallback_levels(level("plays", plays))) as server,
        server.client() as client,
    ):
        client.send(
            type="new_game", checkpoint="plays", human_color="black", position=SQUARE_AT_1B2
        )
        moves = [client.get("ai_move")["move"] for _ in range(3)]
        assert moves == ["1b2", "x1a1", "stop"]
        assert client.state(thinking=False)["turn"] == "black"
