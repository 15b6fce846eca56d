"""The vocabulary of kernel events: causes, severities and actions."""

from __future__ import annotations

from typing import Literal, get_args

Cause = Literal[
    "app",
    "driver",
    "gpu_hardware",
    "gpu_memory",
    "nvlink_fabric",
    "pcie",
    "host_memory",
    "host_kernel",
    "storage",
    "network_nic",
    "network_link",
    "benign",
]
"""Where a kernel event originates; the firmware of a GPU's system processor counts as driver."""

Action = Literal[
    "none",
    "investigate",
    "contact_vendor",
    "restart_app",
    "check_cable",
    "reset_gpu",
    "reboot_node",
    "drain",
]
"""What to do first, from gentle to drastic: of two actions for one cause the later one applies."""

Severity = Literal["info", "warn", "error", "fatal"]
"""How much is lost: nothing, possibly something later, one program's work, the GPU or node."""

ACTIONS: tuple[Action, ...] = get_args(Action)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
CAUSES: tuple[Cause, ...] = get_args(Cause)


def stronger(one: Action, other: Action) -> Action:
    """Return the action that includes the other."""
    return max(one, other, key=ACTIONS.index)
