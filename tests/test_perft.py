"""Every count of the rules' specification. A failure prints the count under each first move."""

from __future__ import annotations

import pytest

from pylos_env import Position
from pylos_env.testing import divide, perft, random_game

SHALLOW = [16, 240, 3_360, 43_680, 524_376, 5_786_496]

WHOLE_TURNS = {
    "children": (58_746_240, 553_128_480),
    "standard": (61_313_472, 604_563_360),
    "mature": (63_596_160, 654_663_264),
    "advanced": (64_136_160, 667_213_632),
}
SINGLE_ACTIONS = {
    "children": (58_746_240, 553_128_480),  # nothing is taken back: the same as whole turns
    "standard": (58_746_240, 550_485_792),
    "mature": (58_746_240, 549_108_000),
    "advanced": (58_746_240, 549_648_000),
}
FROM_POSITIONS = [
    (".WWW.BBWB.BW.W.W/.B......./..../. b 0", "children", [10, 110, 888, 8_598]),
    (".WWW.BBWB.BW.W.W/.B......./..../. b 0", "standard", [21, 320, 5_845, 107_164]),
    (".WWW.BBWB.BW.W.W/.B......./..../. b 0", "mature", [21, 755, 16_316, 631_809]),
    ("WWWWWWWBBWBWWWBW/WW.B.B.BB/..../. w 0", "standard", [7, 92, 316, 2_063]),
    ("WW.BWWB.W.BB..../........./..../. b 0", "children", [12, 113, 1_253, 12_311]),
    ("WW.BWWB.W.BB..../........./..../. b 0", "standard", [26, 660, 14_798, 359_417]),
    ("WW.BWWB.W.BB..../........./..../. b 0", "mature", [26, 1_070, 27_833, 890_038]),
    (".WW...WWBBWWBBWW/.....B.../..../. w 0", "children", [16, 151, 1_562, 13_207]),
    (".WW...WWBBWWBBWW/.....B.../..../. w 0", "standard", [44, 488, 10_705, 177_380]),
    (".WW...WWBBWWBBWW/.....B.../..../. w 0", "mature", [44, 488, 13_133, 312_372]),
    ("WB.BBBWBWWWWBBBB/B..WB.BWW/..W./. w 0", "children", [2, 10, 29, 104]),
    ("WB.BBBWBWWWWBBBB/B..WB.BWW/..W./. w 0", "standard", [2, 10, 37, 207]),
    ("WB.BBBWBWWWWBBBB/B..WB.BWW/..W./. w 0", "mature", [2, 10, 48, 464]),
]


def check(position: Position, depth: int, expected: int, whole_turns: bool) -> None:
    count = perft(position, depth, whole_turns=whole_turns)
    if count == expected:
        return
    counts = divide(position, min(depth, 7), whole_turns=whole_turns)
    lines = "\n".join(f"  {move}: {number}" for move, number in counts.items())
    pytest.fail(f"{position!r} depth {depth}: {count}, expected {expected}\n{lines}")


@pytest.mark.parametrize("whole_turns", [True, False])
@pytest.mark.parametrize("rules", WHOLE_TURNS)
def test_no_take_back_is_possible_before_ply_seven(rules: str, whole_turns: bool) -> None:
    for depth, expected in enumerate(SHALLOW, start=1):
        check(Position.start(rules), depth, expected, whole_turns)


@pytest.mark.parametrize("depth", [7, 8])
@pytest.mark.parametrize("rules", WHOLE_TURNS)
def test_whole_turns_from_the_start(rules: str, depth: int) -> None:
    check(Position.start(rules), depth, WHOLE_TURNS[rules][depth - 7], whole_turns=True)


@pytest.mark.parametrize("depth", [7, 8])
@pytest.mark.parametrize("rules", SINGLE_ACTIONS)
def test_single_actions_from_the_start(rules: str, depth: int) -> None:
    check(Position.start(rules), depth, SINGLE_ACTIONS[rules][depth - 7], whole_turns=False)


@pytest.mark.parametrize(("text", "rules", "counts"), FROM_POSITIONS)
def test_positions_that_tell_the_readings_apart(text: str, rules: str, counts: list[int]) -> None:
    for depth, expected in enumerate(counts, start=1):
        check(Position.parse(text, rules), depth, expected, whole_turns=True)


@pytest.mark.parametrize("whole_turns", [True, False])
@pytest.mark.parametrize("rules", ["advanced", "mature", "squares min=2", "advanced greedy"])
def test_divide_adds_up_to_perft_at_every_position_of_a_game(rules: str, whole_turns: bool) -> None:
    for position in random_game(rules, seed=4).positions():
        for depth in (1, 2):
            counts = divide(position, depth, whole_turns=whole_turns)
            assert sum(counts.values()) == perft(position, depth, whole_turns=whole_turns)


def test_depth_zero_is_the_position_itself() -> None:
    assert perft(Position.start(), 0) == perft(Position.start(), 0, whole_turns=True) == 1
    assert divide(Position.start(), 0) == {}


@pytest.mark.parametrize("depth", [-1, 1.5, "3"])
def test_a_bad_depth_is_refused(depth: object) -> None:
    with pytest.raises(ValueError, match="depth"):
        perft(Position.start(), depth)  # type: ignore[arg-type]


def test_random_games_repeat_by_seed() -> None:
    assert random_game("standard", seed=3) == random_game("standard", seed=3)
    assert random_game("standard", seed=3) != random_game("standard", seed=4)
