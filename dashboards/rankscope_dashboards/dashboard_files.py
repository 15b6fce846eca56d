"""Dashboards as files: JSON for Grafana, ConfigMaps for its sidecar, and provisioning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from grafanalib._gen import DashboardEncoder

from rankscope_dashboards.boards import checkpoints, debug, executive, on_call
from rankscope_dashboards.parts.dashboard import Dashboard
from rankscope_dashboards.rules.rule_files import HEADER, Links

DASHBOARDS: tuple[Callable[[str], Dashboard], ...] = (
    executive.dashboard,
    on_call.dashboard,
    debug.dashboard,
    checkpoints.dashboard,
)
"""Functions from the address of runbooks to a dashboard."""

FOLDER = "/var/lib/grafana/dashboards/rankscope"
"""Directory in which the provisioning file expects the JSON files."""

# https://grafana.com/docs/grafana/latest/administration/provisioning/#dashboards
PROVISIONING = f"""{HEADER}# For /etc/grafana/provisioning/dashboards/; JSON files go to `path`.
apiVersion: 1
providers:
  - name: rankscope
    folder: Rankscope
    type: file
    disableDeletion: true
    allowUiUpdates: false
    updateIntervalSeconds: 60
    options:
      path: {FOLDER}
"""


def files(links: Links) -> Mapping[str, str]:
    """Return the content of all files by name."""
    made = {"provisioning/rankscope.yaml": PROVISIONING}
    for make in DASHBOARDS:
        dashboard = make(links.runbooks).auto_panel_ids()
        content = text(dashboard)
        made[f"dashboards/{dashboard.uid}.json"] = content
        made[f"configmaps/{dashboard.uid}.yaml"] = config_map(dashboard.uid, content)
    return made


def text(dashboard: Dashboard) -> str:
    """Return a dashboard as JSON, the same bytes each time."""
    return json.dumps(dashboard, cls=DashboardEncoder, indent=1, sort_keys=True) + "\n"


def config_map(name: str, content: str) -> str:
    """Return the ConfigMap that the sidecar of Grafana's Helm chart finds by its label."""
    block = "".join(f"    {line}\n" for line in content.splitlines())
    return (
        f"{HEADER}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
        '  labels:\n    app.kubernetes.io/name: rankscope\n    grafana_dashboard: "1"\n'
        f"  annotations:\n    grafana_folder: Rankscope\ndata:\n  {name}.json: |\n{block}"
    )
