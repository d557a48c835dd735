"""What a long run needs around its loop: threads of torch, and signals that end it in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Threads of one torch operation, in this thread of Python."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Numbers next to 0 are 0, in this thread.

    The moments of patterns that are never seen fade into them, and slow the optimiser down. Left
    on, it would change the arithmetic of whoever called a trainer.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def workers(count: int) -> ThreadPoolExecutor:
    """Threads that each compute alone.

    A new thread learns of `set_num_threads` late: its first products of matrices would still be
    shared out, and rounded differently.
    """
    return ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))


def spawning() -> SpawnContext:
    """Processes that begin afresh, also where this one is a worker of joblib's.

    Such a worker was started by a method of joblib's own. It would be handed on to the children,
    which do not know it and die of that.
    """
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("spawn", force=True)
    return multiprocessing.get_context("spawn")


@contextmanager
def heeding_signals(stopped: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the loop to stop, and say so; a second Ctrl-C ends the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        stopped.set()
        # by the system: what is printed in the middle of other printing is an error
        os.write(2, b"\nstopping and saving ...; Ctrl-C again ends at once and saves nothing\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
