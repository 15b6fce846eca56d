"""RankscopeObjectiveMissed by how many jobs fail, of what the watch counts of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from promtool_tests import tried
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.configuration.values import Configuration
from rankscope_dashboards import generate
from rankscope_dashboards.rules.rule_files import Links
from rendered_manifests import LOADER
from servers import require_server
from watched_clusters import FAILED, RUNNING, SUCCEEDED, Cluster, Watch

ALERT = "RankscopeObjectiveMissed"
COUNTED = "rankscope_job_completions_total"


def counts(samples: Iterable[Sample]) -> dict[str, float]:
    """Return the series of ends, as a page writes them."""
    found = {}
    for one in samples:
        if one.metric.name == COUNTED:
            pairs = zip(one.metric.labels, one.labels, strict=True)
            labels = ",".join(f'{name}="{value}"' for name, value in pairs)
            found[f"{COUNTED}{{{labels}}}"] = one.value
    return found


def ended(succeeded: int, failed: int, cancelled: int) -> tuple[dict[str, float], ...]:
    """Return the watch's series while jobs run, and once they have ended."""
    cluster = Cluster()
    watch = Watch(cluster)
    outcomes = [SUCCEEDED] * succeeded + [FAILED] * failed + [None] * cancelled
    for number in range(len(outcomes)):
        cluster.put(f"train-{number}", RUNNING)
    watch.look()
    before = counts(watch.jobs.samples())
    for number, outcome in enumerate(outcomes):
        if outcome is None:
            cluster.delete(f"train-{number}")
        else:
            cluster.put(f"train-{number}", outcome)
    watch.look(200)
    return before, counts(watch.jobs.samples())


def rule_files(folder: Path, objective: float) -> list[str]:
    """Write the alert, without the others, and all recording rules; return the files' names."""
    made = generate.everything(Links(known=Configuration(objectives={"": objective})))
    alerts = yaml.load(made["rules/alerts.yaml"], LOADER)
    for group in alerts["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule["alert"] == ALERT]
    alerts["groups"] = [group for group in alerts["groups"] if group["rules"]]
    (folder / "alerts.yaml").write_text(yaml.safe_dump(alerts))
    (folder / "recording_rules.yaml").write_text(made["rules/recording_rules.yaml"])
    return ["alerts.yaml", "recording_rules.yaml"]


def fires(folder: Path, objective: float, *outcomes: int) -> bool:
    """Return whether the rules of an objective fire, two hours after so many jobs ended."""
    files = rule_files(folder, objective)
    before, after = ended(*outcomes)
    firing = f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}'
    test = {
        "interval": "5m",
        "input_series": [
            {"series": name, "values": f"{before.get(name, '_')}x12 {after[name]}x36"}
            for name in after
        ],
        "promql_expr_test": [
            {
                "expr": f"count by (objective) ({firing})",
                "eval_time": "3h",
                "exp_samples": [{"labels": '{objective="success ratio"}', "value": 1}],
            }
        ],
    }
    plan = {"rule_files": files, "evaluation_interval": "5m", "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(plan))
    done = tried(folder, require_server("promtool"))
    assert done.returncode == 0 or "got: nil" in done.stdout + done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(
    ("objective", "succeeded", "failed", "fired"),
    [
        (0.95, 16, 4, True),  # of 20, 1 may; by chance 3 do
        (0.95, 17, 3, False),
        (0.8, 3, 2, False),  # of few jobs
        (0.99, 2, 2, False),
        (0.99, 2, 3, True),
        (0.5, 10, 9, False),  # as agreed on
    ],
)
def test_a_class_of_which_more_jobs_fail_than_was_agreed_on_has_a_ticket(
    tmp_path, objective, succeeded, failed, fired
):
    assert fires(tmp_path, objective, succeeded, failed, 0) == fired


def test_jobs_that_are_cancelled_are_no_failures(tmp_path):
    assert not fires(tmp_path, 0.95, 4, 0, 16)
