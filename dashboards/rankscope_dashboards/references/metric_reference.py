"""Writes docs/metrics.md from the metric catalogue, so that the two cannot disagree.

`python -m rankscope_dashboards.references.metric_reference FILE` writes the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rankscope_agent.contract.catalogue import CATALOGUE

INTRODUCTION = """# Metrics

Made from the metric catalogue (`agent/rankscope_agent/contract/metrics`); do not edit.

A series that cannot be measured is absent, never zero. Rank series carry `job_id` and `rank` only;
join them with `rankscope_rank_info` for the node, the local rank and the rest:

```
rankscope_last_step_seconds * on (job_id, rank) group_left (node) rankscope_rank_info
```

| metric | type | labels | what it is |
|---|---|---|---|
"""


def markdown() -> str:
    """Return the reference page: one row per metric, in the order of the catalogue."""
    rows = (
        f"| `{metric.name}` | {metric.kind} | "
        f"{', '.join(f'`{label}`' for label in metric.labels) or '-'} | {metric.help} |\n"
        for metric in CATALOGUE
    )
    return INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
