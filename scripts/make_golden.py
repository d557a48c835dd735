"""Write the golden playthroughs that the tests compare line by line.

Run it only when the rules, the numbering or the text forms are meant to change, and read the diff.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pylos_env import testing

GAMES = [
    ("advanced", 1),
    ("advanced", 2),
    ("advanced greedy", 3),
    ("children", 4),
    ("standard", 5),
    ("mature", 6),
    ("squares lines min=2", 7),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    folder = Path(__file__).resolve().parent.parent / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=folder, help="folder (default: tests/golden)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for rules, seed in GAMES:
        game = testing.random_game(rules, seed)
        path = out / f"{rules.replace(' ', '_').replace('=', '')}_{seed}.txt"
        path.write_text(testing.playthrough(game), encoding="utf-8")
        print(f"{path}: {len(game.actions)} plies, {game.result}")


if __name__ == "__main__":
    main()
