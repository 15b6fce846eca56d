"""RankscopeObjectiveMissed by how many jobs fail, of what the watch counts of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
import yaml

from alert_timelines import in_cluster, of_cluster
from clusters_apart import said_against
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.workloads import kinds
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


def ended(succeeded: int, failed: int, cancelled: int, of: str) -> tuple[dict[str, float], ...]:
    """Return the watch's series while jobs of a class run, and once they have ended."""
    cluster = Cluster()
    watch = Watch(cluster)
    labels = {kinds.CLASS_LABELS[0]: of} if of else {}
    outcomes = [SUCCEEDED] * succeeded + [FAILED] * failed + [None] * cancelled
    for number in range(len(outcomes)):
        cluster.put(f"train-{number}", RUNNING, labels=labels)
    watch.look()
    before = counts(watch.jobs.samples())
    for number, outcome in enumerate(outcomes):
        if outcome is None:
            cluster.delete(f"train-{number}")
        else:
            cluster.put(f"train-{number}", outcome, labels=labels)
    watch.look(200)
    return before, counts(watch.jobs.samples())


OBJECTIVES = {"": 0.95, "batch": 0.8, "production": 0.99, "research": 0.5}


def rules() -> list[dict]:
    """Return the groups of the alert, without the others, and of all recording rules."""
    made = generate.everything(Links(known=Configuration(objectives=OBJECTIVES)))
    records, alerts = (
        yaml.load(made[f"rules/{name}.yaml"], LOADER)["groups"]
        for name in ("recording_rules", "alerts")
    )
    (group,) = [one for one in alerts if any(rule["alert"] == ALERT for rule in one["rules"])]
    own = [rule for rule in group["rules"] if rule["alert"] == ALERT]
    return [*records, {**group, "rules": own}]


def series_of(case: str) -> list[dict[str, str]]:
    """Return what promtool reads of a cluster, an hour before the ends of jobs and after them."""
    of, outcomes, _ = CASES[case]
    before, after = ended(*outcomes, of)
    return [
        {"series": in_cluster(name, case), "values": f"{before.get(name, '_')}x12 {after[name]}x36"}
        for name in after
    ]


def question(case: str) -> dict[str, object]:
    """Ask promtool which objectives of a cluster are missed, two hours after its jobs ended."""
    firing = f'ALERTS{{alertname="{ALERT}",alertstate="firing",{of_cluster(case)}}}'
    missed = [{"labels": '{objective="success ratio"}', "value": 1}] if CASES[case][2] else []
    return {
        "expr": f"count by (objective) ({firing})",
        "eval_time": "3h",
        "exp_samples": missed,
    }


CASES = {
    "4 of 20 fail where 1 may": ("", (16, 4, 0), True),  # by chance 3 do
    "3 of 20 fail where 1 may": ("", (17, 3, 0), False),
    "2 of 5 fail where 1 may": ("batch", (3, 2, 0), False),  # of few jobs
    "2 of 4 fail where none may": ("production", (2, 2, 0), False),
    "3 of 5 fail where none may": ("production", (2, 3, 0), True),
    "as agreed on": ("research", (10, 9, 0), False),
    "cancelled": ("", (4, 0, 16), False),
}
"""Clusters: the class of their jobs; how many succeed, fail and are cancelled; and whether that is
a ticket."""


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> Mapping[str, str]:
    """What promtool has to say against each."""
    folder = tmp_path_factory.mktemp("rules")
    groups = rules()
    block = {
        "interval": "5m",
        "input_series": [one for case in CASES for one in series_of(case)],
        "promql_expr_test": [question(case) for case in CASES],
    }
    return said_against(folder, require_server("promtool"), groups, block, "5m", CASES)


@pytest.mark.parametrize("case", [one for one in CASES if one != "cancelled"])
def test_a_class_of_which_more_jobs_fail_than_was_agreed_on_has_a_ticket(case, said):
    assert not said[case]


def test_jobs_that_are_cancelled_are_no_failures(said):
    assert not said["cancelled"]
