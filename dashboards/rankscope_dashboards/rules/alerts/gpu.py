"""Alerts about GPUs: one per condition that needs its own action."""

from __future__ import annotations

from rankscope_agent.contract.kernel.xid import NVLINK5, XIDS
from rankscope_agent.contract.metrics import gpus, kernel_log, summary
from rankscope_dashboards.expressions.joins import finding, with_owner
from rankscope_dashboards.expressions.promql import GPU, by, recent, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group

FATAL_XIDS = "|".join(
    str(code) for code, known in sorted(XIDS.items()) if known.severity == "fatal"
)
"""Codes that take down the GPU, for drivers' events, which carry no severity."""

NVLINK_XIDS = tuple(
    code
    for code, known in sorted(XIDS.items())
    if known.cause == "nvlink_fabric" and known.severity in {"error", "fatal"}
)
"""Codes of a broken NVLink, if they do break it: in generation 5 the kernel's line shows that."""

XID_SECONDS = 600
"""How long an Xid is news: far longer than two scrapes at the longest sensible interval."""

THROTTLED_SHARE = 0.5
"""Half of the last five minutes: a shorter reduction of the clock is normal for GPUs at their power
limit, and costs a few per cent."""

THIS_GPU = "cluster=%[1]q,uuid=%[2]q"

MANY_NODES = 4
"""With this many nodes it is no chance that most have it, and a ticket for each would be too
many."""

POWER_LIMIT_SHARE = 0.95
"""Enforced limits within 5 % of the board's default are rounding and vendors' settings."""


def _in_condition(*conditions: str) -> str:
    """Return GPUs that are in a condition; agents report no others, so that few are read."""
    return worst(_condition(*conditions) + " == 1", *GPU)


def _share_of_five_minutes(condition: str) -> str:
    return worst(f"avg_over_time({_condition(condition)}[5m])", *GPU)


def _condition(*conditions: str) -> str:
    return f'{summary.GPU_CONDITION.name}{{condition=~"{"|".join(conditions)}"}}'


def _nvlink_xids(chosen: str = "") -> str:
    """Return times of Xids of broken NVLinks; without a line, generation 5 shows no severity."""
    codes = "|".join(map(str, NVLINK_XIDS))
    older = "|".join(str(code) for code in NVLINK_XIDS if code not in NVLINK5)
    of_gpus = f",{chosen}" if chosen else ""
    return (
        f'({kernel_log.XID_LAST.name}{{xid=~"{codes}",severity=~"error|fatal"{of_gpus}}}'
        f' or {gpus.GPU_XID_TIMESTAMP.name}{{xid=~"{older}"{of_gpus}}})'
    )


def _shown_value(query: str, text: str) -> str:
    """Return a text for each result of a query about the alert's own GPU; THIS_GPU selects it."""
    return texts.known(query, text, "cluster", "uuid")


_NO_NVLINK = _condition("no_nvlink") + " == 1"
_LOWERED = f"{worst(summary.GPU_POWER_REDUCED.name, *GPU)} < {POWER_LIMIT_SHARE}"
_LOWERED_BY_DECISION = (
    f"count {by()} (count {by('node')} ({_LOWERED}))"
    f" > 0.5 * ({records.CLUSTER_AGENTS} >= {MANY_NODES})"
)
"""A limit on most nodes of a cluster was chosen for all of them."""

NODE_ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeXidFatal",
        expression=recent(
            worst(
                f'{kernel_log.XID_LAST.name}{{severity="fatal"}}'
                f' or {gpus.GPU_XID_TIMESTAMP.name}{{xid=~"{FATAL_XIDS}"}}',
                *GPU,
                "xid",
            ),
            XID_SECONDS,
        ),
        hold="0s",
        keep="1h",
        why="One Xid is enough. A program that is restarted on the broken GPU triggers the"
        " next; an hour covers that.",
        severity="ticket",
        scope="node",
        summary=f"Fatal Xid {{{{ $labels.xid }}}} of {texts.GPU}",
        description=f"{texts.GPU} reported Xid {{{{ $labels.xid }}}}"
        " {{ $value | humanizeDuration }} ago, which makes the GPU unusable. Its processes have"
        " ended or will hang." + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuLost",
        expression=_in_condition("lost", "unresponsive"),
        hold="2m",
        keep="15m",
        why="A driver that is busy for a minute answers again; a GPU that is lost stays lost.",
        severity="ticket",
        scope="node",
        summary=f"{texts.GPU} does not answer",
        description=f"{texts.GPU} has fallen off the bus or does not answer its driver."
        + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuMemoryError",
        expression=worst(f"{summary.GPU_RECENT_UNCORRECTED.name} > 0", *GPU),
        hold="0s",
        keep="1h",
        why="Any uncorrected error may have put wrong data into a job; an hour covers"
        " restarts on the same GPU.",
        severity="ticket",
        scope="node",
        summary=f"Uncorrectable memory errors of {texts.GPU}",
        description=f"{texts.GPU} counted {texts.number_of('memory error')} that ECC could not"
        " correct in 15 minutes. Do not trust what was computed since." + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuRowRemapPending",
        expression=_in_condition("row_remap_pending", "page_retirement_pending"),
        hold="15m",
        keep="15m",
        why="This is not urgent: the row is no longer used. 15 minutes let a reset that is"
        " under way finish first.",
        severity="ticket",
        scope="node",
        summary=f"{texts.GPU} needs a reset to replace bad memory",
        description=f"Bad memory rows of {texts.GPU} wait for a reset. Reset it between two jobs."
        + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuRowRemapFailed",
        expression=_in_condition("row_remap_failure", "sram_threshold"),
        hold="0s",
        keep="1h",
        why="The GPU keeps this state, and it never goes away by itself.",
        severity="ticket",
        scope="node",
        summary=f"{texts.GPU} cannot replace bad memory and has to be replaced",
        description=f"{texts.GPU} could not replace a bad memory row, or its SRAM errors reached"
        " the count at which the vendor replaces it." + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuThermalSlowdown",
        expression=f"{_share_of_five_minutes('thermal_slowdown')} > {THROTTLED_SHARE}",
        hold="5m",
        keep="15m",
        why="Five minutes out of ten is not a short peak. A hot GPU that slows down cools off"
        " and recovers within minutes: 15 minutes cover that.",
        severity="ticket",
        scope="node",
        summary=f"{texts.GPU} is slowed down because it is too hot",
        description=f"The clock of {texts.GPU} was reduced because of heat during"
        " {{ $value | humanizePercentage }} of the last five minutes, under load." + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuPowerLimited",
        expression=f"({_share_of_five_minutes('power_brake')} > {THROTTLED_SHARE})\n"
        f"or ({_LOWERED} unless on (cluster) ({_LOWERED_BY_DECISION}))",
        hold="10m",
        keep="15m",
        why="The power brakes of a failing supply come in bursts, which five-minute averages"
        " smooth out; a lowered limit stays until someone raises it.",
        severity="ticket",
        scope="node",
        summary=f"{texts.GPU} gets less power than its default",
        description=f"{texts.GPU} gets less power than its board's default."
        + _shown_value(
            f'max(avg_over_time({summary.GPU_CONDITION.name}{{condition="power_brake",{THIS_GPU}}}'
            f"[5m])) > {THROTTLED_SHARE}",
            "Its power brake was on for {{ .Value | humanizePercentage }} of the last five"
            " minutes.",
        )
        + _shown_value(
            f"max({summary.GPU_POWER_REDUCED.name}{{{THIS_GPU}}}) < {POWER_LIMIT_SHARE}",
            "Its power limit is {{ .Value | humanizePercentage }} of the board's default.",
        )
        + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeGpuPcieDegraded",
        expression=worst(summary.GPU_PCIE_REDUCED.name, *GPU),
        hold="15m",
        keep="30m",
        why="Links drop to a lower speed for seconds to save power; 15 minutes under load"
        " means a bad slot, riser or card.",
        severity="ticket",
        scope="node",
        summary=f"PCIe link of {texts.GPU} is below its maximum",
        description=f"{texts.GPU} has {{{{ $value | humanizePercentage }}}} of the PCIe lanes or"
        " generation that it and its slot support, under load." + texts.HOLDERS,
    ),
    Alert(
        name="RankscopeNvlinkFault",
        expression=worst(
            f"{gpus.GPU_NVLINK_LINK_UP.name} == 0 or {gpus.GPU_FABRIC_UNHEALTHY.name} == 1"
            f" or {_NO_NVLINK}"
            f" or {recent(_nvlink_xids(), XID_SECONDS)}",
            *GPU,
        ),
        hold="5m",
        keep="30m",
        why="A restart of the fabric manager takes links down for a minute or two; an Xid"
        " counts for ten minutes.",
        severity="ticket",
        scope="node",
        summary=f"NVLink of {texts.GPU} is down or unhealthy",
        description=f"NVLink of {texts.GPU} does not work as it should: collectives within the node"
        " take another path, or hang."
        + _shown_value(
            f"max by (link) ({gpus.GPU_NVLINK_LINK_UP.name}{{{THIS_GPU}}}) == 0",
            "Link {{ .Labels.link }} is down while others are up.",
        )
        + _shown_value(
            f"max({gpus.GPU_NVLINKS_UP.name}{{{THIS_GPU}}}) == 0",
            "None of its links is up.",
        )
        + _shown_value(
            f"max by (check) ({gpus.GPU_FABRIC_UNHEALTHY.name}{{{THIS_GPU}}}) == 1",
            "The fabric fails its check {{ .Labels.check }}.",
        )
        + _shown_value(
            f"max by (xid) ({recent(_nvlink_xids(THIS_GPU), XID_SECONDS)})",
            "Xid {{ .Labels.xid }} was reported {{ .Value | humanizeDuration }} ago.",
        )
        + texts.HOLDERS,
    ),
)

JOB_ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeGpuClockLow",
        expression=with_owner(finding(("clock_low", "power_low", "temperature_high"))),
        hold="15m",
        keep="15m",
        why="Clocks are compared with the job's other GPUs; 15 minutes is longer than any"
        " phase in which one of them has less to do.",
        severity="ticket",
        scope="job",
        summary=f"A GPU of {texts.JOB} runs at a lower clock than its peers",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeGpuHardwareFault",
        expression=with_owner(finding(("gpu_hardware", "gpu_memory", "nvlink_fabric", "pcie"))),
        hold="0s",
        keep="30m",
        why="The kernel reported it, and the job is affected: waiting adds no information.",
        severity="by_class",
        scope="job",
        summary=f"{texts.JOB} is affected by a hardware fault",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeGpuDriverFault",
        expression=with_owner(
            finding(("driver", "gpu_recovery_needed", "gpu_unresponsive", "device_unhealthy"))
        ),
        hold="0s",
        keep="30m",
        why="As with hardware faults: the driver has given up on the GPU.",
        severity="by_class",
        scope="job",
        summary=f"{texts.JOB} is affected by a fault of the GPU driver",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeGpuProgramFault",
        expression=with_owner(finding(("app",))),
        hold="0s",
        keep="30m",
        why="The program has ended; retries raise the same fault within half an hour.",
        severity="ticket",
        scope="job",
        summary=f"A program of {texts.JOB} caused a fault on its GPU",
        description="An error that programs cause (illegal access, exception) was reported by the"
        f" GPU of {texts.CULPRIT}.{texts.DIAGNOSE}",
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-gpu", NODE_ALERTS),
    Group("rankscope-gpu-jobs", JOB_ALERTS),
)
