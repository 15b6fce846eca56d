"""Responses of agents, Prometheus and API servers to a diagnosis."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from benchmarks.fuzzing.target import Target, promise

from flight_launches import Call, Recording
from rankscope_agent.contract import stalls, untrusted_json
from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import (
    STEP_COLUMNS,
    FreshSteps,
    RankIdentity,
    RingBatch,
    RingHead,
)
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.intake import agent_evidence, left_out, step_json
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError, parse_matrix
from rankscope_analyzers.intake.step_columns import parsed
from rankscope_analyzers.intake.step_history import step_answer, table
from rankscope_analyzers.profiles import flight_records
from rankscope_analyzers.profiles.flight_records import WindowError
from rankscope_analyzers.steps import beside_steps

RANK = RankIdentity("a/b", 3, "node-1", 3, 8, None, 0, "kernel", "torchrun", "uid", 1, True, 0, 3)
TIMES = np.arange(0.0, 60.0, 15.0)
MATRIX = (
    b'{"status":"success","data":{"resultType":"matrix","result":['
    b'{"metric":{"__name__":"up","node":"n1"},"values":[[0,"1"],[15,"0.5"],[30,"+Inf"]]},'
    b'{"metric":{},"values":[[45,"NaN"]]}]}}'
)
VECTOR = (
    b'{"status":"success","data":{"resultType":"vector","result":['
    b'{"metric":{"node":"n1"},"value":[1.5,"2.5"]}]}}'
)
SPANS = {
    "columns": ["job_id", "rank", "kind", "t_start_unix_seconds", "blocked_seconds"],
    "rows": [["a/b", 3, "checkpoint", 1.5, 0.5], ["a/b", 3, "evaluation", 2, None]],
}


def _row(step: int) -> tuple[Any, ...]:
    own = {"job_id": "a/b", "rank": 3, "node": "node-1", "timing_source": "kernel"}
    known = {"step": step, "t_start_unix_seconds": 100.0 + step, "step_seconds": 0.5}
    return tuple((own | known).get(name) for name in STEP_COLUMNS)


def _blocks(data: bytes) -> None:
    found = parsed(data)
    promise(len(found.next_numbers) == len(found.rings), "rings without a cursor")
    promise(all(len(one) == len(found) for one in found.numbers.values()), "columns of two lengths")
    promise(((found.ring >= 0) & (found.ring < len(found.rings))).all(), "a row of no ring")


def _block_seeds() -> Sequence[bytes]:
    heads = (RingHead("0123456789abcdef", RANK, 1, whole=True),)
    batch = RingBatch(0, [_row(1), _row(2)], 3)
    return [b"".join(steps_blocks(FreshSteps(heads, iter([batch])), "node-1"))]


def _object(data: bytes) -> dict[str, Any]:
    found = untrusted_json.read(data)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _steps(data: bytes) -> None:
    document = _object(data)
    answer = step_answer("http://n1", 0.0, document)
    table([answer])
    list(answer.starts())
    columns = step_json.columns_of(answer, step_json.ranks_of({"ranks": [], **document}))
    promise(len(columns) == len(answer.rows), "a row was lost")


def _step_seeds() -> Sequence[bytes]:
    document = {
        "node": "node-1",
        "columns": STEP_COLUMNS,
        "rows": [_row(1), _row(2)],
        "left_out": [{"job_id": "a/b", "rank": 3, "until_unix_seconds": 1.5}],
        "ranks": [{"job_id": "a/b", "rank": 3, "world_size": 8}],
    }
    return [json.dumps(document).encode()]


def _beside(data: bytes) -> None:
    found: Iterable[tuple[object, object]] = beside_steps.read(_object(data))
    for job, one in found:
        promise(isinstance(job, str) and one is not None, "a span of no job")


def _page(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    seen = from_pages([Page("n1", 100.0, text), Page("n2", 100.0, text)], job_reports.READS)
    for series in seen.all():
        promise(len(series.times) == len(series.values) > 0, "a series of nothing")
        promise(not np.isnan(series.values).any(), "a value that is none")


def _page_seeds() -> Sequence[bytes]:
    lines = [
        f'{training.STEPS.name}{{job_id="a/b",rank="3"}} 500',
        f'{training.STEPS.name}{{job_id="a\\"b",rank="4"}} 5e2',
        "rankscope_snapshot_timestamp_seconds 1795272662.5",
        "# HELP x y",
    ]
    return ["\n".join(lines).encode()]


def _matrix(data: bytes) -> None:
    found = parse_matrix(data, TIMES)
    promise(found.values.shape == (len(found.labels), len(TIMES)), "another shape than asked for")


class _Given(Prometheus):
    """A server with a given response."""

    body = b""

    def _get(self, path: str, query: object) -> bytes:
        return self.body


def _vector(data: bytes) -> None:
    server = _Given("http://n1")
    type(server).body = data
    found: Iterable[tuple[object, object]] = server.instant("up", 1.0)
    for labels, value in found:
        promise(isinstance(value, float) and labels is not None, "no sample")


def _stalls(data: bytes) -> None:
    found = stalls.read(_object(data))
    promise(math.isfinite(found.taken_unix_seconds) and found.rank >= 0, "no stall")
    json.dumps(stalls.as_object(found), allow_nan=False)


def _stall_seeds() -> Sequence[bytes]:
    call = stalls.Call("gloo:all_reduce", 7, False, "10xFloat", 1.5, False)
    group = stalls.GroupCalls("0", "default_pg", (0, 1), 7, (call,))
    frame = Frame("forward", "train.py", 12)
    whole = stalls.RankStall(
        *("a/b", 1, 4, 1.5, 60.0, True, "S", 1.0, (group,), "", (frame,), ""), cpu_share=0.5
    )
    return [json.dumps(stalls.as_object(whole)).encode()]


def _windows(data: bytes) -> None:
    found = untrusted_json.read(data)
    if not isinstance(found, list):
        raise WindowError("no list")
    launches, spans = flight_records.tables([one for one in found if isinstance(one, dict)])
    promise(len(launches.columns) and len(spans.columns) == 3, "no tables")


def _window_seeds() -> Sequence[bytes]:
    recording = Recording(2, [Call({0: 10.0, 1: 20.0}, durations={0: 5.0})], steps=2)
    return [json.dumps(recording.windows()).encode()]


def _kept(data: bytes) -> None:
    """Read evidence that an agent kept of a job, like `rankscope capture`."""
    found = {"n1": _object(data)}
    agent_evidence.kept_pages(found)
    agent_evidence.kept_stalls(found)
    agent_evidence.kept_steps(found, "a/b")


def _kept_seeds() -> Sequence[bytes]:
    stall, steps = json.loads(_stall_seeds()[0]), json.loads(_step_seeds()[0])
    pages = [{"taken_unix_seconds": 1.5, "text": "up 1\n"}]
    kept = {"job_id": "a/b", "pages": pages, "stalls": {"stalls": [stall]}, "steps": steps}
    return [json.dumps(kept).encode()]


def _left_out(data: bytes) -> None:
    left_out.read(untrusted_json.read(data))


TARGETS = (
    Target("step blocks", _blocks, _block_seeds, (ValueError,)),
    Target("step JSON", _steps, _step_seeds, (ValueError, KeyError, TypeError), runs=20_000),
    Target(
        "spans of agents",
        _beside,
        lambda: [json.dumps(SPANS).encode()],
        (ValueError, LookupError, TypeError),
    ),
    Target(
        "ranks left out",
        _left_out,
        lambda: [b'[{"job_id": "a/b", "rank": 3, "until_unix_seconds": 1.5}]'],
        (ValueError,),
    ),
    Target("agents' pages", _page, _page_seeds, runs=20_000),
    Target("Prometheus matrix", _matrix, lambda: [MATRIX], (PrometheusError,)),
    Target("Prometheus vector", _vector, lambda: [VECTOR], (PrometheusError,)),
    Target("stalls", _stalls, _stall_seeds, (ValueError, KeyError, TypeError)),
    Target("collective windows", _windows, _window_seeds, (ValueError,), runs=20_000),
    Target("kept evidence", _kept, _kept_seeds, (ValueError,), runs=20_000),
)
