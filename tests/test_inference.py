"""Networks that answer later, searches that go on meanwhile, batches that are there in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pylos_env import PylosError, Rules
from pylos_env.testing import random_game
from tests.alphazero_tools import composed, last_weights, make_replay, numbered, run_quietly, tiny
from trainers.alphazero.config import LearnerConfig
from trainers.alphazero.feed import feed
from trainers.alphazero.learner import Learner
from trainers.alphazero.selfplay import GameGroup
from trainers.alphazero.workers import Pipelined, Threads, make_evaluator
from trainers.evaluator import Evaluator
from trainers.inference import Inference, padded_size
from trainers.network import NetworkConfig, build
from trainers.running import torch_threads
from trainers.search import Pending, Search, SearchConfig, drive_together
from trainers.search.tree import Ints

RULES = Rules.of("advanced")
CPU = torch.device("cpu")


def positions(count: int, seed: int = 0) -> Ints:
    found: list[int] = []
    while len(found) < count:
        game = random_game(RULES, seed)
        found += [p.packed for p in game.positions() if p.legal_actions()]
        seed += 1
    return np.array(found[:count], dtype=np.int64)


def evaluator_of(**settings: Any) -> Evaluator:
    """An evaluator that asks its network itself, as on a card."""
    torch.manual_seed(0)
    evaluator = Evaluator(build(NetworkConfig(**settings), RULES), RULES, CPU)
    evaluator.kernel = None
    return evaluator


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{"width": 16}, {"width": 16, "canonical": True}, {"kind": "resnet", "channels": 8}],
)
def test_late_answers_are_the_evaluators(settings: dict[str, Any], background: bool) -> None:
    """Several questions at once, of different sizes, each with room of its own."""
    evaluator = evaluator_of(**settings)
    inference = Inference(evaluator, background)
    asked = [positions(count, seed) for seed, count in enumerate((70, 3, 200, 3))]
    for _ in range(2):  # the second time with the room of the first
        pending = [inference.submit(packed) for packed in asked]
        found = [answer() for answer in pending]
        for packed, (logits, values) in zip(asked, found, strict=True):
            expected = evaluator(packed)
            assert np.array_equal(logits, expected[0])
            assert np.array_equal(values, expected[1])
    assert len(inference._free) == 4
    inference.close()


def test_answers_are_not_overwritten_by_the_next_question() -> None:
    inference = Inference(evaluator_of(width=16))
    logits, values = inference.submit(positions(20))()
    kept = logits.copy(), values.copy()
    inference.submit(positions(20, seed=50))()
    assert np.array_equal(logits, kept[0])
    assert np.array_equal(values, kept[1])


def test_a_compiled_network_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that fill a batch up to its padded size change nothing."""
    shapes = set()

    def compiled(network: Any) -> Any:
        def forward(batch: torch.Tensor) -> Any:
            shapes.add(len(batch))
            return network(batch)

        return forward

    monkeypatch.setattr(torch, "compile", compiled)
    evaluator = evaluator_of(width=16, canonical=True)
    inference = Inference(evaluator, compiled=True)
    for count in (1, 40, 64, 65, 100, 128):
        logits, values = inference.submit(positions(count))()
        expected = evaluator(positions(count))
        assert np.allclose(logits, expected[0], atol=1e-5)
        assert np.allclose(values, expected[1], atol=1e-5)
    assert shapes == {64, 128}
    assert [padded_size(count) for count in (1, 64, 65, 1000)] == [64, 64, 128, 1024]


def test_pipelined_searches_find_what_each_finds_alone() -> None:
    evaluator = evaluator_of(width=16)
    inference = Inference(evaluator, background=True)
    config = SearchConfig(simulations=12)
    roots = [positions(9, seed) for seed in (0, 20, 40)]
    keys = np.arange(9, dtype=np.int64)
    with torch_threads(1):
        alone = [Search(RULES, config, 9).run(packed, keys, evaluator) for packed in roots]
    walks = [Search(RULES, config, 9).walk(packed, keys) for packed in roots]
    together = drive_together(walks, inference.submit)
    inference.close()
    for one, other in zip(alone, together, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert np.array_equal(mine, theirs)


def test_the_device_always_has_a_question_while_trees_are_walked() -> None:
    """Whenever an answer is asked for, the other search's leaves are already on their way."""
    evaluator = evaluator_of(width=16)
    outstanding = 0
    seen: list[int] = []

    def submit(packed: Ints) -> Pending:
        nonlocal outstanding
        outstanding += 1

        def answer() -> Any:
            nonlocal outstanding
            seen.append(outstanding)
            outstanding -= 1
            return evaluator(packed)

        return answer

    config = SearchConfig(simulations=10, root="puct")
    walks = [Search(RULES, config, 4).walk(positions(4), np.arange(4)) for _ in range(2)]
    drive_together(walks, submit)
    assert set(seen[:-1]) == {2}
    assert len(seen) > 12


def test_an_answer_of_another_shape_is_refused() -> None:
    walk = Search(RULES, SearchConfig(simulations=2), 3).walk(positions(3), np.arange(3))

    def submit(packed: Ints) -> Pending:
        return lambda: (np.zeros((2, 303), np.float32), np.zeros(2, np.float32))

    with pytest.raises(PylosError, match="an evaluator gives logits"):
        drive_together([walk], submit)


def test_pipelined_groups_play_the_games_of_threads(tmp_path: Path) -> None:
    """Whole runs, bit for bit; the settings are those of a card, where a CPU can have them."""
    for name in ("threads", "pipelined"):
        config = tiny(tmp_path / name)
        config.selfplay.backend = name
        config.selfplay.max_plies = 30  # some games are broken off and ask for a last value
        config.budget.steps = 15
        run_quietly(config)
    one, two = (last_weights(tmp_path / name) for name in ("threads", "pipelined"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_pipelined_groups_keep_their_state(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    config.selfplay.backend = "pipelined"
    network = build(config.network, RULES)
    first, second = Pipelined(config), Threads(config)
    try:
        first.begin(network)
        first.finish()
        second.set_states(first.states())
        for workers in (first, second):
            workers.begin(network)
        assert repr(first.finish()) == repr(second.finish())
    finally:
        first.close()
        second.close()


def test_the_gpu_experiment_trains_at_a_small_size(tmp_path: Path) -> None:
    """What a CPU can show of it: the network, the pipeline, the large batch in parts."""
    config = composed(
        "experiment=gpu",
        "device=cpu",
        f"run={tmp_path}",
        "console=off",
        "network.blocks=1",
        "network.channels=4",
        "search.simulations=4",
        "selfplay.games=6",
        "selfplay.quick_simulations=2",
        "selfplay.backend=pipelined",
        "replay.start=60",
        "learner.batch=64",
        "learner.accumulate=2",
        "gate.games=2",
        "evaluation.games=2",
        "evaluation.every_steps=1000",
        "evaluation.simulations=2",
        "evaluation.oracle_every=0",
        "budget.minutes=0",
        "budget.steps=3",
    )
    run_quietly(config)
    assert last_weights(tmp_path)


def test_fed_batches_are_those_that_are_drawn() -> None:
    replay = make_replay()
    replay.add(numbered(0, 60))
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    fed = list(feed(lambda: replay.draw(one, 16, "random"), 4, CPU))
    drawn = [replay.draw(two, 16, "random") for _ in range(4)]
    assert len(fed) == 4
    for mine, theirs in zip(fed, drawn, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert list(feed(lambda: replay.draw(one, 16, "random"), 0, CPU)) == []


def test_learning_in_half_precision_stays_near_the_whole_one() -> None:
    """What CUDA does by default, here on the CPU: autocast, losses and weights in float32."""
    reports = []
    for half in (False, True):
        torch.manual_seed(0)
        net = build(NetworkConfig(width=32, blocks=1, value_head="wdl"), RULES)
        learner = Learner(net, LearnerConfig(warmup=0), CPU)
        learner._precision = "bfloat16" if half else "float32"
        replay = make_replay()
        samples = numbered(0, 40)
        replay.add(samples._replace(value=samples.value / 40))
        batch = replay.batch(np.arange(40), np.zeros(40, dtype=np.int64))
        reports.append([learner.step(batch, 0.0) for _ in range(10)])
        assert {p.dtype for p in net.parameters()} == {torch.float32}
    plain, halved = reports
    assert halved[-1].loss != plain[-1].loss
    assert halved[-1].loss == pytest.approx(plain[-1].loss, rel=0.05)
    assert halved[-1].loss < 0.95 * halved[0].loss


@pytest.mark.parametrize("kind", ["symmetric", "patterns", "resnet"])
def test_networks_can_be_compiled_whole(kind: str) -> None:
    """Traced without a break in the graph; the code for a device is made elsewhere."""
    net = build(NetworkConfig(kind, width=16, blocks=1, channels=4), RULES).eval()
    traced = torch.compile(net, backend="eager", fullgraph=True)
    seen = Evaluator(net, RULES, CPU).observer
    batch = torch.from_numpy(np.stack([seen.observe(p, 0) for p in positions(8).tolist()]))
    with torch.inference_mode():
        assert torch.equal(traced(batch).logits, net(batch).logits)


def test_a_groups_walk_is_its_step(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    evaluator = make_evaluator(config, CPU)
    one, two = (GameGroup(RULES, config.search, config.selfplay, 3, 0, 1) for _ in range(2))
    for _ in range(20):
        (walked,) = drive_together([one.walk()], Inference(evaluator).submit)
        assert repr(walked) == repr(two.step(evaluator))


@pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="no card here: the same answers are compared on the CPU above",
)
def test_a_card_answers_from_pinned_memory() -> None:
    evaluator = Evaluator(build(NetworkConfig(width=16), RULES), RULES, torch.device("cuda"))
    inference = Inference(evaluator)
    pending = [inference.submit(positions(50, seed)) for seed in range(3)]
    for seed, answer in enumerate(pending):
        logits, values = answer()
        expected = evaluator(positions(50, seed))
        assert np.allclose(logits, expected[0], atol=1e-3)
        assert np.allclose(values, expected[1], atol=1e-3)
    assert all(lane._seen.is_pinned() and lane._logits.is_pinned() for lane in inference._free)
