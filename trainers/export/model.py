"""A network as one graph: all that `players.Evaluator` does between observation and answer.

A canonical network knows each position under one of the board's eight symmetries only. Whoever
runs an exported file should not have to know that, so the graph itself turns the observation and
turns the logits back.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from pylos_env.geometry import ACTION_SYMMETRIES, CELL_SYMMETRIES, CELLS, NUM_CELLS
from pylos_env.kernel import BLACK_SHIFT
from pylos_env.observation import Observer
from pylos_env.rules import Rules
from trainers.network import PolicyValueNetwork
from trainers.patterns import Patterns

NUM_SYMMETRIES = len(CELL_SYMMETRIES)
CELL_PLANES = 12  # own spheres, the other's, cells that would carry one: four levels each


class Answer(NamedTuple):
    """What the graph gives, in this order; `wdl` only where the head has it."""

    logits: Tensor  # [batch, 303], before masking
    value: Tensor  # [batch], for the side to move
    wdl: Tensor | None = None  # [batch, 3]: chances of winning, drawing, losing


class Exported(nn.Module):
    """From observations as `pylos_env.observation` writes them to logits of the same positions."""

    def __init__(self, network: PolicyValueNetwork, rules: Rules) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        for layer in self.network.modules():
            if isinstance(layer, Patterns):
                layer.table = SummedRows(layer.table.weight)  # type: ignore[assignment]
        observer = Observer(network.config.observation, rules)
        self.shape = observer.shape
        canonical = network.config.canonical and rules.symmetric
        self.view = CanonicalView(observer) if canonical else None
        self.eval()

    @property
    def output_names(self) -> tuple[str, ...]:
        wdl = self.network.config.value_head == "wdl"
        return Answer._fields if wdl else Answer._fields[:2]

    def forward(self, observation: Tensor) -> tuple[Tensor, ...]:
        if self.view is None:
            output, logits = self.network(observation), None
        else:
            shown, symmetry = self.view(observation)
            output = self.network(shown)
            logits = output.logits.gather(1, self.view.actions[symmetry])
        answer = (output.logits if logits is None else logits, output.value)
        return answer if output.wdl is None else (*answer, output.wdl.softmax(dim=-1))


class SummedRows(nn.Module):
    """An `EmbeddingBag` that adds up; the bag itself would become a loop in ONNX."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, numbers: Tensor) -> Tensor:
        return functional.embedding(numbers, self.weight).sum(dim=1)


class CanonicalView(nn.Module):
    """Turns observations as `kernel.canonical_symmetry` turns positions."""

    weights: Tensor
    sources: Tensor
    actions: Tensor

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.planes = observer.planes
        # [30, 8]: what a sphere on a cell adds to the number that the images are ordered by
        self.register_buffer("weights", torch.from_numpy(1 << CELL_SYMMETRIES.T))
        self.register_buffer("sources", torch.from_numpy(sources_of(observer)))
        self.register_buffer("actions", torch.from_numpy(ACTION_SYMMETRIES))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """The observations of the first images, and the symmetries that lead there."""
        own, other = self._spheres(observation)
        order = other @ self.weights * (1 << BLACK_SHIFT) + own @ self.weights
        # the symmetry's own number is the last digit: no two are alike, and the first one wins
        numbers = torch.arange(NUM_SYMMETRIES)
        symmetry = (order * NUM_SYMMETRIES + numbers).argmin(dim=1)
        turned = observation.flatten(1).gather(1, self.sources[symmetry])
        return turned.reshape(observation.shape), symmetry

    def _spheres(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each cell has an own sphere, and the other's: [batch, 30] each."""
        if not self.planes:
            cells = observation[:, :NUM_CELLS]
            return (cells > 0).long(), (cells < 0).long()
        places = torch.tensor([_place(0, cell) for cell in range(NUM_CELLS)])
        seen = observation.flatten(1)
        own, other = seen[:, places], seen[:, places + _place(4, 0)]
        return own.long(), other.long()


def _place(plane: int, cell: int) -> int:
    """Where a cell stands in flattened planes, its level counted from `plane` on."""
    level, row, col = CELLS[cell]
    return (plane + level) * 16 + row * 4 + col


def sources_of(observer: Observer) -> npt.NDArray[np.int64]:
    """[8, size]: from where each number of a turned position's observation comes."""
    sources = np.tile(np.arange(observer.size), (NUM_SYMMETRIES, 1))
    for symmetry, images in enumerate(CELL_SYMMETRIES.tolist()):
        for cell, image in enumerate(images):
            if not observer.planes:
                sources[symmetry, image] = cell
                continue
            for plane in range(0, CELL_PLANES, 4):
                sources[symmetry, _place(plane, image)] = _place(plane, cell)
    return sources
