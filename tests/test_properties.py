"""What must hold in every position of every game, looked for by Hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pylos_env import GameRecord, Outcome, Position, Rules, kernel
from pylos_env.geometry import ACTION_SYMMETRIES, CELL_SYMMETRIES, SUPPORTS
from pylos_env.notation import action_name
from pylos_env.rules import PRESETS, TAKE_BACK_MODES

rule_sets = st.builds(
    lambda name, mode: Rules.of(name, mode),
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from(TAKE_BACK_MODES),
) | st.builds(
    Rules,
    squares=st.booleans(),
    lines=st.booleans(),
    min_take_back=st.integers(0, 2),
    empty_reserve_loses=st.booleans(),
    take_back=st.sampled_from(TAKE_BACK_MODES),
)


@st.composite
def games(draw: st.DrawFn, rules: st.SearchStrategy[Rules] = rule_sets) -> GameRecord:
    """A game of choices that Hypothesis can shrink: each number picks among the legal actions."""
    position = start = Position.start(draw(rules))
    actions = []
    for choice in draw(st.lists(st.integers(0, 1000), max_size=90)):
        legal = position.legal_actions()
        if not legal:
            break
        actions.append(legal[choice % len(legal)])
        position = position.play(actions[-1])
    return GameRecord(start, tuple(actions))


chosen = st.sampled_from([Rules.of(name) for name in PRESETS])


@given(games())
def test_spheres_are_conserved_and_supported(game: GameRecord) -> None:
    for position in game.positions():
        white, black = position.reserves
        assert 0 <= white <= 15
        assert 0 <= black <= 15
        assert position.white & position.black == 0
        assert white + position.white.bit_count() == black + position.black.bit_count() == 15
        occupied = position.white | position.black
        for cell, supports in enumerate(SUPPORTS):
            assert not occupied >> cell & 1 or occupied & supports == supports


@given(games())
def test_an_action_changes_only_the_movers_spheres(game: GameRecord) -> None:
    before, *rest = game.positions()
    for after in rest:
        if before.side == 0:
            assert after.black == before.black
        else:
            assert after.white == before.white
        before = after


@given(games())
def test_every_position_reads_back_from_its_text(game: GameRecord) -> None:
    for position in game.positions():
        assert Position.parse(str(position), position.rules) == position
        assert Position(position.packed, position.rules) == position


@given(games())
def test_every_game_reads_back_from_its_text(game: GameRecord) -> None:
    assert GameRecord.parse(str(game)) == game


@given(rule_sets)
def test_every_rule_set_reads_back_from_its_text(rules: Rules) -> None:
    assert Rules.of(str(rules)) == rules


@given(games())
def test_mask_equals_list(game: GameRecord) -> None:
    for position in game.positions():
        assert np.flatnonzero(position.action_mask()).tolist() == position.legal_actions()


@given(games())
def test_moves_of_a_position_have_different_names(game: GameRecord) -> None:
    for position in game.positions():
        names = position.legal_moves()
        assert len(set(names)) == len(names)


@given(games())
def test_an_ended_game_is_won_by_exactly_one_side(game: GameRecord) -> None:
    *before, end = game.positions()
    assert all(position.outcome is Outcome.ONGOING for position in before)
    if not end.legal_actions():
        winner = 1 - end.side
        assert end.outcome is (Outcome.WHITE_WINS if winner == 0 else Outcome.BLACK_WINS)


@given(games(chosen), st.integers(0, 7))
def test_symmetries_commute_with_legal_actions_and_with_play(game: GameRecord, index: int) -> None:
    image = ACTION_SYMMETRIES[index]
    positions = list(game.positions())
    for position, action in zip(positions, game.actions, strict=False):
        mirrored = position.symmetric(index)
        assert sorted(image[position.legal_actions()].tolist()) == mirrored.legal_actions()
        assert mirrored.play(int(image[action])) == position.play(action).symmetric(index)
        assert mirrored.outcome is position.outcome


def test_the_eight_symmetries_form_a_group() -> None:
    tables = {tuple(row) for row in CELL_SYMMETRIES.tolist()}
    assert len(tables) == 8
    for first in CELL_SYMMETRIES:
        for second in CELL_SYMMETRIES:
            assert tuple(second[first].tolist()) in tables


def test_greedy_take_back_breaks_the_symmetry() -> None:
    """So no symmetry augmentation there; `Rules.symmetric` says so."""
    rules = Rules.of("advanced", "greedy")
    assert not rules.symmetric
    assert Rules.of("advanced").symmetric
    assert Rules.of("children", "greedy").symmetric
    position = Position.parse("WW..W...BBB...../........./..../. w 0", rules)
    broken = [
        index
        for index in range(8)
        if position.symmetric(index).play(int(ACTION_SYMMETRIES[index][5]))
        != position.play(5).symmetric(index)
    ]
    assert broken


@given(st.integers(0, 2**62), st.integers(1, 300))
def test_a_pick_lies_in_its_range(key: int, count: int) -> None:
    assert 0 <= kernel.pick(kernel.draw(key, 1), count) < count


def test_random_actions_are_uniform_over_the_legal_ones() -> None:
    position = Position.parse("WW.BWWB.W.BB..../........./..../. b 0")
    legal = position.legal_actions()
    draws = 20_000
    counts = dict.fromkeys(legal, 0)
    for count in range(draws):
        key = kernel.draw(7, count)
        counts[kernel.random_action(position.packed, position.rules.code, key)] += 1
    expected = draws / len(legal)
    spread = (expected * (1 - 1 / len(legal))) ** 0.5
    assert max(abs(count - expected) for count in counts.values()) < 5 * spread


def test_action_names_cover_every_action() -> None:
    names = {action_name(action, taking_back=False) for action in range(303)}
    assert len(names) == 303
