"""Exported checkpoints: the ONNX file answers as the network plays, the card tells the truth."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from pylos_env import Position, Rules, agents
from pylos_env.observation import Observer
from trainers.checkpoint_file import CheckpointInfo, encode_weights, load_weights
from trainers.checkpoints import RunFolder
from trainers.evaluator import Evaluator
from trainers.export import cli, onnx_file
from trainers.export.card import CARD_FILE, ONNX_FILE, WEIGHTS_FILE
from trainers.export.model import Exported
from trainers.export.onnx_file import Difference, ExportError, compare, random_positions
from trainers.files import CheckpointError, sha256_of
from trainers.manifest import MANIFEST_FILE, Manifest, ManifestEntry
from trainers.network import NetworkConfig, PolicyValueNetwork, build

KINDS = ["symmetric", "patterns", "mlp", "mlp_deep", "resmlp", "resnet"]
CPU = torch.device("cpu")


def network_of(kind: str, rules: str = "advanced", **more: object) -> PolicyValueNetwork:
    """A tiny network, moved away from what it begins with: no bias or statistic is trivial."""
    config = NetworkConfig(kind, width=8, blocks=1, channels=4, **more)  # type: ignore[arg-type]
    torch.manual_seed(3)
    network = build(config, Rules.of(rules))
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor += 0.05 * torch.randn_like(tensor)
    return network


# The graph


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (kind, rules)
        for kind in ("symmetric", "patterns", "resnet")
        for rules in ("advanced", "advanced levels=3", "advanced greedy")
        if kind != "symmetric" or Rules.of(rules).symmetric
    ],
)
def test_the_graph_turns_positions_as_a_canonical_player_does(kind: str, rules: str) -> None:
    network = network_of(kind, rules, canonical=True)
    evaluator = Evaluator(network, Rules.of(rules), CPU)
    packed = random_positions(evaluator.rules, 300, seed=1)
    observer = Observer(network.config.observation, evaluator.rules)
    seen = np.stack([observer.observe(p, Position(p, rules).side) for p in packed.tolist()])
    model = Exported(network, evaluator.rules)
    assert (model.view is not None) == evaluator.rules.symmetric
    with torch.no_grad():
        logits, value = model(torch.from_numpy(seen))
    expected = evaluator.full(packed)
    np.testing.assert_allclose(logits, expected[0], atol=1e-5)
    np.testing.assert_allclose(value, expected[1], atol=1e-5)


@pytest.mark.parametrize("head", ["scalar", "wdl"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_network_answers_the_same_as_onnx(kind: str, head: str) -> None:
    network = network_of(kind, value_head=head, canonical=head == "wdl")
    evaluator = Evaluator(network, Rules(), CPU)
    data = onnx_file.encode(Exported(network, Rules()), {"rules": "advanced"})
    difference = compare(data, evaluator, 100, seed=5)
    assert difference.largest < 1e-4
    proto = onnx.load_from_string(data)
    assert [value.name for value in proto.graph.input] == ["observation"]
    names = [value.name for value in proto.graph.output]
    assert names == (["logits", "value", "wdl"] if head == "wdl" else ["logits", "value"])
    assert proto.metadata_props[0].value == "advanced"
    assert str(Path(onnx_file.__file__).parent.parent).encode() not in data, "paths of this machine"
    if head == "wdl":
        session = onnxruntime.InferenceSession(data)
        seen = Observer(network.config.observation, Rules()).observe(0, 0)[None]
        _, value, wdl = session.run(None, {"observation": seen})
        assert wdl.sum() == pytest.approx(1)
        assert value[0] == pytest.approx(wdl[0, 0] - wdl[0, 2], abs=1e-6)


def test_a_graph_of_other_weights_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    network, other = network_of("mlp"), network_of("mlp")
    with torch.no_grad():
        other.policy.bias[17] += 0.01  # type: ignore[index,union-attr]
    data = onnx_file.encode(Exported(other, Rules()), {})
    difference = compare(data, Evaluator(network, Rules(), CPU), 50, seed=0)
    assert difference.logits == pytest.approx(0.01, rel=0.01)
    assert difference.value < 1e-5
    with pytest.raises(ExportError, match=r"differs from the network by 1\.0e-02 in a logit"):
        onnx_file.check_difference(difference, 1e-4)
    with pytest.raises(ExportError):
        onnx_file.check_difference(Difference(1, float("nan"), 0.0), 1e-4)


# The command


def checkpoint(
    folder: Path, kind: str = "patterns", rules: str = "advanced", **more: object
) -> Path:
    """A run of one checkpoint, as the trainers leave it."""
    network = network_of(kind, rules, **more)
    info = CheckpointInfo(
        asdict(network.config),
        Rules.of(rules),
        network.config.observation,
        config={
            "seed": 7,
            "run": "/home/somebody/runs",
            "initial": "/home/somebody/first",
            "selfplay": {},
            "search": {"simulations": 24},
        },
        counters={"games": 1234, "seconds": 90.0},
        commit="c" * 40,
    )
    with RunFolder(folder) as run:
        run.save(50, network.state_dict(), info, {}, best=True)
        run.enter(
            50, "Novice", 0.9, rating=812.4, rating_low=790.0, rating_high=833.0, simulations=2
        )
    return folder


def run_code(card: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Execute each block of Python of a card, from its folder."""
    monkeypatch.chdir(card.parent)
    found = []
    for block in re.findall(r"```python\n(.*?)```", card.read_text(encoding="utf-8"), re.DOTALL):
        names: dict[str, object] = {}
        exec(block, names)
        found.append(names)
        code = [line for line in block.splitlines() if line and "import" not in line]
        assert len(code) <= 5
    return found


def test_a_run_is_exported_with_a_card_whose_code_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = checkpoint(tmp_path / "run", canonical=True)
    monkeypatch.chdir(tmp_path)
    words = ["--every", "400", "--positions", "50"]
    assert cli.main([str(run), *words]) == 0
    assert "largest difference between ONNX and torch" in capsys.readouterr().out
    folder = tmp_path / "exported" / "step_000000050"
    assert {path.name for path in folder.iterdir()} == {ONNX_FILE, WEIGHTS_FILE, CARD_FILE}
    text = (folder / CARD_FILE).read_text(encoding="utf-8")
    for said in (
        "| rules | `advanced` |",
        "| games of self-play | 1,234 |",
        "| simulations a move in self-play | 24 |",
        "| seed | 7 |",
        f"| commit | `{'c' * 40}` |",
        "Rating: **812**, 95 % interval 790 to 833 (Novice), with 2 simulations a move",
        "it errs most in the ",
        "its value has the wrong sign in ",
        "| value kept | by its raw policy | with 2 simulations a move |",
        "The network is *canonical*",
        "float32 [batch, 33]",
    ):
        assert said in text
    exported = load_weights(folder / WEIGHTS_FILE)
    assert exported.info.config["run"] == "", "where the run lay is nobody's business"
    assert exported.info.config["initial"] == "first"
    assert b"somebody" not in (folder / ONNX_FILE).read_bytes()
    by_player, by_onnx = run_code(folder / CARD_FILE, monkeypatch)
    assert by_player["player"].name.endswith("?simulations=2")  # type: ignore[attr-defined]
    original = agents.make(f"checkpoint:{run}", seed=0)
    assert by_onnx["value"][0] == pytest.approx(  # type: ignore[index]
        original.value(Position.start()), abs=1e-5
    )

    monkeypatch.chdir(tmp_path)
    assert cli.main([str(run), *words]) == 1
    assert "--force replaces" in capsys.readouterr().err
    (folder / CARD_FILE).write_text("older")
    assert cli.main([str(run), *words, "--force", "--every", "0"]) == 0
    assert (folder / CARD_FILE).read_text(encoding="utf-8").startswith("# Pylos step_000000050")
    assert list(folder.parent.iterdir()) == [folder], "something was left behind"


def test_a_level_of_the_ladder_is_exported_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the ladder ships: weights in half precision beside a manifest."""
    ladder = tmp_path / "ladder"
    ladder.mkdir()
    network = network_of("mlp", value_head="wdl")
    info = CheckpointInfo(asdict(network.config), Rules(), "flat", commit="unknown", step=9)
    halves = {name: tensor.half() for name, tensor in network.state_dict().items()}
    path = ladder / "step_000000009.safetensors"
    path.write_bytes(encode_weights(info, path.stem, halves, state_sha256=""))
    entry = ManifestEntry(
        path.name,
        9,
        0.99,
        "Expert",
        info.timestamp,
        rating=1500.0,
        rating_low=1450.0,
        rating_high=1550.0,
        oracle_score=0.951,
        simulations=16,
        sha256=sha256_of(path),
    )
    Manifest(ladder / MANIFEST_FILE, (entry,)).write()
    monkeypatch.setenv("PYLOS_LADDER", str(ladder))
    folder = cli.export("checkpoint:expert", tmp_path / "out", every=0, positions=20)
    text = (folder / CARD_FILE).read_text(encoding="utf-8")
    assert text.startswith("# Pylos Expert (step_000000009)")
    assert "Rating: **1500**" in text
    assert "Oracle score: **95.1%** of moves keep" in text
    assert "out: `wdl`" in text
    assert "| seed | not recorded |" in text
    assert load_weights(folder / WEIGHTS_FILE).weights["policy.bias"].dtype == torch.float16
    by_player, _ = run_code(folder / CARD_FILE, monkeypatch)
    assert by_player["player"].name.endswith("?simulations=16")  # type: ignore[attr-defined]


def test_without_onnx_the_weights_and_a_card_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "check_installed", lambda: pytest.fail("it is not needed"))
    run = checkpoint(tmp_path / "run", "mlp", "advanced levels=3")
    folder = cli.export(f"{run}/latest?simulations=0", tmp_path / "out", onnx=False)
    assert {path.name for path in folder.iterdir()} == {WEIGHTS_FILE, CARD_FILE}
    text = (folder / CARD_FILE).read_text(encoding="utf-8")
    assert "no labelled positions ship for these rules" in text
    assert "onnx" not in text.lower()
    (names,) = run_code(folder / CARD_FILE, monkeypatch)
    assert "simulations" not in names["player"].name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere/at/all"], "no checkpoint 'nowhere/at/all'"),
        (["run/latest?simulation=3"], "unknown option 'simulation'"),
        (["run?temperature=1"], "temperature: that is up to whoever plays"),
        (["run/51"], "51"),
        (["broken.safetensors"], "is no checkpoint, or damaged"),
        (["run", "--tolerance", "nan"], "tolerance: expected more than 0"),
        (["run", "--positions", "0"], "positions: expected 1 or more"),
        (["run", "--out", "broken.safetensors"], "is a file"),
        (["run", "--out", "broken.safetensors/inside"], "broken.safetensors"),
        (["run", "--tolerance", "1e-30"], "more than 1e-30"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_a_sentence_and_leaves_nothing(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint(tmp_path / "run", "mlp")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(onnx_file, "encode", lambda *_: b"")
    monkeypatch.setattr(onnx_file, "compare", lambda *_: Difference(1, 1e-9, 1e-9))
    assert cli.main([*words, "--every", "0"]) == 1
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.safetensors", "run"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = onnx_file.importlib.util.find_spec
    monkeypatch.setattr(
        onnx_file.importlib.util,
        "find_spec",
        lambda name: None if name == "onnxscript" else find(name),
    )
    with pytest.raises(ExportError, match=r"needs the package onnxscript: pip install 'pylos-env"):
        cli.export("anything")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write(path: Path, content: bytes) -> None:
        if written:
            raise CheckpointError(f"could not write {path}: No space left on device")
        written.append(path)
        path.write_bytes(content)

    monkeypatch.setattr(cli, "write_atomically", write)
    run = checkpoint(tmp_path / "run", "mlp")
    with pytest.raises(CheckpointError, match="No space left"):
        cli.export(str(run), tmp_path / "out", onnx=False, every=0)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_help_tells_what_a_checkpoint_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "a level of the ladder" in text
    assert "--tolerance" in text
