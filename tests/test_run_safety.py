"""A run folder is whole after any kill, loud about damage and full disks, and runs no code."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.run_tools import INFO, check_content, flip, save, steps_with, weights_of
from trainers import checkpoints, files
from trainers.checkpoints import CheckpointError, CheckpointWarning, RunFolder, load_weights

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder(tmp_path / "run") as opened:
        yield opened


def test_a_flipped_bit_in_any_byte_of_the_weights_is_noticed(run: RunFolder) -> None:
    save(run, 1)
    path = run.checkpoints / "step_000000001.safetensors"
    whole = path.read_bytes()
    copy = run.path / "copy.safetensors"
    chance = random.Random(3)
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8)
        copy.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"copy\.safetensors"):
            load_weights(copy)
    copy.write_bytes(whole)
    load_weights(copy)


@pytest.mark.parametrize("suffix", [".safetensors", ".state"])
def test_damage_anywhere_falls_back_with_a_warning(run: RunFolder, suffix: str) -> None:
    save(run, 1, 2)
    path = run.checkpoints / f"step_000000002{suffix}"
    whole = path.read_bytes()
    chance = random.Random(7)
    damaged = [whole[: chance.randrange(len(whole))] for _ in range(20)] + [b"", whole + b"\0"]
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        damaged.append(bytes(data))
    for content in damaged:
        path.write_bytes(content)
        with pytest.warns(CheckpointWarning, match="step_000000001.safetensors is used instead"):
            assert check_content(run.load()) == 1
    path.unlink()
    if suffix == ".state":
        with pytest.warns(CheckpointWarning, match="no training state"):
            assert check_content(run.load()) == 1
    path.write_bytes(whole)
    assert check_content(run.load()) == 2


def test_without_a_good_checkpoint_the_error_lists_every_fault(run: RunFolder) -> None:
    save(run, 1, 2, 3)
    flip(run.checkpoints / "step_000000001.safetensors", 4000)
    flip(run.checkpoints / "step_000000002.state", 4000)
    (run.checkpoints / "step_000000003.state").unlink()
    with pytest.raises(CheckpointError) as caught:
        run.load()
    _, third, second, first = str(caught.value).splitlines()
    assert "step_000000003.safetensors has no training state" in third
    assert "step_000000002.state is damaged" in second
    assert "step_000000001.safetensors" in first
    with pytest.raises(CheckpointError, match=r"step_000000002\.state is damaged"):
        run.load(2)


class Mischief:
    """Pickled, it is a call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def _as_archive(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("encode", [_as_archive, pickle.dumps])
def test_a_file_that_wants_to_run_code_is_refused(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encode: Any
) -> None:
    victim = tmp_path / "made"
    crafted = encode({"step": 1, "trap": Mischief(victim)})
    pickle.loads(pickle.dumps(Mischief(victim)))
    assert victim.is_dir(), "the trap works where it is sprung"
    victim.rmdir()
    monkeypatch.setattr(checkpoints, "encode_state", lambda _: crafted)
    path = run.save(1, weights_of(1), INFO, {})
    assert run.load(1, with_state=False).info.step == 1
    with pytest.raises(CheckpointError, match=r"state of .* is refused"):
        run.load(1)
    path.write_bytes(crafted)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_weights(path)
    assert not victim.exists()


def test_the_refusal_names_the_call(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "encode_state", lambda _: _as_archive({"a": Mischief(ROOT)}))
    run.save(1, weights_of(1), INFO, {})
    with pytest.raises(CheckpointError, match=r"a call of (posix|nt)\.mkdir"):
        run.load()


def test_a_file_is_synced_before_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def spy(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            if name == "fsync":
                is_folder = os.path.isdir(f"/proc/self/fd/{arguments[0]}")
                calls.append("sync folder" if is_folder else "sync file")
            else:
                calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, call)

    spy("fsync")
    spy("replace")
    files.write_atomically(tmp_path / "file", b"content")
    if sys.platform == "linux":
        assert calls == ["sync file", "replace", "sync folder"]
    assert os.listdir(tmp_path) == ["file"]


class FullDisk:
    """Lets a number of file calls through and fails the next one, half way where it is a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
        self.left = calls
        for name in ("fsync", "replace", "symlink"):
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))
        monkeypatch.setattr(files, "open", self.counted(self.opened), raising=False)

    def fails(self) -> bool:
        self.left -= 1
        return self.left == -1

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self.fails():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments)

        return call

    def opened(self, path: Path, mode: str) -> io.FileIO:
        disk = self

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                if disk.fails():
                    super().write(data[: len(data) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        return File(path, mode)


def test_a_full_disk_at_any_step_is_an_error_and_leaves_the_checkpoint_before(
    tmp_path: Path,
) -> None:
    for calls in itertools.count():
        with RunFolder(tmp_path / f"run{calls}", keep=1) as run:
            save(run, 1, best=True)
            with pytest.MonkeyPatch.context() as patch:
                disk = FullDisk(patch, calls)
                try:
                    save(run, 2, best=True)
                    reason = ""
                except CheckpointError as error:
                    reason = str(error)
            if disk.left >= 0:
                break
            assert "No space left on device" in reason
            assert str(run.checkpoints) in reason
            reader = RunFolder(run.path, writable=False)
            saved = check_content(reader.load())
            assert check_content(reader.load("best")) in (1, saved)
            assert check_content(reader.load(1)) == 1
            assert steps_with(run, ".state") == list(range(1, saved + 1))
            assert not list(run.checkpoints.glob(".*.tmp"))
            save(run, 3)
            assert check_content(run.load()) == 3
    assert calls >= 16, "each of two files and two links fails at every step"


def test_a_file_over_the_size_limit_leaves_the_checkpoint_before(run: RunFolder) -> None:
    resource = pytest.importorskip("resource")
    save(run, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"could not write .*step_000000002\.state: File"):
            run.save(2, weights_of(2), INFO, {"replay": torch.zeros(100_000)})
        with pytest.raises(CheckpointError, match=r"could not write .*step_000000002\.safetensors"):
            run.save(2, weights_of(2, width=500), INFO, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(run.checkpoints)) == [
        "latest.safetensors",
        "step_000000001.safetensors",
        "step_000000001.state",
    ]
    assert check_content(run.load()) == 1


@contextlib.contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Root may write anywhere, whatever the permissions say."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX's")
def test_a_read_only_folder_is_an_error_and_leaves_the_checkpoint_before() -> None:
    # not tmp_path: the ordinary user must be able to read it
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with RunFolder(Path(folder) / "run") as run:
            save(run, 1)
            for path in [run.path, *run.path.rglob("*")]:
                path.chmod(0o555 if path.is_dir() else 0o444)
            with an_ordinary_user():
                assert check_content(RunFolder(run.path, writable=False).load()) == 1
                with pytest.raises(CheckpointError, match=r"could not write .*Permission denied"):
                    save(run, 2)
            run.close()
            with (
                an_ordinary_user(),
                pytest.raises(CheckpointError, match=r"could not write .*\.lock: Permission denie"),
            ):
                RunFolder(run.path)
            for path in [run.path, run.checkpoints]:
                path.chmod(0o755)
            assert check_content(run.load()) == 1
            assert run.names() == ["step_000000001"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"could not make the folder .*file"):
        RunFolder(tmp_path / "file" / "run")


def test_only_one_may_write_and_readers_need_no_lock(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with RunFolder(tmp_path / "run") as run:
        save(run, 1)
        with pytest.raises(CheckpointError, match=rf"written to by process {os.getpid()} on"):
            RunFolder(run.path)
        reader = RunFolder(run.path, writable=False)
        assert check_content(reader.load()) == 1
        for forbidden in (partial(save, reader, 2), reader.prune, partial(reader.mark_best, 1)):
            with pytest.raises(CheckpointError, match="not open for writing"):
                forbidden()
    with pytest.raises(CheckpointError, match="not open for writing"):
        save(run, 2)
    RunFolder(run.path).close()


def test_another_process_holds_the_folder_until_it_dies(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    RunFolder(tmp_path / "run").close()
    program = (
        "import fcntl, sys, time; lock = open(sys.argv[1], 'r+'); fcntl.flock(lock, fcntl.LOCK_EX)"
        "; print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-S", "-c", program, str(tmp_path / "run" / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            with pytest.raises(CheckpointError, match="is being written to by process"):
                RunFolder(tmp_path / "run")
        finally:
            other.kill()
    RunFolder(tmp_path / "run").close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_worker_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    waiting, ending = os.pipe()
    ready, begun = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ending)
        os.write(begun, b"x")
        os.read(waiting, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        run.close()
        RunFolder(tmp_path / "run").close()
    finally:
        for descriptor in (ending, waiting, ready, begun):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_a_reader_never_meets_a_half_written_or_vanished_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunFolder(path, keep=1) as run:
        save(run, 1, best=True)
        failures: list[BaseException] = []

        def write() -> None:
            try:
                for step in range(2, 80):
                    save(run, step, best=step % 2 == 0)
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        reader = RunFolder(path, writable=False)
        last = reads = 0
        while writer.is_alive():
            step = check_content(reader.load())
            assert step >= last
            check_content(reader.load("best"))
            last, reads = step, reads + 1
        writer.join()
    assert not failures
    assert reads > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fifty_kills_leave_fifty_loadable_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.kill_savers", str(tmp_path), "--kills", "50"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    steps, amid, _ = map(int, done.stdout.split())
    assert steps >= 20, "the savers did save"
    assert amid >= 10, "and were hit while a file was being written"
