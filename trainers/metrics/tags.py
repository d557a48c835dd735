"""Every tag the training loops may emit: the only home of their names.

docs/metrics.md explains the same tags at length, and a test compares the two. A tag is
`family/name`; whoever adds one states what it means, its unit and where it is shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from pylos_env.errors import PylosError

Kind = Literal["scalar", "picture", "game", "text"]
Unit = Literal[
    "share",  # 0 to 1
    "number",  # a plain figure without a unit
    "count",
    "times",
    "nats",
    "Elo",
    "plies",
    "per second",
    "per minute",
    "minutes",
    "",  # pictures, games and text
]


class MetricsError(PylosError):
    """An event that cannot be recorded, or a file that cannot be continued."""


@dataclass(frozen=True)
class Tag:
    """What a tag means and where it is shown.

    `chart` is its place on TensorBoard's custom-scalars page, as category and title. `main` puts
    it on the console. `result` lets it stand among the final results of a run.
    """

    meaning: str
    unit: Unit = ""
    chart: tuple[str, str] | None = None
    main: bool = False
    result: bool = False
    kind: Kind = "scalar"


_WINS: Final = ("Strength", "Win rates")
_ORACLE: Final = ("Strength", "Value-preserving moves")
_RATING: Final = ("Strength", "Rating with its interval")
_LEAGUE: Final = ("Strength", "Elo in the league")
_LOSSES: Final = ("Learning", "Losses")
_ENTROPY: Final = ("Learning", "Entropies")
_UPDATE: Final = ("Learning", "Size of a PPO update")
_GAMES: Final = ("Games", "Length")
_SHARES: Final = ("Games", "Draws and the first player")
_SPEED: Final = ("Speed", "Rates per second")

TAGS: Final[Mapping[str, Tag]] = MappingProxyType(
    {
        "train/loss": Tag("the sum that is minimised", "number", _LOSSES, main=True),
        "train/policy_loss": Tag(
            "AlphaZero: cross-entropy with the search's policy, in nats; PPO: clipped surrogate",
            "number",
            _LOSSES,
            main=True,
        ),
        "train/value_loss": Tag(
            "error of the value head, before its weight", "number", _LOSSES, main=True
        ),
        "train/entropy": Tag(
            "entropy of the network's policy over the legal actions", "nats", _ENTROPY, main=True
        ),
        "train/clip_fraction": Tag(
            "samples whose probability ratio left the clip range", "share", _UPDATE
        ),
        "train/approx_kl": Tag(
            "how far an update moved the policy, as estimated KL divergence", "nats", _UPDATE
        ),
        "train/explained_variance": Tag(
            "part of the returns' variance that the value head explains", "number", main=True
        ),
        "train/learning_rate": Tag("step size of the optimiser", "number"),
        "train/grad_norm": Tag("norm of the gradient before clipping", "number"),
        "eval/win_rate_vs_random": Tag(
            "games won against `random`", "share", _WINS, main=True, result=True
        ),
        "eval/win_rate_vs_rule_based": Tag(
            "games won against `rule_based`", "share", _WINS, main=True, result=True
        ),
        "eval/win_rate_vs_alphabeta": Tag(
            "games won against `alphabeta`, at the depth the config states",
            "share",
            _WINS,
            main=True,
            result=True,
        ),
        "eval/avg_episode_reward": Tag(
            "mean result of the evaluation games: 1 won, 0 drawn, -1 lost", "number", result=True
        ),
        "eval/draw_rate": Tag(
            "evaluation games stopped by the ply limit", "share", _SHARES, result=True
        ),
        "eval/oracle_preserving": Tag(
            "labelled positions, with a mistake possible, whose value the move made keeps",
            "share",
            _ORACLE,
            main=True,
            result=True,
        ),
        "eval/oracle_preserving_won": Tag(
            "won labelled positions, with a mistake possible, that the move made keeps won",
            "share",
            _ORACLE,
            main=True,
            result=True,
        ),
        "eval/oracle_preserving_drawn": Tag(
            "drawn labelled positions, with a mistake possible, that the move made keeps drawn",
            "share",
            _ORACLE,
            result=True,
        ),
        "eval/value_wrong_sign": Tag(
            "won and lost labelled positions whose value has the wrong sign",
            "share",
            _ORACLE,
            result=True,
        ),
        "eval/rating": Tag(
            "maximum-likelihood rating, `random` = 0", "Elo", _RATING, main=True, result=True
        ),
        "eval/rating_low": Tag(
            "lower bound of the rating's 95 % interval", "Elo", _RATING, result=True
        ),
        "eval/rating_high": Tag(
            "upper bound of the rating's 95 % interval", "Elo", _RATING, result=True
        ),
        "selfplay/games": Tag(
            "self-play games finished since the run began", "count", main=True, result=True
        ),
        "selfplay/positions": Tag(
            "positions recorded for learning since the run began, those inside searches among them",
            "count",
            result=True,
        ),
        "selfplay/game_length": Tag("mean length of self-play games", "plies", _GAMES, main=True),
        "selfplay/draw_rate": Tag("self-play games that nobody won", "share", _SHARES),
        "selfplay/first_player_score": Tag(
            "share of self-play's decided games that the first player won", "share", _SHARES
        ),
        "selfplay/policy_entropy": Tag(
            "entropy of the search's policy in recorded positions", "nats", _ENTROPY
        ),
        "replay/size": Tag("positions in the replay buffer", "count", main=True),
        "replay/reuse": Tag(
            "samples drawn by the learner for each position recorded", "times", main=True
        ),
        "gate/score": Tag(
            "score of the candidate against the best so far: 1 won, 0.5 drawn",
            "share",
            ("Strength", "Gate"),
            main=True,
        ),
        "gate/accepted": Tag(
            "1 when the candidate became the best, 0 when not", "number", ("Strength", "Gate")
        ),
        "search/depth": Tag(
            "mean depth of the leaves below the root", "plies", ("Search", "Depth")
        ),
        "search/root_value": Tag(
            "mean value of the root after the search, for the side to move",
            "number",
            ("Search", "Root value"),
        ),
        "search/proven": Tag(
            "searches that proved the root won or lost", "share", ("Search", "Proven roots")
        ),
        "league/current_elo": Tag(
            "online Elo of the learner", "Elo", _LEAGUE, main=True, result=True
        ),
        "league/best_elo": Tag("highest online Elo of the league", "Elo", _LEAGUE, result=True),
        "league/pool_size": Tag("snapshots in the league", "count", main=True),
        "league/rule_based_score": Tag(
            "recent score of the learner in training games against `rule_based`",
            "share",
            ("Strength", "Score against rule_based in training"),
            main=True,
        ),
        "env/episode_length": Tag("mean length of training games", "plies", _GAMES, main=True),
        "env/episodes": Tag(
            "training games finished since the run began", "count", main=True, result=True
        ),
        "perf/steps_per_second": Tag(
            "environment steps of both seats, rollout and update included",
            "per second",
            _SPEED,
            main=True,
        ),
        "perf/simulations_per_second": Tag(
            "simulations of the tree search during self-play", "per second", _SPEED, main=True
        ),
        "perf/positions_per_second": Tag(
            "positions that self-play's games moved on from, over the whole loop",
            "per second",
            _SPEED,
            main=True,
        ),
        "perf/games_per_minute": Tag(
            "games finished, over the whole loop", "per minute", ("Speed", "Games per minute")
        ),
        "perf/known_share": Tag(
            "positions of self-play's searches whose evaluation was known already",
            "share",
            ("Speed", "Evaluations known already"),
        ),
        "perf/progress": Tag("part of the run's budget that is used up", "share"),
        "perf/minutes_left": Tag("time until the budget is used up, as estimated", "minutes"),
        "cluster/workers": Tag(
            "actors that play on the cluster now", "count", ("Speed", "Workers of the cluster")
        ),
        "cluster/lost": Tag("actors that were lost since the run began", "count"),
        "sample/position": Tag("a position of a recent game", kind="picture"),
        "sample/selfplay": Tag("a recent training game", kind="game"),
        "sample/evaluation": Tag("a recent evaluation game", kind="game"),
        "log/message": Tag("what the loop had to say", kind="text"),
    }
)

MARGINS: Final = {_RATING: ("eval/rating", "eval/rating_low", "eval/rating_high")}
"""Charts that draw a value with its bounds."""

FINAL: Final = "final/"
"""Put before a tag, it names the final result: the last, largest evaluation of a run."""

Layout = dict[str, dict[str, tuple[str, list[str]]]]


def check_tag(name: str, kind: Kind) -> str:
    """The tag itself, if it is in the table and of this kind."""
    tag = TAGS.get(name)
    if tag is None:
        near = difflib.get_close_matches(str(name), TAGS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "trainers.metrics.TAGS has all"
        raise MetricsError(f"unknown tag {name!r}: {hint}")
    if tag.kind != kind:
        raise MetricsError(f"{name} is a {tag.kind}, not a {kind}")
    return name


def check_result(name: str) -> str:
    """The tag itself, if it may stand among the final results."""
    if not TAGS[check_tag(name, "scalar")].result:
        possible = ", ".join(tag for tag in TAGS if TAGS[tag].result)
        raise MetricsError(f"{name} is no final result: expected any of {possible}")
    return name


def layout() -> Layout:
    """TensorBoard's custom-scalars page: category, title, kind of chart and its curves.

    A line chart selects its curves by regular expression, so a tag that begins like another must
    be matched to its end.
    """
    page: Layout = {}
    for name, tag in TAGS.items():
        if tag.chart is None:
            continue
        category, title = tag.chart
        charts = page.setdefault(category, {})
        if tag.chart in MARGINS:
            charts[title] = ("Margin", list(MARGINS[tag.chart]))
        else:
            charts.setdefault(title, ("Multiline", []))[1].append(f"^{re.escape(name)}$")
    return page
