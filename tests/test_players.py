"""Agents made of a checkpoint: what they play, how they are named, what they refuse."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from pylos_env import Position, PylosError, Rules, agents, kernel, oracle
from pylos_env.geometry import ACTION_SYMMETRIES
from pylos_env.oracle.labels import load_labels
from pylos_env.testing import random_game
from trainers import players
from trainers.checkpoints import CheckpointError, CheckpointInfo, CheckpointWarning, RunFolder
from trainers.evaluator import Evaluator, LegalOnly
from trainers.network import NetworkConfig, build
from trainers.players import NetworkPlayer, SearchPlayer
from trainers.running import torch_threads
from trainers.search import SearchConfig
from trainers.search.tree import Floats, Ints

RULES = Rules.of("advanced")


def some_positions(count: int, rules: Rules = RULES) -> list[Position]:
    found: list[Position] = []
    seed = 0
    while len(found) < count:
        found += [p for p in random_game(rules, seed).positions() if p.legal_actions()][::3]
        seed += 1
    return found[:count]


def save(folder: Path, config: NetworkConfig, rules: Rules = RULES, steps: int = 1) -> RunFolder:
    run = RunFolder(folder)
    for step in range(1, steps + 1):
        torch.manual_seed(step)
        net = build(config, rules)
        info = CheckpointInfo(asdict(config), rules, config.observation)
        run.save(step, net.state_dict(), info, {}, best=step == 1)
    run.close()
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return save(tmp_path_factory.mktemp("run"), NetworkConfig(width=32, blocks=1), steps=2)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    torch.manual_seed(0)
    net = build(NetworkConfig(width=32, blocks=1), RULES)
    return Evaluator(net, RULES, torch.device("cpu"))


# The raw policy


def test_the_raw_policy_is_the_networks_over_legal_actions(evaluator: Evaluator) -> None:
    player = NetworkPlayer(evaluator, temperature=1)
    for position in some_positions(30):
        logits, values = evaluator(np.array([position.packed]))
        legal = position.legal_actions()
        shares = np.exp(logits[0, legal].astype(np.float64))
        policy = player.policy(position)
        assert policy[legal] == pytest.approx(shares / shares.sum())
        assert policy.sum() == pytest.approx(1)
        assert player.value(position) == pytest.approx(float(values[0]))


def test_without_temperature_the_likeliest_action_is_played(evaluator: Evaluator) -> None:
    player = NetworkPlayer(evaluator)
    positions = some_positions(50)
    packed = np.array([position.packed for position in positions])
    actions = player.act_batch(packed, RULES, np.arange(50))
    for position, action in zip(positions, actions.tolist(), strict=True):
        logits, _ = evaluator(np.array([position.packed]))
        legal = position.legal_actions()
        assert action == legal[int(logits[0, legal].argmax())]
        assert player.act(position) == action


def test_a_temperature_draws_from_the_policy(evaluator: Evaluator) -> None:
    player = NetworkPlayer(evaluator, temperature=2.0)
    start = Position.start()
    keys = np.array([kernel.draw(7, number) for number in range(4000)])
    actions = player.act_batch(np.full(4000, start.packed), RULES, keys)
    drawn = np.bincount(actions, minlength=303) / 4000
    assert drawn == pytest.approx(player.policy(start), abs=0.03)
    again = [player.act(start, int(key)) for key in keys[:50]]
    assert again == actions[:50].tolist()


def test_a_policy_plays_batches_of_any_size(evaluator: Evaluator) -> None:
    player = NetworkPlayer(evaluator)
    packed = np.array([position.packed for position in some_positions(5000)])
    assert len(player.act_batch(packed, RULES, np.arange(5000))) == 5000
    assert len(player.act_batch(packed[:0], RULES, np.arange(0))) == 0
    assert len(player.value_batch(packed, RULES)) == 5000


# Search


def test_search_plays_better_than_the_raw_policy(evaluator: Evaluator) -> None:
    raw = oracle.benchmark(NetworkPlayer(evaluator), every=40)
    searched = oracle.benchmark(SearchPlayer(evaluator, SearchConfig(simulations=64)), every=40)
    assert searched.phases["end"].rate > raw.phases["end"].rate + 0.1
    assert searched.wrong_sign is not None


def test_search_batches_play_as_single_games(evaluator: Evaluator) -> None:
    player = SearchPlayer(evaluator, SearchConfig(simulations=16, gumbel_scale=0))
    positions = some_positions(20)
    packed = np.array([position.packed for position in positions])
    actions = player.act_batch(packed, RULES, np.arange(20))
    singles = [player.act(position, key) for key, position in enumerate(positions)]
    assert actions.tolist() == singles
    for position, action in zip(positions, singles, strict=True):
        policy = player.policy(position)
        assert policy.sum() == pytest.approx(1, abs=1e-5)
        assert set(np.flatnonzero(policy)) <= set(position.legal_actions())
        assert action in position.legal_actions()
        assert -1 <= player.value(position) <= 1


@pytest.mark.parametrize("kind", ["network", "search"])
def test_over_is_over_and_rules_are_checked(evaluator: Evaluator, kind: str) -> None:
    player: agents.Agent = NetworkPlayer(evaluator)
    if kind == "search":
        player = SearchPlayer(evaluator, SearchConfig(simulations=4))
    over = Position.parse("WWWWBBBBWWWWBBBB/WWWBBBWWW/BBBB/W b 0")
    with pytest.raises(PylosError, match="the game is over"):
        player.act(over)
    with pytest.raises(CheckpointError, match=r"trained under the rules 'advanced'.* has 'mature'"):
        player.act(Position.start("mature"))


# Names


def test_a_checkpoint_is_found_by_every_name(run: RunFolder) -> None:
    best, latest = run.path / "best", run.path / "latest"
    names = {
        f"checkpoint:{run.path}": 1,
        f"checkpoint:{best}": 1,
        f"checkpoint:{latest}": 2,
        f"checkpoint:{run.path}/2": 2,
        f"checkpoint:{run.path}/checkpoints/step_000000001.safetensors": 1,
    }
    position = Position.start()
    expected = {}
    for step in (1, 2):
        torch.manual_seed(step)
        net = build(NetworkConfig(width=32, blocks=1), RULES)
        expected[step] = NetworkPlayer(Evaluator(net, RULES, torch.device("cpu"))).value(position)
    assert expected[1] != expected[2]
    for name, step in names.items():
        agent = agents.make(name)
        assert agent.name == name
        assert agent.value(position) == pytest.approx(expected[step])


def test_a_level_brings_its_simulations(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ladder"
    shutil.copytree(run.path, folder, symlinks=True)
    with RunFolder(folder) as ladder:
        ladder.enter(1, label="Novice", win_rate_vs_random=0.5, simulations=8)
        ladder.enter(2, label="Expert", win_rate_vs_random=0.9, simulations=16)
    expert = agents.make(f"checkpoint:{folder}/Expert")
    assert isinstance(expert, SearchPlayer)
    assert expert.config.simulations == 16
    monkeypatch.setenv("PYLOS_LADDER", str(folder))
    novice = agents.make("checkpoint:novice")
    assert isinstance(novice, SearchPlayer)
    assert novice.config.simulations == 8
    raw = agents.make("checkpoint:Expert?simulations=0")
    assert isinstance(raw, NetworkPlayer)
    with pytest.raises(CheckpointError, match=r"has no level 'Master': expected one of Novice"):
        agents.make("checkpoint:Master")


def test_a_level_whose_file_was_exchanged_is_refused(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder, symlinks=True)
    with RunFolder(folder) as ladder:
        entry = ladder.enter(1, label="Novice", win_rate_vs_random=0.5)
    shutil.copyfile(folder / "checkpoints/step_000000002.safetensors", folder / entry.file)
    with pytest.raises(CheckpointError, match="sha256"):
        agents.make(f"checkpoint:{folder}/Novice")


def test_a_damaged_newest_checkpoint_is_passed_over(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder, symlinks=True)
    newest = folder / "checkpoints/step_000000002.safetensors"
    newest.write_bytes(newest.read_bytes()[:-50])
    with pytest.warns(CheckpointWarning, match="step_000000001"):
        fallen_back = agents.make(f"checkpoint:{folder}/latest")
    older = agents.make(f"checkpoint:{folder}/1")
    assert fallen_back.value(Position.start()) == older.value(Position.start())


def test_options_follow_the_name(run: RunFolder) -> None:
    searcher = agents.make(f"checkpoint:{run.path}?simulations=12&device=cpu")
    assert isinstance(searcher, SearchPlayer)
    assert searcher.config.simulations == 12
    assert searcher.config.gumbel_scale == 0
    warm = agents.make(f"checkpoint:{run.path}?temperature=0.5")
    assert isinstance(warm, NetworkPlayer)
    assert warm.temperature == 0.5


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("?simulations=many", "simulations=many"),
        ("?simulations=-1", "simulations"),
        ("?simulations=3&simulations=9", "'simulations' stands twice"),
        ("?sims=3", "unknown option 'sims': expected one of simulations, temperature, device"),
        ("?temperature=-1", "temperature: expected 0 or more"),
        ("?temperature=nan", "temperature: expected 0 or more"),
        ("?simulations=4&temperature=1", "a temperature goes with simulations=0"),
        ("?device=gpu", "unknown device 'gpu'"),
        ("/7", "7"),
        ("/Expert", "expected latest, best or a step"),
    ],
)
def test_bad_names_are_refused(run: RunFolder, rest: str, message: str) -> None:
    with pytest.raises(PylosError, match=message):
        agents.make(f"checkpoint:{run.path}{rest}")


def test_missing_checkpoints_say_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_LADDER", str(tmp_path / "none"))
    with pytest.raises(PylosError, match="expected a path or a level"):
        agents.make("checkpoint:")
    with pytest.raises(CheckpointError, match="no such file or run folder, and no ladder at"):
        agents.make("checkpoint:Expert")
    with pytest.raises(CheckpointError, match="no such file or run folder"):
        agents.make(f"checkpoint:{tmp_path}/nowhere/latest")
    RunFolder(tmp_path / "empty").close()
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        agents.make(f"checkpoint:{tmp_path}/empty")


def test_every_kind_of_network_plays_from_its_file(tmp_path: Path) -> None:
    for kind in ("mlp", "mlp_deep", "resmlp", "resnet"):
        config = NetworkConfig(kind, width=32, blocks=1, channels=8, value_head="wdl")
        rules = Rules.of("standard greedy")
        save(tmp_path / kind, config, rules)
        agent = agents.make(f"checkpoint:{tmp_path / kind}")
        for position in some_positions(5, rules):
            assert agent.act(position) in position.legal_actions()


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = build(NetworkConfig(width=32), RULES)
    with RunFolder(tmp_path) as folder:
        info = CheckpointInfo(asdict(NetworkConfig(width=64)), RULES, "flat")
        folder.save(1, net.state_dict(), info, {})
    with pytest.raises(CheckpointError, match="size mismatch"):
        agents.make(f"checkpoint:{tmp_path}")


def test_observations_of_another_kind_are_refused(tmp_path: Path) -> None:
    net = build(NetworkConfig(width=32), RULES)
    with RunFolder(tmp_path) as folder:
        info = CheckpointInfo(asdict(NetworkConfig(width=32)), RULES, "planes")
        folder.save(1, net.state_dict(), info, {})
    with pytest.raises(CheckpointError, match=r"trained on 'planes' \[15, 4, 4\].*takes 'flat'"):
        agents.make(f"checkpoint:{tmp_path}")


def test_names_of_other_packages_are_listed() -> None:
    assert "checkpoint:<...>" in agents.names()


def test_agents_of_an_extra_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "checkpoint"

        def load(self) -> object:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(agents, "entry_points", lambda **_: [Point()])
    with pytest.raises(
        PylosError, match=r"need the package 'torch': pip install 'pylos-env\[train"
    ):
        agents.make("checkpoint:x")


def test_the_shipped_ladder_is_looked_for_beside_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYLOS_LADDER", raising=False)
    assert players.ladder_folder() == Path(players.__file__).resolve().parent / "ladder"


def test_a_canonical_network_sees_all_images_alike() -> None:
    """The answers to a position's images are the images of the answer."""
    torch.manual_seed(0)
    config = NetworkConfig("resmlp", width=16, blocks=1, canonical=True)
    evaluate = Evaluator(build(config, RULES), RULES, torch.device("cpu"))
    labels = load_labels(RULES)
    for packed in labels.packed[:40].tolist():
        position = Position.unchecked(packed, RULES)
        logits, values = evaluate(np.array([packed]))
        for index in range(8):
            image = position.symmetric(index)
            turned, value = evaluate(np.array([image.packed]))
            assert np.array_equal(turned[0, ACTION_SYMMETRIES[index]], logits[0])
            assert value[0] == values[0]


def test_a_canonical_network_does_not_turn_where_rules_are_not_symmetric() -> None:
    greedy = Rules.of("advanced greedy")
    torch.manual_seed(0)
    networks = [
        build(NetworkConfig("mlp", canonical=canonical), greedy) for canonical in (False, True)
    ]
    networks[1].load_state_dict(networks[0].state_dict())
    position = Position.start(greedy).play(3)
    answers = [
        Evaluator(network, greedy, torch.device("cpu"))(np.array([position.packed]))
        for network in networks
    ]
    assert np.array_equal(answers[0][0], answers[1][0])


@pytest.mark.parametrize("head", ["scalar", "wdl"])
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("kind", ["mlp", "resmlp", "patterns"])
def test_asking_for_legal_actions_only_changes_no_answer(
    kind: str, canonical: bool, head: str
) -> None:
    packed = load_labels(RULES).packed[:200]
    evaluators = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        config = NetworkConfig(kind, width=16, blocks=1, canonical=canonical, value_head=head)
        evaluators.append(Evaluator(build(config, RULES), RULES, torch.device("cpu")))
    first, second = evaluators
    first.take(second.network)  # both heads, not only the body, are the second's now
    assert isinstance(first.kernel, LegalOnly)
    second.kernel = None
    for row, (logits, full) in enumerate(zip(first(packed)[0], second(packed)[0], strict=True)):
        legal = Position.unchecked(int(packed[row]), RULES).legal_actions()
        assert np.allclose(logits[legal], full[legal], atol=1e-5)
        assert not np.delete(logits, legal).any()
    assert np.allclose(first(packed)[1], second(packed)[1], atol=1e-6)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_half_precision_answers_every_number_of_positions(count: int) -> None:
    packed = load_labels(RULES).packed[:count]
    answers = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        net = build(NetworkConfig("symmetric", width=16, blocks=1, canonical=True), RULES)
        answers.append(Evaluator(net, RULES, torch.device("cpu"), dtype)(packed))
    (logits, values), (half_logits, half_values) = answers
    assert half_logits.shape == (count, kernel.NUM_ACTIONS)
    assert np.allclose(half_logits, logits, atol=0.1)
    assert np.allclose(half_values, values, atol=0.1)


def test_at_the_board_a_search_keeps_its_tree(evaluator: Evaluator) -> None:
    config = SearchConfig(simulations=24, gumbel_scale=0.0)
    player = SearchPlayer(evaluator, config, "search", seed=0).at_board()
    assert player.at_board() is player
    assert agents.make("random").at_board().name == "random"
    position = Position.start(RULES)
    kept = []
    for _ in range(12):
        position = position.play(player.act(position))
        kept.append(player._tree.kept_visits)
    assert max(kept) > config.simulations


def test_at_the_board_a_network_has_one_core() -> None:
    """A second one would wait for the first, the longer the busier the machine."""
    network = build(NetworkConfig("mlp"), RULES)
    threads = []

    class Watched(Evaluator):
        def __call__(self, packed: Ints) -> tuple[Floats, Floats]:
            threads.append(torch.get_num_threads())
            return super().__call__(packed)

    watched = Watched(network, RULES, torch.device("cpu"))
    player = SearchPlayer(watched, SearchConfig(simulations=4), "search").at_board()
    with torch_threads(3):
        player.act(Position.start(RULES))
        player.value(Position.start(RULES))
        assert set(threads) == {1}
        assert torch.get_num_threads() == 3
