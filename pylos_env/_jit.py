"""How this package compiles and caches its kernels.

`jit` is `numba.njit` plus a disk cache that is never stale and never mixed up:

- Numba alone keys a cached function by the source file it stands in, so an edit to a helper in
  another file keeps serving the old machine code. Here the key is a digest of every Python file of
  the function's package and of `pylos_env`: any edit or upgrade compiles anew.
- Numba numbers its files and lists them in an index. Two processes that compile at the same time
  can claim one number for two signatures, and a later process then runs the wrong one. Here a
  file's name follows from the signature, and its content carries a checksum.

Files go where Numba puts them (`NUMBA_CACHE_DIR`, the package's `__pycache__`, or the user's cache
folder); with none of these writable, kernels are compiled per process. Nothing is compiled at
import.

`NUMBA_DISABLE_JIT` cannot be used: bit counting is a machine instruction that exists only compiled.

Kernels release the GIL, so that batches can be spread over cores with plain threads (`batch.py`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, types
from numba.core.serialize import dumps
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _digest(package: Path) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.digest()


class _PackageStamp:
    """Mixin for Numba's cache locators: freshness is that of all sources, not of one file."""

    _py_file: str

    def get_source_stamp(self) -> bytes:
        package = Path(self._py_file).resolve().parent
        while (package.parent / "__init__.py").exists():
            package = package.parent
        return _digest(package) + _digest(Path(__file__).resolve().parent)


class _UserProvided(_PackageStamp, caching.UserProvidedCacheLocator):
    pass


class _InTree(_PackageStamp, caching.InTreeCacheLocator):
    pass


class _UserWide(_PackageStamp, caching.UserWideCacheLocator):
    pass


class _CacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [_UserProvided, _InTree, _UserWide]


class _Files:
    """One file for each compiled signature; stands in for Numba's numbered files and index."""

    def __init__(self, folder: str, name: str, stamp: bytes) -> None:
        self._prefix = Path(folder) / name
        self._stamp = stamp + numba.__version__.encode()

    def _path(self, key: object) -> Path:
        return Path(f"{self._prefix}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc")

    def load(self, key: object) -> Any:
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        seal, data = content[:32], content[32:]
        if seal != hashlib.sha256(self._stamp + data).digest():
            return None  # other sources, another Numba, or a damaged file
        return pickle.loads(data)

    def save(self, key: object, value: Any) -> None:
        data = dumps(value)  # type: ignore[no-untyped-call]
        path = self._path(key)
        partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        try:
            partial.write_bytes(hashlib.sha256(self._stamp + data).digest() + data)
            os.replace(partial, path)
        except OSError:  # a full disk costs the next process a compilation, not this one its work
            partial.unlink(missing_ok=True)


class _FunctionCache(caching.FunctionCache):
    _impl_class = _CacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        locator = self._impl.locator
        self._cache_file: Any = _Files(
            locator.get_cache_path(), self._impl.filename_base, locator.get_source_stamp()
        )


def jit(function: F) -> F:
    """Compile `function` on its first call; load it from the cache where sources are unchanged."""
    return _compiled(function, fastmath=False)


def jit_sums(function: F) -> F:
    """The same, and sums of floats may be added up in any order: they use vector instructions."""
    return _compiled(function, fastmath={"contract", "nsz", "reassoc"})


def jit_views(function: F) -> F:
    """`jit` for kernels that slice arrays in inner loops: no references are counted.

    Numba counts those to every slice by atomic operations, which took a sixth of a network's time.
    Such kernels can neither make an array nor return one: Numba refuses them. Nor may they call a
    kernel that returns one: that is not refused, and leaks.
    """
    return _compiled(function, fastmath=False, counted=False)


def jit_view_sums(function: F) -> F:
    """`jit_sums` for such kernels."""
    return _compiled(function, fastmath={"contract", "nsz", "reassoc"}, counted=False)


def _compiled(function: F, fastmath: bool | set[str], counted: bool = True) -> F:
    # said either way: left out, a kernel would inherit it from the first one that calls it
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "_nrt": counted}
    dispatcher: Any = numba.njit(**options)(function)
    with contextlib.suppress(RuntimeError):  # Numba's way to say that no cache folder is writable
        dispatcher._cache = _FunctionCache(function)
    return cast(F, dispatcher)


@intrinsic
def _popcount(typingctx, value):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.int64(types.int64), codegen


@intrinsic
def _lowest_bit(typingctx, value):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.int64(types.int64), codegen


popcount = cast(Callable[[int], int], _popcount)
"""Number of set bits of an int64: one machine instruction, inside kernels only."""

lowest_bit = cast(Callable[[int], int], _lowest_bit)
"""Index of the lowest set bit of a non-zero int64: one machine instruction, inside kernels only."""
