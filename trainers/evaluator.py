"""Evaluator: a network as the function from positions to logits and values that `search` asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pylos_env import kernel
from pylos_env._jit import jit, jit_sums
from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.kernel import NUM_ACTIONS
from pylos_env.observation import Observer
from pylos_env.rules import Rules
from trainers import pattern_kernel, symmetric_kernel
from trainers.checkpoints import CheckpointError
from trainers.network import LINEAR_HEADS, NetworkConfig, PolicyValueNetwork
from trainers.pattern_kernel import PatternKernel, write_legal_logits
from trainers.products import linear
from trainers.search.tree import Floats, Ints
from trainers.symmetric_kernel import SymmetricKernel

BATCH_STEP: Final = 64
"""Batches in bfloat16 on a CPU have so many rows, or twice, three times, ... as many: a product is
prepared anew for every number of rows that has not come before, and that takes longer than the
product."""


class Evaluator:
    """A network as a function from packed positions to logits and values: see `search`."""

    def __init__(
        self,
        network: PolicyValueNetwork,
        rules: Rules,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.rules = rules
        self.device = device
        self.dtype = dtype
        self.network = network.to(device, dtype).eval()
        self.observer = Observer(network.config.observation, rules)
        self.canonical = network.config.canonical and rules.symmetric
        padded = device.type == "cpu" and dtype == torch.bfloat16
        self._batch_step = BATCH_STEP if padded else 1
        self.kernel: SymmetricKernel | PatternKernel | LegalOnly | None = None
        if device.type == "cpu" and dtype == torch.float32 and has_kernel(network.config):
            symmetric = network.config.kind == "symmetric"
            make = SymmetricKernel if symmetric else PatternKernel
            self.kernel = make(self.network, rules)
        elif device.type == "cpu" and isinstance(network.policy, LINEAR_HEADS):
            self.kernel = LegalOnly(self)

    def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
        return self.full(packed) if self.kernel is None else self.kernel(packed)

    def full(self, packed: Ints) -> tuple[Floats, Floats]:
        """The same by the network's own layers: logits of all actions, legal or not."""
        shown, symmetries = self.shown(packed)
        logits, values = self.ask(shown)
        if self.canonical:
            logits = turned_back(logits, symmetries, ACTION_SYMMETRIES)
        return logits, values

    def shown(self, packed: Ints) -> tuple[Ints, Ints]:
        """The positions as the network has to see them, and the symmetries that turned them."""
        if not self.canonical:
            return packed, np.zeros_like(packed)
        shown, symmetries = np.empty_like(packed), np.empty_like(packed)
        write_canonical(packed, shown, symmetries)
        return shown, symmetries

    def ask(self, packed: Ints) -> tuple[Floats, Floats]:
        """The same for positions as they are: a canonical network has to be shown its own."""
        count = len(packed)
        with torch.inference_mode():
            output = self.network(self.observed(packed))
        logits, values = output.logits[:count], output.value[:count]
        return logits.float().cpu().numpy(), values.float().cpu().numpy()

    def observed(self, packed: Ints) -> torch.Tensor:
        """What the network sees of positions; where their number is rounded up, the rest is 0."""
        rows = -(-len(packed) // self._batch_step) * self._batch_step
        observation = np.zeros((rows, self.observer.size), dtype=np.float32)
        write_observations(packed, self.rules.code, self.observer.planes, observation)
        batch = torch.from_numpy(observation.reshape(-1, *self.observer.shape))
        return batch.to(self.device, self.dtype)

    def take(self, network: PolicyValueNetwork) -> None:
        """Go on with another network's weights."""
        self.load(network.state_dict())

    @torch.no_grad()
    def load(self, weights: Mapping[str, torch.Tensor | npt.NDArray[np.float32]]) -> None:
        """Go on with other weights, those that another process has sent among them."""
        for name, mine in self.network.state_dict().items():
            given = weights[name]
            # an array is copied: one from another process may be read-only
            mine.copy_(given if isinstance(given, torch.Tensor) else torch.tensor(given))
        if self.kernel is not None:
            self.kernel.take(self.network)

    def check_rules(self, rules: Rules, name: str) -> None:
        if rules != self.rules:
            raise CheckpointError(
                f"{name} was trained under the rules '{self.rules}', but the game has '{rules}'"
            )


def has_kernel(config: NetworkConfig) -> bool:
    """Whether a kernel of our own runs such a network on a CPU, in float32."""
    return pattern_kernel.can_run(config) or symmetric_kernel.can_run(config)


class LegalOnly:
    """An evaluator's network on a CPU, its linear policy head asked for legal actions only.

    A position has some seven of them among 303; the logits of all others are 0. A linear value head
    is a kernel's work too.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self.take(evaluator.network)

    def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
        evaluator, network = self._evaluator, self._evaluator.network
        shown, symmetries = evaluator.shown(packed)
        with torch.inference_mode():
            features = _features(network.body, evaluator.observed(shown))
            seen = features.float().numpy()
            if self._value is None:
                values = network.valued(features).value[: len(packed)].float().numpy()
            else:
                values = np.empty(len(packed), dtype=np.float32)
                write_values(seen, *self._value, values)
        logits = np.zeros((len(packed), NUM_ACTIONS), dtype=np.float32)
        code, images = evaluator.rules.code, ACTION_SYMMETRIES
        write_legal_logits(packed, code, symmetries, images, seen, self._weight, self._bias, logits)
        return logits, values

    @torch.no_grad()
    def take(self, network: PolicyValueNetwork) -> None:
        """Go on with another network's heads."""
        head = network.policy
        assert isinstance(head, LINEAR_HEADS)
        self._weight: Floats = head.weight.float().numpy().copy()  # [303, features]
        self._bias: Floats = head.bias.float().numpy().copy()  # [303]
        self._value: tuple[Floats, float] | None = None
        if isinstance(network.value, LINEAR_HEADS) and network.config.value_head == "scalar":
            weight = network.value.weight.float().numpy().ravel().copy()
            self._value = weight, float(network.value.bias)


def _features(body: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """What a body makes of a batch."""
    if not isinstance(body, nn.Sequential):
        made: torch.Tensor = body(batch)
        return made
    layers = deque(body)
    while layers:
        layer = layers.popleft()
        if isinstance(layer, nn.Linear):
            relu = bool(layers) and isinstance(layers[0], nn.ReLU)
            if relu:
                layers.popleft()
            batch = linear(batch, layer.weight, layer.bias, relu)
        else:
            batch = layer(batch)
    return batch


@jit_sums
def write_values(features: Floats, weight: Floats, bias: float, values: Floats) -> None:
    """What a linear value head says of features [at least the values, width]."""
    for row in range(len(values)):
        seen = features[row]
        worth = np.float32(bias)
        for column in range(len(weight)):
            worth += seen[column] * weight[column]
        values[row] = np.tanh(worth)


@jit
def write_canonical(packed: Ints, shown: Ints, symmetries: Ints) -> None:
    """Each position as a canonical network sees it, and the symmetry that turned it."""
    for row in range(len(packed)):
        symmetries[row] = kernel.canonical_symmetry(packed[row])
        shown[row] = kernel.symmetric(packed[row], symmetries[row])


@jit
def turned_back(logits: Floats, symmetries: Ints, images: Ints) -> Floats:
    """Logits of turned positions, in the numbers of the positions themselves."""
    turned = np.empty_like(logits)
    for row in range(len(logits)):
        image = images[symmetries[row]]
        for action in range(logits.shape[1]):
            turned[row, action] = logits[row, image[action]]
    return turned


@jit
def write_observations(packed: Ints, rules: int, planes: bool, out: Floats) -> None:
    for row in range(len(packed)):
        kernel.write_observation(packed[row], rules, kernel.side_of(packed[row]), planes, out[row])
