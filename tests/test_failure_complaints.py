"""Errors outside of tracebacks: each one is seen, and no failure is made of noise."""

from __future__ import annotations

import json

import pytest

from failed_jobs import agent_end, lost, table, traceback
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.log import FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.failures.verdict import Attempt, decide
from rankscope_analyzers import cli

MAX_QUOTED = 32


def signs_of(*logs: str) -> FailureSigns:
    signs = FailureSigns()
    for number, text in enumerate(logs):
        log = FailureLog(f"log-{number}", signs)
        log.feed(text.encode())
        log.finish()
    return signs


def only(*logs: str) -> Attempt:
    (attempt,) = decide(signs_of(*logs))
    return attempt


LOOSE = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.": causes.GPU_OOM,
    "2026-03-01 12:00:01,100 - trainer - ERROR - step 3: CUDA out of memory": causes.GPU_OOM,
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to"
    " allocate 17179869184 bytes.": causes.GPU_OOM,
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient"
    " shared memory (shm).": causes.HOST_OOM,
    "RuntimeError: DataLoader worker (pid 263) is killed by signal: Bus error. It is possible that"
    " dataloader's workers are out of shared memory.": causes.HOST_OOM,
    "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed"
    " due to other reasons at node (ID: 5d)": causes.HOST_OOM,
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central"
    " directory": causes.CHECKPOINT_CORRUPT,
    "[ERROR] resume: checkpoint /ckpt/global_step900/mp_rank_00_model_states.pt is corrupted": (
        causes.CHECKPOINT_CORRUPT
    ),
    "RuntimeError: Error(s) in loading state_dict for Net:": causes.CHECKPOINT_INCOMPATIBLE,
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError": causes.RENDEZVOUS,
    "[E1121 02:14:00.1 socket.cpp:1023] [c10d] The client network socket has timed out after 60000"
    "ms while trying to connect to (10.0.0.1, 29500).": causes.RENDEZVOUS,
    "[E socket.cpp:435] [c10d] The server socket has failed to listen on any local network"
    " address.": causes.RENDEZVOUS,
    "  what():  CUDA error: unspecified launch failure": causes.CUDA_ERROR,
    "  what():  basic_string::_M_create": causes.NATIVE_CRASH,
    "node-a:3:9 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5"
    "<33092> with error 12, opcode 0, len 0, vendor err 129": causes.NCCL_ERROR,
    "ModuleNotFoundError: No module named 'apex'": causes.MISSING_IMPORT,
    "2026-03-01 12:00:01 | CRITICAL | main: ValueError: batch size must divide": (
        causes.USER_EXCEPTION
    ),
    "AssertionError: loss is not finite": causes.USER_EXCEPTION,
    "../aten/src/ATen/native/cuda/Indexing.cu:1255: indexSelectSmallIndex: block: [0,0,0], thread:"
    " [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.": causes.CUDA_ERROR,
    "terminate called without an active exception": causes.NATIVE_CRASH,
}


@pytest.mark.parametrize(("line", "cause"), LOOSE.items())
def test_an_error_without_a_traceback_is_seen_and_only_likely(line, cause):
    attempt = only(f"epoch 1 loss 2.5\n{line}\nbye\n")
    assert (attempt.cause, attempt.first.certain) == (cause, False)
    assert attempt.first.text == line.strip()


UNKNOWN_ERRORS = (
    "  Warning  FailedScheduling  10m  default-scheduler  0/10 nodes are available: 10 Insufficient"
    " nvidia.com/gpu.",
    "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily"
    " unavailable",
    "Loss is nan, stopping training",
)


@pytest.mark.parametrize("line", UNKNOWN_ERRORS)
def test_an_error_of_no_known_kind_is_quoted(line):
    signs = signs_of(f"step 1\n{line}\n")
    assert decide(signs) == ()
    assert [quote.text for quote in signs.quotes.values()] == [line.strip()]


def test_a_rank_that_aborts_an_mpi_job_is_named():
    first = only("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n").first
    assert (first.rank, first.cause) == (3, causes.EXIT_CODE)


LAUNCHERS = {
    "Job ml/llm failed: BackoffLimitExceeded": causes.UNKNOWN,
    "make: *** [Makefile:3: train] Error 1": causes.UNKNOWN,
    "[default] Worker group FAILED. 3/3 attempts left; will restart worker group": causes.UNKNOWN,
    "[2026-05-01 10:00:00,100] [ERROR] [launch.py:434:sigkill_handler] ['python', '-u', 't.py',"
    " '--local_rank=7'] exits with return code = 1": causes.EXIT_CODE,
    "[2026-05-01 10:00:00,100] [ERROR] [launch.py:434:sigkill_handler] ['python', '-u', 't.py',"
    " '--local_rank=7'] exits with return code = -9": causes.KILLED,
    "subprocess.CalledProcessError: Command '['t.py']' died with <Signals.SIGSEGV: 11>.": (
        causes.NATIVE_CRASH
    ),
    "      Exit Code:    137": causes.KILLED,
    "runc create failed: container init was OOM-killed (memory limit too low?)": causes.HOST_OOM,
    "Aborted (core dumped)": causes.NATIVE_CRASH,
    "Bus error (core dumped)": causes.NATIVE_CRASH,
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits": causes.UNKNOWN,
}


@pytest.mark.parametrize(("line", "cause"), LAUNCHERS.items())
def test_what_a_launcher_says_alone_is_a_failure(line, cause):
    assert only(f"step 3\n{line}\n").cause == cause


def test_launchers_repeat_what_is_known_and_add_nothing():
    ends = "[default] Worker group FAILED\nx exits with return code = 1\nAborted (core dumped)\n"
    attempt = only(traceback(1, "ValueError: bad") + ends)
    assert (attempt.cause, attempt.first.rank, attempt.others) == (causes.USER_EXCEPTION, 1, ())
    waits = "[rank0]:[E ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation"
    waits += " timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE)\n"
    assert only(waits + ends).cause == causes.COLLECTIVE_TIMEOUT


def test_a_kill_that_a_launcher_reports_explains_its_victims():
    attempt = only(lost(0) + "['t.py', '--local_rank=7'] exits with return code = -9\n")
    assert (attempt.cause, attempt.first.rank) == (causes.KILLED, None)
    assert [victim.rank for victim in attempt.victims] == [0]


def test_a_loose_error_names_its_rank_and_explains_an_end_without_words():
    attempt = only("ERROR rank 5: CUDA out of memory\n" + lost(0) + lost(1))
    assert (attempt.cause, attempt.first.rank) == (causes.GPU_OOM, 5)
    ended = only("RuntimeError: CUDA error: an illegal memory access\n" + agent_end(2, 1))
    assert (ended.cause, ended.first.rank, ended.first.exit_code) == (causes.CUDA_ERROR, 2, 1)


def test_a_traceback_outweighs_errors_that_were_only_logged():
    logged = "ERROR: CUDA out of memory, trying a smaller batch\n"
    attempt = only(logged + traceback(1, "ValueError: bad") + table(1, {0: -15, 1: 1}))
    assert (attempt.cause, attempt.first.rank) == (causes.USER_EXCEPTION, 1)


CHECKPOINTS = {
    "_pickle.UnpicklingError: invalid load key, '\\x00'.": (causes.CHECKPOINT_CORRUPT, False),
    "EOFError: Ran out of input": (causes.CHECKPOINT_CORRUPT, False),
    "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge": (
        causes.CHECKPOINT_CORRUPT,
        True,
    ),
    "RuntimeError: unexpected EOF, expected 8192 more bytes. The file might be corrupted.": (
        causes.CHECKPOINT_CORRUPT,
        True,
    ),
    "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step_9/__3_0.distcp'": (
        causes.CHECKPOINT_CORRUPT,
        True,
    ),
    "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded.": (
        causes.CHECKPOINT_INCOMPATIBLE,
        True,
    ),
    "AssertionError: hidden_size value from checkpoint (64) is not equal to the input argument"
    " value (128).": (causes.CHECKPOINT_INCOMPATIBLE, True),
    "ValueError: loaded state dict contains a parameter group that doesn't match the size of"
    " optimizer's group": (causes.CHECKPOINT_INCOMPATIBLE, True),
    "ValueError: Size mismatch between saved torch.Size([8]) and current: torch.Size([4]) for w": (
        causes.CHECKPOINT_INCOMPATIBLE,
        True,
    ),
    "KeyError: 'model_state_dict'": (causes.CHECKPOINT_INCOMPATIBLE, True),
}


@pytest.mark.parametrize(("line", "expected"), CHECKPOINTS.items())
def test_a_checkpoint_that_cannot_be_used_is_not_the_programs_fault(line, expected):
    attempt = only(traceback(2, line))
    assert (attempt.cause, attempt.first.certain, attempt.first.rank) == (*expected, 2)


def test_an_exception_while_loading_is_about_the_checkpoint():
    text = traceback(0, "KeyError: 'exp_avg'").replace("in load", "in load_state_dict")
    assert only(text).cause == causes.CHECKPOINT_INCOMPATIBLE
    assert only(traceback(0, "KeyError: 'exp_avg'")).cause == causes.USER_EXCEPTION


QUIET = """
2026-03-01 12:00:01 WARNING trainer: [Errno 11] Resource temporarily unavailable, retrying
INFO:root:retrying request after error 503 (attempt 1 of 5)
train error: 0.12, val error: 0.20, error_rate=3, exit code 0, FAILED 0
UserWarning: dropped 3 batches; ConnectionResetError: peer went away, ignored
E0000 00:00:17.1 9 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register
[rank0]:[W1121 02:14:00.1 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called
ImportError: No module named 'apex'; falling back to the native implementation
the word exception and an Error in prose; returncode is 0 and status code 200
process exited with code 0
Training finished without errors
"""


def test_noise_is_neither_a_failure_nor_quoted():
    signs = signs_of(QUIET)
    assert decide(signs) == ()
    assert not signs.quotes


def explained(capsys, path) -> dict[str, object]:
    assert cli.main(["explain", "job-log", "--json", str(path)]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_error_of_no_known_kind_is_quoted_and_never_called_no_failure(tmp_path, capsys):
    path = tmp_path / "job.log"
    path.write_text("[ERROR] aborting: scale 0 at 12\n[ERROR] aborting: scale 0 at 13\nbye\n")
    said = explained(capsys, path)
    assert (said["failed"], said["cause"]) == (None, causes.UNKNOWN)
    assert said["unexplained"] == [
        {"file": str(path), "line": 1, "text": "[ERROR] aborting: scale 0 at 12", "count": 2}
    ]
    assert cli.main(["explain", "job-log", str(path)]) == 0
    text = capsys.readouterr().out
    assert "no failure" not in text
    assert f"not explained: 2x {path}:1: [ERROR] aborting: scale 0 at 12" in text


def test_an_error_that_the_program_survived_is_quoted(tmp_path, capsys):
    path = tmp_path / "job.log"
    path.write_text("WARNING: ran out of memory: CUDA out of memory, skipping batch\nstep 9\n")
    said = explained(capsys, path)
    assert (said["cause"], len(said["unexplained"])) == (causes.UNKNOWN, 1)


def test_what_was_survived_explains_a_failure_that_nothing_else_explains():
    survived = "WARNING: ran out of memory: CUDA out of memory, skipping batch\n"
    cut = 'Traceback (most recent call last):\n  File "/app/train.py", line 42, in main\n    go()\n'
    assert only(survived + cut).cause == causes.GPU_OOM
    assert only(survived + "[default] Worker group FAILED\n").cause == causes.GPU_OOM
    assert only(survived + traceback(1, "ValueError: bad")).cause == causes.USER_EXCEPTION
    assert only(survived + agent_end(1, 3)).cause == causes.EXIT_CODE


def test_a_launchers_own_traceback_tells_how_its_program_ended():
    killed = "subprocess.CalledProcessError: Command '['t.py']' died with <Signals.SIGKILL: 9>."
    assert only(traceback(None, killed)).cause == causes.KILLED
    failed = "subprocess.CalledProcessError: Command '['t.py']' returned non-zero exit status 1."
    assert only(traceback(None, failed)).cause == causes.EXIT_CODE
    attempt = only(traceback(1, "ValueError: bad") + traceback(None, failed))
    assert (attempt.cause, attempt.others) == (causes.USER_EXCEPTION, ())


def test_quotes_are_bounded_and_what_is_beyond_is_counted():
    signs = signs_of("".join(f"[ERROR] trouble {'x' * n}\n" for n in range(1, MAX_QUOTED + 4)))
    assert (len(signs.quotes), signs.beyond_limits) == (MAX_QUOTED, 3)


def test_a_traceback_that_is_cut_off_is_no_silence():
    cut = 'Traceback (most recent call last):\n  File "/app/train.py", line 42, in main\n    go()\n'
    attempt = only(f"step 3\n{cut}")
    assert (attempt.cause, attempt.first.frame) == (causes.UNKNOWN, "/app/train.py:42, in main")


def test_a_log_that_begins_within_a_traceback_shows_its_end():
    attempt = only('    go()\n  File "/app/train.py", line 42, in go\nMemoryError\n')
    assert attempt.cause == causes.HOST_OOM


def test_a_traceback_inside_a_line_of_json_is_read():
    stack = traceback(None, "torch.OutOfMemoryError: CUDA out of memory.")
    line = json.dumps({"level": "error", "rank": 3, "exc_info": stack, "host": "gpu-01"})
    attempt = only(f"{line}\nnext\n")
    assert (attempt.cause, attempt.first.frame) == (causes.GPU_OOM, "/app/train.py:14, in load")
    assert attempt.first.certain


def test_ten_thousand_interleaved_ranks_have_one_culprit():
    said = traceback(4711, "torch.OutOfMemoryError: CUDA out of memory.").splitlines(keepends=True)
    hang = "[rank{0}]:[E ProcessGroupNCCL.cpp:6] [Rank {0}] Watchdog caught collective operation"
    hang += " timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE)\n"
    lines = [hang.format(rank) for rank in range(10_000) if rank != 4711]
    for number, line in enumerate(said):
        lines.insert(1000 * number, line)
    attempt = only("".join(lines))
    assert (attempt.cause, attempt.first.rank) == (causes.GPU_OOM, 4711)
    assert len(attempt.victims) == 9_999


def test_two_jobs_in_one_file_each_keep_their_failure():
    first = traceback(None, "MemoryError") + table(1, {0: -15, 1: 1})
    second = traceback(None, "ValueError: bad") + table(0, {0: 1, 1: -15}, second=50)
    before, after = decide(signs_of(first + second))
    assert (before.cause, after.cause) == (causes.HOST_OOM, causes.USER_EXCEPTION)


def test_a_message_is_kept_as_far_as_a_report_can_show_it():
    attempt = only(f"RuntimeError: CUDA out of memory. {'x' * 1000}\n")
    assert len(attempt.first.text) == 400
