"""A network that answers later: positions go to its device while the caller does something else.

    inference = Inference(evaluator)
    pending = inference.submit(packed)
    ...                                  # walk other trees
    logits, values = pending()

On CUDA every question in flight has a lane of its own: pinned host memory, so that copies both ways
run beside the computation, and a stream. On a CPU the same lanes work without either; with
`background` the network runs in a thread beside the caller, otherwise at once. All three give the
evaluator's own answers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import numpy as np
import torch

from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.kernel import NUM_ACTIONS
from trainers.evaluator import Evaluator, turned_back, write_canonical, write_observations
from trainers.network import Output, PolicyValueNetwork
from trainers.search import Evaluate, Pending
from trainers.search.tree import Floats, Ints

SMALLEST: Final = 64
"""Batches are padded to powers of two from here up where the network is compiled."""


class Inference:
    """An evaluator behind `submit`; `take` gives it other weights between two questions."""

    def __init__(
        self, evaluator: Evaluator, background: bool = False, compiled: bool = False
    ) -> None:
        self.evaluator = evaluator
        self._cuda = evaluator.device.type == "cuda"
        self._network: Callable[[torch.Tensor], Output] = evaluator.network
        if compiled:
            self._network = torch.compile(evaluator.network)
        self._padded = compiled
        self._pool = ThreadPoolExecutor(1, initializer=_alone) if background else None
        self._free: list[Lane] = []
        self._weights_are_there: torch.cuda.Event | None = None

    def submit(self, packed: Ints) -> Pending:
        """Ask; call what is returned for logits [n, 303] and values [n]."""
        if self.evaluator.kernel is not None:
            return self._submit_to_kernel(self.evaluator.kernel, packed)
        size = padded_size(len(packed)) if self._padded else len(packed)
        lane = next((lane for lane in self._free if lane.capacity >= size), None)
        if lane is None:
            lane = Lane(self.evaluator, padded_size(size))
        else:
            self._free.remove(lane)
        if self._pool is not None:
            future = self._pool.submit(lane.ask, packed, size, self._network, None)
            wait = future.result
        else:
            lane.ask(packed, size, self._network, self._weights_are_there)
            wait = None

        def answer() -> tuple[Floats, Floats]:
            if wait is not None:
                wait()
            found = lane.answer()
            self._free.append(lane)
            return found

        return answer

    def _submit_to_kernel(self, kernel: Evaluate, packed: Ints) -> Pending:
        if self._pool is not None:
            return self._pool.submit(kernel, packed).result
        found = kernel(packed)
        return lambda: found

    def take(self, network: PolicyValueNetwork) -> None:
        """Go on with another network's weights."""
        self.evaluator.take(network)
        self._mark()

    def load(self, weights: dict[str, Floats]) -> None:
        self.evaluator.load(weights)
        self._mark()

    def _mark(self) -> None:
        """Lanes wait for the new weights, and for nothing else that this thread has asked for."""
        if self._cuda:
            self._weights_are_there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._weights_are_there.record()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Lane:
    """Room for one question on its way to the device and back."""

    def __init__(self, evaluator: Evaluator, capacity: int) -> None:
        self.capacity = capacity
        self._evaluator = evaluator
        device = evaluator.device
        cuda = device.type == "cuda"
        observer = evaluator.observer
        self._seen = torch.zeros((capacity, observer.size), pin_memory=cuda)
        self._shape = observer.shape
        self._logits = torch.empty((capacity, NUM_ACTIONS), pin_memory=cuda)
        self._values = torch.empty(capacity, pin_memory=cuda)
        self._stream: torch.cuda.Stream | None = None
        self._done: torch.cuda.Event | None = None
        if cuda:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._symmetries = np.zeros(0, dtype=np.int64)
        self._count = 0

    def ask(
        self,
        packed: Ints,
        size: int,
        network: Callable[[torch.Tensor], Output],
        weights_are_there: torch.cuda.Event | None,
    ) -> None:
        """Begin to answer; rows beyond the positions, up to `size`, are asked for nothing."""
        evaluator, self._count = self._evaluator, len(packed)
        if evaluator.canonical:
            shown, self._symmetries = np.empty_like(packed), np.empty_like(packed)
            write_canonical(packed, shown, self._symmetries)
            packed = shown
        observer = evaluator.observer
        write_observations(packed, evaluator.rules.code, observer.planes, self._seen.numpy())
        batch = self._seen[:size].view(size, *self._shape)
        with self._on_stream(), torch.inference_mode():
            if self._stream is not None and weights_are_there is not None:
                self._stream.wait_event(weights_are_there)
            batch = batch.to(evaluator.device, non_blocking=True).to(evaluator.dtype)
            output = network(batch)
            count = self._count
            self._logits[:count].copy_(output.logits[:count].float(), non_blocking=True)
            self._values[:count].copy_(output.value[:count].float(), non_blocking=True)
            if self._done is not None:
                self._done.record()

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def answer(self) -> tuple[Floats, Floats]:
        """Wait for it; the arrays are the caller's own."""
        if self._done is not None:
            self._done.synchronize()
        logits, values = self._logits[: self._count].numpy(), self._values[: self._count].numpy()
        if self._evaluator.canonical:
            return turned_back(logits, self._symmetries, ACTION_SYMMETRIES), values.copy()
        return logits.copy(), values.copy()


def padded_size(count: int) -> int:
    """The next power of two: few shapes, so that a compiled network is compiled few times."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def _alone() -> None:
    torch.set_num_threads(1)
