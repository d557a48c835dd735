"""A rule set as data: the four presets and any mix of their parts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, Literal

from pylos_env.errors import NotationError
from pylos_env.geometry import SPHERES_ON_SMALL_BOARD, SPHERES_PER_PLAYER
from pylos_env.options import check_between

TakeBack = Literal["choose", "greedy"]
TAKE_BACK_MODES: Final[tuple[TakeBack, ...]] = ("choose", "greedy")


@dataclass(frozen=True, slots=True)
class Rules:
    """One way to play Pylos.

    `str(rules)` is the preset's name, or the parts: `"squares lines min=1 empty-loses"`;
    `Rules.of` reads both.
    """

    squares: bool = True
    """A 2x2 square of one colour is a formation."""
    lines: bool = True
    """A full row or column of level 1 (four) or level 2 (three) is a formation."""
    min_take_back: int = 0
    """How many spheres a formation obliges its owner to take back; the most is always two."""
    empty_reserve_loses: bool = False
    """The side to move with an empty reserve has lost, even if it could raise."""
    levels: int = 4
    """4, or 3 for the small board: the lowest level is missing, and each side has seven spheres."""
    take_back: TakeBack = "choose"
    """Who decides what is taken back: the player, action by action, or the rule "greedy" (at most
    two, each time the free sphere with the lowest cell number)."""

    def __post_init__(self) -> None:
        for name in ("squares", "lines", "empty_reserve_loses"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"Rules.{name} must be a bool, got {getattr(self, name)!r}")
        least = check_between(self.min_take_back, 0, 2, "Rules.min_take_back")
        object.__setattr__(self, "min_take_back", least)
        levels = check_between(self.levels, 3, 4, "Rules.levels")
        object.__setattr__(self, "levels", levels)
        if self.take_back not in TAKE_BACK_MODES:
            raise ValueError(
                f"unknown take_back {self.take_back!r}: expected one of {list(TAKE_BACK_MODES)}"
            )

    @classmethod
    def of(cls, rules: str | Rules, take_back: TakeBack | None = None) -> Rules:
        """The record for a preset's name, for the text of a mix, or for a record itself."""
        if isinstance(rules, str):
            rules = PRESETS[rules] if rules in PRESETS else _parse(rules)
        elif not isinstance(rules, Rules):
            raise TypeError(f"rules must be a name or a Rules record, got {rules!r}")
        return rules if take_back is None else dataclasses.replace(rules, take_back=take_back)

    @property
    def spheres(self) -> int:
        """How many spheres each side has."""
        return SPHERES_PER_PLAYER if self.levels == 4 else SPHERES_ON_SMALL_BOARD

    @property
    def formations(self) -> bool:
        """Whether anything can ever be taken back."""
        return self.squares or self.lines

    @property
    def symmetric(self) -> bool:
        """Whether the board's eight symmetries map games to games (a greedy rule breaks them)."""
        return self.take_back == "choose" or not self.formations

    @property
    def code(self) -> int:
        """The rules as the integer that the kernels take: one bit a flag, see `kernel`."""
        return (
            self.squares
            | self.lines << 1
            | self.empty_reserve_loses << 2
            | (self.take_back == "greedy") << 3
            | self.min_take_back << 4
            | (self.levels == 3) << 6
        )

    def __str__(self) -> str:
        suffix = " levels=3" if self.levels == 3 else ""
        suffix += " greedy" if self.take_back == "greedy" else ""
        chosen = dataclasses.replace(self, levels=4, take_back="choose")
        for name, preset in PRESETS.items():
            if preset == chosen:
                return name + suffix
        parts = [
            *(["squares"] if self.squares else []),
            *(["lines"] if self.lines else []),
            f"min={self.min_take_back}",
            *(["empty-loses"] if self.empty_reserve_loses else []),
        ]
        return " ".join(parts) + suffix


PRESETS: Final[dict[str, Rules]] = {
    "advanced": Rules(),
    "children": Rules(squares=False, lines=False, empty_reserve_loses=True),
    "standard": Rules(lines=False, min_take_back=1, empty_reserve_loses=True),
    "mature": Rules(min_take_back=1, empty_reserve_loses=True),
}


def _parse(text: str) -> Rules:
    words = text.split()
    if not words:
        raise _unknown(text, text)
    base = Rules(squares=False, lines=False)
    if words[0] in PRESETS:
        base = PRESETS[words.pop(0)]
    for word in words:
        if word == "squares":
            base = dataclasses.replace(base, squares=True)
        elif word == "lines":
            base = dataclasses.replace(base, lines=True)
        elif word == "empty-loses":
            base = dataclasses.replace(base, empty_reserve_loses=True)
        elif word == "greedy":
            base = dataclasses.replace(base, take_back="greedy")
        elif word in ("levels=3", "levels=4"):
            base = dataclasses.replace(base, levels=int(word[-1]))
        elif word in ("min=0", "min=1", "min=2"):
            base = dataclasses.replace(base, min_take_back=int(word[-1]))
        else:
            raise _unknown(text, word)
    return base


def _unknown(text: str, word: str) -> NotationError:
    return NotationError(
        f"unknown rules {text!r}: {word!r} is not one of {', '.join(PRESETS)}, "
        "nor a part of a mix (squares, lines, min=0, min=1, min=2, empty-loses, levels=3, greedy)"
    )
