"""The search's memory: the same answers, fewer questions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from pylos_env import Position, PylosError, Rules, kernel
from pylos_env.oracle.labels import load_labels
from trainers.alphazero.config import SelfPlayConfig
from trainers.alphazero.selfplay import GameGroup
from trainers.alphazero.workers import play_plies
from trainers.evaluator import Evaluator, write_canonical
from trainers.network import NetworkConfig, build
from trainers.search import Evaluate, Memory, Search, SearchConfig, SearchResult, drive, remembered
from trainers.search.memory import MOST_KEPT

RULES = Rules.of("advanced")
LARGE = 1 << 17
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
NOTHING = np.empty((0, kernel.NUM_ACTIONS), dtype=np.float32), np.empty(0, dtype=np.float32)


class Asked:
    """A small network that notes what it was asked for."""

    def __init__(self, canonical: bool = True) -> None:
        torch.manual_seed(0)
        config = NetworkConfig("patterns", width=8, blocks=1, canonical=canonical, gated=True)
        self._evaluate = Evaluator(build(config, RULES), RULES, torch.device("cpu"))
        self.positions: list[int] = []

    def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
        self.positions += packed.tolist()
        return self._evaluate(packed)


def labelled(count: int) -> Ints:
    return load_labels(RULES).packed[:: 20_000 // count].copy()


def search(
    packed: Ints, evaluate: Evaluate, memory: Memory | None = None, simulations: int = 24
) -> SearchResult:
    walk = Search(RULES, SearchConfig(simulations=simulations), len(packed)).walk(
        packed, np.arange(len(packed))
    )
    return drive(walk if memory is None else remembered(walk, memory), evaluate)


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("size", [1, 100, LARGE])
def test_a_search_that_remembers_finds_the_same(canonical: bool, size: int) -> None:
    packed = np.repeat(labelled(20), 2)
    evaluate = Asked(canonical)
    memory = Memory(RULES, canonical, size)
    for _ in range(2):  # the second time most is known
        expected, found = search(packed, evaluate), search(packed, evaluate, memory)
        assert (found.action == expected.action).all()
        assert (found.visits == expected.visits).all()
        np.testing.assert_allclose(found.value, expected.value, atol=1e-5)
        np.testing.assert_allclose(found.policy, expected.policy, atol=1e-4)


def test_nothing_is_asked_for_twice() -> None:
    packed = labelled(50)
    memory, evaluate = Memory(RULES, True, LARGE), Asked()
    search(packed, evaluate, memory)
    assert len(set(evaluate.positions)) == len(evaluate.positions) > len(packed)
    counted, known = memory.take_counts()
    assert counted - known == len(evaluate.positions)
    assert memory.take_counts() == (0, 0)
    asked = len(evaluate.positions)
    too_many = [p for p in evaluate.positions if kernel.count_legal(p, RULES.code) > MOST_KEPT]
    search(packed, evaluate, memory)
    assert evaluate.positions[asked:] == too_many
    memory.forget()
    search(packed, evaluate, memory)
    assert len(evaluate.positions) == 2 * asked + len(too_many)


def test_images_and_exchanged_colours_are_known_to_a_canonical_network() -> None:
    position = Position.parse("WB..W........B../........./..../. w 0")
    mirrored = kernel.symmetric(position.packed, 5)
    own, other = kernel.spheres_of(position.packed, 0), kernel.spheres_of(position.packed, 1)
    exchanged = kernel.pack(own, other, 1, 0)
    packed = np.array([position.packed, mirrored, exchanged])
    for canonical, unknown in ((True, 1), (False, 2)):
        _, passed_on = Memory(RULES, canonical, LARGE).look_up(packed)
        assert len(passed_on) == unknown


def test_answers_are_turned_back() -> None:
    """Logits of an image stand at the image's own actions."""
    packed = labelled(200)
    images = np.array([kernel.symmetric(p, s % 8) for s, p in enumerate(packed.tolist())])
    evaluate, memory = Asked(), Memory(RULES, True, LARGE)
    for positions in (packed, images):
        question, unknown = memory.look_up(positions)
        answer = evaluate(unknown) if len(unknown) else NOTHING
        logits, values = memory.complete(question, *answer)
        expected = evaluate(positions)
        np.testing.assert_allclose(logits, expected[0], atol=1e-5)
        np.testing.assert_allclose(values, expected[1], atol=1e-5)
    canonical, symmetries = np.empty_like(images), np.empty_like(images)
    write_canonical(images, canonical, symmetries)
    assert len(set(symmetries.tolist())) == 8


def test_positions_with_very_many_actions_are_answered_all_the_same() -> None:
    packed = load_labels(RULES).packed
    many = [p for p in packed.tolist() if kernel.count_legal(p, RULES.code) > MOST_KEPT]
    assert many
    memory, evaluate = Memory(RULES, True, LARGE), Asked()
    positions = np.array([many[0], many[0]])
    for _ in range(2):
        question, unknown = memory.look_up(positions)
        assert len(unknown) == 2
        logits, _ = memory.complete(question, *evaluate(unknown))
        np.testing.assert_allclose(logits, evaluate(positions)[0], atol=1e-5)


def test_self_play_forgets_with_new_weights() -> None:
    """Two rounds with two networks: the same games as without a memory."""
    config = NetworkConfig("patterns", width=8, blocks=1, canonical=True, gated=True)
    played = []
    for memory in (0, LARGE):
        settings = SelfPlayConfig(games=8, memory=memory)
        group = GameGroup(RULES, SearchConfig(simulations=8), settings, 0, 0, 1, canonical=True)
        for seed in (0, 1):
            torch.manual_seed(seed)
            evaluator = Evaluator(build(config, RULES), RULES, torch.device("cpu"))
            play_plies(group, evaluator, 6)
        values = [[d.value for d in game.decisions] for game in group.games]
        played.append((group.packed.tolist(), np.concatenate(values)))
    assert played[0][0] == played[1][0]
    np.testing.assert_allclose(played[0][1], played[1][1], atol=1e-5)


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="size"):
        Memory(RULES, True, 0)


def test_a_memory_that_forgot_is_as_new() -> None:
    """What it passes on does not depend on what was before: a resumed run plays the same games."""
    packed, evaluate = labelled(1000), Asked()
    old, new = Memory(RULES, True, 64), Memory(RULES, True, 64)
    search(packed[500:], evaluate, old, simulations=8)
    old.forget()
    asked = []
    for memory in (old, new):
        before = len(evaluate.positions)
        for begin in range(0, 500, 50):
            search(packed[begin : begin + 50], evaluate, memory, simulations=8)
        asked.append(evaluate.positions[before:])
    assert asked[0] == asked[1]


def test_half_an_answer_is_never_used() -> None:
    memory, packed = Memory(RULES, True, LARGE), labelled(20)

    def broken(packed: Ints) -> tuple[Floats, Floats]:
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError, match="no answer"):
        search(packed, broken, memory)
    with pytest.raises(PylosError, match="forget"):
        search(packed, Asked(), memory)
    memory.forget()
    expected = search(packed, Asked())
    assert (search(packed, Asked(), memory).action == expected.action).all()


def test_numbers_that_are_none_are_noticed() -> None:
    def diverged(packed: Ints) -> tuple[Floats, Floats]:
        logits, values = Asked()(packed)
        return logits * np.float32(np.nan), values

    with pytest.raises(PylosError, match="not finite"):
        search(labelled(4), diverged, Memory(RULES, True, LARGE))


def test_rules_without_symmetry_have_no_images() -> None:
    greedy = Rules.of("advanced greedy")
    position = Position.parse("WB..W........B../........./..../. w 0")
    packed = np.array([position.packed, kernel.symmetric(position.packed, 5)])
    assert len(Memory(greedy, True, LARGE).look_up(packed)[1]) == 2
