"""What Slurm prints when it ends a job, in several lines of which one has the reason."""

from __future__ import annotations

import pytest

from failure_logs import attempts, verdict
from rankscope_agent.contract.failures import causes

OOM = """\
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: Detected 1 oom_kill event in StepId=88123.0. Some of the tasks are OOM Killed.
srun: error: gpu-12: task 13: Out Of Memory
slurmstepd: error: *** STEP 88123.0 ON gpu-11 CANCELLED AT 2026-11-29T02:14:55 ***
srun: error: gpu-11: tasks 0-7: Terminated
"""
STEP = "slurmstepd: error: *** STEP 991.0 ON gpu-11 CANCELLED AT 2026-11-29T02:14:55 ***\n"
JOB = "slurmstepd: error: *** JOB 991 ON gpu-11 CANCELLED AT 2026-11-29T02:14:55 DUE TO {} ***\n"


def test_a_task_that_the_kernel_killed_for_memory_is_named():
    (attempt,) = attempts(OOM)
    assert (attempt.cause, attempt.first.rank) == (causes.HOST_OOM, 13)
    assert causes.HOST_OOM not in [other.cause for other in attempt.others]


def test_memory_that_was_full_on_a_rank_without_a_name_counts_beside_an_exception():
    full = '{0}Traceback (most recent call last):\n{0}  File "a.py", line 3, in f\n{0}MemoryError\n'
    (attempt,) = attempts(full.format("[rank2]: ") + full.format(""))
    assert [attempt.first.rank, *(other.rank for other in attempt.others)] == [2, None]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PREEMPTION", causes.PREEMPTED),
        ("TIME LIMIT", causes.DEADLINE),
        ("NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", causes.NODE_LOST),
    ],
)
def test_the_reason_of_the_job_counts_although_its_step_was_cancelled_first(reason, cause):
    assert verdict(STEP + JOB.format(reason))[0] == cause
    assert verdict(STEP)[0] == causes.CANCELLED
