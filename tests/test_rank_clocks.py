"""One rank whose clock is hours off, beside others on its node: through rings and a real agent."""

from __future__ import annotations

import time

from rankscope_analyzers.intake.agent_steps import from_agents
from rankscope_analyzers.intake.step_history import StepHistory
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from ring_writer import NS, RingWriter, record_bytes
from running_agent import running_agent

RANKS, STEPS, SLOW_FROM = 4, 160, 60
STEP_NS, SLOW_NS, COMPUTE_NS = 200_000_000, 260_000_000, 150_000_000
WINDOW_SECONDS = 900.0


def job(folder, odd, ahead_seconds, slow):
    """Write the rings of four live ranks, of which one computes longer and one has another time."""
    length = [SLOW_NS if step >= SLOW_FROM else STEP_NS for step in range(STEPS)]
    begun = time.time_ns() - sum(length)
    rings = []
    for rank in range(RANKS):
        offset = round(ahead_seconds * NS) if rank == odd else 0
        made = begun + offset - NS
        ring = RingWriter(
            folder, f"{4000 + rank}-1.ring", rank=rank, local_rank=rank, capacity=STEPS,
            created_unix_ns=made, job_id="local/clocks", node="",
        )  # fmt: skip
        at = begun
        for step, took in enumerate(length):
            late = took - STEP_NS if rank == slow else 0
            compute = COMPUTE_NS + late + (step * 7919 + rank * 131) % 1_000_000
            record = record_bytes(
                step + 1, start_unix_ns=at + offset, step_ns=took, data_ns=10_000_000,
                compute_ns=compute, sync_ns=took - 10_000_000 - compute, step=step,
            )  # fmt: skip
            ring.write_slot(step + 1, record)
            at += took
        rings.append(ring)
    return rings


def looks(tmp_path, ahead_seconds):
    """Return what two looks of a watch say of a job whose rank 1 computes longer."""
    (tmp_path / "rings").mkdir()
    rings = job(tmp_path / "rings", 3, ahead_seconds, slow=1)
    with running_agent(tmp_path, "--node-name=shared") as agent:
        since = time.time() - WINDOW_SECONDS
        history, followed = StepHistory(), FollowedJobs()
        for _ in range(2):
            read = from_agents([agent.url], None, since, history=history)
            (judged,) = diagnose_each(read.jobs, followed).diagnoses
            yield judged.verdict
    for ring in rings:
        ring.end()


def test_a_clock_that_is_ahead_costs_the_job_no_verdict_and_is_said(tmp_path):
    for verdict in looks(tmp_path, 7200.0):
        assert verdict.cause.where.ranks == (1,)
        assert {rank.rank for rank in verdict.ranks} == set(range(RANKS))
        (said,) = [one for one in verdict.unobserved if "clock" in one]
        assert said.startswith("rank 3 of node shared ends steps 7200.0 s later than others")


def test_a_clock_that_is_behind_costs_the_job_no_verdict_and_is_said(tmp_path):
    """Its records are from before the time that is asked for."""
    for verdict in looks(tmp_path, -7200.0):
        assert verdict.cause.where.ranks == (1,)
        (said,) = [one for one in verdict.unobserved if "clock" in one]
        assert said.startswith("rank 3 has no records of this time: its clock is 2.0 h behind")


def test_clocks_that_are_right_are_not_said(tmp_path):
    for verdict in looks(tmp_path, 0.0):
        assert verdict.cause.where.ranks == (1,)
        assert not [one for one in verdict.unobserved if "clock" in one]
