"""A walk through the protocol on a live socket, and small versions of the two scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pylos_env import Position, Rules
from pylos_env.geometry import FIRST_RAISE, RAISES, STOP
from pylos_env.testing import random_game
from tests.web_tools import Server

ROOT = Path(__file__).resolve().parent.parent
RULE_SETS = st.sampled_from(["advanced", "children", "standard", "mature"])
ODD = st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.lists(st.integers())


class Conversation(RuleBasedStateMachine):
    """One client; after everything that it does, the server's state follows from the rules."""

    server: ClassVar[Server]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.client = self.stack.enter_context(self.server.client())
        self.state = self.client.new_game(mode="human_vs_human")

    def teardown(self) -> None:
        self.stack.close()

    def settle(self) -> None:
        """Read everything that has been said; the last state counts."""
        self.client.send(type="record")
        while (message := self.client.next())["type"] != "record":
            assert message.get("code") != "internal"
            if message["type"] == "state":
                assert message["seq"] >= self.state["seq"]
                self.state = message
        while self.state["thinking"]:
            self.state = self.client.state()

    @rule(
        mode=st.sampled_from(["human_vs_ai", "human_vs_human"]),
        color=st.sampled_from(["white", "black"]),
        rules=RULE_SETS,
        seed=st.integers(0, 50),
        share=st.floats(0, 1),
    )
    def new_game(self, mode: str, color: str, rules: str, seed: int, share: float) -> None:
        positions = list(random_game(Rules.of(rules), seed).positions())
        start = positions[round(share * (len(positions) - 1))]
        self.client.send(
            type="new_game", mode=mode, human_color=color, rules=rules, position=str(start)
        )
        self.settle()

    @precondition(lambda self: self.state["phase"] != "over")
    @rule(share=st.floats(0, 0.999))
    def legal_move(self, share: float) -> None:
        position = Position.parse(self.state["board"], self.state["rules"])
        moves = position.legal_moves()
        self.client.send(type="move", kind="text", text=moves[int(share * len(moves))])
        before = len(self.state["plies"])
        self.settle()
        assert len(self.state["plies"]) > before

    @rule(
        kind=st.sampled_from(["move", "remove", "skip_removal", "undo", "resign", "hint", "pace"]),
        fields=st.dictionaries(
            st.sampled_from(["kind", "cell", "source", "target", "pieces", "seq", "text"]), ODD
        ),
    )
    def anything(self, kind: str, fields: dict[str, Any]) -> None:
        self.client.send(**{**fields, "type": kind})
        self.settle()

    @rule(text=st.text(max_size=40))
    def nonsense(self, text: str) -> None:
        self.client.socket.send(text)
        assert self.client.get("error")["code"] == "bad_message"

    @rule(action=st.sampled_from(["undo", "resign"]))
    def go_back(self, action: str) -> None:
        self.client.send(type=action)
        self.settle()

    @invariant()
    def the_state_follows_from_the_rules(self) -> None:
        state = self.state
        board = Position.parse(state["board"], state["rules"])
        position = Position.parse(state["start"], state["rules"])
        for ply in state["plies"]:
            position = position.play(position.legal_actions()[position.legal_moves().index(ply)])
        assert position == board
        legal = state["legal"]
        told = {
            *legal["place"],
            *(FIRST_RAISE + RAISES.index((source, target)) for source, target in legal["raise"]),
            *legal["remove"],
            *([STOP] if legal["stop"] else []),
        }
        over = state["phase"] == "over"
        assert told == (set() if over else set(board.legal_actions()))
        assert (state["result"] is not None) == over


@pytest.fixture
def live_server() -> Iterator[None]:
    with Server() as server:
        Conversation.server = server
        yield


@pytest.mark.usefixtures("live_server")
def test_every_conversation_leaves_a_legal_state() -> None:
    run_state_machine_as_test(
        Conversation,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def run(script: str, folder: Path, *options: str) -> dict[str, Any]:
    """The figures that a script writes."""
    figures = folder / "figures.json"
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--json", figures, *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    return found


def test_a_thousand_fuzzed_messages_break_nothing(tmp_path: Path) -> None:
    options = ("--messages", "1500", "--connections", "3", "--reader", "200", "--seed", "7")
    found = run("fuzz_web.py", tmp_path, *options)
    assert found["reader"]["read"] > 0
    assert found["reader"]["refused"] > 0
    assert found["server"]["messages"] >= 1500
    assert found["server"]["states_checked"] > 0
    assert found["server"]["health"]["status"] == "ok"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_open_games_are_answered_while_searches_run(tmp_path: Path) -> None:
    options = ("--games", "20", "--seconds", "6", "--pause", "0.5", "--memory-games", "12")
    found = run("load_web.py", tmp_path, *options)
    assert found["milliseconds"]["20 games: human move answered"]["count"] >= 20
    assert found["milliseconds"]["20 games: AI's turn is there"]["count"] > 0
    assert found["figures"]["processes left"] == 0
    assert set(found["figures"]) == set(found["limits"])
