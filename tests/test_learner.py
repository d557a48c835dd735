"""The learner: losses, optimisers, schedule."""

from __future__ import annotations

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch

from tests.alphazero_tools import RULES, fixed_batch, make_replay, numbered
from trainers.alphazero.config import LearnerConfig
from trainers.alphazero.learner import (
    Learner,
    legal_losses_of,
    losses_of,
    make_optimisers,
    wdl_targets,
)
from trainers.network import NetworkConfig, build


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
    errors = torch.where(batch.weight == 0, 1, (output.value - batch.value).abs())
    assert torch.equal(losses.errors, errors)


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
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, full_gradients[name], atol=1e-5), name


def test_wdl_targets_have_the_value_as_their_difference() -> None:
    values = torch.linspace(-1, 1, 9)
    targets = wdl_targets(values)
    assert torch.allclose(targets[:, 0] - targets[:, 2], values)
    assert torch.allclose(targets.sum(-1), torch.ones(9))
    assert targets.min() >= 0


def test_accumulated_parts_give_the_whole_batchs_step() -> None:
    replay = make_replay()
    replay.add(numbered(0, 40)._replace(value=np.zeros(40, np.float32)))
    weights, errors = [], []
    for parts in (1, 4):
        torch.manual_seed(0)
        net = build(NetworkConfig(width=16, blocks=1), RULES)
        config = LearnerConfig(accumulate=parts, warmup=0, amp=False)
        learner = Learner(net, config, torch.device("cpu"))
        for _ in range(3):
            learner.step(fixed_batch(replay, 32), 0.0)
        errors.append(learner.begin_step(fixed_batch(replay, 32), 0.0).errors)
        weights.append(torch.cat([p.flatten() for p in learner.network.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-5)
    assert torch.allclose(errors[0], errors[1], atol=1e-5)


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
