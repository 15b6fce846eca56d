"""Check that the interface below a secondary network exists, and is up, on every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rankscope_analyzers.preflight.attachment_checks import configuration, networks, plugins
from rankscope_analyzers.preflight.job import Job, NodeInterface, NotApplicableError, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.preflight.values import text
from rankscope_analyzers.text.name_lists import listed, named

MASTER_KEYS: Mapping[str, str] = {
    "macvlan": "master",
    "ipvlan": "master",
    "vlan": "master",
    "host-device": "device",
}
"""The field with the node's interface of each CNI plugin (containernetworking/plugins, docs of
each)."""

NOT_SHOWN = (".", "vlan", "br", "dummy")
"""Parts of names of virtual interfaces: agents show only hardware and bonds."""

MOST_SHOWN = 32
"""Interfaces that an agent shows individually; on a node with as many, some may be missing."""


def masters(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the name of each network that uses an interface of the node, and that interface."""
    for one in networks(job):
        definition = job.cluster.get("NetworkAttachmentDefinition", one.namespace, one.name)
        for plugin in plugins(configuration(definition or {})):
            key = MASTER_KEYS.get(text(plugin.get("type")))
            name = text(plugin.get(key)) if key else ""
            if name:
                yield one.name, name


def attachment_master(job: Job) -> Outcome:
    """Check that every node has the interfaces that the job's networks use."""
    wanted = dict(masters(job))
    if not wanted:
        raise NotApplicableError("no network that is known names an interface of the nodes")
    if job.interfaces is None:
        raise NotApplicableError(
            f"whether nodes have {listed(sorted(set(wanted.values())))} is for their agents to"
            " tell: --agent, --cluster"
        )
    blind = [node for node, found in job.interfaces.items() if not found]
    if blind or not job.interfaces:
        raise UndecidedError(f"the interfaces of {named(sorted(blind), 'node')} are not shown")
    warnings = []
    for network, master in wanted.items():
        outcome = _on_all(job.interfaces, network, master)
        if outcome.verdict == "fail":
            return outcome
        if outcome.verdict == "warn":
            warnings.append(outcome)
    if warnings:
        return warnings[0]
    count = len(job.interfaces)
    return passed(f"{listed(sorted(set(wanted.values())))} on {count} node{'s' * (count != 1)}")


def _on_all(nodes: Mapping[str, Mapping[str, NodeInterface]], network: str, master: str) -> Outcome:
    expected = f"{master} on every node, up"
    lacking = sorted(node for node, found in nodes.items() if master not in found)
    if lacking:
        beyond = [node for node in lacking if len(nodes[node]) >= MOST_SHOWN]
        if beyond or any(part in master for part in NOT_SHOWN):
            raise UndecidedError(f"{master} of network {network} is none that agents show")
        return failed(
            f"network {network} hangs on {master}, which {named(lacking, 'node')} {_does(lacking)}"
            " not have",
            expected,
            "give the interface the same name on all nodes, or keep the job off these nodes",
        )
    down = sorted(node for node, found in nodes.items() if found[master].up is False)
    if down:
        return failed(
            f"{master} of network {network} is down on {named(down, 'node')}",
            expected,
            "check cable and switch port",
        )
    sizes = Counter(found[master].mtu for found in nodes.values())
    if len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        odd = sorted(node for node, found in nodes.items() if found[master].mtu != usual)
        return warned(
            f"the MTU of {master} is {usual} on most nodes, and another on {named(odd, 'node')}",
            "one MTU on all nodes",
            "set the same MTU everywhere: large packets are lost where it is smaller",
        )
    return passed(master)


def _does(nodes: list[str]) -> str:
    return "does" if len(nodes) == 1 else "do"
