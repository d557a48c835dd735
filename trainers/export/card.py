"""The model card: what an exported network is, how strong, where it errs, how to load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylos_env.oracle.measure import Report, Share
from trainers.checkpoint_file import CheckpointInfo
from trainers.export.onnx_file import Difference
from trainers.manifest import ManifestEntry

ONNX_FILE = "model.onnx"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
NOT_KNOWN = "not recorded"


@dataclass(frozen=True)
class Facts:
    """All that a card tells. What was not measured is None or empty, and said to be so."""

    name: str
    info: CheckpointInfo
    parameters: int
    entry: ManifestEntry | None = None
    """The checkpoint's line in the manifest it was found in."""
    simulations: int = 0
    """With how many it is meant to play."""
    reports: Mapping[int, Report] = field(default_factory=dict)
    """By simulations; 0 is the raw policy."""
    difference: Difference | None = None
    """None where no ONNX file was made."""
    has_labels: bool = True

    @property
    def canonical(self) -> bool:
        return bool(self.info.network.get("canonical")) and self.info.rules.symmetric

    @property
    def wdl(self) -> bool:
        return self.info.network.get("value_head") == "wdl"


def card(facts: Facts) -> str:
    """The whole text, in Markdown."""
    parts = [
        f"# {facts.name}",
        "A policy-value network for the board game Pylos, trained by self-play with pylos-env.",
        _origin(facts),
        _strength(facts),
        _weaknesses(facts),
        INTENDED_USE,
        _files(facts),
        _loading(facts),
    ]
    return "\n\n".join(parts) + "\n"


# Where it comes from


def _origin(facts: Facts) -> str:
    info = facts.info
    sizes = {
        "symmetric": ("width", "blocks"),
        "patterns": ("width", "blocks"),
        "resmlp": ("width", "blocks"),
        "resnet": ("channels", "blocks"),
    }.get(info.network["kind"], ())
    network = ", ".join([info.network["kind"], *(f"{name} {info.network[name]}" for name in sizes)])
    rows = {
        "rules": f"`{info.rules}`",
        "trained by": _trainer(info.config),
        "games of self-play": _number(info.counters.get("games", info.counters.get("episodes"))),
        "simulations a move in self-play": _number(_inside(info.config, "search", "simulations")),
        "learning steps": _number(info.counters.get("updates", info.step)),
        "training time": _minutes(info.counters.get("seconds")),
        "seed": _text(info.config.get("seed")),
        "commit": f"`{info.commit}`",
        "package": f"pylos-env {info.version}",
        "saved": info.timestamp,
        "network": f"{network}; {facts.parameters:,} weights",
        "value head": "win, draw, loss" if facts.wdl else "one number",
        "canonical": "yes, see below" if facts.canonical else "no",
    }
    return "## Origin\n\n" + _table(("", ""), list(rows.items()))


def _trainer(config: Mapping[str, Any]) -> str:
    if "league" in config:
        return "PPO against a league (`trainers.ppo`)"
    if "selfplay" in config:
        return "AlphaZero (`trainers.alphazero`)"
    return NOT_KNOWN


def _inside(config: Mapping[str, Any], *names: str) -> Any:
    value: Any = config
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else NOT_KNOWN


def _minutes(seconds: Any) -> str:
    return f"{seconds / 60:.1f} minutes" if isinstance(seconds, int | float) else NOT_KNOWN


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


# How strong it is


def _strength(facts: Facts) -> str:
    return "\n\n".join(["## Strength", _rating(facts), _truth(facts)])


def _rating(facts: Facts) -> str:
    entry = facts.entry
    if entry is None or entry.rating is None:
        return "Rating: not measured."
    assert entry.rating_low is not None
    assert entry.rating_high is not None
    return (
        f"Rating: **{entry.rating:.0f}**, 95 % interval {entry.rating_low:.0f} to "
        f"{entry.rating_high:.0f} ({entry.label}), {_with(entry.simulations)}. The random player "
        f"stands at 0; this one took {entry.win_rate_vs_random:.0%} of the points against it."
    )


def _with(simulations: int | None) -> str:
    if simulations is None:
        return "simulations not recorded"
    return f"with {simulations} simulations a move" if simulations else "by its raw policy"


def _truth(facts: Facts) -> str:
    if not facts.reports:
        text = f"Oracle score: {_why_unmeasured(facts)}."
        if facts.entry is not None and facts.entry.oracle_score is not None:
            text = (
                f"Oracle score: **{facts.entry.oracle_score:.1%}** of moves keep the exact value "
                f"of the position, {_with(facts.entry.simulations)}."
            )
        return text
    strongest = facts.reports[max(facts.reports)]
    heads = ("value kept", *(_with(count) for count in facts.reports))
    rows = []
    for name in strongest.rows():
        shares = [report.rows()[name] for report in facts.reports.values()]
        rows.append((name.strip(), *(_share(share) for share in shares)))
    return (
        f"Oracle score: **{strongest.preserving.rate:.1%}**, {_with(max(facts.reports))}. It is "
        "the share of moves that keep the exact value of a position (a win stays a win, a draw is "
        "not lost), of labelled positions in which a mistake is possible; 95 % intervals. The last "
        "row is the other way round: how often the value calls a won position lost or a lost one "
        "won.\n\n" + _table(heads, rows)
    )


def _why_unmeasured(facts: Facts) -> str:
    return "not measured" if facts.has_labels else "no labelled positions ship for these rules"


def _share(share: Share | None) -> str:
    if share is None or not share.total:
        return "-"
    low, high = share.interval
    return f"{share.rate:.1%} [{low:.1%}, {high:.1%}] of {share.total:,}"


# Where it errs


def _weaknesses(facts: Facts) -> str:
    lines = []
    for simulations, report in facts.reports.items():
        lines += [f"- {_capital(_with(simulations))}: {text}." for text in _errors(report)]
    if not lines:
        lines = [f"- Measured: nothing, {_why_unmeasured(facts)}."]
    lines += [
        f"- It knows the rules `{facts.info.rules}` only; under others its answers mean nothing.",
        "- Pylos has no rule against repetition: two such players may go round in circles.",
        "- Its value is an estimate in [-1, 1], not a calibrated probability.",
        "- It saw positions of self-play and of random openings; others are less well known to it.",
    ]
    return "## Known weaknesses\n\n" + "\n".join(lines)


def _errors(report: Report) -> list[str]:
    """What the oracle found, the worst phase first."""
    phases = [(share.rate, name, share) for name, share in report.phases.items() if share.total]
    found = []
    if phases:
        rate, name, share = min(phases)
        found.append(
            f"it errs most in the {name} phase, in {1 - rate:.1%} of {share.total:,} positions"
        )
    others = [f"{1 - rate:.1%} in the {name}" for rate, name, _ in sorted(phases)[1:]]
    if others:
        found[-1] += f" (against {', '.join(others)})"
    if report.won.total:
        found.append(f"it throws away {1 - report.won.rate:.1%} of won positions")
    if report.drawn.total:
        found.append(f"it loses {1 - report.drawn.rate:.1%} of drawn positions")
    if report.wrong_sign is not None and report.wrong_sign.total:
        found.append(
            f"its value has the wrong sign in {report.wrong_sign.rate:.1%} of decided positions"
        )
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


INTENDED_USE = (
    "## Intended use\n\n"
    "To play, to analyse positions, to compare with other programs, and as a start for further "
    "training. Nothing should depend on it being right: for the truth about a position ask the "
    "solved tables (`pylos-solve`), not a network."
)


# What the files are


def _files(facts: Facts) -> str:
    rows = [(f"`{WEIGHTS_FILE}`", "the weights with their origin; no code, loads without pickle")]
    if facts.difference is not None:
        rows.insert(0, (f"`{ONNX_FILE}`", "the network as a graph, for any runtime of ONNX"))
    text = "## Files\n\n" + _table(("file", "content"), rows)
    if facts.difference is not None:
        text += "\n\n" + _interface(facts)
    if facts.canonical:
        text += "\n\n" + _canonical(facts)
    return text


def _interface(facts: Facts) -> str:
    shape = ", ".join(str(size) for size in facts.info.shape)
    rows = [
        (
            "in: `observation`",
            f"float32 [batch, {shape}]",
            f"the `{facts.info.observation}` observation of `pylos_env.observation`, "
            "from the side to move",
        ),
        (
            "out: `logits`",
            "float32 [batch, 303]",
            "of the 303 actions, legal or not: mask before use",
        ),
        ("out: `value`", "float32 [batch]", "-1 (lost) to 1 (won), for the side to move"),
    ]
    if facts.wdl:
        rows.append(
            ("out: `wdl`", "float32 [batch, 3]", "chances of win, draw, loss, for the side to move")
        )
    return (
        f"The ONNX model:\n\n{_table(('name', 'type', 'content'), rows)}\n\n"
        f"Its largest difference from the network that it was made of: {facts.difference}."
    )


def _canonical(facts: Facts) -> str:
    text = (
        "The network is *canonical*: it is shown each position under one of the board's eight "
        "symmetries only, the one whose image comes first (`kernel.canonical_symmetry`). "
        "`checkpoint:` players turn the position and turn the logits back."
    )
    if facts.difference is not None:
        text += (
            f" So does the graph in `{ONNX_FILE}`: it takes the observation of the position as it "
            "is, and its logits are of the actions as they are numbered there."
        )
    if facts.info.network["kind"] == "symmetric":
        return text + " Being symmetric, it answers every image alike, but for rounding."
    return text + f" Whoever builds the network of `{WEIGHTS_FILE}` by hand has to do the same."


# How to load it


def _loading(facts: Facts) -> str:
    rules = str(facts.info.rules)
    option = f"?simulations={facts.simulations}" if facts.simulations else ""
    text = f"""\
## How to load it

```python
from pylos_env import Position, agents

player = agents.make("checkpoint:{WEIGHTS_FILE}{option}", seed=0)
position = Position.start(rules="{rules}")
print(position.move_name(player.act(position)), player.value(position))
```

This needs `pip install "pylos-env[train]"`."""
    if facts.difference is None:
        return text
    return f"""\
{text} By ONNX Runtime, without torch, for 64 games at once:

```python
import onnxruntime
from pylos_env.vector import SelfPlayVectorEnv

model = onnxruntime.InferenceSession("{ONNX_FILE}")
games = SelfPlayVectorEnv(64, rules="{rules}", observation="{facts.info.observation}")
batch = games.reset()
logits, value = model.run(["logits", "value"], {{"observation": batch.observation}})
batch = games.step((logits - 1e4 * (1 - batch.action_mask)).argmax(axis=1))
```"""
