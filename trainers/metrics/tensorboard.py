"""TensorBoardSink: a run as event files, which `tensorboard --logdir runs` shows.

Scalars with their meaning as description, a custom-scalars page, hyper-parameters with the final
results, pictures, and games and messages as text, all in the run's own folder.

The records are written here and now, through a buffer of this process: PyTorch's SummaryWriter
hands them to a thread of its own that opens the file anew for every record, and an error that the
thread meets while the writer closes is lost. What it makes of pictures, text and the layout is
used as it is.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trainers.metrics.events import (
    MESSAGE_TAG,
    Begin,
    Event,
    Finish,
    Game,
    Message,
    Picture,
    Scalars,
    Setting,
    check_resume,
)
from trainers.metrics.optional import load
from trainers.metrics.tags import FINAL, TAGS, MetricsError, layout

FLUSH_SECONDS: Final = 1.0
"""Fast loops flush no more often than this."""

_FILE_NAME: Final = re.compile(r"events\.out\.tfevents\.\d+\..*")


class TensorBoardSink:
    """Writes one event file; a resumed run cuts the old ones at its step and adds another."""

    def __init__(self, folder: str | Path, resume: int | None = None) -> None:
        """`resume`: the step of the checkpoint that the run goes on from; None for a new run."""
        board = load("torch.utils.tensorboard", "train")
        self._summaries = load("torch.utils.tensorboard.summary", "train")
        self._event_pb2 = load("tensorboard.compat.proto.event_pb2", "train")
        self._summary_pb2 = load("tensorboard.compat.proto.summary_pb2", "train")
        resume = check_resume(resume)
        path = _new_path(Path(folder), resume)
        if resume is not None:
            for old in _event_files(path.parent):
                _cut(old, resume, self._event_pb2)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb", buffering=1 << 20)
        self._records = board.RecordWriter(self._file)
        self._described: set[str] = set()
        self._begin_session(resume)
        self.flush()

    def _begin_session(self, resume: int | None) -> None:
        """The first records: version, start and layout.

        A server that is running has read what was cut off. It drops that when it meets a second
        start in a run, which is why a new run writes the first.
        """
        now = time.time()
        self._record(0, now, file_version="brain.Event:2")
        start = self._event_pb2.SessionLog(status=self._event_pb2.SessionLog.START)
        self._record(0 if resume is None else resume + 1, now, session_log=start)
        self._record(resume or 0, now, summary=self._summaries.custom_scalars(layout()))

    def write(self, event: Event) -> None:
        for summary in self._summaries_of(event):
            self._record(event.step, event.time, summary=summary)
        if time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self) -> None:
        self._file.flush()
        self._next_flush = time.monotonic() + FLUSH_SECONDS

    def close(self) -> None:
        self._file.close()

    def _record(self, step: int, moment: float, **content: Any) -> None:
        event = self._event_pb2.Event(step=step, wall_time=moment, **content)
        self._records.write(event.SerializeToString())

    def _summaries_of(self, event: Event) -> list[Any]:
        match event:
            case Begin():
                return _session_start(event.settings)
            case Scalars():
                return [self._scalars(event.values)]
            case Finish():
                results = {FINAL + tag: value for tag, value in event.results.items()}
                return [self._scalars(results), _session_end()]
            case Picture():
                return [self._summaries.image(event.tag, event.pixels(), dataformats="HWC")]
            case Game():
                return [self._summaries.text(event.tag, _verbatim(str(event.record)))]
            case Message():
                return [self._summaries.text(MESSAGE_TAG, _verbatim(event.text))]
        return []

    def _scalars(self, values: Mapping[str, float]) -> Any:
        summary = self._summary_pb2.Summary()
        for tag, value in values.items():
            entry = summary.value.add(tag=tag, simple_value=value)
            if tag not in self._described:  # readers keep a tag's first description
                self._described.add(tag)
                meaning = TAGS[tag.removeprefix(FINAL)]
                entry.metadata.summary_description = f"{meaning.meaning} ({meaning.unit})"
                entry.metadata.plugin_data.plugin_name = "scalars"
                # without it TensorBoard's fast loader drops the description
                entry.metadata.data_class = self._summary_pb2.DATA_CLASS_SCALAR
        return summary


def _event_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if _FILE_NAME.fullmatch(path.name))


def _new_path(folder: Path, resume: int | None) -> Path:
    """A file name that readers, who go by the second in it, take after all that are there."""
    seconds = [int(path.name.split(".")[3]) for path in _event_files(folder)]
    if seconds and resume is None:
        raise MetricsError(f"{folder} has the events of another run, which resume= continues")
    second = max([int(time.time()), *(second + 1 for second in seconds)])
    return folder / f"events.out.tfevents.{second:010}.{socket.gethostname()}.{os.getpid()}.0"


def _cut(path: Path, last: int, event_pb2: Any) -> None:
    """Cut off the records of steps after `last`, and one that a kill left without its end.

    A record is its length in 8 bytes, a checksum in 4, the event, a checksum in 4.
    """
    size = path.stat().st_size
    with path.open("r+b") as file:
        keep = 0
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack_from("<Q", head)
            if length > size - keep - 16:
                break
            record = file.read(length + 4)[:length]
            try:
                step = event_pb2.Event.FromString(record).step
            except load("google.protobuf.message", "train").DecodeError as error:
                raise MetricsError(f"{path} is damaged at byte {keep}: {error}") from error
            if step > last:
                break
            keep += length + 16
        file.truncate(keep)
        file.flush()
        os.fsync(file.fileno())


def _verbatim(text: str) -> str:
    """Text as it is, within the Markdown that TensorBoard shows."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _session_start(settings: Mapping[str, Setting]) -> list[Any]:
    """What the hyper-parameter page needs: names and kinds of its columns, and this run's values.

    `SummaryWriter.add_hparams` would write them to a run of their own in a sub-folder.
    """
    api = load("tensorboard.plugins.hparams.api_pb2", "train")
    data = load("tensorboard.plugins.hparams.plugin_data_pb2", "train")
    start = data.SessionStartInfo(start_time_secs=time.time())
    experiment = api.Experiment()
    for name, value in settings.items():
        info = experiment.hparam_infos.add(name=name)
        if isinstance(value, bool):
            info.type = api.DATA_TYPE_BOOL
            start.hparams[name].bool_value = value
        elif isinstance(value, str):
            info.type = api.DATA_TYPE_STRING
            start.hparams[name].string_value = value
        else:
            info.type = api.DATA_TYPE_FLOAT64
            start.hparams[name].number_value = value
    for tag, meaning in TAGS.items():
        if meaning.result:
            experiment.metric_infos.add(
                name=api.MetricName(tag=FINAL + tag), description=meaning.meaning
            )
    return [
        _hparams("EXPERIMENT_TAG", experiment=experiment),
        _hparams("SESSION_START_INFO_TAG", session_start_info=start),
    ]


def _session_end() -> Any:
    api = load("tensorboard.plugins.hparams.api_pb2", "train")
    data = load("tensorboard.plugins.hparams.plugin_data_pb2", "train")
    end = data.SessionEndInfo(status=api.STATUS_SUCCESS, end_time_secs=time.time())
    return _hparams("SESSION_END_INFO_TAG", session_end_info=end)


def _hparams(tag: str, **content: Any) -> Any:
    metadata = load("tensorboard.plugins.hparams.metadata", "train")
    data = load("tensorboard.plugins.hparams.plugin_data_pb2", "train")
    summary = load("tensorboard.compat.proto.summary_pb2", "train").Summary()
    summary.value.add(
        tag=getattr(metadata, tag),
        metadata=metadata.create_summary_metadata(data.HParamsPluginData(**content)),
        tensor=metadata.NULL_TENSOR,
    )
    return summary
