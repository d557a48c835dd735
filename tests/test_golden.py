"""Golden playthroughs: every query at every ply, as recorded by scripts/make_golden.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pylos_env import GameRecord, Position
from pylos_env.testing import playthrough

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def test_there_are_golden_playthroughs() -> None:
    assert len(FILES) >= 7


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_playthrough_is_the_recorded_one(path: Path) -> None:
    recorded = path.read_text(encoding="utf-8")
    rules = re.search(r"^rules: (.*)$", recorded, re.MULTILINE)
    assert rules is not None
    actions = tuple(
        int(number) for number in re.findall(r"^action: (\d+) ", recorded, re.MULTILINE)
    )
    replayed = playthrough(GameRecord(Position.start(rules[1]), actions))
    for number, (now, then) in enumerate(
        zip(replayed.splitlines(), recorded.splitlines(), strict=True), start=1
    ):
        assert now == then, f"{path.name}, line {number}"
