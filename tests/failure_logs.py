"""Logs of a job as attempts with their causes, and lines that tell a cause each."""

from __future__ import annotations

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.log import FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.failures.verdict import Attempt, decide
from rankscope_agent.contract.log_text.framing import Unframer

VALUE_ERROR = "ValueError: loss is nan at step 3"


def attempts(*logs: str, names: tuple[str, ...] = (), size: int = 1 << 16) -> tuple[Attempt, ...]:
    signs = FailureSigns()
    for number, text in enumerate(logs):
        name = names[number] if names else f"log-{number}"
        framing, log = Unframer(), FailureLog(name, signs)
        data = text.encode()
        for begin in range(0, len(data), size):
            log.feed(framing.feed(data[begin : begin + size]))
        log.feed(framing.finish())
        log.finish()
    return decide(signs)


def verdict(*logs: str, names: tuple[str, ...] = ()) -> tuple[str, int | None, list[int | None]]:
    """Return the cause, the rank that failed first, and its victims."""
    (attempt,) = attempts(*logs, names=names)
    rank = attempt.first.rank if attempt.first else None
    return attempt.cause, rank, [victim.rank for victim in attempt.victims]


ONE_LINE = {
    'Error: secret "hf-token" not found': causes.MISSING_SECRET,
    "Warning  Failed  kubelet  Error: ImagePullBackOff": causes.MISSING_IMAGE,
    'Failed to pull image "team/train:v9": rpc error: code = NotFound': causes.MISSING_IMAGE,
    'MountVolume.SetUp failed for volume "data" : mount failed: status 32': causes.MISSING_MOUNT,
    "Unable to attach or mount volumes: unmounted volumes=[ckpt]": causes.MISSING_MOUNT,
    "reason: OOMKilled, exitCode: 137": causes.HOST_OOM,
    "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0": causes.HOST_OOM,
    "slurmstepd: error: *** STEP 12.0 ON gpu-03 CANCELLED AT 2026-11-21T02:14:00 DUE TO PREEMPTION"
    " ***": causes.PREEMPTED,
    "slurmstepd: error: *** JOB 12 ON gpu-03 CANCELLED AT 2026-11-21T02:14:00 DUE TO TIME LIMIT"
    " ***": causes.DEADLINE,
    "slurmstepd: error: *** JOB 12 ON gpu-03 CANCELLED AT 2026-11-21T02:14:00 DUE TO NODE FAILURE,"
    " SEE SLURMCTLD LOG FOR DETAILS ***": causes.NODE_LOST,
    "srun: error: Node failure on gpu-03": causes.NODE_LOST,
    "slurmstepd: error: *** JOB 12 ON gpu-3 CANCELLED AT 2026-11-21T02:14:00 ***": causes.CANCELLED,
    "DisruptionTarget: PreemptionByScheduler": causes.PREEMPTED,
    "python: can't open file '/app/train.py': [Errno 2] No such file or directory": (
        causes.MISSING_IMPORT
    ),
    "/bin/sh: 1: torchrun: command not found": causes.MISSING_IMPORT,
    "The node was low on resource: ephemeral-storage.": causes.PREEMPTED,
    "Status: Failed, Reason: Evicted": causes.PREEMPTED,
    'exec: "torchrun": executable file not found in $PATH: unknown': causes.MISSING_IMPORT,
    "/usr/bin/python3: No module named torch": causes.MISSING_IMPORT,
    "/bin/sh: 1: torchrun: not found": causes.MISSING_IMPORT,
    "exec /usr/bin/python: exec format error": causes.MISSING_IMPORT,
    "python: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /x.so)": (
        causes.MISSING_IMPORT
    ),
    "ORTE has lost communication with a remote daemon.": causes.NODE_LOST,
    "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown": (
        causes.CUDA_ERROR
    ),
    "Segmentation fault (core dumped)": causes.NATIVE_CRASH,
    "free(): invalid pointer": causes.NATIVE_CRASH,
    "double free or corruption (!prev)": causes.NATIVE_CRASH,
    "srun: error: gpu-12: tasks 8-15: Bus error (core dumped)": causes.NATIVE_CRASH,
    "srun: error: gpu-12: tasks 8-12,14: Killed": causes.KILLED,
    "W1121 15:14:44.0 30205 torch/distributed/elastic/agent/server/api.py:753] Received 15 death"
    " signal, shutting down workers": causes.PREEMPTED,
}
