"""Files that somebody hands over, and what a watch reads back of its own."""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from benchmarks.fuzzing.target import Target, promise, stored

import kineto_traces
import preflight_jobs
from rankscope_analyzers.captures import archive
from rankscope_analyzers.captures.archive import CaptureError
from rankscope_analyzers.checkpoints import digest_list, examined_file, symbolic_pickle
from rankscope_analyzers.checkpoints.symbolic_pickle import UnsafePickle
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import diff
from rankscope_analyzers.configuration import values
from rankscope_analyzers.configuration.document import ConfigurationError
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_analyzers.datasets import manifest
from rankscope_analyzers.fusion import saved
from rankscope_analyzers.preflight import documents, jobs
from rankscope_analyzers.preflight.checks import CHECKS, results
from rankscope_analyzers.preflight.documents import ManifestError
from rankscope_analyzers.preflight.job import Settings
from rankscope_analyzers.profiles import kineto_files
from rankscope_analyzers.steps import job_records
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers import state
from rankscope_analyzers.stragglers.state import StateError
from rankscope_analyzers.watch import config_map_store, incident_log, series_state, store
from rankscope_analyzers.watch.incident_log import IncidentLog
from rankscope_analyzers.watch.memory import _restore_problem
from rankscope_analyzers.watch.store import Part, StoreError
from rankscope_analyzers.watch.webhook import Webhook

NOW = 1_795_272_662.5
DIGEST = "0" * 64
COLUMNS = ("t_start_unix_seconds", "step_seconds")
SLOW = 5_000
"""Inputs of a target that first writes each into a file, most of them tables."""


def _records() -> pd.DataFrame:
    rows = [
        {
            "step": step,
            "rank": rank,
            "node": f"n{rank}",
            "gpu": 0,
            "t_start_unix_seconds": 1_760_000_000.0 + step,
            "step_seconds": 1.0,
            "data_seconds": 0.1,
            "compute_seconds": 0.6,
            "sync_seconds": 0.3,
            "dp_group": 0,
            "tp_group": rank,
            "pp_stage": 0,
            "timing_source": "kernel",
        }
        for step in range(3)
        for rank in range(2)
    ]
    return pd.DataFrame(rows)


def _trace(name: str) -> Callable[[bytes], None]:
    """Return a target that reads a trace whose file of this name has the content."""

    def read(data: bytes) -> None:
        with stored(data, name) as path:
            if name == "meta.json":
                path.with_name("records.csv").write_text(_records().to_csv(index=False))
            job = job_records.trace(path.parent)
            promise(len(job.records), "a trace without records")

    return read


def _written(write: Callable[[pd.DataFrame, Path], object], name: str) -> bytes:
    with stored(b"", name) as path:
        write(_records(), path)
        return path.read_bytes()


def _table(data: bytes) -> None:
    """Read a Parquet file a part at a time, like `rankscope diagnose --trace`."""
    with stored(data, "records.parquet") as path:
        trace = job_records.table(path.parent)
        wanted = [name for name in COLUMNS if name in trace.records.columns]
        if "t_start_unix_seconds" in wanted:  # which the analysis requests before it reads on
            seen = [batch.table for batch in trace.records.batches(wanted)]
            promise(all(set(wanted) <= set(table) for table in seen), "a column is missing")


def _parquet_seeds() -> Sequence[bytes]:
    """Return a usual file, and ones of two parts, in one of which values stand as they are."""
    write = pd.DataFrame.to_parquet
    ways = (
        write,
        partial(write, row_group_size=4, compression=None, use_dictionary=False),
        partial(write, row_group_size=4, compression="zstd"),
    )
    return [_written(way, "records.parquet") for way in ways]


def _npz_seeds() -> Sequence[bytes]:
    sink = io.BytesIO()
    plain: dict[str, Any] = {}  # of any type, as numpy declares a flag of its own among them
    for name, column in _records().items():
        values = column.to_numpy()
        plain[str(name)] = values.astype(str) if values.dtype == object else values
    np.savez(sink, **plain)
    return [sink.getvalue()]


def _kineto(data: bytes) -> None:
    with stored(data, "host_1.rank0.pt.trace.json") as path:
        found = kineto_files._read(path)
        if not isinstance(found, str):
            rows = kineto_files._records(found)
            promise(len(rows) == len(found.steps.numbers), "steps without records")


def _kineto_seeds() -> Sequence[bytes]:
    return [json.dumps(kineto_traces.device_trace(0, steps=3).document()).encode()]


def _checkpoint(name: str) -> Callable[[bytes], None]:
    """Return a target that examines a file of a checkpoint; damage is reported, never raised."""

    def read(data: bytes) -> None:
        with stored(data, name) as path:
            found = examined_file.examine(path.parent, name, deep=True, structure=lambda _: True)
            promise(found.problem is not None or found.format, "neither whole nor damaged")

    return read


def _safetensors_seeds() -> Sequence[bytes]:
    tensors = {
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "I8", "shape": [3], "data_offsets": [16, 19]},
        "__metadata__": {"format": "pt"},
    }
    head = json.dumps(tensors).encode()
    return [len(head).to_bytes(8, "little") + head + bytes(19)]


def _torch_seeds() -> Sequence[bytes]:
    body = pickle.dumps(OrderedDict(model={"w": [1.0, 2.0]}, step=7), 2)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as packed:
        packed.writestr("archive/data.pkl", body)
        packed.writestr("archive/version", "3\n")
        packed.writestr("archive/data/0", bytes(64))
    return [sink.getvalue(), body]


def _symbols(data: bytes) -> None:
    value = symbolic_pickle.loads(data)
    promise(sum(1 for _ in symbolic_pickle.walk(value)) >= 1, "a structure of nothing")


def _dataset(data: bytes) -> None:
    for shard in manifest.parse(data):
        parts = Path(shard.path).parts
        promise(".." not in parts and not shard.path.startswith("/"), "a path outside")
        promise(0 <= shard.name_crc32 < 1 << 32, "no checksum of a name")


def _dataset_seeds() -> Sequence[bytes]:
    own = {"shards": [{"path": "a/0.tar", "bytes": 5, "sha256": DIGEST}]}
    streaming = {"version": 2, "shards": [{"raw_data": {"basename": "0.mds", "bytes": 5}}]}
    wids = {"shardlist": [{"url": "0.tar", "nsamples": 4, "filesize": 5}]}
    listed = [json.dumps(one).encode() for one in (own, streaming, wids)]
    return [*listed, f"{DIGEST}  a/0.tar\n{DIGEST} *b.tar\n".encode()]


def _watch_state(data: bytes) -> None:
    """Restore a watch's state as at its start: no invalid part prevents it."""
    kept = store.parsed(data)
    promise(math.isfinite(kept.saved_unix_seconds), "a time that is none")
    series_state.restored([one for one in kept.parts if one.kind in series_state.KINDS])
    for part in kept.parts:
        with stored(b"", "incidents.jsonl") as path:
            log = IncidentLog(path)
            _restore_problem(log, part.value)
            _restore_problem(Webhook("http://127.0.0.1:1", log.after, lambda _: None), part.value)


def _watch_state_seeds() -> Sequence[bytes]:
    webhook = {"delivered": 7, "waiting": [_incident()]}
    log = {"sequence": 9, "open": [["job", "key", "abc", 3, "gpu_compute", [[1, 2]]]]}
    parts = [Part("webhook", "", webhook), Part("incident log", "", log)]
    parts += [
        Part(kind, "job", {"lost": {"x": 1.0}, "observed": 2.0}) for kind in series_state.KINDS
    ]
    return [b"".join(store.lines(parts, NOW, 1 << 20))]


def _incident() -> dict[str, object]:
    texts = {"incident": "abc", "job_id": "job", "fault": "f", "kind": "k", "change": "opened"}
    return {"schema": incident_log.SCHEMA, **texts, "sequence": 9, "number": 1, "ranks": [1]}


def _incident_log(data: bytes) -> None:
    with stored(data, "incidents.jsonl") as path:
        for line in IncidentLog(path).after(0):
            promise(line["sequence"] > 0, "a line that was not asked for")


def _job_state(data: bytes) -> None:
    state.loaded(_json(data))


def _json(data: bytes) -> object:
    """Return the content of a line of a state, which is read before its parts are."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise StateError("no JSON") from None


def _job_state_seeds() -> Sequence[bytes]:
    values_ = (1, 2.5, float("inf"), (True, None), [np.arange(3.0)], {"a": frozenset((1, 2))})
    return [json.dumps(state.document(values_)).encode()]


def _term(data: bytes) -> None:
    found = config_map_store._term_of(data.decode("utf-8", "replace"))
    promise(found is None or math.isfinite(found.created), "a time that is none")


def _saved(data: bytes) -> None:
    with stored(data, saved.NAME) as path:
        folder = path.parent / "job-0"
        folder.mkdir()
        (folder / "records.csv").write_text(_records().to_csv(index=False))
        saved.read(path.parent)


def _saved_seeds() -> Sequence[bytes]:
    whole = {
        "format_version": saved.FORMAT_VERSION,
        "made_unix_seconds": NOW,
        "jobs": [{"notes": ["x"], "live": True, "meta": {}, "windows": [{"rank": 1}]}],
        "series": [["n1", "rankscope_up", {"a": "b"}, [1.0, 2.0], [0.5, "inf"]]],
        "source": "agents",
        **dict.fromkeys(("findings", "notes", "missing", "sources", "stalls"), ()),
        "clocks_ahead": {"n1": 0.5},
        "of_jobs": {"job": ["a note"]},
    }
    return [json.dumps(whole).encode()]


def _capture(data: bytes) -> None:
    with stored(data, "capture.tar.gz") as path:
        target = path.parent / "unpacked"
        target.mkdir()
        archive.read(path, target)
        outside = {one.name for one in path.parent.iterdir()} - {path.name, target.name}
        promise(not outside, f"{outside} written outside")


def _capture_tar(data: bytes) -> None:
    """Read a capture whose compression is intact, so that damage reaches the content."""
    _capture(gzip.compress(data, 1))


def _capture_seeds() -> Sequence[bytes]:
    with stored(b"", "unused") as path:
        file = path.with_name("capture.tar.gz")
        archive.write(file, {"summary.txt": b"all is well\n"}, {"job_id": "job"})
        return [file.read_bytes()]


def _capture_tar_seeds() -> Sequence[bytes]:
    return [gzip.decompress(one) for one in _capture_seeds()]


def _manifests(data: bytes) -> None:
    """Read manifests of jobs, and apply all checks to them."""
    found = documents.parse(data.decode("utf-8", "replace"), "jobs.yaml")
    read = jobs.of_documents(found, "default", Settings())
    for job in read.jobs:
        promise(len(list(results(job, CHECKS))) == len(CHECKS), "a check without an outcome")


def _manifest_seeds() -> Sequence[bytes]:
    return [
        yaml.safe_dump(preflight_jobs.JOB).encode(),
        json.dumps({"kind": "List", "items": [preflight_jobs.JOB]}).encode(),
        yaml.safe_dump_all([preflight_jobs.SHORT, preflight_jobs.JOB]).encode(),
    ]


def _rankscope_yaml(data: bytes) -> None:
    with stored(data, "rankscope.yaml") as path:
        values.read(path)


def _run_record(data: bytes) -> None:
    with stored(data, "run.json") as path:
        diff._read(path)


TARGETS = (
    Target(
        "trace CSV",
        _trace("records.csv"),
        lambda: [_records().to_csv(index=False).encode()],
        (SourceError,),
        runs=SLOW,
    ),
    Target(
        "trace CSV gzip",
        _trace("records.csv.gz"),
        lambda: [gzip.compress(_records().to_csv(index=False).encode())],
        (SourceError,),
        runs=SLOW,
    ),
    Target("trace npz", _trace("records.npz"), _npz_seeds, (SourceError,), runs=SLOW),
    Target("trace Parquet", _trace("records.parquet"), _parquet_seeds, (SourceError,), runs=SLOW),
    Target(
        "Parquet in parts",
        _table,
        _parquet_seeds,
        (SourceError, RecordError),
        runs=SLOW,
    ),
    Target(
        "trace metadata",
        _trace("meta.json"),
        lambda: [b'{"format_version": 1, "job": "a/b", "world_size": 2}'],
        (SourceError,),
        runs=SLOW,
    ),
    Target("Kineto trace", _kineto, _kineto_seeds, runs=SLOW),
    Target("safetensors", _checkpoint("model.safetensors"), _safetensors_seeds, runs=SLOW),
    Target("torch file", _checkpoint("model.pt"), _torch_seeds, runs=SLOW),
    Target("checkpoint pickle", _symbols, lambda: [_torch_seeds()[1]], (UnsafePickle,)),
    Target("dataset manifest", _dataset, _dataset_seeds, (ValueError,)),
    Target(
        "digest list",
        lambda data: digest_list.read(data.decode("utf-8", "surrogateescape")),
        lambda: [_dataset_seeds()[-1]],
        (ValueError,),
    ),
    Target("watch state", _watch_state, _watch_state_seeds, (StoreError,), runs=SLOW),
    Target(
        "incident log", _incident_log, lambda: [json.dumps(_incident()).encode() + b"\n"], runs=SLOW
    ),
    Target("job state", _job_state, _job_state_seeds, (StateError,)),
    Target("term", _term, lambda: [b'{"holder": "a", "transitions": 3, "created": 1.5}']),
    Target("saved diagnosis", _saved, _saved_seeds, (SourceError,), runs=SLOW),
    Target("capture", _capture, _capture_seeds, (CaptureError,), runs=SLOW),
    Target("capture's files", _capture_tar, _capture_tar_seeds, (CaptureError,), runs=SLOW),
    Target("job manifests", _manifests, _manifest_seeds, (ManifestError,), runs=SLOW),
    Target(
        "rankscope.yaml",
        _rankscope_yaml,
        lambda: [EXAMPLE.encode()],
        (ConfigurationError,),
        runs=SLOW,
    ),
    Target(
        "run record",
        _run_record,
        lambda: [b'{"median_step_seconds": 1.5}'],
        (InputError,),
        runs=SLOW,
    ),
)
