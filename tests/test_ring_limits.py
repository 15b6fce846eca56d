"""Which rings of a name are of the job that runs now: at the limit and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.sources.training.ring_rows import of_present_jobs

NOW = 1_800_000_000


def ring(created, active):
    return SimpleNamespace(
        identity=SimpleNamespace(job_id="team/llm", rank=3),
        created_unix_ns=created * 10**9,
        active_unix_seconds=float(active),
    )


@pytest.mark.parametrize(("pause", "kept"), [(1800, 2), (1801, 1)])
def test_a_rank_that_begins_half_an_hour_after_its_last_step_may_be_of_that_job(pause, kept):
    earlier, later = ring(NOW - 9000, NOW), ring(NOW + pause, NOW + 5000)
    assert list(of_present_jobs([earlier, later])) == [earlier, later][-kept:]
