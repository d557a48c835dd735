"""What goes over the socket: one JSON object a message, told apart by `type`.

docs/protocol.md describes the conversation. Fields that are not listed here are refused, integers
are bounded, and nothing is converted: a number in quotes is no number.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from pylos_env.geometry import APEX, NUM_ACTIONS
from pylos_env.options import MAX_PLIES

PROTOCOL: Final = 1
MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_PACE_MS: Final = 10_000

Mode = Literal["human_vs_ai", "ai_vs_ai", "human_vs_human"]
Color = Literal["white", "black"]
RuleSet = Literal["advanced", "children", "standard", "mature"]
Cell = Annotated[int, Field(ge=0, le=APEX)]
Action = Annotated[int, Field(ge=0, lt=NUM_ACTIONS)]
Ply = Annotated[int, Field(ge=0, le=MAX_PLIES)]
Sequence = Annotated[int, Field(ge=0, lt=1 << 31)]
LevelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@-]{1,64}$")]
Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
Pace = Annotated[int, Field(ge=0, le=MAX_PACE_MS)]


class Message(BaseModel):
    """Common to all messages."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# From the client


class NewGame(Message):
    """Begin a game, from the start, from a position or from a record."""

    type: Literal["new_game"]
    mode: Mode = "human_vs_ai"
    checkpoint: LevelId | None = None
    """The AI's level; white's where both sides are AIs. None is the weakest."""
    opponent: LevelId | None = None
    """Black's level where both sides are AIs; None is the same as white's."""
    human_color: Color = "white"
    rules: RuleSet = "advanced"
    position: Annotated[str, Field(max_length=64)] | None = None
    record: Annotated[str, Field(max_length=32 * 1024)] | None = None
    """The text of a game to go on with; its own rules and start count."""
    pace_ms: Pace = 800
    """The least time between two actions where both sides are AIs."""


class _Turn(Message):
    seq: Sequence | None = None
    """The state acted on; where it is not the latest, the message is refused as stale."""


class Place(_Turn):
    type: Literal["move"]
    kind: Literal["place"]
    cell: Cell


class Raise(_Turn):
    type: Literal["move"]
    kind: Literal["raise"]
    source: Cell
    target: Cell


class Typed(_Turn):
    """A move or a whole turn in our notation."""

    type: Literal["move"]
    kind: Literal["text"]
    text: Annotated[str, Field(min_length=1, max_length=80)]


class Remove(_Turn):
    type: Literal["remove"]
    pieces: Annotated[list[Cell], Field(min_length=1, max_length=2)]


class SkipRemoval(_Turn):
    type: Literal["skip_removal"]


class Undo(_Turn):
    type: Literal["undo"]


class Resign(_Turn):
    type: Literal["resign"]


class AskHint(Message):
    type: Literal["hint"]


class AskAnalysis(Message):
    """The evaluation of a position of the game; None is the latest."""

    type: Literal["analyse"]
    ply: Ply | None = None


class AskReview(Message):
    """How the whole game went."""

    type: Literal["review"]


class AskRecord(Message):
    """The game as text."""

    type: Literal["record"]


class SetPace(Message):
    """AI against AI: how fast, and whether at all."""

    type: Literal["pace"]
    pace_ms: Pace
    paused: bool = False


class Resume(Message):
    """Go on with a game after a lost connection."""

    type: Literal["resume"]
    token: Token


class Watch(Message):
    """Look on at a game."""

    type: Literal["watch"]
    token: Token


Move = Annotated[Place | Raise | Typed, Field(discriminator="kind")]
ClientMessage = Annotated[
    NewGame
    | Move
    | Remove
    | SkipRemoval
    | Undo
    | Resign
    | AskHint
    | AskAnalysis
    | AskReview
    | AskRecord
    | SetPace
    | Resume
    | Watch,
    Field(discriminator="type"),
]
CLIENT_MESSAGES: Final[TypeAdapter[ClientMessage]] = TypeAdapter(ClientMessage)


# From the server

Phase = Literal["play", "take_back", "over"]
Reason = Literal["won", "resigned", "ply_limit"]
Value = Literal[-1, 0, 1]
ErrorCode = Literal[
    "bad_message",
    "unknown_level",
    "unsuitable_level",
    "bad_position",
    "bad_record",
    "no_game",
    "unknown_game",
    "not_your_turn",
    "illegal_move",
    "stale",
    "game_over",
    "nothing_to_undo",
    "not_allowed",
    "busy",
    "internal",
]


class Welcome(Message):
    """The first message of every connection."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL
    server: str
    """Of this start of the server: another one after a reconnection means that it restarted."""
    version: str
    idle_seconds: int


class Joined(Message):
    """What a game is reached by: `token` plays on, `watch` looks on."""

    type: Literal["joined"] = "joined"
    token: str | None
    """None for who only looks on."""
    watch: str


class Player(Message):
    kind: Literal["human", "ai"]
    name: str
    level: str | None = None


class Players(Message):
    white: Player
    black: Player


class Reserves(Message):
    white: int
    black: int


class Legal(Message):
    """What may be done now, by kind; all empty for who is not on turn."""

    place: list[int]
    rise: Annotated[list[tuple[int, int]], Field(serialization_alias="raise")]
    remove: list[int]
    stop: bool


class Result(Message):
    winner: Color | None
    reason: Reason


class State(Message):
    """The game as it stands, complete."""

    type: Literal["state"] = "state"
    seq: int
    mode: Mode
    rules: str
    players: Players
    you: Literal["white", "black", "both", "none"]
    board: str
    """The position's text."""
    turn: Color
    phase: Phase
    take_backs_left: int
    reserves: Reserves
    legal: Legal
    start: str
    plies: list[str]
    """Every action since the start, as text."""
    may_undo: bool
    thinking: bool
    pace_ms: int
    paused: bool
    watchers: int
    result: Result | None


class AiMove(Message):
    type: Literal["ai_move"] = "ai_move"
    seq: int
    """Of the state that follows."""
    action: int
    move: str
    color: Color
    thinking_time_ms: float
    simulations: int
    """0 where nothing was simulated."""
    out_of_time: bool = False
    """Whether the server's time limit cut the search short."""


class RemovalPhase(Message):
    type: Literal["removal_phase"] = "removal_phase"
    seq: int
    removable: list[int]
    left: int
    may_stop: bool


class GameOver(Message):
    type: Literal["game_over"] = "game_over"
    seq: int
    winner: Color | None
    reason: Reason


class Hint(Message):
    type: Literal["hint"] = "hint"
    seq: int
    actions: list[int]
    moves: list[str]
    text: str


class JudgedMove(Message):
    """One legal action. All values are for its mover."""

    action: int
    move: str
    share: float | None = None
    """Of the network's preference, 0 to 1; None where no network judges."""
    estimate: float | None = None
    """Where no network judges: what a search thinks of it, -1 to 1."""
    value: Value | None = None
    """The exact result: 1 won, 0 drawn, -1 lost; None without a solved table."""
    distance: int | None = None
    """Whole turns to the end; None for a draw."""
    verdict: str | None = None


class Analysis(Message):
    type: Literal["analysis"] = "analysis"
    seq: int
    ply: int
    turn: Color
    estimate: float | None
    """The judge's value for white, -1 to 1."""
    judge: str
    value: Value | None
    """The exact value for white; None without a solved table."""
    distance: int | None
    exact: str
    """The exact truth in words, or why it is not known."""
    moves: list[JudgedMove]


class ReviewPoint(Message):
    ply: int
    white: float
    """The value for white, -1 to 1."""
    distance: int | None = None
    mistake: str | None = None
    """What the action that led here gave away."""


class Review(Message):
    type: Literal["review"] = "review"
    seq: int
    exact: bool
    judge: str
    points: list[ReviewPoint]


class Record(Message):
    type: Literal["record"] = "record"
    seq: int
    text: str


class Error(Message):
    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    re: str | None = None
    """The type of the message that is answered."""


ServerMessage = (
    Welcome
    | Joined
    | State
    | AiMove
    | RemovalPhase
    | GameOver
    | Hint
    | Analysis
    | Review
    | Record
    | Error
)


class Refusal(Exception):
    """A message that cannot be obeyed; code and text go to the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
