"""The run folder: checkpoints saved so that a kill at any moment leaves a run to go on from.

    runs/<name>/
      manifest.json, metadata.json              the ladder; the history (see manifest.py)
      checkpoints/step_000001200.safetensors    weights and provenance: enough to play
      checkpoints/step_000001200.state          the rest, to train on from
      checkpoints/latest.safetensors            link to the newest
      checkpoints/best.safetensors              link to the one marked as best

Runs that count episodes call them `ep_001200` and the link `best_elo` (`naming=EPISODES`).
A state is written before its weights, and the weights' file is what makes the checkpoint exist. No
file of a checkpoint is ever written twice: a step saved again becomes `step_000001200_2`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import torch

from pylos_env.options import check_count, is_whole
from trainers.checkpoint_file import (
    BEST_LINKS,
    EPISODES,
    NAME,
    STATE_SUFFIX,
    STEPS,
    WEIGHTS_SUFFIX,
    Checkpoint,
    CheckpointInfo,
    Naming,
    check_fits,
    encode_state,
    encode_weights,
    git_commit,
    load_weights,
    name_of,
    read_checkpoint,
    saved_as_best,
    verify,
)
from trainers.files import (
    CheckpointError,
    CheckpointWarning,
    FolderLock,
    link_atomically,
    make_folder,
    now,
    sha256_of,
    sweep,
    sync_folder,
    write_atomically,
)
from trainers.manifest import MANIFEST_FILE, METADATA_FILE, Manifest, ManifestEntry, RunMetadata
from trainers.rng import rng_state, set_rng_state

__all__ = [
    "BEST_LINKS",
    "EPISODES",
    "STEPS",
    "Checkpoint",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointWarning",
    "Naming",
    "RunFolder",
    "check_fits",
    "git_commit",
    "load_weights",
    "rng_state",
    "set_rng_state",
]

LATEST: Final = "latest"
_DAMAGED: Final = ".damaged"
_CHECKPOINT_FILE: Final = re.compile(rf"({NAME.pattern})\..+")


class RunFolder:
    """One run's files. Open for writing it holds the folder's lock until it is closed.

    `keep` is how many of the newest checkpoints stay whole; the best one does too, and of those in
    the manifest the weights. `naming` is of what is written; a reader knows all names.
    """

    def __init__(
        self,
        path: str | Path,
        keep: int = 3,
        writable: bool = True,
        create: bool = True,
        naming: Naming = STEPS,
    ) -> None:
        self.path = Path(path)
        self.naming = naming
        self.checkpoints = self.path / "checkpoints"
        self.keep = check_count("keep", keep)
        self._lock: FolderLock | None = None
        if writable and create:
            make_folder(self.checkpoints)
        if not self.checkpoints.is_dir():
            raise CheckpointError(f"{self.path} is no run folder: it has no folder 'checkpoints'")
        if writable:
            self._lock = FolderLock(self.path)
            self._tidy()

    def close(self) -> None:
        """Let others write; reading goes on."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RunFolder {self.path}>"

    def names(self) -> list[str]:
        """The names of all checkpoints, oldest first, whether they are good or not."""
        files = (Path(entry.name) for entry in os.scandir(self.checkpoints))
        found = [f.stem for f in files if f.suffix == WEIGHTS_SUFFIX and NAME.fullmatch(f.stem)]
        return sorted(found, key=_order)

    def latest(self) -> Path | None:
        """The newest checkpoint's file, not checked; None in an empty run."""
        names = self.names()
        return self._weights(names[-1]) if names else None

    def best(self) -> Path | None:
        """The file marked as best, not checked; None where none was."""
        links = (self.checkpoints / f"{link}{WEIGHTS_SUFFIX}" for link in BEST_LINKS)
        return next((path for path in links if os.path.lexists(path)), None)

    def save(
        self,
        step: int,
        weights: Mapping[str, torch.Tensor],
        info: CheckpointInfo,
        state: Mapping[str, Any],
        best: bool = False,
    ) -> Path:
        """Write a checkpoint, make it the latest (and the best), and prune. Steps go forward only.

        When it raises, the checkpoints before it are as they were.
        """
        self._check_writable()
        info = replace(info, step=step, timestamp=now())
        self._check_forward(info.step)
        name = self._free_name(info.step)
        state_data = encode_state(state)
        data = encode_weights(
            info, name, weights, hashlib.sha256(state_data).hexdigest(), best=best
        )
        path = self._weights(name)
        try:
            write_atomically(self._state(name), state_data)
            write_atomically(path, data)
        except BaseException:
            if not path.exists():
                with contextlib.suppress(OSError):  # what stays is removed at the next opening
                    self._state(name).unlink(missing_ok=True)
            raise
        self._link_new(name, best)
        self.prune()
        return path

    def load(self, which: str | int | Path = LATEST, with_state: bool = True) -> Checkpoint:
        """Read "latest", "best", a step, or a file; whatever is returned has been verified.

        For "latest", a damaged checkpoint is reported by a `CheckpointWarning` and the one before
        it is used.
        """
        while True:
            names = self.names()
            found, faults = _first_good(self._candidates(which), with_state)
            # files never change, but a writer may have saved and pruned while this one read
            if not faults or self.names() == names:
                break
        if found is None:
            if not faults:
                raise CheckpointError(f"{self.path} holds no checkpoint")
            if len(faults) == 1:
                raise CheckpointError(faults[0])
            listed = "".join(f"\n  {fault}" for fault in faults)
            raise CheckpointError(f"no checkpoint of {self.path} can be loaded:{listed}")
        if faults:
            _warn(f"{'; '.join(faults)}; {found.path.name} is used instead")
        return found

    def mark_best(self, step: int) -> None:
        """Make the checkpoint of this step the best one."""
        self._check_writable()
        path = self._of_step(step)
        verify(path, with_state=False)
        self._link(self.naming.best, path.stem)

    def prune(self) -> None:
        """Remove what need not be kept, once one that is kept has been read and found good."""
        self._check_writable()
        names = self.names()
        try:
            best, ladder = self._linked_name(self.naming.best), self._ladder_names()
            whole = [name for name in names if name in names[-self.keep :] or name == best]
            rest = [name for name in names if name not in whole]
            states = [name for name in rest if self._state(name).exists()]
            weights = [name for name in rest if name not in ladder]
            if not weights and not states:
                return
            _check_one_is_good([self._weights(name) for name in reversed(whole)])
        except CheckpointError as error:
            _warn(f"nothing is pruned: {error}")
            return
        for name in weights:
            self._weights(name).unlink(missing_ok=True)
        for name in states:
            self._state(name).unlink(missing_ok=True)

    def manifest(self, check_files: bool = True) -> Manifest:
        """The ladder, validated; an empty one where there is no file."""
        path = self.path / MANIFEST_FILE
        return Manifest.read(path, check_files) if path.exists() else Manifest(path)

    def enter(
        self,
        step: int,
        label: str,
        win_rate_vs_random: float,
        *,
        rating: float | None = None,
        rating_low: float | None = None,
        rating_high: float | None = None,
        oracle_score: float | None = None,
        simulations: int | None = None,
    ) -> ManifestEntry:
        """Put the checkpoint of this step on the ladder, or change its entry: its weights stay."""
        self._check_writable()
        path = self._of_step(step)
        info = load_weights(path).info
        entry = ManifestEntry(
            file=path.relative_to(self.path).as_posix(),
            step=info.step,
            win_rate_vs_random=win_rate_vs_random,
            label=label,
            timestamp=info.timestamp,
            rating=rating,
            rating_low=rating_low,
            rating_high=rating_high,
            oracle_score=oracle_score,
            simulations=simulations,
            sha256=sha256_of(path),
        )
        self.manifest(check_files=False).with_entry(entry).write()
        return entry

    def metadata(self) -> RunMetadata:
        """The run's history, validated; an empty one where there is no file."""
        path = self.path / METADATA_FILE
        return RunMetadata.read(path) if path.exists() else RunMetadata()

    def write_metadata(self, metadata: RunMetadata) -> None:
        self._check_writable()
        metadata.write(self.path / METADATA_FILE)

    def _weights(self, name: str) -> Path:
        return self.checkpoints / f"{name}{WEIGHTS_SUFFIX}"

    def _state(self, name: str) -> Path:
        return self.checkpoints / f"{name}{STATE_SUFFIX}"

    def _check_writable(self) -> None:
        if self._lock is None or not self._lock.held:
            raise CheckpointError(f"{self.path} is not open for writing in this process")

    def _tidy(self) -> None:
        """Remove what a killed writer left, and finish the save that it could not."""
        sweep(self.path)
        sweep(self.checkpoints)
        names = self.names()
        for path in self.checkpoints.glob(f"*{STATE_SUFFIX}"):
            if NAME.fullmatch(path.stem) and path.stem not in names:
                path.unlink()
        if names:
            self._finish_save(names[-1])

    def _finish_save(self, name: str) -> None:
        try:
            if self._linked_name(LATEST) == name:
                return
            best = saved_as_best(self._weights(name))
        except CheckpointError:  # damaged, which is for `load` to report: the links stay
            return
        self._link_new(name, best)

    def _check_forward(self, step: int) -> None:
        """Refuse to save behind a good checkpoint; set damaged ones aside, which it replaces.

        Of a player of the ladder only a damaged state is set aside: it goes on to play.
        """
        for name in reversed(self.names()):
            if _order(name)[0] <= step:
                return
            path, state = self._weights(name), self._state(name)
            plays = name in self._ladder_names()
            try:
                verify(path, with_state=not plays)
            except CheckpointError as error:
                _warn(f"{error}; it is set aside as {path.name}{_DAMAGED}")
                self._set_aside(path, state)
                continue
            try:
                verify(path, with_state=plays and state.exists())
            except CheckpointError as error:
                _warn(f"{error}; it is set aside as {state.name}{_DAMAGED}")
                self._set_aside(state)
                continue
            raise CheckpointError(
                f"step {step} lies behind {path}: train on from the latest checkpoint, "
                "or in a new run folder"
            )

    def _set_aside(self, *paths: Path) -> None:
        for path in paths:
            if path.exists():
                path.rename(f"{path}{_DAMAGED}")
        sync_folder(self.checkpoints)

    def _free_name(self, step: int) -> str:
        """A name that no file of the folder has, whatever its ending."""
        stem = self.naming.stem(step)
        files = (_CHECKPOINT_FILE.fullmatch(entry.name) for entry in os.scandir(self.checkpoints))
        revisions = [_order(match[1])[1] for match in files if match and int(match[2]) == step]
        return f"{stem}_{max(revisions) + 1}" if revisions else stem

    def _of_step(self, step: int) -> Path:
        names = [name for name in self.names() if _order(name)[0] == step]
        if not names:
            known = ", ".join(str(_order(name)[0]) for name in self.names()) or "none"
            raise CheckpointError(f"{self.path} has no checkpoint of step {step}, only of {known}")
        return self._weights(names[-1])

    def _candidates(self, which: str | int | Path) -> list[Path]:
        if which == LATEST:
            return [self._weights(name) for name in reversed(self.names())]
        if which in BEST_LINKS:
            best = self.best()
            if best is None:
                raise CheckpointError(f"no checkpoint of {self.path} has been marked as best")
            return [best]
        if is_whole(which) or (isinstance(which, str) and which.isdecimal()):
            return [self._of_step(int(str(which)))]
        return [Path(str(which))]

    def _link_new(self, name: str, best: bool) -> None:
        """Point the links at a new checkpoint; `latest` goes last and shows that all is done."""
        if best:
            self._link(self.naming.best, name)
        self._link(LATEST, name)

    def _link(self, link: str, name: str) -> None:
        link_atomically(self.checkpoints / f"{link}{WEIGHTS_SUFFIX}", f"{name}{WEIGHTS_SUFFIX}")

    def _linked_name(self, link: str) -> str | None:
        """What a link, or the copy that stands in its place, is of."""
        path = self.checkpoints / f"{link}{WEIGHTS_SUFFIX}"
        if path.is_symlink():
            return Path(os.readlink(path)).stem
        return name_of(path) if path.exists() else None

    def _ladder_names(self) -> set[str]:
        manifest = self.manifest(check_files=False)
        files = (manifest.file(entry) for entry in manifest.checkpoints)
        return {file.stem for file in files if file.parent == self.checkpoints}


def _order(name: str) -> tuple[int, int]:
    match = NAME.fullmatch(name)
    assert match is not None, name
    return int(match[1]), int(match[2] or 1)


def _first_good(paths: list[Path], with_state: bool) -> tuple[Checkpoint | None, list[str]]:
    """The first that can be read, and what is wrong with those before it."""
    faults: list[str] = []
    for path in paths:
        try:
            return read_checkpoint(path, with_state), faults
        except CheckpointError as error:
            faults.append(str(error))
    return None, faults


def _check_one_is_good(paths: list[Path]) -> None:
    faults = []
    for path in paths:
        try:
            verify(path)
            return
        except CheckpointError as error:
            faults.append(str(error))
    raise CheckpointError(f"no checkpoint that would stay is good: {'; '.join(faults)}")


def _warn(message: str) -> None:
    warnings.warn(message, CheckpointWarning, stacklevel=3)
