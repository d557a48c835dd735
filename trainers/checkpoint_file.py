"""One checkpoint: a safetensors file that is enough to play, and the state to train on from.

The weights' file carries in its metadata where it comes from (`CheckpointInfo`), a digest over that
text and over every tensor, and the digest of the state's file, so that a flipped bit in either is
noticed. Reading runs no code of the files: safetensors holds none, and the state is unpickled by
torch's restricted reader, which knows tensors and plain values only.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import subprocess
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

import pylos_env
from pylos_env.observation import OBSERVATION_KINDS, Observer
from pylos_env.options import check_count
from pylos_env.rules import Rules
from trainers.files import CheckpointError, now

FORMAT: Final = "1"
WEIGHTS_SUFFIX: Final = ".safetensors"
STATE_SUFFIX: Final = ".state"


class Naming(NamedTuple):
    """What the checkpoints of a run are called after, and the link to the best of them."""

    prefix: str
    digits: int
    best: str

    def stem(self, step: int) -> str:
        return f"{self.prefix}_{step:0{self.digits}d}"


STEPS: Final = Naming("step", 9, "best")
EPISODES: Final = Naming("ep", 6, "best_elo")
BEST_LINKS: Final = (STEPS.best, EPISODES.best)
NAME: Final = re.compile(r"(?:step_(?=\d{9})|ep_(?=\d{6}))(\d+)(?:_(\d+))?")

_JSON_FIELDS: Final = ("network", "config", "counters")
_LONGEST_INTEGER: Final = 2000  # bits; torch's restricted reader stops at 255 bytes


@functools.cache
def git_commit() -> str:
    """The commit of this code, with `-dirty` where files differ from it; "unknown" outside git."""
    root = Path(pylos_env.__file__).resolve().parents[1]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}

    def ask(*words: str) -> list[str]:
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True, env=environment
        )
        return answer.stdout.splitlines()

    try:
        top, commit = ask("rev-parse", "--show-toplevel", "HEAD")
        if Path(top).resolve() != root:  # installed inside somebody else's repository
            return "unknown"
        changed = ask("status", "--porcelain", "--untracked-files=no")
    except (OSError, ValueError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint is of and where it comes from; saving fills in step and time."""

    network: Mapping[str, Any]
    """The network's kind and sizes: what is needed to build it again."""
    rules: Rules
    observation: str
    """The kind of observation that the network takes."""
    shape: tuple[int, ...] = ()
    """The observation's shape; that of the kind under these rules unless given."""
    config: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    """Free numbers of the run: games, samples, seconds..."""
    step: int = 0
    timestamp: str = field(default_factory=now)
    version: str = pylos_env.__version__
    commit: str = field(default_factory=git_commit)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", Rules.of(self.rules))
        shape = self.shape or observation_shape(self.observation, self.rules)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "step", check_count("step", self.step, least=0))
        for name in _JSON_FIELDS:
            object.__setattr__(self, name, _json_copy(name, getattr(self, name)))

    def public(self) -> CheckpointInfo:
        """The same without the folders of the machine that it was trained on."""
        hidden = {name: "" for name in ("run", "resume") if name in self.config}
        if "initial" in self.config:
            hidden["initial"] = Path(self.config["initial"]).name
        return replace(self, config={**self.config, **hidden})

    def to_metadata(self) -> dict[str, str]:
        return {
            "format": FORMAT,
            "step": str(self.step),
            "timestamp": self.timestamp,
            "rules": str(self.rules),
            "rules_code": str(self.rules.code),
            "observation": self.observation,
            "shape": _canonical(self.shape),
            "version": self.version,
            "commit": self.commit,
            **{name: _canonical(getattr(self, name)) for name in _JSON_FIELDS},
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> CheckpointInfo:
        if metadata.get("format") != FORMAT:
            raise CheckpointError(
                f"its format is {metadata.get('format')!r}, this program reads {FORMAT!r}"
            )
        rules = Rules.of(metadata["rules"])
        if str(rules.code) != metadata["rules_code"]:
            raise CheckpointError(
                f"its rules {metadata['rules']!r} had the code {metadata['rules_code']} "
                f"when it was saved, and have {rules.code} here: the rules have changed"
            )
        return cls(
            rules=rules,
            observation=metadata["observation"],
            shape=tuple(json.loads(metadata["shape"])),
            step=int(metadata["step"]),
            timestamp=metadata["timestamp"],
            version=metadata["version"],
            commit=metadata["commit"],
            **{name: json.loads(metadata[name]) for name in _JSON_FIELDS},
        )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read; `state` is None where it was not asked for."""

    info: CheckpointInfo
    weights: dict[str, torch.Tensor]
    state: dict[str, Any] | None
    path: Path


def observation_shape(kind: str, rules: Rules) -> tuple[int, ...]:
    for known in OBSERVATION_KINDS:
        if kind == known:
            return Observer(known, rules).shape
    raise CheckpointError(
        f"unknown observation {kind!r}: expected one of {list(OBSERVATION_KINDS)}, or a shape"
    )


def check_fits(
    checkpoint: Checkpoint, rules: str | Rules | None = None, observation: str | None = None
) -> None:
    """Refuse a checkpoint that was trained for other rules, or that takes other observations."""
    info = checkpoint.info
    asked = info.rules if rules is None else Rules.of(rules)
    if info.rules != asked:
        raise CheckpointError(
            f"{checkpoint.path} was trained under the rules {str(info.rules)!r}, "
            f"but {str(asked)!r} was asked for"
        )
    if observation is None:
        return
    shape = observation_shape(observation, asked)
    if (info.observation, info.shape) != (observation, shape):
        raise CheckpointError(
            f"{checkpoint.path} takes the observation {info.observation!r} {list(info.shape)}, "
            f"but {observation!r} {list(shape)} was asked for"
        )


def load_weights(path: str | Path) -> Checkpoint:
    """Read and verify a checkpoint's weights: all that playing needs."""
    return read_checkpoint(Path(path), with_state=False)


def read_checkpoint(path: Path, with_state: bool) -> Checkpoint:
    """Read and verify; the state is looked for beside the file that `path` leads to."""
    metadata, weights = _read_weights(path)
    try:
        info = CheckpointInfo.from_metadata(metadata)
    except KeyError as error:
        raise CheckpointError(f"{path}: its metadata lacks {error}") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    state = None
    if with_state:
        state = _decode_state(path, _read_state(path, metadata))
    return Checkpoint(info, weights, state, path)


def verify(path: Path, with_state: bool = True) -> None:
    """Raise unless weights and state are what was saved."""
    metadata, _ = _read_weights(path)
    if with_state:
        _read_state(path, metadata)


def name_of(path: Path) -> str:
    """The name under which a checkpoint was saved, also where `path` is a copy of it."""
    metadata, _ = _read_weights(path)
    return _saved_name(path, metadata)


def saved_as_best(path: Path) -> bool:
    metadata, _ = _read_weights(path)
    return metadata.get("best") == "true"


def encode_weights(
    info: CheckpointInfo,
    name: str,
    weights: Mapping[str, torch.Tensor],
    state_sha256: str,
    best: bool = False,
) -> bytes:
    """The content of a checkpoint's safetensors file."""
    if not weights:
        raise CheckpointError("a checkpoint without weights is none")
    tensors = {}
    for key, tensor in weights.items():
        if not isinstance(tensor, torch.Tensor):
            raise CheckpointError(f"weights[{key!r}] is no tensor but {type(tensor).__name__}")
        # copied, because safetensors refuses weights that share memory
        tensors[key] = tensor.detach().to("cpu", copy=True).contiguous()
    metadata = {
        **info.to_metadata(),
        "name": name,
        "best": "true" if best else "false",
        "state_sha256": state_sha256,
    }
    metadata["sha256"] = _digest(metadata, tensors)
    try:
        return safetensors.torch.save(tensors, metadata)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"these weights cannot be saved: {error!r}") from error


def encode_state(state: Mapping[str, Any]) -> bytes:
    """The content of a checkpoint's state file; refuses what could not be read back."""
    buffer = io.BytesIO()
    torch.save(_plain(dict(state), "state"), buffer)
    return buffer.getvalue()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _json_copy(name: str, value: Any) -> Any:
    try:
        copy = json.loads(_canonical(value))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{name} must be plain JSON values: {error}") from error
    if not isinstance(copy, dict):
        raise CheckpointError(f"{name} must be a mapping, got {value!r}")
    return copy


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(_canonical(dict(metadata)).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(_canonical([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"could not read {path}: {error.strerror}") from error


def _read_weights(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Metadata and tensors, proven to be those that were saved."""
    data = _read(path)
    try:
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        weights = safetensors.torch.load(data)
        found = _digest({k: v for k, v in metadata.items() if k != "sha256"}, weights)
    except (SafetensorError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint, or damaged ({type(error).__name__}: {error})"
        ) from error
    if found != metadata.get("sha256"):
        raise CheckpointError(f"{path} is damaged: its content does not match its sha256")
    return metadata, weights


def _saved_name(path: Path, metadata: Mapping[str, str]) -> str:
    name = metadata.get("name", "")
    if not NAME.fullmatch(name):
        raise CheckpointError(f"{path}: its metadata calls it {name!r}, which is no name")
    return name


def _read_state(path: Path, metadata: Mapping[str, str]) -> bytes:
    state_path = path.resolve().with_name(_saved_name(path, metadata) + STATE_SUFFIX)
    if not state_path.exists():
        raise CheckpointError(f"{path} has no training state beside it: it can play, not train on")
    data = _read(state_path)
    if hashlib.sha256(data).hexdigest() != metadata.get("state_sha256"):
        raise CheckpointError(f"{state_path} is damaged: it does not match its sha256")
    return data


def _decode_state(path: Path, data: bytes) -> dict[str, Any]:
    try:
        # an empty bytes object is pickled as a call of `bytes`
        with torch.serialization.safe_globals([bytes]):
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # a crafted file can make the reader fail in any way
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise CheckpointError(
            f"the state of {path} is refused: it holds "
            + (f"a call of {named[1]}" if named else "more than tensors and plain values")
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"the state of {path} is no dict but {type(state).__name__}")
    return state


def _plain(value: Any, where: str) -> Any:
    """The value as it will be read back; raises for what the restricted reader does not know."""
    if isinstance(value, torch.Tensor):
        return _plain_tensor(value, where)
    if value is None or type(value) in (bool, float, str, bytes):
        return value
    if type(value) is int and value.bit_length() <= _LONGEST_INTEGER:
        return value
    if type(value) in (dict, OrderedDict):
        for key in value:
            if type(key) not in (str, int):
                raise CheckpointError(f"{where} has the key {key!r}: expected text or integers")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item, f"{where}[{i}]") for i, item in enumerate(value))
    hint = ": use torch.from_numpy" if isinstance(value, np.ndarray) else ""
    raise CheckpointError(
        f"{where} is of the type {type(value).__module__}.{type(value).__name__}{hint}; a state "
        "holds tensors, numbers, text, bytes and None in dicts, lists and tuples"
    )


def _plain_tensor(tensor: torch.Tensor, where: str) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise CheckpointError(f"{where} is a sparse or quantised tensor: expected a dense one")
    tensor = tensor.detach().cpu()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        return tensor.clone()  # a view: torch would save all that it is a view of
    return tensor
