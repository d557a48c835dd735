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

from typing import Any, Final, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pylos_env import batch, kernel, render
from pylos_env.agents import AgentLike
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


class _Game(NamedTuple):
    """A game in progress. A step makes a new one, so that an error half-way changes nothing."""

    position: Position
    seat: int
    seed: int  # of the stream that the opponent's chance comes from
    draws: int  # keys taken from it
    plies: int = 0
    last_action: int | None = None
    over: bool = False


class PylosEnv(gymnasium.Env[npt.NDArray[np.float32], int]):
    """One seat of a game of Pylos."""

    metadata = {"render_modes": list(render.RENDER_MODES), "render_fps": 2}

    def __init__(
        self,
        opponent: AgentLike = "random",
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

        self._ply_limit = ply_limit(self.max_plies)
        self._rewards = batch.reward_table(self.draw_reward)
        self._current: _Game | None = None
        self._window: render.Window | None = None

    @property
    def _game(self) -> _Game:
        if self._current is None:
            raise gymnasium.error.ResetNeeded("no game yet: call reset() first")
        return self._current

    @property
    def position(self) -> Position:
        """The game as a `Position`."""
        return self._game.position

    @property
    def seat(self) -> int:
        """The learner's seat in this game."""
        return self._game.seat

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin a new game; the opponent has already moved where it moves first."""
        super().reset(seed=seed)
        if seed is None and self._current is not None:
            stream, draws = self._current.seed, self._current.draws
        else:
            stream, draws = int(self.np_random.integers(SEED_RANGE)), 0
        if self.seat_option == "random":
            draws += 1
            seat = kernel.pick(kernel.draw(stream, draws), 2)
        else:
            seat = self.seat_option
        start = Position.start(self.rules)
        self._current = self._answer(_Game(start, seat, stream, draws))
        if self.render_mode == "human":
            self.render()
        return self._observe(), self._info(illegal=False)

    def step(
        self, action: int
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play the learner's action, then the opponent's answer."""
        game = self._game
        if game.over:
            raise gymnasium.error.ResetNeeded("the game is over: call reset() before step()")
        action = check_action(action)
        code = self.rules.code
        if kernel.is_legal(game.position.packed, code, action):
            game = self._answer(
                game._replace(
                    position=game.position.play(action), plies=game.plies + 1, last_action=action
                )
            )
            status = batch.status_of(
                game.position.packed, code, game.seat, game.plies, self._ply_limit
            )
        else:
            status = batch.ILLEGAL
        self._current = game._replace(over=status != batch.ONGOING)
        if self.render_mode == "human":
            self.render()
        return (
            self._observe(),
            float(self._rewards[status]),
            bool(batch.TERMINATED[status]),
            status == batch.TRUNCATED,
            self._info(illegal=status == batch.ILLEGAL),
        )

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """The legal actions as booleans [303], under the name that MaskablePPO looks for."""
        return self._mask().astype(np.bool_)

    def render(self) -> npt.NDArray[np.uint8] | str | None:
        if self._window is None and self.render_mode == "human":
            self._window = render.Window(fps=self.metadata["render_fps"])
        return render.show(self.position, self.render_mode, self._window, self._game.last_action)

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a window belongs to one process and one game

    # Inside

    def _answer(self, game: _Game) -> _Game:
        """Let the opponent play until the learner is on turn or the game is over."""
        position, _, stream, draws, plies, last_action, _ = game
        while position.side != game.seat and plies < self._ply_limit:
            if kernel.is_over(position.packed, self.rules.code):
                break
            draws += 1
            last_action = self.opponent.act(position, kernel.draw(stream, draws))
            position = position.play(last_action)
            plies += 1
        return game._replace(position=position, draws=draws, plies=plies, last_action=last_action)

    def _observe(self) -> npt.NDArray[np.float32]:
        return self._observer.observe(self.position.packed, self.seat)

    def _mask(self) -> npt.NDArray[np.int8]:
        if self.position.side != self.seat:
            return np.zeros(kernel.NUM_ACTIONS, dtype=np.int8)
        return self.position.action_mask()

    def _info(self, illegal: bool) -> dict[str, Any]:
        return {"action_mask": self._mask(), "illegal_action": illegal}
