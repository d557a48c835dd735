"""The replay window: packed positions and sparse policies, first in, first out.

A sample takes 8 bytes for its position, 8 for value and weight, 8 for where its policy begins, 2
for how wrong the network was about it and 2 for each legal action: some 42 in all, and as much
again for the room that the window moves through. Batches are turned and mirrored as they are drawn.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pylos_env._jit import jit
from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.kernel import (
    MAX_LEGAL,
    NUM_ACTIONS,
    side_of,
    symmetric,
    write_legal,
    write_mask,
    write_observation,
)
from pylos_env.observation import Observer
from pylos_env.rules import Rules
from trainers.alphazero.config import ReplayConfig
from trainers.alphazero.targets import SHARE, Samples
from trainers.evaluator import write_canonical

HARD: Final = 0.5
"""A value that was wrong by so much, or more, makes a sample as hard as any."""

View = Literal["plain", "random", "canonical"]
"""Under which symmetry samples are shown: none, a random one, or the one that comes first."""


class Batch(NamedTuple):
    """What a learning step sees."""

    observation: torch.Tensor  # [batch, ...]
    mask: torch.Tensor  # [batch, 303], 1 for legal actions
    policy: torch.Tensor  # [batch, 303]
    value: torch.Tensor  # [batch]
    weight: torch.Tensor  # [batch]
    rows: torch.Tensor  # [batch]: of the window that it was drawn from


class Replay:
    """The newest samples; the window grows with the number of all samples so far."""

    def __init__(self, config: ReplayConfig, rules: Rules, observer: Observer) -> None:
        self._config = config
        self._rules = rules
        self._observer = observer
        self.total = 0
        self._room = _room_for(0, 0)
        self._first = self._last = 0  # of the window, in its room

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def samples(self) -> Samples:
        """The window, oldest first."""
        window = self._in_its_room()
        first, last = window.begin[0], window.begin[-1]
        return window._replace(begin=window.begin - first, policy=window.policy[first:last])

    def _in_its_room(self) -> Samples:
        """The window without a copy: `begin` counts from the room's first policy, not its own."""
        room, rows = self._room, slice(self._first, self._last)
        begin = room.begin[self._first : self._last + 1]
        return Samples(
            room.packed[rows],
            room.value[rows],
            room.weight[rows],
            room.error[rows],
            begin,
            room.policy,
        )

    def window(self) -> int:
        """How many samples are kept now."""
        config = self._config
        return min(config.capacity, max(config.start, int(config.growth * self.total)))

    def add(self, new: Samples) -> None:
        """Append samples and drop the oldest beyond the window."""
        self.total += new.size
        self._first += min(len(self), max(0, len(self) + new.size - self.window()))
        room = self._room
        full = self._last + new.size > len(room.packed)
        if full or room.begin[self._last] + len(new.policy) > len(room.policy):
            self._move(new)
        self._append(new)

    def _move(self, new: Samples) -> None:
        """Take the window to a room in which it finds place once more beside new samples.

        So each sample is copied once or twice in its life, however many rounds it stays.
        """
        window = self.samples
        rows, policies = window.size + new.size, len(window.policy) + len(new.policy)
        self._take(_room_for(2 * rows, 2 * policies), window)

    def _take(self, room: Samples, window: Samples) -> None:
        """Go on in another room, with this window alone."""
        self._room = room
        self._first = self._last = 0
        self._append(window)

    def _append(self, new: Samples) -> None:
        room, first, last = self._room, self._last, self._last + new.size
        begin = room.begin[first]
        room.packed[first:last] = new.packed
        room.value[first:last] = new.value
        room.weight[first:last] = new.weight
        room.error[first:last] = new.error
        room.begin[first + 1 : last + 1] = begin + new.begin[1:]
        room.policy[begin : begin + len(new.policy)] = new.policy
        self._last = last

    def draw(self, rng: np.random.Generator, size: int, view: View) -> Batch:
        """A batch with replacement, each sample under a symmetry of the board."""
        rows = self._rows(rng, size)
        turns = np.zeros(size, dtype=np.int64)
        if view == "random":
            turns = rng.integers(8, size=size)
        elif view == "canonical":
            write_canonical(self._in_its_room().packed[rows], np.empty_like(rows), turns)
        return self.batch(rows, turns)

    def _rows(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.int64]:
        """Samples of the window, hard ones more often than easy ones."""
        easy = self._config.easy_share
        if easy == 1:
            return rng.integers(len(self), size=size)
        found = np.empty(0, np.int64)
        while len(found) < size:
            rows = rng.integers(len(self), size=2 * size)
            hardness = np.fmin(1, self.errors[rows].astype(np.float32) / HARD)  # 1 for nan
            taken = rng.random(len(rows)) < easy + (1 - easy) * hardness
            found = np.concatenate([found, rows[taken]])
        return found[:size]

    @property
    def errors(self) -> npt.NDArray[np.float16]:
        """[window]: how far from its target the network's value was when it was last asked."""
        return self._room.error[self._first : self._last]

    def learnt(self, rows: torch.Tensor, errors: torch.Tensor) -> None:
        """How wrong the network was about samples of the present window."""
        self.errors[rows.cpu().numpy()] = errors.cpu().numpy()

    def batch(self, rows: npt.NDArray[np.int64], turns: npt.NDArray[np.int64]) -> Batch:
        """The given samples under the given symmetries."""
        size, window = len(rows), self._in_its_room()
        observation = np.empty((size, self._observer.size), dtype=np.float32)
        mask = np.empty((size, NUM_ACTIONS), dtype=np.int8)
        policy = np.zeros((size, NUM_ACTIONS), dtype=np.float32)
        _write_batch(
            window.packed,
            window.begin,
            window.policy,
            rows,
            turns,
            self._rules.code,
            self._observer.planes,
            ACTION_SYMMETRIES,
            observation,
            mask,
            policy,
        )
        return Batch(
            torch.from_numpy(observation.reshape(-1, *self._observer.shape)),
            torch.from_numpy(mask),
            torch.from_numpy(policy),
            torch.from_numpy(window.value[rows]),
            torch.from_numpy(window.weight[rows]),
            torch.from_numpy(rows),
        )

    def state(self) -> dict[str, Any]:
        arrays = {
            name: torch.from_numpy(array.copy()) for name, array in self.samples._asdict().items()
        }
        return {"total": self.total, **arrays}

    def set_state(self, state: dict[str, Any]) -> None:
        self.total = state["total"]
        untried = torch.ones(len(state["packed"]))  # a run of a version that did not remember
        state = {"error": untried, **state}
        window = Samples(*(state[name].numpy() for name in Samples._fields))
        self._take(_room_for(window.size, len(window.policy)), window)


def _room_for(samples: int, policies: int) -> Samples:
    return Samples(
        np.empty(samples, np.int64),
        np.empty(samples, np.float32),
        np.empty(samples, np.float32),
        np.empty(samples, np.float16),
        np.zeros(samples + 1, np.int64),
        np.empty(policies, np.uint16),
    )


@jit
def _write_batch(
    positions: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    shares: npt.NDArray[np.uint16],
    rows: npt.NDArray[np.int64],
    turns: npt.NDArray[np.int64],
    rules: int,
    planes: bool,
    images: npt.NDArray[np.int64],
    observation: npt.NDArray[np.float32],
    mask: npt.NDArray[np.int8],
    policy: npt.NDArray[np.float32],
) -> None:
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    for index in range(len(rows)):
        row, turn = rows[index], turns[index]
        before = positions[row]
        packed = symmetric(before, turn)
        write_observation(packed, rules, side_of(packed), planes, observation[index])
        write_mask(packed, rules, mask[index])
        begin = begins[row]
        for number in range(write_legal(before, rules, legal)):
            share = np.float32(shares[begin + number]) / np.float32(SHARE)
            policy[index, images[turn, legal[number]]] = share
