"""A picture of a tournament's ratings with their intervals. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from pylos_env.errors import PylosError
from trainers.arena.results import Tournament, elo_text


def check_plot(path: Path) -> None:
    """Refuse what `plot_ratings` could not write: a missing matplotlib, an unknown ending."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ModuleNotFoundError:
        raise PylosError("plots need matplotlib: pip install 'pylos-env[train]'") from None
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in known:
        raise PylosError(f"{path}: a plot's name ends in one of {', '.join(known)}")


def plot_ratings(tournament: Tournament, path: Path) -> None:
    """Draw one line a player, the strongest on top; open dots are finite only by the prior."""
    from matplotlib.figure import Figure

    if not tournament.ratings:
        raise PylosError("no ratings to plot: games do not link all players")
    figure = Figure(figsize=(8, 1.2 + 0.4 * len(tournament.ratings)), layout="constrained")
    axes = figure.add_subplot()
    for row, rating in enumerate(tournament.ratings.values()):
        axes.errorbar(
            rating.elo,
            row,
            xerr=[[rating.elo - rating.low], [rating.high - rating.elo]],
            marker="o",
            markerfacecolor="white" if rating.by_prior else None,
            capsize=3,
            color="C0",
        )
        axes.annotate(
            elo_text(rating.elo), (rating.elo, row), (0, 7), textcoords="offset points", ha="center"
        )
    axes.set_yticks(range(len(tournament.ratings)), list(tournament.ratings))
    axes.invert_yaxis()
    axes.margins(y=0.25)
    axes.set_xlabel("Elo, with 95 % intervals of the distance to the anchor")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=150)
