"""The made-up fleet that rules are measured on has everything that they read."""

import re
from collections import Counter

import pytest
from benchmarks import rule_fleet

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.metrics import kernel_log, reported, training
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts import ALERTS

FAULTY = 7


def names(page: str) -> Counter[str]:
    return Counter(re.match(r"\w+", line).group() for line in page.splitlines())


def test_every_series_that_a_rule_reads_is_in_the_fleet():
    page = rule_fleet.page_of_nodes(0, rule_fleet.ONCE_FAULTY_EVERY)
    page += rule_fleet.page_of_watch() + rule_fleet.page_of_kubernetes()
    texts = [alert.expression for alert in ALERTS]
    texts += [one.expression for group in recording_rules.GROUPS for one in group.records]
    read = {
        name for text in texts for name in re.findall(r"(?<![\w:])(?:rankscope|kube)_\w+", text)
    }
    assert len(read) > 50
    assert not read - set(names(page))


@pytest.mark.parametrize(
    "counter",
    [
        *(kernel_log.GPU_FALLEN, kernel_log.GPU_INIT_FAILURES),
        *(training.CHECKPOINT_WRITE_FAILURES, reported.CHECKPOINT_LOAD_FAILURES),
        reported.NONFINITE_LOSSES,
    ],
    ids=lambda one: one.name,
)
def test_counters_that_each_rank_or_gpu_has_are_read_as_rarely_as_can_be(counter):
    """Reading one of all ranks costs more than most rules together."""
    texts = [alert.expression for alert in ALERTS]
    texts += [one.expression for group in recording_rules.GROUPS for one in group.records]
    reads = sum(len(re.findall(rf"{counter.name}\b", text)) for text in texts)
    # Now, its increase, and three moments before; how many GPUs there are is counted by one.
    assert reads == 5 + (counter is kernel_log.GPU_FALLEN)


def test_labels_are_those_of_the_catalogue():
    labels = {metric.name: {*metric.labels, "node"} for metric in CATALOGUE}
    for line in rule_fleet.page_of_nodes(FAULTY, 1).splitlines():
        name, inside = re.match(r"(\w+)\{(.*)\} \S+$", line).groups()
        known = labels.get(name) or {*labels[re.sub(r"_(bucket|count|sum)$", "", name)], "le"}
        found = [pair.split("=")[0] for pair in inside.split(",")]
        assert len(found) == len(set(found)), line
        assert set(found) <= known, line


def test_counters_stand_where_their_placeholders_were():
    page = rule_fleet.filled(rule_fleet.page_of_nodes(0, 1), steps=30)
    assert "@" not in page
    assert 'rankscope_steps_total{node="n0",job_id="team/job-0",rank="3"} 30\n' in page
