"""The causes of failed attempts: the vocabulary that logs, metrics and reports share."""

from __future__ import annotations

from collections.abc import Mapping

USER_EXCEPTION = "user_exception"
EXIT_CODE = "exit_code"
NATIVE_CRASH = "native_crash"
CUDA_ERROR = "cuda_error"
GPU_OOM = "gpu_oom"
HOST_OOM = "host_oom"
KILLED = "killed"
NCCL_ERROR = "nccl_error"
COLLECTIVE_TIMEOUT = "collective_timeout"
RENDEZVOUS = "rendezvous"
MISSING_IMPORT = "missing_import"
MISSING_MOUNT = "missing_mount"
MISSING_SECRET = "missing_secret"  # noqa: S105 - the name of a cause
MISSING_IMAGE = "missing_image"
PERMISSION = "permission"
STORAGE = "storage"
CHECKPOINT_CORRUPT = "checkpoint_corrupt"
CHECKPOINT_INCOMPATIBLE = "checkpoint_incompatible"
PREEMPTED = "preempted"
DEADLINE = "deadline"
CANCELLED = "cancelled"
NODE_LOST = "node_lost"
UNKNOWN = "unknown"
NONE = "none"

SIGNALLED = frozenset({NATIVE_CRASH})
"""Causes that end a process with a signal."""

KILLS = frozenset({HOST_OOM, KILLED})
"""Possible reasons for the end of a process by SIGKILL, with the sender known and unknown."""

OUT_OF_MEMORY = frozenset({GPU_OOM, *KILLS})
"""Causes that stop a program at any point."""

CAUSES: Mapping[str, str] = {
    USER_EXCEPTION: "the training program raised an exception",
    EXIT_CODE: "the training program exited with an exit code, without an exception",
    NATIVE_CRASH: "native code crashed: segmentation fault, abort, bus error",
    CUDA_ERROR: "a CUDA call failed",
    GPU_OOM: "the GPU's memory was full",
    HOST_OOM: "the node's or the container's memory (or /dev/shm) was full",
    KILLED: "the process was killed by SIGKILL, and these logs do not show by whom",
    NCCL_ERROR: "NCCL failed on this rank itself",
    COLLECTIVE_TIMEOUT: "a collective did not end in time, for an unknown reason",
    RENDEZVOUS: "the ranks did not find each other",
    MISSING_IMPORT: "a module, library or program is not in the image",
    MISSING_MOUNT: "a file or volume is not there",
    MISSING_SECRET: "a secret or credential is missing or not accepted",
    MISSING_IMAGE: "the image cannot be pulled",
    PERMISSION: "a file may not be accessed",
    STORAGE: "storage failed or is full",
    CHECKPOINT_CORRUPT: "a checkpoint or weights file is damaged or not whole",
    CHECKPOINT_INCOMPATIBLE: "a checkpoint does not fit the model, its parallelism or the library",
    PREEMPTED: "the attempt was ended from outside, to make room or to drain the node",
    DEADLINE: "the job's time limit was reached",
    CANCELLED: "the job was cancelled",
    NODE_LOST: "the node went away",
    UNKNOWN: "the logs do not show why",
    NONE: "the logs show no failure that is known",
}
"""Every cause and what it means."""

ACTIONS: Mapping[str, str] = {
    USER_EXCEPTION: "Fix the program; the last line of its traceback says where.",
    EXIT_CODE: "Read what the rank printed last; its program decided to end.",
    NATIVE_CRASH: "Look for a core dump or rerun with PYTHONFAULTHANDLER=1; update the extension.",
    CUDA_ERROR: "Look for an Xid of that GPU: rankscope explain kernel-log; without one it is the"
    " program (rerun with CUDA_LAUNCH_BLOCKING=1).",
    GPU_OOM: "Use smaller micro-batches, recompute activations or shard more; see whether another"
    " process holds the GPU's memory.",
    HOST_OOM: "Compare the pod's memory limit with its peak; raise it, or use less of it: loader"
    " workers, pinned buffers, /dev/shm.",
    KILLED: "See who killed it: the kernel for lack of memory (OOMKilled, or rankscope explain"
    " kernel-log on the node's log), a batch system, a liveness probe, or a person.",
    NCCL_ERROR: "rankscope explain nccl-log on the same logs says what NCCL warned about.",
    COLLECTIVE_TIMEOUT: "rankscope explain watchdog-log on the logs of all ranks names suspects.",
    RENDEZVOUS: "Check that all pods started, and MASTER_ADDR and its port from each of them.",
    MISSING_IMPORT: (
        "Install it in the image, or use the image that has it. Where the probe is injected, repeat"
        " in the pod's env what the image sets as PYTHONPATH."
    ),
    MISSING_MOUNT: "Check the path and the volume's mount on that node.",
    MISSING_SECRET: "Check that the secret exists in the namespace and has not expired.",
    MISSING_IMAGE: "Check the image's name and tag, and the pull secret.",
    PERMISSION: "Check the owner and mode of the path, and the container's user.",
    STORAGE: "Check free space, quota and health of that file system on the node.",
    CHECKPOINT_CORRUPT: "Resume from the checkpoint before it; look for full disks and for writers"
    " that were killed while saving, and save to a temporary name first.",
    CHECKPOINT_INCOMPATIBLE: "Compare the model's, parallelism's and libraries' settings with those"
    " at saving; convert the checkpoint or load the one that fits.",
    PREEMPTED: "Nothing in the program; resume from the last checkpoint.",
    DEADLINE: "Raise the limit or resume from the last checkpoint.",
    CANCELLED: "Nothing in the program; ask who ended it.",
    NODE_LOST: "Resume without the node; look at its kernel log and health.",
    UNKNOWN: "Give the logs of all ranks together, with the launcher's.",
    NONE: "If it failed nevertheless: give the logs of all ranks together, with the launcher's.",
}
"""What to do about each cause."""
