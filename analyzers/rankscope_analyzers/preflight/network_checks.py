"""Checks of the network that gradients take: interfaces, sockets and RDMA."""

from __future__ import annotations

from rankscope_analyzers.preflight.environment import Environment, environment
from rankscope_analyzers.preflight.job import EFA, Job, NotApplicableError, Role
from rankscope_analyzers.preflight.networks import (
    DEFAULT_INTERFACE,
    attached,
    requested,
    secondary_interfaces,
)
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.values import mapping, mappings, text

_ATTACH = "add the annotation k8s.v1.cni.cncf.io/networks with the fast network to the pod template"


def _secondary_interface(job: Job, role: Role) -> Outcome:
    job.need_several()
    if role.spec.get("hostNetwork") is True:
        return warned(
            "hostNetwork: true",
            "a separate secondary interface for each pod",
            "attach the fast network instead: on the node's, pods share ports and no policy holds",
        )
    try:
        wanted = requested(role)
    except ValueError as error:
        return failed(str(error), "a list of networks", "correct the annotation")
    there = attached(role)
    if there is not None:
        for one in wanted:
            if one.interface not in {found.interface for found in there if not found.default}:
                return failed(
                    f"{one.name} was requested as {one.interface}, but network-status does not"
                    " list it",
                    "an interface for each requested network",
                    "the attachment failed or Multus is not installed: see the pod's events",
                )
    if wanted:
        return passed("requests " + ", ".join(f"{one.name} as {one.interface}" for one in wanted))
    role.complete()
    if role.rdma and set(role.rdma) != {EFA}:
        return failed(
            f"requests {_devices(role)} but no secondary network",
            "a secondary network along with RDMA devices",
            _ATTACH,
        )
    raise NotApplicableError("neither RDMA devices nor a secondary network are requested")


def _single_network(job: Job, role: Role) -> Outcome:
    job.need_several()
    role.need_gpus()
    if role.rdma:
        return passed(f"gradients go over {_devices(role)}")
    extra = secondary_interfaces(role)
    if extra:
        return passed(f"gradients can go over {', '.join(extra)}")
    role.complete()
    return warned(
        "the pod only has its default interface",
        "a network for gradients in addition to the one for control traffic",
        _ATTACH,
    )


def _devices(role: Role) -> str:
    return ", ".join(f"{name}: {count:g}" for name, count in role.rdma.items())


def matching(pattern: str, interfaces: list[str]) -> list[str]:
    """Return the interfaces that a value of NCCL_SOCKET_IFNAME selects, as NCCL reads it.

    `^` excludes, `=` matches names exactly, else names are prefixes (NCCL, src/misc/socket.cc).
    """
    excludes = pattern.startswith("^")
    rest = pattern.removeprefix("^")
    exact = rest.startswith("=")
    names = [name for name in rest.removeprefix("=").split(",") if name]

    def named(interface: str) -> bool:
        return any(interface == one if exact else interface.startswith(one) for one in names)

    return [one for one in interfaces if named(one) != excludes]


def _socket_interface(job: Job, role: Role) -> Outcome:
    job.need_several()
    value = environment(job, role).get("NCCL_SOCKET_IFNAME")
    extra = list(secondary_interfaces(role))
    interfaces = [DEFAULT_INTERFACE, *extra]
    if not value:
        if not extra or role.rdma:
            return passed(f"not set; NCCL takes one of {', '.join(interfaces)}")
        return warned(
            f"not set, with {', '.join(interfaces)}: NCCL may take {DEFAULT_INTERFACE}",
            f"the fast interface, since sockets carry the gradients: {', '.join(extra)}",
            f"set NCCL_SOCKET_IFNAME={','.join(extra)}",
        )
    found = matching(value, interfaces)
    if not found:
        return failed(
            f"NCCL_SOCKET_IFNAME={value} matches none of {', '.join(interfaces)}",
            "a value that matches an interface of the pod",
            f"set one of {', '.join(interfaces)}, or attach the network that it refers to",
        )
    return _chosen(role, value, found, extra)


def _chosen(role: Role, value: str, found: list[str], extra: list[str]) -> Outcome:
    seen = f"NCCL_SOCKET_IFNAME={value} matches {', '.join(found)}"
    if role.rdma or not extra:
        return passed(seen)
    if not set(found) & set(extra):
        return failed(
            f"{seen}, and sockets carry the gradients",
            f"the fast interface: {', '.join(extra)}",
            f"set NCCL_SOCKET_IFNAME={','.join(extra)}",
        )
    if DEFAULT_INTERFACE in found:
        return warned(seen, "only the fast interfaces", f"set NCCL_SOCKET_IFNAME={','.join(extra)}")
    return passed(seen)


def _rdma_transport(job: Job, role: Role) -> Outcome:
    job.need_several()
    known = environment(job, role)
    disabled, plugin = known.get("NCCL_IB_DISABLE") or "0", known.get("NCCL_NET") or ""
    if not known.named("NCCL_IB_DISABLE", "NCCL_NET") and not role.rdma:
        role.complete()
        raise NotApplicableError("neither RDMA devices nor NCCL_IB_DISABLE or NCCL_NET are set")
    off = "NCCL_IB_DISABLE=" + disabled if disabled != "0" else ""
    off = off or ("NCCL_NET=Socket" if plugin.lower() == "socket" else "")
    if not off:
        return passed("RDMA is not switched off")
    if EFA in role.rdma and off != "NCCL_NET=Socket":
        return passed(f"{off}, and EFA's plugin does not read it")
    if role.rdma:
        return failed(
            f"{off}, with {_devices(role)}: NCCL takes TCP sockets",
            "RDMA switched on",
            f"remove {off.partition('=')[0]}",
        )
    return warned(
        f"{off}, and no RDMA devices are requested",
        "RDMA, or a deliberate choice of TCP",
        "if the nodes have RDMA devices, request them and remove the variable",
    )


def _rdma_devices(job: Job) -> Outcome:
    job.need_several()
    ranks = [role for role in job.ranks if role.gpus] or list(job.ranks)
    without = [role for role in ranks if not role.rdma]
    if not without:
        return passed("all ranks request " + _devices(ranks[0]))
    for role in without:
        if not _sees_devices(role):
            role.need_no_claims("RDMA devices")
        role.complete()
    if len(without) < len(ranks):
        return failed(
            f"{without[0].name} requests no RDMA devices, and {job.pods} pods exchange gradients",
            "RDMA devices for every pod: one without puts the whole ring on sockets",
            "give all templates the same resources",
        )
    return _visible_unusable(job, ranks)


def _visible_unusable(job: Job, ranks: list[Role]) -> Outcome:
    for role in ranks:
        known = environment(job, role)
        set_up = [name for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX") if known.named(name)]
        if set_up and not _sees_devices(role):
            return failed(
                f"{role.name} sets {set_up[0]}, requests no RDMA devices and has no"
                " /dev/infiniband: NCCL takes sockets",
                "RDMA devices among the resources",
                "add the device plugin's resource, such as rdma/hca: 1, to the limits",
            )
        if _sees_devices(role):
            return warned(
                f"{role.name} sees /dev/infiniband by hostPath or privileges, not by a resource",
                "RDMA devices among the resources",
                "request the resource: other pods on the node may use the same devices",
            )
    raise NotApplicableError("nothing in the job refers to RDMA")


def _sees_devices(role: Role) -> bool:
    paths = [
        text(mapping(one, "hostPath").get("path")).rstrip("/")
        for one in mappings(role.spec.get("volumes"))
    ]
    privileged = mapping(role.trainer, "securityContext").get("privileged") is True
    return privileged or any(one in {"/dev", "/dev/infiniband"} for one in paths)


def _gpudirect(job: Job, role: Role) -> Outcome:
    job.need_several()
    known = environment(job, role)
    role.need_rdma()
    role.need_gpus()
    off = _gpudirect_off(known)
    if off:
        return failed(
            f"{off} turns GPUDirect RDMA off: traffic goes through the host's memory",
            "GPUDirect RDMA left on",
            f"remove {off.partition('=')[0]}",
        )
    if known.get("NCCL_DMABUF_ENABLE") == "0":
        return warned(
            "NCCL_DMABUF_ENABLE=0 leaves only nvidia_peermem for GPUDirect",
            "DMA-BUF left on",
            "remove NCCL_DMABUF_ENABLE, or make sure that every node has nvidia_peermem loaded",
        )
    return passed("nothing turns it off; peer-memory shows whether the nodes support it")


def _gpudirect_off(known: Environment) -> str:
    level = (known.get("NCCL_NET_GDR_LEVEL") or "").upper()
    return f"NCCL_NET_GDR_LEVEL={level}" if level in {"0", "LOC"} else ""


def _host_network_dns(job: Job, role: Role) -> Outcome:
    if role.spec.get("hostNetwork") is not True:
        role.complete()
        raise NotApplicableError("the pods have their own network")
    policy = text(role.spec.get("dnsPolicy")) or "ClusterFirst"
    if policy == "ClusterFirstWithHostNet" or (policy == "None" and role.spec.get("dnsConfig")):
        return passed(f"dnsPolicy: {policy}")
    if not job.several:
        return warned(
            f"hostNetwork with dnsPolicy: {policy}: names of services do not resolve",
            "dnsPolicy: ClusterFirstWithHostNet",
            "set it",
        )
    return failed(
        f"hostNetwork with dnsPolicy: {policy}: ranks do not find each other by name",
        "dnsPolicy: ClusterFirstWithHostNet",
        "set it, or leave hostNetwork",
    )


def secondary_interface(job: Job) -> Outcome:
    """Check that each pod has the networks that it requests, with one MTU on all pods."""
    outcome = of_ranks(_secondary_interface)(job)
    return outcome if outcome.verdict != "pass" else _one_mtu(job) or outcome


def _one_mtu(job: Job) -> Outcome | None:
    """Return a warning if existing pods have a network with several MTUs."""
    by_network: dict[str, dict[str, str]] = {}
    for role in job.ranks:
        for one in attached(role) or ():
            if one.mtu and not one.default:
                by_network.setdefault(one.network, {}).setdefault(one.mtu, role.name)
    for network, sizes in by_network.items():
        if len(sizes) > 1:
            seen = ", ".join(f"{mtu} in {name}" for mtu, name in sorted(sizes.items()))
            return warned(
                f"the MTU of {network} differs: {seen}",
                "one MTU on all pods",
                "set the same MTU on all nodes: large packets are lost where it is smaller",
            )
    return None


single_network = of_ranks(_single_network)
socket_interface = of_ranks(_socket_interface)
rdma_transport = of_ranks(_rdma_transport)
rdma_devices = _rdma_devices
gpudirect = of_ranks(_gpudirect)
host_network_dns = of_ranks(_host_network_dns)
