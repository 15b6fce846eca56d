"""Which rank failed first and why, from every kind of log, with victims that are not blamed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failed_jobs import agent_end, cri, entry, lost, table, traceback
from failure_logs import ONE_LINE, VALUE_ERROR, attempts, verdict
from rankscope_agent.contract.failures import causes


def test_the_rank_with_the_exception_failed_first_and_its_peers_are_victims():
    log = traceback(1, VALUE_ERROR) + lost(0) + lost(2) + table(1, {0: -15, 1: 1, 2: -15})
    (attempt,) = attempts(log)
    assert (attempt.cause, attempt.first.rank) == (causes.USER_EXCEPTION, 1)
    assert attempt.first.text == VALUE_ERROR
    assert attempt.first.frame == "/app/train.py:14, in load"
    assert [victim.rank for victim in attempt.victims] == [0, 2]
    assert not attempt.others


def test_victims_that_speak_first_are_not_blamed():
    log = lost(0) + lost(2) + traceback(1, VALUE_ERROR) + table(1, {0: 1, 1: 1, 2: 1})
    assert verdict(log) == (causes.USER_EXCEPTION, 1, [0, 2])


def test_torchruns_root_cause_is_no_cause_if_it_is_a_victim():
    # The first to fail left with sys.exit, without an error file: torchrun takes it for the last.
    log = lost(0) + lost(2) + table(0, {0: -15, 1: 3, 2: -15})
    (attempt,) = attempts(log)
    assert (attempt.cause, attempt.first.rank, attempt.first.exit_code) == (causes.EXIT_CODE, 1, 3)
    assert [victim.rank for victim in attempt.victims] == [0, 2]


@pytest.mark.parametrize("code", [-9, 137])
def test_a_killed_rank_was_killed_by_nobody_knows_whom(code):
    (attempt,) = attempts(lost(0) + table(1, {0: -15, 1: code}))
    assert (attempt.cause, attempt.first.rank, attempt.first.certain) == (causes.KILLED, 1, False)


@pytest.mark.parametrize(
    "word",
    [
        "srun: error: gpu-03: task 1: Out Of Memory",
        "srun: error: gpu-03: task 1: Killed\nslurmstepd: error: Detected 1 oom_kill event in"
        " StepId=123.0",
        "srun: error: gpu-03: task 1: Killed\nKilled\nLast State: Terminated, OOMKilled",
    ],
)
def test_whoever_says_that_memory_was_full_makes_it_the_cause_of_the_rank_that_was_killed(word):
    (attempt,) = attempts(lost(0) + word + "\n")
    assert (attempt.cause, attempt.first.rank, attempt.first.certain) == (causes.HOST_OOM, 1, True)
    assert attempt.others == ()


def test_the_kernels_word_proves_the_lack_of_memory():
    kernel = "Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB\n"
    (attempt,) = attempts(lost(0) + kernel + table(1, {0: -15, 1: -9}))
    assert (attempt.cause, attempt.first.rank, attempt.first.certain) == (causes.HOST_OOM, 1, True)


def test_a_traceback_without_a_tag_is_of_the_rank_that_ended_without_another_reason():
    log = traceback(None, "ModuleNotFoundError: No module named 'flash_attn'")
    log += table(1, {0: -15, 1: 1, 2: -15})
    assert verdict(log) == (causes.MISSING_IMPORT, 1, [0, 2])


def test_tracebacks_of_old_pytorch_have_no_tags_and_victims_stay_victims():
    log = traceback(None, VALUE_ERROR) + lost(None) + lost(None)
    log += table(1, {0: 1, 1: 1, 2: 1})
    assert verdict(log) == (causes.USER_EXCEPTION, 1, [0, 2])


def test_an_exit_without_words_is_not_excused_by_messages_of_others():
    log = lost(None) + lost(None) + table(1, {0: -15, 1: 3, 2: -15})
    cause, rank, _ = verdict(log)
    assert (cause, rank) == (causes.EXIT_CODE, 1)


def test_all_that_fail_alike_are_named():
    error = "ImportError: libcudnn.so.9: cannot open shared object file"
    (attempt,) = attempts("".join(traceback(rank, error) for rank in (2, 0, 1)))
    assert (attempt.cause, attempt.first.rank) == (causes.MISSING_IMPORT, 2)
    assert [(o.rank, o.cause) for o in attempt.others] == [
        (0, causes.MISSING_IMPORT),
        (1, causes.MISSING_IMPORT),
    ]


def test_a_crash_on_the_way_out_is_no_cause():
    log = traceback(1, "OSError: [Errno 28] No space left on device") + lost(0)
    log += "Fatal Python error: Aborted\n"
    log += table(1, {0: -6, 1: 1}).replace("traceback : To", f"traceback : {lost(0)}  To", 1)
    assert verdict(log)[:2] == (causes.STORAGE, 1)


def test_the_last_exception_of_a_chain_is_shown_and_the_first_explains_it():
    chain = traceback(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    chain += "\n[rank1]: The above exception was the direct cause of the following exception:\n\n"
    chain += traceback(1, "RuntimeError: step 17 failed")
    (attempt,) = attempts(chain)
    assert (attempt.cause, attempt.first.text) == (causes.GPU_OOM, "RuntimeError: step 17 failed")


def test_an_exception_while_another_is_handled_speaks_for_itself():
    chain = traceback(1, "ModuleNotFoundError: No module named 'apex'")
    chain += (
        "\n[rank1]: During handling of the above exception, another exception occurred:\n\n"
        + traceback(1, "RuntimeError: shape mismatch")
    )
    assert verdict(chain)[0] == causes.USER_EXCEPTION


def test_the_exception_of_a_loaders_worker_is_shown():
    log = traceback(1, "KeyError: Caught KeyError in DataLoader worker process 0.")
    log += "[rank1]: Original Traceback (most recent call last):\n"
    log += "[rank1]:   File \"/app/data.py\", line 28, in __getitem__\n[rank1]: KeyError: 'image'\n"
    (attempt,) = attempts(log)
    assert attempt.first.text == "KeyError: 'image'"
    assert attempt.first.frame == "/app/data.py:28, in __getitem__"


def test_a_message_of_several_lines_is_read_to_its_end():
    log = traceback(
        3,
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384,"
        " unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed.",
        "Last error:",
        "Error: failed to extend /dev/shm/nccl-x to 33030532 bytes",
    )
    assert verdict(log)[:2] == (causes.NCCL_ERROR, 3)


def test_remote_errors_of_nccl_are_victims():
    remote = traceback(
        0,
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or"
        " there was a network error, NCCL version 2.27.3",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process"
        " exiting prematurely.",
    )
    cuda = traceback(
        1, "torch.AcceleratorError: CUDA error: an illegal memory access", "CUDA kernel"
    )
    assert verdict(remote + cuda) == (causes.CUDA_ERROR, 1, [0])


def test_watchdogs_that_wait_are_victims_and_nobody_is_blamed_for_a_timeout_alone():
    line = (
        "[rank{0}]:[E1121 02:14:00.1 ProcessGroupNCCL.cpp:6] [PG ID 0 PG GUID 0(x) Rank {0}]"
        " Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE)\n"
    )
    (attempt,) = attempts("".join(line.format(rank) for rank in (0, 1, 3)))
    assert (attempt.cause, attempt.first, attempt.silent) == (
        causes.COLLECTIVE_TIMEOUT,
        None,
        (range(2, 3),),
    )
    assert [victim.rank for victim in attempt.victims] == [0, 1, 3]


FRAMES = {
    "cri": cri,
    "docker": lambda text: "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr"}, separators=(",", ":")) + "\n"
        for line in text.splitlines()
    ),
    "kubectl": lambda text: "".join(f"[pod/train-0/main] {line}\n" for line in text.splitlines()),
    "colours": lambda text: "".join(f"\x1b[31m{line}\x1b[0m\n" for line in text.splitlines()),
    "windows": lambda text: text.replace("\n", "\r\n"),
    "journald": lambda text: "".join(
        f"Nov 21 02:14:00 gpu-00 train[47]: {line}\n" for line in text.splitlines()
    ),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_every_wrapping_gives_the_same_verdict(frame):
    log = traceback(1, VALUE_ERROR) + lost(0) + lost(2) + table(1, {0: -15, 1: 1, 2: -15})
    assert verdict(FRAMES[frame](log)) == (causes.USER_EXCEPTION, 1, [0, 2])


@pytest.mark.parametrize(
    "tag", ["[default{}]:", "[1,{}]<stderr>:", "{}: ", "[rank{}]: ", "[default{0}]:[rank{0}]: "]
)
def test_every_launchers_tag_names_the_rank(tag):
    text = traceback(None, VALUE_ERROR)
    tagged = "".join(f"{tag.format(3)}{line}\n" for line in text.splitlines())
    assert verdict(tagged)[:2] == (causes.USER_EXCEPTION, 3)


@pytest.mark.parametrize(
    "name", ["rank{}.log", "/logs/train_rank-{}.txt.gz", "/l/run_x/attempt_0/{}/stderr.log"]
)
def test_a_files_name_tells_its_rank(name):
    names = tuple(name.format(rank) for rank in range(3))
    logs = (lost(None), traceback(None, VALUE_ERROR), lost(None))
    assert verdict(*logs, names=names) == (causes.USER_EXCEPTION, 1, [0, 2])


def test_times_decide_between_ranks_that_failed_each_by_itself():
    late, early = cri(traceback(0, "RuntimeError: b"), 30), cri(traceback(1, "RuntimeError: a"), 10)
    (attempt,) = attempts(late, early)
    assert (attempt.first.rank, [other.rank for other in attempt.others]) == (1, [0])


def test_the_tables_of_two_nodes_are_compared_by_their_times():
    first = table(1, {0: -15, 1: 1}, second=34)
    second = table(3, {2: -15, 3: 1}, second=40).replace("gpu-00", "gpu-01")
    assert verdict(second, first)[:2] == (causes.EXIT_CODE, 1)


def test_local_ranks_are_translated_by_the_table_of_their_node():
    log = "".join(
        f"[default1]:{line}\n" for line in traceback(None, "RuntimeError: boom").splitlines()
    )
    log += table(9, {8: -15, 9: 1}).replace("local_rank: 9", "local_rank: 1")
    log = log.replace("local_rank: 8", "local_rank: 0")
    assert verdict(log) == (causes.USER_EXCEPTION, 9, [8])


def test_an_error_file_is_read():
    stack = traceback(None, VALUE_ERROR)
    text = json.dumps(
        {
            "message": {
                "message": VALUE_ERROR,
                "extraInfo": {"py_callstack": stack, "timestamp": "1795274145"},
            }
        }
    )
    (attempt,) = attempts(text, names=("/tmp/attempt_0/1/error.json",))
    assert (attempt.cause, attempt.first.rank) == (causes.USER_EXCEPTION, 1)
    assert (attempt.first.text, attempt.first.time) == (VALUE_ERROR, 1795274145.0)


@pytest.mark.parametrize(
    "text", ["{", '{"message": 3}', '{"message": {"message": null}}', "{}", '{"a":' * 5000]
)
def test_json_that_is_no_error_file_says_nothing(text):
    assert attempts(text) == ()


def test_attempts_of_one_run_are_told_apart():
    log = traceback(1, VALUE_ERROR) + lost(0) + agent_end(1, 1)
    log += traceback(0, "torch.OutOfMemoryError: CUDA out of memory.") + lost(1)
    log += table(0, {0: 1, 1: -15})
    before, after = attempts(log)
    assert (before.number, before.cause, before.first.rank) == (0, causes.USER_EXCEPTION, 1)
    assert (after.number, after.cause, after.first.rank) == (1, causes.GPU_OOM, 0)


def test_what_a_spawned_process_raised_is_told_by_its_parent():
    log = traceback(None, "torch.multiprocessing.spawn.ProcessRaisedException: ")
    log += "\n-- Process 2 terminated with the following error:\n"
    log += traceback(None, "IndexError: label 1000 out of range")
    assert verdict(log)[:2] == (causes.USER_EXCEPTION, 2)
    killed = traceback(
        None,
        "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal"
        " SIGKILL",
    )
    assert verdict(killed)[:2] == (causes.KILLED, 2)


def test_what_mpirun_and_srun_say_of_one_rank_is_read():
    mpi = "mpirun noticed that process rank 3 with PID 0 on node gpu-01 exited on signal 11 (x).\n"
    assert verdict(mpi)[:2] == (causes.NATIVE_CRASH, 3)
    assert verdict("srun: error: gpu-03: task 7: Killed\n")[:2] == (causes.KILLED, 7)
    exited = "srun: error: gpu-03: task 7: Exited with exit code 1\n"
    assert verdict(exited)[:2] == (causes.EXIT_CODE, 7)


def test_the_cancelling_of_a_job_after_an_exception_is_its_consequence():
    cancelled = "slurmstepd: error: *** STEP 12.0 ON gpu-03 CANCELLED AT 2026-11-21T02:14:00 ***\n"
    assert verdict(traceback(1, VALUE_ERROR) + cancelled)[:2] == (causes.USER_EXCEPTION, 1)


@pytest.mark.parametrize(
    "log",
    [
        "step 10 loss 2.5\nstep 20 loss 2.4\n",
        "the error rate fell to 3 %; no failures, no signal\n",
        "raised ValueError: 3 of 4 in this sentence\n",
        "INFO: evicted 3 blocks from the cache; killed 0 workers\n",
        "Evicted 12 entries; preemption of requests is off; Preempted 0 of 8\n",
        "Traceback (most recent call last):\n",
        "",
    ],
)
def test_logs_without_a_failure_show_none(log):
    assert attempts(log) == ()


PIECES = [
    traceback(1, VALUE_ERROR),
    traceback(None, "MemoryError"),
    lost(0),
    lost(None),
    table(1, {0: -15, 1: 1}),
    entry(0, 7, -9, 3),
    agent_end(0, -9),
    "-- Process 99999999 terminated with the following error:\n",
    "Root Cause (first observed failure):\n[0]:\n  rank      : 9999999 (local_rank: 3)\n",
    "  exitcode  : -9999 (pid: 3)\n",
    "[rank1]: The above exception was the direct cause of the following exception:\n",
    "[rank1]: Original Traceback (most recent call last):\n",
    *(f"{line}\n" for line in ONE_LINE),
    '{"message": {"message": "x", "extraInfo": {"py_callstack": 3}}}',
    "2026-99-99T02:14:00Z stderr F Killed\n",
    "\x1b]0;owned\x07",
]


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=12),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 300)), max_size=3),
    st.integers(1, 500),
)
def test_any_text_gives_a_verdict_from_the_vocabulary(pieces, cuts, size):
    text = "".join(pieces)
    for begin, length in cuts:
        text = text[:begin] + text[begin + length :]
    for attempt in attempts(text, size=size):
        assert attempt.cause in causes.CAUSES
        ranks = [victim.rank for victim in attempt.victims if victim.rank is not None]
        assert attempt.first is None or attempt.first.rank not in ranks
        assert len(ranks) == len(set(ranks))


FULL = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 15.78 GiB total)"
UNBOUND = "NameError: name 'trainer' is not defined"


@pytest.mark.parametrize("first", [FULL, UNBOUND])
def test_a_name_that_was_never_bound_is_no_cause_where_memory_was_full(first):
    log = "".join(traceback(None, text) for text in sorted((FULL, UNBOUND), key=first.__ne__))
    assert verdict(log)[0] == causes.GPU_OOM


def test_a_name_that_was_never_bound_is_the_cause_where_nothing_was_full():
    assert verdict(traceback(None, UNBOUND) + traceback(None, VALUE_ERROR))[0] == (
        causes.USER_EXCEPTION
    )
    (attempt,) = attempts(traceback(None, UNBOUND) + traceback(None, VALUE_ERROR))
    assert attempt.first.text == UNBOUND


SLURM = "slurmstepd: error: Job 7518 exceeded memory limit (626359956 > 512000000), being killed\n"
CANCELLED = "slurmstepd: error: *** JOB 7518 ON node-a CANCELLED AT 2022-06-10T17:11:35 ***\n"


def test_slurm_that_kills_for_memory_says_so_before_it_says_cancelled():
    assert verdict(SLURM + CANCELLED)[0] == causes.HOST_OOM
    assert verdict(CANCELLED)[0] == causes.CANCELLED


def test_a_step_that_swapped_and_went_on_is_no_failure():
    line = "slurmstepd: error: Exceeded step memory limit at some point. Step may have been swapped"
    assert not attempts(line + " out to disk.\n")


def test_a_loader_worker_that_was_ended_names_no_cause():
    ended = "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated."
    assert verdict(traceback(None, ended))[0] == causes.UNKNOWN
    assert verdict(traceback(None, ended) + traceback(None, VALUE_ERROR))[0] == (
        causes.USER_EXCEPTION
    )


def test_a_log_that_somebody_quoted_reads_as_before():
    log = traceback(None, FULL)
    assert verdict("".join(f"> {line}\n" for line in log.splitlines()))[0] == causes.GPU_OOM


@pytest.mark.parametrize(("lines", "certain"), [(15_000, True), (25_000, False)])
def test_a_traceback_among_others_lines_is_waited_for_so_long_and_no_longer(lines, certain):
    begin = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 3, in f\n'
    text = begin + "[rank0]: step 3\n" * lines + f"[rank1]: {VALUE_ERROR}\n"
    (attempt,) = attempts(text)
    assert attempt.first is not None
    assert (attempt.first.rank, attempt.first.certain) == (1, certain)
