"""What the batched search is measured against: plain searches in Python, and mctx's.

Both plain searches are the same code: one game at a time, a tree of objects, one position a
question to the network. They differ in whose rules they play by: those of this package, which are
compiled, or those of `tests/reference.py`, which are plain Python like the rest.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from pylos_env import Position
from pylos_env.observation import Observer
from trainers.network import PolicyValueNetwork

GAMES = 256
SIMULATIONS = 64
C_PUCT = 1.5
MAX_CONSIDERED = 16
Counts = tuple[int, float, float]  # simulations, seconds, seconds of processor time


class Board(Protocol):
    """A position as a plain search needs it."""

    @property
    def side(self) -> int: ...
    def legal_actions(self) -> list[int]: ...
    def play(self, action: int) -> Board: ...
    def observation(self) -> Any: ...


class CompiledBoard:
    """The friendly library over compiled rules."""

    def __init__(self, position: Position, observer: Observer) -> None:
        self._position = position
        self._observer = observer
        self.side = position.side

    def legal_actions(self) -> list[int]:
        return self._position.legal_actions()

    def play(self, action: int) -> CompiledBoard:
        return CompiledBoard(self._position.play(action), self._observer)

    def observation(self) -> Any:
        return self._observer.observe(self._position.packed, self.side)


def load_reference() -> Any:
    """The slow, obvious rules that the tests compare the kernels with."""
    path = Path(__file__).resolve().parent.parent / "tests" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["reference"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PythonBoard:
    """The same over rules in plain Python."""

    def __init__(self, state: Any, reference: Any) -> None:
        self._state = state
        self._reference = reference
        self.side: int = state.side

    @classmethod
    def of(cls, position: Position, reference: Any) -> PythonBoard:
        return cls(reference.parse(str(position)), reference)

    def legal_actions(self) -> list[int]:
        reference = self._reference
        actions: list[int] = reference.legal_actions(self._state, reference.PRESETS["advanced"])
        return actions

    def play(self, action: int) -> PythonBoard:
        reference = self._reference
        rules = reference.PRESETS["advanced"]
        return PythonBoard(reference.after_legal(self._state, rules, action), reference)

    def observation(self) -> Any:
        return self._reference.flat_observation(self._state, self.side, greedy=False)


@dataclass
class Node:
    """A position of the tree; its board is made when it is first visited."""

    prior: float
    board: Board | None = None
    children: dict[int, Node] = field(default_factory=dict)
    total: float = 0.0  # for the side that chose this node
    visits: int = 0


class Plain:
    """One game, objects, one position a question."""

    def __init__(self, network: PolicyValueNetwork, boards: list[Board]) -> None:
        self._network = network.eval()
        self._boards = boards
        self._next = 0

    def run(self) -> Counts:
        began, cpu = time.perf_counter(), time.process_time()
        root = Node(1.0, self._boards[self._next % len(self._boards)])
        self._next += 1
        self._expand(root)
        for _ in range(SIMULATIONS):
            self._simulate(root)
        return SIMULATIONS, time.perf_counter() - began, time.process_time() - cpu

    def _expand(self, node: Node) -> float:
        assert node.board is not None
        legal = node.board.legal_actions()
        if not legal:
            return -1.0
        with torch.inference_mode():
            seen = torch.as_tensor(node.board.observation(), dtype=torch.float32)
            output = self._network(seen.unsqueeze(0))
        logits = output.logits[0].numpy()[legal]
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        for action, share in zip(legal, shares.tolist(), strict=True):
            node.children[action] = Node(share)
        return float(output.value[0])

    def _simulate(self, root: Node) -> None:
        path = [root]
        while path[-1].children:
            node = path[-1]
            scale = C_PUCT * math.sqrt(1 + node.visits)

            def score(edge: tuple[int, Node], scale: float = scale) -> float:
                child = edge[1]
                worth = child.total / child.visits if child.visits else 0.0
                return worth + scale * child.prior / (1 + child.visits)

            action, child = max(node.children.items(), key=score)
            if child.board is None:
                assert node.board is not None
                child.board = node.board.play(action)
            path.append(child)
        value = self._expand(path[-1])
        assert path[-1].board is not None
        side = path[-1].board.side
        for parent, node in zip([root, *path[:-1]], path, strict=True):
            assert parent.board is not None
            node.visits += 1
            node.total += value if parent.board.side == side else -value


class Mctx:
    """mctx's Gumbel search over pgx's Connect Four, compiled, on all cores."""

    def __init__(self, layers: tuple[int, ...]) -> None:
        import jax
        import jax.numpy as jnp
        import mctx
        import pgx

        env = pgx.make("connect_four")
        step = jax.vmap(env.step)
        keys = jax.random.split(jax.random.PRNGKey(0), len(layers) + 2)
        sizes = (84, *layers)
        weights = [
            jax.random.normal(key, shape) / shape[0] ** 0.5
            for key, shape in zip(keys, itertools.pairwise(sizes), strict=False)
        ]
        policy = jax.random.normal(keys[-2], (layers[-1], 7)) / layers[-1] ** 0.5
        value = jax.random.normal(keys[-1], (layers[-1], 1)) / layers[-1] ** 0.5

        def evaluate(state: Any) -> Any:
            features = state.observation.reshape(state.observation.shape[0], -1).astype(jnp.float32)
            for matrix in weights:
                features = jax.nn.relu(features @ matrix)
            logits = jnp.where(state.legal_action_mask, features @ policy, -1e9)
            return logits, jnp.tanh(features @ value)[:, 0]

        def recurrent(_: Any, key: Any, action: Any, state: Any) -> Any:
            mover = state.current_player
            after = step(state, action)
            logits, values = evaluate(after)
            reward = after.rewards[jnp.arange(GAMES), mover]
            return (
                mctx.RecurrentFnOutput(
                    reward=reward,
                    discount=jnp.where(after.terminated, 0.0, -1.0),
                    prior_logits=logits,
                    value=jnp.where(after.terminated, 0.0, values),
                ),
                after,
            )

        def search(key: Any, state: Any) -> Any:
            logits, values = evaluate(state)
            root = mctx.RootFnOutput(prior_logits=logits, value=values, embedding=state)
            return mctx.gumbel_muzero_policy(
                params=(),
                rng_key=key,
                root=root,
                recurrent_fn=recurrent,
                num_simulations=SIMULATIONS,
                invalid_actions=~state.legal_action_mask,
                max_num_considered_actions=MAX_CONSIDERED,
            ).action

        self._search = jax.jit(search)
        self._key = jax.random.PRNGKey(1)
        self._state = jax.jit(jax.vmap(env.init))(jax.random.split(self._key, GAMES))
        self.run()  # compile

    def run(self) -> Counts:
        began, cpu = time.perf_counter(), time.process_time()
        self._search(self._key, self._state).block_until_ready()
        seconds = time.perf_counter() - began
        return GAMES * SIMULATIONS, seconds, time.process_time() - cpu
