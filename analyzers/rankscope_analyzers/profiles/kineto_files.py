"""Reads directories of PyTorch profiler traces, one or more files per rank, as step records.

File names are those that `torch.profiler.tensorboard_trace_handler` gives, and HTA reads: they end
in `.json` or `.json.gz`. `distributedInfo` inside names the rank; only if that is missing the file
name is used (`rank-3.json`). A file that cannot be used is named in a note.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from rankscope_analyzers.profiles.json_stream import JsonStream, JsonStreamError
from rankscope_analyzers.profiles.kineto import RankSteps, Writer, node_name, rank_steps, writer
from rankscope_analyzers.profiles.kineto_spans import TraceError, TraceSpans
from rankscope_analyzers.steps.job_records import JobRecords, Read, SourceError, each
from rankscope_analyzers.steps.process_groups import Layout
from rankscope_analyzers.steps.records import MAXIMUM_RANK

MAXIMUM_CHARACTERS = 4 << 30
"""Characters of one trace, decompressed: at 250 per event ten times what is kept of one."""

MAXIMUM_FILES = 65_536
"""Four profiling cycles of 16,384 ranks."""

NAMED_FILES = 8
"""Files that are named individually if they cannot be used; the rest is counted."""

_SUFFIXES = (".json", ".json.gz")
_HOST_IN_NAME = re.compile(r"(.+)_\d{1,10}\.\d{1,20}\.pt\.trace\.json(?:\.gz)?")
_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Trace:
    path: Path
    by: Writer
    rank: int
    steps: RankSteps


def from_kineto(directories: Sequence[Path]) -> Read:
    """Read one job from each directory; it is named after the directory.

    Raises:
        SourceError: no directory holds a usable trace, or two have one name.
    """
    names = [directory.resolve().name for directory in directories]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise SourceError(f"several directories hold a job {repeated[0]}; give them other names")
    return each(directories, _job)


def _job(directory: Path) -> JobRecords:
    read = [_read(path) for path in _files(directory)]
    traces = [trace for trace in read if isinstance(trace, _Trace)]
    refused = [trace for trace in read if isinstance(trace, str)]
    stepping = _useful([trace for trace in traces if len(trace.steps.numbers)])
    empty = {trace.rank for trace in traces} - {trace.rank for trace in stepping}
    refused += [
        f"{trace.path} holds neither a ProfilerStep nor two optimizer steps"
        for trace in traces
        if trace.rank in empty
    ]
    if not stepping:
        raise SourceError("; ".join(_shortened(refused)))
    return JobRecords(
        job_id=directory.resolve().name,
        records=pd.concat([_records(trace) for trace in stepping], ignore_index=True),
        world_size=max((trace.by.world_size or 0 for trace in stepping), default=0) or None,
        notes=(*_shortened(refused), *_doubts(stepping)),
        live=False,
    )


def _useful(traces: Sequence[_Trace]) -> list[_Trace]:
    """Leave out what the profiler writes when a job ends soon after one of its cycles has begun.

    Such a trace is of less than a step. It is recognised by having no times while others of its
    rank do.
    """
    timed = {trace.rank for trace in traces if trace.steps.timing_source != "none"}
    return [
        trace for trace in traces if trace.steps.timing_source != "none" or trace.rank not in timed
    ]


def _files(directory: Path) -> list[Path]:
    try:
        return _listed(directory)
    except OSError as error:
        raise SourceError(f"{directory} cannot be read: {error.strerror or error}") from error


def _listed(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise SourceError(f"{directory} is not a directory; --kineto takes one per job")
    found = (path for path in directory.iterdir() if path.name.endswith(_SUFFIXES))
    files = sorted(path for path in islice(found, MAXIMUM_FILES + 1) if path.is_file())
    if not files:
        raise SourceError(f"{directory} holds no PyTorch profiler trace: expected *.json[.gz]")
    if len(files) > MAXIMUM_FILES:
        raise SourceError(f"{directory} holds more than {MAXIMUM_FILES} traces; give fewer")
    return files


def _read(path: Path) -> _Trace | str:
    """Read one trace, or return one sentence about why it cannot be used."""
    try:
        trace = _spans(path)
        by = writer(trace.about)
        host = _HOST_IN_NAME.fullmatch(path.name)
        if by.node == "unknown" and host:  # older torch does not record it inside
            by = replace(by, node=node_name(host[1]))
        named = _RANK_IN_NAME.search(path.name)
        rank = by.rank if by.rank is not None or not named else int(named[1])
        if rank is None or rank > MAXIMUM_RANK:
            return f"{path} does not say which rank wrote it (distributedInfo.rank)"
        return _Trace(path, by, rank, rank_steps(trace, by))
    except (TraceError, JsonStreamError) as error:
        return f"{path} {error}"
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        return f"{path} cannot be read: {error}"


def _spans(path: Path) -> TraceSpans:
    """Sort all events of a file.

    Raises:
        JsonStreamError: it is not one whole JSON object, or too large.
        TraceError: there are too many events.
        OSError: it cannot be read; likewise EOFError, zlib.error and UnicodeDecodeError.
    """
    trace = TraceSpans()
    with path.open("rb") as file:
        packed = path.name.endswith(".gz")
        source = gzip.GzipFile(fileobj=file) if packed else file
        with io.TextIOWrapper(source, "utf-8") as text:
            for member, value in JsonStream(text.read, MAXIMUM_CHARACTERS).members("traceEvents"):
                trace.take(member, value)
    return trace


def _records(trace: _Trace) -> pd.DataFrame:
    """Build rows of the trace contract."""
    steps = trace.steps
    # Without groups all ranks are data-parallel, as in rings.
    rank_layout = trace.by.layout or Layout(dp_group=0, tp_group=trace.rank, pp_stage=0)
    return pd.DataFrame(
        {
            "step": steps.numbers,
            "rank": np.full(len(steps.numbers), trace.rank),
            "node": trace.by.node,
            "t_start_unix_seconds": steps.starts,
            "step_seconds": steps.step,
            "data_seconds": steps.data,
            "compute_seconds": steps.compute,
            "sync_seconds": steps.sync,
            "dp_group": rank_layout.dp_group,
            "tp_group": rank_layout.tp_group,
            "pp_stage": rank_layout.pp_stage,
            "timing_source": steps.timing_source,
        }
    )


def _doubts(traces: Sequence[_Trace]) -> tuple[str, ...]:
    """Return what the traces of one job lack, or where they contradict each other."""
    notes = []
    hosts = sum(trace.steps.timing_source == "none" for trace in traces)
    if hosts:
        notes.append(
            f"{hosts} of {len(traces)} traces hold neither kernels nor gloo collectives: compute"
            " cannot be distinguished from waiting (profile with ProfilerActivity.CUDA)"
        )
    sizes = sorted({trace.by.world_size for trace in traces if trace.by.world_size})
    if len(sizes) > 1:
        notes.append(f"traces are of jobs of {' and '.join(map(str, sizes))} ranks")
    return tuple(notes)


def _shortened(sentences: Sequence[str]) -> tuple[str, ...]:
    more = len(sentences) - NAMED_FILES
    rest = (f"{more} more traces cannot be used",) if more > 0 else ()
    return (*sentences[:NAMED_FILES], *rest)
