"""The errors a user of the library can meet. All are also `ValueError`s."""


class PylosError(ValueError):
    """Base of every error raised on purpose by this package."""


class IllegalMoveError(PylosError):
    """An action that the rules do not allow in this position."""


class NotationError(PylosError):
    """Text that is no cell, move, position, rule set or game."""
