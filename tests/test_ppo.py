"""PPO: advantages, masks, losses, the update, configs, resuming, and that it learns."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pylos_env import Position, Rules, agents, kernel
from pylos_env.errors import PylosError
from trainers import command, paths
from trainers.arena import play_match
from trainers.checkpoints import EPISODES, CheckpointError, RunFolder
from trainers.evaluator import Evaluator
from trainers.metrics import MemorySink, Message, Metrics, Scalars
from trainers.network import NetworkConfig, build, mixed_precision
from trainers.players import NetworkPlayer
from trainers.ppo.cli import PPOConfig
from trainers.ppo.config import (
    BudgetConfig,
    EvaluationConfig,
    LeagueConfig,
    RolloutConfig,
    UpdateConfig,
    check,
)
from trainers.ppo.games import GameGroup, draw_actions
from trainers.ppo.league import LIVE, RULE_BASED, Lineup
from trainers.ppo.ppo import (
    UNTURNED,
    Learner,
    Rollout,
    Samples,
    advantages_of,
    ask,
    collect,
    log_policy_of,
    losses_of,
    samples_of,
)
from trainers.ppo.train import Trainer, train
from trainers.running import heeding_signals
from trainers.settings import ConfigError

RULES = Rules.of("advanced")
CPU = torch.device("cpu")
GAMMA, LAMBDA = 0.97, 0.9
SNAPSHOT = 2


def lineup(**shares: float) -> Lineup:
    numbers = {"live": LIVE, "rule_based": RULE_BASED, "snapshot": SNAPSHOT}
    return Lineup(
        np.array([numbers[name] for name in shares]), np.array(list(shares.values()), dtype=float)
    )


def network(seed: int = 0, canonical: bool = False) -> Evaluator:
    torch.manual_seed(seed)
    config = NetworkConfig(width=16, blocks=1, canonical=canonical)
    return Evaluator(build(config, RULES), RULES, CPU)


def played(
    opponents: Lineup, canonical: bool = False, **settings: object
) -> tuple[Rollout, GameGroup]:
    """A rollout of a fresh network against some opponents."""
    config = RolloutConfig(games=24, plies=90)
    config = dataclasses.replace(config, **settings)  # type: ignore[arg-type]
    games = GameGroup(RULES, config, 5, 0, 1, opponents)
    live = network(canonical=canonical)
    rollout = collect(games, live, {SNAPSHOT: network(1)}, opponents, config, GAMMA)
    return rollout, games


MIXED = lineup(live=0.4, rule_based=0.3, snapshot=0.3)
WHOLE = {"symmetries": False, "max_plies": 60}


@pytest.fixture(scope="module")
def mixed() -> Rollout:
    """Positions as they were, some games broken off, three kinds of opponents."""
    return played(MIXED, **WHOLE)[0]


def learning_samples(size: int = 64, canonical: bool = False) -> Samples:
    samples = samples_of([played(MIXED, canonical)[0]], GAMMA, LAMBDA)
    return Samples(*(column[:size] for column in samples))


# Play


def test_a_rollout_is_made_of_games(mixed: Rollout) -> None:
    """Rewards and signs follow from who moved, and games that end make room for others."""
    plies, games = mixed.view.shape
    ends = stays = 0
    for game in range(games):
        for ply in range(plies - 1):
            position = Position.unchecked(int(mixed.view[ply, game]), RULES)
            after = position.play(int(mixed.action[ply, game]))
            sign = mixed.sign[ply, game]
            if sign == 0:
                ends += 1
                if not after.legal_actions():
                    assert mixed.reward[ply, game] == (1 if after.side != position.side else -1)
            else:
                assert after.packed == mixed.view[ply + 1, game]
                assert sign == (1 if after.side == position.side else -1)
                assert mixed.reward[ply, game] == 0
                stays += sign == 1
    assert ends > games
    assert stays > 20, "no game had take-backs"


def test_a_game_that_is_broken_off_is_worth_its_last_position() -> None:
    rollout, games = played(lineup(live=1), symmetries=False, max_plies=5, opening_share=0, plies=5)
    assert (rollout.sign[4] == 0).all()
    after = [
        Position.unchecked(int(view), RULES).play(int(action))
        for view, action in zip(rollout.view[4], rollout.action[4], strict=True)
    ]
    _, values = network()(np.array([position.packed for position in after]))
    assert all(position.side == 1 for position in after), "white played the fifth ply"
    assert rollout.reward[4] == pytest.approx(-GAMMA * values, rel=1e-5)
    assert all(result.score == 0.5 for result in games.results)


def test_turned_boards_play_the_same_game() -> None:
    rng = np.random.default_rng(0)
    rollout, _ = played(lineup(live=1), symmetries=False)
    for view in rng.choice(rollout.view.ravel(), 40).tolist():
        for turn in range(8):
            turned = kernel.symmetric(view, turn)
            for action in kernel.legal_actions(turned, RULES.code).tolist():
                plain = kernel.play(view, RULES.code, int(UNTURNED[turn, action]))
                assert kernel.symmetric(plain, turn) == kernel.play(turned, RULES.code, action)


def test_a_canonical_network_looks_at_every_board_in_one_way() -> None:
    rollout, games = played(lineup(live=1), canonical=True)
    for view in rollout.view[::7].ravel().tolist():
        assert kernel.canonical_symmetry(view) == 0, "no image of it comes first"
    values = network(canonical=True)(games.env.packed)[1]
    assert rollout.last_value == pytest.approx(values)


def test_openings_seats_and_opponents_follow_the_settings() -> None:
    config = RolloutConfig(games=2000, opening_share=0.5, opening_plies=12)
    games = GameGroup(RULES, config, 1, 0, 1, lineup(live=0.25, rule_based=0.75))
    begun = games.env.packed != kernel.START
    assert begun.mean() == pytest.approx(0.5 * 12 / 13, abs=0.05)
    assert (games.opponents == LIVE).mean() == pytest.approx(0.25, abs=0.04)
    against = games.opponents == RULE_BASED
    assert games.seats[against].mean() == pytest.approx(0.5, abs=0.05)
    assert not any(kernel.take_backs_left(packed) for packed in games.env.packed.tolist())


def test_a_game_plays_alike_in_any_group() -> None:
    many = played(lineup(live=0.5, rule_based=0.5), games=24, plies=30)[0]
    few = played(lineup(live=0.5, rule_based=0.5), games=6, plies=30)[0]
    ended = (few.sign == 0).any(axis=0) | (many.sign[:, :6] == 0).any(axis=0)
    same = np.flatnonzero(~ended)  # later games have other numbers
    assert len(same) > 0
    assert np.array_equal(few.view[:, same], many.view[:, same])


# Advantages


def plain_advantages(rollout: Rollout, game: int) -> dict[int, float]:
    """From the learner's plies alone: what comes between two of them is a sum of rewards.

    Who moves next is read off the positions.
    """
    plies = len(rollout.view)
    sides = [int(view) >> kernel.SIDE_SHIFT & 1 for view in rollout.view[:, game]]
    advantages: dict[int, float] = {}
    for ply in reversed(range(plies)):
        if not rollout.learns[ply, game]:
            continue
        total, factor, step = 0.0, 1.0, ply
        while True:
            total += factor * float(rollout.reward[step, game])
            if rollout.sign[step, game] == 0:
                following, trace = 0.0, 0.0
                break
            if step + 1 == plies:  # the side to move there is known by the sign alone
                factor *= GAMMA * float(rollout.sign[step, game])
                following, trace = float(rollout.last_value[game]), 0.0
                break
            factor *= GAMMA * (1 if sides[step + 1] == sides[step] else -1)
            step += 1
            if rollout.learns[step, game]:
                following, trace = float(rollout.value[step, game]), advantages[step]
                break
        delta = total + factor * following - float(rollout.value[ply, game])
        advantages[ply] = delta + factor * LAMBDA * trace
    return advantages


def test_advantages_equal_a_plain_loop_on_games_with_take_backs(mixed: Rollout) -> None:
    found = advantages_of(mixed, GAMMA, LAMBDA)
    assert (mixed.sign == 1).sum() > 20
    for game in range(mixed.view.shape[1]):
        for ply, advantage in plain_advantages(mixed, game).items():
            assert found[ply, game] == pytest.approx(advantage, abs=1e-5)
    assert (found[~mixed.learns] == 0).all()


def test_with_lambda_one_the_advantage_is_the_outcome() -> None:
    """Without discount: what the mover won or lost in the end, less what was expected."""
    rollout, _ = played(lineup(live=0.5, rule_based=0.5), symmetries=False, plies=150)
    found = advantages_of(rollout, 1.0, 1.0)
    sides = rollout.view >> kernel.SIDE_SHIFT & 1
    checked = 0
    for game in range(rollout.view.shape[1]):
        outcome = None  # side that moved last and what it got
        for ply in reversed(range(len(rollout.view))):
            if rollout.sign[ply, game] == 0:
                outcome = sides[ply, game], rollout.reward[ply, game]
            if outcome is not None and rollout.learns[ply, game]:
                won = outcome[1] if sides[ply, game] == outcome[0] else -outcome[1]
                expected = won - rollout.value[ply, game]
                assert found[ply, game] == pytest.approx(expected, abs=1e-5)
                checked += 1
    assert checked > 500


def test_opponents_plies_carry_no_gradient(mixed: Rollout) -> None:
    """Only the learner's plies become samples, whatever stands at the others."""
    spoilt = mixed._replace(
        value=np.where(mixed.learns, mixed.value, np.nan).astype(np.float32),
        log_prob=np.where(mixed.learns, mixed.log_prob, np.nan).astype(np.float32),
    )
    samples = samples_of([mixed], GAMMA, LAMBDA)
    for one, other in zip(samples, samples_of([spoilt], GAMMA, LAMBDA), strict=True):
        assert np.array_equal(one, other)
    assert len(samples.view) == mixed.learns.sum() < mixed.learns.size
    assert samples.view.tolist() == mixed.view[mixed.learns].tolist()


def test_in_a_game_against_another_only_one_seat_learns() -> None:
    rollout, _ = played(lineup(snapshot=1), symmetries=False, max_plies=80)
    sides = rollout.view >> kernel.SIDE_SHIFT & 1
    for game in range(rollout.view.shape[1]):
        plies = int(np.argmax(rollout.sign[:, game] == 0)) + 1
        learns = rollout.learns[:plies, game]
        assert len(set(sides[:plies, game][learns].tolist())) == 1
        assert len(set(sides[:plies, game][~learns].tolist())) == 1
    both, _ = played(lineup(live=1))
    assert both.learns.all()


# Masks and losses


def test_actions_are_drawn_from_the_masked_policy() -> None:
    position = Position.start().play(5)
    logits = np.random.default_rng(0).normal(size=(1, 303)).astype(np.float32) * 2
    legal = position.legal_actions()
    shares = np.exp(logits[0, legal].astype(np.float64))
    shares /= shares.sum()
    count = 20_000
    keys = np.array([kernel.draw(3, row) for row in range(count)])
    views = np.full(count, position.packed)
    actions, log_probs = draw_actions(views, RULES.code, np.repeat(logits, count, 0), keys)
    frequencies = np.array([(actions == action).mean() for action in legal])
    assert frequencies == pytest.approx(shares, abs=0.015)
    expected = {action: math.log(share) for action, share in zip(legal, shares, strict=True)}
    assert log_probs == pytest.approx([expected[action] for action in actions.tolist()], rel=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("canonical", [False, True])
def test_a_rollouts_policy_is_that_of_its_update(canonical: bool, precision: str) -> None:
    """In any precision, turned boards included: before the first step every ratio is 1."""
    with mixed_precision(CPU, precision):
        samples = learning_samples(2000, canonical)
        learner = Learner(network(canonical=canonical).network, UpdateConfig(), RULES, CPU)
        batch = learner.batch(samples, np.arange(len(samples.view)))
        output = learner.network(batch.observation)
    assert (output.logits.dtype == torch.bfloat16) == (precision == "bfloat16")
    chosen = log_policy_of(output, batch).gather(1, batch.chosen[:, None]).squeeze(1)
    assert torch.allclose(chosen, batch.log_prob, atol=1e-5)
    losses = losses_of(output, batch, 0.2)
    assert float(losses.approx_kl) == pytest.approx(0, abs=1e-6)
    assert float(losses.clip_fraction) == 0


def test_how_many_positions_are_asked_about_changes_no_answer() -> None:
    views = learning_samples(70).view
    with mixed_precision(CPU, "bfloat16"):
        logits, values = ask(network(), views)
        assert (logits.shape, values.shape) == ((70, 303), (70,))
        for count in (1, 63, 64, 65):
            fewer, worth = ask(network(), views[:count])
            assert np.array_equal(fewer, logits[:count])
            assert np.array_equal(worth, values[:count])


def direct_losses(
    logits: torch.Tensor, values: torch.Tensor, samples: Samples, clip: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample by sample over the legal actions of each position."""
    policy, value, entropy = [], [], []
    for row in range(len(samples.view)):
        legal = Position.unchecked(int(samples.view[row]), RULES).legal_actions()
        log_shares = logits[row, legal] - logits[row, legal].logsumexp(0)
        log_prob = log_shares[legal.index(int(samples.action[row]))]
        ratio = (log_prob - float(samples.log_prob[row])).exp()
        advantage = float(samples.advantage[row])
        policy.append(
            -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        )
        value.append(0.5 * (values[row] - float(samples.target[row])) ** 2)
        entropy.append(-(log_shares.exp() * log_shares).sum())
    return tuple(torch.stack(part).mean() for part in (policy, value, entropy))  # type: ignore[return-value]


def moved_samples() -> Samples:
    """Samples whose policy has moved on: ratios inside and outside the clip range."""
    samples = learning_samples()
    shift = np.random.default_rng(2).normal(size=len(samples.view)).astype(np.float32) * 0.3
    return samples._replace(log_prob=samples.log_prob + shift)


def test_losses_equal_a_direct_computation() -> None:
    samples = moved_samples()
    learner = Learner(network(seed=3).network, UpdateConfig(), RULES, CPU)
    batch = learner.batch(samples, np.arange(len(samples.view)))
    with torch.no_grad():
        output = learner.network(batch.observation)
        losses = losses_of(output, batch, 0.2)
        direct = direct_losses(output.logits.double(), output.value.double(), samples, 0.2)
        log_policy = log_policy_of(output, batch)
    assert 0.1 < float(losses.clip_fraction) < 0.9
    for found, expected in zip(losses[:3], direct, strict=True):
        assert float(found) == pytest.approx(float(expected), rel=1e-4)
    for row, view in enumerate(samples.view.tolist()):
        legal = Position.unchecked(view, RULES).legal_actions()
        assert batch.legal[row, : len(legal)].tolist() == legal
        assert log_policy[row].exp()[len(legal) :].sum() == 0, "illegal actions have no share"


def test_an_update_equals_a_hand_written_one() -> None:
    """Advantages normalised, one loss, the gradient clipped, one step of Adam."""
    config = UpdateConfig(epochs=1, minibatch=1000, shards=1, max_grad_norm=0.1, learning_rate=1e-3)
    samples = moved_samples()
    learner = Learner(network(seed=3).network, config, RULES, CPU)
    plain = copy.deepcopy(learner.network).double()

    advantage = samples.advantage.astype(np.float64)
    normalised = samples._replace(advantage=(advantage - advantage.mean()) / advantage.std())
    observation = learner.batch(samples, np.arange(len(samples.view))).observation.double()
    output = plain(observation)
    policy, value, entropy = direct_losses(output.logits, output.value, normalised, 0.2)
    (policy + 0.5 * value - 0.01 * entropy).backward()
    parameters = list(plain.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
    assert norm > config.max_grad_norm
    expected = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        clipped = gradient * config.max_grad_norm / norm
        # Adam's first step: both averages are the gradient's own once they are corrected
        step = clipped / (clipped.abs() + 1e-5)
        expected.append(parameter.detach() - 1e-3 * 0.75 * step)

    with ThreadPoolExecutor(1) as pool:
        report = learner.update(samples, 0.25, np.random.default_rng(0), pool)
    assert report.steps.grad_norm == pytest.approx(norm, rel=1e-3)
    assert report.learning_rate == pytest.approx(0.75e-3)
    for parameter, wanted in zip(learner.network.parameters(), expected, strict=True):
        assert torch.allclose(parameter.double(), wanted, atol=2e-5)


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_give_the_whole_batchs_step(shards: int) -> None:
    samples, weights = moved_samples(), []
    for count in (1, shards):
        config = UpdateConfig(epochs=2, minibatch=32, shards=count)
        learner = Learner(network(seed=3).network, config, RULES, CPU)
        with ThreadPoolExecutor(2) as pool:
            learner.update(samples, 0, np.random.default_rng(0), pool)
        weights.append(torch.cat([p.flatten() for p in learner.network.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-4)


@pytest.mark.parametrize(("size", "steps"), [(64, 2), (60, 1), (20, 1)])
def test_every_minibatch_is_whole(size: int, steps: int) -> None:
    learner = Learner(network().network, UpdateConfig(epochs=3, minibatch=32), RULES, CPU)
    sizes: list[int] = []
    gradients = learner._gradients

    def counted(samples: Samples, rows: np.ndarray) -> object:
        sizes.append(len(rows))
        return gradients(samples, rows)

    learner._gradients = counted  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as pool:
        learner.update(learning_samples(size), 0, np.random.default_rng(0), pool)
    assert sizes == [min(size, 32) // 2] * 3 * steps * 2, "two shards of each"


def test_the_target_kl_ends_an_update() -> None:
    samples, moved = learning_samples(), []
    for target in (0.0, 1e-6):
        config = UpdateConfig(epochs=5, minibatch=1000, target_kl=target, learning_rate=1e-2)
        learner = Learner(network().network, config, RULES, CPU)
        with ThreadPoolExecutor(2) as pool:
            learner.update(samples, 0, np.random.default_rng(0), pool)
        (state, *_) = learner.optimiser.state.values()
        moved.append(int(state["step"]))
    assert moved == [5, 2], "the first epoch cannot know"


def test_the_learning_rate_falls_or_stays() -> None:
    net = network().network
    falling = Learner(net, UpdateConfig(learning_rate=1.0, schedule="linear"), RULES, CPU)
    steady = Learner(net, UpdateConfig(learning_rate=1.0, schedule="constant"), RULES, CPU)
    assert [falling.learning_rate(p) for p in (0, 0.5, 1)] == [1, 0.5, 0]
    assert [steady.learning_rate(p) for p in (0, 0.5, 1)] == [1, 1, 1]


# A run


def tiny(folder: Path, **changes: object) -> PPOConfig:
    """A run of a second or two."""
    config = PPOConfig(
        run=str(folder),
        device="cpu",
        console="off",
        network=NetworkConfig(width=16, blocks=1),
        rollout=RolloutConfig(games=12, plies=24, max_plies=80),
        update=UpdateConfig(epochs=2, minibatch=128),
        league=LeagueConfig(warmup_window=5, warmup_episodes=10, snapshot_every=2, pool=3),
        evaluation=EvaluationConfig(
            every_steps=3000, games=2, opponents=["rule_based"], oracle_every=1000
        ),
        budget=BudgetConfig(minutes=0, steps=10_000),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def run_quietly(config: PPOConfig) -> MemorySink:
    sink = MemorySink()
    train(config, Metrics([sink]))
    return sink


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    return RunFolder(folder, writable=False).load("latest").weights


TAGS = {
    "train": "policy_loss value_loss entropy clip_fraction approx_kl explained_variance "
    "learning_rate",
    "eval": "win_rate_vs_rule_based avg_episode_reward draw_rate oracle_preserving",
    "league": "current_elo best_elo pool_size",
    "env": "episode_length",
    "perf": "steps_per_second",
}


def test_a_run_leaves_its_folder(tmp_path: Path) -> None:
    sink = run_quietly(tiny(tmp_path))
    scalars = [event for event in sink.events if isinstance(event, Scalars)]
    tags = {tag for event in scalars for tag in event.values}
    assert {f"{family}/{name}" for family, names in TAGS.items() for name in names.split()} <= tags
    assert any("warm-up is over" in e.text for e in sink.events if isinstance(e, Message))
    run = RunFolder(tmp_path, writable=False)
    manifest, metadata = run.manifest(), run.metadata()
    assert len(manifest.checkpoints) == len(metadata.elo_history) >= 3
    assert all(entry.name == f"ep_{entry.step:06d}" for entry in manifest.checkpoints)
    assert all(entry.simulations == 0 for entry in manifest.checkpoints)
    assert {"live", "rule_based"} < set(metadata.facts["league"])
    assert {"latest.safetensors", "best_elo.safetensors"} <= {
        path.name for path in run.checkpoints.iterdir()
    }
    best = max(metadata.elo_history, key=lambda point: (point["elo"], point["step"]))
    assert run.load("best_elo").info.step == best["step"]
    assert run.load("latest").info.counters["steps"] >= 10_000


def test_players_open_a_run_by_every_name(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    newest = RunFolder(tmp_path, writable=False).manifest().checkpoints[-1]
    names = ["", "/best_elo", "/best", "/latest", f"/{newest.step}", f"/{newest.name}"]
    for name in names:
        player = agents.make(f"checkpoint:{tmp_path}{name}")
        assert isinstance(player, NetworkPlayer)
        assert player.act(Position.start()) in range(16)


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed, threads in (("one", 1, 1), ("two", 1, 2), ("three", 2, 2)):
        run_quietly(tiny(tmp_path / name, seed=seed, threads=threads))
    one, two, three = (last_weights(tmp_path / name) for name in ("one", "two", "three"))
    assert all(torch.equal(one[name], two[name]) for name in one), "threads change nothing"
    assert not all(torch.equal(one[name], three[name]) for name in one)


@pytest.mark.parametrize("after", [1, 8, 13])
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path: Path, after: int) -> None:
    """Stopped in the warm-up, with a growing pool, and with snapshots that have left it."""
    run_quietly(tiny(tmp_path / "whole"))
    config = tiny(tmp_path / "parts")
    with RunFolder(tmp_path / "parts", naming=EPISODES) as folder:
        trainer = Trainer(config, folder)
        rounds = itertools.count(1)
        iterate = trainer.iterate

        def counted(pool: ThreadPoolExecutor) -> None:
            iterate(pool)
            if next(rounds) == after:
                trainer.stopped.set()

        trainer.iterate = counted  # type: ignore[method-assign]
        trainer.run(Metrics([MemorySink()]))
        assert trainer.steps < 10_000
    run_quietly(dataclasses.replace(config, resume=str(tmp_path / "parts"), run=""))
    states = []
    for name in ("whole", "parts"):
        state = RunFolder(tmp_path / name, writable=False).load("latest").state
        assert state is not None
        state.pop("seconds")
        state["rng"] = state["rng"]["generators"]  # nobody draws from the global ones
        states.append(state)
    assert same(*states)


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)  # type: ignore[arg-type]
    if isinstance(one, dict):
        assert isinstance(other, dict)
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_a_run_of_other_rules_or_sizes_is_not_resumed(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    run_quietly(config)
    resumed = dataclasses.replace(config, run="", resume=str(tmp_path))
    with pytest.raises(CheckpointError, match=r"'advanced'.*'mature'"):
        train(dataclasses.replace(resumed, rules="mature"))
    fewer = dataclasses.replace(config.rollout, games=3)
    with pytest.raises(PylosError, match=r"^rollout\.games: the run has 12, got 3"):
        train(dataclasses.replace(resumed, rollout=fewer))


def test_signals_ask_to_stop_and_handlers_come_back() -> None:
    stopped, before = threading.Event(), signal.getsignal(signal.SIGINT)
    with heeding_signals(stopped):
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped.wait(10)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_kill_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trainers.ppo", *words, "console=plain"]
        return subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    child = start("experiment=smoke", "run=first", "budget.steps=100000000")
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("first/checkpoints/*.safetensors")):
        assert time.monotonic() < deadline
        assert child.poll() is None, child.communicate()
        time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert "resume=first" in out + err
    counters = RunFolder(tmp_path / "first", writable=False).load("latest").info.counters
    steps = counters["steps"] + 1
    resumed = start("resume=first", f"budget.steps={steps}")
    out, err = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, err
    assert "done: " in out
    latest = RunFolder(tmp_path / "first", writable=False).load("latest").info.counters
    assert latest["updates"] == counters["updates"] + 1


def test_it_learns_to_beat_random_on_the_small_board(tmp_path: Path) -> None:
    config = PPOConfig(
        rules="advanced levels=3",
        run=str(tmp_path),
        device="cpu",
        console="off",
        network=NetworkConfig(width=64, blocks=1),
        rollout=RolloutConfig(games=64, plies=32, opening_plies=6, max_plies=60),
        update=UpdateConfig(epochs=2, minibatch=1024, learning_rate=3e-3),
        league=LeagueConfig(warmup_episodes=0),
        evaluation=EvaluationConfig(every_steps=10**9, games=2, opponents=[]),
        budget=BudgetConfig(minutes=0, steps=150_000),
    )
    run_quietly(config)
    player = f"checkpoint:{tmp_path}/latest"
    match = play_match(player, "random", config.rules, games=400, opening_plies=2)
    assert match.interval.low > 0.8, str(match)


# Configs


def composed(*overrides: str) -> PPOConfig:
    with initialize_config_dir(str(paths.configs() / "ppo"), version_base="1.3"):
        config = OmegaConf.to_object(compose("config", overrides=list(overrides)))
    assert isinstance(config, PPOConfig)
    return config


EXPERIMENTS = sorted(p.stem for p in (paths.configs() / "ppo/experiment").glob("*.yaml"))
NETWORKS = sorted(p.stem for p in (paths.configs() / "ppo/network").glob("*.yaml"))


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
    assert dataclasses.asdict(composed()) == dataclasses.asdict(PPOConfig())


def test_the_classic_experiment_is_the_customers() -> None:
    config = composed("experiment=classic")
    update, rollout = config.update, config.rollout
    assert (update.learning_rate, update.gamma, update.gae_lambda) == (3e-4, 0.99, 0.95)
    assert (update.clip, update.entropy_weight, update.value_weight) == (0.2, 0.01, 0.5)
    assert (update.max_grad_norm, update.epochs, update.minibatch) == (0.5, 4, 256)
    assert (rollout.plies, rollout.games * rollout.groups) == (2048, 8)
    assert config.network.kind == "mlp_deep"
    assert (config.league.pool, config.league.warmup_win_rate) == (20, 0.5)
    shares = config.league.recent_share, config.league.older_share, config.league.rule_based_share
    assert shares == (0.7, 0.2, 0.1)
    assert (config.league.elo_start, config.league.elo_k) == (1000, 32)
    assert Rules.of(config.rules).take_back == "greedy"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rules=chess", "rules: unknown rules 'chess'"),
        ("rules='advanced greedy'", "rollout.symmetries: .*not symmetric"),
        ("network.width=0", "network.width"),
        ("rollout.games=0", "rollout.games"),
        ("rollout.opening_share=1.5", "rollout.opening_share"),
        ("precision=float8", "precision"),
        ("update.gamma=1.1", "update.gamma"),
        ("update.gamma=nan", "update.gamma"),
        ("update.minibatch=1", "update.shards"),
        ("update.schedule=cosine", "update.schedule"),
        ("league.recent_share=0.5", "league.recent_share"),
        ("league.pool=1", "league.pool"),
        ("league.elo_k=0", "league.elo_k"),
        ("league.at_once=0", "league.at_once"),
        ("league.warmup_episodes=10", "league.warmup_window"),
        ("evaluation.games=7", "evaluation.games"),
        ("evaluation.opponents=[stockfish]", "evaluation.opponents: .*'stockfish'"),
        ("budget.minutes=0", "budget"),
        ("budget.minutes=-3", "budget.minutes"),
        ("device=tpu", "device"),
    ],
)
def test_impossible_configs_are_refused_by_name(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        check(composed(override))


def test_the_command_refuses_before_work_begins(tmp_path: Path) -> None:
    for word, message in (
        ("league.pol=3", "pol"),
        ("league.pool=0", "league.pool"),
        ("resume=nowhere", "nowhere"),
    ):
        command = [sys.executable, "-m", "trainers.ppo", word]
        child = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert child.returncode != 0
        assert message in child.stdout + child.stderr
        assert "Traceback" not in child.stderr
        assert not list(tmp_path.rglob("runs/ppo/*"))
    assert not (tmp_path / "nowhere").exists()


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    run_quietly(tiny(tmp_path))
    words = [f"resume={tmp_path}", "budget.steps=99"]
    with initialize_config_dir(str(paths.configs() / "ppo"), version_base="1.3"):
        given = compose("config", words)
    config = OmegaConf.to_object(command.resumed(PPOConfig, given, words))
    assert isinstance(config, PPOConfig)
    assert (config.network.width, config.budget.steps) == (16, 99)
    with pytest.raises(PylosError, match="keeps its network"):
        command.resumed(PPOConfig, given, ["network=mlp"])
