"""Alerts about the file systems under training: nodes whose access to one is slow."""

from __future__ import annotations

from rankscope_dashboards.expressions.promql import by
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group

SLOW_SECONDS, TIMES_OTHERS = 0.05, 2
"""Seconds per operation: a fifth of a step of 250 ms, and twice what others wait; as in `rankscope
diagnose` (`layers/storage_clients.py`)."""

_MEAN = records.CLIENT_OPERATION
_USUAL = f"quantile {by('type', 'filesystem', 'operation')} (0.25, {_MEAN})"
"""The lower quartile, not the median, so that the slow one of two nodes stands out. A single node
is compared with nothing."""

STORAGE: tuple[Alert, ...] = (
    Alert(
        name="RankscopeStorageClientSlow",
        expression=(
            f"({_MEAN} >= {SLOW_SECONDS}) >= on (cluster, type, filesystem, operation)"
            f" group_left () ({TIMES_OTHERS} * {_USUAL})"
        ),
        hold="10m",
        keep="30m",
        why="The mean is one of ten minutes, in which a burst of large writes can stand; ten more"
        " show that the node stays slow.",
        severity="ticket",
        scope="node",
        summary=f"{texts.sentence(texts.NODE)} waits long for {{{{ $labels.type }}}} file system"
        " {{ $labels.filesystem }}",
        description=f"A {{{{ $labels.operation }}}} operation of {texts.NODE} on"
        " {{ $labels.type }} file system {{ $labels.filesystem }} takes"
        " {{ $value | humanizeDuration }}, at least twice as long as on other nodes: the node's"
        " path to its servers is slow, and its ranks hold up their jobs while they load and save.",
        needs="Without JuiceFS's own metrics its mounts are not noticed.",
    ),
)

GROUPS: tuple[Group, ...] = (Group("rankscope-storage", STORAGE),)
