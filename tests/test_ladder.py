"""The ladder that ships: every level is there, small, rated, measured, and plays."""

from __future__ import annotations

import pytest

from pylos_env import Position, agents
from pylos_web.sessions import Limits
from trainers.checkpoint_file import load_weights
from trainers.manifest import MANIFEST_FILE, Manifest
from trainers.players import ladder_folder


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.delenv("PYLOS_LADDER", raising=False)
    return Manifest.read(ladder_folder() / MANIFEST_FILE)  # checks every file's digest


def test_the_ladder_has_six_levels_that_fit_a_package(ladder: Manifest) -> None:
    assert len(ladder.checkpoints) >= 6
    assert all(ladder.file(entry).stat().st_size < 2_000_000 for entry in ladder.checkpoints)


def test_every_level_is_rated_and_measured(ladder: Manifest) -> None:
    for entry in ladder.checkpoints:
        assert entry.rating is not None
        assert entry.oracle_score is not None
        assert entry.simulations is not None
    rated = sorted(ladder.checkpoints, key=lambda entry: entry.rating or 0.0)
    assert (rated[-1].oracle_score or 0) > (rated[0].oracle_score or 0) + 0.1
    assert len({entry.label for entry in ladder.checkpoints}) >= 3


def test_levels_come_from_one_run_and_tell_nothing_of_where_it_lay(ladder: Manifest) -> None:
    infos = [load_weights(ladder.file(entry)).info for entry in ladder.checkpoints]
    assert all(info.config["run"] == info.config["resume"] == "" for info in infos)
    assert len({str(info.config["seed"]) for info in infos}) == 1
    assert len({info.step for info in infos}) >= 6


def test_the_web_lets_the_strongest_level_think_as_long_as_it_was_measured(
    ladder: Manifest,
) -> None:
    assert max(entry.simulations or 0 for entry in ladder.checkpoints) <= Limits().simulations


def test_every_level_plays_by_its_name(ladder: Manifest) -> None:
    position = Position.start("advanced")
    for entry in ladder.checkpoints:
        agent = agents.make(f"checkpoint:{ladder.name_of(entry)}", seed=0)
        assert (getattr(agent, "config", None) is not None) == bool(entry.simulations)
        if entry.simulations:
            assert agent.config.simulations == entry.simulations  # type: ignore[attr-defined]
        assert agent.act(position) in position.legal_actions()
    assert agents.make("checkpoint:expert", seed=0).act(position) in position.legal_actions()
