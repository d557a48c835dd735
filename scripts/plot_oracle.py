"""Draw and tabulate what the solved tables and the labelled positions say.

    python scripts/plot_oracle.py            reads every solved table: a minute or two

Writes docs/images/oracle-values.png and oracle-agents.png, and prints the tables of docs/oracle.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from pylos_env import Rules, oracle
from pylos_env.oracle.measure import Report, Share
from pylos_env.oracle.solve import Counts, count_values
from pylos_env.oracle.table import table_path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
RULE_SETS = ["children", "standard", "mature", "advanced"]
AGENTS = ["random", "rule_based", "alphabeta:2", "alphabeta:4", "alphabeta:6"]
COLOURS = {"won": "#2f6f4f", "drawn": "#c9b458", "lost": "#a23b3b"}


def plot_values(counts: dict[str, list[Counts]]) -> None:
    size = (3.6 * len(counts), 3.4)
    figure, (axes,) = pyplot.subplots(1, len(counts), figsize=size, sharey=True, squeeze=False)
    for axis, (rules, rows) in zip(axes, counts.items(), strict=True):
        spheres = [row.spheres for row in rows]
        totals = [row.won + row.drawn + row.lost for row in rows]
        shares = [
            [getattr(row, kind) / total for row, total in zip(rows, totals, strict=True)]
            for kind in COLOURS
        ]
        axis.stackplot(spheres, shares, labels=list(COLOURS), colors=list(COLOURS.values()))
        axis.set_title(rules)
        axis.set_xlabel("spheres on the board")
        axis.set_xlim(0, 29)
        axis.set_ylim(0, 1)
    axes[0].set_ylabel("share of all positions")
    axes[0].legend(loc="lower left", frameon=True)
    figure.suptitle("Won, drawn and lost for the side to move, every position of the game")
    figure.tight_layout()
    figure.savefig(IMAGES / "oracle-values.png", dpi=110)


def plot_agents(reports: list[Report]) -> None:
    figure, axis = pyplot.subplots(figsize=(8, 4.2))
    for report in reports:
        spheres = sorted(count for count, share in report.won_by_spheres.items() if share.total > 9)
        shares = [report.won_by_spheres[count] for count in spheres]
        lost = [1 - share.rate for share in shares]
        low = [1 - share.interval[1] for share in shares]
        high = [1 - share.interval[0] for share in shares]
        name = f"{report.agent}: {1 - report.won.rate:.0%}"
        (line,) = axis.plot(spheres, lost, marker=".", label=name)
        axis.fill_between(spheres, low, high, color=line.get_color(), alpha=0.15)
    axis.set_xlabel("spheres on the board")
    axis.set_ylabel("won positions in which the win is thrown away")
    axis.set_ylim(0, 1)
    axis.set_xlim(1, 29)
    axis.legend(title="agent and its share over all", frameon=False)
    axis.set_title("How often one action throws the win away (labelled positions, advanced)")
    figure.tight_layout()
    figure.savefig(IMAGES / "oracle-agents.png", dpi=110)


def print_counts(counts: dict[str, list[Counts]]) -> None:
    for rules, rows in counts.items():
        print(f"\n`{rules}`:\n\n| spheres | won | drawn | lost |\n|---|---|---|---|")
        for row in rows:
            print(f"| {row.spheres} | {row.won:,} | {row.drawn:,} | {row.lost:,} |")
        sums = [sum(getattr(row, kind) for row in rows) for kind in COLOURS]
        print("| all | " + " | ".join(f"{total:,}" for total in sums) + " |")


def print_reports(reports: list[Report]) -> None:
    def text(share: Share | None) -> str:
        if share is None:
            return "-"
        low, high = share.interval
        return f"{share.rate:.1%} ({low:.1%} to {high:.1%})"

    head = ["agent", "value preserved", "won", "drawn", *reports[0].phases, "wrong sign"]
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for report in reports:
        shares = [report.preserving, report.won, report.drawn, *report.phases.values()]
        cells = [text(share) for share in [*shares, report.wrong_sign]]
        print("| " + " | ".join([f"`{report.agent}`", *cells]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.parse_args()
    counts = {
        rules: count_values(path)
        for rules in RULE_SETS
        if (path := table_path(Rules.of(rules))).exists()
    }
    if counts:
        plot_values(counts)
        print_counts(counts)
    else:
        print("no solved table here: only the agents are drawn")
    reports = [oracle.benchmark(agent) for agent in AGENTS]
    plot_agents(reports)
    print_reports(reports)


if __name__ == "__main__":
    main()
