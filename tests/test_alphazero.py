"""AlphaZero: targets, replay, learner, configs, resuming, and that it learns."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pylos_env import Position, PylosError, Rules, kernel
from pylos_env.observation import Observer
from pylos_env.testing import random_game
from trainers import command, paths
from trainers.alphazero import selfplay
from trainers.alphazero.beginning import first_network
from trainers.alphazero.cli import AlphaZeroConfig  # from here, since that registers it
from trainers.alphazero.config import (
    BudgetConfig,
    EvaluationConfig,
    GateConfig,
    LearnerConfig,
    ReplayConfig,
    SelfPlayConfig,
    TargetsConfig,
    check,
)
from trainers.alphazero.evaluate import Judge
from trainers.alphazero.learner import (
    Learner,
    legal_losses_of,
    losses_of,
    make_optimisers,
    wdl_targets,
)
from trainers.alphazero.replay import Batch, Replay
from trainers.alphazero.selfplay import Decision, Game, GameGroup
from trainers.alphazero.targets import SHARE, Samples, samples_of, value_targets
from trainers.alphazero.train import Trainer, train
from trainers.alphazero.workers import Processes
from trainers.arena import MatchResult
from trainers.checkpoints import CheckpointError, RunFolder, load_weights
from trainers.metrics import TAGS, MemorySink, Message, Metrics, Scalars
from trainers.network import NetworkConfig, build
from trainers.players import load_evaluator
from trainers.search import SearchConfig
from trainers.search.tree import Floats, Ints
from trainers.settings import ConfigError

RULES = Rules.of("advanced")


def tiny(folder: Path, **changes: object) -> AlphaZeroConfig:
    """A run of a second or two."""
    config = AlphaZeroConfig(
        run=str(folder),
        device="cpu",
        console="off",
        network=NetworkConfig(width=16, blocks=1),
        search=SearchConfig(simulations=6),
        selfplay=SelfPlayConfig(
            games=8,
            backend="threads",
            quick_simulations=3,
            plies_per_cycle=6,
            full_share=0.5,
            memory=64,  # too small for a round: what it drops must not depend on the past
        ),
        replay=ReplayConfig(start=60, capacity=2000),
        learner=LearnerConfig(batch=32, warmup=3, reuse=3.0),
        gate=GateConfig(games=2, simulations=2),
        evaluation=EvaluationConfig(
            every_steps=15, games=2, opponents=["rule_based"], simulations=2, oracle_every=1000
        ),
        budget=BudgetConfig(minutes=0, steps=40),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


# Targets


def played_game(seed: int, truncated: bool = False) -> Game:
    """A random game with a decision at every ply, whose values are made up."""
    record = random_game(RULES, seed)
    rng = np.random.default_rng(seed)
    positions = list(record.positions())
    actions = list(record.actions)
    if truncated:
        actions = actions[: len(actions) // 2]
    decisions = [
        Decision(
            position.packed,
            ply,
            float(rng.uniform(-1, 1)),
            0,
            False,
            rng.dirichlet(np.ones(len(position.legal_actions()))).astype(np.float32),
        )
        for ply, position in enumerate(positions[: len(actions)])
    ]
    end = positions[len(actions)]
    return Game(seed, 0, actions, decisions, end=end.packed, truncated=truncated, last_value=0.3)


def plain_target(
    game: Game, index: int, truncated: str, share: float = 0.3, discount: float = 0.98
) -> float:
    """The sum over all later decisions, written out; made-up games have a decision at each ply."""
    side = Position(game.decisions[index].packed, RULES).side
    end = Position.unchecked(game.end, RULES)
    total, left = 0.0, 1.0
    for decision in game.decisions[index:]:
        same = Position(decision.packed, RULES).side == side
        total += left * share * (decision.value if same else -decision.value)
        left *= (1 - share) * discount
    if not game.truncated:
        outcome = -1.0 if side == end.side else 1.0
    elif truncated == "draw":
        outcome = -0.2
    else:
        outcome = 0.3 if side == end.side else -0.3
    return total + left * outcome


@pytest.mark.parametrize("truncated", ["bootstrap", "draw", "mask"])
@pytest.mark.parametrize("cut", [False, True])
def test_targets_equal_a_plain_loop(truncated: str, cut: bool) -> None:
    """The winner is who moved last; values turn with the side to move, not with the ply."""
    config = TargetsConfig(0.98, -0.2, truncated, 0.3)
    kept_turns = 0
    for seed in range(20):
        game = played_game(seed, cut)
        sides = [Position(d.packed, RULES).side for d in game.decisions]
        kept_turns += sum(one == other for one, other in itertools.pairwise(sides))
        for index, (value, weight) in enumerate(value_targets(game, config)):
            if cut and truncated == "mask":
                assert weight == 0
            else:
                assert weight == 1
                assert value == pytest.approx(plain_target(game, index, truncated))
    assert kept_turns > 20, "no game had take-backs"


def test_without_a_share_of_the_search_the_target_is_the_outcome() -> None:
    game = played_game(3)
    end = Position.unchecked(game.end, RULES)
    for decision, (value, _) in zip(
        game.decisions, value_targets(game, TargetsConfig(root_share=0.0)), strict=True
    ):
        assert value == (-1.0 if Position(decision.packed, RULES).side == end.side else 1.0)


def test_a_resigned_game_is_worth_what_the_search_said() -> None:
    """To either side, however games that were broken off are counted."""
    game = played_game(3, truncated=True)
    game.truncated, game.resigned, game.last_value = False, True, -0.97
    side = kernel.side_of(game.end)
    for truncated in ("draw", "mask"):
        config = TargetsConfig(root_share=0.0, final_root_share=0.0, truncated=truncated)
        for decision, (value, weight) in zip(
            game.decisions, value_targets(game, config), strict=True
        ):
            same = kernel.side_of(decision.packed) == side
            assert (value, weight) == (pytest.approx(-0.97 if same else 0.97), 1.0)


def test_the_share_of_the_search_grows_with_the_run() -> None:
    game = played_game(3)
    growing = TargetsConfig(root_share=0.1, final_root_share=0.5)
    for progress, share in ((0.0, 0.1), (0.25, 0.2), (1.0, 0.5)):
        steady = TargetsConfig(root_share=share, final_root_share=share)
        assert np.allclose(value_targets(game, growing, progress), value_targets(game, steady))


def test_decisions_between_quick_moves_fade_by_the_plies_between_them() -> None:
    game = played_game(3)
    config = TargetsConfig(0.9, root_share=0.0)
    every = [value for value, _ in value_targets(game, config)]
    game.decisions = game.decisions[1::3]
    found = [value for value, _ in value_targets(game, config)]
    assert found == pytest.approx(every[1::3])


@pytest.mark.parametrize("truncated", ["bootstrap", "mask"])
def test_a_proof_is_the_target_and_cuts_off_what_follows(truncated: str) -> None:
    game = played_game(1, truncated=True)
    game.decisions[3] = game.decisions[3]._replace(proven=-1, value=-1.0)
    targets = value_targets(game, TargetsConfig(root_share=0.25, truncated=truncated))
    assert targets[3] == (-1.0, 1.0)
    sides = [Position(d.packed, RULES).side for d in game.decisions]
    following = -1.0 if sides[2] == sides[3] else 1.0
    assert targets[2] == (pytest.approx(0.75 * following + 0.25 * game.decisions[2].value), 1.0)
    assert targets[4][1] == (0.0 if truncated == "mask" else 1.0)
    distrusted = value_targets(game, TargetsConfig(trust_proofs=False, root_share=0.0))
    assert abs(distrusted[3][0]) == pytest.approx(0.3)


def test_samples_keep_positions_and_policies() -> None:
    games = [played_game(seed) for seed in (5, 2, 9)]
    samples = samples_of(games, TargetsConfig())
    decisions = [d for game in sorted(games, key=lambda g: g.number) for d in game.decisions]
    assert samples.packed.tolist() == [d.packed for d in decisions]
    for row, decision in enumerate(decisions):
        stored = samples.policy[samples.begin[row] : samples.begin[row + 1]] / SHARE
        assert stored == pytest.approx(decision.policy, abs=1e-5)
    size = sum(array.nbytes for array in samples) / samples.size
    assert size < 60, "a sample takes tens of bytes"


def test_a_random_action_cuts_off_what_follows() -> None:
    """The search would have played something else: what came of it says nothing of the position."""
    game = played_game(1)
    game.decisions[3] = game.decisions[3]._replace(strays=True)
    config = TargetsConfig(root_share=0.25, final_root_share=0.25, stray_trust=0.5)
    targets = value_targets(game, config, progress=0.5)
    own = game.decisions[3].value
    assert targets[3] == (own, 1.0)
    sides = [Position(d.packed, RULES).side for d in game.decisions]
    following = own if sides[2] == sides[3] else -own
    assert targets[2][0] == pytest.approx(0.75 * following + 0.25 * game.decisions[2].value)
    steady = value_targets(played_game(1), config, progress=0.5)
    assert targets[4] == steady[4]
    assert value_targets(game, config) == value_targets(played_game(1), config)  # not yet trusted
    half = value_targets(game, config, progress=0.25)[3][0]
    after = steady[4][0] if sides[3] == sides[4] else -steady[4][0]
    assert half == pytest.approx(0.5 * own + 0.5 * after)


# Replay


def numbered(first: int, count: int) -> Samples:
    """Samples whose value is their number."""
    positions = [p for p in random_game(RULES, 3).positions() if p.legal_actions()]
    chosen = [positions[number % len(positions)] for number in range(first, first + count)]
    sizes = [len(p.legal_actions()) for p in chosen]
    ones = enumerate(sizes, first)
    policies = [np.eye(size, dtype=np.float32)[number % size] for number, size in ones]
    return Samples(
        np.array([p.packed for p in chosen], dtype=np.int64),
        np.arange(first, first + count, dtype=np.float32),
        np.ones(count, dtype=np.float32),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        (np.concatenate(policies) * SHARE).astype(np.uint16),
    )


def make_replay(**settings: float) -> Replay:
    config = ReplayConfig(**settings)  # type: ignore[arg-type]
    return Replay(config, RULES, Observer("flat", RULES))


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
        batches = [r.draw(np.random.default_rng(0), 16, "random") for r in (again, longer)]
        assert all(torch.equal(*pair) for pair in zip(*batches, strict=True))


# Learner


def test_losses_equal_a_direct_computation() -> None:
    torch.manual_seed(0)
    net = build(NetworkConfig(width=16, blocks=1), RULES)
    replay = make_replay()
    replay.add(numbered(0, 30)._replace(value=np.linspace(-1, 1, 30, dtype=np.float32)))
    batch = replay.batch(np.arange(30), np.zeros(30, dtype=np.int64))
    batch = batch._replace(weight=torch.tensor([1.0, 0.0] * 15))
    with torch.no_grad():
        output = net(batch.observation)
    losses = losses_of(output, batch)
    policy = value = entropy = 0.0
    for row in range(30):
        legal = [a for a in range(303) if batch.mask[row, a]]
        logits = output.logits[row, legal].double()
        shares = (logits - logits.logsumexp(0)).exp()
        policy -= float((batch.policy[row, legal] * shares.log()).sum())
        entropy -= float((shares * shares.log()).sum())
        value += float(batch.weight[row]) * float(output.value[row] - batch.value[row]) ** 2
    assert float(losses.policy) == pytest.approx(policy / 30, rel=1e-4)
    assert float(losses.entropy) == pytest.approx(entropy / 30, rel=1e-4)
    assert float(losses.value) == pytest.approx(value / 15, rel=1e-4)


@pytest.mark.parametrize("kind", ["resmlp", "patterns", "symmetric"])
def test_losses_of_legal_actions_equal_those_of_a_full_head(kind: str) -> None:
    torch.manual_seed(0)
    net = build(NetworkConfig(kind, width=16, blocks=1), RULES)
    replay = make_replay()
    replay.add(numbered(0, 30)._replace(value=np.linspace(-1, 1, 30, dtype=np.float32)))
    batch = replay.batch(np.arange(30), np.zeros(30, dtype=np.int64))
    found = []
    for losses in (losses_of(net(batch.observation), batch), legal_losses_of(net, batch)):
        net.zero_grad()
        (losses.policy + losses.value).backward()
        found.append((losses, {name: p.grad.clone() for name, p in net.named_parameters()}))
    (full, full_gradients), (legal, gradients) = found
    for one, other in zip(full, legal, strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-4)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, full_gradients[name], atol=1e-5), name


def test_wdl_targets_have_the_value_as_their_difference() -> None:
    values = torch.linspace(-1, 1, 9)
    targets = wdl_targets(values)
    assert torch.allclose(targets[:, 0] - targets[:, 2], values)
    assert torch.allclose(targets.sum(-1), torch.ones(9))
    assert targets.min() >= 0


def fixed_batch(replay: Replay, size: int) -> Batch:
    return replay.batch(np.arange(size) % len(replay), np.zeros(size, dtype=np.int64))


def test_accumulated_parts_give_the_whole_batchs_step() -> None:
    replay = make_replay()
    replay.add(numbered(0, 40)._replace(value=np.zeros(40, np.float32)))
    weights = []
    for parts in (1, 4):
        torch.manual_seed(0)
        net = build(NetworkConfig(width=16, blocks=1), RULES)
        config = LearnerConfig(accumulate=parts, warmup=0, amp=False)
        learner = Learner(net, config, torch.device("cpu"))
        for _ in range(3):
            learner.step(fixed_batch(replay, 32), 0.0)
        weights.append(torch.cat([p.flatten() for p in learner.network.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-5)


@pytest.mark.parametrize("head", ["scalar", "wdl"])
def test_a_learner_learns_what_it_is_shown(head: str) -> None:
    replay = make_replay()
    values = np.where(np.arange(40) % 2, 1.0, -1.0).astype(np.float32)
    replay.add(numbered(0, 40)._replace(value=values))
    torch.manual_seed(0)
    net = build(NetworkConfig(width=64, blocks=1, value_head=head), RULES)
    learner = Learner(net, LearnerConfig(warmup=0, learning_rate=3e-3), torch.device("cpu"))
    first = learner.step(fixed_batch(replay, 40), 0.0)
    for _ in range(200):
        last = learner.step(fixed_batch(replay, 40), 0.0)
    assert last.policy_loss < 0.2 < first.policy_loss
    assert last.value_loss < 0.1 < first.value_loss
    with torch.no_grad():
        playing = learner.playing(fixed_batch(replay, 40).observation)
    assert (playing.value.sign() == torch.from_numpy(values)).all()


@pytest.mark.parametrize(
    ("kind", "parts"), [("patterns", ("weight",)), ("symmetric", ("singles", "pairs"))]
)
def test_the_matrices_of_blocks_are_learnt_by_muon_and_nothing_else_is(
    kind: str, parts: tuple[str, ...]
) -> None:
    net = build(NetworkConfig(kind, width=16, blocks=2, gated=kind == "patterns"), RULES)
    adam, muon = make_optimisers(net, LearnerConfig(matrix_rate=0.5), torch.device("cpu"))
    names = {id(p): name for name, p in net.named_parameters()}
    by_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    by_adam = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert by_muon == {
        f"body.{n}.layers.{layer}.{part}"
        for n in (1, 2)
        for layer in ("pair", "last")
        for part in parts
    }
    assert by_adam == set(names.values()) - by_muon
    assert len(make_optimisers(net, LearnerConfig(matrix_rate=0), torch.device("cpu"))) == 1
    plain = build(NetworkConfig("mlp"), RULES)
    assert len(make_optimisers(plain, LearnerConfig(), torch.device("cpu"))) == 1


def test_both_optimisers_follow_the_schedule() -> None:
    net = build(NetworkConfig("patterns", width=16, blocks=1, gated=True), RULES)
    settings = LearnerConfig(warmup=0, learning_rate=1e-2, matrix_rate=1e-3, schedule="constant")
    learner = Learner(net, settings, torch.device("cpu"))
    before = copy.deepcopy(net.state_dict())
    replay = make_replay()
    replay.add(numbered(0, 40)._replace(value=np.ones(40, np.float32)))
    learner.step(fixed_batch(replay, 40), 0.0)
    rates = [group["lr"] for optimiser in learner.optimisers for group in optimiser.param_groups]
    assert rates == [1e-2, 1e-2, 1e-3]
    changed = {name for name, tensor in net.state_dict().items() if (tensor != before[name]).any()}
    assert "body.1.layers.last.weight" in changed
    assert "policy.weight" in changed


def test_a_learner_goes_on_with_its_own_rates_and_decay() -> None:
    """Those of its config: what was learnt goes on, not how."""
    net = build(NetworkConfig("patterns", width=16, blocks=1, gated=True), RULES)
    plain = LearnerConfig(warmup=0, schedule="constant")
    before = Learner(net, plain, torch.device("cpu"))
    replay = make_replay()
    replay.add(numbered(0, 40)._replace(value=np.ones(40, np.float32)))
    before.step(fixed_batch(replay, 40), 0.0)
    changed = dataclasses.replace(plain, learning_rate=1e-5, matrix_rate=1e-6, weight_decay=0.5)
    after = Learner(copy.deepcopy(net), changed, torch.device("cpu"))
    after.set_state(before.state())
    report = after.step(fixed_batch(replay, 40), 0.0)
    groups = [group for optimiser in after.optimisers for group in optimiser.param_groups]
    assert [group["lr"] for group in groups] == [1e-5, 1e-5, 1e-6]
    assert [group["weight_decay"] for group in groups][:2] == [0.5, 0.0]
    assert report.learning_rate == 1e-5
    first = groups[0]["params"][0]
    assert after.optimisers[0].state[first]["step"] == 2  # its moments are the old ones, moved on


def test_the_schedule_warms_up_and_falls() -> None:
    net = build(NetworkConfig(width=16, blocks=1), RULES)
    learner = Learner(net, LearnerConfig(warmup=9, learning_rate=1.0), torch.device("cpu"))
    assert learner.rate_share(0.0) == pytest.approx(0.1)
    learner.steps = 100
    rates = [learner.rate_share(progress) for progress in (0, 0.25, 0.5, 0.75, 1)]
    assert rates[0] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.05)
    assert all(one > other for one, other in itertools.pairwise(rates))


# Self-play


def knows_nothing(packed: Ints) -> tuple[Floats, Floats]:
    return np.zeros((len(packed), 303), np.float32), np.zeros(len(packed), np.float32)


def play_group(games: int, stride: int = 1, **settings: object) -> dict[int, Game]:
    config = SelfPlayConfig(games=games, quick_simulations=2, **settings)  # type: ignore[arg-type]
    group = GameGroup(RULES, SearchConfig(simulations=4), config, 7, 0, stride)
    finished: dict[int, Game] = {}
    for _ in range(70):
        finished |= {game.number: game for game in group.step(knows_nothing)}
    return finished


def test_a_game_plays_alike_in_any_group() -> None:
    large, small = play_group(24), play_group(6)
    common = sorted(set(large) & set(small))
    assert len(common) >= 5
    for number in common:
        assert large[number].start == small[number].start
        assert large[number].actions == small[number].actions
        for one, other in zip(large[number].decisions, small[number].decisions, strict=True):
            assert one.packed == other.packed
            assert one.policy.tolist() == other.policy.tolist()


def test_random_actions_have_their_share() -> None:
    """Each game strays in a share of its own, uniform up to the largest."""
    assert not any(d.strays for g in play_group(24, stray_share=0.0).values() for d in g.decisions)
    games = play_group(48, stray_share=0.6, opening_share=0.0, resign=1.0).values()
    shares = [np.mean([d.strays for d in game.decisions]) for game in games]
    assert 0.15 < np.mean(shares) < 0.35  # some random actions are the search's own
    assert max(shares) > 0.4
    assert min(shares) < 0.1


@pytest.mark.parametrize("draws", [True, False])
def test_a_position_that_comes_again_is_a_draw(draws: bool) -> None:
    config = SelfPlayConfig(games=2, opening_share=0.0, stray_share=0.0, repetition_draws=draws)
    group = GameGroup(RULES, SearchConfig(simulations=8), config, 7, 0, 1)
    start = Position.start(RULES)
    assert group.games[0].seen == {start.packed}
    group.games[0].seen |= {start.play(action).packed for action in start.legal_actions()}
    finished = group.step(knows_nothing)
    assert [game.number for game in finished] == ([0] if draws else [])
    for game in finished:
        assert game.drawn
        assert not game.truncated
        assert len(game.actions) == 1
        assert selfplay.winner_of(game) is None
        for truncated in ("bootstrap", "mask"):
            targets = TargetsConfig(0.9, -0.2, truncated, 0.0, 0.0)
            assert value_targets(game, targets) == [(pytest.approx(0.9 * -0.2), 1.0)]
    again = GameGroup(RULES, SearchConfig(simulations=8), config, 7, 0, 1)
    again.set_state(group.state())
    assert again.games[1].seen == group.games[1].seen == {start.packed, int(group.packed[1])}


def test_what_a_random_action_brings_back_is_no_repetition() -> None:
    config = SelfPlayConfig(games=8, opening_share=0.0, stray_share=1.0, resign=1.0)
    group = GameGroup(RULES, SearchConfig(simulations=2, gumbel_scale=0.0), config, 7, 0, 1)
    start = Position.start(RULES)
    after = {start.play(action).packed for action in start.legal_actions()}
    for game in group.games:
        game.seen |= after
    group.step(knows_nothing)
    strayed = [game.decisions[0].strays for game in group.games if game.actions]
    assert any(strayed)
    for row, game in enumerate(group.games):
        if game.actions:
            assert game.decisions[0].strays  # the others were drawn at once
            assert game.seen == {int(group.packed[row])}
    again = GameGroup(RULES, SearchConfig(simulations=2, gumbel_scale=0.0), config, 7, 0, 1)
    again.set_state(group.state())
    assert [game.seen for game in again.games] == [game.seen for game in group.games]


def test_games_obey_the_rules_and_their_decisions_lie_on_them() -> None:
    for game in play_group(24).values():
        position = Position(game.start, RULES)
        positions = [position]
        for action in game.actions:
            position = position.play(action)
            positions.append(position)
        assert position.packed == game.end
        assert bool(position.legal_actions()) == (game.truncated or game.drawn or game.resigned)
        for decision in game.decisions:
            assert positions[decision.ply].packed == decision.packed
            assert len(decision.policy) == len(positions[decision.ply].legal_actions())


def test_the_ply_limit_breaks_games_off_without_a_winner() -> None:
    games = play_group(12, max_plies=9, opening_share=0.0).values()
    assert all(len(game.actions) == 9 and game.truncated for game in games)
    assert all(selfplay.winner_of(game) is None for game in games)


def test_a_game_is_resigned_where_the_search_is_sure() -> None:
    """With a search that sees the ends of games, which are sure: 1 to -1."""
    played = play_group(24, resign=1.0)
    resigned = play_group(24, resign=0.9, resign_share=1.0)
    assert not any(game.resigned for game in played.values())
    ended = [game for game in resigned.values() if game.resigned]
    assert len(ended) > len(resigned) / 2
    for game in ended:
        assert abs(game.last_value) > 0.9
        assert game.decisions[-1].packed == game.end
        ahead = kernel.side_of(game.end)
        assert selfplay.winner_of(game) == (ahead if game.last_value > 0 else 1 - ahead)
        if game.number in played:
            assert played[game.number].actions[: len(game.actions)] == game.actions
            assert len(played[game.number].actions) > len(game.actions)


def test_a_game_cools_down_after_its_temperature_plies() -> None:
    """Drawn from the visits until then; the most visited action from there on."""
    config = SelfPlayConfig(
        games=64, opening_share=0.0, stray_share=0.0, temperature_plies=3, quick_simulations=1
    )
    search = SearchConfig(root="puct", simulations=16, dirichlet_fraction=0.0)
    group = GameGroup(RULES, search, config, 7, 0, 1)
    for _ in range(6):
        group.step(knows_nothing)
    most = np.array(
        [
            [
                kernel_action(decision) == action
                for decision, action in zip(game.decisions, game.actions, strict=True)
            ]
            for game in group.games
        ]
    )
    assert most[:, 3:].all()
    assert 0.02 < most[:, :3].mean() < 0.5  # sixteen actions with a visit each, or nearly


def kernel_action(decision: Decision) -> int:
    """The most visited action of a recorded search, the first of equals."""
    legal = np.empty(kernel.MAX_LEGAL, np.int64)
    kernel.write_legal(decision.packed, RULES.code, legal)
    return int(legal[decision.policy.argmax()])


def test_a_share_of_games_is_not_resigned() -> None:
    games = play_group(64, resign=0.9, resign_share=0.5).values()
    assert 0.25 < np.mean([game.resigned for game in games]) < 0.75
    assert not any(game.resigned for game in play_group(16, resign=0.9, resign_share=0.0).values())


def test_openings_and_full_searches_have_their_shares() -> None:
    games = list(play_group(64, opening_share=0.5, opening_plies=10, full_share=0.3).values())
    started = np.mean([game.start != 0 for game in games])
    assert 0.3 < started < 0.65
    recorded = sum(len(game.decisions) for game in games)
    assert recorded / sum(len(game.actions) for game in games) == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("skew", [1.0, 2.0])
def test_openings_are_as_long_as_their_skew_has_it(skew: float) -> None:
    """Of 5 numbers of plies, n is drawn with chance ((n + 1) / 5)^(1 / skew) - (n / 5)^(1 / skew).

    No sphere can be raised or taken back so early, so spheres count the plies.
    """
    config = SelfPlayConfig(games=4000, opening_share=1.0, opening_plies=4, opening_skew=skew)
    group = GameGroup(RULES, SearchConfig(simulations=1), config, 7, 0, 1)
    spheres = np.bitwise_count(group.packed & ((1 << kernel.SIDE_SHIFT) - 1))
    shares = np.bincount(spheres, minlength=5) / 4000
    assert shares == pytest.approx(np.diff((np.arange(6) / 5) ** (1 / skew)), abs=0.03)


def test_openings_end_with_a_turn() -> None:
    for key in range(300):
        start = selfplay.random_opening(RULES.code, key, key % 40)
        assert not kernel.take_backs_left(start)
        assert not kernel.is_over(start, RULES.code)


# A run


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    return RunFolder(folder, writable=False).load("latest").weights


def run_quietly(config: AlphaZeroConfig) -> list[Scalars]:
    sink = MemorySink()
    train(config, Metrics([sink]))
    return [event for event in sink.events if isinstance(event, Scalars)]


def test_a_run_leaves_a_ladder(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    config.evaluation.early_steps = [1]
    config.evaluation.opponents = ["rule_based", "alphabeta:1"]
    events = run_quietly(config)
    tags = {tag for event in events for tag in event.values}
    documented = {name for name, tag in TAGS.items() if tag.kind == "scalar"}
    of_others = {name for name in documented if name.startswith(("league/", "env/", "cluster/"))}
    of_ppo = {f"train/{name}" for name in ("clip_fraction", "approx_kl", "explained_variance")}
    of_ppo |= {"eval/avg_episode_reward", "perf/steps_per_second"}
    assert tags == documented - of_others - of_ppo
    run = RunFolder(tmp_path, writable=False)
    manifest = run.manifest()
    assert len(manifest.checkpoints) >= 2
    assert manifest.checkpoints[-1].step == 40
    assert manifest.checkpoints[0].step < config.evaluation.every_steps
    assert run.best() is not None
    history = run.metadata().elo_history
    assert len(history) == len(manifest.checkpoints)
    player = load_evaluator(load_weights(run.latest() or ""))
    assert player.rules == RULES


def test_a_run_leaves_the_callers_arithmetic_alone(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    assert float(torch.tensor(1e-40) * 1) > 0


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        run_quietly(tiny(tmp_path / name, seed=seed))
    one, two, three = (last_weights(tmp_path / name) for name in ("one", "two", "three"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], three[name]) for name in one)


def test_processes_play_the_games_of_threads(tmp_path: Path) -> None:
    threads, processes = tiny(tmp_path / "threads"), tiny(tmp_path / "processes")
    processes.selfplay.backend = "processes"
    run_quietly(threads)
    run_quietly(processes)
    one, two = last_weights(tmp_path / "threads"), last_weights(tmp_path / "processes")
    assert all(torch.equal(one[name], two[name]) for name in one)
    games = [
        RunFolder(tmp_path / name, writable=False).load("latest").state["groups"]  # type: ignore[index]
        for name in ("threads", "processes")
    ]
    assert str(games[0]) == str(games[1])


def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    workers = Processes(config)
    with closing(workers):
        workers._processes[1].kill()
        workers._processes[1].join()
        with pytest.raises(PylosError, match="self-play process 1 ended by itself"):
            workers.begin(build(config.network, RULES))


@pytest.mark.parametrize(("after", "learnt", "saved"), [(1, False, 0), (7, True, 0), (11, True, 1)])
def test_an_interrupted_run_goes_on_bit_for_bit(
    tmp_path: Path, after: int, learnt: bool, saved: int
) -> None:
    """Stopped before learning begins, before the first checkpoint, and after it."""
    run_quietly(tiny(tmp_path / "whole"))
    config = tiny(tmp_path / "parts")
    with RunFolder(tmp_path / "parts") as folder:
        trainer = Trainer(config, folder)
        cycles = itertools.count(1)
        cycle = trainer.cycle

        def counted(*args: object) -> None:
            cycle(*args)  # type: ignore[arg-type]
            if next(cycles) == after:
                trainer.stopped.set()

        trainer.cycle = counted  # type: ignore[method-assign]
        trainer.run(Metrics([MemorySink()]))
        assert trainer.learner.steps < 40
        assert (trainer.learner.steps > 0) == learnt
        assert len(folder.manifest().checkpoints) == saved
    run_quietly(dataclasses.replace(config, resume=str(tmp_path / "parts"), run=""))
    whole, parts = last_weights(tmp_path / "whole"), last_weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    states = [
        RunFolder(tmp_path / name, writable=False).load("latest").state
        for name in ("whole", "parts")
    ]
    assert states[0] is not None
    assert states[1] is not None
    for state in states:
        state.pop("seconds")  # type: ignore[union-attr]
    assert str(states[0]["groups"]) == str(states[1]["groups"])
    assert states[0]["judge"]["results"] == states[1]["judge"]["results"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A run of its own, the first of its group of processes."""
    command = [sys.executable, "-m", "trainers.alphazero", "experiment=smoke", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("send", "number", "backend"),
    [
        (os.kill, signal.SIGINT, "threads"),
        (os.killpg, signal.SIGINT, "processes"),  # as a terminal does
        (os.killpg, signal.SIGTERM, "processes"),  # as whoever stops a service does
    ],
)
def test_a_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, send: Callable[[int, int], None], number: signal.Signals, backend: str
) -> None:
    words = ("run=first", "budget.steps=100000", "console=plain", f"selfplay.backend={backend}")
    child = start(tmp_path, *words)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("first/checkpoints/*.safetensors")):
        assert time.monotonic() < deadline
        assert child.poll() is None, child.communicate()
        time.sleep(0.2)
    send(child.pid, number)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert "resume=" in out + err
    assert "stopping and saving" in err
    step = RunFolder(tmp_path / "first", writable=False).load("latest").info.step
    resumed = subprocess.run(
        [
            sys.executable,
            "-m",
            "trainers.alphazero",
            "resume=first",
            f"budget.steps={step + 5}",
            "console=plain",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert RunFolder(tmp_path / "first", writable=False).load("latest").info.step == step + 5


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize(("name", "count"), [("games", 16), ("games", 4), ("groups", 1)])
def test_a_run_goes_on_with_as_many_games_as_it_had(
    tmp_path: Path, backend: str, name: str, count: int
) -> None:
    config = tiny(tmp_path, budget=BudgetConfig(minutes=0, steps=1))
    run_quietly(config)
    other = dataclasses.replace(config.selfplay, backend=backend, **{name: count})  # type: ignore[arg-type]
    with pytest.raises(PylosError, match=rf"selfplay\.{name}: the run has \d, got {count}"):
        train(dataclasses.replace(config, run="", resume=str(tmp_path), selfplay=other))


def test_a_budget_of_games_or_minutes_ends_a_run(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path / "games", budget=BudgetConfig(minutes=0, games=60)))
    run_quietly(tiny(tmp_path / "minutes", budget=BudgetConfig(minutes=0.02)))
    counters = [
        RunFolder(tmp_path / name, writable=False).load("latest").info.counters
        for name in ("games", "minutes")
    ]
    assert 60 <= counters[0]["games"] < 60 + 2 * 8 * 6  # at most a cycle more
    assert counters[1]["seconds"] >= 1.2


def test_a_budget_too_small_to_learn_is_told_and_can_go_on(tmp_path: Path) -> None:
    sink = MemorySink()
    config = tiny(tmp_path, budget=BudgetConfig(minutes=0, games=1))
    config.replay.start = 1000
    train(config, Metrics([sink]))
    texts = [event.text for event in sink.events if isinstance(event, Message)]
    assert any("nothing was learnt" in text and "replay.start" in text for text in texts)
    assert any(re.search(r"resume=.* budget\.games=\d+", text) for text in texts)
    more = dataclasses.replace(config, run="", resume=str(tmp_path), budget=BudgetConfig(0, 0, 3))
    run_quietly(more)
    assert RunFolder(tmp_path, writable=False).load("latest").info.step == 3


@pytest.mark.parametrize(("score", "passes"), [(0.45, False), (0.5, True)])
def test_a_candidate_has_to_pass_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: float, passes: bool
) -> None:
    """The first checkpoint is the best there is; one that scores too little does not replace it."""
    match = MatchResult("candidate", "best", (), 0)
    monkeypatch.setattr(MatchResult, "score", score)
    monkeypatch.setattr(Judge, "gate", lambda *args: match)
    events = run_quietly(tiny(tmp_path))
    asked = [event.values for event in events if "gate/score" in event.values]
    assert asked
    assert all(values["gate/accepted"] == passes for values in asked)
    run = RunFolder(tmp_path, writable=False)
    steps = [entry.step for entry in run.manifest().checkpoints]
    best = run.best()
    assert best is not None
    assert load_weights(best).info.step == (steps[-1] if passes else steps[0])


def test_a_run_of_other_rules_is_not_resumed(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    config = tiny(tmp_path, rules="mature", run="", resume=str(tmp_path))
    with pytest.raises(CheckpointError, match=r"'advanced'.*'mature'"):
        train(config)


def test_a_run_with_a_network_of_another_make_is_not_resumed(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    config = tiny(tmp_path, run="", resume=str(tmp_path), network=NetworkConfig(width=24, blocks=1))
    with pytest.raises(PylosError, match=r"saved with another network, .*width=16.*width=24"):
        train(config)


def test_a_network_grows_where_a_run_goes_on(tmp_path: Path) -> None:
    """More blocks: the same answers at first, and then they learn too."""
    symmetric = NetworkConfig("symmetric", width=16, blocks=1)
    run_quietly(tiny(tmp_path / "first", network=symmetric))
    grown = dataclasses.replace(symmetric, blocks=3)
    folder = RunFolder(tmp_path / "first", writable=False)
    before = folder.load("latest").weights
    config = tiny(tmp_path / "second", initial=str(tmp_path / "first" / "latest"), network=grown)
    rng, small, large = np.random.default_rng(0), build(symmetric, RULES), first_network(config)
    small.load_state_dict(before)
    seen = torch.from_numpy(rng.integers(-1, 2, (5, 33)).astype(np.float32))
    with torch.inference_mode():
        assert torch.equal(small(seen).logits, large(seen).logits)
        assert torch.equal(small(seen).value, large(seen).value)

    budget = BudgetConfig(minutes=0, steps=60)
    resume = str(tmp_path / "first")
    run_quietly(tiny(tmp_path, run="", resume=resume, network=grown, budget=budget))
    after = folder.load("latest")
    assert after.info.step == 60
    assert after.info.network["blocks"] == 3
    assert after.weights["body.3.layers.last.pairs"].abs().sum() > 0
    with pytest.raises(PylosError, match=r"saved with another network, .*blocks=3.*blocks=1"):
        train(tiny(tmp_path, run="", resume=resume, network=symmetric, budget=budget))


def test_a_run_that_has_spent_its_budget_says_so(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    sink = MemorySink()
    budget = BudgetConfig(minutes=0, steps=20)
    train(tiny(tmp_path, run="", resume=str(tmp_path), budget=budget), Metrics([sink]))
    messages = [event.text for event in sink.events if isinstance(event, Message)]
    assert any("the budget is spent" in text and "40 steps" in text for text in messages)
    assert RunFolder(tmp_path, writable=False).load("latest").info.step == 40


def test_a_run_begins_with_the_weights_of_another(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path / "first"))
    weights = RunFolder(tmp_path / "first", writable=False).load("latest").weights
    config = tiny(tmp_path / "second", initial=str(tmp_path / "first" / "latest"))
    begun = first_network(config).state_dict()
    assert begun.keys() == weights.keys()
    assert all(torch.equal(begun[name], weights[name]) for name in begun)
    fresh = first_network(tiny(tmp_path / "second")).state_dict()
    assert any(not torch.equal(begun[name], fresh[name]) for name in begun)
    run_quietly(config)


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path / "first"))
    initial = str(tmp_path / "first" / "latest")
    wider = NetworkConfig(width=24, blocks=1)
    for config, message in (
        (tiny(tmp_path / "second", initial=initial, network=wider), "another network"),
        (tiny(tmp_path / "second", initial=initial, rules="mature"), "'advanced'.*'mature'"),
        (tiny(tmp_path / "second", initial=str(tmp_path / "none")), "no checkpoint"),
    ):
        with pytest.raises(ConfigError, match=f"^initial: .*{message}"):
            train(config)


# Configs


def composed(*overrides: str) -> AlphaZeroConfig:
    with initialize_config_dir(str(paths.configs() / "alphazero"), version_base="1.3"):
        config = OmegaConf.to_object(compose("config", overrides=list(overrides)))
    assert isinstance(config, AlphaZeroConfig)
    return config


EXPERIMENTS = sorted(p.stem for p in (paths.configs() / "alphazero/experiment").glob("*.yaml"))
NETWORKS = sorted(p.stem for p in (paths.configs() / "alphazero/network").glob("*.yaml"))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_can_run(experiment: str) -> None:
    words = ["device=cpu"] if experiment == "gpu" else []
    check(composed(f"experiment={experiment}", *words))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_composes(name: str) -> None:
    config = composed(f"network={name}")
    assert config.network.kind == name
    build(config.network, RULES)


def test_the_defaults_are_the_dataclass() -> None:
    config = composed()
    assert dataclasses.asdict(config) == dataclasses.asdict(AlphaZeroConfig())


def test_the_classic_experiment_is_the_customers() -> None:
    config = composed("experiment=classic")
    assert (config.budget.games, config.budget.minutes) == (2000, 0)
    assert (config.search.root, config.search.simulations) == ("puct", 64)
    assert (config.search.c_puct, config.search.dirichlet_alpha) == (1.5, 0.3)
    assert config.selfplay.temperature_plies == 15
    assert config.network.kind == "mlp"
    assert (config.learner.batch, config.replay.capacity) == (128, 512)
    assert (config.learner.learning_rate, config.learner.weight_decay) == (1e-3, 1e-4)
    assert Rules.of(config.rules).take_back == "greedy"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("search.simulations=0", "search.simulations"),
        ("search.temperature=-1", "search.temperature"),
        ("rules=chess", "rules: unknown rules 'chess'"),
        ("network.width=0", "network.width"),
        ("learner.reuse=-1", "learner.reuse"),
        ("learner.batch=0", "learner.batch"),
        ("learner.schedule=step", "learner.schedule"),
        ("selfplay.quick_simulations=65", "selfplay.quick_simulations"),
        ("selfplay.full_share=1.5", "selfplay.full_share"),
        ("selfplay.backend=cluster", "selfplay.backend"),
        ("evaluation.games=7", "evaluation.games"),
        ("evaluation.early_steps=[0]", "evaluation.early_steps"),
        ("budget.minutes=0", "budget"),
        ("budget.minutes=-3", "budget.minutes"),
        ("device=tpu", "device"),
        ("replay.start=2000000", "replay.start"),
        ("selfplay.opening_skew=0", "selfplay.opening_skew"),
        ("search.prior_temperature=0", "search.prior_temperature"),
        ("search.prior_temperature=1e-45", "search.prior_temperature"),
        ("search.c_puct=inf", "search.c_puct"),
        ("search.gumbel_scale=nan", "search.gumbel_scale"),
        ("search.simulations=1000000000", "search.simulations"),
        ("search.max_considered=304", "search.max_considered"),
        ("selfplay.full_share=0", "selfplay.full_share"),
        ("learner.reuse=0", "learner.reuse"),
        ("learner.clip=inf", "learner.clip"),
        ("budget.minutes=inf", "budget.minutes"),
        ("evaluation.every_minutes=inf", "evaluation.every_minutes"),
        ("evaluation.opponents=[chess]", "evaluation.opponents"),
        ("evaluation.opponents=['checkpoint:nowhere']", "evaluation.opponents"),
    ],
)
def test_impossible_configs_are_refused_by_name(override: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        check(composed(override))
    assert message.partition(":")[0] in str(caught.value)


def test_the_command_refuses_before_work_begins(tmp_path: Path) -> None:
    for word, message in (
        ("search.simulation=3", "search.simulation: there is no such setting, perhaps search.sim"),
        ("+serch.simulations=3", "serch.simulations: there is no such setting"),
        ("search.simulations=0", "simulations"),
        ("rules=chess", "unknown rules"),
        ("initial=nobody", "nobody"),
        ("resume=nowhere", "nowhere"),
    ):
        command = [sys.executable, "-m", "trainers.alphazero", word, "budget.steps=1"]
        child = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        out, err = child.stdout, child.stderr
        assert child.returncode != 0
        assert message in out + err
        assert "Traceback" not in err
        assert not list(tmp_path.rglob("runs/alphazero/*"))
    assert not (tmp_path / "nowhere").exists()


def test_a_refused_run_keeps_what_lay_in_the_folder_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    command = [sys.executable, "-m", "trainers.alphazero", "rules=chess", f"run={tmp_path}"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    overrides = [f"resume={tmp_path}", "budget.steps=99", "console=off"]
    with initialize_config_dir(str(paths.configs() / "alphazero"), version_base="1.3"):
        given = compose("config", overrides)
    config = OmegaConf.to_object(command.resumed(AlphaZeroConfig, given, overrides))
    assert isinstance(config, AlphaZeroConfig)
    assert config.network.width == 16
    assert config.budget.steps == 99
    assert config.console == "off"  # a word, though YAML takes it for false
