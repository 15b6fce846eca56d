"""The networks that a pod requests, and the interfaces that it therefore has.

Format: the network custom resource definition de-facto standard of the Network Plumbing Working
Group, and GKE's multi-networking annotation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_analyzers.preflight.job import Role, UndecidedError, annotation_json
from rankscope_analyzers.preflight.values import mappings, text, texts

REQUESTED = "k8s.v1.cni.cncf.io/networks"
STATUS = "k8s.v1.cni.cncf.io/network-status"
GKE = "networking.gke.io/interfaces"
DEFAULT_INTERFACE = "eth0"

_SHORT = re.compile(r"(?:([a-z0-9.-]+)/)?([a-z0-9.-]+)(?:@([\w.-]+))?")


@dataclass(frozen=True, slots=True)
class Network:
    """A secondary network that a pod requests.

    Args:
        namespace: of its definition, empty for the pod's own.
        name: of its definition.
        interface: its name in the pod.
        ips: addresses that the pod requests.
    """

    namespace: str
    name: str
    interface: str
    ips: Sequence[str] = ()


def requested(role: Role) -> Sequence[Network]:
    """Return the secondary networks that a role's pods request.

    Raises:
        ValueError: the annotation cannot be read; the message describes its content.
    """
    networks = text(role.annotations.get(REQUESTED)).strip()
    found = _json(networks) if networks.startswith("[") else _short(networks)
    gke = text(role.annotations.get(GKE)).strip()
    if gke:
        value = annotation_json(gke)
        if not isinstance(value, list):
            raise ValueError(f"{GKE} is not a JSON list")
        found += [
            Network("", text(one.get("network")), text(one.get("interfaceName")))
            for one in mappings(value)
            if text(one.get("interfaceName")) != DEFAULT_INTERFACE
        ]
    return found


def _json(value: str) -> list[Network]:
    parsed = annotation_json(value)
    if not isinstance(parsed, list) or not all(text(one.get("name")) for one in mappings(parsed)):
        raise ValueError(
            f"{REQUESTED} begins like JSON but is not a JSON list of networks with names"
        )
    return [
        Network(
            text(one.get("namespace")),
            text(one.get("name")),
            text(one.get("interface")) or f"net{number}",
            texts(one.get("ips")),
        )
        for number, one in enumerate(mappings(parsed), 1)
    ]


def _short(value: str) -> list[Network]:
    found = []
    for number, part in enumerate(filter(None, re.split(r"[,\s]+", value)), 1):
        match = _SHORT.fullmatch(part)
        if not match:
            raise ValueError(f"{REQUESTED} holds {part!r}, expected namespace/name@interface")
        found.append(Network(match[1] or "", match[2], match[3] or f"net{number}"))
    return found


@dataclass(frozen=True, slots=True)
class Attached:
    """An interface of an existing pod, as Multus reports it."""

    network: str
    interface: str
    ips: Sequence[str]
    default: bool
    mtu: str = ""


def attached(role: Role) -> Sequence[Attached] | None:
    """Return the interfaces of an existing pod, None if its status is unknown."""
    value = annotation_json(role.annotations.get(STATUS))
    if not isinstance(value, list):
        return None
    return [
        Attached(
            text(one.get("name")),
            text(one.get("interface")),
            texts(one.get("ips")),
            one.get("default") is True,
            text(one.get("mtu")),
        )
        for one in mappings(value)
    ]


def secondary_interfaces(role: Role) -> Sequence[str]:
    """Return the names of a pod's interfaces other than its default one.

    Raises:
        UndecidedError: it shares the node's interfaces, or its annotation cannot be read.
    """
    if role.spec.get("hostNetwork") is True:
        raise UndecidedError("the pod uses the node's network, whose interfaces no manifest names")
    there = attached(role)
    if there is not None:
        return [one.interface for one in there if not one.default]
    try:
        return [one.interface for one in requested(role)]
    except ValueError as error:
        raise UndecidedError(str(error)) from None
