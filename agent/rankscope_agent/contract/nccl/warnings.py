"""Codes for NCCL's WARN lines, from NCCL 2.3 to 2.32: pure, from text to code.

The vocabulary is closed, so that a code can be a label. The patterns follow the WARN calls of
NVIDIA/nccl (src/transport/net_ib.cc, net_socket.cc, misc/socket.cc, init.cc, proxy.cc, shm.cc) and
of aws-ofi-nccl.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OTHER = "OTHER"
TOPOLOGY_FILE = "TOPO_FILE_OVERRIDE"
RAS_PEER_DEAD = "RAS_PEER_DEAD"
MAX_DEVICE = 40

# enum ibv_wc_status of libibverbs (infiniband/verbs.h).
WORK_COMPLETION = {
    1: "LOC_LEN",
    2: "LOC_QP_OP",
    4: "LOC_PROT_OR_ACCESS",
    5: "WR_FLUSH",
    8: "LOC_PROT_OR_ACCESS",
    9: "REM_INV_REQ",
    10: "REM_ACCESS",
    11: "REM_OP",
    12: "RETRY_EXC",
    13: "RNR_RETRY_EXC",
    21: "GENERAL",
}

# Compiled on first use: most logs have no warnings, and compiling takes longer than reading the log
# of a small job.
_COMPLETION = (
    r"Got completion (?:from peer \S{1,80} )?with (?:error |status=)(?:\w{1,40}\()?(\d{1,4})"
)
_HCA = r"\bhca ([\w.:+-]{1,40})"
# `NET/IB : mlx5_0:1 Got async event : port error`; an active port is no error.
_ASYNC_ERROR = (
    r"NET/IB ?: ([\w.+-]{1,40}):\d{1,3} "
    r".*(?:(async fatal) event|async (?:error )?event ?: ?(port error))"
)
_CUDA = r"Cuda failure (\d{1,3}) "

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("IB_MODIFY_QP_FAILED", r"ibv_modify_qp failed"),
    ("IB_QP_FAILED", r"ibv_create_qp failed"),
    ("IB_REG_MR_FAILED", r"ibv_reg_(?:mr|dmabuf_mr)\w* failed"),
    ("IB_ASYNC_EVENT", r"NET/IB ?:.*(?:Got (?:non-fatal )?async|async fatal event)"),
    ("IB_GID_TABLE_CHANGED", r"GID table changed"),
    ("IB_LIBRARY_MISSING", r"Failed to open libibverbs"),
    ("IB_COLLECTIVE_MISMATCH", r"NET/IB ?: .*collective mismatch"),
    ("SOCKET_MESSAGE_TRUNCATED", r"NET/Socket ?: .*truncated"),
    ("MESSAGE_TRUNCATED", r"[Mm]essage truncated"),
    ("SOCKET_PEER_CLOSED", r"Connection closed by remote peer"),
    (
        "SOCKET_CONNECT_FAILED",
        r"Connect to \S+ failed|connect to \S+ returned|Call to connect returned",
    ),
    ("SOCKET_WRONG_TYPE", r"socketFinalizeAccept: wrong"),
    (
        "SOCKET_NO_INTERFACE",
        r"no socket interface found|no device found matching|No interface found",
    ),
    ("SOCKET_BIND_FAILED", r"Call to bind failed"),
    ("OFI_NO_PROVIDER", r"NET/OFI (?:Unable to find a protocol|No eligible providers)"),
    ("NET_PLUGIN_INIT_FAILED", r"NET/OFI .*(?:fail|Fail)|Failed to initialize any NET plugin"),
    ("NET_NOT_FOUND", r"Error: network \S.* not found"),
    ("SHM_NO_SPACE", r"posix_fallocate failed|failed to extend \S+ to|No space left on device"),
    ("SHM_FAILED", r"shared memory segment"),
    ("CUDA_FAILURE", r"Cuda failure"),
    ("PROXY_ACCEPT_FAILED", r"\[Service thread\] Accept failed"),
    ("PROXY_GETFD_FAILED", r"ncclProxyClientGetFd"),
    ("VERSION_MISMATCH", r"Mismatched NCCL (?:git )?version"),
    ("DUPLICATE_GPU", r"Duplicate GPU detected|Multiple Ranks are using the same GPU"),
    ("P2P_DISABLED", r"P2P is disabled between NVLINK"),
    ("MNNVL_BROKEN", r"MNNVL .*not working"),
    ("NVLS_BIND_FAILED", r"Failed to bind NVLink SHARP"),
    ("NET_COUNT_MIXED", r"Detected mixed local Net device counts"),
    ("NO_TRANSPORT", r"No transport found for rank"),
    ("NO_PATH", r"Could not find a path for pattern"),
    ("DEGRADED_BANDWIDTH", r"DEGRADED_BANDWIDTH"),
    (RAS_PEER_DEAD, r"RAS declaring peer"),
)

CODES: frozenset[str] = frozenset(
    {
        *(code for code, _ in _PATTERNS),
        *(f"IB_WC_{name}" for name in WORK_COMPLETION.values()),
        "IB_WC_OTHER",
        TOPOLOGY_FILE,
        OTHER,
        "TORCH_WATCHDOG_TIMEOUT",
        "TORCH_DESYNC",
        "TORCH_NCCL_EXCEPTION",
        "TORCH_WATCHDOG_STUCK",
    }
)
"""Every code; only `CUDA_FAILURE_<number>` contains a number in addition."""

_DATA_PATH: tuple[tuple[str, str], ...] = (
    ("IB_WC_", "NET/IB"),
    ("IB_MODIFY_QP", "NET/IB"),
    ("IB_QP_", "NET/IB"),
    ("IB_COLLECTIVE", "NET/IB"),
    ("SOCKET_MESSAGE", "NET/Socket"),
)


@dataclass(frozen=True, slots=True)
class Warned:
    """The meaning of a warning.

    Args:
        code: one of `CODES`, or `CUDA_FAILURE_<number>`.
        transport: the transport in use when it failed; empty if not printed.
        status: the name, in lower case, of an InfiniBand completion error or asynchronous event.
        device: the adapter; `unknown` if not printed.
    """

    code: str
    transport: str = ""
    status: str = ""
    device: str = "unknown"


def classify(text: str) -> Warned:
    """Return the meaning of a warning's text."""
    completion = re.search(_COMPLETION, text)
    if completion is not None:
        return _completion_error(int(completion[1]), text)
    code = next((code for code, pattern in _PATTERNS if re.search(pattern, text)), OTHER)
    event = re.search(_ASYNC_ERROR, text) if code == "IB_ASYNC_EVENT" else None
    if event is not None:
        status = (event[2] or event[3]).replace(" ", "_")
        return Warned(code, status=status, device=event[1])
    cuda = re.search(_CUDA, text)
    if code == "CUDA_FAILURE" and cuda is not None:
        return Warned(f"CUDA_FAILURE_{int(cuda[1])}")
    transport = next((name for start, name in _DATA_PATH if code.startswith(start)), "")
    return Warned(code, transport)


def _completion_error(status: int, text: str) -> Warned:
    name = WORK_COMPLETION.get(status, "OTHER")
    hca = re.search(_HCA, text)
    device = hca[1][:MAX_DEVICE] if hca else "unknown"
    return Warned(f"IB_WC_{name}", "NET/IB", name.lower(), device)


def label(code: str) -> str:
    """Return the code as a label, of which there are only as many as in `CODES`."""
    if code in CODES:
        return code
    return "CUDA_FAILURE" if code.startswith("CUDA_FAILURE_") else OTHER
