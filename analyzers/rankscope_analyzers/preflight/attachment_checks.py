"""Checks of network attachments: definitions that exist, and addresses that are assigned once."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from itertools import combinations

from rankscope_analyzers.preflight.job import (
    Job,
    NotApplicableError,
    Role,
    UndecidedError,
    annotation_json,
)
from rankscope_analyzers.preflight.networks import Network, attached, requested
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.preflight.values import Object, mapping, mappings, text

KIND = "NetworkAttachmentDefinition"
Range = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(job: Job) -> Sequence[Network]:
    """Return the networks that ranks request, each once.

    Raises:
        UndecidedError: an annotation cannot be read.
        NotApplicableError: they request none.
    """
    found: dict[tuple[str, str], Network] = {}
    for role in job.ranks:
        try:
            wanted = requested(role)
        except ValueError as error:
            raise UndecidedError(str(error)) from None
        found |= {(one.namespace or job.namespace, one.name): one for one in wanted}
    if not found:
        for role in job.ranks:
            role.complete()
        raise NotApplicableError("no secondary network is requested")
    return [Network(where, one.name, one.interface) for (where, _), one in found.items()]


def attachment_definition(job: Job) -> Outcome:
    """Check that each network that ranks request is defined in the namespace that they name."""
    wanted = networks(job)
    missing = []
    for one in wanted:
        definition = job.cluster.get(KIND, one.namespace, one.name)
        if definition is None:
            missing.append(one)
        elif not configuration(definition):
            return failed(
                f"spec.config of {one.namespace}/{one.name} is not a JSON object",
                "a CNI configuration as JSON",
                "correct spec.config",
            )
    for one in missing:
        elsewhere = [place for place, name, _ in job.cluster.of_kind(KIND) if name == one.name]
        if elsewhere:
            return failed(
                f"{one.name} is defined in namespace {elsewhere[0]}, not in {one.namespace}",
                f"a {KIND} in the namespace that the pods name",
                f"request {elsewhere[0]}/{one.name}, or define it in {one.namespace} too",
            )
        if job.cluster.lacks(KIND, one.namespace, one.name):
            return failed(
                f"{KIND} {one.namespace}/{one.name} does not exist",
                "a definition of each network that the pods name",
                "create it, or correct the name",
            )
    if missing:
        raise _unknown(job, missing[0])
    return passed(", ".join(f"{one.namespace}/{one.name}" for one in wanted))


def _unknown(job: Job, one: Network) -> UndecidedError:
    why = job.cluster.unknown(KIND, one.namespace, one.name)
    return UndecidedError(f"{KIND} {one.namespace}/{one.name} {why}")


def configuration(definition: Object) -> Object:
    """Return a definition's CNI configuration, an empty one if it is not a JSON object."""
    value = annotation_json(mapping(definition, "spec").get("config"))
    return value if isinstance(value, dict) else {}


def ranges_by_network(job: Job) -> dict[str, tuple[str, Sequence[Range]]]:
    """Return, by network, its allocator and the ranges that it assigns.

    Raises:
        UndecidedError: a definition or an annotation is unknown.
        NotApplicableError: the job requests no network.
    """
    found: dict[str, tuple[str, Sequence[Range]]] = {}
    for one in networks(job):
        definition = job.cluster.get(KIND, one.namespace, one.name)
        if definition is None:
            raise _unknown(job, one)
        for plugin in plugins(configuration(definition)):
            ipam = mapping(plugin, "ipam")
            if ipam:
                found[one.name] = (text(ipam.get("type")), _ranges(ipam))
    return found


def plugins(config: Object) -> Sequence[Object]:
    """Return the plugins of a CNI configuration: itself, or those that it lists."""
    return [config, *mappings(config.get("plugins"))]


def _ranges(ipam: Object) -> Sequence[Range]:
    values = [ipam.get("subnet"), ipam.get("range")]
    groups = ipam.get("ranges")
    for group in groups if isinstance(groups, list) else ():
        values += [one.get("subnet") for one in mappings(group)]
    values += [one.get("range") for one in mappings(ipam.get("ipRanges"))]
    found = (_range(text(value)) for value in values)
    return [one for one in found if one is not None]


def _range(value: str) -> Range | None:
    try:
        # whereabouts writes a part of a range as first-last/length
        return ipaddress.ip_network(value.rpartition("-")[2], strict=False)
    except ValueError:
        return None


def address_ranges(job: Job) -> Outcome:
    """Check that networks do not overlap, and that no two pods get one address."""
    known = ranges_by_network(job)
    for (one, (_, these)), (other, (_, those)) in combinations(known.items(), 2):
        for mine in these:
            if any(mine.version == range_.version and mine.overlaps(range_) for range_ in those):
                return failed(
                    f"{one} and {other} both assign addresses of {mine}",
                    "ranges that do not overlap",
                    "give each rail its own subnet; otherwise traffic leaves by the wrong one",
                )
    for name, (allocator, ranges) in known.items():
        if allocator == "host-local" and ranges:
            return _host_local(job, name, ranges[0])
    if not any(ranges for _, ranges in known.values()):
        raise UndecidedError("no network specifies the addresses that it hands out")
    return passed("; ".join(f"{name}: {allocator}" for name, (allocator, _) in known.items()))


def _host_local(job: Job, name: str, range_: Range) -> Outcome:
    seen = f"{name} hands out {range_} by host-local, which only knows the addresses of one node"
    remedy = "use whereabouts, DHCP or a separate range for each node"
    if job.several:
        return failed(
            f"{seen}: pods on two nodes get the same", "one allocator for all nodes", remedy
        )
    return warned(seen, "one allocator for all nodes", remedy)


def pod_addresses(job: Job) -> Outcome:
    """Check that each pod's secondary addresses are unique, and of the network's range."""
    given: dict[str, str] = {}
    for role in job.ranks:
        for name, address in addresses(role):
            if address in given:
                return failed(
                    f"{given[address]} and {role.name} both have {address}",
                    "a separate address for each pod",
                    "use an allocator that covers all nodes",
                )
            given[address] = role.name
            outside = _outside(job, name, address)
            if outside:
                return failed(
                    f"{role.name} has {address} on {name}",
                    f"an address inside {outside}",
                    "correct the address or the range of the definition",
                )
        if given and role.replicas not in {1, None} and attached(role) is None:
            return failed(
                f"all {role.replicas} pods of {role.name} request {next(iter(given))}",
                "a separate address for each pod",
                "remove ips from the template's annotation",
            )
    if not given:
        networks(job)
        raise NotApplicableError("no pod has or requests a specific address")
    return passed(f"{len(given)} addresses, each once")


def addresses(role: Role) -> Iterator[tuple[str, str]]:
    """Yield network and address of each secondary interface.

    Raises:
        UndecidedError: an annotation cannot be read.
    """
    there = attached(role)
    if there is not None:
        found = [(one.network, ip) for one in there if not one.default for ip in one.ips]
    else:
        try:
            found = [(one.name, ip) for one in requested(role) for ip in one.ips]
        except ValueError as error:
            raise UndecidedError(str(error)) from None
    yield from ((name, ip.partition("/")[0]) for name, ip in found)


def _outside(job: Job, name: str, address: str) -> str:
    """Return the range that should contain an address and does not, else an empty text."""
    where, _, short = name.rpartition("/")
    definition = job.cluster.get(KIND, where or job.namespace, short)
    if definition is None:
        return ""
    ranges = [
        one
        for plugin in plugins(configuration(definition))
        for one in _ranges(mapping(plugin, "ipam"))
    ]
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return ", ".join(map(str, ranges))
    return "" if not ranges or any(known in one for one in ranges) else ", ".join(map(str, ranges))
