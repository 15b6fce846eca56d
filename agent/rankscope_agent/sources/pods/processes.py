"""A training process's identity from its environment, the most reliable source if readable.

The rules are those of the probe, so that a job has the same name with and without it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_agent.contract.redaction import TRANSPORT_PREFIXES, is_kept
from rankscope_agent.sources.pods.membership import number

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_WORLD_SIZE = (
    *("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    "LOCAL_SIZE",  # DeepSpeed's launcher
)
_LAUNCHERS = (
    ("TORCHELASTIC_RUN_ID", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "mpi"),
    ("PMIX_RANK", "mpi"),
    ("PMI_RANK", "mpi"),
    ("SLURM_STEP_NUM_TASKS", "slurm"),
    ("JOB_COMPLETION_INDEX", "kubernetes"),
    ("RANK", "environment"),
)

_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._/:@-]")

_LOOPBACK = re.compile(r"localhost\b|127\.|\[?::1\b|0\.0\.0\.0\b")
"""Addresses that every node has: jobs of several nodes may use the same one."""

MAX_VALUE = 256
"""Characters of a value that are kept and compared; lists of devices are the longest."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A rank as its own process identifies it.

    Args:
        own_job: the job's name if no Kubernetes object gives one; empty if there is none.
        environment: the variables by which ranks choose their transports.
    """

    rank: int
    local_rank: int | None
    local_world_size: int | None
    world_size: int | None
    attempt: int
    launcher: str
    own_job: str
    environment: Mapping[str, str]


_REPLICA_GROUP = ("REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS")
"""Variables set by torchft's launchers (torchft/torchx.py); RANK and WORLD_SIZE are within the
group."""


def parse_environ(data: bytes) -> dict[str, str]:
    """Read /proc/PID/environ; only the variables that may be kept are returned."""
    kept: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = name.decode("ascii", "replace")
        if equals and is_kept(text):
            kept[text] = value.decode("utf-8", "replace")[:MAX_VALUE]
    return kept


def has_probe(data: bytes, *, in_pod: bool) -> bool:
    """Return True if a process with this environment loads the probe together with torch.

    It does if the probe's directory is on its PYTHONPATH, or if it is a pod's and told where to
    write rings, unless the probe is switched off. Elsewhere, whoever starts an agent may export
    that to all programs of a shell or node.
    """
    variables = _variables(data)
    if variables.get(b"RANKSCOPE_PROBE") == b"0":
        return False
    if in_pod and variables.get(b"RANKSCOPE_RING_DIR"):
        return True
    folders = variables.get(b"PYTHONPATH", b"").lower()
    return b"rankscope" in folders or any(one.endswith(b"/probe") for one in folders.split(b":"))


def ring_directory(data: bytes) -> str:
    """Return where a probe in a process with this environment writes its ring."""
    given = _variables(data).get(b"RANKSCOPE_RING_DIR") or b"/run/rankscope"
    return given.decode("utf-8", "surrogateescape")


def _variables(data: bytes) -> dict[bytes, bytes]:
    return dict(entry.partition(b"=")[::2] for entry in data.split(b"\0"))


def process_identity(environ: Mapping[str, str]) -> ProcessIdentity | None:
    """Return the rank that a process is; None for processes that are not ranks.

    A process with a world size of one is a rank only if a launcher set its variables.
    """
    rank, size = _first(environ, _RANK), _first(environ, _WORLD_SIZE)
    if rank is None or size is None or rank >= size:
        return None
    group, groups = replica_group(environ)
    rank, size = rank + group * size, size * groups
    return ProcessIdentity(
        rank=rank,
        local_rank=_first(environ, _LOCAL_RANK),
        local_world_size=_first(environ, _LOCAL_WORLD_SIZE),
        world_size=size,
        attempt=number(environ.get("TORCHELASTIC_RESTART_COUNT")) or 0,
        launcher=next((word for name, word in _LAUNCHERS if environ.get(name)), "none"),
        own_job=_own_job(environ, size),
        environment={
            name: value
            for name, value in sorted(environ.items())
            if name.startswith(TRANSPORT_PREFIXES)
        },
    )


def replica_group(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the TorchFT replica group of a process, and the number of groups; 0 and 1 without."""
    group, groups = (number(environ.get(name)) for name in _REPLICA_GROUP)
    return (0, 1) if group is None or groups is None or group >= groups else (group, groups)


def environment_hash(environment: Mapping[str, str]) -> str:
    """Return eight hex digits that differ if the variables of two ranks differ."""
    text = "\0".join(f"{name}={value}" for name, value in sorted(environment.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    found = (number(environ[name]) for name in names if environ.get(name))
    return next(found, None)


def _own_job(environ: Mapping[str, str], size: int) -> str:
    for name in ("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = environ.get(name, "")
        if value and (name, value) != ("TORCHELASTIC_RUN_ID", "none"):
            step = _slurm_step(environ, size) if name == "SLURM_JOB_ID" else ""
            return _NOT_IN_LABELS.sub("_", value) + step
    meeting = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
    if meeting == ":":
        return ""
    if _LOOPBACK.match(meeting):
        meeting = f"{environ.get('HOSTNAME') or os.uname().nodename} {meeting}"
    return "local/" + hashlib.sha256(meeting.encode()).hexdigest()[:8]


def _slurm_step(environ: Mapping[str, str], size: int) -> str:
    step, tasks = (number(environ.get(f"SLURM_STEP_{name}")) for name in ("ID", "NUM_TASKS"))
    return f".{step}" if step and tasks == size else ""
