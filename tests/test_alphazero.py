"""AlphaZero's runs and configs: ladder, gate, resuming, budgets, refusals."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pylos_env import PylosError, Rules
from tests.alphazero_tools import RULES, composed, last_weights, run_quietly, tiny
from trainers import command, paths
from trainers.alphazero.beginning import first_network
from trainers.alphazero.cli import AlphaZeroConfig  # from here, since that registers it
from trainers.alphazero.config import BudgetConfig, check
from trainers.alphazero.evaluate import Judge
from trainers.alphazero.targets import Samples
from trainers.alphazero.train import Trainer, train
from trainers.alphazero.workers import Processes
from trainers.arena import MatchResult
from trainers.checkpoints import CheckpointError, RunFolder, load_weights
from trainers.metrics import TAGS, MemorySink, Message, Metrics
from trainers.network import NetworkConfig, build
from trainers.players import load_evaluator
from trainers.settings import ConfigError

# A run


def test_a_run_leaves_a_ladder(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    config.evaluation.early_steps = [1]
    config.evaluation.opponents = ["rule_based", "alphabeta:1"]
    events = run_quietly(config)
    tags = {tag for event in events for tag in event.values}
    documented = {name for name, tag in TAGS.items() if tag.kind == "scalar"}
    of_others = {name for name in documented if name.startswith(("league/", "env/", "cluster/"))}
    of_ppo = {f"train/{name}" for name in ("clip_fraction", "approx_kl", "explained_variance")}
    of_ppo |= {"eval/avg_episode_reward", "perf/steps_per_second"}
    assert tags == documented - of_others - of_ppo
    run = RunFolder(tmp_path, writable=False)
    manifest = run.manifest()
    assert len(manifest.checkpoints) >= 2
    assert manifest.checkpoints[-1].step == 40
    assert manifest.checkpoints[0].step < config.evaluation.every_steps
    assert run.best() is not None
    history = run.metadata().elo_history
    assert len(history) == len(manifest.checkpoints)
    player = load_evaluator(load_weights(run.latest() or ""))
    assert player.rules == RULES


def test_a_run_leaves_the_callers_arithmetic_alone(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    assert float(torch.tensor(1e-40) * 1) > 0


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        run_quietly(tiny(tmp_path / name, seed=seed))
    one, two, three = (last_weights(tmp_path / name) for name in ("one", "two", "three"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], three[name]) for name in one)


def test_processes_play_the_games_of_threads(tmp_path: Path) -> None:
    threads, processes = tiny(tmp_path / "threads"), tiny(tmp_path / "processes")
    processes.selfplay.backend = "processes"
    run_quietly(threads)
    run_quietly(processes)
    one, two = last_weights(tmp_path / "threads"), last_weights(tmp_path / "processes")
    assert all(torch.equal(one[name], two[name]) for name in one)
    games = [
        RunFolder(tmp_path / name, writable=False).load("latest").state["groups"]  # type: ignore[index]
        for name in ("threads", "processes")
    ]
    assert str(games[0]) == str(games[1])


def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    workers = Processes(config)
    with closing(workers):
        workers._processes[1].kill()
        workers._processes[1].join()
        with pytest.raises(PylosError, match="self-play process 1 ended by itself"):
            workers.begin(build(config.network, RULES))


@pytest.mark.parametrize(
    ("after", "inner_visits", "learnt", "saved"),
    [(1, 0, False, 0), (7, 0, True, 0), (11, 0, True, 1), (7, 2, True, 1)],
)
def test_an_interrupted_run_goes_on_bit_for_bit(
    tmp_path: Path, after: int, inner_visits: int, learnt: bool, saved: int
) -> None:
    """Stopped before learning begins, before the first checkpoint, and after it; and one that
    learns from positions inside its searches too.
    """
    config = tiny(tmp_path / "whole")
    config.selfplay.inner_visits = inner_visits
    run_quietly(config)
    config = dataclasses.replace(config, run=str(tmp_path / "parts"))
    with RunFolder(tmp_path / "parts") as folder:
        trainer = Trainer(config, folder)
        cycles = itertools.count(1)
        cycle = trainer.cycle

        def counted(*args: object) -> None:
            cycle(*args)  # type: ignore[arg-type]
            if next(cycles) == after:
                trainer.stopped.set()

        trainer.cycle = counted  # type: ignore[method-assign]
        trainer.run(Metrics([MemorySink()]))
        assert trainer.learner.steps < 40
        assert (trainer.learner.steps > 0) == learnt
        assert len(folder.manifest().checkpoints) == saved
    run_quietly(dataclasses.replace(config, resume=str(tmp_path / "parts"), run=""))
    whole, parts = last_weights(tmp_path / "whole"), last_weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    states = [
        RunFolder(tmp_path / name, writable=False).load("latest").state
        for name in ("whole", "parts")
    ]
    assert states[0] is not None
    assert states[1] is not None
    for state in states:
        state.pop("seconds")  # type: ignore[union-attr]
    assert str(states[0]["groups"]) == str(states[1]["groups"])
    for name in Samples._fields:
        assert torch.equal(*(state["replay"][name] for state in states)), name  # type: ignore[index]
    assert states[0]["judge"]["results"] == states[1]["judge"]["results"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A run of its own, the first of its group of processes."""
    command = [sys.executable, "-m", "trainers.alphazero", "experiment=smoke", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("send", "number", "backend"),
    [
        (os.kill, signal.SIGINT, "threads"),
        (os.killpg, signal.SIGINT, "processes"),  # as a terminal does
        (os.killpg, signal.SIGTERM, "processes"),  # as whoever stops a service does
    ],
)
def test_a_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, send: Callable[[int, int], None], number: signal.Signals, backend: str
) -> None:
    words = ("run=first", "budget.steps=100000", "console=plain", f"selfplay.backend={backend}")
    child = start(tmp_path, *words)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("first/checkpoints/*.safetensors")):
        assert time.monotonic() < deadline
        assert child.poll() is None, child.communicate()
        time.sleep(0.2)
    send(child.pid, number)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert "resume=" in out + err
    assert "stopping and saving" in err
    step = RunFolder(tmp_path / "first", writable=False).load("latest").info.step
    resumed = subprocess.run(
        [
            sys.executable,
            "-m",
            "trainers.alphazero",
            "resume=first",
            f"budget.steps={step + 5}",
            "console=plain",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert RunFolder(tmp_path / "first", writable=False).load("latest").info.step == step + 5


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize(("name", "count"), [("games", 16), ("games", 4), ("groups", 1)])
def test_a_run_goes_on_with_as_many_games_as_it_had(
    tmp_path: Path, backend: str, name: str, count: int
) -> None:
    config = tiny(tmp_path, budget=BudgetConfig(minutes=0, steps=1))
    run_quietly(config)
    other = dataclasses.replace(config.selfplay, backend=backend, **{name: count})  # type: ignore[arg-type]
    with pytest.raises(PylosError, match=rf"selfplay\.{name}: the run has \d, got {count}"):
        train(dataclasses.replace(config, run="", resume=str(tmp_path), selfplay=other))


def test_a_budget_of_games_or_minutes_ends_a_run(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path / "games", budget=BudgetConfig(minutes=0, games=60)))
    run_quietly(tiny(tmp_path / "minutes", budget=BudgetConfig(minutes=0.02)))
    counters = [
        RunFolder(tmp_path / name, writable=False).load("latest").info.counters
        for name in ("games", "minutes")
    ]
    assert 60 <= counters[0]["games"] < 60 + 2 * 8 * 6  # at most a cycle more
    assert counters[1]["seconds"] >= 1.2


def test_a_budget_too_small_to_learn_is_told_and_can_go_on(tmp_path: Path) -> None:
    sink = MemorySink()
    config = tiny(tmp_path, budget=BudgetConfig(minutes=0, games=1))
    config.replay.start = 1000
    train(config, Metrics([sink]))
    texts = [event.text for event in sink.events if isinstance(event, Message)]
    assert any("nothing was learnt" in text and "replay.start" in text for text in texts)
    assert any(re.search(r"resume=.* budget\.games=\d+", text) for text in texts)
    more = dataclasses.replace(config, run="", resume=str(tmp_path), budget=BudgetConfig(0, 0, 3))
    run_quietly(more)
    assert RunFolder(tmp_path, writable=False).load("latest").info.step == 3


@pytest.mark.parametrize(("score", "passes"), [(0.45, False), (0.5, True)])
def test_a_candidate_has_to_pass_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: float, passes: bool
) -> None:
    """The first checkpoint is the best there is; one that scores too little does not replace it."""
    match = MatchResult("candidate", "best", (), 0)
    monkeypatch.setattr(MatchResult, "score", score)
    monkeypatch.setattr(Judge, "gate", lambda *args: match)
    events = run_quietly(tiny(tmp_path))
    asked = [event.values for event in events if "gate/score" in event.values]
    assert asked
    assert all(values["gate/accepted"] == passes for values in asked)
    run = RunFolder(tmp_path, writable=False)
    steps = [entry.step for entry in run.manifest().checkpoints]
    best = run.best()
    assert best is not None
    assert load_weights(best).info.step == (steps[-1] if passes else steps[0])


def test_a_run_of_other_rules_is_not_resumed(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    config = tiny(tmp_path, rules="mature", run="", resume=str(tmp_path))
    with pytest.raises(CheckpointError, match=r"'advanced'.*'mature'"):
        train(config)


def test_a_run_with_a_network_of_another_make_is_not_resumed(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    config = tiny(tmp_path, run="", resume=str(tmp_path), network=NetworkConfig(width=24, blocks=1))
    with pytest.raises(PylosError, match=r"saved with another network, .*width=16.*width=24"):
        train(config)


def test_a_network_grows_where_a_run_goes_on(tmp_path: Path) -> None:
    """More blocks: the same answers at first, and then they learn too."""
    symmetric = NetworkConfig("symmetric", width=16, blocks=1)
    run_quietly(tiny(tmp_path / "first", network=symmetric))
    grown = dataclasses.replace(symmetric, blocks=3)
    folder = RunFolder(tmp_path / "first", writable=False)
    before = folder.load("latest").weights
    config = tiny(tmp_path / "second", initial=str(tmp_path / "first" / "latest"), network=grown)
    rng, small, large = np.random.default_rng(0), build(symmetric, RULES), first_network(config)
    small.load_state_dict(before)
    seen = torch.from_numpy(rng.integers(-1, 2, (5, 33)).astype(np.float32))
    with torch.inference_mode():
        assert torch.equal(small(seen).logits, large(seen).logits)
        assert torch.equal(small(seen).value, large(seen).value)

    budget = BudgetConfig(minutes=0, steps=60)
    resume = str(tmp_path / "first")
    run_quietly(tiny(tmp_path, run="", resume=resume, network=grown, budget=budget))
    after = folder.load("latest")
    assert after.info.step == 60
    assert after.info.network["blocks"] == 3
    assert after.weights["body.3.layers.last.pairs"].abs().sum() > 0
    with pytest.raises(PylosError, match=r"saved with another network, .*blocks=3.*blocks=1"):
        train(tiny(tmp_path, run="", resume=resume, network=symmetric, budget=budget))


def test_a_run_that_has_spent_its_budget_says_so(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    sink = MemorySink()
    budget = BudgetConfig(minutes=0, steps=20)
    train(tiny(tmp_path, run="", resume=str(tmp_path), budget=budget), Metrics([sink]))
    messages = [event.text for event in sink.events if isinstance(event, Message)]
    assert any("the budget is spent" in text and "40 steps" in text for text in messages)
    assert RunFolder(tmp_path, writable=False).load("latest").info.step == 40


def test_a_run_begins_with_the_weights_of_another(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path / "first"))
    weights = RunFolder(tmp_path / "first", writable=False).load("latest").weights
    config = tiny(tmp_path / "second", initial=str(tmp_path / "first" / "latest"))
    begun = first_network(config).state_dict()
    assert begun.keys() == weights.keys()
    assert all(torch.equal(begun[name], weights[name]) for name in begun)
    fresh = first_network(tiny(tmp_path / "second")).state_dict()
    assert any(not torch.equal(begun[name], fresh[name]) for name in begun)
    run_quietly(config)


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path / "first"))
    initial = str(tmp_path / "first" / "latest")
    wider = NetworkConfig(width=24, blocks=1)
    for config, message in (
        (tiny(tmp_path / "second", initial=initial, network=wider), "another network"),
        (tiny(tmp_path / "second", initial=initial, rules="mature"), "'advanced'.*'mature'"),
        (tiny(tmp_path / "second", initial=str(tmp_path / "none")), "no checkpoint"),
    ):
        with pytest.raises(ConfigError, match=f"^initial: .*{message}"):
            train(config)


# Configs


EXPERIMENTS = sorted(p.stem for p in (paths.configs() / "alphazero/experiment").glob("*.yaml"))
NETWORKS = sorted(p.stem for p in (paths.configs() / "alphazero/network").glob("*.yaml"))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_can_run(experiment: str) -> None:
    words = ["device=cpu"] if experiment == "gpu" else []
    check(composed(f"experiment={experiment}", *words))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_composes(name: str) -> None:
    config = composed(f"network={name}")
    assert config.network.kind == name
    build(config.network, RULES)


def test_the_defaults_are_the_dataclass() -> None:
    config = composed()
    assert dataclasses.asdict(config) == dataclasses.asdict(AlphaZeroConfig())


def test_the_classic_experiment_is_the_customers() -> None:
    config = composed("experiment=classic")
    assert (config.budget.games, config.budget.minutes) == (2000, 0)
    assert (config.search.root, config.search.simulations) == ("puct", 64)
    assert (config.search.c_puct, config.search.dirichlet_alpha) == (1.5, 0.3)
    assert config.selfplay.temperature_plies == 15
    assert config.network.kind == "mlp"
    assert (config.learner.batch, config.replay.capacity) == (128, 512)
    assert (config.targets.sharpen, config.replay.easy_share) == (0, 1)
    assert (config.learner.learning_rate, config.learner.weight_decay) == (1e-3, 1e-4)
    assert Rules.of(config.rules).take_back == "greedy"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("search.simulations=0", "search.simulations"),
        ("search.temperature=-1", "search.temperature"),
        ("rules=chess", "rules: unknown rules 'chess'"),
        ("network.width=0", "network.width"),
        ("learner.reuse=-1", "learner.reuse"),
        ("learner.batch=0", "learner.batch"),
        ("learner.schedule=step", "learner.schedule"),
        ("selfplay.quick_simulations=65", "selfplay.quick_simulations"),
        ("selfplay.full_share=1.5", "selfplay.full_share"),
        ("targets.sharpen=3", "targets.sharpen"),
        ("selfplay.backend=cluster", "selfplay.backend"),
        ("evaluation.games=7", "evaluation.games"),
        ("evaluation.early_steps=[0]", "evaluation.early_steps"),
        ("budget.minutes=0", "budget"),
        ("budget.minutes=-3", "budget.minutes"),
        ("device=tpu", "device"),
        ("replay.start=2000000", "replay.start"),
        ("selfplay.opening_skew=0", "selfplay.opening_skew"),
        ("search.prior_temperature=0", "search.prior_temperature"),
        ("search.prior_temperature=1e-45", "search.prior_temperature"),
        ("search.c_puct=inf", "search.c_puct"),
        ("search.gumbel_scale=nan", "search.gumbel_scale"),
        ("search.simulations=1000000000", "search.simulations"),
        ("search.max_considered=304", "search.max_considered"),
        ("selfplay.full_share=0", "selfplay.full_share"),
        ("learner.reuse=0", "learner.reuse"),
        ("learner.clip=inf", "learner.clip"),
        ("budget.minutes=inf", "budget.minutes"),
        ("evaluation.every_minutes=inf", "evaluation.every_minutes"),
        ("evaluation.opponents=[chess]", "evaluation.opponents"),
        ("evaluation.opponents=['checkpoint:nowhere']", "evaluation.opponents"),
    ],
)
def test_impossible_configs_are_refused_by_name(override: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        check(composed(override))
    assert message.partition(":")[0] in str(caught.value)


def test_the_command_refuses_before_work_begins(tmp_path: Path) -> None:
    for word, message in (
        ("search.simulation=3", "search.simulation: there is no such setting, perhaps search.sim"),
        ("+serch.simulations=3", "serch.simulations: there is no such setting"),
        ("search.simulations=0", "simulations"),
        ("rules=chess", "unknown rules"),
        ("initial=nobody", "nobody"),
        ("resume=nowhere", "nowhere"),
    ):
        command = [sys.executable, "-m", "trainers.alphazero", word, "budget.steps=1"]
        child = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        out, err = child.stdout, child.stderr
        assert child.returncode != 0
        assert message in out + err
        assert "Traceback" not in err
        assert not list(tmp_path.rglob("runs/alphazero/*"))
    assert not (tmp_path / "nowhere").exists()


def test_a_refused_run_keeps_what_lay_in_the_folder_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    command = [sys.executable, "-m", "trainers.alphazero", "rules=chess", f"run={tmp_path}"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    overrides = [f"resume={tmp_path}", "budget.steps=99", "console=off"]
    with initialize_config_dir(str(paths.configs() / "alphazero"), version_base="1.3"):
        given = compose("config", overrides)
    config = OmegaConf.to_object(command.resumed(AlphaZeroConfig, given, overrides))
    assert isinstance(config, AlphaZeroConfig)
    assert config.network.width == 16
    assert config.budget.steps == 99
    assert config.console == "off"  # a word, though YAML takes it for false
