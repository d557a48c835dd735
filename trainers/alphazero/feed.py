"""Batches for the learner, already on its device.

On CUDA the next batch is drawn, pinned and copied on a stream of its own while the device still
learns from this one: the learner only queues its work and does not wait for it. Elsewhere a batch
is drawn when it is needed. The order of draws is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from trainers.alphazero.replay import Batch


def feed(draw: Callable[[], Batch], count: int, device: torch.device) -> Iterator[Batch]:
    """So many batches, on the device."""
    if device.type != "cuda":
        for _ in range(count):
            yield on_device(draw(), device)
        return
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    coming: Batch | None = None
    for number in range(count):
        if coming is None:
            coming = _copied(draw(), device, copying)
        learning = torch.cuda.current_stream(device)
        learning.wait_stream(copying)
        for tensor in coming:
            tensor.record_stream(learning)
        yield coming
        coming = _copied(draw(), device, copying) if number + 1 < count else None


def on_device(batch: Batch, device: torch.device) -> Batch:
    return Batch(*(tensor.to(device) for tensor in batch))


def _copied(batch: Batch, device: torch.device, stream: torch.cuda.Stream) -> Batch:
    with torch.cuda.stream(stream):
        return Batch(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in batch))
