"""The pool: what runs at once, what waits, what is answered together, what is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from pylos_web.messages import NewGame, Refusal, ServerMessage
from pylos_web.sessions import MAX_BACKLOG, Limits, Sessions
from pylos_web.thinking import MAX_BATCH, Cancelled, Crowd, Guard, OutOfTime, Pool
from tests.web_tools import fallback_levels


def run(main: Coroutine[Any, Any, None], pool: Pool) -> None:
    try:
        asyncio.run(asyncio.wait_for(main, 20))
    finally:
        pool.close()


class Batches:
    """Answers with the square, and keeps what it was asked together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go = threading.Event()
        self.begun = threading.Event()

    def __call__(self, questions: list[int], guard: Guard) -> list[int]:
        self.begun.set()
        self.sizes.append(len(questions))
        while not self.go.wait(0.002):
            guard.check()
        return [question**2 for question in questions]


def test_questions_that_wait_are_answered_together() -> None:
    batches, pool = Batches(), Pool(workers=1, max_waiting=100, seconds=10)
    crowd = Crowd(batches)

    async def main() -> None:
        first = asyncio.create_task(pool.ask(crowd, 0))
        await asyncio.to_thread(batches.begun.wait)
        others = [asyncio.create_task(pool.ask(crowd, number)) for number in range(1, 41)]
        await asyncio.sleep(0.01)
        batches.go.set()
        assert await first == 0
        assert await asyncio.gather(*others) == [number**2 for number in range(1, 41)]
        assert batches.sizes == [1, MAX_BATCH, 40 - MAX_BATCH]
        while pool.unfinished:
            await asyncio.sleep(0.001)

    run(main(), pool)


def test_one_who_leaves_does_not_stop_the_others() -> None:
    batches, pool = Batches(), Pool(workers=1, max_waiting=100, seconds=10)
    crowd = Crowd(batches)

    async def main() -> None:
        first = asyncio.create_task(pool.ask(crowd, 0))
        await asyncio.to_thread(batches.begun.wait)
        waiting = [asyncio.create_task(pool.ask(crowd, number)) for number in (1, 2, 3)]
        await asyncio.sleep(0.01)
        waiting[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]  # at once: its question was still in the queue
        batches.go.set()
        assert await first == 0
        assert [await waiting[0], await waiting[2]] == [1, 9]
        assert batches.sizes == [1, 2]

    run(main(), pool)


def test_a_batch_ends_when_nobody_wants_it() -> None:
    batches, pool = Batches(), Pool(workers=1, max_waiting=100, seconds=10)
    crowd = Crowd(batches)

    async def main() -> None:
        only = asyncio.create_task(pool.ask(crowd, 5))
        await asyncio.to_thread(batches.begun.wait)
        only.cancel()
        with pytest.raises(asyncio.CancelledError):
            await only
        while pool.unfinished:
            await asyncio.sleep(0.001)

    run(main(), pool)


def test_errors_and_the_clock_reach_everyone_in_a_batch() -> None:
    pool = Pool(workers=1, max_waiting=100, seconds=0.05)

    def too_slow(questions: list[int], guard: Guard) -> list[int]:
        while True:
            guard.check()
            time.sleep(0.005)

    async def main() -> None:
        crowd = Crowd(too_slow)
        asked = [pool.ask(crowd, number) for number in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(error, OutOfTime) for error in found)

    run(main(), pool)


def test_a_cancelled_task_holds_its_caller_until_the_thread_lets_go() -> None:
    pool = Pool(workers=1, max_waiting=0, seconds=10)
    crowd = Crowd(Batches())
    begun, ended = threading.Event(), threading.Event()

    def task(guard: Guard) -> None:
        begun.set()
        try:
            while True:
                guard.check()
                time.sleep(0.002)
        finally:
            ended.set()

    async def main() -> None:
        running = asyncio.create_task(pool.run(task))
        await asyncio.to_thread(begun.wait)
        with pytest.raises(Refusal, match="too much to think about"):
            await pool.run(task)
        with pytest.raises(Refusal):
            await pool.ask(crowd, 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended.is_set()

    run(main(), pool)


def test_closing_stops_what_runs() -> None:
    pool = Pool(workers=1, max_waiting=5, seconds=60)
    begun = threading.Event()

    def task(guard: Guard) -> None:
        begun.set()
        while True:
            guard.check()
            time.sleep(0.002)

    async def main() -> None:
        running = asyncio.create_task(pool.run(task))
        await asyncio.to_thread(begun.wait)
        pool.close()
        with pytest.raises(Cancelled):
            await running

    run(main(), pool)


class Reader:
    """A client that reads only when it is told to."""

    def __init__(self) -> None:
        self.backlog = 0
        self.heard: list[str] = []

    def send(self, message: ServerMessage) -> None:
        self.heard.append(message.type)

    def drop(self, code: int, reason: str) -> None:
        raise AssertionError(reason)


def test_machines_wait_for_a_client_that_reads_slowly() -> None:
    pool = Pool(workers=1, max_waiting=5, seconds=10)
    reader = Reader()

    async def main() -> None:
        sessions = Sessions(fallback_levels(), pool, Limits())
        session = sessions.open(NewGame(type="new_game", mode="ai_vs_ai", pace_ms=0))
        reader.backlog = MAX_BACKLOG + 1
        session.join(reader)
        await asyncio.sleep(0.2)
        assert "ai_move" not in reader.heard
        reader.backlog = 0
        while "game_over" not in reader.heard:
            await asyncio.sleep(0.01)
        sessions.close()

    run(main(), pool)
