"""Policy-value networks, and the device they run on.

| kind | sees | body |
|---|---|---|
| `symmetric` | flat | rows of a table, then gated blocks: see `symmetric` |
| `patterns` | flat | a table for each square and line, then blocks as in `resmlp` |
| `mlp` | flat | 512, 256; one linear layer for each head |
| `mlp_deep` | flat | 512, 512, 256; heads of 256; orthogonal initialisation |
| `resmlp` | flat | `blocks` residual blocks of two layers, `width` wide |
| `resnet` | planes | `blocks` residual blocks of two 3x3 convolutions with `channels` channels |

Every network answers with logits for the 303 actions, legal or not, and a value for the side to
move: a number in [-1, 1], or chances of winning, drawing and losing (`value_head="wdl"`) whose
difference is the value. `masked` leaves only the legal actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from pylos_env.errors import PylosError
from pylos_env.geometry import NUM_CELLS
from pylos_env.kernel import NUM_ACTIONS
from pylos_env.observation import ObservationKind, Observer
from pylos_env.options import check_count
from pylos_env.rules import Rules
from trainers import symmetric
from trainers.patterns import Patterns
from trainers.waves import SYMMETRIES

NetworkKind = Literal["symmetric", "patterns", "mlp", "mlp_deep", "resmlp", "resnet"]
ValueHead = Literal["scalar", "wdl"]
MASKED: Final = -1e4
"""The logit of an illegal action: its share is exactly 0 in half precision too."""
HEAD_CHANNELS: Final = 8
LINEAR_HEADS: Final = (nn.Linear, symmetric.SymmetricHead)
"""Heads that are one product with their `weight`, and their `bias`."""


@dataclass
class NetworkConfig:
    """Which network, and how large."""

    kind: str = "resmlp"
    """symmetric (for rules that are), patterns, mlp, mlp_deep, resmlp or resnet."""
    width: int = 256
    """symmetric, patterns, resmlp: width of the blocks."""
    blocks: int = 2
    """symmetric, patterns, resmlp, resnet: residual blocks."""
    channels: int = 64
    """resnet: channels of the convolutions."""
    gated: bool = False
    """patterns: blocks multiply two layers with each other, and a table knows how many spheres each
    side has on the board."""
    value_head: str = "scalar"
    """scalar: one number; wdl: chances of winning, drawing, losing."""
    canonical: bool = False
    """Show it each position under the one of the board's symmetries that comes first: it has an
    eighth to learn, unless it is symmetric itself. Without effect where the rules are not."""

    def check(self) -> None:
        """Refuse what cannot work; the message begins with the setting's name."""
        if self.kind not in get_args(NetworkKind):
            raise ValueError(f"kind: expected one of {get_args(NetworkKind)}, got {self.kind!r}")
        if self.value_head not in get_args(ValueHead):
            raise ValueError(
                f"value_head: expected one of {get_args(ValueHead)}, got {self.value_head!r}"
            )
        for name in ("width", "blocks", "channels"):
            check_count(name, getattr(self, name))
        if self.kind == "symmetric" and self.width % SYMMETRIES:
            raise ValueError(f"width: a symmetric network needs a multiple of 8, got {self.width}")
        if self.gated and self.kind != "patterns":
            raise ValueError(f"gated: only the kind 'patterns' has it, got {self.kind!r}")

    @property
    def observation(self) -> ObservationKind:
        """What the network sees."""
        return "planes" if self.kind == "resnet" else "flat"


class Output(NamedTuple):
    """What a network says of a batch of observations."""

    logits: Tensor  # [batch, 303]
    value: Tensor  # [batch], for the side to move
    wdl: Tensor | None  # [batch, 3]: logits of win, draw, loss where the head has them


class PolicyValueNetwork(nn.Module):
    """A body that makes features, a policy head and a value head."""

    def __init__(
        self, body: nn.Module, policy: nn.Module, value: nn.Module, config: NetworkConfig
    ) -> None:
        super().__init__()
        self.config = config
        self.body = body
        self.policy = policy
        self.value = value

    def forward(self, observation: Tensor) -> Output:
        features = self.body(observation)
        return self.valued(features)._replace(logits=self.policy(features))

    def valued(self, features: Tensor) -> Output:
        """What the value head says of the body's features; without logits."""
        value, none = self.value(features), features[:, :0]
        if self.config.value_head == "wdl":
            win, _, loss = value.softmax(dim=-1).unbind(dim=-1)
            return Output(none, win - loss, value)
        return Output(none, value.squeeze(-1).tanh(), None)


def build(config: NetworkConfig, rules: Rules) -> PolicyValueNetwork:
    """A fresh network; seed torch beforehand for a repeatable one."""
    config.check()
    if config.kind == "symmetric" and not rules.symmetric:
        raise ValueError(
            f"kind: a symmetric network cannot know the rules '{rules}', which are not"
        )
    shape = Observer(config.observation, rules).shape
    values = 3 if config.value_head == "wdl" else 1
    if config.kind == "mlp":
        body = _layers((shape[0], 512, 256))
        policy, value = nn.Linear(256, NUM_ACTIONS), nn.Linear(256, values)
        return PolicyValueNetwork(body, policy, value, config)
    if config.kind == "mlp_deep":
        return _mlp_deep(shape[0], values, config)
    if config.kind == "symmetric":
        width = config.width
        body = nn.Sequential(
            symmetric.SymmetricPatterns(width),
            *(ResidualBlock(symmetric.SymmetricGate(width)) for _ in range(config.blocks)),
            symmetric.SymmetricEnd(width),
        )
        heads = symmetric.policy_head(width), symmetric.value_head(width, values)
        return PolicyValueNetwork(body, *heads, config)
    if config.kind in ("resmlp", "patterns"):
        width = config.width
        first: nn.Module = Patterns(shape[0], width, counts=config.gated)
        if config.kind == "resmlp":
            first = nn.Sequential(SplitCells(), nn.Linear(shape[0] + NUM_CELLS, width))
        inner = Gate if config.gated else _inner_layers
        body = nn.Sequential(
            first,
            *(ResidualBlock(inner(width)) for _ in range(config.blocks)),
            nn.LayerNorm(width),
            nn.ReLU(),
        )
        policy, value = nn.Linear(width, NUM_ACTIONS), nn.Linear(width, values)
        return PolicyValueNetwork(body, policy, value, config)
    return _resnet(shape, values, config)


def carried_over(
    weights: Mapping[str, Tensor], theirs: NetworkConfig, network: PolicyValueNetwork
) -> dict[str, Tensor]:
    """Weights of another network for this fresh one: the same, or symmetric with more blocks.

    New blocks come after the old ones, and a fresh block changes nothing: both answer alike.
    """
    ours = network.config
    added = ours.blocks - theirs.blocks
    grows = ours.kind == "symmetric" and added > 0
    if theirs != (replace(ours, blocks=theirs.blocks) if grows else ours):
        raise PylosError(f"another network, {theirs} instead of {ours}")
    grown = dict(network.state_dict())
    for name, tensor in weights.items():
        part, number, *rest = name.split(".")
        if part == "body" and int(number) > theirs.blocks:  # what comes after the blocks
            number = str(int(number) + added)
        grown[".".join((part, number, *rest))] = tensor
    return grown


def _layers(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    return nn.Sequential(*layers)


class SplitCells(nn.Module):
    """Own and other spheres as two sets of cells: a linear layer can then tell empty cells."""

    def forward(self, flat: Tensor) -> Tensor:
        cells = flat[:, :NUM_CELLS]
        return torch.cat((cells.relu(), (-cells).relu(), flat[:, NUM_CELLS:]), dim=1)


class ResidualBlock(nn.Module):
    """Adds what its layers make of the input to the input."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, features: Tensor) -> Tensor:
        added: Tensor = self.layers(features)
        return features + added


class Gate(nn.Module):
    """Two layers side by side, one of them the other's factor, and a third behind their product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.pair = nn.Linear(width, 2 * width)
        self.last = nn.Linear(width, width)
        nn.init.zeros_(self.last.weight)  # a fresh block changes nothing

    def forward(self, features: Tensor) -> Tensor:
        factor, gate = self.pair(self.norm(features)).chunk(2, dim=-1)
        added: Tensor = self.last(factor * gate.relu())
        return added


def _inner_layers(width: int) -> nn.Module:
    last = nn.Linear(width, width)
    nn.init.zeros_(last.weight)  # a fresh block changes nothing
    return nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)


def _mlp_deep(inputs: int, values: int, config: NetworkConfig) -> PolicyValueNetwork:
    body = _layers((inputs, 512, 512, 256))
    policy = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, NUM_ACTIONS))
    value = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, values))
    network = PolicyValueNetwork(body, policy, value, config)
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=2**0.5)
            nn.init.zeros_(layer.bias)
    for head, gain in ((policy, 0.01), (value, 1.0)):  # a fresh policy is nearly uniform
        last = head[-1]
        assert isinstance(last, nn.Linear)
        nn.init.orthogonal_(last.weight, gain=gain)
    return network


def _convolution(inputs: int, outputs: int, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class ConvolutionBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolution(channels, channels)
        self.second = _convolution(channels, channels)

    def forward(self, features: Tensor) -> Tensor:
        added = self.second(functional.relu(self.first(features)))
        return functional.relu(features + added)


def _resnet(shape: Sequence[int], values: int, config: NetworkConfig) -> PolicyValueNetwork:
    planes, rows, cols = shape
    channels = config.channels
    body = nn.Sequential(
        _convolution(planes, channels),
        nn.ReLU(),
        *(ConvolutionBlock(channels) for _ in range(config.blocks)),
    )

    def head(outputs: int) -> nn.Module:
        return nn.Sequential(
            _convolution(channels, HEAD_CHANNELS, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(HEAD_CHANNELS * rows * cols, 128),
            nn.ReLU(),
            nn.Linear(128, outputs),
        )

    return PolicyValueNetwork(body, head(NUM_ACTIONS), head(values), config)


def fast_dtype(device: torch.device) -> torch.dtype:
    """The number type in which this device evaluates networks fastest."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    has_instructions = device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if has_instructions else torch.float32


def mixed_precision(device: torch.device, precision: str = "auto") -> torch.autocast:
    """Products of matrices in bfloat16 where the device has instructions for it, or as asked for.

    Weights, sums and everything else stay float32, so that it can be learnt in.
    """
    fast = precision == "bfloat16" or fast_dtype(device) == torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=fast and precision != "float32")


def masked(logits: Tensor, mask: Tensor) -> Tensor:
    """The logits of legal actions; illegal ones get a large finite negative."""
    return logits.masked_fill(mask == 0, MASKED)


def available_devices() -> list[str]:
    """The kinds of device that torch can use here, the fastest first."""
    devices = []
    if torch.cuda.is_available():
        devices.append("cuda")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return [*devices, "cpu"]


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is the fastest there is; a device that is not there is an error."""
    there = available_devices()
    if name == "auto":
        return torch.device(there[0])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise PylosError(f"unknown device {name!r}: expected auto or one of {there}") from None
    if device.type not in there:
        raise PylosError(f"the device {name!r} is not available: this machine has {there}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise PylosError(f"there is no {name}: this machine has {torch.cuda.device_count()}")
    return device
