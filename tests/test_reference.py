"""The kernel against the slow, obvious rules, on every query at every ply of random games."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pylos_env import Outcome, Position, Rules, kernel
from pylos_env.observation import Observer
from pylos_env.rules import PRESETS, TAKE_BACK_MODES
from tests import reference

GAMES = 300
MIXES = [
    "squares lines min=2 empty-loses",
    "lines min=2",
    "squares min=0 empty-loses",
    "lines min=1 greedy",
    "children min=2",
]
RULE_SETS = [Rules.of(name, mode) for name in PRESETS for mode in TAKE_BACK_MODES]


def as_reference(rules: Rules) -> reference.RefRules:
    return reference.RefRules(
        rules.squares,
        rules.lines,
        rules.min_take_back,
        rules.empty_reserve_loses,
        rules.take_back == "greedy",
    )


def check_position(state: reference.State, rules: Rules) -> list[int]:
    """Every query, kernel and friendly layer against the reference; returns the legal actions."""
    slow = as_reference(rules)
    packed = reference.packed(state)
    position = Position(packed, rules)
    code = rules.code
    expected = reference.legal_actions(state, slow)

    assert str(position) == reference.text(state)
    assert Position.parse(reference.text(state), rules) == position
    assert position.side == state.side
    assert position.take_backs_left == state.take_backs
    assert position.reserves == reference.reserves(state)
    assert position.legal_actions() == expected, reference.text(state)
    assert position.legal_moves() == [reference.move_text(state, action) for action in expected]
    mask = position.action_mask()
    assert mask.dtype == np.int8
    assert np.flatnonzero(mask).tolist() == expected
    assert mask.sum() == kernel.count_legal(packed, code) == len(expected)

    winner = reference.winner(state, slow)
    outcome = {None: Outcome.ONGOING, 0: Outcome.WHITE_WINS, 1: Outcome.BLACK_WINS}[winner]
    assert position.outcome is outcome
    assert kernel.is_over(packed, code) == (winner is not None)
    if winner is not None:
        assert winner == 1 - state.side, "a finished game is lost for the side to move"
    for seat in (0, 1):
        flat = Observer("flat", rules).observe(packed, seat)
        want = np.float32(reference.flat_observation(state, seat, slow.greedy))
        assert flat.tolist() == want.tolist()
    return expected


@pytest.mark.parametrize("rules", RULE_SETS, ids=str)
def test_kernel_equals_reference_in_random_games(rules: Rules) -> None:
    play_random_games(rules, GAMES)


@pytest.mark.parametrize("mix", MIXES)
def test_kernel_equals_reference_under_mixed_rules(mix: str) -> None:
    play_random_games(Rules.of(mix), 40)


def play_random_games(rules: Rules, num_games: int) -> None:
    rng = random.Random(f"{rules}")
    slow = as_reference(rules)
    take_backs = 0
    for _ in range(num_games):
        state = reference.START
        for _ in range(300):
            actions = check_position(state, rules)
            if not actions:
                break
            take_backs += state.take_backs > 0
            probe = rng.randrange(-5, 310)
            packed = reference.packed(state)
            assert kernel.is_legal(packed, rules.code, probe) == (probe in actions)
            action = rng.choice(actions)
            after = reference.play(state, slow, action)
            assert kernel.play(packed, rules.code, action) == reference.packed(after)
            state = after
    assert (take_backs > 0) == (rules.formations and rules.take_back == "choose")


def test_every_legal_action_of_a_position_is_played_alike() -> None:
    """Random games play one action a ply; here each one is, from positions rich in take-backs."""
    rng = random.Random(5)
    rules = Rules.of("mature")
    slow = as_reference(rules)
    for _ in range(20):
        state = reference.START
        while actions := reference.legal_actions(state, slow):
            packed = reference.packed(state)
            for action in actions:
                after = reference.packed(reference.play(state, slow, action))
                assert kernel.play_checked(packed, rules.code, action) == after
            state = reference.play(state, slow, rng.choice(actions))


def test_planes_say_what_the_documentation_says() -> None:
    rng = random.Random(2)
    for rules in (Rules.of("advanced"), Rules.of("advanced", "greedy")):
        slow = as_reference(rules)
        state = reference.START
        while actions := reference.legal_actions(state, slow):
            for seat in (0, 1):
                planes = Observer("planes", rules).observe(reference.packed(state), seat)
                assert planes.tolist() == expected_planes(state, seat, slow).tolist()
            state = reference.play(state, slow, rng.choice(actions))


def expected_planes(
    state: reference.State, seat: int, rules: reference.RefRules
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    planes = np.zeros((14 if rules.greedy else 15, 4, 4), dtype=np.float32)
    for index, (level, row, col) in enumerate(reference.CELLS):
        owner = state.board[index]
        if owner is not None:
            planes[level if owner == seat else 4 + level, row, col] = 1
        elif reference.may_place(state.board, index):
            planes[8 + level, row, col] = 1
    planes[12] = reference.reserves(state)[seat] / 15
    planes[13] = reference.reserves(state)[1 - seat] / 15
    if not rules.greedy:
        planes[14] = state.take_backs / 2
    return planes
