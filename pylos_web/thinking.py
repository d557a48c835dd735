"""Searches off the event loop: a bounded pool of threads, clamped in time, cancellable.

Kernels and networks release the GIL, so threads do. A search asks its `Guard` between two
simulations whether it is still wanted. Questions to one network that wait at the same time are
answered together: a batch of searches costs little more than one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pylos_web.messages import Refusal

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")

MAX_BATCH: Final = 32
"""Questions answered together: beyond that each waits longer for all."""


class Cancelled(Exception):
    """Nobody waits for the answer any more."""


class OutOfTime(Exception):
    """The search has had its time."""


class Guard:
    """What a task asks now and then; its time runs from its own beginning, not from the queue."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = float("inf")
        self._cancelled = False

    def begin(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def cancel(self) -> None:
        self._cancelled = True

    def check(self) -> None:
        if self._cancelled:
            raise Cancelled
        if time.monotonic() > self._deadline:
            raise OutOfTime


@dataclass(eq=False)
class _Seat(Generic[Q, A]):
    """Somebody who waits for an answer."""

    question: Q
    answer: asyncio.Future[A]
    wanted: bool = True


class _CrowdGuard(Guard):
    """A batch is wanted while anyone in it is."""

    def __init__(self, seconds: float, seats: list[_Seat[Q, A]]) -> None:
        super().__init__(seconds)
        self._seats = seats

    def check(self) -> None:
        if not any(seat.wanted for seat in self._seats):
            raise Cancelled
        super().check()


class Crowd(Generic[Q, A]):
    """Questions of one kind, from many games, that `answer_all` answers together."""

    def __init__(self, answer_all: Callable[[list[Q], Guard], list[A]]) -> None:
        self._answer_all = answer_all
        self._waiting: deque[_Seat[Q, A]] = deque()
        self._lock = threading.Lock()

    def join(self, question: Q, loop: asyncio.AbstractEventLoop) -> _Seat[Q, A]:
        seat = _Seat[Q, A](question, loop.create_future())
        with self._lock:
            self._waiting.append(seat)
        return seat

    def withdraw(self, seat: _Seat[Q, A]) -> bool:
        """Leave the queue; False where the answer is being sought already."""
        with self._lock:
            if seat not in self._waiting:
                return False
            self._waiting.remove(seat)
            return True

    def next_batch(self) -> list[_Seat[Q, A]]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]

    def answer(self, seats: list[_Seat[Q, A]], guard: Guard) -> list[A]:
        return self._answer_all([seat.question for seat in seats], guard)


class Pool:
    """`workers` tasks at once, `max_waiting` more in the queue; beyond that it refuses."""

    def __init__(self, workers: int, max_waiting: int, seconds: float) -> None:
        self.workers = workers
        self.max_waiting = max_waiting
        self.seconds = seconds
        self.unfinished = 0
        self._guards: set[Guard] = set()
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="thinking")

    async def run(self, task: Callable[[Guard], T]) -> T:
        """The task's result; cancelling the caller cancels the task."""
        guard = Guard(self.seconds)

        def begin() -> T:
            guard.check()  # a task may be unwanted before its turn has come
            return self._guarded(guard, task)

        future = self._submit(begin)
        inner = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(inner)
        except asyncio.CancelledError:
            guard.cancel()
            future.cancel()
            await _let_go(inner)
            raise

    async def ask(self, crowd: Crowd[Q, A], question: Q) -> A:
        """The answer to a question, found together with others of its crowd."""
        loop = asyncio.get_running_loop()
        seat = crowd.join(question, loop)
        try:
            # every question brings a task; whichever runs first answers all that wait
            self._submit(lambda: self._serve(crowd, loop))
            return await asyncio.shield(seat.answer)
        except (asyncio.CancelledError, Refusal):
            seat.wanted = False
            if not crowd.withdraw(seat):
                await _let_go(seat.answer)
            raise

    def close(self) -> None:
        """Drop what waits, stop what runs; does not wait."""
        for guard in list(self._guards):
            guard.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    # Inside

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        if self.unfinished >= self.workers + self.max_waiting:
            raise Refusal("busy", "the server has too much to think about: try again shortly")
        loop = asyncio.get_running_loop()
        self.unfinished += 1
        future = self._executor.submit(function)
        future.add_done_callback(lambda _: _call(loop, self._finished))
        return future

    def _finished(self) -> None:
        self.unfinished -= 1

    def _guarded(self, guard: Guard, task: Callable[[Guard], T]) -> T:
        self._guards.add(guard)
        guard.begin()
        try:
            return task(guard)
        finally:
            self._guards.discard(guard)

    def _serve(self, crowd: Crowd[Q, A], loop: asyncio.AbstractEventLoop) -> None:
        seats = crowd.next_batch()
        if not seats:
            return
        guard = _CrowdGuard(self.seconds, seats)
        try:
            answers = self._guarded(guard, lambda guard: crowd.answer(seats, guard))
        except Exception as error:
            for seat in seats:
                _call(loop, _fail, seat.answer, error)
            return
        for seat, answer in zip(seats, answers, strict=True):
            _call(loop, _tell, seat.answer, answer)


async def _let_go(future: asyncio.Future[T]) -> None:
    """Wait until a thread has let go: who holds a slot for it must hold it until then."""
    await asyncio.wait([future])
    if not future.cancelled():
        future.exception()  # seen, so that nobody misses it


def _tell(future: asyncio.Future[A], answer: A) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[A], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _call(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)
