"""Which words of programs and platforms tell which cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from failed_jobs import traceback
from failure_logs import ONE_LINE, verdict
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.marks import MARKS
from rankscope_agent.contract.failures.messages import EXCEPTIONS, Meaning, classify
from rankscope_agent.contract.failures.platform_messages import LINES


@pytest.mark.parametrize(("line", "cause"), ONE_LINE.items())
def test_words_of_the_platform_tell_the_cause(line, cause):
    assert verdict(f"starting\n{line}\n")[:2] == (cause, None)


EXCEPTION_LINES = {
    "torch.cuda.OutOfMemoryError: CUDA out of memory.": causes.GPU_OOM,
    "RuntimeError: CUDA error: out of memory": causes.GPU_OOM,
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling x": causes.CUDA_ERROR,
    "RuntimeError: Found no NVIDIA driver on your system.": causes.CUDA_ERROR,
    "MemoryError": causes.HOST_OOM,
    "RuntimeError: [enforce fail at alloc_cpu.cpp:113] . DefaultCPUAllocator: can't allocate memory"
    ": you tried to allocate 9 bytes.": causes.HOST_OOM,
    "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. ": causes.KILLED,
    "RuntimeError: DataLoader worker (pid(s) 9, 11) exited unexpectedly": causes.HOST_OOM,
    "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that"
    " dataloader's workers are out of shared memory.": causes.HOST_OOM,
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'": causes.MISSING_MOUNT,
    "PermissionError: [Errno 13] Permission denied: '/ckpt'": causes.PERMISSION,
    "OSError: [Errno 116] Stale file handle: '/data/x'": causes.STORAGE,
    "OSError: [Errno 122] Disk quota exceeded": causes.STORAGE,
    "KeyError: 'WANDB_API_KEY'": causes.MISSING_SECRET,
    "huggingface_hub.errors.GatedRepoError: 401 Client Error.": causes.MISSING_SECRET,
    "botocore.exceptions.NoCredentialsError: Unable to locate credentials": causes.MISSING_SECRET,
    "ImportError: /venv/x.so: undefined symbol: _ZN3c10": causes.MISSING_IMPORT,
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local"
    " network address. port: 29500, EADDRINUSE": causes.RENDEZVOUS,
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, invalid usage": causes.NCCL_ERROR,
    "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: "
    "[Init]Wait_for_all_tasks_to_register::0.": causes.RENDEZVOUS,
    "ray.exceptions.RayTaskError: ModuleNotFoundError: No module named 'x'": causes.MISSING_IMPORT,
    "app.StartError: data: PermissionError: [Errno 13] '/data'": causes.PERMISSION,
    "torch._inductor.exc.InductorError: CalledProcessError: Command '['gcc', 'x.c']' returned"
    " non-zero exit status 1.": causes.USER_EXCEPTION,
    "KeyError: 'image'": causes.USER_EXCEPTION,
    "AssertionError": causes.USER_EXCEPTION,
    "my.own.Trouble: everything is lost": causes.USER_EXCEPTION,
    "KeyboardInterrupt": causes.CANCELLED,
}


@pytest.mark.parametrize(("line", "cause"), EXCEPTION_LINES.items())
def test_exceptions_tell_the_cause(line, cause):
    assert verdict(traceback(2, line))[:2] == (cause, 2)


REPEATED = re.compile(r"(?:\(\?:)*(?:\[[^\]]*\]|\\[wsSd]|\.)(?:[*+]|\{\d*,\d{2,}\})")
"""A wording that begins with many characters of a kind."""


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in 3000 ms",
        "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while"
        " waiting for send/recv from rank 0.",
    ],
)
def test_whoever_waited_in_a_monitored_barrier_is_not_to_blame(line):
    assert verdict(traceback(0, line))[:2] == (causes.COLLECTIVE_TIMEOUT, None)


def test_no_wording_begins_with_any_number_of_characters():
    patterns = [pattern.pattern for pattern, _ in EXCEPTIONS]
    patterns += [pattern.pattern.decode() for pattern, _ in LINES]
    ways = [way for pattern in patterns for way in pattern.split("|")]
    assert [way for way in ways if REPEATED.match(way)] == []


REREAD = re.compile(r"(?<![\\)])(?:\.|\[\^\)\])(?:[*+]|\{\d*,(?:|4[1-9]|[5-9]\d|\d{3,})\})")
"""Many characters of nearly any kind that a pattern takes from each of several beginnings."""


def test_no_wording_reads_a_line_again_from_each_of_its_beginnings():
    patterns = [pattern.pattern for pattern, _ in EXCEPTIONS]
    patterns += [pattern.pattern.decode() for pattern, _ in LINES]
    assert [found for pattern in patterns for found in REREAD.findall(pattern)] == []


@pytest.mark.parametrize("between", ["", " gloo/transport/", " gloo/transport/" * 100])
def test_what_a_beginning_is_followed_by_is_found_after_any_number_of_beginnings(between):
    line = f"RuntimeError: [gloo/transport/{between}tcp/pair.cc:553] Connection closed by peer"
    assert classify(line) == Meaning(causes.NCCL_ERROR, victim=True)


@pytest.mark.parametrize(
    "name", ["a.pt", "/ckpt/a.pth", "x.ckpt", "pytorch_model.bin", "__0_0.distcp"]
)
def test_a_damaged_file_of_weights_is_a_corrupt_checkpoint_whatever_its_path(name):
    for path in (name, f"/{'d' * 300}/{name}"):
        line = f"OSError: {path}: the file is truncated"
        assert verdict(traceback(2, line))[:2] == (causes.CHECKPOINT_CORRUPT, 2)


def test_every_cause_has_a_meaning_and_an_action_and_every_wording_a_cause():
    assert causes.CAUSES.keys() == causes.ACTIONS.keys()
    assert {meaning.cause for _, meaning in (*EXCEPTIONS, *LINES)} <= causes.CAUSES.keys()


def test_the_causes_are_those_that_the_documentation_promises():
    page = (Path(__file__).parent.parent / "docs" / "job_logs.md").read_text()
    (promised,) = re.findall(r"closed list: (.*?)\. ", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", promised)) == causes.CAUSES.keys()


@pytest.mark.parametrize("line", ONE_LINE)
def test_no_line_that_means_something_is_passed_over(line):
    assert any(mark in line.encode() for mark in MARKS)
