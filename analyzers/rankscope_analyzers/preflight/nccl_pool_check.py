"""Check that the ranks of each job that runs on the nodes have one NCCL, and one network plugin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rankscope_agent.contract.metrics import nccl_log, summary, training
from rankscope_analyzers.preflight.job import NotApplicableError, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.preflight.pool import Pool
from rankscope_analyzers.text.name_lists import listed, named

if TYPE_CHECKING:
    from rankscope_analyzers.intake.observed import Series

Versions = Mapping[str, Mapping[str, set[str]]]
"""The nodes of each version, by job."""


def nccl_version(pool: Pool) -> Outcome:
    """Check that all nodes of each job run one NCCL, as the job's pods log it."""
    known = _libraries(pool)
    if not known:
        raise NotApplicableError("no pod on the nodes has logged a version of NCCL")
    expected, remedy = (
        "one image, and therefore one NCCL, for all ranks",
        "start all pods from one image",
    )
    for job, versions in sorted(known.items()):
        if len(versions) > 1:
            return failed(f"job {job} runs NCCL {_described(versions)}", expected, remedy)
    silent = _silent(pool, known)
    if silent:
        raise UndecidedError(silent)
    for job, versions in sorted(_plugins(pool).items()):
        if len(versions) > 1:
            seen = f"job {job} uses network plugins {_described(versions)}"
            return warned(seen, "one plugin for all ranks", "install one version on all nodes")
    one = sorted({version for versions in known.values() for version in versions})
    return passed(f"NCCL {listed(one)}, one in each job")


def _libraries(pool: Pool) -> Versions:
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in pool.observed.of(summary.JOB_NCCL_INFO):
        found[one.labels.get("job_id", "")][one.labels.get("version", "")].add(one.node)
    return found


def _silent(pool: Pool, known: Versions) -> str:
    """Return the nodes on which ranks of a job have not logged a version, empty if all have."""
    for job, versions in sorted(known.items()):
        ranks = {one.node for one in pool.observed.of(training.RANK_INFO, job_id=job)}
        blind = sorted(ranks - {node for nodes in versions.values() for node in nodes})
        if blind:
            return f"ranks of job {job} on {named(blind, 'node')} have logged no version of NCCL"
    return ""


def _plugins(pool: Pool) -> Versions:
    """Return the versions of plugins by job, of pods whose job is known."""
    jobs = {one.labels.get("pod_uid"): one.labels.get("job_id", "") for one in _ranks(pool)}
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in pool.observed.of(nccl_log.NCCL_NET_INFO):
        plugin, version = one.labels.get("plugin", ""), one.labels.get("version", "")
        job = jobs.get(one.labels.get("pod_uid"))
        if plugin and version and job:
            found[job][f"{plugin} {version}"].add(one.node)
    return found


def _ranks(pool: Pool) -> Iterator[Series]:
    return (one for one in pool.observed.of(training.RANK_INFO) if one.labels.get("pod_uid"))


def _described(versions: Mapping[str, set[str]]) -> str:
    ordered = sorted(versions.items(), key=lambda one: (-len(one[1]), one[0]))
    return " and ".join(f"{name} on {named(sorted(nodes), 'node')}" for name, nodes in ordered)
