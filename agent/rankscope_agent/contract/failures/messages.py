"""The meaning of single messages: a table from patterns to causes, each with its source.

A victim's message shows that another rank failed: a closed connection, a collective without an
answer, a signal from the launcher.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.line_patterns import followed_by


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

_MISMATCH = "mismatch|does(?: not|n't) match|do not match|incompatible"
_LOADER = r"DataLoader worker \(pid(?:\(s\))?(?:(?!DataLoader)[^)])*"

_EXCEPTIONS: tuple[tuple[str, Meaning], ...] = (
    # --- the launcher's own: torch/distributed/elastic, accelerate, torch.multiprocessing,
    # ray/train
    (
        r"^(?:[\w.]*\.)?(?:ChildFailedError|ProcessRaisedException|ProcessExitedException|"
        r"WorkerGroupError|TrainingFailedError)\b",
        LAUNCHER,
    ),
    (r"^subprocess\.CalledProcessError: Command ", LAUNCHER),
    (r"SignalException: Process \d+ got signal: (?:2|1)\b", Meaning(causes.CANCELLED)),
    (r"SignalException: Process \d+ got signal: ", Meaning(causes.PREEMPTED, certain=False)),
    (r"^KeyboardInterrupt\b", Meaning(causes.CANCELLED)),
    # Its own exceptions follow and say why.
    (r"^(?:[\w.]*\.)?(?:Base)?ExceptionGroup\b", Meaning(causes.UNKNOWN, certain=False)),
    # --- checkpoints that cannot be read: torch/serialization.py, caffe2/serialize, safetensors,
    # transformers, DeepSpeed, orbax, TensorFlow
    (
        r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is "
        r"corrupted|unexpected EOF, expected \d+ more bytes|storage has wrong (?:byte )?size|"
        r"SafetensorError|" + followed_by("safetensors", "[Hh]eader|[Ii]ncomplete", 80) + r"|"
        r"(?:Metadata|Header|InvalidHeader)\w{0,20}(?:IncompleteBuffer|TooLarge|TooSmall|"
        r"Deserialization)|Unable to load weights from \w{0,40} ?checkpoint file|"
        # Of a path its last character is enough: a longer start would be tried at each of them.
        r"DataLossError|"
        + followed_by(
            r"checkpoint|[\w/.-]\.(?:pth?|ckpt|bin|safetensors|distcp)\b",
            r"\b(?:corrupt(?:ed|ion)?|truncated|damaged)\b",
            200,
        )
        + r"|"
        r"\b[Cc]orrupt(?:ed)? (?:checkpoint|weights|shard|state)|"
        + followed_by("FileNotFoundError", r"\.distcp\b", 300)
        + r"|"
        + followed_by("[Cc]hecksum", "checkpoint", 60),
        Meaning(causes.CHECKPOINT_CORRUPT),
    ),
    (
        r"Weights only load failed|"
        r"Error\(s\) in loading state_dict|[Ss]ize mismatch (?:for|between saved)|"
        r"(?:Missing|Unexpected) keys?(?:\(s\))? in (?:the )?(?:\w{1,40} )?state_dict|"
        r"copying a param with shape|loaded state dict (?:has|contains)|"
        + followed_by(r"value from checkpoint \(", r"\) is not equal to", 80)
        + r"|"
        + followed_by("checkpoint", r"(?:DP|TP|PP|MP)? ?world size of \d+ but", 80)
        + r"|"
        + followed_by(
            "checkpoint|[Ss]aved|state_dict",
            f"(?:shape|size|version|architecture|parallel).{{0,40}}(?:{_MISMATCH})",
            160,
        )
        + r"|"
        + followed_by(_MISMATCH, r"\b(?:checkpoint|state_dict|state dict)\b", 100)
        + r"|"
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
        r"Gloo connectFullMesh failed|"
        + followed_by("Connect timeout ", "gloo")
        + r"|"
        + followed_by("gloo", "connect"),
        Meaning(causes.RENDEZVOUS, victim=True),
    ),
    (
        followed_by(
            "gloo/transport/",
            "Connection closed by peer|Read error|Write error|Connection reset|Connection refused|"
            "Broken pipe|Socket closed|SO_ERROR",
        ),
        Meaning(causes.NCCL_ERROR, victim=True),
    ),
    (
        followed_by("gloo/", "Timed out waiting") + r"|Application timeout caused pair closure|"
        r"failed to pass monitoredBarrier|successfully reached monitoredBarrier",
        Meaning(causes.COLLECTIVE_TIMEOUT, victim=True),
    ),
    (
        r"ncclRemoteError|remote process exited or there was a network error|"
        r"Connection closed by remote peer|NCCL communicator was aborted|"
        + followed_by("NCCL (?:communicator|operation)", "abort", 40),
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
        + followed_by("TCPStore", "[Bb]roken pipe|reset by peer", 80)
        + r"|"
        + followed_by(
            "DistNetworkError|DistStoreError|DistError",
            "[Bb]roken pipe|reset by peer|closed",
            200,
        )
        + r"|"
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
        + followed_by("Free memory on device ", " is less than desired", 120)
        + r"|"
        + followed_by("RESOURCE_EXHAUSTED: ", "memory space hbm|Ran out of memory", 80)
        + r"|"
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
        r"out of shared memory|"
        + followed_by("[Bb]us error", " This might be caused by insufficient shared memory", 40)
        + r"|"
        + followed_by("unable to (?:write|allocate shared memory|resize)", "/torch_", 80),
        Meaning(causes.HOST_OOM),
    ),
    (
        _LOADER + r"\) is killed by signal: Killed",
        Meaning(causes.KILLED, certain=False),
    ),
    (
        _LOADER + r"\) (?:is killed by signal: Bus error|"
        r"exited unexpectedly)",
        Meaning(causes.HOST_OOM, certain=False),
    ),
    (
        _LOADER + r"\) is killed by signal: (?:Segmentation|Aborted)",
        Meaning(causes.NATIVE_CRASH),
    ),
    (
        _LOADER + r"\) is killed by signal: Terminated",
        Meaning(causes.UNKNOWN, victim=True, certain=False),
    ),
    # --- NCCL on this rank; `unhandled cuda error` is CUDA's
    (r"ncclUnhandledCudaError|unhandled cuda error", Meaning(causes.CUDA_ERROR)),
    (
        r"NCCL error|ncclSystemError|ncclInternalError|ncclInvalid(?:Usage|Argument)|"
        r"NCCL Error \d|"
        + followed_by(
            "NCCL WARN ",
            r"Got completion (?:from|with)|async fatal event|"
            r"ibv_modify_qp failed|ibv_create_qp failed|ibv_reg_mr\w* failed",
            80,
        )
        + r"|"
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
        r"Triton Error \[CUDA\]|illegal memory access|NVRM: Xid \(|"
        r": block: \[\d{1,9},\d{1,9},\d{1,9}\], thread: \[[\d,]{1,20}\] Assertion ",
        Meaning(causes.CUDA_ERROR),
    ),
    (
        r"terminate called (?:without an active exception|recursively)",
        Meaning(causes.NATIVE_CRASH),
    ),
    # --- rendezvous
    (
        r"Rendezvous\w{0,40}Error|RendezvousTimeout|DistNetworkError|DistStoreError|"
        r"The (?:client|server) (?:network )?socket has (?:failed|timed out)|"
        r"EADDRINUSE|[Aa]ddress already in use|Timed out initializing process group|"
        r"wait timeout after|"
        r"Socket Timeout|"
        # JAX's coordination service, while its tasks register
        + followed_by("Barrier timed out", "Init|register|Connect", 80)
        + r"|"
        + followed_by("UNAVAILABLE|DEADLINE_EXCEEDED", "RegisterTask|coordination service", 120),
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

_NAMES = tuple(
    (re.compile(pattern.removeprefix("^")), meaning)
    for pattern, meaning in _EXCEPTIONS
    if pattern.startswith("^") and meaning != LAUNCHER
)
"""Those that begin with their name: of an exception inside of another one, all else has been looked
for."""

_INNER = re.compile(r"[:(] ?(?=(?:[A-Za-z_]\w{0,60}\.){0,12}[A-Z]\w{0,80}Error\b)")

MAX_INNER = 4
"""Exceptions examined that the text of another one names: wrappers wrap one, rarely two."""


def classify(text: str) -> Meaning:
    """Return what an exception's text means; the program's own if no known pattern matches.

    If the words of a wrapper or logger mean nothing, those of the exception inside count.
    """
    for pattern, meaning in EXCEPTIONS:
        if pattern.search(text):
            return meaning
    for match in itertools.islice(_INNER.finditer(text), MAX_INNER):
        for pattern, meaning in _NAMES:
            if pattern.match(text, match.end()):
                return meaning
    return USER


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


KILLED_TEXT = "ended by signal {number}"
EXITED_TEXT = "ended with exit code {number}"

SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}


def exit_text(code: int) -> str:
    """Return how a process ended, by its exit code."""
    number = -code if code < 0 else code - 128 if 128 < code <= 160 else 0
    name = SIGNAL_NAMES.get(number)
    if name is not None:
        return f"{KILLED_TEXT.format(number=number)} ({name})"
    return KILLED_TEXT.format(number=number) if number else EXITED_TEXT.format(number=code)
