"""Pylos as a PettingZoo AEC environment.

    from pylos_env import pylos_v0

    env = pylos_v0.env(rules="advanced")
    env.reset(seed=42)
    for agent in env.agent_iter():
        observation, reward, termination, truncation, info = env.last()
        action = None
        if not (termination or truncation):
            action = env.action_space(agent).sample(observation["action_mask"])
        env.step(action)

| | |
|---|---|
| Agents | `player_0` (white, moves first), `player_1` (black) |
| Actions | `Discrete(303)`: 0-29 place, 30-302 raise; while taking back 0-28 take back, 29 stop |
| Observations | `{"observation", "action_mask"}`, see `pylos_env.observation` |
| Rewards | +1 / -1 at the end of the game, 0 before; `draw_reward` for both when truncated |

Arguments of `env` and `raw_env`:

- `rules`: a preset (`advanced`, `children`, `standard`, `mature`), the text of a mix, or a `Rules`.
- `take_back`: `"choose"` (the player takes spheres back one action at a time and stays selected) or
  `"greedy"` (the environment takes back at once). The default is what `rules` says: choose.
- `observation`: `"flat"` or `"planes"`.
- `max_plies`: after so many actions without a winner the game is truncated (`None`: never).
- `draw_reward`: what both players get for a truncated game.
- `render_mode`: `None`, `"ansi"`, `"rgb_array"` or `"human"`.

The mask marks the legal actions of the player on turn; it is all zeros for the player who waits,
and for both once the game is won (a truncated game keeps the mask of its last position). It also
stands in `infos[agent]["action_mask"]`.

An illegal action raises `IllegalMoveError` in `raw_env` and changes nothing; in `env` PettingZoo's
`TerminateIllegalWrapper` ends the game at a cost of -1 to the offender.

A game in progress survives `copy.deepcopy` and `pickle`. `clone()` gives an independent copy,
`get_state()` / `set_state()` save and restore a game; both work on `env` and on `raw_env`.

### Version History

- v0: first release.
"""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple, TypedDict, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv
from pettingzoo.utils import wrappers

from pylos_env import kernel, render
from pylos_env.errors import IllegalMoveError
from pylos_env.observation import ObservationKind, Observer, mask_space
from pylos_env.options import (
    MAX_PLIES,
    check_action,
    check_draw_reward,
    check_max_plies,
    is_whole,
    ply_limit,
)
from pylos_env.position import Position
from pylos_env.rules import Rules, TakeBack

__all__ = ["Env", "GameState", "Options", "env", "raw_env"]

RENDER_FPS: Final = 2
AGENTS: Final = ("player_0", "player_1")
Observation = dict[str, npt.NDArray[Any]]


class GameState(NamedTuple):
    """A saved game: plain values, so it can be pickled, stored and compared."""

    packed: int
    plies: int
    rules: str
    agent_selection: str
    agents: tuple[str, ...]
    rewards: tuple[float, ...]
    cumulative_rewards: tuple[float, ...]
    terminations: tuple[bool, ...]
    truncations: tuple[bool, ...]


class Options(TypedDict, total=False):
    """The arguments of `env` and `raw_env`."""

    rules: str | Rules
    take_back: TakeBack | None
    observation: ObservationKind
    max_plies: int | None
    draw_reward: float
    render_mode: str | None


def env(**options: Unpack[Options]) -> Env:
    """`raw_env` in PettingZoo's standard wrappers."""
    return Env(raw_env(**options))


class raw_env(AECEnv[str, Observation, int]):  # type: ignore[misc]
    """The game itself. Illegal actions raise."""

    metadata = {
        "render_modes": list(render.RENDER_MODES),
        "name": "pylos_v0",
        "is_parallelizable": False,
        "render_fps": RENDER_FPS,
    }

    def __init__(
        self,
        rules: str | Rules = "advanced",
        take_back: TakeBack | None = None,
        observation: ObservationKind = "flat",
        max_plies: int | None = MAX_PLIES,
        draw_reward: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        self.rules = Rules.of(rules, take_back)
        self.max_plies = check_max_plies(max_plies)
        self.draw_reward = check_draw_reward(draw_reward)
        self.render_mode = render.check_mode(render_mode)
        self._observer = Observer(observation, self.rules)
        self._code = self.rules.code
        self._ply_limit = ply_limit(self.max_plies)
        self._packed = kernel.START
        self._plies = 0
        self._last_action: int | None = None
        self._window: render.Window | None = None

        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.observation_spaces = {
            agent: spaces.Dict({"observation": self._observer.space(), "action_mask": mask_space()})
            for agent in AGENTS
        }
        self.action_spaces = {agent: spaces.Discrete(kernel.NUM_ACTIONS) for agent in AGENTS}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    @property
    def position(self) -> Position:
        """The game as a `Position`, for search, display and notation."""
        return Position.unchecked(self._packed, self.rules)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new game. Pylos has no chance in it: a seed is checked, then not needed."""
        if seed is not None:
            seeding.np_random(seed)
        self._packed = kernel.START
        self._plies = 0
        self._last_action = None
        self.agents = list(AGENTS)
        self.agent_selection = AGENTS[0]
        self.rewards: dict[str, float] = dict.fromkeys(AGENTS, 0)
        self._cumulative_rewards: dict[str, float] = dict.fromkeys(AGENTS, 0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self._skip_agent_selection = None
        self._update_infos()
        if self.render_mode == "human":
            self.render()

    def step(self, action: int | None) -> None:
        """Play `action` for the selected agent (None removes an agent whose game is over)."""
        if not self.agents:
            raise gymnasium.error.ResetNeeded("the game is over: call reset() before step()")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        number = check_action(action)
        packed = kernel.play_checked(self._packed, self._code, number)
        if packed < 0:
            raise IllegalMoveError(self.position.why_illegal(number))
        self._packed = packed
        self._plies += 1
        self._last_action = number

        self.agent_selection = AGENTS[(packed >> kernel.SIDE_SHIFT) & 1]
        self._cumulative_rewards[agent] = 0
        if kernel.is_over(packed, self._code):
            loser = self.agent_selection
            self.rewards = {name: -1 if name == loser else 1 for name in AGENTS}
            self.terminations = dict.fromkeys(AGENTS, True)
            self._accumulate_rewards()
        elif self._plies >= self._ply_limit:
            self.rewards = dict.fromkeys(AGENTS, self.draw_reward)
            self.truncations = dict.fromkeys(AGENTS, True)
            self._accumulate_rewards()
        self._update_infos()
        if self.render_mode == "human":
            self.render()

    def observe(self, agent: str) -> Observation:
        """The agent's view, in fresh arrays."""
        if agent not in AGENTS:
            raise ValueError(f"unknown agent {agent!r}: expected one of {list(AGENTS)}")
        return {
            "observation": self._observer.observe(self._packed, AGENTS.index(agent)),
            "action_mask": self._mask(agent),
        }

    def render(self) -> npt.NDArray[np.uint8] | str | None:
        if self._window is None and self.render_mode == "human":
            self._window = render.Window(fps=RENDER_FPS)
        return render.show(self.position, self.render_mode, self._window, self._last_action)

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    # Saving, restoring, copying

    def get_state(self) -> GameState:
        """The game in progress as plain values."""
        if not hasattr(self, "rewards"):
            raise gymnasium.error.ResetNeeded("no game to save: call reset() first")
        agents = tuple(self.agents)
        return GameState(
            self._packed,
            self._plies,
            str(self.rules),
            self.agent_selection,
            agents,
            tuple(self.rewards[agent] for agent in agents),
            tuple(self._cumulative_rewards[agent] for agent in agents),
            tuple(self.terminations[agent] for agent in agents),
            tuple(self.truncations[agent] for agent in agents),
        )

    def set_state(self, state: GameState) -> None:
        """Go on from a saved game, here or in another environment of the same rules."""
        if not isinstance(state, GameState):
            raise TypeError(f"expected a GameState from get_state(), got {type(state).__name__}")
        if state.rules != str(self.rules):
            raise ValueError(
                f"the saved game is played by {state.rules!r}, "
                f"this environment by {str(self.rules)!r}"
            )
        packed = Position(state.packed, self.rules).packed
        _check_state(state, AGENTS[packed >> kernel.SIDE_SHIFT & 1])
        self._packed = packed
        self._plies = state.plies
        self._last_action = None
        self.agents = list(state.agents)
        self.agent_selection = state.agent_selection
        self.rewards = dict(zip(state.agents, state.rewards, strict=True))
        self._cumulative_rewards = dict(zip(state.agents, state.cumulative_rewards, strict=True))
        self.terminations = dict(zip(state.agents, state.terminations, strict=True))
        self.truncations = dict(zip(state.agents, state.truncations, strict=True))
        self._skip_agent_selection = None
        self._update_infos()

    def clone(self) -> raw_env:
        """An independent copy with the game in progress."""
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a window belongs to one process and one game

    # Inside

    def _mask(self, agent: str) -> npt.NDArray[np.int8]:
        if agent != AGENTS[self._packed >> kernel.SIDE_SHIFT & 1]:
            return np.zeros(kernel.NUM_ACTIONS, dtype=np.int8)
        mask = np.empty(kernel.NUM_ACTIONS, dtype=np.int8)
        kernel.write_mask(self._packed, self._code, mask)
        return mask

    def _update_infos(self) -> None:
        self.infos = {agent: {"action_mask": self._mask(agent)} for agent in self.agents}


class Env(wrappers.OrderEnforcingWrapper[str, Observation, int]):  # type: ignore[misc]
    """PettingZoo's standard stack, with saving and copying that its wrappers lack."""

    def __init__(self, env: raw_env) -> None:
        self._illegal = wrappers.TerminateIllegalWrapper(env, illegal_reward=-1)
        super().__init__(wrappers.AssertOutOfBoundsWrapper(self._illegal))

    def clone(self) -> Env:
        """An independent copy, wrappers included, with the game in progress."""
        return copy.deepcopy(self)

    @property
    def position(self) -> Position:
        """The game as a `Position`, for search, display and notation."""
        position: Position = self.env.position
        return position

    def get_state(self) -> GameState:
        state: GameState = self.env.get_state()
        return state

    def set_state(self, state: GameState) -> None:
        self.env.set_state(state)
        # the wrappers remember the mask of the game that was left
        self._illegal._prev_obs = None
        self._illegal._prev_info = None
        self._illegal._terminated = all(state.terminations) and all(state.truncations)
        self._has_reset = True
        self._has_updated = True

    def __str__(self) -> str:
        return str(self.env)


def _check_state(state: GameState, on_turn: str) -> None:
    """Refuse what no game of this environment saves; `on_turn` follows from the position."""
    dead = [any(pair) for pair in zip(state.terminations, state.truncations, strict=False)]
    numbers = (*state.rewards, *state.cumulative_rewards)
    if (
        not is_whole(state.plies)
        or state.plies < 0
        or state.agent_selection not in AGENTS
        or state.agents not in (AGENTS, AGENTS[:1], AGENTS[1:], ())
        or any(len(column) != len(state.agents) for column in state[5:])
        or not all(isinstance(number, int | float) for number in numbers)
        or any(dead) != all(dead)
        or (not all(dead) and (state.agents != AGENTS or state.agent_selection != on_turn))
    ):
        raise ValueError(f"not a state of this game: {state}")
