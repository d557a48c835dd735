"""What goes over the socket: what is a message, and that nothing else gets through."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pylos_web import messages
from pylos_web.messages import CLIENT_MESSAGES, ErrorCode, Legal, ServerMessage

ROOT = Path(__file__).resolve().parent.parent

GOOD: list[dict[str, Any]] = [
    {"type": "new_game"},
    {"type": "new_game", "mode": "ai_vs_ai", "checkpoint": "alphabeta:4", "opponent": "random"},
    {"type": "new_game", "human_color": "black", "rules": "mature", "pace_ms": 0},
    {"type": "move", "kind": "place", "cell": 29, "seq": 4},
    {"type": "move", "kind": "raise", "source": 0, "target": 16},
    {"type": "move", "kind": "text", "text": "2b1x1c2"},
    {"type": "remove", "pieces": [1, 2]},
    {"type": "skip_removal"},
    {"type": "undo", "seq": 0},
    {"type": "resign"},
    {"type": "hint"},
    {"type": "analyse", "ply": 3},
    {"type": "review"},
    {"type": "record"},
    {"type": "pace", "pace_ms": 10, "paused": True},
    {"type": "resume", "token": "a" * 24},
    {"type": "watch", "token": "a" * 24},
]

BAD: list[dict[str, Any]] = [
    {},
    {"type": "nothing"},
    {"type": ["move"]},
    {"type": "new_game", "mode": "chess"},
    {"type": "new_game", "checkpoint": "../../etc/passwd"},
    {"type": "new_game", "checkpoint": "a/b"},
    {"type": "new_game", "checkpoint": "a\n"},
    {"type": "new_game", "checkpoint": ""},
    {"type": "new_game", "checkpoint": "a" * 65},
    {"type": "new_game", "position": "." * 65},
    {"type": "new_game", "record": "." * 40_000},
    {"type": "new_game", "pace_ms": -1},
    {"type": "new_game", "pace_ms": 1e9},
    {"type": "new_game", "rules": "greedy"},
    {"type": "new_game", "more": 1},
    {"type": "move"},
    {"type": "move", "kind": "place"},
    {"type": "move", "kind": "place", "cell": 30},
    {"type": "move", "kind": "place", "cell": -1},
    {"type": "move", "kind": "place", "cell": "3"},
    {"type": "move", "kind": "place", "cell": 3.5},
    {"type": "move", "kind": "place", "cell": True},
    {"type": "move", "kind": "place", "cell": 10**40},
    {"type": "move", "kind": "place", "cell": 3, "source": 2},
    {"type": "move", "kind": "raise", "source": 3},
    {"type": "move", "kind": "text", "text": ""},
    {"type": "move", "kind": "text", "text": "a" * 81},
    {"type": "move", "kind": "place", "cell": 3, "seq": -1},
    {"type": "move", "kind": "place", "cell": 3, "seq": 2**31},
    {"type": "remove", "pieces": []},
    {"type": "remove", "pieces": [1, 2, 3]},
    {"type": "remove", "pieces": [31]},
    {"type": "analyse", "ply": 301},
    {"type": "pace", "pace_ms": 10, "paused": "yes"},
    {"type": "resume", "token": "short"},
    {"type": "resume", "token": "a" * 24 + "/.."},
    {"type": "watch"},
]


@pytest.mark.parametrize("message", GOOD, ids=json.dumps)
def test_every_message_is_read(message: dict[str, Any]) -> None:
    read = CLIENT_MESSAGES.validate_json(json.dumps(message))
    assert read.type == message["type"]
    assert {name: getattr(read, name) for name in message} == message


@pytest.mark.parametrize("message", BAD, ids=lambda message: json.dumps(message)[:60])
def test_anything_else_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CLIENT_MESSAGES.validate_json(json.dumps(message))


@pytest.mark.parametrize("message", GOOD, ids=json.dumps)
def test_an_unknown_field_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        CLIENT_MESSAGES.validate_json(json.dumps({**message, "unknown": 1}))


@pytest.mark.parametrize("text", ["", "[]", "null", "1", "{", '"move"', "\0", "[" * 500])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        CLIENT_MESSAGES.validate_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(sorted({name for message in GOOD for name in message}))


@settings(max_examples=300)
@given(
    st.dictionaries(FIELDS, JSON | st.sampled_from([m["type"] for m in GOOD]), max_size=6)
    | JSON
    | st.tuples(st.sampled_from(GOOD), FIELDS, JSON).map(lambda t: {**t[0], t[1]: t[2]})
)
def test_no_content_breaks_the_reader(content: Any) -> None:
    try:
        read = CLIENT_MESSAGES.validate_json(json.dumps(content))
    except ValidationError:
        return
    assert isinstance(content, dict)
    assert read.model_dump(mode="json")["type"] == content["type"]
    assert set(content) <= set(type(read).model_fields)


def test_raises_go_out_under_their_name() -> None:
    text = Legal(place=[1], rise=[(0, 16)], remove=[], stop=False).model_dump_json(by_alias=True)
    assert json.loads(text) == {"place": [1], "raise": [[0, 16]], "remove": [], "stop": False}


def test_the_document_names_every_message_field_and_code() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    clients = {type(CLIENT_MESSAGES.validate_python(message)) for message in GOOD}
    servers = set(get_args(ServerMessage))
    assert len(servers) == 11
    for kind in clients | servers:
        name = get_args(kind.model_fields["type"].annotation)[0]
        assert f"`{name}`" in text, name
        for field in kind.model_fields:
            assert re.search(rf"`{field}\b", text), f"{name}.{field}"
    for code in get_args(ErrorCode):
        assert f"`{code}`" in text, code
    assert f"version {messages.PROTOCOL}" in text
