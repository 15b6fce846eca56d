"""Ranks of a job whose transport variables differ: a common reason why jobs hang or are slow.

Pure. One rank that lacks `NCCL_IB_HCA` or names another interface connects to its peers over
another network, or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rankscope_analyzers.intake.job_ownership import is_believed
from rankscope_analyzers.text.name_lists import ranks_named

Weight = Literal["fail", "warn"]

RUNBOOK = "docs/runbooks/RankscopeEnvironmentDiffers.md"

DECISIVE = frozenset(
    (
        *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"),
        *("NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_P2P_DISABLE"),
        *("NCCL_SHM_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_CROSS_NIC", "NCCL_COMM_ID"),
        *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE", "FI_PROVIDER", "UCX_TLS"),
        *("UCX_NET_DEVICES", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE"),
    )
)
"""Variables by which ranks choose network, interface, algorithm or buffers: they must be the same
on all ranks of a job (NCCL user guide, environment variables)."""

OF_ONE_RANK = frozenset(
    ("NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE")
)
"""Variables that are expected to differ between ranks or nodes."""


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """The transport variables of one rank's process."""

    job_id: str
    rank: int
    node: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """One variable that is not the same on all ranks of a job.

    Args:
        values: each value with its ranks, the most common first; None for unset.
        weight: fail if the variable decides how ranks connect, warn for others.
    """

    job_id: str
    variable: str
    values: tuple[tuple[str | None, tuple[int, ...]], ...]
    weight: Weight
    summary: str
    runbook: str = RUNBOOK


def of_listing(node: str, listing: Mapping[str, Any]) -> Iterator[RankEnvironment]:
    """Yield the ranks of a node that its agent's /api/v1/pods lists with their variables."""
    rows = listing.get("ranks")
    for row in rows if isinstance(rows, list) else ():
        named = row.get("environment") if isinstance(row, dict) else None
        if not isinstance(named, dict) or not isinstance(row.get("rank"), int):
            continue
        job = str(row.get("job_id"))
        if is_believed(job, row.get("pod_namespace")):
            environment = {str(name): str(value) for name, value in named.items()}
            yield RankEnvironment(job, row["rank"], node, environment)


def differences(ranks: Iterable[RankEnvironment]) -> Sequence[EnvironmentDifference]:
    """Compare ranks within each job; decisive variables come first, then by name."""
    jobs: dict[str, list[RankEnvironment]] = defaultdict(list)
    for rank in ranks:
        jobs[rank.job_id].append(rank)
    found = [item for job, members in sorted(jobs.items()) for item in _of_job(job, members)]
    return sorted(found, key=lambda item: (item.job_id, item.weight != "fail", item.variable))


def _of_job(job_id: str, members: Sequence[RankEnvironment]) -> Iterator[EnvironmentDifference]:
    names = {name for member in members for name in member.environment} - OF_ONE_RANK
    for name in sorted(names):
        by_value: dict[str | None, list[int]] = defaultdict(list)
        for member in members:
            by_value[member.environment.get(name)].append(member.rank)
        if len(by_value) > 1:
            sizes = Counter({value: len(ranks) for value, ranks in by_value.items()})
            values = tuple(
                (value, tuple(sorted(by_value[value]))) for value, _ in sizes.most_common()
            )
            weight: Weight = "fail" if name in DECISIVE else "warn"
            summary = _sentence(name, values, len(members))
            yield EnvironmentDifference(job_id, name, values, weight, summary)


def _sentence(name: str, values: Sequence[tuple[str | None, tuple[int, ...]]], ranks: int) -> str:
    (common, most), *others = values
    parts = [f"{_shown(value)} on {ranks_named(odd)}" for value, odd in others]
    return f"{name} is {_shown(common)} on {len(most)} of {ranks} ranks, but {', '.join(parts)}"


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
