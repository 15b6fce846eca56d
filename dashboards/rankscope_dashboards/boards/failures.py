"""The executive dashboard's panel on what fails, per 1,000 GPU-hours."""

from __future__ import annotations

from rankscope_dashboards.expressions.failures import rates
from rankscope_dashboards.expressions.queries import CLUSTER
from rankscope_dashboards.parts import links
from rankscope_dashboards.parts.fields import columns, override
from rankscope_dashboards.parts.panels import Panel, Table, rows

DIGITS = 4
COMPARED = "Llama 3"
COLUMNS = {
    "cause": "what failed",
    "Value #A": "failures",
    "Value #B": "per 1,000 GPU-hours",
    "Value #C": "at least",
    "Value #D": "at most",
    "Value #E": COMPARED,
}
RATES = tuple(COLUMNS.values())[2:]


def panels(runbooks: str) -> list[Panel]:
    """Return the panel.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return [
        Table(
            title="Failures per 1,000 GPU-hours",
            description="Hours in which a node, or for preemptions a job, failed so, by what kernel"
            " logs and pods report, over the GPU-hours of nodes whose kernel log was read, with the"
            " limits of its 95 % interval; beside it what Llama 3's 54 days on 16,384 H100s had"
            " (arXiv:2407.21783, table 5). A lost GPU, GPU hardware and NVLink are the kinds of"
            " faulty GPUs. `rankscope xids` names the GPUs.",
            unit="string",
            targets=rows(*rates(CLUSTER)),
            transformations=[{"id": "merge", "options": {}}, *columns(COLUMNS)],
            overrides=[
                override("failures", {"unit": "none", "decimals": 0}),
                *(override(name, {"unit": "none", "decimals": DIGITS}) for name in RATES),
                override(COMPARED, {"noValue": "-"}),
            ],
            largest_first="failures",
            missing="no kernel log is read, or the hourly recording rule has not run yet",
            links=[links.runbook(runbooks, "RankscopeGpuHardwareFault")],
            widths={"what failed": 300},
            width=24,
            height=15,
        )
    ]
