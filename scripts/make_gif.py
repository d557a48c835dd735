"""Make the animated picture of a whole game that the README shows.

python scripts/make_gif.py --white alphabeta:4 --black alphabeta:4 --seed 1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pylos_env import GameRecord, Outcome, Position, PylosError, agents, render

if TYPE_CHECKING:
    from PIL.Image import Image

ROOT = Path(__file__).resolve().parent.parent
UNCHANGED = 255  # the last of a GIF's 256 colours stands for "as in the frame before"
TOLERANCE = 6  # a change of brightness, of 255, that nobody sees
FRAME_MS = 600
TAKE_BACK_MS = 850
LAST_MS = 4000


def play(white: str, black: str, rules: str, seed: int, max_plies: int) -> GameRecord:
    """A game between two agents, broken off after `max_plies` actions."""
    players = [agents.make(white, seed=seed), agents.make(black, seed=seed + 1)]
    start = position = Position.start(rules)
    actions: list[int] = []
    while position.outcome is Outcome.ONGOING and len(actions) < max_plies:
        actions.append(players[position.side].act(position))
        position = position.play(actions[-1])
    return GameRecord(start, tuple(actions), {"White": white, "Black": black})


def frames(game: GameRecord, size: int) -> tuple[list[Image], list[int]]:
    """A picture of each position, and how long to show it."""
    from PIL import Image

    pictures, durations = [], []
    for position, last in zip(game.positions(), [None, *game.actions], strict=True):
        taking_back = position.take_backs_left > 0
        picture = render.rgb_array(position, size, legal=taking_back, last=last)
        pictures.append(Image.fromarray(picture))
        durations.append(TAKE_BACK_MS if taking_back else FRAME_MS)
        print(f"\rdrawn: {len(pictures)} of {len(game.actions) + 1}", end="", file=sys.stderr)
    print(file=sys.stderr)
    durations[-1] = LAST_MS
    return pictures, durations


def compress(pictures: list[Image]) -> list[Image]:
    """The pictures in shared colours, each with only those pixels that visibly changed.

    No dithering: its dots would differ from frame to frame.
    """
    from PIL import Image

    arrays = [np.asarray(picture).astype(np.int16) for picture in pictures]
    samples = [*pictures[:: max(1, len(pictures) // 8)], pictures[-1]]
    mosaic = Image.fromarray(np.concatenate([np.asarray(sample) for sample in samples]))
    palette = mosaic.quantize(UNCHANGED, kmeans=1)
    colours = (palette.getpalette() or [])[: 3 * UNCHANGED]
    shown = np.full_like(arrays[0], -TOLERANCE - 1)
    frames = []
    for picture, array in zip(pictures, arrays, strict=True):
        indices = np.asarray(picture.quantize(palette=palette, dither=Image.Dither.NONE))
        changed = np.abs(array - shown).max(axis=-1) > TOLERANCE
        shown[changed] = array[changed]
        frame = Image.fromarray(np.where(changed, indices, UNCHANGED).astype(np.uint8))
        frame.putpalette(colours + [0] * (768 - len(colours)))
        frames.append(frame)
    return frames


def main() -> None:
    """Play, draw, write."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "game.gif")
    parser.add_argument("--white", default="alphabeta:4", help="agent, see pylos_env.agents")
    parser.add_argument("--black", default="alphabeta:4", help="agent")
    parser.add_argument("--rules", default="advanced", help="rule set")
    parser.add_argument("--seed", type=int, default=7, help="of the agents")
    parser.add_argument("--size", type=int, default=480, help="width and height in pixels")
    parser.add_argument("--max-plies", type=int, default=120, help="break the game off after")
    arguments = parser.parse_args()
    try:
        import PIL  # noqa: F401
    except ImportError:
        parser.exit(1, "this script needs Pillow: pip install pillow\n")
    try:
        game = play(
            arguments.white, arguments.black, arguments.rules, arguments.seed, arguments.max_plies
        )
    except PylosError as error:
        parser.error(str(error))
    print(game)
    pictures, durations = frames(game, arguments.size)
    first, *others = compress(pictures)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    first.save(
        arguments.out,
        save_all=True,
        append_images=others,
        duration=durations,
        loop=0,
        transparency=UNCHANGED,
        disposal=1,
        optimize=False,
    )
    size = arguments.out.stat().st_size
    print(f"{arguments.out}: {len(pictures)} frames, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
