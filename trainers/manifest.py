"""The two lists of a run: manifest.json (its ladder of levels) and metadata.json (its history).

Both are validated when they are read: an error names the file, the entry and the reason. Neither
needs torch, so that whoever only lists levels does not load it.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from pylos_env.options import is_whole
from trainers.files import CheckpointError, read_json, sha256_of, write_json

VERSION: Final = 1
LABELS: Final = ("Beginner", "Novice", "Intermediate", "Advanced", "Expert")
LEVELS: Final = (500, 800, 1100, 1400)
"""Ratings, `random` at 0, at which the next label begins. In the tournament of the shipped ladder
the rule-based player has 590 and a search of four turns 884; other fields of players shift that."""
MANIFEST_FILE: Final = "manifest.json"
METADATA_FILE: Final = "metadata.json"


def label_of(rating: float) -> str:
    """The ladder's label for a rating."""
    return LABELS[sum(rating >= level for level in LEVELS)]


@dataclass(frozen=True)
class ManifestEntry:
    """One checkpoint of the ladder. None means that it was not measured."""

    file: str
    """Where it is, from the manifest's folder on, with forward slashes."""
    step: int
    win_rate_vs_random: float
    """Share of games won against `random`, 0 to 1; draws count nothing."""
    label: str
    """One of `LABELS`."""
    timestamp: str
    """When it was saved: ISO 8601, UTC."""
    rating: float | None = None
    rating_low: float | None = None
    """The rating's interval; given with the rating or not at all."""
    rating_high: float | None = None
    oracle_score: float | None = None
    """Share of value-preserving moves on the oracle's labelled positions, 0 to 1."""
    simulations: int | None = None
    """With how many simulations a move it was measured; 0 is the raw policy."""
    sha256: str | None = None
    """Of the whole file, 64 lower-case hexadecimal digits."""

    def __post_init__(self) -> None:
        _check_file(self.file)
        self._set("step", _whole("step", self.step))
        self._set("win_rate_vs_random", _share("win_rate_vs_random", self.win_rate_vs_random))
        if self.label not in LABELS:
            raise CheckpointError(f"label is {self.label!r}, expected one of {', '.join(LABELS)}")
        _check_timestamp(self.timestamp)
        self._check_rating()
        if self.oracle_score is not None:
            self._set("oracle_score", _share("oracle_score", self.oracle_score))
        if self.simulations is not None:
            self._set("simulations", _whole("simulations", self.simulations))
        if self.sha256 is not None and not (
            isinstance(self.sha256, str) and re.fullmatch(r"[0-9a-f]{64}", self.sha256)
        ):
            raise CheckpointError(f"sha256 is {self.sha256!r}, expected 64 hexadecimal digits")

    def _check_rating(self) -> None:
        values = self.rating_low, self.rating, self.rating_high
        if values == (None, None, None):
            return
        if None in values:
            raise CheckpointError(
                "rating, rating_low and rating_high must be given together, got "
                f"{self.rating!r}, {self.rating_low!r}, {self.rating_high!r}"
            )
        low, rating, high = (_number("a rating", value) for value in values)
        if not low <= rating <= high:
            raise CheckpointError(f"rating {rating} is not between {low} and {high}")
        self._set("rating_low", low)
        self._set("rating", rating)
        self._set("rating_high", high)

    def _set(self, name: str, value: float) -> None:
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """Its file without folder and ending. Levels may share a file: see `Manifest.name_of`."""
        return PurePosixPath(self.file).stem


@dataclass(frozen=True)
class Manifest:
    """A ladder of checkpoints, and the file that lists it."""

    path: Path
    checkpoints: tuple[ManifestEntry, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        ordered = sorted(self.checkpoints, key=lambda e: (e.step, e.file, e.simulations or 0))
        object.__setattr__(self, "checkpoints", tuple(ordered))
        names = [self.name_of(entry) for entry in ordered]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise CheckpointError(f"{self.path}: more than one entry is called {', '.join(twice)}")

    @classmethod
    def read(cls, path: str | Path, check_files: bool = True) -> Manifest:
        """Read and validate; `check_files=False` leaves the checkpoints themselves unopened."""
        path = Path(path)
        content = _table(path, read_json(path), {"version", "checkpoints"})
        if not isinstance(content["checkpoints"], list):
            raise CheckpointError(f"{path}: 'checkpoints' must be a list")
        entries = []
        for number, values in enumerate(content["checkpoints"], start=1):
            given = values.get("file") if isinstance(values, dict) else values
            try:
                entry = _entry(values)
                if check_files:
                    _check_content(path.parent, entry)
            except CheckpointError as error:
                raise CheckpointError(f"{path}: entry {number} ({given!r}): {error}") from None
            entries.append(entry)
        return cls(path, tuple(entries))

    def write(self) -> None:
        """Replace the file."""
        entries = [asdict(entry) for entry in self.checkpoints]
        write_json(self.path, {"version": VERSION, "checkpoints": entries})

    def with_entry(self, entry: ManifestEntry) -> Manifest:
        """The manifest with one more entry, which replaces one of the same step."""
        others = (other for other in self.checkpoints if other.step != entry.step)
        return replace(self, checkpoints=(*others, entry))

    def with_ratings(self, ratings: Mapping[int, tuple[float, float, float]]) -> Manifest:
        """Rated anew and labelled by that: by step a rating, its lower and its upper bound.

        Entries of other steps stay as they are.
        """
        entries = []
        for entry in self.checkpoints:
            if entry.step in ratings:
                elo, low, high = ratings[entry.step]
                label = label_of(elo)
                entry = replace(entry, label=label, rating=elo, rating_low=low, rating_high=high)
            entries.append(entry)
        return replace(self, checkpoints=tuple(entries))

    def file(self, entry: ManifestEntry) -> Path:
        return self.path.parent / entry.file

    def name_of(self, entry: ManifestEntry) -> str:
        """What an entry is called: `s9`, or `s9@64` where one network is several levels."""
        alone = [other.name for other in self.checkpoints].count(entry.name) == 1
        return entry.name if alone else f"{entry.name}@{entry.simulations or 0}"

    def check_file(self, entry: ManifestEntry) -> None:
        """Refuse an entry whose file is not there, or is not the one that was entered."""
        try:
            _check_content(self.path.parent, entry)
        except CheckpointError as error:
            raise CheckpointError(f"{self.path}: ({entry.file!r}): {error}") from None

    def level(self, name: str) -> ManifestEntry:
        """The entry of that name; for a file or a label, in any case, the strongest that has it.

        The strongest is the best rated one, and the latest among equals or where none is rated.
        """
        found = [e for e in self.checkpoints if name == self.name_of(e)]
        found = found or [e for e in self.checkpoints if name in (e.name, e.file)]
        found = found or [e for e in self.checkpoints if e.label.casefold() == name.casefold()]
        if not found:
            known = sorted({e.label for e in self.checkpoints}, key=LABELS.index)
            known += [self.name_of(entry) for entry in self.checkpoints]
            raise CheckpointError(
                f"{self.path} has no level {name!r}: expected one of {', '.join(known) or 'none'}"
            )
        return max(found, key=lambda e: (-math.inf if e.rating is None else e.rating, e.step))


@dataclass
class RunMetadata:
    """What a run tells about itself: its Elo history, and free facts."""

    elo_history: list[dict[str, Any]] = field(default_factory=list)
    """One `{"step": ..., "elo": ..., ...}` after the other."""
    facts: dict[str, Any] = field(default_factory=dict)

    def add_elo(self, step: int, elo: float, **more: Any) -> None:
        point = {"step": step, "elo": elo, **more}
        _check_point(point)
        self.elo_history.append(point)

    @classmethod
    def read(cls, path: str | Path) -> RunMetadata:
        path = Path(path)
        content = _table(path, read_json(path), {"version", "elo_history", "facts"})
        history, facts = content["elo_history"], content["facts"]
        if not isinstance(history, list) or not isinstance(facts, dict):
            raise CheckpointError(f"{path}: 'elo_history' must be a list and 'facts' an object")
        for number, point in enumerate(history, start=1):
            try:
                _check_point(point)
            except CheckpointError as error:
                raise CheckpointError(f"{path}: elo_history entry {number}: {error}") from None
        return cls(history, facts)

    def write(self, path: str | Path) -> None:
        """Replace the file."""
        for point in self.elo_history:
            _check_point(point)
        content = {"version": VERSION, "elo_history": self.elo_history, "facts": self.facts}
        write_json(Path(path), content)


def _table(path: Path, content: Any, keys: set[str]) -> dict[str, Any]:
    if not isinstance(content, dict) or set(content) != keys:
        found = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(f"{path}: expected an object with {sorted(keys)}, found {found}")
    if content["version"] != VERSION or isinstance(content["version"], bool):
        raise CheckpointError(
            f"{path}: version is {content['version']!r}, this program reads {VERSION}"
        )
    return content


def _entry(values: Any) -> ManifestEntry:
    if not isinstance(values, dict):
        raise CheckpointError("an entry must be an object")
    known = [item.name for item in fields(ManifestEntry)]
    if unknown := [name for name in values if name not in known]:
        raise CheckpointError(f"unknown field {unknown[0]!r}: expected {', '.join(known)}")
    if missing := [name for name in known[:5] if name not in values]:
        raise CheckpointError(f"the field {missing[0]!r} is missing")
    return ManifestEntry(**values)


def _check_file(file: Any) -> None:
    if not isinstance(file, str) or "\0" in file:
        raise CheckpointError(f"file is {file!r}, expected the path of a checkpoint")
    path = PurePosixPath(file)
    if path.suffix != ".safetensors" or path.as_posix() != file:
        raise CheckpointError(f"file is {file!r}, expected a plain path ending in .safetensors")
    if path.is_absolute() or ".." in path.parts or "\\" in file or PureWindowsPath(file).drive:
        raise CheckpointError(f"file {file!r} leaves the manifest's folder")


def _check_content(folder: Path, entry: ManifestEntry) -> None:
    path = folder / entry.file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"file {entry.file!r} leaves the manifest's folder by a link")
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    if entry.sha256 is None:
        return
    try:
        found = sha256_of(path)
    except OSError as error:
        raise CheckpointError(f"could not read {path}: {error.strerror}") from error
    if found != entry.sha256:
        raise CheckpointError(f"the file's sha256 is {found}, the manifest's {entry.sha256}")


def _check_timestamp(text: Any) -> None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        time = None
    if time is None or time.utcoffset() != timedelta(0):
        raise CheckpointError(f"timestamp is {text!r}, expected ISO 8601 in UTC")


def _check_point(point: Any) -> None:
    if not isinstance(point, Mapping) or not {"step", "elo"} <= set(point):
        raise CheckpointError(f"expected an object with 'step' and 'elo', got {point!r}")
    _whole("step", point["step"])
    _number("elo", point["elo"])


def _number(name: str, value: Any) -> float:
    try:
        usable = isinstance(value, numbers.Real) and not isinstance(value, bool)
        number = float(value) if usable else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise CheckpointError(f"{name} is {value!r}, expected a finite number")
    return number


def _share(name: str, value: Any) -> float:
    number = _number(name, value)
    if not 0 <= number <= 1:
        raise CheckpointError(f"{name} is {value!r}, expected a number from 0 to 1")
    return number


def _whole(name: str, value: Any) -> int:
    if not is_whole(value) or value < 0:
        raise CheckpointError(f"{name} is {value!r}, expected a whole number from 0 up")
    return int(value)
