"""Who can be played against: a table from ids to players, made once when the server starts.

The levels are the entries of the ladder's manifest; agents that need no training stand in for the
rule sets that no entry plays. `perfect` joins them where a solved table exists. Clients name an id
of this table and nothing else: no part of a message ever becomes a path.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylos_env import agents
from pylos_env.geometry import ACTION_SYMMETRIES, NUM_ACTIONS
from pylos_env.oracle.table import table_path
from pylos_env.position import Position
from pylos_env.rules import PRESETS, Rules
from pylos_web.messages import Refusal
from pylos_web.thinking import Crowd, Guard, OutOfTime
from trainers.manifest import MANIFEST_FILE, Manifest, ManifestEntry, label_of
from trainers.search import Evaluate, GameSearch, Search, SearchConfig, SearchResult

if TYPE_CHECKING:
    from trainers.evaluator import Evaluator

log = logging.getLogger("pylos_web")

Kind = Literal["network", "agent", "perfect"]
PERFECT: Final = "perfect"

FALLBACKS: Final = (
    ("random", "Beginner", "Plays any legal move: good for a first look at the rules."),
    ("rule_based", "Novice", "Follows a page of plain rules, one move ahead."),
    ("alphabeta:2", "Intermediate", "Looks two whole turns ahead."),
    ("alphabeta:4", "Advanced", "Looks four whole turns ahead and rarely misses a combination."),
)
"""What there is to play against where nothing was trained: agent, label, a sentence."""

STRENGTHS: Final = {
    "Beginner": "Weaker than a player of plain rules: a friendly first opponent.",
    "Novice": "About as strong as a player of plain rules.",
    "Intermediate": "Stronger than a player of plain rules.",
    "Advanced": "Stronger than a search four turns deep.",
    "Expert": "Far stronger than a search four turns deep.",
}
"""What the limits between the manifest's labels mean (`trainers.manifest.LEVELS`)."""

KEPT_BOARDS: Final = 8
"""Games of a level whose trees are kept, in up to 7 MB each with 1,024 simulations."""


@dataclass(frozen=True)
class Level:
    """What people are told of a level."""

    id: str
    label: str
    kind: Kind
    description: str
    rules: tuple[str, ...]
    """The rule sets it plays."""
    rating: float | None = None
    rating_low: float | None = None
    rating_high: float | None = None
    simulations: int = 0


class Thought(NamedTuple):
    """What a player made of a position."""

    action: int
    simulations: int = 0
    out_of_time: bool = False
    value: float | None = None
    shares: npt.NDArray[np.float64] | None = None  # [303]


class Thinker(Protocol):
    """Decides; called from any thread."""

    def think(self, position: Position, key: int, guard: Guard) -> Thought: ...


class AgentThinker:
    """An agent by name. Agents keep scratch space, so every thread has its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._local = threading.local()

    @property
    def agent(self) -> agents.Agent:
        if not hasattr(self._local, "agent"):
            self._local.agent = agents.make(self._name, seed=0)
        agent: agents.Agent = self._local.agent
        return agent

    def think(self, position: Position, key: int, guard: Guard) -> Thought:
        guard.check()
        return Thought(self.agent.act(position, key))


class Boards:
    """Trees of the last few games, so that the next move of one goes on with what was found."""

    def __init__(self, rules: Rules, simulations: int) -> None:
        self._rules = rules
        self._config = SearchConfig(
            simulations=simulations, root="puct", dirichlet_fraction=0.0, temperature=0.0
        )
        self._kept: deque[GameSearch] = deque(maxlen=KEPT_BOARDS)
        self._lock = threading.Lock()

    def take(self, position: Position, symmetry: int) -> tuple[GameSearch, int]:
        """A tree that nobody else has until `give_back`, and the symmetry it sees the board by.

        Where a kept one holds the position, or an image of it, it is that; otherwise a fresh one.
        """
        with self._lock:
            for image in range(8 if self._rules.symmetric else 1):
                packed = position.symmetric(image).packed
                for tree in self._kept:
                    if tree.holds(packed):
                        self._kept.remove(tree)
                        return tree, image
        return GameSearch(self._rules, self._config), symmetry

    def give_back(self, tree: GameSearch) -> None:
        """Keep a tree whose search has ended in order; the oldest makes room."""
        with self._lock:
            self._kept.append(tree)


class NetworkThinker:
    """A network with a search over it, or its raw policy where `simulations` is 0.

    It always plays the best it finds. That games differ all the same comes from the key: it picks
    the one of the board's eight symmetries through which the position is looked at.

    One game alone is searched at a board of its own: several leaves at a time, and on from the tree
    of its last move. Games that wait together are searched together.
    """

    def __init__(self, evaluator: Evaluator, simulations: int) -> None:
        self.evaluator = evaluator
        self.simulations = simulations
        self.crowd: Crowd[tuple[Position, int], Thought] = Crowd(self.think_many)
        self._boards = Boards(evaluator.rules, simulations) if simulations else None

    def think(self, position: Position, key: int, guard: Guard) -> Thought:
        """What to play in one game."""
        symmetry = key % 8 if position.rules.symmetric else 0
        if self._boards is None:
            return _mapped_back(self._glance([position.symmetric(symmetry)])[0], symmetry)
        tree, symmetry = self._boards.take(position, symmetry)
        seen = position.symmetric(symmetry)
        try:
            found = tree.run(seen.packed, self._guarded(guard))
        except OutOfTime:
            log.warning("a search of %d simulations ran out of time", self.simulations)
            thought = self._glance([seen])[0]._replace(out_of_time=True)
        else:
            self._boards.give_back(tree)
            thought = self._thought(found, 0)
        return _mapped_back(thought, symmetry)

    def think_many(self, questions: list[tuple[Position, int]], guard: Guard) -> list[Thought]:
        """What to play in each of many games, by one search over all of them."""
        if len(questions) == 1:
            return [self.think(*questions[0], guard)]
        symmetries = [key % 8 if position.rules.symmetric else 0 for position, key in questions]
        seen = [
            position.symmetric(symmetry)
            for (position, _), symmetry in zip(questions, symmetries, strict=True)
        ]
        try:
            thoughts = self._search(seen, guard) if self.simulations else self._glance(seen)
        except OutOfTime:
            log.warning(
                "%d searches of %d simulations ran out of time", len(seen), self.simulations
            )
            thoughts = [thought._replace(out_of_time=True) for thought in self._glance(seen)]
        return [_mapped_back(*pair) for pair in zip(thoughts, symmetries, strict=True)]

    def _guarded(self, guard: Guard) -> Evaluate:
        """The network, for as long as the answer is wanted."""

        def evaluate(leaves: npt.NDArray[np.int64]) -> Any:
            guard.check()
            return self.evaluator(leaves)

        return evaluate

    def _search(self, positions: list[Position], guard: Guard) -> list[Thought]:
        packed = np.array([position.packed for position in positions])
        config = SearchConfig(simulations=self.simulations, gumbel_scale=0.0)
        search = Search(positions[0].rules, config, len(positions))
        keys = np.zeros(len(packed), dtype=np.int64)
        found = search.run(packed, keys, self._guarded(guard))
        return [self._thought(found, row) for row in range(len(positions))]

    def _thought(self, found: SearchResult, row: int) -> Thought:
        shares = np.zeros(NUM_ACTIONS)
        legal = found.legal[row, : found.num_legal[row]]
        shares[legal] = found.policy[row, : found.num_legal[row]]
        return Thought(
            int(found.action[row]), self.simulations, value=float(found.value[row]), shares=shares
        )

    def _glance(self, positions: list[Position]) -> list[Thought]:
        """The raw policy."""
        logits, values = self.evaluator(np.array([position.packed for position in positions]))
        thoughts = []
        for row, position in enumerate(positions):
            shares = np.zeros(NUM_ACTIONS)
            legal = position.legal_actions()
            weights = np.exp(logits[row, legal].astype(np.float64) - logits[row, legal].max())
            shares[legal] = weights / weights.sum()
            thoughts.append(Thought(int(shares.argmax()), value=float(values[row]), shares=shares))
        return thoughts


def _mapped_back(thought: Thought, symmetry: int) -> Thought:
    """A thought about a position seen through a symmetry, for the position itself."""
    image = ACTION_SYMMETRIES[symmetry]  # [303]: an action here -> as it is seen there
    action = int(np.flatnonzero(image == thought.action)[0])
    return thought._replace(
        action=action, shares=None if thought.shares is None else thought.shares[image]
    )


class Levels:
    """The table. Those that play the same rules go from weak to strong."""

    def __init__(self, entries: Iterable[tuple[Level, Thinker]]) -> None:
        self._table = {level.id: (level, thinker) for level, thinker in entries}

    @property
    def all(self) -> list[Level]:
        return [level for level, _ in self._table.values()]

    def find(self, level_id: str | None, rules: Rules) -> tuple[Level, Thinker]:
        """The level of an id, for a game of these rules; None is the weakest that plays them."""
        if level_id is None:
            fitting = [level.id for level in self.all if str(rules) in level.rules]
            level_id = fitting[0] if fitting else self.all[0].id
        if level_id not in self._table:
            raise Refusal("unknown_level", "there is no such level: GET /checkpoints lists them")
        level, thinker = self._table[level_id]
        if str(rules) not in level.rules:
            raise Refusal("unsuitable_level", f"{level.label} does not play the rules '{rules}'")
        return level, thinker

    def analyst(self, rules: Rules) -> tuple[Level, NetworkThinker] | None:
        """The strongest network that plays these rules."""
        for level, thinker in reversed(self._table.values()):
            if isinstance(thinker, NetworkThinker) and str(rules) in level.rules:
                return level, thinker
        return None

    @classmethod
    def load(cls, ladder: Path | None, max_simulations: int) -> Levels:
        """The levels of a ladder's folder, stand-ins for the rules it leaves out, and `perfect`."""
        entries: list[tuple[Level, Thinker]] = []
        if ladder is not None and (ladder / MANIFEST_FILE).exists():
            entries += _of_manifest(Manifest.read(ladder / MANIFEST_FILE), max_simulations)
        trained = {name for level, _ in entries for name in level.rules}
        if rest := tuple(name for name in PRESETS if name not in trained):
            entries += [
                (Level(name, label, "agent", text, rest), AgentThinker(name))
                for name, label, text in FALLBACKS
            ]
        solved = tuple(name for name, rules in PRESETS.items() if table_path(rules).exists())
        if solved:
            text = "Knows the exact result of every position and never errs."
            entries.append(
                (Level(PERFECT, "Perfect", PERFECT, text, solved), AgentThinker(PERFECT))
            )
        return cls(entries)


def _of_manifest(manifest: Manifest, most: int) -> list[tuple[Level, Thinker]]:
    # torch comes with these: a server without a ladder does without
    from trainers.checkpoints import load_weights
    from trainers.players import load_evaluator

    entries = manifest.checkpoints
    if all(entry.rating is not None for entry in entries):
        entries = tuple(sorted(entries, key=lambda entry: entry.rating or 0.0))
    ids = [PERFECT, *(name for name, _, _ in FALLBACKS)]
    evaluators: dict[str, Evaluator] = {}
    found: list[tuple[Level, Thinker]] = []
    for entry in entries:
        if entry.file not in evaluators:  # one network may be several levels
            checkpoint = load_weights(manifest.file(entry))
            evaluators[entry.file] = load_evaluator(checkpoint, device="cpu")
        evaluator = evaluators[entry.file]
        ids.append(_id(manifest.name_of(entry), ids))
        simulations = min(entry.simulations or 0, most)
        level = Level(
            ids[-1],
            _label(entry, entries),
            "network",
            _describe(entry, simulations),
            (str(evaluator.rules),),
            entry.rating,
            entry.rating_low,
            entry.rating_high,
            simulations,
        )
        found.append((level, NetworkThinker(evaluator, simulations)))
    return found


def _id(name: str, taken: list[str]) -> str:
    """A name as the protocol allows it, and unlike the others."""
    plain = re.sub(r"[^A-Za-z0-9_.@-]", "-", name)[:56]
    number = 1
    while (found := plain if number == 1 else f"{plain}-{number}") in taken:
        number += 1
    return found


def _label(entry: ManifestEntry, entries: tuple[ManifestEntry, ...]) -> str:
    """The entry's label, with a number where several have it: `Expert 1`, `Expert 2`."""
    same = [other for other in entries if other.label == entry.label]
    return entry.label if len(same) == 1 else f"{entry.label} {same.index(entry) + 1}"


def _describe(entry: ManifestEntry, simulations: int) -> str:
    """How strong it is, how it plays, and what was measured."""
    looks = (
        f"tries {simulations} lines of play before a move" if simulations else "plays at a glance"
    )
    parts = [
        f"A network trained for {entry.step:,} steps that {looks}.",
        f"It scores {entry.win_rate_vs_random:.0%} against random play",
    ]
    if entry.rating is not None:
        parts.insert(0, STRENGTHS[label_of(entry.rating)])
    if entry.oracle_score is not None:
        parts[-1] += f" and finds a right move in {entry.oracle_score:.0%} of the test positions"
    return " ".join(parts) + "."
