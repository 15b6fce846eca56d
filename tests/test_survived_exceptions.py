"""Exceptions after which their writer printed steps: they ended nothing, and are not blamed."""

from __future__ import annotations

import tracemalloc

import pytest

from failure_logs import VALUE_ERROR, attempts, verdict
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.log import FailureLimits, FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.failures.survival import Survival, step_of

WANDB = """\
wandb: ERROR Error while calling W&B API
Traceback (most recent call last):
  File "/usr/lib/python3/wandb/sdk/lib/retry.py", line 110, in __call__
    result = self._call_fn(*args, **kwargs)
requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded
wandb: Network error (ConnectionError), entering retry loop.
"""
OOM = "\n".join(WANDB.splitlines()[1:4]) + "\ntorch.OutOfMemoryError: CUDA out of memory.\n"
WATCHDOG = (
    "[rank2]:[E1121 02:21:04.113 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
    " Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)
CANCELLED = "slurmstepd: error: *** JOB 12 ON gpu-03 CANCELLED AT 2026-11-21T02:14:00{} ***\n"
LAUNCHER = (
    "E1129 10:02:01.5 34 torch/distributed/elastic/multiprocessing/api.py:870] failed"
    " (exitcode: {}) local_rank: 2 (pid: 3412) of binary: /usr/bin/python3\n"
)
SLURM_EXIT = "srun: error: gpu-11: task 2: Exited with exit code 1\n"
STEPS = (
    "step {} loss 2.0",
    " iteration      {}/  1000 | consumed samples: 100 | elapsed time per iteration (ms): 1203.2 |"
    " number of skipped iterations:   0 |",
    "[2026-11-21 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=0,"
    " lr=[1e-5]",
    "{{'loss': 2.3456, 'learning_rate': 5e-05, 'epoch': 0.{}}}",
    "Epoch 0:  30%|###   | {}/100 [00:12<00:28,  2.50it/s, loss=2.31]",
    "Epoch: [0][ {}/5004]\tTime  0.301 ( 0.405)\tLoss 6.9e+00",
    "Epoch [1/5], Step [{}/600], Loss: 0.51",
)


def steps(count: int, form: str = STEPS[0], first: int = 10) -> str:
    return "".join(f"{form.format(first + number)}\n" for number in range(count))


@pytest.mark.parametrize("form", STEPS)
@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (CANCELLED.format(" DUE TO TIME LIMIT"), causes.DEADLINE),
        (CANCELLED.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"), causes.NODE_LOST),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=88123.0.\n", causes.HOST_OOM),
        (LAUNCHER.format(-11), causes.NATIVE_CRASH),
    ],
)
def test_what_ended_the_job_is_named_and_not_what_it_survived(form, end, cause):
    assert verdict(WANDB + steps(3, form) + end)[0] == cause
    assert verdict(WANDB + steps(2, form) + end)[0] == causes.USER_EXCEPTION


def test_the_rank_that_failed_is_named_and_not_one_that_went_on():
    flash = "".join(f"[rank0]: {line}\n" for line in (WANDB + steps(4)).splitlines())
    oom = WANDB.replace("requests.exceptions.ConnectionError", "torch.OutOfMemoryError")
    full = "".join(f"[rank3]: {line}\n" for line in oom.splitlines())
    assert verdict(flash + full)[:2] == (causes.GPU_OOM, 3)


@pytest.mark.parametrize(
    ("process", "path", "frame"),
    [
        (
            "Process SpawnProcess-1:\n",
            "/usr/lib/python3.11/multiprocessing/process.py",
            "_bootstrap",
        ),
        ("", "<frozen runpy>", "_run_module_as_main"),
        ("", "/usr/lib/python3.10/runpy.py", "_run_module_as_main"),
    ],
)
def test_an_exception_that_ended_its_process_was_not_survived(process, path, frame):
    outermost = f'  File "{path}", line 314, in {frame}\n    self.run()\n  File'
    text = process + OOM.replace("  File", outermost, 1) + steps(60)
    (attempt,) = attempts(text)
    assert (attempt.cause, attempt.first.certain) == (causes.GPU_OOM, True)
    caught = text.replace(frame, "main")
    assert attempts(caught) == ()


@pytest.mark.parametrize(
    ("lines", "tag", "cause"),
    [
        (96, "", causes.GPU_OOM),
        (97, "", causes.COLLECTIVE_TIMEOUT),
        (96, "[rank0]: ", causes.COLLECTIVE_TIMEOUT),
    ],
)
def test_an_exception_of_an_unknown_rank_shortly_before_a_timeout_is_its_cause(lines, tag, cause):
    text = "".join(f"{tag}{line}\n" for line in (OOM + steps(lines)).splitlines())
    (attempt,) = attempts(text + WATCHDOG)
    assert attempt.cause == cause
    if attempt.first is not None:
        assert not attempt.first.certain
    assert 2 in {victim.rank for victim in attempt.victims}


def test_a_survived_exception_alone_is_quoted_and_is_no_failure():
    signs = FailureSigns()
    log = FailureLog("job.log", signs)
    log.feed((WANDB + steps(3) + "Training complete\n").encode())
    log.finish()
    assert attempts(WANDB + steps(3)) == ()
    (quote,) = [one for one in signs.quotes.values() if "requests" in one.text]
    assert quote.line == 2


def test_exceptions_beyond_the_limit_of_signs_are_not_watched():
    signs = FailureSigns()
    log = FailureLog("job.log", signs, FailureLimits(signs=1))
    log.feed((WANDB * 2 + steps(3)).encode())
    log.finish()
    assert [sign.kind for sign in signs.signs] == ["survived"]
    assert signs.beyond_limits == 1


def test_steps_of_other_writers_and_of_one_step_prove_nothing():
    other = "".join(f"[rank0]: {line}\n" for line in steps(9).splitlines())
    assert verdict(WANDB + other)[0] == causes.USER_EXCEPTION
    same = "".join(f"step 12 loss 2.{rank}\n" for rank in range(8))
    assert verdict(WANDB + same)[0] == causes.USER_EXCEPTION


def test_steps_of_a_restarted_job_prove_nothing_of_the_attempt_before():
    (attempt,) = attempts(WANDB + LAUNCHER.format(1) + steps(9))
    assert (attempt.cause, attempt.first.certain) == (causes.USER_EXCEPTION, True)
    (attempt,) = attempts(WANDB + SLURM_EXIT + CANCELLED.format("") + steps(9))
    assert attempt.first.text.startswith("requests")


def test_an_exception_before_steps_that_waited_in_a_buffer_explains_an_exit_code():
    text = WANDB.replace("requests.exceptions.ConnectionError", "ValueError") + steps(5)
    for end in (SLURM_EXIT, SLURM_EXIT + CANCELLED.format(""), LAUNCHER.format(1)):
        (attempt,) = attempts(text + end)
        first = attempt.first
        assert (first.cause, first.rank, first.certain) == (causes.USER_EXCEPTION, 2, False)
        assert first.text.startswith("ValueError")


@pytest.mark.parametrize(
    "line",
    [
        VALUE_ERROR,
        "slurmstepd: error: *** STEP 12.0 ON gpu-03 CANCELLED ***",
        "Loading checkpoint shards:  33%|###  | 1/3 [00:12<00:28,  2.50s/it]",
        "failed at step 12, loss 3.0",
        "step 3 of 5: downloading",
        "micro step 3, loss 3.0",
        "micro_step: 3, loss 3.0",
        "microbatch 3, loss 3.0",
    ],
)
def test_other_lines_are_no_steps(line):
    assert step_of(line.encode()) == ()


@pytest.mark.parametrize(("exceptions", "survived"), [(4096, 4096), (4097, 4096)])
def test_4096_exceptions_of_a_writer_are_watched(exceptions, survived):
    watch = Survival()
    for number in range(exceptions):
        watch.watch(b"", number, number)
    found = [watch.feed(b"", (b"%d" % step,)) for step in range(3)]
    assert [len(one) for one in found] == [0, 0, survived]
    assert not watch.is_watching


def test_writers_without_an_exception_are_not_kept():
    watch = Survival()
    watch.watch(b"rank0", 0, 0)
    tracemalloc.start()
    for number in range(10_000):
        watch.feed(b"%d" % number, (b"1",))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000


@pytest.mark.parametrize(("numbers", "kept"), [(8, 8), (9, 8)])
def test_eight_numbers_identify_a_step(numbers, kept):
    assert len(step_of(b"step 1 " * numbers + b"loss 2.0")) == kept
