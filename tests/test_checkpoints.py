"""Checkpoints: what is saved comes back bit for bit, what must stay stays, misfits are refused."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pylos_env import PylosError, Rules
from tests.run_tools import INFO, check_content, flip, save, state_of, steps_with, weights_of
from trainers import checkpoint_file, files
from trainers.checkpoints import (
    EPISODES,
    CheckpointError,
    CheckpointInfo,
    CheckpointWarning,
    RunFolder,
    check_fits,
    git_commit,
    load_weights,
    rng_state,
    set_rng_state,
)

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder(tmp_path / "run") as opened:
        yield opened


def test_a_save_reads_back_bit_for_bit(run: RunFolder) -> None:
    weights = {
        "float": torch.tensor([1.5, -0.0, float("inf"), float("nan")]),
        "half": torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).half(),
        "brain": torch.full((2, 2), 1 / 3, dtype=torch.bfloat16),
        "scalar": torch.tensor(2**62 + 1),
        "mask": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "transposed": torch.arange(6).reshape(2, 3).T,
    }
    weights["tied"] = weights["half"]
    state: dict[str, Any] = {
        "none": None,
        "numbers": [1, -(2**127) - 5, 0.1, True, float("-inf")],
        "text": "a\n\u00e9\u265f",
        "bytes": [b"", b"\x00\xff"],
        "nested": ({"k": {7: (torch.arange(4, dtype=torch.uint8),)}}, ()),
        "ordered": OrderedDict(a=1),
    }
    info = dataclasses.replace(INFO, counters={"games": 12, "seconds": 0.1})
    path = run.save(1200, weights, info, state)
    assert path == run.checkpoints / "step_000001200.safetensors"
    found = run.load()
    assert list(found.weights) == sorted(weights, key=list(found.weights).index)
    assert found.weights.keys() == weights.keys()
    for name, tensor in weights.items():
        assert found.weights[name].dtype == tensor.dtype
        assert found.weights[name].shape == tensor.shape
        assert _bits(found.weights[name]) == _bits(tensor)
    assert found.state is not None
    tensor = found.state["nested"][0]["k"][7][0]
    assert tensor.dtype == torch.uint8
    assert tensor.tolist() == [0, 1, 2, 3]
    found.state["nested"][0]["k"][7] = state["nested"][0]["k"][7]
    assert found.state == state
    expected = dataclasses.replace(info, step=1200, timestamp=found.info.timestamp)
    assert found.info == expected
    assert found.info.shape == (33,)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _train(
    model: torch.nn.Linear,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    count: int,
) -> None:
    for _ in range(count):
        optimiser.zero_grad()
        model(torch.randn(5, 3)).square().mean().backward()
        optimiser.step()
        schedule.step()


def _parts() -> tuple[torch.nn.Linear, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 20)


def test_training_goes_on_bit_for_bit_after_a_load(run: RunFolder) -> None:
    torch.manual_seed(5)
    model, optimiser, schedule = _parts()
    _train(model, optimiser, schedule, 4)
    state = {
        "optimiser": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": rng_state(),
    }
    run.save(4, model.state_dict(), INFO, state)
    _train(model, optimiser, schedule, 6)

    torch.manual_seed(99)
    again, optimiser, schedule = _parts()
    found = run.load()
    assert found.state is not None
    again.load_state_dict(found.weights)
    optimiser.load_state_dict(found.state["optimiser"])
    schedule.load_state_dict(found.state["schedule"])
    set_rng_state(found.state["rng"])
    _train(again, optimiser, schedule, 6)
    for name, tensor in model.state_dict().items():
        assert _bits(again.state_dict()[name]) == _bits(tensor)


BIT_GENERATORS: list[Callable[[int], np.random.BitGenerator]] = [
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.MT19937,
    np.random.Philox,
    np.random.SFC64,
]


def test_random_numbers_go_on_with_the_very_next_draw(run: RunFolder) -> None:
    def generators(seed: int) -> dict[str, Any]:
        return {
            "torch": torch.Generator().manual_seed(seed),
            **{str(i): np.random.Generator(b(seed)) for i, b in enumerate(BIT_GENERATORS)},
        }

    def draw(own: dict[str, Any]) -> list[Any]:
        numbers = [random.random(), random.gauss(), torch.rand(3).tolist()]
        numbers += [np.random.rand(), np.random.randn()]  # noqa: NPY002
        numbers.append(torch.rand(2, generator=own["torch"]).tolist())
        for i in range(len(BIT_GENERATORS)):
            numbers += own[str(i)].integers(1 << 31, size=3, dtype=np.uint32).tolist()
            numbers.append(own[str(i)].standard_normal())
        return numbers

    first = generators(1)
    draw(first)
    run.save(1, weights_of(1), INFO, {"rng": rng_state(**first)})
    expected = draw(first)
    other = generators(2)
    assert draw(other) != expected
    state = run.load().state
    assert state is not None
    set_rng_state(state["rng"], **other)
    assert draw(other) == expected


def test_random_states_of_other_generators_or_devices_are_not_taken_silently() -> None:
    state = rng_state(games=np.random.default_rng(1))
    with pytest.raises(CheckpointError, match=r"has the generators \['games'\], but \[\] were"):
        set_rng_state(state)
    state = rng_state() | {"cuda": [torch.zeros(16)] * 9}
    with pytest.warns(CheckpointWarning, match="of 9 CUDA devices, here are"):
        set_rng_state(state)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.zeros(2), r"\['deep'\]\[1\] is of the type numpy.ndarray: use torch.from_numpy"),
        (np.float64(1), "numpy.float64"),
        (Path("x"), "PosixPath"),
        ({1, 2}, "builtins.set"),
        ({(1, 2): 3}, r"has the key \(1, 2\)"),
        (1 << 3000, "builtins.int"),
        (torch.eye(2).to_sparse(), "sparse"),
        (len, "builtin_function"),
    ],
)
def test_a_state_that_could_not_be_read_back_is_refused(
    run: RunFolder, value: Any, reason: str
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        run.save(1, weights_of(1), INFO, {"deep": [0, value]})
    assert os.listdir(run.checkpoints) == []


def test_a_view_is_saved_without_what_it_is_a_view_of(run: RunFolder) -> None:
    run.save(1, weights_of(1), INFO, {"few": torch.zeros(1_000_000)[:10]})
    assert (run.checkpoints / "step_000000001.state").stat().st_size < 10_000
    state = run.load().state
    assert state is not None
    assert state["few"].shape == (10,)


def test_bad_weights_and_infos_are_refused(run: RunFolder) -> None:
    with pytest.raises(CheckpointError, match="without weights"):
        run.save(1, {}, INFO, {})
    with pytest.raises(CheckpointError, match=r"weights\['a'\] is no tensor but float"):
        run.save(1, {"a": 1.0}, INFO, {})  # type: ignore[dict-item]
    with pytest.raises(CheckpointError, match="cannot be saved"):
        run.save(1, {"a": torch.zeros(1, dtype=torch.complex128)}, INFO, {})
    with pytest.raises(ValueError, match="step must be a whole number"):
        run.save(-1, weights_of(1), INFO, {})
    with pytest.raises(CheckpointError, match="config must be plain JSON"):
        dataclasses.replace(INFO, config={"a": np.zeros(1)})
    with pytest.raises(CheckpointError, match="unknown observation 'round'"):
        CheckpointInfo({}, Rules(), "round")
    assert os.listdir(run.checkpoints) == []


def test_the_commit_is_known_in_a_checkout_and_unknown_without_git(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = git_commit.__wrapped__()
    if (ROOT / ".git").exists() and shutil.which("git"):
        assert len(known.removesuffix("-dirty")) == 40
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit.__wrapped__() == "unknown"


def test_a_checkpoint_is_loaded_by_name_step_and_path(run: RunFolder) -> None:
    save(run, 1, 2, 3)
    run.mark_best(2)
    assert [check_content(run.load(which)) for which in ("latest", "best", 1, "3")] == [3, 2, 1, 3]
    path = run.checkpoints / "step_000000002.safetensors"
    assert check_content(run.load(path)) == check_content(run.load(str(path))) == 2
    assert load_weights(run.checkpoints / "latest.safetensors").info.step == 3
    assert load_weights(path).state is None
    assert run.latest() == run.checkpoints / "step_000000003.safetensors"
    with pytest.raises(CheckpointError, match="no checkpoint of step 7, only of 1, 2, 3"):
        run.load(7)
    with pytest.raises(CheckpointError, match=r"could not read nowhere\.safetensors"):
        run.load("nowhere.safetensors")


def test_an_empty_run_has_nothing_to_load(run: RunFolder) -> None:
    assert (run.latest(), run.best()) == (None, None)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        run.load()
    with pytest.raises(CheckpointError, match="marked as best"):
        run.load("best")
    with pytest.raises(CheckpointError, match="no run folder"):
        RunFolder(run.path / "typo", create=False)


@pytest.mark.parametrize("links", [True, False])
def test_latest_and_best_are_relative_links_or_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "this system has no links")

    if not links:
        monkeypatch.setattr(os, "symlink", no_links)
    with RunFolder(tmp_path / "run", keep=1) as run:
        save(run, 1, best=True)
        save(run, 2, 3)
    latest = run.checkpoints / "latest.safetensors"
    assert latest.is_symlink() == links
    if links:
        assert os.readlink(latest) == "step_000000003.safetensors"
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    with RunFolder(moved, keep=1) as run:
        save(run, 4)
        assert check_content(run.load("best")) == 1, "the state is found, and was kept"
        assert check_content(run.load(run.checkpoints / "latest.safetensors")) == 4
        assert steps_with(run, ".safetensors") == steps_with(run, ".state") == [1, 4]


def test_pruning_keeps_the_last_the_best_and_the_ladder(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", keep=2) as run:
        save(run, 10)
        run.enter(10, "Beginner", 0.6)
        save(run, 20, best=True)
        save(run, 30, 40, 50, 60)
        assert steps_with(run, ".safetensors") == [10, 20, 50, 60]
        assert steps_with(run, ".state") == [20, 50, 60], "of the ladder, the weights only"
        run.mark_best(50)
        save(run, 70, 80)
        assert steps_with(run, ".safetensors") == [10, 50, 70, 80]
        assert run.load(10, with_state=False).info.step == 10
        with pytest.raises(CheckpointError, match="it can play, not train on"):
            run.load(10)
        assert [entry.step for entry in run.manifest().checkpoints] == [10]


def test_pruning_never_removes_the_only_good_checkpoint(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", keep=3) as run:
        save(run, 1, 2, 3)
    for step in (2, 3):
        flip(run.checkpoints / f"step_{step:09d}.state", 99)
    with RunFolder(tmp_path / "run", keep=2) as run:
        with pytest.warns(CheckpointWarning, match="nothing is pruned: no checkpoint that would"):
            run.prune()
        assert steps_with(run, ".state") == [1, 2, 3]
        save(run, 4)
        assert steps_with(run, ".state") == [3, 4]


def test_nothing_is_pruned_while_the_manifest_cannot_be_read(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", keep=1) as run:
        save(run, 1)
        (run.path / "manifest.json").write_text("{")
        with pytest.warns(CheckpointWarning, match=r"nothing is pruned: .*manifest\.json"):
            save(run, 2)
        assert steps_with(run, ".safetensors") == [1, 2]


def test_a_ladder_entry_is_measured_from_the_file(run: RunFolder) -> None:
    save(run, 5)
    entry = run.enter(
        5, "Expert", 0.99, rating=900.0, rating_low=880.0, rating_high=920.0, oracle_score=0.97
    )
    assert entry.file == "checkpoints/step_000000005.safetensors"
    assert entry.sha256 == files.sha256_of(run.path / entry.file)
    assert entry.timestamp == run.load().info.timestamp
    assert run.manifest().level("expert") == entry
    flip(run.path / entry.file, 4000)
    with pytest.raises(CheckpointError, match=r"entry 1 .*sha256 is"):
        run.manifest()
    with pytest.raises(CheckpointError, match="damaged"):
        run.enter(5, "Expert", 0.99)


def test_a_step_saved_again_replaces_nothing(run: RunFolder) -> None:
    save(run, 5)
    run.enter(5, "Novice", 0.9)
    before = (run.checkpoints / "step_000000005.safetensors").read_bytes()
    run.save(5, weights_of(5), INFO, state_of(5) | {"more": 1})
    assert run.names() == ["step_000000005", "step_000000005_2"]
    assert (run.checkpoints / "step_000000005.safetensors").read_bytes() == before
    state = run.load(5).state
    assert state is not None
    assert state["more"] == 1
    run.manifest()


def test_steps_go_forward_only(run: RunFolder) -> None:
    save(run, 5, 9)
    with pytest.raises(CheckpointError, match=r"step 7 lies behind .*step_000000009"):
        save(run, 7)
    assert run.names() == ["step_000000005", "step_000000009"]


def test_a_damaged_newest_is_set_aside_by_the_save_that_replaces_it(run: RunFolder) -> None:
    save(run, 5, 9)
    flip(run.checkpoints / "step_000000009.safetensors", 99)
    with pytest.warns(CheckpointWarning, match=r"set aside as step_000000009\.safetensors\.damag"):
        save(run, 7)
    assert check_content(run.load()) == 7
    assert len(list(run.checkpoints.glob("*.damaged"))) == 2
    save(run, 9)
    assert run.names()[-1] == "step_000000009_2"


def test_a_good_player_of_the_ladder_is_never_set_aside(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", keep=1) as run:
        save(run, 8)
        run.enter(8, "Novice", 0.9)
        save(run, 9)
        flip(run.checkpoints / "step_000000009.safetensors", 99)
        with (
            pytest.warns(CheckpointWarning, match="step_000000009"),
            pytest.raises(CheckpointError, match=r"step 7 lies behind .*step_000000008"),
        ):
            save(run, 7)
        assert run.manifest().level("Novice").step == 8


def test_a_player_with_a_damaged_state_stays_and_the_run_goes_on(run: RunFolder) -> None:
    save(run, 10, 20)
    run.enter(20, "Novice", 0.9)
    flip(run.checkpoints / "step_000000020.state", 99)
    with pytest.warns(CheckpointWarning, match="step_000000020"):
        assert check_content(run.load()) == 10
    with pytest.warns(CheckpointWarning, match=r"set aside as step_000000020\.state\.damaged"):
        save(run, 15)
    save(run, 20, 25)
    assert run.manifest().level("Novice").step == 20
    assert run.names()[-3:] == ["step_000000020", "step_000000020_2", "step_000000025"]
    assert check_content(run.load()) == 25


def test_a_save_cut_short_is_finished_at_the_next_opening(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run, 1, best=True)
    with monkeypatch.context() as patch:
        patch.setattr(run, "_link_new", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save(run, 2, best=True)
    (run.checkpoints / "step_000000003.state").write_bytes(b"a save that got no further")
    (run.checkpoints / f".step_000000003.safetensors.{'0' * 16}.tmp").write_bytes(b"half")
    assert check_content(run.load("best")) == 1
    run.close()
    with RunFolder(run.path) as again:
        assert [check_content(again.load(which)) for which in ("latest", "best")] == [2, 2]
        assert os.readlink(again.checkpoints / "latest.safetensors").startswith("step_000000002")
        again.mark_best(1)
        assert len(os.listdir(again.checkpoints)) == 6
    with RunFolder(run.path) as again:
        assert check_content(again.load("best")) == 1, "a choice made since is not undone"


def test_metadata_is_part_of_the_run(run: RunFolder) -> None:
    metadata = run.metadata()
    metadata.add_elo(5, 1010.0)
    run.write_metadata(metadata)
    assert RunFolder(run.path, writable=False).metadata() == metadata


def test_another_rule_set_or_observation_is_refused_with_both_named(run: RunFolder) -> None:
    save(run, 1)
    found = run.load()
    check_fits(found)
    check_fits(found, rules="advanced", observation="flat")
    with pytest.raises(CheckpointError, match=r"under the rules 'advanced', but 'mature' was ask"):
        check_fits(found, rules="mature")
    with pytest.raises(CheckpointError, match=r"'advanced', but 'advanced greedy' was asked for"):
        check_fits(found, rules=Rules.of("advanced", "greedy"), observation="flat")
    with pytest.raises(
        CheckpointError, match=r"'flat' \[33\], but 'planes' \[15, 4, 4\] was asked for"
    ):
        check_fits(found, observation="planes")
    older = dataclasses.replace(found, info=dataclasses.replace(found.info, shape=(32,)))
    with pytest.raises(CheckpointError, match=r"'flat' \[32\], but 'flat' \[33\] was asked for"):
        check_fits(older, observation="flat")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rules_code": "77"}, "had the code 77 when it was saved, and have 3 here"),
        ({"rules": "chess"}, "unknown rules 'chess'"),
        ({"format": "9"}, "its format is '9', this program reads '1'"),
        ({"step": "many"}, "many"),
        ({"network": "["}, "Expecting value"),
    ],
)
def test_a_checkpoint_of_another_version_is_refused(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], reason: str
) -> None:
    plain = CheckpointInfo.to_metadata
    monkeypatch.setattr(CheckpointInfo, "to_metadata", lambda info: plain(info) | change)
    save(run, 1)
    with pytest.raises(CheckpointError, match=reason):
        run.load()


def test_a_foreign_name_in_the_metadata_opens_no_file(run: RunFolder, tmp_path: Path) -> None:
    data = checkpoint_file.encode_weights(INFO, "../../etc/passwd", weights_of(1), "0" * 64)
    (run.checkpoints / "step_000000001.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match="which is no name"):
        run.load()


def test_errors_are_the_packages_own() -> None:
    assert issubclass(CheckpointError, PylosError)


def test_runs_that_count_episodes_have_names_of_their_own(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", keep=2, naming=EPISODES) as run:
        save(run, 7, best=True)
        save(run, 12, 20, 20, 1234567)
        names = ["ep_000007", "ep_000020_2", "ep_1234567"]
        assert run.names() == names, "the best stays, and the two newest"
        links = {p.name for p in run.checkpoints.iterdir() if p.is_symlink()}
        assert links == {"latest.safetensors", "best_elo.safetensors"}
    reader = RunFolder(tmp_path / "run", writable=False)
    for which, step in (("latest", 1234567), ("best_elo", 7), ("best", 7), (20, 20)):
        assert check_content(reader.load(which)) == step
    with RunFolder(tmp_path / "run", naming=EPISODES) as run:
        run.mark_best(20)
        assert check_content(run.load("best_elo")) == 20
