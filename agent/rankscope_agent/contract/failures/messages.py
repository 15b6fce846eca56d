"""The meaning of single messages: a table from patterns to causes, each with its source.

A victim's message shows that another rank failed: a closed connection, a collective without an
answer, a signal from the launcher.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from rankscope_agent.contract.failures import causes


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a message.

    Args:
        cause: one of `causes.CAUSES`.
        victim: whether its writer was hit by another rank's failure.
        certain: whether the message proves the cause, instead of making it likely.
    """

    cause: str
    victim: bool = False
    certain: bool = True


USER = Meaning(causes.USER_EXCEPTION)
LAUNCHER = Meaning(causes.NONE)
"""A launcher's own exception: it repeats that one of its processes failed."""

# A KeyError of os.environ contains only the variable's name.
_NAMED_CREDENTIAL = (
    r"KeyError: '[A-Z0-9_]{0,60}(?:TOKEN|API_KEY|SECRET|PASSWORD|ACCESS_KEY)[A-Z0-9_]{0,60}'"
)

_EXCEPTIONS: tuple[tuple[str, Meaning], ...] = (
    # --- the launcher's own: torch/distributed/elastic, accelerate, torch.multiprocessing
    (
        r"^(?:[\w.]*\.)?(?:ChildFailedError|ProcessRaisedException|ProcessExitedException)\b",
        LAUNCHER,
    ),
    (r"^subprocess\.CalledProcessError: Command ", LAUNCHER),
    (r"SignalException: Process \d+ got signal: (?:2|1)\b", Meaning(causes.CANCELLED)),
    (r"SignalException: Process \d+ got signal: ", Meaning(causes.PREEMPTED, certain=False)),
    (r"^KeyboardInterrupt\b", Meaning(causes.CANCELLED)),
    # --- checkpoints that cannot be read: torch/serialization.py, caffe2/serialize, safetensors,
    # transformers, DeepSpeed, orbax, TensorFlow
    (
        r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is "
        r"corrupted|unexpected EOF, expected \d+ more bytes|storage has wrong (?:byte )?size|"
        r"SafetensorError|safetensors.{0,80}(?:[Hh]eader|[Ii]ncomplete)|"
        r"(?:Metadata|Header|InvalidHeader)\w{0,20}(?:IncompleteBuffer|TooLarge|TooSmall|"
        r"Deserialization)|Unable to load weights from \w{0,40} ?checkpoint file|"
        # Of a path its last character is enough: a longer start would be tried at each of them.
        r"DataLossError|(?:checkpoint|[\w/.-]\.(?:pth?|ckpt|bin|safetensors|distcp)\b)"
        r".{0,200}\b(?:corrupt(?:ed|ion)?|truncated|damaged)\b|"
        r"\b[Cc]orrupt(?:ed)? (?:checkpoint|weights|shard|state)|"
        r"FileNotFoundError.{0,300}\.distcp\b|[Cc]hecksum.{0,60}checkpoint",
        Meaning(causes.CHECKPOINT_CORRUPT),
    ),
    (
        r"Weights only load failed|"
        r"Error\(s\) in loading state_dict|[Ss]ize mismatch (?:for|between saved)|"
        r"(?:Missing|Unexpected) keys?(?:\(s\))? in (?:the )?(?:\w{1,40} )?state_dict|"
        r"copying a param with shape|loaded state dict (?:has|contains)|"
        r"value from checkpoint \(.{0,80}\) is not equal to|"
        r"checkpoint.{0,80}(?:DP|TP|PP|MP)? ?world size of \d+ but|"
        r"(?:checkpoint|[Ss]aved|state_dict).{0,160}(?:shape|size|version|architecture|parallel)"
        r".{0,40}(?:mismatch|does(?: not|n't) match|do not match|incompatible)|"
        r"(?:mismatch|does(?: not|n't) match|do not match|incompatible).{0,100}\b(?:checkpoint|"
        r"state_dict|state dict)\b|"
        r"checkpoint you are trying to load has model type|"
        r"KeyError: ['\"](?:\w{0,40}_)?state_dict['\"]|"
        r"ScopeParamShapeError|Missing key in checkpoint state_dict",
        Meaning(causes.CHECKPOINT_INCOMPATIBLE),
    ),
    (
        r"UnpicklingError|pickle data was truncated|EOFError: Ran out of input|"
        r"BadZipFile",
        Meaning(causes.CHECKPOINT_CORRUPT, certain=False),
    ),
    # --- victims: gloo's transports, NCCL's remote errors, TCPStore
    (
        r"Gloo connectFullMesh failed|Connect timeout .*gloo|gloo.*connect",
        Meaning(causes.RENDEZVOUS, victim=True),
    ),
    (
        r"gloo/transport/.*(?:Connection closed by peer|Read error|Write error|Connection reset|"
        r"Connection refused|Broken pipe|Socket closed|SO_ERROR)",
        Meaning(causes.NCCL_ERROR, victim=True),
    ),
    (
        r"(?:gloo/.*Timed out waiting|Application timeout caused pair closure)",
        Meaning(causes.COLLECTIVE_TIMEOUT, victim=True),
    ),
    (
        r"ncclRemoteError|remote process exited or there was a network error|"
        r"Connection closed by remote peer|NCCL communicator was aborted|"
        r"NCCL (?:communicator|operation).{0,40}(?:aborted|abort)",
        Meaning(causes.NCCL_ERROR, victim=True),
    ),
    (
        r"[Ww]atchdog caught collective operation timeout|"
        r"Some NCCL operations have failed or timed out|"
        r"taking the entire process down|caught collective operation timeout",
        Meaning(causes.COLLECTIVE_TIMEOUT, victim=True),
    ),
    (
        r"failed to recv, got 0 bytes|Connection was likely closed|"
        r"TCPStore.{0,80}(?:[Bb]roken pipe|reset by peer)|"
        r"(?:DistNetworkError|DistStoreError|DistError).{0,200}(?:[Bb]roken pipe|reset by peer|"
        r"closed)|"
        r"recvValue failed|sendBytes failed|recvVector failed",
        Meaning(causes.RENDEZVOUS, victim=True),
    ),
    (
        r"^(?:ConnectionResetError|BrokenPipeError|EOFError|ConnectionAbortedError)\b",
        Meaning(causes.UNKNOWN, victim=True, certain=False),
    ),
    # --- host memory, as Ray's monitor reports it
    (
        r"ray\.exceptions\.OutOfMemoryError|killed due to (?:the node running low on memory|memory "
        r"pressure)|[Ee]xceeded (?:job |step )?memory limit(?! at some point)",
        Meaning(causes.HOST_OOM),
    ),
    # --- GPU memory, before other CUDA errors
    (
        r"No available memory for the cache blocks|"
        r"Free memory on device .{0,120} is less than desired|"
        r"RESOURCE_EXHAUSTED: .{0,80}(?:memory space hbm|Ran out of memory)|"
        r"CUDA out of memory|HIP out of memory|XPU out of memory|CUDA error: out of memory|"
        r"cudaErrorMemoryAllocation|"
        r"(?:torch\.(?:cuda\.)?)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|"
        r"RESOURCE_EXHAUSTED: Out of memory|Cuda failure \d* ?'out of memory'|"
        r"CUDA_ERROR_OUT_OF_MEMORY",
        Meaning(causes.GPU_OOM),
    ),
    # --- host memory
    (
        r"^MemoryError\b|DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory|"
        r"\[enforce fail at alloc_cpu|std::bad_alloc|unable to mmap \d+ bytes",
        Meaning(causes.HOST_OOM),
    ),
    (
        r"out of shared memory|[Bb]us error.{0,40} This might be caused by insufficient shared "
        r"memory|"
        r"unable to (?:write|allocate shared memory|resize).{0,80}/torch_",
        Meaning(causes.HOST_OOM),
    ),
    (
        r"DataLoader worker \(pid[^)]*\) is killed by signal: Killed",
        Meaning(causes.KILLED, certain=False),
    ),
    (
        r"DataLoader worker \(pid(?:\(s\))?[^)]*\) (?:is killed by signal: Bus error|"
        r"exited unexpectedly)",
        Meaning(causes.HOST_OOM, certain=False),
    ),
    (
        r"DataLoader worker \(pid[^)]*\) is killed by signal: (?:Segmentation|Aborted)",
        Meaning(causes.NATIVE_CRASH),
    ),
    (
        r"DataLoader worker \(pid[^)]*\) is killed by signal: Terminated",
        Meaning(causes.UNKNOWN, victim=True, certain=False),
    ),
    # --- NCCL on this rank; `unhandled cuda error` is CUDA's
    (r"ncclUnhandledCudaError|unhandled cuda error", Meaning(causes.CUDA_ERROR)),
    (
        r"NCCL error|ncclSystemError|ncclInternalError|ncclInvalid(?:Usage|Argument)|"
        r"NCCL Error \d|NCCL WARN .{0,80}(?:Got completion (?:from|with)|async fatal event|"
        r"ibv_modify_qp failed|ibv_create_qp failed|ibv_reg_mr\w* failed)|"
        r"NCCL (?:initialization|init) failed",
        Meaning(causes.NCCL_ERROR),
    ),
    (
        r"CUDA error|CUDA driver error|CUDA_ERROR_\w+|CUBLAS_STATUS_\w+|cuDNN error|"
        r"CUDNN_STATUS_\w+|CUSOLVER_STATUS|CUFFT_|"
        r"cuda runtime error|Cuda failure|HIP error|device-side assert|AcceleratorError|"
        r"No CUDA GPUs are available|"
        r"Found no NVIDIA driver|CUDA unknown error|no CUDA-capable device|"
        r"Torch not compiled with CUDA|"
        r"Triton Error \[CUDA\]|illegal memory access|NVRM: Xid \(",
        Meaning(causes.CUDA_ERROR),
    ),
    # --- rendezvous
    (
        r"Rendezvous\w*Error|RendezvousTimeout|DistNetworkError|DistStoreError|"
        r"The (?:client|server) (?:network )?socket has (?:failed|timed out)|"
        r"EADDRINUSE|[Aa]ddress already in use|Timed out initializing process group|"
        r"wait timeout after|"
        r"Socket Timeout|"
        # JAX's coordination service, while its tasks register
        r"Barrier timed out.{0,80}(?:Init|register|Connect)|"
        r"(?:UNAVAILABLE|DEADLINE_EXCEEDED).{0,120}(?:RegisterTask|coordination service)",
        Meaning(causes.RENDEZVOUS),
    ),
    (
        r"DEADLINE_EXCEEDED: Barrier timed out",
        Meaning(causes.COLLECTIVE_TIMEOUT, victim=True),
    ),
    # --- missing from the image
    (
        r"^(?:ModuleNotFoundError|ImportError)\b|cannot open shared object file|undefined symbol|"
        r"version `GLIBC\w*_[\d.]+' not found|PackageNotFoundError|DistributionNotFound",
        Meaning(causes.MISSING_IMPORT),
    ),
    # --- credentials
    (_NAMED_CREDENTIAL, Meaning(causes.MISSING_SECRET)),
    (
        r"GatedRepoError|401 Client Error|401 Unauthorized|403 Client Error|403 Forbidden|"
        r"NoCredentialsError|"
        r"Unable to locate credentials|InvalidAccessKeyId|AccessDenied|ExpiredToken|"
        r"SignatureDoesNotMatch|"
        r"api_key not configured|Invalid (?:user )?(?:token|credentials|API key)|"
        r"LocalTokenNotFoundError|"
        r"DefaultCredentialsError|AuthenticationError|PartialCredentialsError",
        Meaning(causes.MISSING_SECRET),
    ),
    # --- storage
    (
        r"No space left on device|Disk quota exceeded|Input/output error|"
        r"Stale (?:NFS )?file handle|"
        r"Transport endpoint is not connected|Read-only file system|Errno (?:5|28|30|107|116|"
        r"122)\]|"
        r"PytorchStreamWriter failed|unexpected pos \d+ vs",
        Meaning(causes.STORAGE),
    ),
    (r"^PermissionError\b|Permission denied", Meaning(causes.PERMISSION)),
    (
        r"^(?:FileNotFoundError|NotADirectoryError)\b|No such file or directory|"
        r"is not a (?:valid|local) (?:folder|directory)|could not find checkpoint",
        Meaning(causes.MISSING_MOUNT),
    ),
)
EXCEPTIONS = tuple((re.compile(pattern, re.MULTILINE), meaning) for pattern, meaning in _EXCEPTIONS)
"""Exceptions by their last line and what follows it; the first match counts."""


_INNER = re.compile(r"[:(] ?(?=(?:[A-Za-z_]\w{0,60}\.){0,12}[A-Z]\w{0,80}Error\b)")

MAX_INNER = 4
"""Exceptions examined that the text of another one names: wrappers wrap one, rarely two."""


def classify(text: str) -> Meaning:
    """Return what an exception's text means; the program's own if no known pattern matches.

    If the words of a wrapper or logger mean nothing, those of the exception inside count.
    """
    inner = itertools.islice(_INNER.finditer(text), MAX_INNER)
    for part in (text, *(text[match.end() :] for match in inner)):
        for pattern, meaning in EXCEPTIONS:
            if pattern.search(part) and (part is text or meaning != LAUNCHER):
                return meaning
    return USER


_LINES: tuple[tuple[bytes, Meaning], ...] = (
    # --- the kernel's log and the kubelet's states
    (
        rb"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d+|"
        rb"oom[-_]kill:constraint=|"
        rb"\bOOMKilled\b|\bOOM-killed\b|Detected \d+ oom[-_]kill event|task \d+: Out Of Memory|"
        rb"oom_kill event in StepId|"
        # Without `at some point`, which old Slurm versions also print for steps that swapped and
        # continued.
        rb"slurmstepd: error: .{0,60}[Ee]xceeded (?:job |step )?memory limit(?! at some point)",
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
        rb"mount: .{1,200}: (?:special device|can't|failed)",
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
        rb"has failed to send a? ?keep-alive heartbeat|node .{1,120} is unreachable|"
        rb"\bDeletionByPodGC\b",
        Meaning(causes.NODE_LOST),
    ),
    (
        rb"(?:[Rr]eason|phase)\W{1,4}Evicted\b|^Evicted\W*$|The node was low on resource",
        Meaning(causes.PREEMPTED),
    ),
    # --- failures to start
    (
        rb"executable file not found in \$PATH|: command not found$|"
        rb"can't open file .{1,400}No such file or directory|"
        rb"^(?:/\S{0,200}/)?python[\d.]*: No module named |error while loading shared libraries",
        Meaning(causes.MISSING_IMPORT),
    ),
    # --- native crashes: CPython's faulthandler, glibc, PyTorch's terminate handler
    (
        rb"^Fatal Python error: (?:Segmentation fault|Aborted|Bus error|Illegal instruction|"
        rb"Floating)|Segmentation fault \(core dumped\)|"
        rb"^\*\*\* (?:stack smashing|buffer overflow) detected|^(?:free|malloc|double free|"
        rb"munmap_chunk)\(\): |"
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
    (rb"^(?:\S{1,80}: line \d+: +\d+ )?Killed\b(?: |$)", Meaning(causes.KILLED, certain=False)),
)
LINES = tuple((re.compile(pattern), meaning) for pattern, meaning in _LINES)
"""Meaningful lines outside of tracebacks."""


def classify_line(words: bytes) -> Meaning | None:
    """Return what a line outside of tracebacks means; None if nothing."""
    for pattern, meaning in LINES:
        if pattern.search(words):
            return meaning
    return None


SIGNALS = {
    1: Meaning(causes.CANCELLED),
    2: Meaning(causes.CANCELLED),
    4: Meaning(causes.NATIVE_CRASH),
    6: Meaning(causes.NATIVE_CRASH),
    7: Meaning(causes.NATIVE_CRASH),
    8: Meaning(causes.NATIVE_CRASH),
    9: Meaning(causes.KILLED, certain=False),
    11: Meaning(causes.NATIVE_CRASH),
    15: Meaning(causes.PREEMPTED, victim=True),
}
"""The meaning of the signal that ended a process. The sender of a SIGKILL is not recorded;
launchers end the other processes of a job with SIGTERM."""


def classify_exit(code: int) -> Meaning:
    """Return what an exit code means; below 0 it is a signal, as it is above 128 in shells."""
    number = -code if code < 0 else code - 128 if 128 < code <= 160 else 0
    return SIGNALS.get(number, Meaning(causes.EXIT_CODE))
