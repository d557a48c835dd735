"""Value targets of AlphaZero's games, and the samples made of them."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from pylos_env import Position, kernel
from pylos_env.testing import random_game
from tests.alphazero_tools import RULES
from trainers.alphazero.config import TargetsConfig
from trainers.alphazero.selfplay import Decision, Game
from trainers.alphazero.targets import SHARE, samples_of, sharpened, value_targets

unsharpened = functools.partial(TargetsConfig, sharpen=0.0)
"""Values as the search gives them, unless a test is of sharpening."""


def played_game(seed: int, truncated: bool = False) -> Game:
    """A random game with a decision at every ply, whose values are made up."""
    record = random_game(RULES, seed)
    rng = np.random.default_rng(seed)
    positions = list(record.positions())
    actions = list(record.actions)
    if truncated:
        actions = actions[: len(actions) // 2]
    decisions = [
        Decision(
            position.packed,
            ply,
            float(rng.uniform(-1, 1)),
            0,
            False,
            rng.dirichlet(np.ones(len(position.legal_actions()))).astype(np.float32),
        )
        for ply, position in enumerate(positions[: len(actions)])
    ]
    end = positions[len(actions)]
    return Game(seed, 0, actions, decisions, end=end.packed, truncated=truncated, last_value=0.3)


def plain_target(
    game: Game, index: int, truncated: str, share: float = 0.3, discount: float = 0.98
) -> float:
    """The sum over all later decisions, written out; made-up games have a decision at each ply."""
    side = Position(game.decisions[index].packed, RULES).side
    end = Position.unchecked(game.end, RULES)
    total, left = 0.0, 1.0
    for decision in game.decisions[index:]:
        same = Position(decision.packed, RULES).side == side
        total += left * share * (decision.value if same else -decision.value)
        left *= (1 - share) * discount
    if not game.truncated:
        outcome = -1.0 if side == end.side else 1.0
    elif truncated == "draw":
        outcome = -0.2
    else:
        outcome = 0.3 if side == end.side else -0.3
    return total + left * outcome


@pytest.mark.parametrize("truncated", ["bootstrap", "draw", "mask"])
@pytest.mark.parametrize("cut", [False, True])
def test_targets_equal_a_plain_loop(truncated: str, cut: bool) -> None:
    """The winner is who moved last; values turn with the side to move, not with the ply."""
    config = unsharpened(0.98, -0.2, truncated, 0.3)
    kept_turns = 0
    for seed in range(20):
        game = played_game(seed, cut)
        sides = [Position(d.packed, RULES).side for d in game.decisions]
        kept_turns += sum(one == other for one, other in itertools.pairwise(sides))
        for index, (value, weight) in enumerate(value_targets(game, config)):
            if cut and truncated == "mask":
                assert weight == 0
            else:
                assert weight == 1
                assert value == pytest.approx(plain_target(game, index, truncated))
    assert kept_turns > 20, "no game had take-backs"


def test_without_a_share_of_the_search_the_target_is_the_outcome() -> None:
    game = played_game(3)
    end = Position.unchecked(game.end, RULES)
    for decision, (value, _) in zip(
        game.decisions, value_targets(game, unsharpened(root_share=0.0)), strict=True
    ):
        assert value == (-1.0 if Position(decision.packed, RULES).side == end.side else 1.0)


def test_a_resigned_game_is_worth_what_the_search_said() -> None:
    """To either side, however games that were broken off are counted."""
    game = played_game(3, truncated=True)
    game.truncated, game.resigned, game.last_value = False, True, -0.97
    side = kernel.side_of(game.end)
    for truncated in ("draw", "mask"):
        config = unsharpened(root_share=0.0, final_root_share=0.0, truncated=truncated)
        for decision, (value, weight) in zip(
            game.decisions, value_targets(game, config), strict=True
        ):
            same = kernel.side_of(decision.packed) == side
            assert (value, weight) == (pytest.approx(-0.97 if same else 0.97), 1.0)


def test_the_share_of_the_search_grows_with_the_run() -> None:
    game = played_game(3)
    growing = unsharpened(root_share=0.1, final_root_share=0.5)
    for progress, share in ((0.0, 0.1), (0.25, 0.2), (1.0, 0.5)):
        steady = unsharpened(root_share=share, final_root_share=share)
        assert np.allclose(value_targets(game, growing, progress), value_targets(game, steady))


def test_decisions_between_quick_moves_fade_by_the_plies_between_them() -> None:
    game = played_game(3)
    config = unsharpened(0.9, root_share=0.0)
    every = [value for value, _ in value_targets(game, config)]
    game.decisions = game.decisions[1::3]
    found = [value for value, _ in value_targets(game, config)]
    assert found == pytest.approx(every[1::3])


@pytest.mark.parametrize("truncated", ["bootstrap", "mask"])
def test_a_proof_is_the_target_and_cuts_off_what_follows(truncated: str) -> None:
    game = played_game(1, truncated=True)
    game.decisions[3] = game.decisions[3]._replace(proven=-1, value=-1.0)
    targets = value_targets(game, unsharpened(root_share=0.25, truncated=truncated))
    assert targets[3] == (-1.0, 1.0)
    sides = [Position(d.packed, RULES).side for d in game.decisions]
    following = -1.0 if sides[2] == sides[3] else 1.0
    assert targets[2] == (pytest.approx(0.75 * following + 0.25 * game.decisions[2].value), 1.0)
    assert targets[4][1] == (0.0 if truncated == "mask" else 1.0)
    distrusted = value_targets(game, unsharpened(trust_proofs=False, root_share=0.0))
    assert abs(distrusted[3][0]) == pytest.approx(0.3)


def test_samples_keep_positions_and_policies() -> None:
    games = [played_game(seed) for seed in (5, 2, 9)]
    samples = samples_of(games, unsharpened())
    decisions = [d for game in sorted(games, key=lambda g: g.number) for d in game.decisions]
    assert samples.packed.tolist() == [d.packed for d in decisions]
    for row, decision in enumerate(decisions):
        stored = samples.policy[samples.begin[row] : samples.begin[row + 1]] / SHARE
        assert stored == pytest.approx(decision.policy, abs=1e-5)
    size = sum(array.nbytes for array in samples) / samples.size
    assert size < 60, "a sample takes tens of bytes"


def test_a_random_action_cuts_off_what_follows() -> None:
    """The search would have played something else: what came of it says nothing of the position."""
    game = played_game(1)
    game.decisions[3] = game.decisions[3]._replace(strays=True)
    config = unsharpened(root_share=0.25, final_root_share=0.25, stray_trust=0.5)
    targets = value_targets(game, config, progress=0.5)
    own = game.decisions[3].value
    assert targets[3] == (own, 1.0)
    sides = [Position(d.packed, RULES).side for d in game.decisions]
    following = own if sides[2] == sides[3] else -own
    assert targets[2][0] == pytest.approx(0.75 * following + 0.25 * game.decisions[2].value)
    steady = value_targets(played_game(1), config, progress=0.5)
    assert targets[4] == steady[4]
    assert value_targets(game, config) == value_targets(played_game(1), config)  # not yet trusted
    half = value_targets(game, config, progress=0.25)[3][0]
    after = steady[4][0] if sides[3] == sides[4] else -steady[4][0]
    assert half == pytest.approx(0.5 * own + 0.5 * after)


def test_values_are_moved_away_from_the_middle() -> None:
    """Nothing moves at 0, at the middle and at a win; the order of values stays."""
    values = np.linspace(-1, 1, 201)
    for strength, middle in ((0.5, 0.15), (1.5, 0.15), (2.0, 0.1)):
        moved = sharpened(values, strength, middle)
        assert np.allclose(moved, -moved[::-1])
        assert (np.diff(moved) >= 0).all()
        size, change = np.abs(values), np.abs(moved) - np.abs(values)
        still = np.isclose(size, 0) | np.isclose(size, middle) | np.isclose(size, 1)
        assert np.allclose(change[still], 0)
        assert (change[~still & (size < middle)] < 0).all()
        assert (change[~still & (size > middle)] > 0).all()
        assert np.abs(moved).max() == 1
    assert sharpened(values, 0.0, 0.15).tolist() == values.tolist()


def test_the_searchs_own_values_are_sharpened_and_outcomes_are_not() -> None:
    game, sharp = played_game(3), played_game(3)
    values = sharpened(np.array([d.value for d in sharp.decisions]), 1.0, 0.2)
    sharp.decisions = [
        decision._replace(value=value)
        for decision, value in zip(sharp.decisions, values.tolist(), strict=True)
    ]
    config = TargetsConfig(root_share=0.3, sharpen=1.0, sharpen_from=0.2)
    plain = unsharpened(root_share=0.3)
    assert value_targets(game, config) == value_targets(sharp, plain)
    alone = TargetsConfig(root_share=0.0, sharpen=1.0)
    assert {abs(value) for value, _ in value_targets(game, alone)} == {1.0}
