"""Symmetric networks: the symmetry itself, and their kernels against torch's own operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pylos_env import Rules, kernel
from pylos_env.geometry import ACTION_SYMMETRIES, CELL_SYMMETRIES
from pylos_env.testing import random_game
from trainers import symmetric
from trainers.alphazero.muon import Muon
from trainers.evaluator import write_observations
from trainers.network import NetworkConfig, Output, PolicyValueNetwork, build
from trainers.pattern_rows import MOST_ROWS, make_board, row_images, write_rows
from trainers.search.tree import Ints
from trainers.symmetric import join, split
from trainers.waves import INVERSES, WAVES, from_waves, to_waves

RULES = Rules.of("advanced")


def positions(games: int, rules: Rules = RULES) -> Ints:
    found = [
        position.packed
        for seed in range(games)
        for position in random_game(rules, seed).positions()
        if position.legal_actions()
    ]
    return np.array(found, dtype=np.int64)


def network(value_head: str = "scalar", seed: int = 0) -> PolicyValueNetwork:
    """With no weight left at its first value: a fresh block would do nothing."""
    torch.manual_seed(seed)
    config = NetworkConfig("symmetric", width=24, blocks=2, value_head=value_head)
    net = build(config, RULES)
    with torch.no_grad():
        for weights in net.parameters():
            weights += 0.1 * torch.randn_like(weights)
    return net


def observed(packed: Ints) -> torch.Tensor:
    seen = np.empty((len(packed), 33), dtype=np.float32)
    write_observations(packed, RULES.code, False, seen)
    return torch.from_numpy(seen)


def test_waves_are_an_orthogonal_basis_in_which_symmetries_do_not_mix() -> None:
    assert np.allclose(WAVES @ WAVES.T, np.eye(8), atol=1e-6)
    index = {tuple(cells): number for number, cells in enumerate(CELL_SYMMETRIES.tolist())}
    for one, cells in enumerate(CELL_SYMMETRIES):
        assert tuple(cells[CELL_SYMMETRIES[INVERSES[one]]]) == tuple(range(30))
        # what becomes of the eight numbers of a channel when `one` turns the board
        moved = [index[tuple(cells[other])] for other in CELL_SYMMETRIES]
        turned = np.zeros((8, 8))
        turned[moved, np.arange(8)] = 1
        among_waves = WAVES @ turned @ WAVES.T
        singles, pairs = among_waves[:4, :4], among_waves[4:, 4:]
        assert np.allclose(singles, np.diag(np.diag(singles)), atol=1e-6)
        assert np.allclose(among_waves[:4, 4:], 0, atol=1e-6)
        assert np.allclose(pairs, np.kron(pairs[::2, ::2], np.eye(2)), atol=1e-6)


def test_the_kernels_make_and_undo_waves() -> None:
    numbers = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    waves, again = np.empty_like(numbers), np.empty_like(numbers)
    to_waves(numbers.copy(), waves)
    assert np.allclose(waves, WAVES @ numbers, atol=1e-6)
    from_waves(waves, again)
    assert np.allclose(again, numbers, atol=1e-6)


def test_parts_of_waves_join_again() -> None:
    waves = torch.randn(3, 40)
    singles, pairs = split(waves)
    assert singles.shape == (4, 3, 5)
    assert pairs.shape == (6, 10)
    assert torch.equal(join(singles, pairs), waves)


def test_rows_of_an_image_are_images_of_the_rows() -> None:
    board = make_board()
    images = row_images(board)
    rows = np.empty(MOST_ROWS, dtype=np.int64)
    for packed in positions(games=5).tolist():
        mine = rows[: write_rows(packed, board, rows)].copy()
        for symmetry in range(8):
            image = rows[: write_rows(kernel.symmetric(packed, symmetry), board, rows)]
            assert sorted(images[symmetry, mine]) == sorted(image)
    for image in images:
        assert sorted(image) == list(range(board.nothing + 1))


@pytest.mark.parametrize("value_head", ["scalar", "wdl"])
@pytest.mark.parametrize("by_kernel", [True, False])
def test_a_turned_board_is_answered_by_the_turned_answer(value_head: str, by_kernel: bool) -> None:
    net = network(value_head)
    packed = positions(games=5)

    def ask(packed: Ints) -> Output:
        with torch.set_grad_enabled(by_kernel):
            return net(observed(packed))  # type: ignore[no-any-return]

    expected = ask(packed)
    assert expected.value.std() > 0.05
    assert expected.logits.std() > 0.05
    for symmetry in range(8):
        found = ask(np.array([kernel.symmetric(one, symmetry) for one in packed.tolist()]))
        assert torch.allclose(found.value, expected.value, atol=1e-5)
        turned = found.logits[:, ACTION_SYMMETRIES[symmetry]]
        assert torch.allclose(turned, expected.logits, atol=1e-5)


def test_the_kernels_learn_as_torch_would(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    flat = observed(positions(games=3))
    found = []
    for by_kernel in (True, False):
        if not by_kernel:
            monkeypatch.setattr(symmetric, "learns_here", lambda weight: False)
        net.zero_grad()
        output = net(flat)
        (output.logits.square().mean() + output.value.square().mean()).backward()
        gradients = {name: weight.grad for name, weight in net.named_parameters()}
        found.append((output, gradients))
    (one, one_gradients), (other, other_gradients) = found
    assert torch.allclose(one.logits, other.logits, atol=1e-5)
    assert torch.allclose(one.value, other.value, atol=1e-5)
    for name, gradient in one_gradients.items():
        assert gradient is not None
        assert gradient.abs().max() > 0
        assert torch.allclose(gradient, other_gradients[name], rtol=1e-3, atol=1e-6), name


def test_widths_that_do_not_split_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^width: .* multiple of 8, got 20"):
        build(NetworkConfig("symmetric", width=20), RULES)


def test_rules_that_are_not_symmetric_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^kind: .*advanced greedy"):
        build(NetworkConfig("symmetric"), Rules.of("advanced greedy"))


def test_muon_moves_matrices_as_torch_does_and_stacks_of_them_too() -> None:
    torch.manual_seed(0)
    begun = [torch.randn(shape) for shape in ((8, 5), (5, 8), (8, 5))]
    mine, theirs = ([torch.nn.Parameter(one.clone()) for one in begun] for _ in range(2))
    stack = torch.nn.Parameter(torch.stack([begun[0], begun[2]]))
    optimisers = [
        Muon([{"params": mine}], lr=0.1, weight_decay=0.01),
        Muon([{"params": [stack]}], lr=0.1, weight_decay=0.01),
        torch.optim.Muon(theirs, lr=0.1, weight_decay=0.01),
    ]
    for _ in range(4):
        for one, other in zip(mine, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        stack.grad = torch.stack([one.grad for one in (mine[0], mine[2]) if one.grad is not None])
        for optimiser in optimisers:
            optimiser.step()
    for one, other, first in zip(mine, theirs, begun, strict=True):
        assert (one - first).abs().max() > 0.1
        assert torch.allclose(one, other, atol=1e-2)  # torch's is in bfloat16 on any processor
    assert torch.allclose(stack, torch.stack([mine[0], mine[2]]), atol=1e-3)
