"""The meaning of lines of the platform and of launchers: a table from patterns to causes."""

from __future__ import annotations

import re

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.line_patterns import followed_by
from rankscope_agent.contract.failures.messages import Meaning

_LINES: tuple[tuple[bytes, Meaning], ...] = (
    # --- the kernel's log and the kubelet's states
    (
        rb"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d+|"
        rb"oom[-_]kill:constraint=|"
        rb"\bOOMKilled\b|\bOOM-killed\b|Detected \d+ oom[-_]kill event|task \d+: Out Of Memory|"
        rb"oom_kill event in StepId|"
        # Without `at some point`, which old Slurm versions also print for steps that swapped and
        # continued.
        + followed_by(
            "slurmstepd: error: ",
            "[Ee]xceeded (?:job |step )?memory limit(?! at some point)",
            60,
        ).encode(),
        Meaning(causes.HOST_OOM),
    ),
    (rb"low on resource: memory", Meaning(causes.HOST_OOM)),
    (
        rb"\b(?:ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull)\b|"
        rb"Failed to pull image|"
        rb"manifest unknown|pull access denied",
        Meaning(causes.MISSING_IMAGE),
    ),
    (
        rb"CreateContainerConfigError|[Ss]ecret \\?\"[\w.-]{1,253}\\?\" not found|"
        rb"couldn't find key [\w.-]{1,253} in Secret|"
        rb"references non-existent secret key",
        Meaning(causes.MISSING_SECRET),
    ),
    (
        rb"MountVolume\.\w+ failed|Unable to attach or mount volumes|\bFailedMount\b|"
        rb"\bFailedAttachVolume\b|"
        rb"AttachVolume\.\w+ failed|configmap \\?\"[\w.-]{1,253}\\?\" not found|"
        rb"persistentvolumeclaim \\?\"[\w.-]{1,253}\\?\" not found|mount\.nfs: |"
        + followed_by("mount: ", ": (?:special device|can't|failed)", 200).encode(),
        Meaning(causes.MISSING_MOUNT),
    ),
    # --- Slurm: src/slurmd/slurmstepd/req.c, src/srun
    (
        rb"CANCELLED AT \S{1,40} DUE TO NODE FAILURE|srun: error: Node failure on|NODE_FAIL",
        Meaning(causes.NODE_LOST),
    ),
    (rb"CANCELLED AT \S{1,40} DUE TO PREEMPTION|\bPREEMPTED\b", Meaning(causes.PREEMPTED)),
    (
        rb"CANCELLED AT \S{1,40} DUE TO TIME ?LIMIT|DeadlineExceeded|activeDeadlineSeconds|"
        rb"was active on the node longer than the specified deadline",
        Meaning(causes.DEADLINE),
    ),
    (
        rb"slurmstepd: error: \*\*\* (?:JOB|STEP) \S{1,60} ON \S{1,255} CANCELLED AT",
        Meaning(causes.CANCELLED),
    ),
    # --- Kubernetes: pod conditions and reasons
    (
        rb"\bPreemptionByScheduler\b|Preempted (?:by|in order)|"
        rb"reason: ?\"?Preempted|\bTerminationByKubelet\b|"
        rb"\bEvictionByEvictionAPI\b|DeletionByTaintManager|\bSpot(?:Interruption|"
        rb" instance interruption)",
        Meaning(causes.PREEMPTED),
    ),
    (
        rb"\bNodeLost\b|\bNodeNotReady\b|Node is not ready|NodeShutdown|node was (?:lost|"
        rb"terminated|shut ?down)|"
        rb"has failed to send a? ?keep-alive heartbeat|"
        + followed_by("node ", " is unreachable", 120).encode()
        + rb"|"
        rb"\bDeletionByPodGC\b",
        Meaning(causes.NODE_LOST),
    ),
    # Open MPI: the node went away, or the daemon on it
    (rb"\b[OP]RTE has lost communication with", Meaning(causes.NODE_LOST, certain=False)),
    (
        rb"(?:[Rr]eason|phase)\W{1,4}Evicted\b|^Evicted\W*$|The node was low on resource",
        Meaning(causes.PREEMPTED),
    ),
    # --- failures to start
    (
        rb"executable file not found in \$PATH|: command not found$|[Ee]xec format error$|"
        rb"^(?:/\S{0,200}/)?\w{0,4}sh: (?:line )?\d{1,9}: \S{1,200}: not found$|"
        rb"version `(?:GLIBC|CXXABI)\w{0,20}_[\d.]{1,20}' not found|"
        + followed_by("can't open file ", "No such file or directory", 400).encode()
        + rb"|"
        rb"^(?:/\S{0,200}/)?python[\d.]*: No module named |error while loading shared libraries",
        Meaning(causes.MISSING_IMPORT),
    ),
    (
        followed_by("nvidia-container-cli: ", "error: ", 80).encode(),
        Meaning(causes.CUDA_ERROR, certain=False),
    ),
    # --- native crashes: CPython's faulthandler, glibc, PyTorch's terminate handler
    (
        rb"^Fatal Python error: (?:Segmentation fault|Aborted|Bus error|Illegal instruction|"
        rb"Floating)|Segmentation fault \(core dumped\)|"
        rb"^\*\*\* (?:stack smashing|buffer overflow) detected|"
        rb"^(?:free|malloc|realloc|munmap_chunk)\(\): |^double free or corruption |"
        rb"Caught signal 11 \(Segmentation fault|Signal: Segmentation fault \(11\)",
        Meaning(causes.NATIVE_CRASH),
    ),
    # --- PyTorch's watchdog, printed by waiting ranks
    (
        rb"Watchdog caught collective operation timeout",
        Meaning(causes.COLLECTIVE_TIMEOUT, victim=True),
    ),
    # --- the launcher was told to exit
    (
        rb"Received (?:15|Signals\.SIGTERM) death signal, shutting down workers",
        Meaning(causes.PREEMPTED, certain=False),
    ),
    (
        rb"Received (?:1|2|Signals\.SIG(?:INT|HUP)) death signal, shutting down workers",
        Meaning(causes.CANCELLED),
    ),
    (
        rb"^(?:\S{1,80}: line \d+: +\d+ |srun: error: \S{1,255}: tasks [\d,-]{1,400}: )?"
        rb"Killed\b(?: |$)",
        Meaning(causes.KILLED, certain=False),
    ),
)
LINES = tuple((re.compile(pattern), meaning) for pattern, meaning in _LINES)
"""Meaningful lines outside of tracebacks."""


def classify_line(words: bytes) -> Meaning | None:
    """Return what a line outside of tracebacks means; None if nothing."""
    for pattern, meaning in LINES:
        if pattern.search(words):
            return meaning
    return None
