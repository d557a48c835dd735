"""Pylos as a Gymnasium environment: one seat against an opponent.

    import gymnasium
    import pylos_env

    env = gymnasium.make("pylos_env/Pylos-v0", opponent="alphabeta:2", seat="random")
    observation, info = env.reset(seed=1)
    action = env.action_space.sample(info["action_mask"])
    observation, reward, terminated, truncated, info = env.step(action)

| | |
|---|---|
| Actions | `Discrete(303)`, as in `pylos_v0` |
| Observation | `Box`, flat [33] or planes [15, 4, 4], from the learner's seat |
| Info | `action_mask` (int8 [303]), `illegal_action` (the learner's last action was illegal) |
| Reward | +1 won, -1 lost, `draw_reward` truncated, -1 for an illegal action, which ends the game |

`step` plays the learner's action and then the opponent's answer, so the learner is always on turn
when it returns (or the game is over). `action_masks()` is what sb3-contrib's MaskablePPO asks for.

- `opponent`: a name (`random`, `rule_based`, `alphabeta:<depth>`), an `Agent`, or a function from
  `Position` to an action. An illegal action of the opponent's raises and leaves the game as it was.
- `seat`: 0 (white, moves first), 1 (black) or `"random"` (drawn anew for every game).
- `rules`, `take_back`, `observation`, `max_plies`, `draw_reward`, `render_mode`: as in `pylos_v0`.
  `max_plies` counts the actions of both players.

### Version History

- v0: first release.
"""

from __future__ import annotations

from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pylos_env import batch, kernel, render
from pylos_env.agents import Agent
from pylos_env.agents import make as make_agent
from pylos_env.observation import ObservationKind, Observer
from pylos_env.options import (
    MAX_PLIES,
    Seat,
    check_action,
    check_draw_reward,
    check_max_plies,
    check_seat,
    ply_limit,
)
from pylos_env.position import Position
from pylos_env.rules import Rules, TakeBack

SEED_RANGE: Final = 1 << 62


class PylosEnv(gymnasium.Env[npt.NDArray[np.float32], int]):
    """One seat of a game of Pylos."""

    metadata = {"render_modes": list(render.RENDER_MODES), "render_fps": 2}

    def __init__(
        self,
        opponent: str | Agent | Any = "random",
        seat: Seat = 0,
        rules: str | Rules = "advanced",
        take_back: TakeBack | None = None,
        observation: ObservationKind = "flat",
        max_plies: int | None = MAX_PLIES,
        draw_reward: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self.rules = Rules.of(rules, take_back)
        self.opponent = make_agent(opponent)
        self.seat_option = check_seat(seat)
        self.max_plies = check_max_plies(max_plies)
        self.draw_reward = check_draw_reward(draw_reward)
        self.render_mode = render.check_mode(render_mode)
        self._observer = Observer(observation, self.rules)
        self.observation_space = self._observer.space()  # type: ignore[assignment]
        self.action_space = spaces.Discrete(kernel.NUM_ACTIONS)  # type: ignore[assignment]

        self.seat = 0 if seat == "random" else int(seat)
        self._ply_limit = ply_limit(self.max_plies)
        self._seed: int | None = None
        self._draws = 0
        self._position: Position | None = None
        self._plies = 0
        self._last_action: int | None = None
        self._over = False
        self._window: render.Window | None = None

    @property
    def position(self) -> Position:
        """The game as a `Position`."""
        if self._position is None:
            raise gymnasium.error.ResetNeeded("no game yet: call reset() first")
        return self._position

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin a new game; the opponent has already moved where it moves first."""
        super().reset(seed=seed)
        if seed is not None or self._seed is None:
            self._seed = int(self.np_random.integers(SEED_RANGE))
            self._draws = 0
        if self.seat_option == "random":
            self.seat = kernel.pick(self._next_key(), 2)
        start = Position.start(self.rules)
        self._position, self._plies, self._last_action = self._answer(start, 0, None)
        self._over = False
        if self.render_mode == "human":
            self.render()
        return self._observe(), self._info(illegal=False)

    def step(
        self, action: int
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._over or self._position is None:
            raise gymnasium.error.ResetNeeded("the game is over: call reset() before step()")
        action = check_action(action)
        if not kernel.is_legal(self._position.packed, self.rules.code, action):
            self._over = True
            return self._observe(), -1.0, True, False, self._info(illegal=True)

        position, plies, last_action = self._answer(
            self._position.play(action), self._plies + 1, action
        )
        self._position, self._plies, self._last_action = position, plies, last_action
        status = batch.status_of(
            position.packed, self.rules.code, self.seat, plies, self._ply_limit
        )
        self._over = status != batch.ONGOING
        reward = {batch.WON: 1.0, batch.LOST: -1.0, batch.TRUNCATED: self.draw_reward}
        if self.render_mode == "human":
            self.render()
        return (
            self._observe(),
            reward.get(status, 0.0),
            status in (batch.WON, batch.LOST),
            status == batch.TRUNCATED,
            self._info(illegal=False),
        )

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """The legal actions as booleans [303], under the name that MaskablePPO looks for."""
        return self._mask().astype(np.bool_)

    def render(self) -> npt.NDArray[np.uint8] | str | None:
        if self._window is None and self.render_mode == "human":
            self._window = render.Window(fps=self.metadata["render_fps"])
        return render.show(self.position, self.render_mode, self._window, self._last_action)

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a window belongs to one process and one game

    # Inside

    def _answer(
        self, position: Position, plies: int, last_action: int | None
    ) -> tuple[Position, int, int | None]:
        """Let the opponent play until the learner is on turn or the game is over."""
        while position.side != self.seat and plies < self._ply_limit:
            if kernel.is_over(position.packed, self.rules.code):
                break
            last_action = self.opponent.act(position, self._next_key())
            position = position.play(last_action)
            plies += 1
        return position, plies, last_action

    def _next_key(self) -> int:
        assert self._seed is not None
        self._draws += 1
        return kernel.draw(self._seed, self._draws)

    def _observe(self) -> npt.NDArray[np.float32]:
        return self._observer.observe(self.position.packed, self.seat)

    def _mask(self) -> npt.NDArray[np.int8]:
        if self.position.side != self.seat:
            return np.zeros(kernel.NUM_ACTIONS, dtype=np.int8)
        return self.position.action_mask()

    def _info(self, illegal: bool) -> dict[str, Any]:
        return {"action_mask": self._mask(), "illegal_action": illegal}
