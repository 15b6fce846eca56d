"""Alerts about RDMA ports, network interfaces and their slots."""

from __future__ import annotations

from rankscope_agent.contract.metrics import netdev, summary
from rankscope_dashboards.expressions.joins import finding, with_owner
from rankscope_dashboards.expressions.promql import PORT, worst
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
"""A tenth of the time not allowed to send: what congestion control leaves on a healthy RoCE fabric
is a per mille."""

SLOT_SHARE = 0.75
"""Of the bandwidth of the slot: the next smaller width or generation is half of it."""

SATURATED_SHARE = 0.95
"""Of the port's rate; above 0.9 collectives queue, headers take the rest."""

THIS_DEVICE = "cluster=%q,node=%q,device=%q"


def _told(query: str, text: str) -> str:
    """Return a text for each result of a query about the alert's device; THIS_DEVICE selects it."""
    return texts.known(query, text, "cluster", "node", "device")


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeLinkFlapping",
        expression=worst(f"{summary.PORT_RECENT_FLAPS.name} >= {FLAPS}", *PORT),
        hold="0s",
        keep="30m",
        why="The window of half an hour holds already; two losses of a link within it repeat.",
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
        why="The window smooths bursts; another quarter of an hour tells a bad cable from the"
        " minute in which one was plugged.",
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
        why="As with link errors: what loses packets for half an hour does not mend itself.",
        severity="ticket",
        scope="node",
        summary=f"{texts.PORT} sends packets again",
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
        why="Pauses of seconds are how lossless Ethernet works; five minutes of them are a storm."
        " Storms pause and come again within a quarter of an hour.",
        severity="ticket",
        scope="node",
        summary="Interface {{ $labels.device }} of node {{ $labels.node }} is in a storm of pause"
        " frames",
        description="Pause frames hold up interface {{ $labels.device }} of node"
        " {{ $labels.node }}, or its peer."
        + _told(
            f"max({summary.NIC_PAUSED.name}{{{THIS_DEVICE}}}) > {PAUSED_SHARE}",
            "It was paused for {{ .Value | humanizePercentage }} of the last five minutes.",
        )
        + _told(
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
        why="The slot's width is set at boot: nothing is lost by half an hour, and nodes that"
        " boot are left alone.",
        severity="ticket",
        scope="node",
        summary="Adapter {{ $labels.pci }} of node {{ $labels.node }} has a slow PCI link",
        description="The PCI link of adapter {{ $labels.pci }} of node {{ $labels.node }} has"
        " {{ $value | humanizePercentage }} of the bandwidth that it could have.",
    ),
    Alert(
        name="RankscopeAdapterUnhealthy",
        expression=worst(f"{netdev.ADAPTER_UNHEALTHY.name} > 0", "node", "pci", "reporter"),
        hold="5m",
        keep="15m",
        why="Drivers recover most errors within seconds; a reporter that is in error for five"
        " minutes has given up.",
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
        why="Collectives fill a link for seconds; a quarter of an hour at the limit is the job's"
        " shape or another job on the same links.",
        severity="ticket",
        scope="node",
        summary=f"{texts.PORT} is full",
        description=f"{texts.PORT} sends {{{{ $value | humanizePercentage }}}} of its rate.",
    ),
)

JOB_ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeLinkDown",
        expression=with_owner(finding(("link_down", "network_nic"))),
        hold="2m",
        keep="15m",
        why="A link that trains anew, or an adapter that is reset, is back within a minute; NCCL"
        " has not given up by then. Somebody who changes a cable needs a quarter of an hour.",
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
        why="Links that come up may start with fewer lanes for a moment; what is negotiated for a"
        " quarter of an hour stays until the cable is touched.",
        severity="ticket",
        scope="job",
        summary=f"A port of {texts.JOB} runs below the rate that it could have",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeLinkCongestion",
        expression=with_owner(finding(("congestion",))),
        hold="15m",
        keep="15m",
        why="Congestion of minutes comes with other jobs and goes with them.",
        severity="ticket",
        scope="job",
        summary=f"A port of {texts.JOB} meets congestion that its peers do not meet",
        description=texts.FOUND,
    ),
    Alert(
        name="RankscopeAsymmetricRail",
        expression=with_owner(finding(("asymmetric_rail",))),
        hold="15m",
        keep="15m",
        why="Rails differ for minutes while jobs start and write checkpoints.",
        severity="ticket",
        scope="job",
        summary=f"A rail of {texts.JOB} carries less than the others",
        description=texts.FOUND,
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-links", ALERTS, interval="1m"),
    Group("rankscope-link-jobs", JOB_ALERTS),
)
