"""The first layer of `patterns` networks, and what it sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from pylos_env._jit import jit
from pylos_env.geometry import LINE_MASKS, NUM_CELLS, SQUARE_MASKS, SUPPORTS
from trainers.pattern_rows import (
    COUNT_STEP,
    NUM_COUNTS,
    NUM_STATES,
    cells_of,
    make_board,
    number_rows,
    pattern_cells,
    rows_seen,
)


class Looks(nn.Module):
    """What there is to see of flat observations, by torch's operations on any device.

    As `pattern_rows.write_rows` finds it from the bits of a position: the row of what each pattern
    looks like [batch, patterns], whether each cell is in each state [batch, states, cells], and the
    number of the counts of spheres [batch].
    """

    powers: Tensor
    begins: Tensor
    row_of: Tensor
    supports: Tensor
    needed: Tensor
    formations: Tensor
    nearly: Tensor

    def __init__(self) -> None:
        super().__init__()
        patterns = pattern_cells()
        powers = torch.zeros(NUM_CELLS, len(patterns))
        for number, cells in enumerate(patterns):
            for power, cell in enumerate(cells):
                powers[cell, number] = 3**power
        begins, row_of, _ = number_rows()
        supports = torch.zeros(NUM_CELLS, NUM_CELLS)  # [below, above]
        for above in range(NUM_CELLS):
            supports[cells_of(SUPPORTS[above]), above] = 1
        masks = [*SQUARE_MASKS, *LINE_MASKS]
        formations = torch.zeros(NUM_CELLS, len(masks))
        for number, mask in enumerate(masks):
            formations[cells_of(mask), number] = 1
        # none of these is saved: they follow from the board
        self.register_buffer("powers", powers, persistent=False)
        self.register_buffer("begins", torch.from_numpy(begins), persistent=False)
        self.register_buffer("row_of", torch.from_numpy(row_of), persistent=False)
        self.register_buffer("supports", supports, persistent=False)
        self.register_buffer("needed", supports.sum(dim=0), persistent=False)
        self.register_buffer("formations", formations, persistent=False)
        self.register_buffer("nearly", formations.sum(dim=0) - 1, persistent=False)

    def forward(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cells = flat[:, :NUM_CELLS]
        numbers = (cells.float() + 1) @ self.powers.float()  # exact, in bfloat16 too: below 256
        own, other, taken = cells.relu(), (-cells).relu(), cells.abs()
        free = (taken @ self.supports.T == 0).to(cells.dtype)
        open_cells = (1 - taken) * (taken @ self.supports == self.needed)
        threats = (self._completing(own) * open_cells, self._completing(other) * open_cells)
        covered = 1 - free
        spheres = (own * covered, own * free, other * covered, other * free)
        counts = own.float().sum(dim=1) * COUNT_STEP + other.float().sum(dim=1)
        if flat.shape[1] > NUM_CELLS + 2:
            counts = counts + flat[:, NUM_CELLS + 2].float() * (2 * COUNT_STEP**2)
        return (
            self.row_of[numbers.long() + self.begins],
            torch.stack((*spheres, open_cells, *threats), dim=1),
            counts.round().long(),
        )

    def _completing(self, spheres: Tensor) -> Tensor:
        """The cells of formations that lack one sphere of these."""
        short_of_one = (spheres @ self.formations == self.nearly).to(spheres.dtype)
        return (short_of_one @ self.formations.T).clamp(max=1)


class Patterns(nn.Module):
    """Looks every square (with the cell on top of it) and every line up in a table of its own.

    Whether a cell is empty, own or the other's gives a pattern one of 3^cells numbers, and each
    that can be has a row. The rows are added up: all that a square can look like is told apart by
    the first layer.
    Beside that stand the cells themselves, the spheres that are free, the cells that would carry
    one, and those of them that would complete a formation of either side. With `counts` another
    table knows the number of spheres of both sides: whose tempo it is decides many endings.
    """

    def __init__(self, inputs: int, width: int, counts: bool = False) -> None:
        super().__init__()
        self.looks = Looks()
        num_rows = number_rows()[2]
        self.table = Table(num_rows, width, mode="sum")
        nn.init.normal_(self.table.weight, std=0.5 / len(pattern_cells()) ** 0.5)
        self.cells = nn.Linear(inputs + 6 * NUM_CELLS, width)
        self.counts = Table(NUM_COUNTS, width, mode="sum") if counts else None
        if self.counts is not None:
            nn.init.normal_(self.counts.weight, std=0.1)
        self._board = make_board()

    def rows(self) -> Tensor:
        """All rows of which the first layer's sums are made: see `pattern_rows`."""
        assert self.counts is not None
        of_cells = self.cells.weight.T[: NUM_STATES * NUM_CELLS]
        by_state = of_cells.reshape(NUM_STATES, NUM_CELLS, -1).unbind()
        own, other, own_free, other_free, opened, *threats = by_state
        states = (own, own + own_free, other, other + other_free, opened, *threats)
        nothing = of_cells.new_zeros(1, of_cells.shape[1])
        return torch.cat((self.table.weight, *states, self.counts.weight, nothing))

    def extras(self, flat: Tensor) -> Tensor:
        """What the reserves and take-backs add to the rows."""
        weight = self.cells.weight[:, NUM_STATES * NUM_CELLS :]
        return functional.linear(flat[:, NUM_CELLS:], weight, self.cells.bias)

    def forward(self, flat: Tensor) -> Tensor:
        if self.counts is not None and learns_here(self.cells.weight):
            numbers = torch.from_numpy(rows_seen(flat.numpy(), self._board))
            return added_rows(numbers, self.rows()) + self.extras(flat)
        rows, states, counts = self.looks(flat)
        covered_own, own_free, covered_other, other_free, *others = states.unbind(dim=1)
        own, other = covered_own + own_free, covered_other + other_free
        seen_cells = (own, other, own_free, other_free, *others)
        looked_up: Tensor = self.table(rows)
        seen: Tensor = self.cells(torch.cat((*seen_cells, flat[:, NUM_CELLS:]), dim=1))
        if self.counts is None:
            return looked_up + seen
        counted: Tensor = self.counts(counts.unsqueeze(1))
        return looked_up + seen + counted


class Table(nn.EmbeddingBag):
    """Adds up rows of a table. On a CPU a kernel of our own adds up their gradients as well:
    torch sorts the numbers first, and takes six times as long.
    """

    def forward(self, numbers: Tensor) -> Tensor:  # type: ignore[override]
        if learns_here(self.weight):
            return added_rows(numbers, self.weight)
        return super().forward(numbers)


def learns_here(weight: Tensor) -> bool:
    """Whether gradients are wanted on a CPU, where kernels of our own find them."""
    learns = torch.is_grad_enabled() and weight.requires_grad
    return learns and weight.device.type == "cpu" and not torch.compiler.is_compiling()


def added_rows(numbers: Tensor, table: Tensor) -> Tensor:
    """The sums of rows of a table, by their numbers [batch, rows of one sum]."""
    added: Tensor = _AddedRows.apply(numbers, table)  # type: ignore[no-untyped-call]
    return added


class _AddedRows(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, numbers: Tensor, table: Tensor) -> Tensor:
        context.save_for_backward(numbers)
        context.shape = table.shape
        return functional.embedding_bag(numbers, table, mode="sum")

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (numbers,) = context.saved_tensors
        (gradient,) = gradients
        found = gradient.new_zeros(context.shape)
        _add_rows(numbers.numpy(), gradient.contiguous().numpy(), found.numpy())
        return None, found


@jit
def _add_rows(
    numbers: npt.NDArray[np.int64], rows: npt.NDArray[Any], table: npt.NDArray[Any]
) -> None:
    """Add each row to those of its numbers."""
    for row in range(len(numbers)):
        for number in numbers[row]:
            for column in range(rows.shape[1]):
                table[number, column] += rows[row, column]
