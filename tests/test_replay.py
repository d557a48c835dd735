"""The replay window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pylos_env import Position, kernel
from pylos_env.observation import Observer
from tests.alphazero_tools import RULES, make_replay, numbered, tiny
from trainers.alphazero.config import check
from trainers.network import NetworkConfig
from trainers.settings import ConfigError


def test_the_window_is_first_in_first_out_and_grows() -> None:
    replay = make_replay(capacity=500, start=100, growth=0.5)
    everything = [numbered(number, 1) for number in range(1380)]
    total = 0
    for count in [30, 50, 90, 200, 10, 400, 300, 300]:
        replay.add(numbered(total, count))
        total += count
        size = min(500, max(100, total // 2))
        kept = min(total, max(size, count))
        assert len(replay) == min(kept, total)
        assert replay.samples.value.tolist() == list(range(total - len(replay), total))
        kept_ones, first = replay.samples, total - len(replay)
        for row in range(len(replay)):  # positions and policies stay together
            alone = everything[first + row]
            begin, end = kept_ones.begin[row : row + 2]
            assert kept_ones.packed[row] == alone.packed[0]
            assert kept_ones.policy[begin:end].tolist() == alone.policy.tolist()
    assert replay.total == total


def test_batches_carry_the_sample_under_a_symmetry() -> None:
    """Observation, mask and policy all turn with the position; each against the plain view."""
    replay = make_replay()
    replay.add(numbered(0, 60))
    rows = np.repeat(np.arange(60), 8)
    turns = np.tile(np.arange(8), 60)
    batch = replay.batch(rows, turns)
    observer = Observer("flat", RULES)
    for index, (row, turn) in enumerate(zip(rows.tolist(), turns.tolist(), strict=True)):
        plain = Position.unchecked(int(replay.samples.packed[row]), RULES)
        position = plain.symmetric(turn)
        expected = observer.observe(position.packed, position.side)
        assert torch.equal(batch.observation[index], torch.from_numpy(expected))
        assert batch.mask[index].tolist() == position.action_mask().tolist()
        (chosen,) = batch.policy[index].nonzero().flatten().tolist()
        shares = replay.samples.policy[replay.samples.begin[row] : replay.samples.begin[row + 1]]
        action = plain.legal_actions()[int(shares.argmax())]
        assert plain.play(action).symmetric(turn) == position.play(chosen)
        assert batch.value[index] == row


def test_a_canonical_batch_shows_images_alike() -> None:
    """All eight images of a position, and their twins in the other colours, are one sample."""
    rng = np.random.default_rng(0)
    for row in range(20):
        replay = make_replay()
        samples = numbered(row, 1)
        plain = Position.unchecked(int(samples.packed[0]), RULES)
        seen = []
        for turn in range(8):
            image = plain.symmetric(turn)
            replay.add(samples._replace(packed=np.array([image.packed])))
            last = len(replay) - 1
            turns = np.array([kernel.canonical_symmetry(image.packed)])
            seen.append(replay.batch(np.array([last]), turns).observation)
        assert all(torch.equal(seen[0], other) for other in seen)
    replay = make_replay()
    replay.add(numbered(0, 60))
    drawn = replay.draw(rng, 64, "canonical")
    assert (drawn.policy.sum(dim=1) > 0.99).all()
    assert ((drawn.policy > 0) <= (drawn.mask > 0)).all()


def test_greedy_rules_refuse_symmetries(tmp_path: Path) -> None:
    """Greedy take-back breaks the board's symmetry: augmentation would teach wrong games."""
    config = tiny(tmp_path, rules="advanced greedy")
    with pytest.raises(ConfigError, match=r"^learner\.symmetries: .*not symmetric"):
        check(config)
    config.learner.symmetries = False
    config.evaluation.oracle_every = 0
    check(config)
    config = tiny(tmp_path, rules="advanced greedy", network=NetworkConfig("symmetric"))
    with pytest.raises(ConfigError, match=r"^network\.kind: .*not symmetric"):
        check(config)


def test_a_replay_survives_its_state() -> None:
    """Wherever the window lies in its room when it is saved."""
    replay = make_replay(capacity=50, start=50)
    for first in range(0, 200, 20):
        replay.add(numbered(first, 20))
        again = make_replay(capacity=50, start=50)
        again.set_state(replay.state())
        again.add(numbered(first + 20, 20))
        longer = make_replay(capacity=50, start=50)
        for begin in range(0, first + 40, 20):
            longer.add(numbered(begin, 20))
        for mine, theirs in zip(again.samples, longer.samples, strict=True):
            assert np.array_equal(mine, theirs)
        assert np.array_equal(again.errors, longer.errors)
        batches = [r.draw(np.random.default_rng(0), 16, "random") for r in (again, longer)]
        assert all(torch.equal(*pair) for pair in zip(*batches, strict=True))


def test_hard_samples_are_drawn_more_often_than_easy_ones() -> None:
    """By as much as the config says; wrong by a quarter of a win is halfway between them."""
    replay = make_replay(easy_share=0.25)
    replay.add(numbered(0, 4))
    replay.learnt(torch.arange(4), torch.tensor([0.0, 0.25, 0.5, 1.7]))
    rows = replay.draw(np.random.default_rng(0), 40_000, "plain").rows
    shares = np.bincount(rows.numpy()) / 40_000
    assert shares == pytest.approx(np.array([0.25, 0.625, 1, 1]) / 2.875, abs=0.01)


def test_errors_stay_with_their_samples() -> None:
    """However the window moves, and in a run that goes on."""
    replay = make_replay(capacity=50, start=50, easy_share=0.1)
    expected: list[float] = []
    for first in range(0, 400, 20):
        replay.add(numbered(first, 20))
        expected = [*expected, *[1.0] * 20][-50:]
        assert replay.errors.tolist() == expected
        row = first % len(replay)
        replay.learnt(torch.tensor([row]), torch.tensor([0.125]))
        expected[row] = 0.125
        state = replay.state()
        replay = make_replay(capacity=50, start=50, easy_share=0.1)
        replay.set_state(state)
        assert replay.errors.tolist() == expected


def test_a_run_of_an_earlier_version_goes_on() -> None:
    """It remembered no errors: everything is as hard as can be."""
    replay = make_replay()
    replay.add(numbered(0, 20))
    replay.learnt(torch.arange(20), torch.zeros(20))
    state = replay.state()
    del state["error"]
    replay.set_state(state)
    assert replay.errors.tolist() == [1.0] * 20


def test_errors_that_are_no_numbers_do_not_stop_a_draw() -> None:
    """Training has diverged: self-play is about to say so."""
    replay = make_replay(easy_share=0.001)
    replay.add(numbered(0, 20))
    replay.learnt(torch.arange(20), torch.full((20,), torch.nan))
    assert len(replay.draw(np.random.default_rng(0), 64, "plain").rows) == 64


def test_a_batch_knows_its_rows() -> None:
    replay = make_replay(easy_share=0.5)
    replay.add(numbered(0, 20))
    batch = replay.draw(np.random.default_rng(0), 64, "canonical")
    assert batch.value.tolist() == replay.samples.value[batch.rows.numpy()].tolist()
