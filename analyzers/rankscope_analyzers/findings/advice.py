"""What to do about each kind of finding, and how bad it is: one table for all layers.

A finding may be worse or milder than its kind usually is, and the driver or the kernel may request
a specific action; the finding's creator then gives one. This is the only table about kinds, except
for what each can be the cause of (`fusion.causality`).
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.kernel.vocabulary import Action
from rankscope_analyzers.findings.finding import Advice, Owner
from rankscope_analyzers.findings.job_advice import JOB_ADVICE
from rankscope_analyzers.findings.node_advice import LESS_MEMORY, NODE_ADVICE
from rankscope_analyzers.findings.signal_advice import SIGNAL_ADVICE

ADVICE: Mapping[str, Advice] = {**JOB_ADVICE, **NODE_ADVICE, **SIGNAL_ADVICE}
"""Every kind of finding."""

OWNERS_OF_CAUSES: Mapping[str, Owner] = {
    **dict.fromkeys(causes.CAUSES, "ml"),
    **dict.fromkeys(
        (causes.STORAGE, causes.PREEMPTED, causes.NODE_LOST, causes.CUDA_ERROR), "platform"
    ),
    causes.NCCL_ERROR: "network",
}
"""Who owns the cause that the logs of a failed attempt give."""


FROZEN_INPUT = Advice(
    "ticket",
    "Check that rank's input: its storage mount and loader workers at that time.",
    "RankscopeStragglerData",
    "ml",
)
"""Advice for a rank that waited for its input once, and for long."""

FROZEN_HOST = Advice(
    "ticket",
    "Look for what stopped the process at that time: a debugger, a snapshot or migration of the"
    " machine, a paused container, memory that was swapped out.",
    "RankscopeHostStalls",
    "platform",
)
"""Advice for a rank that stood still once, and for long."""

SLOW_CPU = Advice(
    "ticket",
    "Compare load, clocks and CPU limits of that node with those of its peers; cordon it if they"
    " differ, profile the rank if they do not.",
    "RankscopeStraggler",
    "platform",
)
"""Advice for a rank that computes longer than its peers where no GPU is known."""

MOST_SLOWER = Advice(
    "ticket",
    "Compare the compute time of the ranks, and look for what the slower ones share and the others"
    " do not: nodes or racks, power or clock caps, cooling, a driver version, CPU load.",
    "RankscopeGlobalSlowdown",
    "platform",
)
"""Advice if most ranks, but not all, compute longer than they did."""

UNSEEN_RANKS = Advice(
    "ticket",
    "Have the ranks without records report (is their node's agent up, do their processes load the"
    " probe? `rankscope doctor` says), and look at their GPUs, input and CPUs meanwhile: if one of"
    " them is slow, all others wait for it. Look at the fabric if none is.",
    "RankscopeGlobalSlowdown",
    "platform",
)
"""Advice if all observed ranks wait longer, and others have no records."""

CODE_ACTIONS: Mapping[Action, str] = {
    "none": "Nothing needs to be done to the node.",
    "investigate": "Look at the node's kernel log (rankscope explain kernel-log).",
    "contact_vendor": "Drain the node and open a case with the vendor.",
    "restart_app": "Restart the job; if it comes again on this GPU only, drain the node.",
    "check_cable": "Check cables and power of the GPU.",
    "reset_gpu": "Drain the node and reset the GPU.",
    "reboot_node": "Drain the node and reboot it.",
    "drain": "Drain the node.",
}
"""The meaning of an Xid's action for those who run the job."""

MEMORY_EXHAUSTED = Advice("page", LESS_MEMORY, "RankscopeNodeResourceExhausted", "platform")
"""Advice for memory pressure that is about to end in evictions."""

NVLINK_ERRORS = Advice(
    "ticket",
    "Check the NVLinks (nvidia-smi nvlink -e) and drain the node if errors go on.",
    "RankscopeNvlinkFault",
    "platform",
)
"""Advice for an NVLink that has errors and is up."""

FEWER_NVLINKS = Advice(
    "ticket",
    "Check the NVLinks (nvidia-smi nvlink -s); reseat or replace the GPU's bridges if it should"
    " have more links.",
    "RankscopeNvlinkFault",
    "platform",
)
"""Advice for a GPU that has fewer NVLinks than others, which it may have been built with."""

NO_NVLINK = Advice(
    "page",
    "Drain the node, read the fabric manager's log and the kernel's, and reset the GPU; replace it"
    " if its NVLinks (nvidia-smi nvlink -s) stay down.",
    "RankscopeNvlinkFault",
    "platform",
)
"""Advice for a GPU of a board, all of whose NVLinks are down while others of its node have some."""

CABLE_REPORTED = Advice(
    "page", "Look at cable, transceiver and switch port.", "RankscopeLinkFlapping", "network"
)
"""Advice for a link that the kernel itself reports a fault of."""
