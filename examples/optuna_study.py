"""An Optuna study over the main knobs of the trainers: which settings learn most from a budget?

    pip install "pylos-env[sweep]"
    python optuna_study.py --trainer alphazero --budget 3000 --trials 30
    python optuna_study.py --trainer ppo --budget 2000000 --trials 30

Every trial trains with settings that Optuna proposes, for the same number of self-play games
(alphazero) or environment steps (ppo). It is worth the share of moves that keep the exact value of
a position, by the oracle: no opponent and no rating is involved, and 1.0 is perfect play. Under
rules without shipped labels on the small board (`--rules "advanced levels=3"`) the game is solved
first, which takes seconds.

All trials are in `study.db` (sqlite) in the study's folder: give the same command again to go on
after Ctrl-C or a kill, or with more `--trials`. Every trial's run lies beside it.
"""

import argparse
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from hydra import compose, initialize_config_dir
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from pylos_env import oracle, testing
from pylos_env.agents import Agent
from pylos_env.oracle import Oracle, OracleError
from pylos_env.oracle.labels import Labels, has_labels, load_labels
from pylos_env.oracle.solve import Solver
from pylos_env.rules import Rules
from trainers import paths
from trainers.alphazero import cli as alphazero_cli  # noqa: F401  (registers the settings)
from trainers.alphazero.train import train as train_alphazero
from trainers.checkpoints import RunFolder
from trainers.players import NetworkPlayer, SearchPlayer, load_evaluator
from trainers.ppo import cli as ppo_cli  # noqa: F401
from trainers.ppo.train import train as train_ppo
from trainers.search import SearchConfig

Knobs = dict[str, float | int]


def alphazero_knobs(trial: optuna.Trial) -> Knobs:
    return {
        "learner.learning_rate": trial.suggest_float("learner.learning_rate", 1e-3, 2e-2, log=True),
        "learner.reuse": trial.suggest_float("learner.reuse", 1, 8, log=True),
        "search.simulations": trial.suggest_categorical("search.simulations", [8, 16, 32]),
        "targets.root_share": trial.suggest_float("targets.root_share", 0.0, 0.5),
        "selfplay.opening_share": trial.suggest_float("selfplay.opening_share", 0.2, 1.0),
        "network.blocks": trial.suggest_int("network.blocks", 1, 3),
    }


def ppo_knobs(trial: optuna.Trial) -> Knobs:
    return {
        "update.learning_rate": trial.suggest_float("update.learning_rate", 3e-4, 1e-2, log=True),
        "update.entropy_weight": trial.suggest_float("update.entropy_weight", 1e-3, 3e-2, log=True),
        "update.gae_lambda": trial.suggest_float("update.gae_lambda", 0.8, 1.0),
        "update.epochs": trial.suggest_int("update.epochs", 1, 4),
        "league.live_share": trial.suggest_float("league.live_share", 0.2, 0.9),
        "network.blocks": trial.suggest_int("network.blocks", 1, 3),
    }


@dataclass(frozen=True)
class Trainer:
    """What the study has to know of a trainer."""

    knobs: Callable[[optuna.Trial], Knobs]
    train: Callable[[Any], object]
    unit: str
    """The budget's setting."""
    counter: str
    """Its counter in a checkpoint."""
    quick: tuple[str, ...] = ()
    """Settings that leave the judging to the study."""


JUDGED_HERE = (
    "budget.minutes=0",
    "evaluation.every_steps=1000000000",
    "evaluation.games=2",
    "evaluation.opponents=[]",
    "evaluation.oracle_every=0",
)
TRAINERS = {
    "alphazero": Trainer(
        alphazero_knobs,
        train_alphazero,
        "games",
        "games",
        (*JUDGED_HERE, "gate.games=0", "evaluation.simulations=0"),
    ),
    "ppo": Trainer(ppo_knobs, train_ppo, "steps", "steps", JUDGED_HERE),
}


@dataclass(frozen=True)
class Result:
    """The best trial, and how many are complete."""

    share: float
    knobs: Knobs
    trials: int


def labels_of(rules: Rules, every: int, folder: Path) -> Labels:
    """Positions with their exact values: the shipped ones, or those of a board solved here."""
    if has_labels(rules):
        return load_labels(rules).every(every)
    if rules.levels == 4:
        raise SystemExit(f"no labelled positions ship for the rules '{rules}'")
    try:
        truth = Oracle.open(rules, folder)
    except OracleError:
        Solver(rules, folder=folder, report=lambda text: None).solve()
        truth = Oracle.open(rules, folder)
    found: set[int] = set()
    for number in range(20_000 // every):
        game = list(testing.random_game(rules, number).positions())[:-1]
        found |= {p.packed for p in game[number % 7 :: 7] if not p.take_backs_left}
    return truth.label(np.array(sorted(found), dtype=np.int64))


def run_trial(trainer: str, overrides: Sequence[str], folder: Path, budget: int) -> None:
    """Train as the command line would."""
    with initialize_config_dir(str(paths.configs() / trainer), version_base="1.3"):
        config: Any = OmegaConf.to_object(compose("config", overrides=list(overrides)))
    config.run = str(folder)
    kind = TRAINERS[trainer]
    kind.train(config)
    counters = RunFolder(folder, writable=False).load(with_state=False).info.counters
    if counters[kind.counter] < budget:  # Ctrl-C ends a run in order, and here the study with it
        raise KeyboardInterrupt


def player_of(folder: Path, simulations: int) -> Agent:
    checkpoint = RunFolder(folder, writable=False).load(with_state=False)
    evaluator = load_evaluator(checkpoint, "cpu")
    if simulations == 0:
        return NetworkPlayer(evaluator, seed=0)
    return SearchPlayer(evaluator, SearchConfig(simulations=simulations, gumbel_scale=0.0), seed=0)


def plot(study: optuna.Study, path: Path) -> None:
    """The course of the study, and what it found along each knob."""
    done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    shares = [float(trial.value or 0) for trial in done]
    names = sorted(done[0].params)
    figure = Figure(figsize=(9, 2.2 + 2.2 * ((len(names) + 2) // 3)), layout="constrained")
    grid = figure.add_gridspec(1 + (len(names) + 2) // 3, 3)
    course = figure.add_subplot(grid[0, :])
    course.plot([trial.number for trial in done], shares, "o", label="trial")
    course.step(
        [trial.number for trial in done],
        np.maximum.accumulate(shares),
        where="post",
        label="best so far",
    )
    course.set(xlabel="trial", ylabel="value kept")
    course.legend()
    for index, name in enumerate(names):
        axes = figure.add_subplot(grid[1 + index // 3, index % 3], sharey=course)
        axes.plot([trial.params[name] for trial in done], shares, "o")
        if getattr(done[0].distributions[name], "log", False):
            axes.set_xscale("log")
        axes.set_xlabel(name)
    figure.savefig(path, dpi=120)


def train(
    trainer: str = "alphazero",
    trials: int = 20,
    budget: int = 3000,
    rules: str = "advanced",
    simulations: int = 0,
    every: int = 10,
    folder: str = "runs/optuna",
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Result:
    """Go on with the study in `folder` until it has so many complete trials."""
    kind, place = TRAINERS[trainer], Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    # what makes shares comparable is part of the study's name: other conditions, another study
    conditions = (trainer, Rules.of(rules), f"{budget} {kind.unit}", f"{simulations} simulations")
    study = optuna.create_study(
        study_name=", ".join(str(part) for part in (*conditions, *sorted(overrides))),
        storage=f"sqlite:///{place / 'study.db'}",
        sampler=optuna.samplers.TPESampler(seed=seed),
        direction="maximize",
        load_if_exists=True,
    )
    mark = f"{zlib.crc32(study.study_name.encode()):08x}"  # two studies may share the folder
    labels = labels_of(Rules.of(rules), every, place)

    def objective(trial: optuna.Trial) -> float:
        proposed = [f"{name}={value}" for name, value in kind.knobs(trial).items()]
        fixed = [f"rules='{rules}'", f"seed={seed}", f"budget.{kind.unit}={budget}", "console=off"]
        run = place / f"{trainer}_{mark}_{trial.number}"
        run_trial(trainer, [*kind.quick, *fixed, *overrides, *proposed], run, budget)
        report = oracle.benchmark(player_of(run, simulations), labels=labels)
        print(f"trial {trial.number}: {report.preserving}; {' '.join(proposed)}", flush=True)
        return report.preserving.rate

    def complete() -> int:
        return len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    while complete() < trials:  # others may work on the same study
        study.optimize(objective, n_trials=1)
    plot(study, place / f"{trainer}.png")
    return Result(study.best_value, dict(study.best_params), complete())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Search the trainers' settings with Optuna.")
    parser.add_argument("--trainer", choices=list(TRAINERS), default="alphazero")
    parser.add_argument("--trials", type=int, default=20, help="complete trials to have in the end")
    parser.add_argument(
        "--budget",
        type=int,
        default=3000,
        help="of a trial: games of self-play (alphazero) or environment steps (ppo)",
    )
    parser.add_argument("--rules", default="advanced", help='a rule set, or "advanced levels=3"')
    parser.add_argument(
        "--simulations", type=int, default=0, help="of the player that is judged; 0: raw policy"
    )
    parser.add_argument("--every", type=int, default=10, help="each so-many-th labelled position")
    parser.add_argument("--folder", default="runs/optuna", help="of the study and its runs")
    parser.add_argument("--seed", type=int, default=0, help="of the proposals and of every run")
    parser.add_argument(
        "--overrides", nargs="*", default=(), help="settings of all trials: network.width=64 ..."
    )
    options = parser.parse_args()
    result = train(**vars(options))
    print(f"best of {result.trials} trials: {result.share:.1%} of moves keep the value")
    words = " ".join(f"{name}={value}" for name, value in result.knobs.items())
    print(f"train on with: python -m trainers.{options.trainer} {words}")
