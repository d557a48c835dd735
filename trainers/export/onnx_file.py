"""An ONNX file of a network, and the proof that it answers as the network does."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pylos_env import testing
from pylos_env.errors import PylosError
from pylos_env.observation import Observer
from pylos_env.position import Position
from pylos_env.rules import Rules
from trainers.evaluator import Evaluator
from trainers.export.model import Exported

INSTALL_HINT = "pip install 'pylos-env[export]'"
INPUT = "observation"


class ExportError(PylosError):
    """A checkpoint that cannot be exported, or a file that does not answer as it does."""


def check_installed() -> None:
    """Refuse at once what would fail after a long measurement."""
    for package in ("onnx", "onnxruntime", "onnxscript"):  # torch's exporter needs the last
        if importlib.util.find_spec(package) is None:
            raise ExportError(
                f"ONNX needs the package {package}: {INSTALL_HINT}, or leave it out by --no-onnx"
            )


def encode(model: Exported, facts: Mapping[str, str]) -> bytes:
    """The content of an ONNX file; `facts` become its metadata."""
    import onnx

    example = torch.zeros(2, *model.shape)  # a batch of one would be taken for a constant
    with _quiet():
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=list(model.output_names),
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
        )
    assert program is not None
    proto = program.model_proto
    _forget_traces(proto.graph)
    for function in proto.functions:
        _forget_traces(function)
    onnx.helper.set_model_props(proto, dict(facts))
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _forget_traces(graph: Any) -> None:
    """The exporter notes for every node where in the sources it comes from: paths of a machine."""
    del graph.metadata_props[:]
    for kind in ("node", "input", "output", "value_info", "initializer"):
        for item in getattr(graph, kind, ()):
            if hasattr(item, "metadata_props"):
                del item.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class Difference:
    """The largest difference between the file and the network that it was made of."""

    positions: int
    logits: float
    value: float

    @property
    def largest(self) -> float:
        return max(self.logits, self.value)

    def __str__(self) -> str:
        return (
            f"{self.logits:.1e} in a logit, {self.value:.1e} in a value, "
            f"over {self.positions:,} positions"
        )


def compare(data: bytes, evaluator: Evaluator, positions: int, seed: int) -> Difference:
    """Ask the file, by ONNX Runtime, and the network that plays about the same random positions."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    packed = random_positions(evaluator.rules, positions, seed)
    observer = Observer(evaluator.network.config.observation, evaluator.rules)
    seen = [Position(p, evaluator.rules) for p in packed.tolist()]
    observations = np.stack([observer.observe(each.packed, each.side) for each in seen])
    expected = evaluator.full(packed)
    together = session.run(["logits", "value"], {INPUT: observations})
    alone = session.run(["logits", "value"], {INPUT: observations[:1]})
    worst = []
    for whole, first, network in zip(together, alone, expected, strict=True):
        worst.append(
            max(float(np.abs(whole - network).max()), float(np.abs(first - network[:1]).max()))
        )
    return Difference(len(packed), *worst)


def random_positions(rules: Rules, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Different positions of random games in which somebody is to move; the start is the first."""
    found: dict[int, None] = {}
    number = 0
    while len(found) < count:
        game = testing.random_game(rules, seed + number)
        found |= dict.fromkeys(position.packed for position in list(game.positions())[:-1])
        number += 1
    return np.array(list(found)[:count], dtype=np.int64)


def check_difference(difference: Difference, tolerance: float) -> None:
    """Raise where it is above the tolerance; a difference that is no number is above any."""
    if not difference.largest <= tolerance:
        raise ExportError(
            f"the ONNX model differs from the network by {difference}: more than {tolerance:g}"
        )
