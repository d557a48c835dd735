"""The parts of `symmetric` networks, to which all eight images of a board are one.

What such a network says of a turned or mirrored board is what it says of the board, turned or
mirrored: by how it is made, not by what it has learnt. Each of its `width / 8` channels has eight
numbers, one for each symmetry: what a single set of weights makes of the board turned back by it. A
symmetry of the board permutes the eight.

Layers have to treat the permutations alike, and that is cheap to do among *waves*: an orthogonal
change of basis (`WAVES`) splits the eight numbers into four that every symmetry keeps or negates,
and two pairs that symmetries turn. A layer has one matrix for each of the four and one for both
pairs: a fifth of the products of an ordinary layer, and an eighth of its weights. Features of a
body's layers are waves, [batch, 8 * channels], those behind its end are one number for each
symmetry again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pylos_env.geometry import ACTION_SYMMETRIES
from trainers.pattern_rows import make_board, row_images, rows_seen
from trainers.patterns import Looks, added_rows, learns_here
from trainers.search.tree import Ints
from trainers.waves import (
    EPSILON,
    INVERSES,
    SYMMETRIES,
    WAVES,
    gate,
    gate_back,
    normalise,
    normalise_back,
    widen,
    widen_back,
)


class SymmetricPatterns(nn.Module):
    """The first layer: adds up the rows of a table that `pattern_rows` finds in a position, and in
    its seven images.
    """

    images: Tensor
    waves: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.looks = Looks()
        self.board = make_board()
        table = torch.randn(self.board.nothing, width // SYMMETRIES)
        table *= 0.5 / len(self.board.begins) ** 0.5
        table[self.board.states :] *= 0.2
        self.table = nn.Parameter(table)
        images = row_images(self.board)[INVERSES]
        self.register_buffer("images", torch.from_numpy(images), persistent=False)
        self.register_buffer("waves", torch.from_numpy(WAVES), persistent=False)

    def forward(self, flat: Tensor) -> Tensor:
        if learns_here(self.table):
            numbers = torch.from_numpy(rows_seen(flat.numpy(), self.board))
            return added_rows(numbers, self.wide())
        rows, states, counts = self.looks(flat)
        table = self.rows()
        begin, end = self.board.states, self.board.counts
        looked_up = functional.embedding(rows, table).sum(dim=1)
        seen: Tensor = looked_up + states.flatten(1) @ table[begin:end] + table[end + counts]
        return seen

    def rows(self) -> Tensor:
        """The table as one without symmetries would have it, [rows, width]."""
        spread = self.table[self.images[:, :-1]]  # [symmetries, rows, channels]
        return torch.einsum("wg,grc->rwc", self.waves, spread).flatten(1)

    def wide(self) -> Tensor:
        """The same by a kernel, and a row of zeros behind it for rows that are missing."""
        wide: Tensor = _Wide.apply(self.table, self.images)  # type: ignore[no-untyped-call]
        return wide


class SymmetricLinear(nn.Module):
    """A linear layer among waves, for what `split` makes of features."""

    def __init__(self, inputs: int, outputs: int, zero: bool = False) -> None:
        super().__init__()
        self.singles = _matrices((4, outputs, inputs), zero)
        self.pairs = _matrices((2 * outputs, 2 * inputs), zero)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, singles: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        matrices, matrix, bias = self.matrices()
        return torch.baddbmm(bias, singles, matrices), pairs @ matrix

    def matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """[4, inputs, outputs], [2 inputs, 2 outputs] and what is added to the first, whose last
        three parts a symmetry may negate and therefore have none.
        """
        bias = functional.pad(self.bias.unsqueeze(0), (0, 0, 0, 3)).unsqueeze(1)
        return self.singles.mT, self.pairs.T, bias


def _matrices(shape: tuple[int, ...], zero: bool) -> nn.Parameter:
    weights = torch.empty(shape).uniform_(-1, 1) / shape[-1] ** 0.5
    return nn.Parameter(torch.zeros_like(weights) if zero else weights)


def split(waves: Tensor) -> tuple[Tensor, Tensor]:
    """Features [batch, 8 * channels] as single waves [4, batch, channels] and pairs of them
    [2 * batch, 2 * channels].
    """
    channels = waves.shape[1] // SYMMETRIES
    singles, pairs = waves.chunk(2, dim=1)
    by_wave = singles.reshape(-1, 4, channels).transpose(0, 1)
    return by_wave, pairs.reshape(-1, 2 * channels)


def join(singles: Tensor, pairs: Tensor) -> Tensor:
    """The reverse of `split`."""
    halves = singles.transpose(0, 1).flatten(1), pairs.reshape(-1, 2 * pairs.shape[1])
    return torch.cat(halves, dim=1)


def _apart(waves: Tensor) -> Tensor:
    """Features [batch, 8 * channels] as [batch, 8, channels]."""
    return waves.reshape(-1, SYMMETRIES, waves.shape[1] // SYMMETRIES)


class Norm(nn.Module):
    """Features divided by their root mean square: turning waves does not change it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width // SYMMETRIES))

    def forward(self, waves: Tensor) -> Tensor:
        size = waves.float().square().mean(dim=1, keepdim=True)
        return waves * (size + EPSILON).rsqrt().to(waves.dtype) * self.scale.repeat(SYMMETRIES)


class SymmetricGate(nn.Module):
    """Two layers side by side, one of them the other's factor, and a third behind their product."""

    waves: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        channels = width // SYMMETRIES
        self.norm = Norm(width)
        self.pair = SymmetricLinear(channels, 2 * channels)
        self.last = SymmetricLinear(channels, channels, zero=True)  # a fresh block changes nothing
        self.register_buffer("waves", torch.from_numpy(WAVES), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        if learns_here(self.norm.scale):
            parts = _Normalised.apply(features.float(), self.norm.scale)  # type: ignore[no-untyped-call]
            singles, pairs = self.pair(*parts)
            product = _Product.apply(singles.float(), pairs.float())  # type: ignore[no-untyped-call]
            return join(*self.last(*product))
        singles, pairs = self.pair(*split(self.norm(features)))
        seen = torch.einsum("wg,nwc->ngc", self.waves, _apart(join(singles, pairs)))
        factor, opened = seen.chunk(2, dim=-1)
        product = torch.einsum("wg,ngc->nwc", self.waves, factor * opened.relu())
        return join(*self.last(*split(product.flatten(1))))


class SymmetricEnd(nn.Module):
    """The end of a body: from waves to features for heads, one number for each symmetry."""

    waves: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.shift = nn.Parameter(torch.zeros(width // SYMMETRIES))
        self.register_buffer("waves", torch.from_numpy(WAVES), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        waves = _apart(self.norm(features))
        seen = torch.einsum("wg,nwc->ngc", self.waves, waves) + self.shift
        return seen.relu().flatten(1)


class SymmetricHead(nn.Module):
    """A linear layer whose outputs symmetries permute; `images` [8, outputs] says where each goes.

    `weight` and `bias` are those of an ordinary linear layer.
    """

    images: Tensor

    def __init__(self, width: int, images: Ints) -> None:
        super().__init__()
        channels = width // SYMMETRIES
        weights = torch.empty(images.shape[1], channels).uniform_(-1, 1) / width**0.5
        self.base = nn.Parameter(weights)
        self.base_bias = nn.Parameter(torch.zeros(images.shape[1]))
        self.register_buffer("images", torch.from_numpy(images[INVERSES]), persistent=False)

    @property
    def weight(self) -> Tensor:
        return self.base[self.images].transpose(0, 1).flatten(1)

    @property
    def bias(self) -> Tensor:
        return self.base_bias[self.images].mean(dim=0)

    def forward(self, features: Tensor) -> Tensor:
        return functional.linear(features, self.weight, self.bias)


def policy_head(width: int) -> SymmetricHead:
    return SymmetricHead(width, ACTION_SYMMETRIES)


def value_head(width: int, values: int) -> SymmetricHead:
    """Of a value, which no symmetry changes."""
    return SymmetricHead(width, np.tile(np.arange(values), (SYMMETRIES, 1)))


class _Wide(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, table: Tensor, images: Tensor) -> Tensor:
        context.save_for_backward(images)
        rows, channels = context.shape = table.shape
        wide = table.new_empty(rows + 1, SYMMETRIES, channels)
        widen(table.detach().numpy(), images.numpy(), wide.numpy())
        return wide.flatten(1)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (images,) = context.saved_tensors
        of_wide = _apart(gradients[0].contiguous())
        found = of_wide.new_zeros(context.shape)
        widen_back(of_wide.numpy(), images.numpy(), found.numpy())
        return found, None


class _Normalised(torch.autograd.Function):
    """`Norm`, then `split`."""

    @staticmethod
    def forward(context: Any, features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        context.save_for_backward(features, scale)
        batch, channels = len(features), len(scale)
        singles = features.new_empty(4, batch, channels)
        pairs = features.new_empty(2 * batch, 2 * channels)
        normalise(features.numpy(), scale.detach().numpy(), singles.numpy(), pairs.numpy())
        return singles, pairs

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        features, scale = context.saved_tensors
        of_singles, of_pairs = (gradient.contiguous().numpy() for gradient in gradients)
        found, found_scale = torch.empty_like(features), torch.zeros_like(scale)
        normalise_back(
            features.numpy(),
            scale.numpy(),
            of_singles,
            of_pairs,
            found.numpy(),
            found_scale.numpy(),
        )
        return found, found_scale


class _Product(torch.autograd.Function):
    """The product of factor and gate, from waves to waves."""

    @staticmethod
    def forward(context: Any, singles: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        context.save_for_backward(singles, pairs)
        channels = singles.shape[2] // 2
        product = singles.new_empty(*singles.shape[:2], channels)
        product_pairs = pairs.new_empty(len(pairs), 2 * channels)
        gate(singles.numpy(), pairs.numpy(), product.numpy(), product_pairs.numpy())
        return product, product_pairs

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        singles, pairs = context.saved_tensors
        of_product, of_pairs = (gradient.contiguous().numpy() for gradient in gradients)
        found, found_pairs = torch.empty_like(singles), pairs.new_empty(pairs.shape)
        gate_back(
            singles.numpy(), pairs.numpy(), of_product, of_pairs, found.numpy(), found_pairs.numpy()
        )
        return found, found_pairs
