"""What an evaluator has said before: a search over many games meets many positions several times.

    memory = Memory(rules, canonical=True, size=100_000)
    result = drive(remembered(search.walk(packed, keys), memory), evaluate)

The next move of a game searches half of what the last one did, games resemble each other, and
actions in another order lead to the same position. The memory keeps the newest answers and passes
on only questions that it cannot answer itself. Positions are the same to it if they look the same
from the side to move; to a `canonical` evaluator so do a position's images under the board's
symmetries.

Call `forget` when the evaluator has changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env import kernel
from pylos_env._jit import jit
from pylos_env.errors import PylosError
from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.kernel import MAX_LEGAL, NUM_ACTIONS
from pylos_env.options import check_count
from pylos_env.rules import Rules
from trainers.search.batched import Result, Walk
from trainers.search.tree import Floats, Ints

EMPTY: Final = -1
NO_SLOT: Final = -1
MOST_KEPT: Final = 32
"""Positions with more legal actions are rare, and not kept."""
TURNED_BACK: Final = ACTION_SYMMETRIES.argsort(axis=1)
"""[8, 303]: where each action came from under each symmetry."""


class Shelf(NamedTuple):
    """Answers, two slots side by side for each number that a position is hashed to."""

    positions: npt.NDArray[np.int64]  # [slots]
    used: npt.NDArray[np.int64]  # [slots]: the question that last asked for it
    logits: npt.NDArray[np.float32]  # [slots, MOST_KEPT]: of the legal actions in ascending order
    values: npt.NDArray[np.float32]  # [slots]


class Question(NamedTuple):
    """Positions that a search asks for, and where their answers are."""

    shown: npt.NDArray[np.int64]  # [n]: as the memory knows them
    symmetries: npt.NDArray[np.int64]  # [n]: what turned them
    slots: npt.NDArray[np.int64]  # [n]; NO_SLOT - k: the k-th of those passed on, which has none
    passed_on: npt.NDArray[np.int64]  # [n]: positions that are not known, from the first on
    homes: npt.NDArray[np.int64]  # [n]: the slot that each of those is given, or NO_SLOT


class Memory:
    """The newest answers of one evaluator, for one walk at a time.

    It keeps `size` positions, rounded up to a power of two, of 150 bytes each.
    """

    def __init__(self, rules: Rules, canonical: bool, size: int) -> None:
        self._rules = rules.code
        self._canonical = canonical and rules.symmetric
        slots = max(2, 1 << (check_count("size", size) - 1).bit_length())
        self._shelf = Shelf(
            np.full(slots, EMPTY, dtype=np.int64),
            np.zeros(slots, dtype=np.int64),
            np.empty((slots, MOST_KEPT), dtype=np.float32),
            np.empty(slots, dtype=np.float32),
        )
        self._questions = 0
        self._waiting = False
        self._asked = self._known = 0

    def forget(self) -> None:
        """Be as new: what is asked from here on does not depend on what was before."""
        self._shelf.positions.fill(EMPTY)
        self._shelf.used.fill(0)
        self._questions = 0
        self._waiting = False

    def take_counts(self) -> tuple[int, int]:
        """Positions asked for since the last time, and those among them that were known."""
        counts = self._asked, self._known
        self._asked = self._known = 0
        return counts

    def look_up(self, packed: Ints) -> tuple[Question, Ints]:
        """What is known of positions, and those to ask the evaluator for; then `complete` it."""
        if self._waiting:
            raise PylosError("the memory waits for an answer: after an error, forget()")
        self._waiting = True
        count = len(packed)
        question = Question(*(np.empty(count, dtype=np.int64) for _ in Question._fields))
        self._questions += 1
        unknown = _look_up(
            packed, self._rules, self._canonical, self._shelf, self._questions, question
        )
        self._asked += count
        self._known += count - unknown
        return question, question.passed_on[:unknown]

    def complete(self, question: Question, logits: Floats, values: Floats) -> tuple[Floats, Floats]:
        """The evaluator's answers to what was passed on, with all that was known before."""
        self._waiting = False
        count = len(question.shown)
        all_logits = np.zeros((count, NUM_ACTIONS), dtype=np.float32)
        all_values = np.empty(count, dtype=np.float32)
        _keep(question, self._rules, self._shelf, logits, values)
        _answer(
            question, self._rules, self._shelf, logits, values, TURNED_BACK, all_logits, all_values
        )
        return all_logits, all_values


def remembered(walk: Walk[Result], memory: Memory) -> Walk[Result]:
    """The same walk; it asks only for what is not known already."""
    nothing = np.empty((0, NUM_ACTIONS), dtype=np.float32), np.empty(0, dtype=np.float32)
    try:
        packed = next(walk)
        while True:
            question, unknown = memory.look_up(packed)
            answer = (yield unknown) if len(unknown) else nothing
            packed = walk.send(memory.complete(question, *answer))
    except StopIteration as end:
        result: Result = end.value
        return result


@jit
def _same_to_mover(packed: int) -> int:
    """The position with the colours exchanged if need be, so that White moves."""
    side = kernel.side_of(packed)
    own, other = kernel.spheres_of(packed, side), kernel.spheres_of(packed, 1 - side)
    return kernel.pack(own, other, 0, kernel.take_backs_left(packed))


@jit
def _look_up(
    packed: Ints, rules: int, canonical: bool, shelf: Shelf, now: int, question: Question
) -> int:
    """Find every position's slot, or give it one; returns how many have to be asked for."""
    unknown = 0
    last = len(shelf.positions) - 1
    for row in range(len(packed)):
        position, symmetry = packed[row], 0
        if canonical:
            symmetry = kernel.canonical_symmetry(position)
            position = kernel.symmetric(position, symmetry)
        position = _same_to_mover(position)
        question.shown[row] = position
        question.symmetries[row] = symmetry
        first = kernel.draw(position, 0) & last & ~1
        slot = NO_SLOT
        for candidate in (first, first + 1):
            if shelf.positions[candidate] == position:
                slot = candidate
        if slot == NO_SLOT:
            question.passed_on[unknown] = position
            slot = first if shelf.used[first] <= shelf.used[first + 1] else first + 1
            both_in_use = shelf.used[slot] == now  # by this very question
            if both_in_use or kernel.count_legal(position, rules) > MOST_KEPT:
                slot = NO_SLOT - unknown
                question.homes[unknown] = NO_SLOT
            else:
                shelf.positions[slot] = position
                question.homes[unknown] = slot
            unknown += 1
        if slot > NO_SLOT:
            shelf.used[slot] = now
        question.slots[row] = slot
    return unknown


@jit
def _keep(question: Question, rules: int, shelf: Shelf, logits: Floats, values: Floats) -> None:
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    for number in range(len(values)):
        slot = question.homes[number]
        if slot != NO_SLOT:
            shelf.values[slot] = values[number]
            for index in range(kernel.write_legal(question.passed_on[number], rules, legal)):
                shelf.logits[slot, index] = logits[number, legal[index]]


@jit
def _answer(
    question: Question,
    rules: int,
    shelf: Shelf,
    logits: Floats,
    values: Floats,
    turned_back: Ints,
    all_logits: Floats,
    all_values: Floats,
) -> None:
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    for row in range(len(question.shown)):
        slot, back = question.slots[row], turned_back[question.symmetries[row]]
        known = slot > NO_SLOT
        number = NO_SLOT - slot
        all_values[row] = shelf.values[slot] if known else values[number]
        for index in range(kernel.write_legal(question.shown[row], rules, legal)):
            action = legal[index]
            logit = shelf.logits[slot, index] if known else logits[number, action]
            all_logits[row, back[action]] = logit
