"""Sync and copies as torch's own code makes them, on gloo with streams of a fake device."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from installed import skip_without
from probe_jobs.nurseries import Nursery, together

skip_without("torch", "these tests run torch's own code")

MS = 1_000_000
STEPS = 21


VARIABLES = {"RANKSCOPE_PROBE_STREAM_WAITS": "1", "RANKSCOPE_PROBE_FLIGHT": "0"}


def run(nursery: Nursery, kind: str, seed: int, rings: Path) -> list[dict[str, list[list[float]]]]:
    """Run both ranks, which bring a probe of their own; return what each prints."""
    ranks = nursery.run(rings, "streams.py", kind, str(seed), str(STEPS), ranks=2, **VARIABLES)
    assert [rank.code for rank in ranks] == [0, 0], [rank.errors for rank in ranks]
    return [json.loads(rank.output) for rank in ranks]


@pytest.mark.parametrize("kind", ["ddp", "fsdp1", "fsdp2", "tensor", "pipeline"])
def test_waits_of_torchs_own_code_are_what_the_device_spent_on_them(
    bare_nursery: Nursery, kind: str, tmp_path: Path
) -> None:
    if kind == "fsdp2" and Version(version("torch")) < Version("2.7"):
        pytest.skip("fully_shard of torch 2.6 does not train on a CPU")
    for shown in run(bare_nursery, kind, 7, tmp_path):
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


def compiled(nursery: Nursery, probe: str, rings: Path) -> dict[str, dict[str, object]]:
    """Return what compilers made of programs, with the probe's hooks in place or without it."""
    alone = {"RANK": "0", **together(1)}
    (done,) = nursery.run(rings, "compiled_streams.py", probe, **alone)
    assert done.code == 0, done.errors
    result = json.loads(done.output)
    assert (result["seen"] > 0) is (probe == "with")
    programs: dict[str, dict[str, object]] = result["programs"]
    return programs


def test_compilers_break_graphs_as_often_with_the_hooks_as_without(
    bare_nursery: Nursery, tmp_path: Path
) -> None:
    without, with_hooks = (compiled(bare_nursery, one, tmp_path) for one in ("without", "with"))
    assert with_hooks == without
    assert without["summed True"] == {"breaks": 0, "graphs": 2, "error": ""}
    assert without["broken True"]["error"]
