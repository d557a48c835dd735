"""The commands that need an extra: one sentence where it is missing, instead of a traceback.

Nothing heavy is imported here: the command's own module is, once it is asked for.
"""

from __future__ import annotations

import importlib
import sys

OWN = ("pylos_env", "pylos_web", "trainers")


def run(command: str, module: str, extra: str) -> None:
    """Call `main` of a module; exits with what it returns."""
    try:
        main = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in OWN:
            raise
        sys.exit(f"{command} needs the package {missing!r}: pip install 'pylos-env[{extra}]'")
    sys.exit(main())


def alphazero() -> None:
    run("pylos-alphazero", "trainers.alphazero.cli", "train")


def ppo() -> None:
    run("pylos-ppo", "trainers.ppo.cli", "train")


def export() -> None:
    run("pylos-export", "trainers.export.cli", "export")


def web() -> None:
    run("pylos-web", "pylos_web.cli", "web")
