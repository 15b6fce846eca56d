import re

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_dashboards.references.metric_reference import markdown


def test_the_committed_reference_is_that_of_the_catalogue(pytestconfig):
    committed = (pytestconfig.rootpath / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert committed == markdown(), (
        "run: python -m rankscope_dashboards.references.metric_reference FILE"
    )


def test_names_follow_the_rules_of_prometheus():
    names = [metric.name for metric in CATALOGUE]
    assert len(names) == len(set(names))
    for metric in CATALOGUE:
        assert re.fullmatch(r"rankscope_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.help.endswith("."), metric.name


def test_no_metric_carries_a_label_that_prometheus_or_kubernetes_attaches():
    taken = {"job", "instance", "pod", "namespace", "container", "pid", "le"}
    assert not [metric.name for metric in CATALOGUE if taken & set(metric.labels)]
