"""manifest.json and metadata.json: what is written reads back, and nonsense is refused by name."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers.files import CheckpointError
from trainers.manifest import LABELS, Manifest, ManifestEntry, RunMetadata, label_of

CONTENT = b"weights"
GOOD: dict[str, Any] = {
    "file": "checkpoints/step_000000100.safetensors",
    "step": 100,
    "win_rate_vs_random": 0.97,
    "label": "Novice",
    "timestamp": "2026-01-31T12:00:00Z",
    "rating": 812.5,
    "rating_low": 790,
    "rating_high": 840.0,
    "oracle_score": 0.91,
    "simulations": 64,
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
}


def entry(**changes: Any) -> ManifestEntry:
    return ManifestEntry(**(GOOD | changes))


def write(folder: Path, *entries: Any, **top: Any) -> Path:
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / GOOD["file"]).write_bytes(CONTENT)
    path = folder / "manifest.json"
    path.write_text(json.dumps({"version": 1, "checkpoints": list(entries)} | top))
    return path


def test_a_manifest_reads_back_as_written(tmp_path: Path) -> None:
    path = write(tmp_path)
    written = Manifest(path).with_entry(entry(step=np.int64(100), win_rate_vs_random=np.float32(1)))
    written.write()
    assert Manifest.read(path) == written
    assert json.loads(path.read_text())["checkpoints"][0] == GOOD | {"win_rate_vs_random": 1.0}
    assert Manifest.read(path).file(written.checkpoints[0]).read_bytes() == CONTENT


def test_the_five_fields_as_first_drawn_are_enough(tmp_path: Path) -> None:
    (found,) = Manifest.read(write(tmp_path, dict(list(GOOD.items())[:5]))).checkpoints
    assert (found.step, found.label, found.rating, found.sha256) == (100, "Novice", None, None)


def test_entries_stand_in_the_order_of_steps_and_one_step_has_one_entry(tmp_path: Path) -> None:
    late = entry(file="b.safetensors", step=300)
    manifest = Manifest(tmp_path / "manifest.json", (late,)).with_entry(entry())
    assert [e.step for e in manifest.checkpoints] == [100, 300]
    again = manifest.with_entry(entry(file="c.safetensors", step=300))
    assert [e.name for e in again.checkpoints] == ["step_000000100", "c"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("file", "../other.safetensors", "leaves the manifest's folder"),
        ("file", "checkpoints/../../x.safetensors", "leaves the manifest's folder"),
        ("file", "/etc/x.safetensors", "leaves the manifest's folder"),
        ("file", "C:/x.safetensors", "leaves the manifest's folder"),
        ("file", "..\\x.safetensors", "leaves the manifest's folder"),
        ("file", "checkpoints/./x.safetensors", "expected a plain path"),
        ("file", "checkpoints/x.pt", "ending in .safetensors"),
        ("file", "", "ending in .safetensors"),
        ("file", "x\0.safetensors", "expected the path"),
        ("file", None, "expected the path"),
        ("file", "checkpoints/none.safetensors", "there is no file"),
        ("step", -1, "step is -1, expected a whole number"),
        ("step", 1.5, "step is 1.5, expected a whole number"),
        ("step", True, "step is True, expected a whole number"),
        ("win_rate_vs_random", 1.01, "expected a number from 0 to 1"),
        ("win_rate_vs_random", "0.9", "expected a finite number"),
        ("win_rate_vs_random", 10**400, "expected a finite number"),
        ("win_rate_vs_random", None, "expected a finite number"),
        ("label", "expert", "expected one of Beginner, Novice, Intermediate, Advanced, Expert"),
        ("label", ["Expert"], "expected one of Beginner"),
        ("timestamp", "yesterday", "expected ISO 8601 in UTC"),
        ("timestamp", "2026-01-31T12:00:00", "expected ISO 8601 in UTC"),
        ("timestamp", "2026-01-31T12:00:00+02:00", "expected ISO 8601 in UTC"),
        ("timestamp", 5, "expected ISO 8601 in UTC"),
        ("rating", 900, "rating 900.0 is not between 790.0 and 840.0"),
        ("rating", None, "must be given together"),
        ("rating_low", "low", "expected a finite number"),
        ("oracle_score", -0.1, "expected a number from 0 to 1"),
        ("simulations", -5, "expected a whole number"),
        ("sha256", "abc", "expected 64 hexadecimal digits"),
        ("sha256", "0" * 64, "the file's sha256 is"),
        ("elo", 5, "unknown field 'elo'"),
    ],
)
def test_a_bad_field_is_refused_with_entry_and_reason(
    tmp_path: Path, field: str, value: Any, reason: str
) -> None:
    path = write(tmp_path, GOOD, GOOD | {field: value})
    with pytest.raises(CheckpointError) as caught:
        Manifest.read(path)
    assert str(caught.value).startswith(f"{path}: entry 2 (")
    assert reason in str(caught.value)


@pytest.mark.parametrize("field", list(GOOD)[:5])
def test_a_missing_field_is_refused(tmp_path: Path, field: str) -> None:
    path = write(tmp_path, {name: value for name, value in GOOD.items() if name != field})
    with pytest.raises(CheckpointError, match=rf"entry 1 .*'{field}' is missing"):
        Manifest.read(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ('{"version": 1, "checkpoints": [', "not valid JSON"),
        ('{"version": 1, "checkpoints": NaN}', "NaN is no JSON number"),
        ('{"version": 1, "version": 1, "checkpoints": []}', "a key stands twice"),
        ('{"version": 2, "checkpoints": []}', "version is 2, this program reads 1"),
        ('{"version": 1, "checkpoints": {}}', "'checkpoints' must be a list"),
        ('{"version": 1, "checkpoints": [7]}', r"entry 1 \(7\): an entry must be an object"),
        ('{"version": 1}', "expected an object with"),
        ("[]", "expected an object with .* found list"),
        ("\xff", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=reason):
        Manifest.read(path)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(CONTENT)
    run = tmp_path / "run"
    run.mkdir()
    (run / "link.safetensors").symlink_to("../secret.safetensors")
    with pytest.raises(CheckpointError, match="leaves the manifest's folder by a link"):
        Manifest.read(write(run, GOOD | {"file": "link.safetensors"}))


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="more than one entry is called step_000000100"):
        Manifest.read(write(tmp_path, GOOD, GOOD))


def test_a_missing_manifest_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"could not read .*nowhere\.json"):
        Manifest.read(tmp_path / "nowhere.json")


def test_a_level_is_found_by_label_name_and_file(tmp_path: Path) -> None:
    def rated(step: int, label: str, rating: float | None) -> ManifestEntry:
        return ManifestEntry(
            **(GOOD | {"file": f"c/s{step}.safetensors", "step": step, "label": label})
            | {"rating": rating, "rating_low": rating, "rating_high": rating}
        )

    entries = [rated(1, "Beginner", None), rated(2, "Expert", 1500), rated(3, "Expert", 1490)]
    manifest = Manifest(tmp_path / "manifest.json", (*entries, rated(4, "Beginner", None)))
    assert manifest.level("s3").step == manifest.level("c/s3.safetensors").step == 3
    assert manifest.level("Expert").step == 2, "the better rated one"
    assert manifest.level("expert").step == 2
    assert manifest.level("BEGINNER").step == 4, "the latest, where none is rated"
    with pytest.raises(CheckpointError, match="no level 'Novice': expected one of Beginner, Exp"):
        manifest.level("Novice")


def test_one_network_may_be_several_levels(tmp_path: Path) -> None:
    levels = [
        GOOD | {"simulations": count, "rating": rating, "rating_low": 0.0, "rating_high": 9999.0}
        for count, rating in ((64, 1500.0), (0, 900.0), (16, 1200.0))
    ]
    manifest = Manifest.read(write(tmp_path, *levels))
    names = [manifest.name_of(entry) for entry in manifest.checkpoints]
    assert names == ["step_000000100@0", "step_000000100@16", "step_000000100@64"]
    assert [manifest.level(name).simulations for name in names] == [0, 16, 64]
    assert manifest.level("step_000000100").simulations == 64, "the strongest"
    with pytest.raises(CheckpointError, match="more than one entry is called step_000000100@16"):
        Manifest.read(write(tmp_path, *levels, levels[2]))


def test_labels_go_from_weak_to_strong() -> None:
    assert LABELS == ("Beginner", "Novice", "Intermediate", "Advanced", "Expert")


def test_metadata_reads_back_as_written(tmp_path: Path) -> None:
    metadata = RunMetadata(facts={"command": "train", "seed": 3})
    metadata.add_elo(0, 1000)
    metadata.add_elo(500, 1033.25, member="ep_000500")
    metadata.write(tmp_path / "metadata.json")
    assert RunMetadata.read(tmp_path / "metadata.json") == metadata
    assert metadata.elo_history[1] == {"step": 500, "elo": 1033.25, "member": "ep_000500"}


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([{"step": 1}], "entry 1: expected an object with 'step' and 'elo'"),
        ([{"step": 1, "elo": 5}, {"step": "1", "elo": 5}], "entry 2: step is '1'"),
        ([{"step": 1, "elo": None}], "entry 1: elo is None"),
        ([3], "entry 1: expected an object"),
        ({}, "'elo_history' must be a list"),
    ],
)
def test_bad_metadata_is_refused(tmp_path: Path, history: Any, reason: str) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps({"version": 1, "elo_history": history, "facts": {}}))
    with pytest.raises(CheckpointError, match=reason):
        RunMetadata.read(path)


def test_what_json_lacks_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    with pytest.raises(CheckpointError, match=r"metadata\.json"):
        RunMetadata(facts={"loss": float("nan")}).write(path)
    with pytest.raises(CheckpointError, match="elo is nan"):
        RunMetadata().add_elo(1, float("nan"))
    assert not path.exists()


def test_listing_levels_needs_no_torch() -> None:
    program = "import sys, trainers.manifest; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[1])


def test_labels_follow_ratings() -> None:
    assert [label_of(elo) for elo in (-50, 600, 900, 1200, 1400)] == list(LABELS)


def test_entries_are_rated_by_step_and_the_others_stay(tmp_path: Path) -> None:
    first, second = entry(step=1), entry(step=2, file="two.safetensors")
    rated = Manifest(tmp_path / "manifest.json", (first, second)).with_ratings(
        {2: (900.0, 800.0, 1000.0), 7: (1.0, 0.0, 2.0)}
    )
    assert rated.checkpoints[0] == first
    assert rated.checkpoints[1] == replace(
        second, label="Intermediate", rating=900.0, rating_low=800.0, rating_high=1000.0
    )
