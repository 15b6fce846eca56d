"""Criteria about NCCL: its start, how data goes between nodes, channels."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_agent.contract.metrics import nccl_ras
from rankscope_analyzers.layers import other_jobs
from rankscope_analyzers.layers.nccl_transport import EXPECTED
from rankscope_analyzers.logs.nccl_findings import REASON_TEXTS
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.name_lists import listed, named, ranks_named
from rankscope_analyzers.verification.evidence import Evidence
from rankscope_analyzers.verification.judgement import (
    Judgement,
    broken,
    met,
    not_applicable,
    not_yet,
    unknown,
)
from rankscope_analyzers.verification.nccl_readings import NcclReading

LOG = "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, or give logs by --nccl-log"


def initialization(evidence: Evidence) -> Judgement:
    """Judge whether NCCL has come up on all ranks."""
    expected = "an initialisation that finished on every rank"
    own = other_jobs.alone(evidence.observed, evidence.report.job_id)
    missing = [one for one in own.of(nccl_ras.RAS_MISSING_RANKS) if one.last > 0]
    if missing:
        lost = max(one.last for one in missing)
        return broken(f"NCCL's RAS misses {lost:.0f} ranks", expected, "check their pods' logs")
    if gap := _unread(evidence, expected):
        return gap
    begun = sum(one.begun for one in evidence.nccl)
    ended = sum(one.completed for one in evidence.nccl)
    if not begun:
        return unknown("NCCL's log does not show initialisation", expected, LOG)
    if ended < begun:
        waiting = named([one.source for one in evidence.nccl if one.completed < one.begun], "in")
        return not_yet(f"{ended} of {begun} initialisations ended, {waiting}", expected)
    return met(f"{begun} initialisations of ranks, all ended")


def transport(evidence: Evidence) -> Judgement:
    """Judge how data goes between nodes, on every rank."""
    wanted = evidence.settings.transport
    expected = {
        "auto": "RDMA if nodes have it",
        "rdma": "RDMA",
        "gpudirect": "RDMA with GPUDirect",
        "sockets": "sockets",
    }[wanted]
    if gap := _unread(evidence, expected):
        return gap
    if wanted == "sockets":
        return _all_sockets(evidence.nccl, expected)
    sockets = [
        one
        for one in evidence.nccl
        if one.fallback and not (wanted == "auto" and one.reason == EXPECTED)
    ]
    if sockets:
        why = REASON_TEXTS.get(sockets[0].reason, sockets[0].reason.replace("_", " "))
        seen = f"data goes over TCP sockets in {_sources(sockets)}: {why}"
        return broken(seen, expected, runbooks.command("RankscopeSocketFallback"))
    untold = [one for one in evidence.nccl if one.fallback is None]
    if untold:
        return unknown(f"the log of {_sources(untold)} shows no connection", expected, LOG)
    indirect = sum(one.without_gpudirect for one in evidence.nccl)
    if wanted == "gpudirect" and indirect:
        seen = f"{indirect} connections over RDMA without GPUDirect"
        return broken(seen, expected, runbooks.command("RankscopeNcclGdrMissing"))
    return met(_carried(evidence.nccl, indirect))


def channels(evidence: Evidence) -> Judgement:
    """Judge whether all ranks use the same number of channels."""
    expected = "the same number of channels on every rank"
    if gap := _unread(evidence, expected):
        return gap
    if len(evidence.ranks) == 1:
        return not_applicable("one rank has no peers")
    silent = [one for one in evidence.nccl if not one.channels]
    if silent:
        return unknown(f"the log of {_sources(silent)} names no channels", expected, LOG)
    numbers = sorted({number for one in evidence.nccl for number in one.channels})
    if len(numbers) > 1:
        seen = f"{listed(numbers)} channels"
        remedy = "compare NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, versions and links of the nodes"
        return broken(seen, expected, remedy)
    return met(f"{numbers[0]} channels on all ranks")


def _unread(evidence: Evidence, expected: str) -> Judgement | None:
    """Return why NCCL cannot be judged, None if its log of every rank was read."""
    if not evidence.nccl and not evidence.gpu_ranks:
        return not_applicable("no NCCL log was read, and no rank is known to use a GPU")
    if not evidence.nccl:
        return unknown("no NCCL log of the job was read", expected, LOG)
    covered = frozenset[int]().union(*(one.ranks for one in evidence.nccl))
    lacking = evidence.ranks - covered
    if lacking:
        return unknown(f"no NCCL log of {ranks_named(lacking)} was read", expected, LOG)
    return None


def _all_sockets(readings: Sequence[NcclReading], expected: str) -> Judgement:
    others = [one for one in readings if not one.fallback]
    if others:
        known = [one.network or "none known" for one in others]
        seen = f"{_sources(others)} selected {listed(sorted(set(known)))}"
        return broken(seen, expected, "NCCL_NET=Socket chooses sockets")
    return met("data between nodes goes over sockets")


def _carried(readings: Sequence[NcclReading], indirect: int) -> str:
    networks = sorted({one.network for one in readings if one.network})
    if any(one.fallback for one in readings):
        return "sockets, as no node of the job has an RDMA port that is up"
    carried = f"network {listed(networks)}" if networks else "no network is needed"
    return f"{carried}; {indirect} connections without GPUDirect" if indirect else carried


def _sources(readings: Sequence[NcclReading]) -> str:
    return listed([one.source for one in readings])
