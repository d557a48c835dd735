"""One game at its table: who may do what, undo, results; and who can be played against."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pylos_env import Position, Rules, parse_games
from pylos_env.options import MAX_PLIES
from pylos_env.testing import random_game
from pylos_web.levels import AgentThinker, Levels, NetworkThinker
from pylos_web.messages import NewGame, Place, Raise, Refusal, Remove, SkipRemoval, Typed
from pylos_web.table import NOBODY, Seat, Table
from pylos_web.thinking import Guard
from tests.web_tools import fallback_levels, write_ladder
from trainers.manifest import Manifest
from trainers.play.game import Game
from trainers.search.tree import Floats, Ints

SQUARE_AT_1B2 = "WW..W....B..B.B./........./..../. w 0"
TO_RAISE = "WW..BB.........W/........./..../. w 0"


def table(text: str | None = None, mode: Any = "human_vs_human", level: str = "random") -> Table:
    start = Position.start() if text is None else Position.parse(text)
    ai = Seat(*fallback_levels().find(level, start.rules))
    seats = {
        "human_vs_human": (Seat(), Seat()),
        "human_vs_ai": (Seat(), ai),
        "ai_vs_ai": (ai, ai),
    }[mode]
    return Table(mode, seats, Game.start(start), seed=1)


def place(cell: int, seq: int | None = None) -> Place:
    return Place(type="move", kind="place", cell=cell, seq=seq)


def code_of(error: pytest.ExceptionInfo[Refusal]) -> str:
    return error.value.code


def test_a_move_counts_the_sequence_on() -> None:
    game = table()
    game.move(place(5, seq=0))
    assert (game.seq, str(game.position)) == (1, ".....W........../........./..../. b 0")
    with pytest.raises(Refusal) as error:
        game.move(place(6, seq=0))
    assert code_of(error) == "stale"


def test_a_raise_and_a_formation_are_played_step_by_step() -> None:
    game = table(TO_RAISE)
    assert game.legal.rise == [(15, 16)]
    game.move(Raise(type="move", kind="raise", source=15, target=16))
    assert game.position[16] == "W"
    game = table(SQUARE_AT_1B2)
    game.move(place(5))
    assert game.legal.model_dump() == {
        "place": [],
        "rise": [],
        "remove": [0, 1, 4, 5],
        "stop": True,
    }
    game.move(Remove(type="remove", pieces=[0]))
    assert game.legal.remove == [1, 4, 5]
    game.move(SkipRemoval(type="skip_removal"))
    assert game.position.side == 1


def test_two_pieces_may_be_taken_at_once() -> None:
    game = table(SQUARE_AT_1B2)
    game.move(place(5))
    game.move(Remove(type="remove", pieces=[0, 4]))
    assert (game.position.reserves[0], game.position.side) == (13, 1)


@pytest.mark.parametrize(
    ("text", "message", "reason"),
    [
        (None, place(16), "nothing to rest on"),
        (TO_RAISE, place(0), "the cell is taken"),
        (TO_RAISE, Raise(type="move", kind="raise", source=4, target=16), "no own sphere"),
        (TO_RAISE, Raise(type="move", kind="raise", source=1, target=0), "higher level"),
        (TO_RAISE, Remove(type="remove", pieces=[0]), "nothing may be taken back"),
        (TO_RAISE, SkipRemoval(type="skip_removal"), "nothing may be taken back"),
        (TO_RAISE, Typed(type="move", kind="text", text="b2"), "did you mean 1b2"),
    ],
)
def test_an_illegal_move_is_explained_and_changes_nothing(
    text: str | None, message: Any, reason: str
) -> None:
    game = table(text)
    before = game.game
    with pytest.raises(Refusal, match=reason) as error:
        game.move(message)
    assert code_of(error) == "illegal_move"
    assert game.game is before


def test_a_person_plays_only_on_their_turn() -> None:
    game = table(mode="human_vs_ai")
    game.move(place(0))
    assert game.thinker is not None
    with pytest.raises(Refusal) as error:
        game.move(place(1))
    assert code_of(error) == "not_your_turn"
    assert game.legal.place == []


def test_undo_goes_back_to_the_persons_own_decision() -> None:
    game = table(mode="human_vs_ai")
    with pytest.raises(Refusal) as error:
        game.undo()
    assert code_of(error) == "nothing_to_undo"
    game.move(place(0))
    game.play(5)
    game.move(place(1))
    game.undo()
    assert game.game.plies == 2
    game.undo()
    assert game.game.plies == 0
    assert game.seq == 5


def test_undo_takes_one_step_of_a_turn_back() -> None:
    game = table(SQUARE_AT_1B2)
    game.move(place(5))
    game.move(Remove(type="remove", pieces=[0]))
    game.undo()
    assert game.position.take_backs_left == 2


def test_a_resignation_ends_the_game_for_the_person_and_can_be_undone() -> None:
    game = table(mode="human_vs_ai")
    game.move(place(0))
    game.resign()
    assert game.result is not None
    assert game.result.model_dump() == {"winner": "black", "reason": "resigned"}
    with pytest.raises(Refusal):
        game.resign()
    assert "[Termination" in str(game.record())
    game.undo()
    assert game.game.plies == 1
    assert game.legal == NOBODY  # it is the machine's turn again


def test_nobody_can_resign_for_machines() -> None:
    with pytest.raises(Refusal) as error:
        table(mode="ai_vs_ai").resign()
    assert code_of(error) == "not_allowed"


def test_the_state_tells_all_and_spectators_get_no_moves() -> None:
    game = table(SQUARE_AT_1B2)
    game.move(place(5))
    state = game.state(watching=False, thinking=False, pace_ms=1, paused=False, watchers=0)
    assert (state.phase, state.turn, state.you, state.plies) == (
        "take_back",
        "white",
        "both",
        ["1b2"],
    )
    assert state.reserves.model_dump() == {"white": 11, "black": 12}
    watched = game.state(watching=True, thinking=False, pace_ms=1, paused=False, watchers=1)
    assert (watched.you, watched.legal.remove, watched.may_undo) == ("none", [], False)


def test_endless_games_are_stopped() -> None:
    game = table()
    cut = Game((game.position,) * (MAX_PLIES + 1), (0,) * MAX_PLIES)
    game.game = cut
    assert game.result is not None
    assert game.result.model_dump() == {"winner": None, "reason": "ply_limit"}


def test_a_record_of_a_played_game_is_read_back() -> None:
    record = random_game(Rules.of("advanced"), 5)
    game = Table("human_vs_human", (Seat(), Seat()), Game.of_record(record), 0)
    assert parse_games(str(game.record()))[0].actions == record.actions
    assert game.result is not None
    assert game.result.reason == "won"


# Levels


def test_levels_are_a_table_of_ids(tmp_path: Path) -> None:
    levels = Levels.load(tmp_path, 800)
    assert [level.id for level in levels.all][:4] == [
        "random",
        "rule_based",
        "alphabeta:2",
        "alphabeta:4",
    ]
    with pytest.raises(Refusal) as error:
        levels.find("checkpoint:/etc/passwd", Rules.of("advanced"))
    assert code_of(error) == "unknown_level"


def test_perfect_is_offered_where_its_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path))
    assert "perfect" not in [level.id for level in Levels.load(None, 800).all]
    (tmp_path / "mature-4.table").touch()
    *_, perfect = Levels.load(None, 800).all
    assert (perfect.id, perfect.rules) == ("perfect", ("mature",))


def test_a_ladder_gives_its_entries_from_weak_to_strong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path))
    levels = Levels.load(write_ladder(tmp_path / "run", (0, 16, 4000)), 64)
    trained = [level for level in levels.all if level.kind == "network"]
    assert [level.label for level in trained] == ["Beginner", "Novice", "Intermediate"]
    assert [level.simulations for level in trained] == [0, 16, 64]
    assert levels.all[1].rating_low == 1150
    assert "16 lines of play" in levels.all[1].description
    rules = Rules.of("advanced")
    assert levels.find(None, rules)[0].label == "Beginner"
    analyst = levels.analyst(rules)
    assert analyst is not None
    assert analyst[0].label == "Intermediate"
    with pytest.raises(Refusal) as error:
        levels.find(levels.all[0].id, Rules.of("mature"))
    assert code_of(error) == "unsuitable_level"


def test_agents_stand_in_for_rules_that_no_network_plays(tmp_path: Path) -> None:
    levels = Levels.load(write_ladder(tmp_path / "run"), 64)
    assert levels.find(None, Rules.of("mature"))[0].id == "random"
    with pytest.raises(Refusal) as error:
        levels.find("random", Rules.of("advanced"))
    assert code_of(error) == "unsuitable_level"


def test_one_network_may_be_several_levels(tmp_path: Path) -> None:
    folder = write_ladder(tmp_path, (0, 16))
    manifest = Manifest.read(folder / "manifest.json")
    weak, strong = manifest.checkpoints
    again = replace(strong, simulations=32, rating=1300.0, rating_high=1400.0)
    odd = replace(weak, file="odd name.safetensors", rating=900.0, rating_low=800.0)
    shutil.copy(manifest.file(weak), folder / odd.file)
    Manifest(manifest.path, (weak, strong, again, odd)).write()
    levels = [level for level in Levels.load(folder, 64).all if level.kind == "network"]
    assert [(level.id, level.label, level.simulations) for level in levels] == [
        ("odd-name", "Beginner 1", 0),
        (weak.name, "Beginner 2", 0),
        (f"{strong.name}@16", "Novice 1", 16),
        (f"{strong.name}@32", "Novice 2", 32),
    ]
    for level in levels:
        NewGame(type="new_game", checkpoint=level.id)
    assert levels[-1].description.startswith("Stronger than a search four turns deep. ")


def fresh(thinker: NetworkThinker) -> NetworkThinker:
    """The same without the trees of its earlier moves."""
    return NetworkThinker(thinker.evaluator, thinker.simulations)


@pytest.mark.parametrize("number", [0, 1])
def test_networks_play_legally_through_every_symmetry(tmp_path: Path, number: int) -> None:
    levels = Levels.load(write_ladder(tmp_path), 64)
    _, thinker = levels.find(levels.all[number].id, Rules.of("advanced"))
    assert isinstance(thinker, NetworkThinker)
    for position in list(random_game(Rules.of("advanced"), 3).positions())[5:-1:6]:
        for key in range(8):
            thought = fresh(thinker).think(position, key, Guard(60))
            legal = position.legal_actions()
            assert thought.action in legal
            assert thought.shares is not None
            assert thought.shares[legal].sum() == pytest.approx(1, abs=1e-4)
            seen = fresh(thinker).think(position.symmetric(key), 0, Guard(60))
            assert seen.value == pytest.approx(thought.value)
            assert seen.shares is not None
            assert np.sort(seen.shares) == pytest.approx(np.sort(thought.shares))


def test_searches_are_answered_together_as_they_are_by_twos(tmp_path: Path) -> None:
    levels = Levels.load(write_ladder(tmp_path), 64)
    _, thinker = levels.find(levels.all[1].id, Rules.of("advanced"))
    assert isinstance(thinker, NetworkThinker)
    positions = list(random_game(Rules.of("advanced"), 4).positions())[:-1]
    questions = [(position, key) for key, position in enumerate(positions)]
    together = thinker.think_many(questions, Guard(60))
    for question, thought in zip(questions, together, strict=True):
        among_two = thinker.think_many([question, questions[0]], Guard(60))[0]
        assert among_two.action == thought.action
        assert among_two.value == pytest.approx(thought.value, abs=1e-4)
        assert among_two.shares == pytest.approx(thought.shares, abs=1e-3)


def test_a_game_alone_goes_on_with_its_tree_and_games_do_not_share_one(tmp_path: Path) -> None:
    levels = Levels.load(write_ladder(tmp_path), 64)
    _, thinker = levels.find(levels.all[1].id, Rules.of("advanced"))
    assert isinstance(thinker, NetworkThinker)
    thinker = NetworkThinker(thinker.evaluator, 64)
    asked: list[int] = []

    def counting(packed: Ints) -> tuple[Floats, Floats]:
        asked.append(len(packed))
        return evaluator(packed)

    evaluator = thinker.evaluator
    thinker.evaluator = counting  # type: ignore[assignment]
    first, other = Position.start(), Position.start().play(5).play(0).play(10)
    for position in (first, other):
        thinker.think_many([(position, 3)], Guard(60))
    assert max(asked) > 1  # leaves in batches
    boards = thinker._boards
    assert boards is not None
    assert [tree.kept_visits for tree in boards._kept] == [thinker.simulations] * 2
    thought = thinker.think(first, 0, Guard(60))  # by another symmetry: the tree's own is taken
    assert thought.shares is not None
    reply = first.play(int(thought.shares.argmax()))
    thinker.think(reply, 5, Guard(60))
    assert sorted(tree.kept_visits > thinker.simulations for tree in boards._kept) == [False, True]
    guard = Guard(-1.0)
    guard.begin()
    assert thinker.think(reply, 0, guard).out_of_time
    assert len(boards._kept) == 1  # a tree that was left in the middle of a search is dropped


def test_a_search_out_of_time_says_so_and_plays_the_raw_policy(tmp_path: Path) -> None:
    levels = Levels.load(write_ladder(tmp_path), 64)
    _, thinker = levels.find(levels.all[1].id, Rules.of("advanced"))
    guard = Guard(-1.0)
    guard.begin()
    thought = thinker.think(Position.start(), 0, guard)
    assert thought.out_of_time
    assert thought.simulations == 0
    assert thought.action in Position.start().legal_actions()


def test_agents_are_not_shared_between_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    thinker = AgentThinker("alphabeta:2")
    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(lambda: thinker.agent).result()
    assert thinker.agent is thinker.agent
    assert other is not thinker.agent
