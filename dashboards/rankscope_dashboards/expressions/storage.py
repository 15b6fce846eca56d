"""PromQL over the nodes' clients of file systems: how long they wait for one operation."""

from __future__ import annotations

from rankscope_agent.contract.metrics import storage_clients
from rankscope_dashboards.expressions.promql import by

CLIENT = ("node", "type", "filesystem", "operation")


def operation_seconds(matchers: str, window: str, fewest: int = 1, moment: str = "") -> str:
    """Return the mean duration of an operation, by node, file system and kind of operation.

    Args:
        matchers: of the series, "" for all.
        window: over which the mean is taken.
        fewest: operations within the window of which a mean is taken.
        moment: at which the window ends, ` @ end()` for that of a panel; "" for each point's own.
    """
    chosen = f"{{{matchers}}}" if matchers else ""
    spent, count = (
        f"sum {by(*CLIENT)} (increase({metric.name}{chosen}[{window}]{moment}))"
        for metric in (storage_clients.SECONDS, storage_clients.OPERATIONS)
    )
    return f"{spent} / ({count} >= {fewest})"
