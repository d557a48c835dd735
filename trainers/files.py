"""Files that are whole or absent: atomic and durable writes, a folder's lock, strict JSON.

A write goes to a temporary file in the same folder, is flushed and synced, takes its place by a
rename, and the folder is synced: whoever reads sees the old file or the new one, also after a kill
or a power cut. What a kill leaves behind is a temporary file, which `sweep` removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from errno import EACCES, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM
from pathlib import Path
from typing import Any, BinaryIO, Final

from pylos_env.errors import PylosError

try:
    import fcntl
except ImportError:  # Windows has none; a run folder is not locked there
    fcntl = None  # type: ignore[assignment]

_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_NO_SYMLINKS: Final = (EACCES, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM)
_WINDOWS_NEEDS_A_RIGHT: Final = 1314


class CheckpointError(PylosError):
    """A checkpoint, manifest or run folder that cannot be written, read or used."""


class CheckpointWarning(UserWarning):
    """Something in a run folder is damaged, and work goes on without it."""


def write_atomically(
    path: Path, content: bytes | memoryview | Callable[[BinaryIO], object]
) -> None:
    """Replace a file by bytes, or by what a function writes; on any error the old one stays."""
    with _replacing(path) as temporary, open(temporary, "xb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def link_atomically(path: Path, target: str) -> None:
    """Point `path` at a file of its own folder; a copy where the system has no symbolic links."""
    try:
        with _replacing(path) as temporary:
            os.symlink(target, temporary)
    except (CheckpointError, NotImplementedError) as error:
        cause = error.__cause__
        missing_right = getattr(cause, "winerror", None) == _WINDOWS_NEEDS_A_RIGHT
        if isinstance(cause, OSError) and cause.errno not in _NO_SYMLINKS and not missing_right:
            raise
        write_atomically(path, path.with_name(target).read_bytes())


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # what cannot be removed now is swept later
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable (Windows offers no such call)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and the ones above it, durably."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise CheckpointError(f"could not make the folder {folder}: {error.strerror}") from error


def sweep(folder: Path) -> None:
    """Remove the temporary files of killed writers; only for the holder of the folder's lock."""
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file; values that JSON lacks, NaN among them, are refused."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"could not write {path}: {error}") from error
    write_atomically(path, f"{text}\n".encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; NaN, infinities and keys that stand twice are refused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"could not read {path}: {error.strerror}") from error
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key stands twice in {[key for key, _ in pairs]}")
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


class FolderLock:
    """The right to write into a folder: one holder at a time, released by the kernel at its death.

    A forked child does not inherit it, so that workers which outlive a killed trainer do not keep
    the folder locked.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / ".lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CheckpointError(f"could not write {path}: {error.strerror}") from error
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
            self.release()
            raise CheckpointError(
                f"{folder} is being written to by {holder}: end it first, "
                "or open the folder with writable=False"
            ) from None
        except OSError as error:
            self.release()
            raise CheckpointError(f"could not lock {path}: {error.strerror}") from error
        _LOCKS.add(self)

    @property
    def held(self) -> bool:
        return self._close.alive

    def release(self) -> None:
        self._close()


_LOCKS: Final[weakref.WeakSet[FolderLock]] = weakref.WeakSet()


def _release_in_child() -> None:
    for lock in list(_LOCKS):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
