"""A job that goes on with fewer ranks: its verdict holds no negative times and no empty ones."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from rankscope_analyzers.reports import verdict_json, verdict_text
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis
from suite_jobs import fault, made, running

SHRINKS = {"world": 24, "tensor": 1, "steps": 260, "restart": 150, "shrinks": True}
FAULTS = {
    "gpu": ("gpu_compute", "gpu", 1.5),
    "input": ("data_loader", "rank", 0.5),
    "link": ("network_link", "rank", 4.0),
    "shared input": ("storage_checkpoint", "shared_input", 0.4),
    "compute of all": ("global_slowdown", "compute", 1.4),
    "host": ("host_transient", "noisy_host", 0.6),
}
TIMES = {"before": (80, 149), "through": (100, 260), "after": (190, 260)}


def rows_of(simulated):
    """Return a job's records with the launcher's attempts."""
    starts = np.array([one.begin_unix_seconds for one in simulated.attempts])
    begun = simulated.records["t_start_unix_seconds"].to_numpy()
    return running(simulated, attempt=np.searchsorted(starts, begun + 1.0) - 1)


def seconds_in(value, name=""):
    """Yield each duration of a verdict as JSON has it, with its name."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from seconds_in(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from seconds_in(one, name)
    elif isinstance(value, int | float) and name.endswith(("_seconds", "lost_fraction")):
        yield name, value


def shown(verdict):
    console = Console(file=io.StringIO(), width=200, no_color=True)
    console.print(verdict_text.render(verdict))
    return console.file.getvalue()


@pytest.fixture(scope="module", params=[(1, "kernel"), (2, "wall")], ids=["flat", "stages"])
def verdicts(request):
    """Returns the verdicts on jobs that lose a node, by fault and time."""
    pipeline, timing = request.param
    return {
        (name, when): diagnosis(_job(FAULTS[name], TIMES[when], pipeline, timing)).verdict
        for name in FAULTS
        for when in TIMES
    }


def _job(what, steps, pipeline, timing):
    first, last = steps
    one = fault(*what, first=first, last=last, slot=5, duty=1.0 if what[1] != "noisy_host" else 0.3)
    simulated = made(one, **SHRINKS, pipeline=pipeline, timing=timing)
    world = simulated.attempts[-1].world_size
    assert world < simulated.meta["world_size"]
    return JobRecords("job", rows_of(simulated), world, (), live=True, meta={})


def test_most_of_the_faults_are_seen(verdicts):
    assert sum(verdict.cause is not None for verdict in verdicts.values()) >= 10


def test_no_time_and_no_share_is_negative(verdicts):
    for where, verdict in verdicts.items():
        said = verdict_json.as_object(verdict)
        said.pop("clock_offsets")
        assert [one for one in seconds_in(said) if one[1] < 0] == [], where
        assert not re.search(r"-\d+(\.\d+)? (ms|s|GPU)", shown(verdict)), where


def test_nothing_is_said_to_take_no_time_at_all(verdicts):
    for where, verdict in verdicts.items():
        assert not re.search(r"(?<![\d.])0(\.0+)? ms", shown(verdict)), where
