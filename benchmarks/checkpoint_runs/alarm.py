"""Whether slow checkpoints of a running job lead to an alert: agent, watch, Prometheus' rules."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks.checkpoint_runs.run import Ground, started

from rankscope_analyzers import cli

RULES = Path(__file__).parents[2] / "dashboards" / "generated" / "rules"
WAIT_SECONDS = 150.0
"""Seconds for twelve checkpoints of 0.4 s and some of 2.4 s, with 25 steps in between."""

EVERY_SECONDS = 10.0
MINUTES = 20
"""Minutes for which the watch's last page is served: five more than the alert waits."""


def exported_by_watch(place: Ground, finding: str) -> str:
    """Run a job whose storage becomes slow; return the watch's page naming it, else the last."""
    page = ""
    with started(place, "storage"):
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            time.sleep(EVERY_SECONDS)
            output = io.StringIO()
            with redirect_stdout(output):
                cli.main(["watch", f"--agent={place.url}", "--once"])
            page = output.getvalue()
            if f'"{finding}"' in page:
                break
    return page


def fires(page: str, alert: str) -> bool:
    """Return True if Prometheus' rules raise an alert for a page that stays the same.

    Raises:
        RuntimeError: there is no promtool.
    """
    promtool = shutil.which("promtool")
    if promtool is None:
        raise RuntimeError("promtool is missing")
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    series = [
        {"series": name, "values": f"{value}+0x{4 * (MINUTES + 2)}"}
        for name, _, value in (line.rpartition(" ") for line in lines)
    ]
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    expected = {"expr": firing, "eval_time": f"{MINUTES}m", "exp_samples": [{"value": 1}]}
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [expected]}
    rules = [str(path.resolve()) for path in sorted(RULES.glob("*.yaml"))]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test.yaml"
        file.write_text(json.dumps({"rule_files": rules, "tests": [test]}))
        done = _run([promtool, "test", "rules", str(file)])
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    return done.returncode == 0


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True)
