"""Why a job is not visible: what each source of an agent sees, and what it needs to see the rest.

Pure: from an agent's responses to a list of checks; `commands.doctor` fetches and prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART
from rankscope_analyzers.text.name_lists import named

State = Literal["seen", "not seen", "off"]


def remedy(source: str) -> str:
    """Return what enables a source, and which part of daemonset/ does so in Kubernetes.

    Args:
        source: name of a source or of a part of one.
    """
    known = BY_COLLECTOR_OR_PART.get(source)
    return f"{known.remedy}. In Kubernetes: {known.needs}" if known else ""


LOG_SERIES = ("rankscope_nccl_", "rankscope_job_log_")


@dataclass(frozen=True, slots=True)
class Check:
    """One source: whether it is seen, what it shows, and what to do if it is not."""

    source: str
    state: State
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """One agent's responses.

    Args:
        url: its address.
        health: /healthz.
        pods: /api/v1/pods.
        ranks: the ranks of /api/v1/ranks.
        page: /metrics as text.
        placed: the node that it is on according to an API server, empty if none was queried.
        refused: why it gives neither pods nor ranks, empty if it does.
    """

    url: str
    health: Mapping[str, Any]
    pods: Mapping[str, Any]
    ranks: Sequence[Mapping[str, Any]]
    page: str
    placed: str = ""
    refused: str = ""

    @property
    def node(self) -> str:
        """Return the node that the agent runs on."""
        return self.placed or str(self.health.get("node", self.url))


def node_checks(facts: AgentFacts) -> Sequence[Check]:
    """Return one check for each collector of an agent, those of pods by source."""
    return [*_access(facts), *_collectors(facts), *_parts(facts), *_pod_sources(facts)]


def _access(facts: AgentFacts) -> Iterator[Check]:
    if facts.refused:
        yield Check("pods and step records", "not seen", facts.refused)


def _collectors(facts: AgentFacts) -> Iterator[Check]:
    unobserved = _mapping(facts.health.get("unobserved"))
    names = {*_mapping(facts.health.get("collectors")), *unobserved}
    for name in sorted(names):
        why = unobserved.get(name)
        if not why:
            yield Check(name, "seen", _amount(name, facts))
        elif why == "switched off":
            yield Check(name, "off", f"--no-collector.{name} was given")
        else:
            yield Check(name, "not seen", str(why), remedy(name))


def _parts(facts: AgentFacts) -> Iterator[Check]:
    """Yield what working collectors do not see; older agents do not report it."""
    for name, parts in sorted(_mapping(facts.health.get("unobserved_parts")).items()):
        for part in parts if isinstance(parts, list) else ():
            detail, _, needs = str(part).partition(" (needs ")
            need = f"it needs {needs.removesuffix(')')}" if needs else ""
            yield Check(f"{name}, in part", "not seen", detail, need)


def _amount(name: str, facts: AgentFacts) -> str:
    if name == "training" and not facts.refused:
        alive = sum(bool(rank.get("alive")) for rank in facts.ranks)
        return f"{len(facts.ranks)} ranks with a probe, {alive} of them alive"
    if name == "pods" and not facts.refused:
        return f"{len(_rows(facts.pods, 'pods'))} pods"
    return "its last run succeeded"


def _pod_sources(facts: AgentFacts) -> Iterator[Check]:
    for source, why in sorted(_mapping(facts.pods.get("problems")).items()):
        yield Check(f"pods: {source}", "not seen", str(why), remedy(source))


def find_pod(facts: AgentFacts, wanted: str) -> Mapping[str, Any] | None:
    """Find a pod by name, or by namespace/name; running ones are preferred to ended ones."""
    namespace, _, name = wanted.rpartition("/")
    found = [
        pod
        for pod in _rows(facts.pods, "pods")
        if pod.get("name") == name and namespace in {"", pod.get("namespace")}
    ]
    return min(found, key=lambda pod: pod.get("phase") != "Running", default=None)


def pod_checks(facts: AgentFacts, pod: Mapping[str, Any]) -> Sequence[Check]:
    """Return what each source knows of one pod."""
    return [
        _job(pod),
        _devices(facts, pod),
        _processes(facts, pod),
        _probe(facts, pod),
        _logs(facts, pod),
    ]


def _job(pod: Mapping[str, Any]) -> Check:
    member = _mapping(pod.get("member"))
    if not member:
        detail = "it belongs to its node (DaemonSet or static pod), not to a job"
        return Check("job", "not seen", detail)
    known = {
        "role": member.get("role"),
        "node rank": member.get("node_rank"),
        "rank": member.get("rank"),
        "world size": member.get("world_size"),
    }
    details = ", ".join(f"{key} {value}" for key, value in known.items() if value not in {None, ""})
    trains = "" if member.get("trains") else "; its processes are no ranks"
    return Check(
        "job", "seen", f"{member.get('kind')} {pod.get('job_id')} {details}".strip() + trains
    )


def _devices(facts: AgentFacts, pod: Mapping[str, Any]) -> Check:
    held = _rows(pod, "devices")
    if held:
        names = [str(d.get("rdma_device") or d.get("uuid") or d.get("device")) for d in held]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return Check("devices", "seen", f"holds {', '.join(names[:8])}{more}")
    why = _mapping(facts.pods.get("problems")).get("kubelet")
    if why:
        return Check("devices", "not seen", str(why), remedy("kubelet"))
    limits = _mapping(pod.get("limits"))
    asked = ", ".join(f"{key}: {value}" for key, value in limits.items())
    if asked:
        detail = f"asks for {asked}, and the kubelet names none: is it still being admitted?"
        return Check("devices", "not seen", detail)
    return Check("devices", "not seen", "its containers ask for no GPU and no RDMA device")


def _processes(facts: AgentFacts, pod: Mapping[str, Any]) -> Check:
    ranks = [r for r in _rows(facts.pods, "ranks") if r.get("pod_uid") == pod.get("uid")]
    if ranks:
        who = named((rank.get("rank") for rank in ranks), "rank")
        return Check("processes", "seen", f"{who} by their processes' environment")
    why = _mapping(facts.pods.get("problems")).get("processes")
    if why:
        return Check("processes", "not seen", str(why), remedy("processes"))
    detail = "no process of it has RANK and WORLD_SIZE of its own: has training started?"
    return Check("processes", "not seen", detail)


def _probe(facts: AgentFacts, pod: Mapping[str, Any]) -> Check:
    ranks = [rank for rank in facts.ranks if rank.get("pod_uid") == pod.get("uid")]
    if ranks:
        who = named((rank.get("rank") for rank in ranks), "rank")
        timing = ", ".join(sorted({str(rank.get("timing_source")) for rank in ranks}))
        return Check("probe", "seen", f"{who}, timing source {timing}")
    why = _mapping(facts.health.get("unobserved")).get("training")
    if why:
        return Check("probe", "not seen", str(why), remedy("training"))
    detail = (
        "other pods of this node have a probe, this one has written none"
        if facts.ranks
        else "no pod of this node has a probe that wrote anything"
    )
    return Check("probe", "not seen", detail, remedy("training"))


def _logs(facts: AgentFacts, pod: Mapping[str, Any]) -> Check:
    marks = (f'pod_name="{pod.get("name")}"', f'pod_namespace="{pod.get("namespace")}"')
    series = [
        line
        for line in facts.page.splitlines()
        if line.startswith(LOG_SERIES) and all(mark in line for mark in marks)
    ]
    if series:
        return Check("logs", "seen", f"{len(series)} series from its logs")
    environment = _mapping(pod.get("environment"))
    level = environment.get("NCCL_DEBUG")
    if level in {None, "WARN", "VERSION"}:
        setting = "is not set" if level is None else f"is {level}"
        detail = f"NCCL_DEBUG {setting} in its specification, so that NCCL says little or nothing"
        return Check("logs", "not seen", detail, "set NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET")
    if environment.get("NCCL_DEBUG_FILE"):
        detail = f"NCCL writes to {environment['NCCL_DEBUG_FILE']}, not to the container's log"
        return Check("logs", "not seen", detail, "give that file to the agent: --nccl.log-files")
    why = _mapping(facts.health.get("unobserved")).get("nccl_log")
    detail = str(why) if why else "no line of NCCL or of a known framework in its logs yet"
    return Check("logs", "not seen", detail, remedy("nccl_log") if why else "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    rows = value.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
