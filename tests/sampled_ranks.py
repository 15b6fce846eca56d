"""A rank on a fake device, steps that it makes, and what its ring says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_rank import FakeRank
from probe_jobs.running import read_only_ring


def measured(directory: Path, rank: FakeRank) -> list[tuple[int, int, int]]:
    """Return number, sync and reason of each record, once the device has done all."""
    rank.device.drain()
    rank.probe.write_rest()
    return [
        (record.step, record.sync_ns, record.flags >> 8 & 0xF)
        for record in read_only_ring(directory).records
    ]


def step_with(rank: FakeRank, exchange: float = 3.0) -> None:
    rank.device.kernel(5.0)
    rank.group.allreduce(exchange).wait()


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRank:
    return FakeRank(tmp_path, monkeypatch)


def steps(rank: FakeRank, count: int = 3) -> None:
    for _ in range(count):
        step_with(rank)
        rank.end_step()
