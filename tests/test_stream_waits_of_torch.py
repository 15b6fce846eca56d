"""Sync and copies as torch's own code makes them, on gloo with streams of a fake device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from benchmarks.probe_cost import PROBE
from benchmarks.processes import free_port

from installed import skip_without
from probe_jobs.running import JOBS, Nursery

skip_without("torch", "these tests run torch's own code")

MS = 1_000_000
STEPS = 21
LIMIT_SECONDS = 240


MODULES = (
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Give what both ranks of each kind are forked from: importing all that takes seconds."""
    variables = {
        "RANKSCOPE_PROBE": "0",
        "RANKSCOPE_PROBE_STREAM_WAITS": "1",
        "RANKSCOPE_PROBE_FLIGHT": "0",
    }
    nursery = Nursery(tmp_path_factory.mktemp("nursery"), MODULES, **variables)
    yield nursery
    nursery.close()


def run(nursery: Nursery, kind: str, seed: int, rings: Path) -> list[dict[str, list[list[float]]]]:
    """Run both ranks; return what each prints."""
    ranks = nursery.run(rings, "streams.py", kind, str(seed), str(STEPS), ranks=2)
    assert [rank.code for rank in ranks] == [0, 0], [rank.errors for rank in ranks]
    return [json.loads(rank.output) for rank in ranks]


@pytest.mark.parametrize("kind", ["ddp", "fsdp1", "fsdp2", "tensor", "pipeline"])
def test_waits_of_torchs_own_code_are_what_the_device_spent_on_them(
    nursery: Nursery, kind: str, tmp_path: Path
) -> None:
    if kind == "fsdp2" and version("torch") < "2.7":
        pytest.skip("fully_shard of torch 2.6 does not train on a CPU")
    for shown in run(nursery, kind, 7, tmp_path):
        records = {record[0]: record[1:] for record in shown["records"]}
        assert len(records) == STEPS - 1  # nobody saw the first one begin
        sampled = [number for number, record in records.items() if record[3] >= 0]
        assert sampled == [4, 8, 12, 16, 20]  # hooks are out in between
        for number in sampled:
            peers, copies = shown["truths"][int(number)]
            step_ns, data_ns, compute_ns, sync_ns, _, copied = records[number]
            assert sync_ns == pytest.approx(peers * MS, abs=0.02 * step_ns)
            assert copied == pytest.approx(copies * MS, abs=0.02 * step_ns)
            assert compute_ns == step_ns - data_ns - sync_ns
            assert peers > 0
            assert copies > 0


def compiled(probe: str) -> dict[str, dict[str, object]]:
    """Return what compilers made of programs, with the probe's hooks in place or without it."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(PROBE) + os.pathsep + str(JOBS.parent),
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "1",
        "RANK": "0",
    }
    command = [sys.executable, str(JOBS / "compiled_streams.py"), probe]
    done = subprocess.run(
        command, env=variables, check=True, stdout=subprocess.PIPE, timeout=LIMIT_SECONDS
    )
    result = json.loads(done.stdout)
    assert (result["seen"] > 0) is (probe == "with")
    programs: dict[str, dict[str, object]] = result["programs"]
    return programs


def test_compilers_break_graphs_as_often_with_the_hooks_as_without() -> None:
    without, with_hooks = compiled("without"), compiled("with")
    assert with_hooks == without
    assert without["summed True"] == {"breaks": 0, "graphs": 2, "error": ""}
    assert without["broken True"]["error"]
