"""Writes docs/alert_reference.md from the alert tables, so that the two cannot disagree.

`python -m rankscope_dashboards.references.alert_reference FILE` writes the file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rankscope_dashboards.rules.alerts import GROUPS, texts
from rankscope_dashboards.rules.alerts.alert import Alert

INTRODUCTION = """# Alerts

Made from the tables in `dashboards/rankscope_dashboards/rules/alerts`; do not edit.
[Who is notified, and how](alerts.md).

Severity `page or ticket` depends on the job's class, and on whether its namespace
may page. An alert fires when its condition has held for
`after`, and keeps firing for `keeps` once it has cleared.

| alert | severity | scope | after | keeps | what it says |
|---|---|---|---|---|---|
"""


def markdown() -> str:
    """Return the page: one row per alert, in the order of the tables."""
    return INTRODUCTION + "".join(_row(alert) for group in GROUPS for alert in group.alerts)


def _row(alert: Alert) -> str:
    severity = "page or ticket" if alert.severity == "by_class" else alert.severity
    link = f"[{alert.name}](runbooks/{alert.name}.md)"
    summary = _plain(texts.sentence(alert.summary))
    return f"| {link} | {severity} | {alert.scope} | {alert.hold} | {alert.keep} | {summary} |\n"


def _plain(template: str) -> str:
    """Return a template with the names of its values filled in, without its optional parts."""
    text = re.sub(
        r"{{ with \$labels\.(\w+) }}([^{]*){{ \. }}{{ else }}[^{]*{{ end }}", r"\2<\1>", template
    )
    text = re.sub(r"{{ if eq \$value 1.0 }}\w*{{ else }}(\w*){{ end }}", r"\1", text)
    text = re.sub(r"{{ with [^}]*}}.*?{{ end }}", "", text)
    text = re.sub(r"{{ \$labels\.(\w+) }}", r"<\1>", text)
    return re.sub(r"{{ \$value[^}]*}}", "<value>", text).replace("<", "*").replace(">", "*")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
