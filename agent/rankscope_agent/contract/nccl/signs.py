"""What NCCL's INFO lines say about a process: network, versions, settings, signs of problems."""

from __future__ import annotations

import re

from rankscope_agent.contract.nccl.facts import MAX_NAME, Process
from rankscope_agent.contract.nccl.warnings import TOPOLOGY_FILE, classify

MAX_ENVIRONMENT = 64
"""Settings kept of a process; NCCL has some 250, of which the largest recipes set fewer than 40."""

MAX_VALUE = 200

# Signs that the verdict queries.
NO_IB_DEVICE = "no_ib_device"
IB_DEVICE = "ib_device"
SOCKET_DEVICE = "socket_device"
VERBS_MISSING = "IB_LIBRARY_MISSING"
PLUGIN_FAILED = "plugin_failed"
NO_P2P = "no_p2p"
NVSWITCH = "nvswitch"

VENDOR_TOPOLOGIES = ("/opt/amazon/", "/opt/aws-ofi-nccl/", "/opt/microsoft/", "/usr/local/gib/")
"""Directories in which cloud images keep the topology files for their own machines: the EFA plugin
and the images of Azure and Google Cloud set NCCL_TOPO_FILE to these by themselves."""

_NETWORK = re.compile(r"Using (?:internal )?[nN]etwork ([^\"'`*\\,;<)\]]+)")
_VERSION = re.compile(r"NCCL version (\d[\w.+-]{0,40})")
_ENVIRONMENT = re.compile(r"(NCCL_\w{1,60}) set (?:by environment )?to (.*)")
_BOOTSTRAP_TIME = re.compile(r"Bootstrap timings total (\d{1,9}\.\d{1,9})")
# `NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:..`; the list is empty if there is no adapter.
_IB_DEVICES = re.compile(r"NET/IB : Using\s*\[\d+\]")
_ASSIGNED = re.compile(r"Assigned NET plugin (.+) to comm")
_INIT_FAILED = re.compile(r"Failed to initialize NET plugin (.+)")
# Up to 2.3, whose source files end in .cu, the bootstrap uses the same file.
_BACK_TRACE = re.compile(r"transport/(net_ib|net_socket)\b(?!\.cu\b)\S* ?(?:\([^)]*\) )?-> [1-7]\b")


def read_environment(process: Process, text: str) -> tuple[str, ...]:
    """Record a setting of the process's environment."""
    match = _ENVIRONMENT.match(text)
    if match is None:
        return ()
    # Numbers are followed by the full stop of the sentence, texts are not (param.cc).
    value = match[2].strip()[:MAX_VALUE]
    if value.endswith(".") and re.fullmatch(r"-?\d+\.", value):
        value = value[:-1]
    if match[1] in process.environment or len(process.environment) < MAX_ENVIRONMENT:
        process.environment[match[1]] = value
    return _topology(value) if match[1] == "NCCL_TOPO_FILE" else ()


def read_version(process: Process, text: str) -> tuple[str, ...]:
    """Record the version, as printed by NCCL 2.22 and later."""
    version = _VERSION.match(text)
    process.version = version[1] if version else process.version
    return ()


def _topology(path: str) -> tuple[str, ...]:
    """Record a custom topology file, which silently replaces what NCCL would detect."""
    own = path and not path.startswith(VENDOR_TOPOLOGIES) and "virtualTopology" not in path
    return (TOPOLOGY_FILE,) if own else ()


def read_net(process: Process, text: str) -> tuple[str, ...]:
    """Record the adapters found by NCCL's own network, and a plugin without any."""
    if text.startswith("NET/IB : No device found"):
        process.signs.add(NO_IB_DEVICE)
    elif _IB_DEVICES.match(text):
        process.signs.add(IB_DEVICE)
    elif text.startswith("NET/Socket : Using ["):
        process.signs.add(SOCKET_DEVICE)
    elif text.startswith("NET/OFI No eligible providers"):
        process.signs.add(PLUGIN_FAILED)
        return (classify(text).code,)
    return ()


def read_failure(process: Process, text: str) -> tuple[str, ...]:
    """Record a plugin or library that could not be used."""
    failed = _INIT_FAILED.match(text)
    if failed and failed[1].strip() not in {"IB", "Socket"}:
        process.signs.add(PLUGIN_FAILED)
    if text.startswith("Failed to open libibverbs"):
        process.signs.add(VERBS_MISSING)
    return ()


def read_back_trace(process: Process, text: str) -> tuple[str, ...]:
    """Record the transport of the data, from a back-trace through that transport's file."""
    match = _BACK_TRACE.match(text)
    if match:
        process.error_transports.add("NET/IB" if match[1] == "net_ib" else "NET/Socket")
    return ()


def read_network(process: Process, text: str) -> tuple[str, ...]:
    """Record the network that the process uses."""
    match = _NETWORK.match(text) or _ASSIGNED.match(text)
    if match:
        process.network = match[1].strip()[:MAX_NAME]
    return ()


def read_bootstrap(process: Process, text: str) -> tuple[str, ...]:
    """Record how long the bootstrap took, or that it had no interface."""
    time = _BOOTSTRAP_TIME.match(text)
    if time:
        process.bootstrap_seconds = float(time[1])
    return (classify(text).code,) if text.startswith("Bootstrap : no socket") else ()


def read_peers(process: Process, text: str) -> tuple[str, ...]:
    """Record which features GPUs can use among each other, and peers that RAS declares dead."""
    if text.startswith("Could not enable P2P"):
        process.signs.add(NO_P2P)
    elif text.startswith("NVLS multicast support is available"):
        process.signs.add(NVSWITCH)
    return (classify(text).code,) if text.startswith("RAS declaring") else ()


def read_topology(process: Process, text: str) -> tuple[str, ...]:
    """Record a topology file that replaces what NCCL would detect."""
    return _topology(text.removeprefix("Loading topology file").strip())
