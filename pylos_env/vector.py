"""Many games at once: one seat of each as a Gymnasium `VectorEnv`; both seats in `selfplay`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pylos_env import batch, kernel, render
from pylos_env.agents import AgentLike
from pylos_env.agents import make as make_agent
from pylos_env.errors import IllegalMoveError
from pylos_env.observation import ObservationKind, Observer
from pylos_env.options import (
    MAX_PLIES,
    Seat,
    check_action_range,
    check_actions,
    check_count,
    check_draw_reward,
    check_max_plies,
    check_seat,
    ply_limit,
)
from pylos_env.position import Position
from pylos_env.rules import Rules, TakeBack
from pylos_env.selfplay import SelfPlayBatch, SelfPlayVectorEnv
from pylos_env.single import SEED_RANGE

__all__ = ["PylosVectorEnv", "SelfPlayBatch", "SelfPlayVectorEnv"]


def check_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        names = ", ".join(known.value for known in AutoresetMode)
        raise ValueError(f"unknown autoreset_mode {mode!r}: expected one of {names}") from None


class PylosVectorEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[Any]]):
    """`gymnasium.make_vec("pylos_env/Pylos-v0", num_envs=...)`: N games, one seat each, compiled.

    It behaves exactly as N environments of `pylos_env.single` in Gymnasium's `SyncVectorEnv`, in
    all three autoreset modes, and takes the same options, and `autoreset_mode`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        opponent: AgentLike = "random",
        seat: Seat = 0,
        rules: str | Rules = "advanced",
        take_back: TakeBack | None = None,
        observation: ObservationKind = "flat",
        max_plies: int | None = MAX_PLIES,
        draw_reward: float = 0.0,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs = check_count("num_envs", num_envs)
        self.rules = Rules.of(rules, take_back)
        self.opponent = make_agent(opponent)
        self.seat_option = check_seat(seat)
        self.max_plies = check_max_plies(max_plies)
        self.draw_reward = check_draw_reward(draw_reward)
        self.autoreset_mode = check_autoreset_mode(autoreset_mode)
        self.render_mode = render.check_mode(render_mode, window=False)
        self.metadata = {
            "render_modes": ["rgb_array", "ansi"],
            "render_fps": 2,
            "autoreset_mode": self.autoreset_mode,
        }
        self._observer = Observer(observation, self.rules)
        self.single_observation_space = self._observer.space()
        self.single_action_space = spaces.Discrete(kernel.NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

        self._rewards = batch.reward_table(self.draw_reward)
        self._packed = np.zeros(self.num_envs, dtype=np.int64)
        self._plies = np.zeros(self.num_envs, dtype=np.int64)
        self._status = np.full(self.num_envs, batch.ONGOING, dtype=np.int8)
        self._seats = np.zeros(self.num_envs, dtype=np.int8)
        self._seeds = np.full(self.num_envs, -1, dtype=np.int64)
        self._draws = np.zeros(self.num_envs, dtype=np.int64)

    @property
    def positions(self) -> tuple[Position, ...]:
        """The games as `Position`s."""
        return tuple(Position.unchecked(packed, self.rules) for packed in self._packed.tolist())

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin all games, or those of `options["reset_mask"]` (bool [num_envs])."""
        games = self._check_reset_mask(options)
        seeds = self._check_seeds(seed)
        with self._all_or_nothing():
            for game in games.tolist():
                game_seed = seeds[game]
                if game_seed is not None or self._seeds[game] < 0:
                    generator, _ = seeding.np_random(game_seed)
                    self._seeds[game] = generator.integers(SEED_RANGE)
                    self._draws[game] = 0
            self._begin(games)
        observation, masks = self._views()
        chosen = np.zeros(self.num_envs, dtype=np.bool_)
        chosen[games] = True
        masks[~chosen] = 0
        return observation, self._infos(masks, np.zeros_like(chosen), chosen)

    def step(
        self, actions: npt.ArrayLike
    ) -> tuple[
        npt.NDArray[np.float32],
        npt.NDArray[np.float64],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
        dict[str, Any],
    ]:
        actions = check_actions(actions, self.num_envs)
        check_action_range(actions)
        over = self._status != batch.ONGOING
        waiting = self._seeds < 0
        if self.autoreset_mode == AutoresetMode.DISABLED:
            waiting |= over
        if waiting.any():
            raise gymnasium.error.ResetNeeded(
                f"games {np.flatnonzero(waiting).tolist()} are over or not begun: call reset(), "
                "with options={'reset_mask': ...} to begin only some"
            )
        everyone = np.ones(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        with self._all_or_nothing():
            playing = np.flatnonzero(~over)
            self._play(playing, actions[playing])
            illegal = self._status == batch.ILLEGAL
            self._answer(playing)
            self._begin(np.flatnonzero(over))
            illegal &= ~over
            rewards = self._rewards[self._status]
            terminated = batch.TERMINATED[self._status]
            truncated = self._status == batch.TRUNCATED
            ended = terminated | truncated
            if self.autoreset_mode == AutoresetMode.SAME_STEP and ended.any():
                infos = self._final(ended, illegal)
                self._begin(np.flatnonzero(ended))
                illegal = np.zeros_like(illegal)
        observation, masks = self._views()
        return (
            observation,
            rewards,
            terminated,
            truncated,
            infos | self._infos(masks, illegal, everyone),
        )

    def render(self) -> tuple[Any, ...] | None:
        """A picture or a text of every game."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() does nothing: no render_mode was given")
            return None
        draw = render.ansi if self.render_mode == "ansi" else render.rgb_array
        return tuple(draw(position) for position in self.positions)

    # Inside

    def _begin(self, games: npt.NDArray[np.int64]) -> None:
        """New games, up to the learner's first turn."""
        if not games.size:
            return
        self._packed[games] = kernel.START
        self._plies[games] = 0
        self._status[games] = batch.ONGOING
        if self.seat_option != "random":
            self._seats[games] = self.seat_option
        else:
            batch.draw_seats(games, self._seats, self._seeds, self._draws)
        self._answer(games)
        self._status[games] = batch.ONGOING

    def _play(self, games: npt.NDArray[np.int64], actions: npt.NDArray[np.int64]) -> None:
        batch.step_seat(
            games,
            self._packed,
            self._plies,
            self._status,
            self._seats,
            actions,
            self.rules.code,
            ply_limit(self.max_plies),
        )

    def _answer(self, games: npt.NDArray[np.int64]) -> None:
        """Let the opponent play until the learner is on turn or the game is over."""
        pending, keys = np.empty_like(games), np.empty_like(games)
        while True:
            count = batch.opponents_turn(
                games,
                self._packed,
                self._status,
                self._seats,
                self._seeds,
                self._draws,
                pending,
                keys,
            )
            if not count:
                return
            games = pending[:count].copy()
            positions = self._packed[games]
            actions = check_actions(
                self.opponent.act_batch(positions, self.rules, keys[:count]), count
            )
            self._play(games, actions)
            illegal = np.flatnonzero(self._status[games] == batch.ILLEGAL)
            if illegal.size:
                row = int(illegal[0])
                position = Position.unchecked(int(positions[row]), self.rules)
                raise IllegalMoveError(
                    f"{self.opponent.name} in game {games[row]}: "
                    f"{position.why_illegal(int(actions[row]))}"
                )

    def _views(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
        observation = np.empty((self.num_envs, self._observer.size), dtype=np.float32)
        masks = np.empty((self.num_envs, kernel.NUM_ACTIONS), dtype=np.int8)
        batch.spread(
            batch.write_views,
            self.num_envs,
            batch.default_threads(),
            self._packed,
            self.rules.code,
            self._observer.planes,
            self._seats,
            observation,
            masks,
        )
        return observation.reshape(self.num_envs, *self._observer.shape), masks

    def _infos(
        self,
        masks: npt.NDArray[np.int8],
        illegal: npt.NDArray[np.bool_],
        games: npt.NDArray[np.bool_],
    ) -> dict[str, Any]:
        return {
            "action_mask": masks,
            "_action_mask": games,
            "illegal_action": illegal,
            "_illegal_action": games.copy(),
        }

    def _final(
        self, ended: npt.NDArray[np.bool_], illegal: npt.NDArray[np.bool_]
    ) -> dict[str, Any]:
        """The last observation and info of the games that have just ended."""
        observation, masks = self._views()
        masks[~ended] = 0
        final_obs = np.full(self.num_envs, None, dtype=object)
        for game in np.flatnonzero(ended).tolist():
            final_obs[game] = observation[game]
        return {
            "final_obs": final_obs,
            "_final_obs": ended.copy(),
            "final_info": self._infos(masks, illegal.copy(), ended.copy()),
            "_final_info": ended.copy(),
        }

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo a step that an opponent's error breaks off."""
        names = ("_packed", "_plies", "_status", "_seats", "_seeds", "_draws")
        saved = {name: getattr(self, name).copy() for name in names}
        try:
            yield
        except BaseException:
            self.__dict__.update(saved)
            raise

    def _check_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} seeds, got {len(seed)}")
            return list(seed)
        super().reset(seed=seed)
        return [seed + game for game in range(self.num_envs)]

    def _check_reset_mask(self, options: dict[str, Any] | None) -> npt.NDArray[np.int64]:
        if not options or "reset_mask" not in options:
            return np.arange(self.num_envs)
        mask = options["reset_mask"]
        if (
            not isinstance(mask, np.ndarray)
            or mask.shape != (self.num_envs,)
            or mask.dtype != np.bool_
            or not mask.any()
        ):
            raise ValueError(
                f"reset_mask must be a bool array of shape ({self.num_envs},) with a True in it, "
                f"got {mask!r}"
            )
        return np.flatnonzero(mask)
