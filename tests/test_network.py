"""Networks: what they take and give, how they begin, where they run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pylos_env import Position, PylosError, Rules, kernel
from pylos_env.agents.features import threats
from pylos_env.observation import Observer
from pylos_env.oracle.labels import load_labels
from trainers import network
from trainers.network import (
    MASKED,
    NetworkConfig,
    build,
    choose_device,
    masked,
)
from trainers.patterns import Patterns, Table

KINDS = ["symmetric", "patterns", "mlp", "mlp_deep", "resmlp", "resnet"]


def observations(kind: str, rules: Rules) -> torch.Tensor:
    """A few positions of a game as the network sees them."""
    observer = Observer(NetworkConfig(kind).observation, rules)
    position = Position.start(rules)
    seen = []
    for number in range(12):
        seen.append(observer.observe(position.packed, position.side))
        legal = position.legal_actions()
        position = position.play(legal[number % len(legal)])
    return torch.from_numpy(np.stack(seen))


@pytest.mark.parametrize("head", ["scalar", "wdl"])
@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (kind, rules)
        for kind in KINDS
        for rules in ("advanced", "advanced greedy")
        if kind != "symmetric" or Rules.of(rules).symmetric
    ],
)
def test_every_network_gives_logits_and_a_value(kind: str, head: str, rules: str) -> None:
    torch.manual_seed(0)
    net = build(NetworkConfig(kind, value_head=head), Rules.of(rules)).eval()
    batch = observations(kind, Rules.of(rules))
    logits, value, wdl = net(batch)
    assert logits.shape == (12, 303)
    assert value.shape == (12,)
    assert value.abs().max() <= 1
    assert value.std() > 0, "the value does not depend on the position"
    if head == "wdl":
        shares = wdl.softmax(-1)
        assert torch.allclose(value, shares[:, 0] - shares[:, 2])
    else:
        assert wdl is None


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_see_each_other_when_playing(kind: str) -> None:
    """Batch statistics must not leak between games: networks play in eval mode."""
    net = build(NetworkConfig(kind), Rules.of("advanced")).eval()
    batch = observations(kind, Rules.of("advanced"))
    together = net(batch).logits
    alone = torch.cat([net(batch[row : row + 1]).logits for row in range(len(batch))])
    assert torch.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns(kind: str) -> None:
    torch.manual_seed(0)
    net = build(NetworkConfig(kind), Rules.of("advanced"))
    batch = observations(kind, Rules.of("advanced"))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    before = {name: tensor.clone() for name, tensor in net.named_parameters()}
    for _ in range(2):  # a block that begins with zeros passes gradients on from the second step
        logits, value, _ = net(batch)
        optimiser.zero_grad()
        (logits.logsumexp(-1) - logits[:, 3] + (value - 0.5) ** 2).mean().backward()
        optimiser.step()
    frozen = [name for name, tensor in net.named_parameters() if torch.equal(tensor, before[name])]
    assert not frozen


def test_patterns_are_numbered_by_what_stands_on_their_cells() -> None:
    """Each square with its top and each line has a row for everything that it can look like."""
    net = build(NetworkConfig("patterns", width=8), Rules.of("advanced"))
    first = net.body[0]  # type: ignore[index]
    assert isinstance(first, Patterns)
    of_square = 3**4 + 2 * 2**4  # there is something on top only where all four below are taken
    assert first.table.num_embeddings == 14 * of_square + 8 * 3**4 + 6 * 3**3
    asked: list[torch.Tensor] = []
    first.table.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[0]))
    batch = observations("patterns", Rules.of("advanced"))
    first(batch)
    squares = [[0, 1, 4, 5, 16], [1, 2, 5, 6, 17], [2, 3, 6, 7, 18]]  # the first three of them
    looks = [
        (*below, top)
        for top in (-1, 0, 1)
        for below in itertools.product((-1, 0, 1), repeat=4)
        if top == 0 or 0 not in below
    ]
    looks.sort(key=lambda spheres: spheres[::-1])  # the first cell is the lowest digit
    for row, flat in enumerate(batch[:, :30].int().tolist()):
        for number, cells in enumerate(squares):
            expected = looks.index(tuple(flat[cell] for cell in cells)) + number * of_square
            assert asked[0][row, number] == expected
    assert asked[0].max() < first.table.num_embeddings


def cells_seen(position: Position) -> list[list[int]]:
    """The sets of cells that the patterns network is given beside its tables."""
    net = build(NetworkConfig("patterns", width=8), position.rules)
    first = net.body[0]  # type: ignore[index]
    assert isinstance(first, Patterns)
    asked: list[torch.Tensor] = []
    first.cells.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[0]))
    observer = Observer("flat", position.rules)
    first(torch.from_numpy(observer.observe(position.packed, position.side))[None])
    *sets, _ = asked[0][0].split([30] * 7 + [3])
    return [cells.nonzero().flatten().tolist() for cells in sets]


def test_patterns_see_free_spheres_and_open_cells() -> None:
    position = Position.parse("WB..BW........../W......../..../. b 0")
    own, other, own_free, other_free, open_cells, _, _ = cells_seen(position)
    assert own == [1, 4]
    assert other == [0, 5, 16]
    assert own_free == []
    assert other_free == [16]
    assert open_cells == [2, 3, *range(6, 16)]


def test_patterns_see_the_cells_that_complete_a_formation() -> None:
    rules = Rules.of("advanced")
    found = 0
    for packed in load_labels(rules).packed[:200].tolist():
        if kernel.take_backs_left(packed):
            continue
        side = kernel.side_of(packed)
        seats = [kernel.spheres_of(packed, seat) for seat in (side, 1 - side)]
        cells = kernel.open_cells(seats[0] | seats[1], rules.code)
        expected = [threats(spheres, cells, rules.code) for spheres in seats]
        seen = cells_seen(Position.unchecked(packed, rules))[5:]
        assert [sum(1 << cell for cell in cells) for cells in seen] == expected
        found += bool(expected[0]) + bool(expected[1])
    assert found > 50


def test_the_customers_sizes() -> None:
    def widths(kind: str, part: str) -> list[int]:
        net = build(NetworkConfig(kind), Rules.of("advanced"))
        layers = getattr(net, part).modules()
        return [layer.out_features for layer in layers if isinstance(layer, torch.nn.Linear)]

    assert widths("mlp", "body") == [512, 256]
    assert widths("mlp_deep", "body") == [512, 512, 256]
    assert widths("mlp_deep", "policy") == [256, 303]
    assert widths("mlp_deep", "value") == [256, 1]


def test_the_deep_mlp_begins_orthogonal_and_undecided() -> None:
    torch.manual_seed(0)
    net = build(NetworkConfig("mlp_deep"), Rules.of("advanced"))
    weight = net.body[2].weight  # 512 x 512
    assert torch.allclose(weight @ weight.T, 2 * torch.eye(512), atol=1e-3)
    shares = net(observations("mlp_deep", Rules.of("advanced"))).logits.softmax(-1)
    assert shares.max() < 1.2 / 303


def test_sizes_can_be_chosen() -> None:
    def count(config: NetworkConfig) -> int:
        net = build(config, Rules.of("advanced"))
        return sum(tensor.numel() for tensor in net.parameters())

    assert count(NetworkConfig(blocks=4)) > count(NetworkConfig()) > count(NetworkConfig(width=64))
    assert count(NetworkConfig("resnet", channels=32)) < count(NetworkConfig("resnet", channels=64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masked_actions_have_no_share_in_any_precision(dtype: torch.dtype) -> None:
    position = Position.start()
    mask = torch.from_numpy(position.action_mask())
    logits = torch.linspace(-30, 30, 303, dtype=dtype)
    shares = masked(logits, mask).float().softmax(-1)
    assert shares[mask == 0].sum() == 0
    assert shares[mask == 1].sum() == pytest.approx(1, abs=1e-3)
    assert torch.isfinite(masked(logits, mask)).all()
    assert torch.finfo(torch.float16).min < MASKED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cnn"}, "kind: expected one of"),
        ({"value_head": "mean"}, "value_head"),
        ({"width": 0}, "width"),
        ({"blocks": -1}, "blocks"),
    ],
)
def test_bad_configs_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(NetworkConfig(**change), Rules.of("advanced"))


def test_auto_takes_the_fastest_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu").type == "cpu"
    monkeypatch.setattr(network, "available_devices", lambda: ["cuda", "mps", "cpu"])
    assert choose_device("auto").type == "cuda"
    monkeypatch.setattr(network, "available_devices", lambda: ["mps", "cpu"])
    assert choose_device("auto").type == "mps"
    monkeypatch.setattr(network, "available_devices", lambda: ["cpu"])
    assert choose_device("auto").type == "cpu"
    with pytest.raises(PylosError, match=r"'cuda' is not available: this machine has \['cpu'\]"):
        choose_device("cuda")
    with pytest.raises(PylosError, match="unknown device 'gpu'"):
        choose_device("gpu")


def test_a_card_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "available_devices", lambda: ["cuda", "cpu"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(PylosError, match="no cuda:3: this machine has 1"):
        choose_device("cuda:3")


def test_gradients_of_a_table_are_those_of_torch() -> None:
    torch.manual_seed(0)
    table = Table(50, 8, mode="sum").double()
    numbers = torch.randint(0, 50, (40, 6))
    numbers[:, 3] = numbers[:, 2]  # a row may come twice
    weights = torch.randn(40, 8, dtype=torch.float64)
    found = []
    for answer in (table(numbers), torch.nn.EmbeddingBag.forward(table, numbers)):
        (gradient,) = torch.autograd.grad((answer * weights).sum(), table.weight)
        found.append((answer.detach(), gradient))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][1], found[1][1])
    assert found[0][1].abs().sum() > 0
