"""Where things lie, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path


def configs() -> Path:
    """The folder of Hydra's YAML files: beside the code when installed, else in the checkout."""
    here = Path(__file__).resolve().parent
    installed = here / "configs"
    return installed if installed.is_dir() else here.parent / "configs"
