"""Several searches over one evaluator that takes its time: while it answers one, others are walked.

    first, second = drive_together([one.walk(...), other.walk(...)], submit)

`submit(packed)` hands positions to the evaluator and returns at once; what it returns is called for
the answer, and waits for it. With two walks a device always has the leaves of one of them while the
trees of the other are walked. Each walk asks the same questions as if it were alone, so its result
is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from trainers.search.batched import Result, Walk, check_answer
from trainers.search.tree import Floats, Ints

Pending = Callable[[], tuple[Floats, Floats]]
"""An answer that may not be there yet; calling it waits."""


def drive_together(
    walks: Sequence[Walk[Result]], submit: Callable[[Ints], Pending]
) -> list[Result]:
    """Answer the questions of all walks in turn; returns their results in order."""
    results: dict[int, Result] = {}
    asked: deque[tuple[int, Ints, Pending]] = deque()  # the oldest question first

    def go_on(number: int, answer: tuple[Floats, Floats] | None) -> None:
        walk = walks[number]
        try:
            packed = next(walk) if answer is None else walk.send(answer)
        except StopIteration as end:
            results[number] = end.value
        else:
            asked.append((number, packed, submit(packed)))

    for number in range(len(walks)):
        go_on(number, None)
    while asked:
        number, packed, pending = asked.popleft()
        go_on(number, check_answer(packed, *pending()))
    return [results[number] for number in range(len(walks))]
