"""Links of dashboards: runbooks, documentation, and other dashboards."""

from __future__ import annotations

from typing import Any

EXECUTIVE, ON_CALL, DEBUG = "rankscope-executive", "rankscope-on-call", "rankscope-debug"
CHECKPOINTS = "rankscope-checkpoints"

VIEWS = {
    EXECUTIVE: "Executive",
    ON_CALL: "On-call",
    DEBUG: "Debug",
    CHECKPOINTS: "Checkpoints and learning",
}

TO_DEBUG = (
    "Debug this job",
    f"/d/{DEBUG}?var-datasource=${{datasource}}&var-cluster=${{__data.fields.clusters}}"
    "&var-job_id=${__data.fields.job_id}&from=${__from}&to=${__to}",
)
"""From a row of a table with the columns `job_id` and `clusters`: each cluster may have a job of
that name."""


def runbook(base: str, alert: str) -> tuple[str, str]:
    """Return the link of a panel to a runbook."""
    return f"Runbook {alert}", f"{base}/{alert}.md"


def views(here: str) -> list[dict[str, Any]]:
    """Return links to the other dashboards that keep time and variables."""
    return [
        {
            "title": title,
            "type": "link",
            "icon": "dashboard",
            "tooltip": f"The same time and variables in the {title} view",
            "url": f"/d/{uid}",
            "tags": [],
            "asDropdown": False,
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
        }
        for uid, title in VIEWS.items()
        if uid != here
    ]
