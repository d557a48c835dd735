"""Packages that only some sinks need, imported when such a sink is made."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, extra: str) -> Any:
    """The module; where it is missing, an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"cannot import {module} ({error}): pip install 'pylos-env[{extra}]'"
        ) from error
