"""The kernels of gated patterns and of symmetric networks against the networks themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pylos_env import Rules, kernel
from pylos_env.testing import random_game
from trainers import patterns
from trainers.evaluator import Evaluator, write_observations
from trainers.inference import Inference
from trainers.network import NetworkConfig, PolicyValueNetwork, build
from trainers.pattern_kernel import PatternKernel, can_run
from trainers.search.tree import Ints
from trainers.symmetric_kernel import SymmetricKernel

CPU = torch.device("cpu")
KERNELS = {"patterns": PatternKernel, "symmetric": SymmetricKernel}


def positions(rules: Rules, games: int) -> Ints:
    found = [
        position.packed
        for seed in range(games)
        for position in random_game(rules, seed).positions()
        if position.legal_actions()
    ]
    return np.array(found, dtype=np.int64)


def network(
    rules: Rules, seed: int = 0, canonical: bool = True, kind: str = "patterns"
) -> PolicyValueNetwork:
    """A network with no weight left at its first value: a fresh block would do nothing."""
    torch.manual_seed(seed)
    gated = kind == "patterns"
    config = NetworkConfig(kind, width=24, blocks=2, canonical=canonical, gated=gated)
    net = build(config, rules)
    with torch.no_grad():
        for weights in net.parameters():
            weights += 0.1 * torch.randn_like(weights)
    return net


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((kind, text) for kind in KERNELS for text in ("advanced", "mature", "advanced levels=3")),
        ("patterns", "advanced greedy"),
    ],
)
def test_the_kernel_answers_as_the_network_does(kind: str, text: str, canonical: bool) -> None:
    rules = Rules.of(text)
    evaluator = Evaluator(network(rules, canonical=canonical, kind=kind), rules, CPU)
    assert isinstance(evaluator.kernel, KERNELS[kind])
    packed = positions(rules, games=20)
    logits, values = evaluator(packed)
    evaluator.kernel = None  # torch's own layers
    expected_logits, expected_values = evaluator(packed)
    assert np.abs(values - expected_values).max() < 1e-5
    assert np.std(expected_values) > 0.05  # there is something to get wrong
    for row, position in enumerate(packed.tolist()):
        legal = kernel.legal_actions(position, rules.code)
        assert np.allclose(logits[row, legal], expected_logits[row, legal], atol=1e-4)
        assert np.count_nonzero(logits[row]) <= len(legal)


@pytest.mark.parametrize("kind", ["mlp", *KERNELS])
def test_nothing_to_answer_is_answered(kind: str) -> None:
    rules = Rules.of("advanced")
    logits, values = Evaluator(network(rules, kind=kind), rules, CPU)(np.empty(0, dtype=np.int64))
    assert (logits.shape, values.shape) == ((0, kernel.NUM_ACTIONS), (0,))


@pytest.mark.parametrize("kind", KERNELS)
def test_positions_are_answered_alone_as_in_a_batch(kind: str) -> None:
    rules = Rules.of("advanced")
    answer = KERNELS[kind](network(rules, kind=kind), rules)
    packed = positions(rules, games=2)
    logits, values = answer(packed)
    for row in range(len(packed)):
        alone_logits, alone_value = answer(packed[row : row + 1])
        assert np.allclose(alone_logits[0], logits[row], atol=1e-5)
        assert np.allclose(alone_value[0], values[row], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("patterns", "body.0.table.weight"),
        ("patterns", "body.1.layers.pair.bias"),
        ("patterns", "policy.bias"),
        ("symmetric", "body.0.table"),
        ("symmetric", "body.1.layers.pair.bias"),
        ("symmetric", "body.1.layers.last.pairs"),
        ("symmetric", "policy.base_bias"),
    ],
)
def test_what_is_no_number_is_not_hidden(kind: str, name: str) -> None:
    rules = Rules.of("advanced")
    net = network(rules, kind=kind)
    net.state_dict()[name].fill_(float("nan"))
    logits, values = KERNELS[kind](net, rules)(positions(rules, games=1))
    assert not np.isfinite(logits).all()
    assert np.isfinite(values).all() == name.startswith("policy.")


@pytest.mark.parametrize("kind", KERNELS)
def test_new_weights_reach_the_kernel(kind: str) -> None:
    rules = Rules.of("advanced")
    evaluator = Evaluator(network(rules, seed=0, kind=kind), rules, CPU)
    other = network(rules, seed=1, kind=kind)
    packed = positions(rules, games=1)
    before = evaluator(packed)[1]
    evaluator.take(other)
    expected = Evaluator(other, rules, CPU)(packed)[1]
    assert not np.allclose(before, expected)
    assert np.array_equal(evaluator(packed)[1], expected)
    first = network(rules, seed=0, kind=kind).state_dict()
    arrays = {name: tensor.numpy() for name, tensor in first.items()}
    evaluator.load(arrays)
    assert np.array_equal(evaluator(packed)[1], before)


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("background", [False, True])
def test_late_answers_are_the_kernels(background: bool, kind: str) -> None:
    rules = Rules.of("advanced")
    evaluator = Evaluator(network(rules, kind=kind), rules, CPU)
    inference = Inference(evaluator, background)
    parts = np.array_split(positions(rules, games=2), 3)
    pending = [inference.submit(part) for part in parts]
    for part, answer in zip(parts, pending, strict=True):
        logits, values = answer()
        assert np.array_equal(logits, evaluator(part)[0])
        assert np.array_equal(values, evaluator(part)[1])
    inference.close()


def test_other_networks_are_left_to_torch() -> None:
    assert not can_run(NetworkConfig("patterns"))
    assert not can_run(NetworkConfig("patterns", gated=True, value_head="wdl"))
    rules = Rules.of("advanced")
    evaluator = Evaluator(network(rules), rules, CPU, torch.bfloat16)
    assert not isinstance(evaluator.kernel, PatternKernel)


def test_learning_sees_the_network_that_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of the first layer give the values and gradients of torch's own operations."""
    rules = Rules.of("advanced")
    net = network(rules)
    packed = positions(rules, games=3)
    seen = np.empty((len(packed), 33), dtype=np.float32)
    write_observations(packed, rules.code, False, seen)
    flat = torch.from_numpy(seen)
    found = []
    for by_kernel in (True, False):
        if not by_kernel:
            monkeypatch.setattr(patterns, "learns_here", lambda weight: False)
        net.zero_grad()
        output = net(flat)
        (output.logits.square().mean() + output.value.square().mean()).backward()
        gradients = {name: weight.grad for name, weight in net.named_parameters()}
        found.append((output, gradients))
    (one, one_gradients), (other, other_gradients) = found
    assert torch.allclose(one.logits, other.logits, atol=1e-4)
    assert torch.allclose(one.value, other.value, atol=1e-5)
    for name, gradient in one_gradients.items():
        assert gradient is not None
        assert gradient.abs().max() > 0
        assert torch.allclose(gradient, other_gradients[name], atol=1e-5), name
