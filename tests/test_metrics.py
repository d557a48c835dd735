"""Metrics: what the loops emit, checked, and read back from every place it is written to."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import math
import re
import struct
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from pylos_env import Position, Rules, read_games
from pylos_env.testing import random_game
from trainers.metrics import (
    TAGS,
    Begin,
    CsvSink,
    Event,
    Finish,
    Game,
    GamesSink,
    MemorySink,
    Message,
    Metrics,
    MetricsError,
    Picture,
    PlainConsole,
    Scalars,
    TensorBoardSink,
    WandbSink,
    console_sink,
    open_metrics,
)
from trainers.metrics.live import LiveConsole
from trainers.metrics.tags import MARGINS, layout

# by name, because TensorBoard has no types
event_accumulator, server_accumulator, tensor_util, layout_pb2, plugin_data_pb2 = (
    importlib.import_module(f"tensorboard.{name}")
    for name in (
        "backend.event_processing.event_accumulator",
        "backend.event_processing.plugin_event_accumulator",
        "util.tensor_util",
        "plugins.custom_scalar.layout_pb2",
        "plugins.hparams.plugin_data_pb2",
    )
)

GLOSSARY = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
PPO_TAGS = [
    "train/policy_loss",
    "train/value_loss",
    "train/entropy",
    "train/clip_fraction",
    "train/approx_kl",
    "train/explained_variance",
    "train/learning_rate",
    "eval/win_rate_vs_rule_based",
    "eval/avg_episode_reward",
    "eval/draw_rate",
    "eval/oracle_preserving",
    "league/current_elo",
    "league/best_elo",
    "league/pool_size",
    "env/episode_length",
    "perf/steps_per_second",
]


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def of_kind(events: Sequence[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# The table of tags and the glossary


def glossary_rows() -> dict[str, list[str]]:
    """Cells of each row of the glossary, by tag."""
    found: dict[str, list[str]] = {}
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\| `([a-z]+/[a-z_]+)` \|", line)
        if match:
            assert match[1] not in found, f"{match[1]} is explained twice"
            found[match[1]] = [cell.strip() for cell in line.strip("|").split("|")]
    return found


def test_the_glossary_explains_every_tag() -> None:
    assert set(TAGS) - set(glossary_rows()) == set()


def test_the_glossary_names_no_tag_that_does_not_exist() -> None:
    named = set(re.findall(r"`([a-z]+/[a-z_]+)`", GLOSSARY.read_text(encoding="utf-8")))
    assert named - set(TAGS) == set()


@pytest.mark.parametrize("tag", TAGS)
def test_the_glossary_says_what_the_table_says(tag: str) -> None:
    _, unit, meaning, good, bad = glossary_rows()[tag]
    assert unit == (TAGS[tag].unit or TAGS[tag].kind)
    assert meaning == TAGS[tag].meaning
    assert good
    assert bad


def test_the_tags_of_ppo_are_there_by_name() -> None:
    assert [tag for tag in PPO_TAGS if tag not in TAGS or TAGS[tag].kind != "scalar"] == []


def test_scalars_have_a_unit_and_nothing_else_has() -> None:
    for tag in TAGS.values():
        assert bool(tag.unit) == (tag.kind == "scalar")
        assert tag.kind == "scalar" or not (tag.main or tag.result or tag.chart)


def test_a_chart_selects_exactly_its_own_tags() -> None:
    for charts in layout().values():
        for kind, patterns in charts.values():
            for pattern in patterns if kind == "Multiline" else []:
                matching = [tag for tag in TAGS if re.match(pattern, tag)]
                assert [f"^{tag}$" for tag in matching] == [pattern]
    assert all(tag in TAGS for tags in MARGINS.values() for tag in tags)


# What the loops may emit


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("train/polcy_loss", "train/policy_loss"),
        ("policy_loss", "train/policy_loss"),
        ("eval/win_rate_vs_rulebased", "eval/win_rate_vs_rule_based"),
    ],
)
def test_an_unknown_tag_is_refused_with_the_near_ones(wrong: str, near: str) -> None:
    sink = MemorySink()
    with (
        Metrics([sink]) as metrics,
        pytest.raises(MetricsError, match=rf"'{wrong}'.*did you mean.*{near}"),
    ):
        metrics.scalars(1, {"train/loss": 1, wrong: 2})
    assert sink.events == []


def test_a_tag_unlike_any_other_is_refused_too() -> None:
    with Metrics([]) as metrics, pytest.raises(MetricsError, match="unknown tag 'zzzz': trainers"):
        metrics.scalars(1, {"zzzz": 2})


def test_a_tag_takes_only_its_own_kind() -> None:
    with Metrics([]) as metrics:
        with pytest.raises(MetricsError, match="sample/position is a picture, not a scalar"):
            metrics.scalars(1, {"sample/position": 2})
        with pytest.raises(MetricsError, match="eval/rating is a scalar, not a game"):
            metrics.game(1, "eval/rating", random_game("advanced", 1))
        with pytest.raises(MetricsError, match="sample/position takes a Position, got 'w'"):
            metrics.picture(1, "sample/position", "w")  # type: ignore[arg-type]


def test_numbers_of_every_make_become_floats() -> None:
    sink = MemorySink()
    with Metrics([sink]) as metrics:
        metrics.scalars(
            np.int64(3),  # type: ignore[arg-type]
            {
                "gate/accepted": True,
                "league/pool_size": 4,
                "train/loss": np.float32(0.5),
                "train/entropy": np.array(1.5),
                "train/value_loss": torch.tensor(0.25),
            },
        )
    (event,) = of_kind(sink.events, Scalars)
    assert list(event.values.values()) == [1.0, 4.0, 0.5, 1.5, 0.25]
    assert {type(value) for value in event.values.values()} == {float}
    assert type(event.step) is int


@pytest.mark.parametrize("value", ["0.5", None, [1.0], np.array([1.0]), np.zeros(3), 1j])
def test_what_is_not_one_number_is_refused(value: Any) -> None:
    with Metrics([]) as metrics, pytest.raises(MetricsError, match="train/loss takes one number"):
        metrics.scalars(1, {"train/loss": value})


@pytest.mark.parametrize("step", [-1, 1.5, True, "3", None])
def test_a_step_is_a_whole_number(step: Any) -> None:
    with Metrics([]) as metrics, pytest.raises(ValueError, match="a step must be a whole number"):
        metrics.scalars(step, {"train/loss": 1})


def test_steps_never_go_back() -> None:
    sink = MemorySink()
    with Metrics([sink]) as metrics:
        metrics.scalars(7, {"train/loss": 1})
        metrics.scalars(7, {"eval/rating": 1})
        with pytest.raises(MetricsError, match="step 6 after step 7"):
            metrics.scalars(6, {"train/loss": 1})
    assert [event.step for event in sink.events] == [7, 7]


@pytest.mark.parametrize("step", [0, 9, 10])
def test_a_resumed_run_refuses_steps_that_are_recorded(step: int) -> None:
    with Metrics([], resume=10) as metrics:
        with pytest.raises(MetricsError, match=f"step {step} is recorded.*after step 10"):
            metrics.scalars(step, {"train/loss": 1})
        metrics.scalars(11, {"train/loss": 1})


def test_every_event_reaches_every_sink_in_order_with_its_time() -> None:
    first, second, clock = MemorySink(), MemorySink(), Clock(5.0)
    game = random_game("advanced", 1)
    with Metrics([first, second], clock=clock) as metrics:
        metrics.begin({"seed": 3})
        metrics.scalars(2, {"train/loss": 0.5})
        clock.now = 6.0
        metrics.picture(2, "sample/position", game.end)
        metrics.game(3, "sample/selfplay", game)
        metrics.message("saved")
        metrics.finish({"eval/rating": 912})
    assert first.events == second.events
    assert first.closed
    assert second.closed
    assert first.events == [
        Begin(0, 5.0, {"seed": 3}),
        Scalars(2, 5.0, {"train/loss": 0.5}),
        Picture(2, 6.0, "sample/position", game.end),
        Game(3, 6.0, "sample/selfplay", game),
        Message(3, 6.0, "saved"),
        Finish(3, 6.0, {"eval/rating": 912.0}),
    ]


def test_nothing_is_emitted_for_no_numbers_or_after_closing() -> None:
    sink = MemorySink()
    metrics = Metrics([sink])
    metrics.scalars(1, {})
    metrics.close()
    metrics.close()
    with pytest.raises(MetricsError, match="closed"):
        metrics.message("too late")
    assert sink.events == []


def test_nested_settings_get_dotted_names() -> None:
    sink = MemorySink()
    with Metrics([sink]) as metrics:
        metrics.begin({"search": {"root": {"noise": 0.3}, "reuse": True}, "seed": None, "a": [1]})
    (event,) = of_kind(sink.events, Begin)
    assert event.settings == {
        "search.root.noise": 0.3,
        "search.reuse": True,
        "seed": "None",
        "a": "[1]",
    }


def test_only_results_can_be_final() -> None:
    with Metrics([]) as metrics:
        with pytest.raises(MetricsError, match=r"train/loss is no final result.*eval/rating"):
            metrics.finish({"train/loss": 1})
        with pytest.raises(MetricsError, match="did you mean eval/rating"):
            metrics.finish({"eval/ratings": 1})


def test_a_number_that_is_not_finite_is_recorded_and_reported_when_it_turns_so() -> None:
    sink = MemorySink()
    with Metrics([sink]) as metrics:
        for step, loss in enumerate([1.0, math.nan, math.nan, 2.0, -math.inf]):
            metrics.scalars(step, {"train/loss": loss})
            metrics.scalars(step, {"train/entropy": 1.0})
    losses = [
        e.values["train/loss"]
        for e in of_kind(sink.events, Scalars)
        if len(e.values) == 1 and "train/loss" in e.values
    ]
    assert np.array_equal(losses, [1.0, math.nan, math.nan, 2.0, -math.inf], equal_nan=True)
    assert [event.text for event in of_kind(sink.events, Message)] == [
        "warning: train/loss is nan at step 1",
        "warning: train/loss is -inf at step 4",
    ]


class BrokenSink(MemorySink):
    def write(self, event: Event) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        super().close()
        raise OSError(28, "No space left on device")


def test_a_sink_that_fails_is_named_and_the_others_are_closed() -> None:
    before, broken, after = MemorySink(), BrokenSink(), MemorySink()
    metrics = Metrics([before, broken, after])
    with pytest.raises(OSError, match="No space left") as caught:
        metrics.scalars(1, {"train/loss": 1})
    assert caught.value.__notes__ == ["raised by the metrics' BrokenSink"]
    with pytest.raises(OSError, match="No space left"):
        metrics.close()
    assert [sink.closed for sink in (before, broken, after)] == [True, True, True]


# CSV


def rows(path: Path) -> list[tuple[int, str, float]]:
    with path.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    return [(int(row["step"]), row["tag"], float(row["value"])) for row in read]


def test_csv_has_a_row_for_every_number(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.csv"
    with Metrics([CsvSink(path)], clock=Clock(1.25)) as metrics:
        metrics.begin({"seed": 1})
        metrics.scalars(1, {"train/loss": 0.1, "train/entropy": 1 / 3})
        metrics.message("hello")
        metrics.scalars(2, {"eval/rating": 912})
        metrics.finish({"eval/rating": 950})
    assert rows(path) == [
        (1, "train/loss", 0.1),
        (1, "train/entropy", 1 / 3),
        (2, "eval/rating", 912),
        (2, "final/eval/rating", 950),
    ]
    assert path.read_text().splitlines()[:2] == ["step,time,tag,value", "1,1.250,train/loss,0.1"]


def test_csv_stays_readable_with_numbers_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    with Metrics([CsvSink(path)]) as metrics:
        metrics.scalars(
            1, {"train/loss": math.nan, "train/entropy": math.inf, "train/approx_kl": -math.inf}
        )
    assert np.array_equal(
        [value for _, _, value in rows(path)], [math.nan, math.inf, -math.inf], equal_nan=True
    )


def test_csv_has_each_event_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    with Metrics([CsvSink(path)]) as metrics:
        metrics.scalars(1, {"train/loss": 2})
        assert rows(path) == [(1, "train/loss", 2)]


def test_a_resumed_csv_drops_later_rows_and_takes_new_tags(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    with Metrics([CsvSink(path)]) as metrics:
        for step in range(6):
            metrics.scalars(step, {"train/loss": step})
    with Metrics([CsvSink(path, resume=3)], resume=3) as metrics:
        metrics.scalars(4, {"train/loss": 40, "eval/rating": 1})
    assert rows(path) == [
        *((step, "train/loss", step) for step in range(4)),
        (4, "train/loss", 40),
        (4, "eval/rating", 1),
    ]
    assert path.read_text().count("step,time") == 1


@pytest.mark.parametrize("torn", ["3", "3,17.0,train/lo", "3,17.0,train/loss,0.12", "step,ti"])
def test_a_resumed_csv_drops_a_row_without_its_end(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "metrics.csv"
    whole = "" if torn.startswith("step") else "step,time,tag,value\n2,16.0,train/loss,0.5\n"
    path.write_text(whole + torn)
    CsvSink(path, resume=5).close()
    assert path.read_text() == (whole or "step,time,tag,value\n")


def test_a_resumed_run_without_a_csv_begins_one(tmp_path: Path) -> None:
    CsvSink(tmp_path / "metrics.csv", resume=5).close()
    assert rows(tmp_path / "metrics.csv") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n1,2,3\n", "no file of metrics: expected the header step,time,tag,value"),
        ("step,time,tag,value\n1,2.0,train/loss,3\nrubbish\n", "line 3: expected .* got b'rubb"),
        ("step,time,tag,value\nx,2.0,train/loss,3\n", "line 2"),
    ],
)
def test_a_csv_that_cannot_be_continued_is_refused_and_left_alone(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    with pytest.raises(MetricsError, match=message):
        CsvSink(path, resume=5)
    assert path.read_text() == text


def test_games_are_files_and_a_resumed_run_drops_later_ones(tmp_path: Path) -> None:
    record = random_game(Rules.of("advanced"), 5)
    with Metrics([GamesSink(tmp_path / "games")]) as metrics:
        for step in (3, 40):
            metrics.game(step, "sample/selfplay", record)
            metrics.game(step, "sample/evaluation", record)
            metrics.scalars(step, {"train/loss": 1})
    names = [f"step_{step}_{kind}.txt" for step in ("000000003", "000000040") for kind in KINDS]
    assert sorted(path.name for path in (tmp_path / "games").iterdir()) == names
    assert read_games(tmp_path / "games" / names[0]) == [record]
    (tmp_path / "games" / "notes.txt").write_text("mine")
    with pytest.raises(MetricsError, match=r"games.step_.*exists: it belongs to another run"):
        GamesSink(tmp_path / "games")
    GamesSink(tmp_path / "games", resume=39).close()
    assert sorted(path.name for path in (tmp_path / "games").iterdir()) == ["notes.txt", *names[:2]]


KINDS = ("evaluation", "selfplay")


def test_a_new_run_never_writes_into_anothers_files(tmp_path: Path) -> None:
    open_metrics(tmp_path, console="off").close()
    with pytest.raises(MetricsError, match=r"metrics\.csv exists"):
        CsvSink(tmp_path / "metrics.csv")
    with pytest.raises(MetricsError, match="events of another run"):
        TensorBoardSink(tmp_path)


@pytest.mark.parametrize("resume", [-1, 2.5, "4"])
def test_a_bad_step_to_resume_from_is_refused_before_anything_is_cut(
    tmp_path: Path, resume: Any
) -> None:
    path = tmp_path / "metrics.csv"
    with Metrics([CsvSink(path)]) as metrics:
        metrics.scalars(1, {"train/loss": 2})
    before = path.read_text()
    with pytest.raises(ValueError, match="resume, unless None, must be a whole number"):
        CsvSink(path, resume=resume)
    with pytest.raises(ValueError, match="resume"):
        open_metrics(tmp_path, resume=resume)
    assert path.read_text() == before


# A full disk


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow past `size` bytes: the same error path as a full disk."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", [CsvSink, TensorBoardSink])
def test_a_full_disk_is_raised_by_the_event_that_meets_it(tmp_path: Path, kind: Any) -> None:
    sink = kind(tmp_path / "metrics")
    metrics = Metrics([sink])

    def write_on() -> None:
        for step in range(10_000):
            metrics.scalars(step, {"train/loss": step})
            metrics.flush()

    with file_size_limit(20_000), pytest.raises(OSError, match="File too large") as caught:
        write_on()
    assert caught.value.__notes__ == [f"raised by the metrics' {kind.__name__}"]
    metrics.close()


@pytest.mark.parametrize("kind", [CsvSink, TensorBoardSink])
def test_a_full_disk_is_raised_by_closing_if_not_before(tmp_path: Path, kind: Any) -> None:
    sink = kind(tmp_path / "metrics")
    sink._file.write("x" * 3_000 if kind is CsvSink else b"x" * 3_000)
    with file_size_limit(100), pytest.raises(OSError, match="File too large"):
        Metrics([sink]).close()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(OSError, match="run"):
        open_metrics(tmp_path / "run", console="off")


# TensorBoard


def events_of(folder: Path) -> Any:
    """TensorBoard's own reader over everything in a folder."""
    reader = event_accumulator.EventAccumulator(
        str(folder), size_guidance=dict.fromkeys(("scalars", "images", "tensors"), 0)
    )
    reader.Reload()
    return reader


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events_of(folder).Scalars(tag)]


def server_curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    """The same through the reader of TensorBoard's server, which has rules of its own."""
    reader = server_accumulator.EventAccumulator(str(folder))
    reader.Reload()
    return [
        (event.step, float(tensor_util.make_ndarray(event.tensor_proto)))
        for event in reader.Tensors(tag)
    ]


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A folder for event files that does not exist yet."""
    return tmp_path / "run"


def test_tensorboard_scalars_read_back_with_their_meaning(board: Path) -> None:
    with Metrics([TensorBoardSink(board)], clock=Clock(77.5)) as metrics:
        metrics.scalars(1, {"train/loss": 0.5, "train/entropy": 2})
        metrics.scalars(5, {"train/loss": math.nan})
    reader = events_of(board)
    assert [(e.wall_time, e.step) for e in reader.Scalars("train/loss")] == [(77.5, 1), (77.5, 5)]
    values = [event.value for event in reader.Scalars("train/loss")]
    assert values[0] == 0.5
    assert math.isnan(values[1])
    assert curve(board, "train/entropy") == [(1, 2.0)]
    described = reader.SummaryMetadata("train/entropy").summary_description
    assert described == f"{TAGS['train/entropy'].meaning} (nats)"


def test_tensorboard_pictures_show_the_board(board: Path) -> None:
    end = random_game("advanced", 1).end
    with Metrics([TensorBoardSink(board)]) as metrics:
        metrics.picture(4, "sample/position", end)
    (event,) = events_of(board).Images("sample/position")
    pixels = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
    assert event.step == 4
    assert np.array_equal(pixels, Picture(4, 0.0, "sample/position", end).pixels())


def test_tensorboard_shows_games_and_messages_as_they_are(board: Path) -> None:
    game = random_game("mature", 2)
    with Metrics([TensorBoardSink(board)]) as metrics:
        metrics.game(3, "sample/selfplay", game)
        metrics.message("saved *step* <3>")
    reader = events_of(board)

    def text(tag: str) -> str:
        (event,) = reader.Tensors(f"{tag}/text_summary")
        lines = event.tensor_proto.string_val[0].decode().splitlines()
        assert all(line.startswith("    ") for line in lines), "Markdown would change the rest"
        return "\n".join(line[4:] for line in lines)

    assert text("sample/selfplay") == str(game).rstrip("\n")
    assert text("log/message") == "saved *step* <3>"


def test_tensorboard_has_a_page_of_charts_with_the_rating_as_a_margin(board: Path) -> None:
    TensorBoardSink(board).close()
    (event,) = events_of(board).Tensors("custom_scalars__config__")
    page = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    charts = {chart.title: chart for category in page.category for chart in category.chart}
    (series,) = charts["Rating with its interval"].margin.series
    assert (series.value, series.lower, series.upper) == (
        "eval/rating",
        "eval/rating_low",
        "eval/rating_high",
    )
    assert list(charts["Losses"].multiline.tag) == [
        "^train/loss$",
        "^train/policy_loss$",
        "^train/value_loss$",
    ]


def hparams_data(folder: Path, tag: str) -> Any:
    metadata = events_of(folder).SummaryMetadata(f"_hparams_/{tag}")
    assert metadata.plugin_data.plugin_name == "hparams"
    return plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)


def test_tensorboard_has_settings_and_final_results_in_the_run_folder_itself(board: Path) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        metrics.begin({"search": {"simulations": 64, "gumbel": True}, "network": "resmlp"})
        metrics.scalars(9, {"eval/rating": 900})
        metrics.finish({"eval/rating": 912, "eval/win_rate_vs_random": 0.75})
    start = hparams_data(board, "session_start_info").session_start_info
    assert start.hparams["search.simulations"].number_value == 64
    assert start.hparams["search.gumbel"].bool_value is True
    assert start.hparams["network"].string_value == "resmlp"
    experiment = hparams_data(board, "experiment").experiment
    assert [info.name for info in experiment.hparam_infos] == [
        "search.simulations",
        "search.gumbel",
        "network",
    ]
    shown = [metric.name.tag for metric in experiment.metric_infos]
    assert shown == [f"final/{tag}" for tag in TAGS if TAGS[tag].result]
    assert hparams_data(board, "session_end_info").session_end_info.status == 1
    assert curve(board, "final/eval/rating") == [(9, 912.0)]
    assert curve(board, "final/eval/win_rate_vs_random") == [(9, 0.75)]
    assert curve(board, "eval/rating") == [(9, 900.0)]
    assert [path for path in board.iterdir() if path.is_dir()] == []


def write_losses(metrics: Metrics, steps: range, offset: int = 0) -> None:
    for step in steps:
        metrics.scalars(step, {"train/loss": offset + step})


def test_a_resumed_tensorboard_run_shows_no_step_twice(board: Path) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        write_losses(metrics, range(10))
        metrics.scalars(10, {"eval/rating": 1})
    with Metrics([TensorBoardSink(board, resume=4)], resume=4) as metrics:
        write_losses(metrics, range(5, 8), offset=100)
    expected = [*((step, step) for step in range(5)), (5, 105), (6, 106), (7, 107)]
    assert curve(board, "train/loss") == expected
    assert server_curve(board, "train/loss") == expected
    assert "eval/rating" not in events_of(board).Tags()["scalars"]


@pytest.mark.parametrize(
    "torn",
    [
        b"\1",
        b"\xff" * 40,
        struct.pack("<Q", 24) + b"crc.half of",
        struct.pack("<Q", 4) + b"crc.data",
    ],
)
def test_a_record_without_its_end_is_cut_off(board: Path, torn: bytes) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        write_losses(metrics, range(3))
    (path,) = board.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with Metrics([TensorBoardSink(board, resume=5)], resume=5) as metrics:
        write_losses(metrics, range(6, 8))
    assert path.read_bytes() == whole
    expected = [(step, step) for step in (0, 1, 2, 6, 7)]
    assert curve(board, "train/loss") == expected
    assert server_curve(board, "train/loss") == expected


def test_a_tensorboard_run_can_be_resumed_again_and_from_further_back(board: Path) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        write_losses(metrics, range(10))
    with Metrics([TensorBoardSink(board, resume=8)], resume=8) as metrics:
        write_losses(metrics, range(9, 14), offset=100)
    with Metrics([TensorBoardSink(board, resume=2)], resume=2) as metrics:
        write_losses(metrics, range(3, 5), offset=200)
    expected = [(0, 0), (1, 1), (2, 2), (3, 203), (4, 204)]
    assert curve(board, "train/loss") == expected
    assert server_curve(board, "train/loss") == expected


def test_a_server_that_has_read_the_old_steps_drops_them(board: Path) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        write_losses(metrics, range(10))
    reader = server_accumulator.EventAccumulator(str(board))
    reader.Reload()
    assert [event.step for event in reader.Tensors("train/loss")] == list(range(10))
    with Metrics([TensorBoardSink(board, resume=4)], resume=4) as metrics:
        write_losses(metrics, range(5, 7))
    reader.Reload()
    assert [event.step for event in reader.Tensors("train/loss")] == list(range(7))


def test_a_resumed_file_comes_after_one_that_a_wrong_clock_has_dated_ahead(board: Path) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        write_losses(metrics, range(3))
    (path,) = board.iterdir()
    ahead = path.rename(board / "events.out.tfevents.9999999998.host.1.0")
    TensorBoardSink(board, resume=1).close()
    assert ahead == min(board.iterdir())


def test_a_damaged_event_file_is_refused_by_name(board: Path) -> None:
    with Metrics([TensorBoardSink(board)]) as metrics:
        write_losses(metrics, range(3))
    (path,) = board.iterdir()
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    data[12 : 12 + length] = b"\xff" * length
    path.write_bytes(data)
    with pytest.raises(MetricsError, match=f"{path.name} is damaged at byte 0"):
        TensorBoardSink(board, resume=1)
    assert path.read_bytes() == data


def test_what_was_flushed_survives_a_kill(board: Path) -> None:
    code = """if True:
        import os, sys
        from trainers.metrics import open_metrics
        metrics = open_metrics(sys.argv[1], console="off")
        for step in range(50):
            metrics.scalars(step, {"train/loss": step})
        metrics.flush()
        os.kill(os.getpid(), 9)
    """
    command = [sys.executable, "-c", code, str(board)]
    done = subprocess.run(command, cwd=GLOSSARY.parent.parent, check=False)
    assert done.returncode == -9
    expected = [(step, float(step)) for step in range(50)]
    assert curve(board, "train/loss") == expected
    assert [(step, value) for step, _, value in rows(board / "metrics.csv")] == expected


# The console


def plain(interval: float = 0.0) -> tuple[Metrics, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return Metrics([PlainConsole(stream, interval, clock)]), stream, clock


def test_plain_lines_are_pairs_of_tag_and_value_in_the_order_of_the_table() -> None:
    metrics, stream, clock = plain()
    clock.now = 1.5
    metrics.scalars(
        3, {"perf/steps_per_second": 123456.7, "train/loss": 0.25, "perf/progress": 0.5}
    )
    assert stream.getvalue() == (
        "step=3 elapsed=1.5 train/loss=0.25 perf/steps_per_second=123457 perf/progress=0.5\n"
    )


def test_plain_lines_come_once_an_interval_with_the_newest_of_each_figure() -> None:
    metrics, stream, clock = plain(interval=10)
    for second in range(0, 25, 5):
        clock.now = second
        metrics.scalars(second, {"train/loss": second})
        if second == 5:
            metrics.scalars(second, {"eval/rating": 700})
    lines = stream.getvalue().splitlines()
    assert lines == [
        "step=0 elapsed=0.0 train/loss=0",
        "step=10 elapsed=10.0 train/loss=10 eval/rating=700",
        "step=20 elapsed=20.0 train/loss=20",
    ]


def test_what_waits_for_its_line_is_printed_at_the_end() -> None:
    metrics, stream, _ = plain(interval=10)
    metrics.scalars(1, {"train/loss": 1})
    metrics.scalars(2, {"train/loss": 2})
    metrics.finish({"eval/rating": 912})
    metrics.close()
    assert stream.getvalue().splitlines()[1:] == [
        "step=2 elapsed=0.0 train/loss=2",
        "finished step=2 final/eval/rating=912",
    ]


def test_plain_lines_leave_out_side_figures_but_not_that_one_is_not_finite() -> None:
    metrics, stream, _ = plain()
    metrics.scalars(1, {"train/grad_norm": 1})
    assert stream.getvalue() == ""
    metrics.scalars(2, {"train/grad_norm": math.nan, "train/loss": math.inf})
    assert stream.getvalue().splitlines() == [
        "step=2 elapsed=0.0 train/loss=inf",
        "warning: train/grad_norm is nan at step 2",
        "warning: train/loss is inf at step 2",
    ]


def test_messages_are_printed_at_once() -> None:
    metrics, stream, _ = plain(interval=1000)
    metrics.message("saved [step 1]")
    assert stream.getvalue() == "saved [step 1]\n"


def live() -> tuple[Metrics, io.StringIO, Clock]:
    output, clock = io.StringIO(), Clock()
    console = Console(
        file=output, force_terminal=True, width=120, height=50, color_system="standard"
    )
    return Metrics([LiveConsole(console, clock)]), output, clock


def test_the_live_display_shows_main_figures_progress_and_time_left() -> None:
    metrics, output, clock = live()
    with metrics:
        clock.now = 75
        metrics.scalars(
            1200,
            {
                "train/loss": 0.8132,
                "train/grad_norm": 0.777,
                "eval/win_rate_vs_random": 0.991,
                "eval/rating": 912.4,
                "perf/simulations_per_second": 197_000,
                "perf/progress": 0.25,
                "perf/minutes_left": 90.5,
            },
        )
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
    last = shown[shown.rindex("step 1,200") :]
    for text in ("1:15 elapsed", "25%", "1:30:30 left", "train", "eval", "perf"):
        assert text in last
    for pattern in (
        r"loss +0\.8132",
        r"win rate vs random +99\.1%",
        r"rating +912",
        r"simulations per second +197,000 /s",
    ):
        assert re.search(pattern, last), pattern
    assert "grad norm" not in last


def test_the_live_display_shows_what_is_not_finite_in_red() -> None:
    metrics, output, _ = live()
    with metrics:
        metrics.scalars(1, {"train/grad_norm": math.nan, "perf/progress": math.nan})
    assert re.search(r"\x1b\[1;31mgrad norm *\x1b\[0m.*\x1b\[1;31m *nan", output.getvalue())
    assert "warning: train/grad_norm is nan at step 1" in output.getvalue()


def test_messages_scroll_by_above_the_live_display_untouched() -> None:
    metrics, output, _ = live()
    long = "[bold]saved[/bold] " + "x" * 200
    with metrics:
        metrics.message(long)
        metrics.finish({"eval/rating": 912})
    assert long in output.getvalue()
    assert "finished step=0 final/eval/rating=912" in output.getvalue()
    assert output.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"


def test_without_a_terminal_the_console_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert isinstance(console_sink(), PlainConsole)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(console_sink(), PlainConsole)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(console_sink("plain"), PlainConsole)
    sink = console_sink()
    sink.close()
    assert isinstance(sink, LiveConsole)


@pytest.mark.parametrize("mode", ["lively", "", "on"])
def test_an_unknown_console_is_refused_before_any_file_is_made(tmp_path: Path, mode: Any) -> None:
    with pytest.raises(MetricsError, match="unknown console"):
        console_sink(mode)
    with pytest.raises(MetricsError, match=r"unknown console.*auto, live, plain or off"):
        open_metrics(tmp_path / "run", console=mode)
    assert list(tmp_path.iterdir()) == []


# Weights & Biases


class FakeRun:
    """What WandbSink uses of a run; like the real one it refuses steps that go back."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.config: Any = types.SimpleNamespace(update=self._configure)
        self.summary: dict[str, float] = {}
        self.settings: dict[str, Any] = {}
        self.exit_code: int | None = None

    def _configure(self, settings: dict[str, Any], allow_val_change: bool) -> None:
        assert allow_val_change
        self.settings |= settings

    def log(self, values: dict[str, Any], step: int) -> None:
        assert step >= self.step
        self.step = step
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


class FakeWandb(types.ModuleType):
    """The module `wandb`, as far as WandbSink uses it."""

    def __init__(self, step: int = 0) -> None:
        super().__init__("wandb")
        self.run = FakeRun(step)
        self.options: dict[str, Any] = {}

    def init(self, **options: Any) -> FakeRun:
        self.options = options
        return self.run

    def Image(self, pixels: Any) -> tuple[str, tuple[int, ...]]:
        return "image", pixels.shape

    def Html(self, page: str) -> tuple[str, str]:
        return "html", page


def test_wandb_gets_everything_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    game = random_game("advanced", 1)
    folder = tmp_path / "first"
    with open_metrics(
        folder, csv=False, tensorboard=False, console="off", wandb_project="pylos"
    ) as metrics:
        metrics.begin({"search": {"simulations": 64}})
        metrics.scalars(1, {"train/loss": math.nan})
        metrics.picture(2, "sample/position", Position.start())
        metrics.game(2, "sample/selfplay", game)
        metrics.finish({"eval/rating": 912})
    assert fake.options == {
        "project": "pylos",
        "id": "first",
        "name": "first",
        "dir": str(folder),
        "resume": "never",
    }
    assert fake.run.settings == {"search.simulations": 64}
    (first, loss), (second, picture), (third, text) = fake.run.logged
    assert (first, second, third) == (1, 2, 2)
    assert math.isnan(loss["train/loss"])
    assert picture == {"sample/position": ("image", (320, 320, 3))}
    page = str(game).replace('"', "&quot;")
    assert text == {"sample/selfplay": ("html", f"<pre>{page}</pre>")}
    assert fake.run.summary == {"final/eval/rating": 912.0}
    assert fake.run.exit_code == 0


def test_a_resumed_wandb_run_leaves_out_steps_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb(step=8)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with Metrics([WandbSink("pylos", "first", tmp_path, resume=4)], resume=4) as metrics:
        write_losses(metrics, range(5, 10))
    assert fake.options["resume"] == "allow"
    assert [step for step, _ in fake.run.logged] == [8, 9]
    assert fake.run.exit_code == 1, "closed without finish"


# What is not installed


@pytest.mark.parametrize(
    ("missing", "extra", "make"),
    [
        ("torch.utils.tensorboard", "train", lambda folder: TensorBoardSink(folder)),
        ("rich.console", "train", lambda folder: console_sink("live")),
        ("wandb", "wandb", lambda folder: WandbSink("pylos", "first", folder)),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, extra: str, make: Any
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "trainers.metrics.live", raising=False)
    with pytest.raises(ImportError, match=rf"{missing}.*pip install 'pylos-env\[{extra}\]'"):
        make(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_importing_metrics_loads_nothing_heavy() -> None:
    code = (
        "import sys, trainers.metrics\n"
        "print([m for m in ('torch', 'tensorboard', 'rich', 'wandb') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=GLOSSARY.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_sink_that_cannot_be_made_leaves_the_others_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install"):
        open_metrics(tmp_path, console="off", wandb_project="pylos")
    assert fake.run.exit_code == 1
    assert not (tmp_path / "metrics.csv").exists()
