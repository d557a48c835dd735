"""Self-play at full speed: the caller moves both sides of many games at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from pylos_env import batch, kernel
from pylos_env.errors import IllegalMoveError
from pylos_env.observation import ObservationKind, Observer
from pylos_env.options import (
    MAX_PLIES,
    check_actions,
    check_count,
    check_draw_reward,
    check_max_plies,
    ply_limit,
)
from pylos_env.position import Position
from pylos_env.rules import Rules, TakeBack


class SelfPlayBatch(NamedTuple):
    """What a self-play step gives, one row a game. `reset` leaves the middle five at zero."""

    observation: npt.NDArray[np.float32]  # [games, 33] or [games, 15, 4, 4]: of the side to move
    action_mask: npt.NDArray[np.int8]  # [games, 303]: of the side to move
    reward: npt.NDArray[np.float32]  # [games]: of the step just made, to its mover
    terminated: npt.NDArray[np.bool_]  # [games]: that step won or lost the game
    truncated: npt.NDArray[np.bool_]  # [games]: that step reached the ply limit
    mover: npt.NDArray[np.int8]  # [games]: the seat that made that step
    to_move: npt.NDArray[np.int8]  # [games]: the seat that moves next


class SelfPlayVectorEnv:
    """Games in which the caller moves whichever side is to move.

        env = SelfPlayVectorEnv(4096)
        batch = env.reset()
        batch = env.step(actions)       # actions [games]

    A game that ends starts again at once: the observation is the new game's, the reward and flags
    are the old one's, and `env.reached` keeps the position it ended in. Where the mover stays
    (taking spheres back), `batch.mover == batch.to_move`: values across that step keep their sign.
    The loser of a lost game gets no row of its own: its reward is minus the mover's.

    The arrays are allocated once and written in place: copy what must outlive the next step, or
    pass `out`, a batch of your own arrays (`new_batch` makes one), to have them filled instead.

    An illegal action raises `IllegalMoveError`; every game is as it was, and the batch shows it.
    """

    def __init__(
        self,
        num_games: int,
        rules: str | Rules = "advanced",
        take_back: TakeBack | None = None,
        observation: ObservationKind = "flat",
        max_plies: int | None = MAX_PLIES,
        draw_reward: float = 0.0,
        num_threads: int | None = None,
    ) -> None:
        self.num_games = check_count("num_games", num_games)
        self.rules = Rules.of(rules, take_back)
        self.max_plies = check_max_plies(max_plies)
        self.draw_reward = check_draw_reward(draw_reward)
        self.num_threads = (
            batch.default_threads()
            if num_threads is None
            else check_count("num_threads", num_threads)
        )
        self.observer = Observer(observation, self.rules)
        self.packed = np.zeros(self.num_games, dtype=np.int64)  # [games]: the games as they stand
        self.plies = np.zeros(self.num_games, dtype=np.int64)  # [games]: actions played so far
        self.reached = np.zeros(self.num_games, dtype=np.int64)  # [games]: by the last step
        self._legal = np.zeros((self.num_games, 3), dtype=np.int32)  # [games]: their `legal_sets`
        self._batch = self.new_batch()
        self._begun = False
        # what a step overwrites and cannot be computed back from the positions
        self._kept = [
            np.empty_like(array)
            for array in (self.packed, self.plies, self.reached, *self._batch[2:])
        ]

    def new_batch(self) -> SelfPlayBatch:
        """A batch of zeros, to be used as `out`."""
        games = self.num_games
        return SelfPlayBatch(
            np.zeros((games, *self.observer.shape), dtype=np.float32),
            np.zeros((games, kernel.NUM_ACTIONS), dtype=np.int8),
            np.zeros(games, dtype=np.float32),
            np.zeros(games, dtype=np.bool_),
            np.zeros(games, dtype=np.bool_),
            np.zeros(games, dtype=np.int8),
            np.zeros(games, dtype=np.int8),
        )

    def reset(
        self,
        packed: npt.NDArray[np.int64] | None = None,
        out: SelfPlayBatch | None = None,
    ) -> SelfPlayBatch:
        """Begin every game anew, from the empty board or from the given positions."""
        out = self._check_out(out)
        if packed is None:
            self.packed[:] = kernel.START
        else:
            self.packed[:] = self._check_positions(packed)
        self.plies[:] = 0
        for array in (out.reward, out.terminated, out.truncated, out.mover):
            array[:] = 0
        self._write_views(out)
        self._begun = True
        return out

    def restart(
        self,
        games: npt.NDArray[np.int64],
        packed: npt.NDArray[np.int64],
        out: SelfPlayBatch | None = None,
    ) -> SelfPlayBatch:
        """Begin some games anew from given positions, say those that the last step has ended.

        The positions must be possible and the games not over: unlike in `reset` nobody looks.
        """
        if not self._begun:
            raise gymnasium.error.ResetNeeded("no games yet: call reset() first")
        out = self._check_out(out)
        self.packed[games] = packed
        self.plies[games] = 0
        self._write_views(out)
        return out

    def step(self, actions: Any, out: SelfPlayBatch | None = None) -> SelfPlayBatch:
        """Play one action in every game."""
        if not self._begun:
            raise gymnasium.error.ResetNeeded("no games yet: call reset() first")
        out = self._check_out(out)
        actions = check_actions(actions, self.num_games)
        small: tuple[npt.NDArray[Any], ...] = (self.packed, self.plies, self.reached, *out[2:])
        for kept, array in zip(self._kept, small, strict=True):
            np.copyto(kept, array)
        illegal = batch.spread(
            batch.step_games,
            self.num_games,
            self.num_threads,
            self.packed,
            self._legal,
            self.plies,
            self.reached,
            self.rules.code,
            actions,
            ply_limit(self.max_plies),
            self.draw_reward,
            self.observer.planes,
            out.observation.reshape(self.num_games, -1),
            *out[1:],
        )
        if illegal >= 0:
            for kept, array in zip(self._kept, small, strict=True):
                np.copyto(array, kept)
            self._write_views(out)
            position = Position.unchecked(int(self.packed[illegal]), self.rules)
            raise IllegalMoveError(f"game {illegal}: {position.why_illegal(int(actions[illegal]))}")
        return out

    def _write_views(self, out: SelfPlayBatch) -> None:
        """What follows from the positions alone."""
        batch.write_legal_sets(0, self.num_games, self.packed, self.rules.code, self._legal)
        np.copyto(out.to_move, self.packed >> kernel.SIDE_SHIFT & 1, casting="unsafe")
        batch.spread(
            batch.write_views,
            self.num_games,
            self.num_threads,
            self.packed,
            self.rules.code,
            self.observer.planes,
            out.to_move,
            out.observation.reshape(self.num_games, -1),
            out.action_mask,
        )

    def _check_out(self, out: SelfPlayBatch | None) -> SelfPlayBatch:
        if out is None:
            return self._batch
        for name in out._fields:
            given: npt.NDArray[Any] = getattr(out, name)
            own: npt.NDArray[Any] = getattr(self._batch, name)
            if (given.shape, given.dtype) != (own.shape, own.dtype) or not given.flags.carray:
                raise ValueError(
                    f"out.{name} must be a writable contiguous {own.dtype} array of shape "
                    f"{own.shape}, got {given.dtype} of shape {given.shape}"
                )
        return out

    def _check_positions(self, packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        packed = np.asarray(packed)
        if packed.shape != (self.num_games,) or packed.dtype != np.int64:
            raise ValueError(
                f"expected {self.num_games} packed positions (int64), "
                f"got {packed.dtype} of shape {packed.shape}"
            )
        for game, position in enumerate(packed.tolist()):
            if kernel.is_over(Position(position, self.rules).packed, self.rules.code):
                raise ValueError(f"game {game}: {Position(position, self.rules)} is already over")
        return packed
