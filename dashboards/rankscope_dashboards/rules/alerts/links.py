"""Alerts about RDMA ports, network interfaces and their PCI slots."""

from __future__ import annotations

from rankscope_agent.contract.metrics import netdev, pod_netdev, summary
from rankscope_dashboards.expressions.joins import finding, with_owner
from rankscope_dashboards.expressions.promql import PORT, by, worst
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group

FLAPS = 2
"""Losses of the link in half an hour: one may be a switch's maintenance."""

PORT_ERRORS = 100
"""Errors in 15 minutes; a healthy link of 400 Gbit/s shows a handful a day after correction."""

LOST_PACKETS = 100
"""Retransmissions in 15 minutes; a lossless fabric has none, and each one by timeout costs seconds
(NCCL_IB_TIMEOUT=20 is some 4 s)."""

PAUSED_SHARE = 0.1
"""A tenth of the time without permission to send: congestion control on a healthy RoCE fabric
leaves a per mille."""

SLOT_SHARE = 0.75
"""Fraction of the slot's bandwidth: the next smaller width or generation has half of it."""

SATURATED_SHARE = 0.95
"""Fraction of the port's rate; above 0.9 collectives queue, headers take the rest."""

POD_ERRORS = 100
"""Frames with errors in 15 minutes inside a pod, as for ports: virtual interfaces have none."""

THIS_DEVICE = "cluster=%q,node=%q,device=%q"


def _shown_value(query: str, text: str) -> str:
    """Return a text for each result of a query about the alert's device; THIS_DEVICE selects it."""
    return texts.known(query, text, "cluster", "node", "device")


_IN_PODS = ("job_id", "device")
_MTU = f'{pod_netdev.MTU.name}{{job_id!=""}}'
_UP = f'{pod_netdev.UP.name}{{job_id!=""}}'
_UNLIKE_MTUS = f"({worst(_MTU, *_IN_PODS)} != min {by(*_IN_PODS)} ({_MTU}))"
_DOWN_IN_SOME = f"(min {by(*_IN_PODS)} ({_UP}) == 0 and {worst(_UP, *_IN_PODS)} == 1)"
_LOSING, _LOSING_WITHOUT_JOB = (
    f"(sum {by(*labels)} (increase({pod_netdev.ERRORS.name}{{{which}}}[15m])) > {POD_ERRORS})"
    for labels, which in (
        (_IN_PODS, 'job_id!=""'),
        (("node", "pod_uid", "device"), 'job_id=""'),
    )
)
"""Pods without a known job have nothing in common, so that each counts by itself."""
_FAULTY_IN_PODS = "\nor ".join((_LOSING, _LOSING_WITHOUT_JOB, _UNLIKE_MTUS, _DOWN_IN_SOME))

ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeLinkFlapping",
        expression=worst(f"{summary.PORT_RECENT_FLAPS.name} >= {FLAPS}", *PORT),
        hold="0s",
        keep="30m",
        why="The alert already uses a window of half an hour; two losses within it are a"
        " repeated fault.",
        severity="ticket",
        scope="node",
        summary=f"The link of {texts.PORT} comes and goes",
        description=f"{texts.PORT} lost its link {{{{ $value | humanize }}}} times in 30 minutes;"
        " collectives over it stall each time.",
    ),
    Alert(
        name="RankscopeLinkErrors",
        expression=worst(f"{summary.PORT_RECENT_ERRORS.name} > {PORT_ERRORS}", *PORT),
        hold="15m",
        keep="30m",
        why="The window smooths bursts; another 15 minutes separate a bad cable from a cable"
        " that was just plugged in.",
        severity="ticket",
        scope="node",
        summary=f"{texts.PORT} has link errors",
        description=f"{texts.PORT} counted {{{{ $value | humanize }}}} errors in 15 minutes.",
    ),
    Alert(
        name="RankscopeLinkRetransmission",
        expression=worst(f"{summary.PORT_RECENT_RETRANSMISSIONS.name} > {LOST_PACKETS}", *PORT),
        hold="15m",
        keep="15m",
        why="As with link errors: a port that loses packets for half an hour does not recover"
        " by itself.",
        severity="ticket",
        scope="node",
        summary=f"{texts.PORT} retransmits packets",
        description=f"{texts.PORT} lost or repeated {{{{ $value | humanize }}}} packets in 15"
        " minutes: each costs a collective a round trip or a timeout.",
    ),
    Alert(
        name="RankscopePfcStorm",
        expression=worst(f"{summary.NIC_PAUSED.name} > {PAUSED_SHARE}", "node", "device")
        + "\nor "
        + worst(f"{summary.NIC_RECENT_STORMS.name} > 0", "node", "device"),
        hold="5m",
        keep="15m",
        why="Lossless Ethernet works with pauses of seconds; five minutes of them are a"
        " storm. Storms subside and return within 15 minutes.",
        severity="ticket",
        scope="node",
        summary="Interface {{ $labels.device }} of node {{ $labels.node }} is in a pause frame"
        " storm",
        description="Pause frames hold up interface {{ $labels.device }} of node"
        " {{ $labels.node }}, or its peer."
        + _shown_value(
            f"max({summary.NIC_PAUSED.name}{{{THIS_DEVICE}}}) > {PAUSED_SHARE}",
            "It was paused for {{ .Value | humanizePercentage }} of the last five minutes.",
        )
        + _shown_value(
            f"max({summary.NIC_RECENT_STORMS.name}{{{THIS_DEVICE}}}) > 0",
            "Pause storms that its adapter counted in 15 minutes: {{ .Value | humanize }}.",
        )
        + " A storm spreads to all ports behind the same switch.",
    ),
    Alert(
        name="RankscopeLinkBelowMaximum",
        expression=f"{worst(summary.PCI_REDUCED.name, 'node', 'pci')} < {SLOT_SHARE}",
        hold="30m",
        keep="30m",
        why="The slot's width is set at boot: half an hour costs nothing, and booting nodes"
        " do not alert.",
        severity="ticket",
        scope="node",
        summary="Adapter {{ $labels.pci }} of node {{ $labels.node }} has a slow PCI link",
        description="The PCI link of adapter {{ $labels.pci }} of node {{ $labels.node }} has"
        " {{ $value | humanizePercentage }} of the maximum bandwidth.",
    ),
    Alert(
        name="RankscopeAdapterUnhealthy",
        expression=worst(f"{netdev.ADAPTER_UNHEALTHY.name} > 0", "node", "pci", "reporter"),
        hold="5m",
        keep="15m",
        why="Drivers recover from most errors within seconds; a reporter that has been in"
        " error for five minutes will not recover.",
        severity="ticket",
        scope="node",
        summary="Adapter {{ $labels.pci }} of node {{ $labels.node }} reports a fault",
        description="The health reporter {{ $labels.reporter }} of adapter {{ $labels.pci }} of"
        " node {{ $labels.node }} is in error and has not recovered.",
    ),
    Alert(
        name="RankscopeNetworkSaturated",
        expression=worst(f"{summary.PORT_BUSY.name} > {SATURATED_SHARE}", *PORT),
        hold="15m",
        keep="15m",
        why="Collectives fill a link for seconds; 15 minutes at the limit come from the job's"
        " layout or from another job on the same links.",
        severity="ticket",
        scope="node",
        summary=f"{texts.PORT} is saturated",
        description=f"{texts.PORT} sends {{{{ $value | humanizePercentage }}}} of its rate.",
    ),
)

JOB_ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopePodInterface",
        expression=with_owner(f"({_FAULTY_IN_PODS})"),
        hold="5m",
        keep="15m",
        why="Pods of a job start within minutes of each other; interfaces that differ after five"
        " were set up differently.",
        severity="ticket",
        scope="job",
        summary=f"Interface {{{{ $labels.device }}}} inside pods of {texts.JOB} is faulty",
        description=f"Inside pods of {texts.JOB}"
        "{{ with $labels.pod_uid }} (pod {{ . }} on node {{ $labels.node }}){{ end }},"
        " interface {{ $labels.device }} loses frames to errors, has an MTU that differs between"
        " pods, or is down in only some of them. The panel Interfaces inside pods shows which.",
    ),
    Alert(
        name="RankscopeLinkDown",
        expression=with_owner(finding(("link_down", "network_nic"))),
        hold="2m",
        keep="15m",
        why="A link that retrains or an adapter that is reset is back within a minute; NCCL"
        " has not given up by then. Changing a cable takes about 15 minutes.",
        severity="by_class",
        scope="job",
        summary=f"A link of {texts.JOB} is down",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeLinkRateLow",
        expression=with_owner(finding(("rate_below_maximum",))),
        hold="15m",
        keep="30m",
        why="A link may come up with fewer lanes for a moment; a rate that lasts 15 minutes"
        " stays until someone touches the cable.",
        severity="ticket",
        scope="job",
        summary=f"A port of {texts.JOB} runs below its possible rate",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeLinkCongestion",
        expression=with_owner(finding(("congestion",))),
        hold="15m",
        keep="15m",
        why="Congestion that lasts minutes comes and goes with other jobs.",
        severity="ticket",
        scope="job",
        summary=f"A port of {texts.JOB} has congestion that its peers do not have",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeAsymmetricRail",
        expression=with_owner(finding(("asymmetric_rail",))),
        hold="15m",
        keep="15m",
        why="Rails differ for some minutes while jobs start or write checkpoints.",
        severity="ticket",
        scope="job",
        summary=f"A rail of {texts.JOB} carries less traffic than the others",
        description=texts.FOUND,
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-links", ALERTS, interval="1m"),
    Group("rankscope-link-jobs", JOB_ALERTS),
)
