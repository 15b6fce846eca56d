"""Alerts about nodes: exhausted resources and hardware faults."""

from __future__ import annotations

from rankscope_agent.contract.metrics import host, kernel_log, summary
from rankscope_dashboards.expressions.joins import finding, with_owner
from rankscope_dashboards.expressions.promql import by, recent, worst
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group

USED = 0.95
"""The kubelet evicts at 85 to 90 % of disks by default; beyond 95 % it has failed to help."""

OOM_KILLS = 3
"""Kills in an hour, of one job: one may be a notebook that tried something."""

HARDWARE_SECONDS = 600
REBOOT_SECONDS = 1800

HARDWARE_KINDS = "|".join(
    (
        "machine_check",
        "memory_uncorrected",
        "hard_lockup",
        "soft_lockup",
        "kernel_panic",
        "kernel_fault",
        "pcie_unrecovered",
        "nvme_lost",
    )
)
"""Events of the kernel log after which a node is not trusted."""

START_KINDS = "|".join(
    (
        "gpu_probe_failure",
        "gpu_firmware_no_start",
        "gpu_firmware_missing",
        "gpu_firmware_crash",
        "nic_probe_failure",
        "software_rdma_error",
    )
)
"""Events of the kernel log after which a GPU or an adapter is missing for future jobs."""


_KILLS = summary.POD_RECENT_OOM_KILLS.name
_OF_JOBS = worst(f'{_KILLS}{{job_id!=""}}', "node", "pod_uid", "job_id")
_OF_OTHERS = worst(f'{_KILLS}{{job_id=""}}', "node", "pod_uid")
_OOM_BY_JOB = f"round(sum {by('job_id')} ({_OF_JOBS})) >= {OOM_KILLS}"
_OOM_BY_POD = f"round({_OF_OTHERS}) >= {OOM_KILLS}"

_HARDWARE_EVENTS = f'{kernel_log.KERNEL_LAST_EVENT.name}{{kind=~"{HARDWARE_KINDS}"}}'
_UNCORRECTED = f'increase({host.EDAC_ERRORS.name}{{severity="uncorrected"}}[15m])'
_OF_NODE = "cluster=%q,node=%q,"
_WHICH_EVENTS = texts.known(
    f"time() - max by (kind) ({_HARDWARE_EVENTS.replace('{', '{' + _OF_NODE, 1)})"
    f" < {HARDWARE_SECONDS}",
    "It logged {{ .Labels.kind }} {{ .Value | humanizeDuration }} ago.",
    *("cluster", "node"),
    by="kind",
)
_UNCORRECTED_ERRORS = texts.known(
    f"max({_UNCORRECTED.replace('{', '{' + _OF_NODE, 1)}) > 0",
    "EDAC counts uncorrectable memory errors.",
    *("cluster", "node"),
)

ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeNodeResourceExhausted",
        expression=worst(f"{summary.NODE_RESOURCE_USED.name} > {USED}", "node", "resource"),
        hold="30m",
        keep="10m",
        why="Caches and temporary files fill and empty a node within minutes; half an hour at"
        " the limit ends in evictions.",
        severity="page",
        scope="node",
        summary=f"{texts.NODE} runs out of {{{{ $labels.resource }}}}",
        description=f"{texts.NODE} uses {texts.SHARE} of its {{{{ $labels.resource }}}}: pods will"
        " be evicted or fail.",
    ),
    Alert(
        name="RankscopeHostHardware",
        # One per node: of one memory error the machine check, the kernel's line about the memory
        # and EDAC's counter each tell, within a quarter of an hour.
        expression=recent(worst(_HARDWARE_EVENTS, "node"), HARDWARE_SECONDS)
        + "\nor "
        + worst(f"{_UNCORRECTED} > 0", "node"),
        hold="0s",
        keep="1h",
        why="One such event is enough; the node repeats it or goes down within the hour.",
        severity="ticket",
        scope="node",
        summary=f"Hardware or kernel of {texts.NODE} is failing",
        description=f"The kernel of {texts.NODE} reports a fault of the hardware or in itself."
        + _WHICH_EVENTS
        + _UNCORRECTED_ERRORS,
    ),
    Alert(
        name="RankscopeDeviceNotStarted",
        expression=recent(
            worst(f'{kernel_log.KERNEL_LAST_EVENT.name}{{kind=~"{START_KINDS}"}}', "node", "kind"),
            HARDWARE_SECONDS,
        ),
        hold="0s",
        keep="1h",
        why="Drivers try at boot and when they are loaded, and give up: waiting changes nothing.",
        severity="ticket",
        scope="node",
        summary=f"A GPU or adapter of {texts.NODE} is not usable",
        description=f"The kernel of {texts.NODE} reported {{{{ $labels.kind }}}}"
        " {{ $value | humanizeDuration }} ago.",
    ),
    Alert(
        name="RankscopeNodeReboot",
        expression=recent(
            worst(f'{kernel_log.BOOT_TIME.name}{{reason=~"crashed|unexpected"}}', "node", "reason"),
            REBOOT_SECONDS,
        ),
        hold="0s",
        keep="1h",
        why="A node that crashes again within the hour is one incident.",
        severity="ticket",
        scope="node",
        summary=f"{texts.NODE} has rebooted by itself",
        description=f"{texts.NODE} booted {{{{ $value | humanizeDuration }}}} ago; before that it"
        " ended without a shutdown ({{ $labels.reason }}). Its jobs are gone.",
    ),
)

JOB_ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeOomRepeated",
        expression=with_owner(f"({_OOM_BY_JOB}\nor {_OOM_BY_POD})"),
        hold="0s",
        keep="30m",
        why="The one-hour window spans restarts, which take less than half an hour.",
        severity="ticket",
        scope="job",
        summary=f"Processes of {texts.JOB} are killed for lack of memory",
        description=f"{{{{ $value }}}} processes of {texts.JOB}"
        "{{ with $labels.pod_uid }} (pod {{ . }} on node {{ $labels.node }})"
        "{{ else }}{{ with $labels.node }} (outside of pods on node {{ . }}){{ end }}{{ end }}"
        " were killed"
        " for lack of memory within an hour. The job's owner has to request more memory or use"
        " less.",
    ),
    Alert(
        name="RankscopeSharedMemoryFull",
        expression=with_owner(finding(("shm_full",))),
        hold="5m",
        keep="15m",
        why="Loader workers fill and empty shared memory within seconds; what is full for five"
        " minutes stays so, and the next batch that does not fit ends a worker.",
        severity="by_class",
        scope="job",
        summary=f"Shared memory of {texts.JOB} is full",
        description=texts.FOUND,
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-host", ALERTS),
    Group("rankscope-host-jobs", JOB_ALERTS, interval="1m"),
)
