"""Failures per 1,000 GPU-hours: of nodes' counters, of the hourly records and on their panel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from kernel_log_nodes import Log, node, opened
from kernel_text import xid
from promtool_tests import tried
from rankscope_agent.contract.metrics import agent, job_status, kernel_log
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.pods.job_series import life_samples
from rankscope_agent.sources.pods.lifecycles import JobLife
from rankscope_analyzers.gpus.failure_kinds import NODE_KINDS, OTHER_CLUSTERS
from rankscope_analyzers.gpus.failure_rates import failures, rates
from rankscope_analyzers.intake.observed import Series
from rankscope_dashboards.expressions import failures as expressions
from servers import require_server

__all__ = ["node"]
KINDS = {kind.name: kind for kind in NODE_KINDS}
NOW = 1_800_000_000.0
MINUTE, HOUR = 60.0, 3600.0


def series(metric: Metric, node: str, readings: Sequence[tuple[float, float]], **labels) -> Series:
    times, values = np.array(readings, dtype=float).T
    return Series(node, metric.name, {"node": node, **labels}, NOW + times, values)


def known(node: str, seconds: float = 0.0) -> Series:
    return series(agent.BUILD_INFO, node, [(seconds, 1), (10 * HOUR, 1)])


def disk(node: str, *readings: tuple[float, float]) -> Series:
    return series(kernel_log.DISK_ERRORS, node, readings, disk="nvme0n1")


@pytest.mark.parametrize(
    ("readings", "count"),
    [
        ([(0, 0), (60, 0)], 0),
        ([(0, 0), (60, 300)], 1),
        ([(0, 0), (60, 1), (120, 2), (60 * 59, 3), (60 * 100, 4)], 1),  # each within an hour
        ([(0, 0), (60, 1), (60 + HOUR, 2)], 2),
        ([(0, 7), (60, 7), (120, 3), (180, 3)], 0),  # begun anew, by old logs
        ([(0, 7), (60, 0), (120, 2)], 1),
        ([(600, 2), (660, 2)], 1),  # born while the node was watched
    ],
)
def test_events_of_a_disk_within_an_hour_are_one_failure(readings, count):
    assert failures(KINDS["disk"], [known("n1"), disk("n1", *readings)]) == count


def test_what_a_node_brings_along_happened_before():
    assert failures(KINDS["disk"], [known("n1", 600), disk("n1", (600, 2), (660, 2))]) == 0
    assert failures(KINDS["disk"], [disk("n1", (600, 2), (660, 2))]) == 0


def test_two_disks_of_a_node_fail_once_and_two_nodes_twice():
    grown = [(0, 0), (60, 1)]
    other = series(kernel_log.DISK_ERRORS, "n1", grown, disk="sda")
    both = [known("n1"), known("n2"), disk("n1", *grown), other]
    assert failures(KINDS["disk"], both) == 1
    assert failures(KINDS["disk"], [*both, disk("n2", *grown)]) == 2


def test_only_boots_that_nobody_asked_for_are_failures():
    def boots(reason: str) -> Series:
        return series(kernel_log.REBOOTS, "n1", [(0, 0), (60, 1)], reason=reason)

    kind = KINDS["kernel crash or sudden reboot"]
    assert failures(kind, [boots("clean"), boots("unknown")]) == 0
    assert failures(kind, [boots("crashed")]) == failures(kind, [boots("unexpected")]) == 1


def test_a_job_that_is_preempted_on_many_nodes_is_so_once():
    def taken(node: str, job: str) -> Series:
        return series(job_status.JOB_PREEMPTIONS, node, [(0, 0), (60, 4)], job_id=job)

    found = [taken("n1", "team/a"), taken("n2", "team/a"), taken("n2", "team/b")]
    assert failures(KINDS["preemption"], found) == 2


def test_without_counters_of_nodes_their_rows_are_left_out():
    names = {one.name for one in rates([], None, 10.0)}
    assert names.isdisjoint(KINDS)
    assert {one.name for one in rates([], [], 10.0)} == names | KINDS.keys()


def test_other_clusters_rates_are_per_gpu_hour_too():
    assert list(OTHER_CLUSTERS.values()) == pytest.approx([0.03385, 0.01219], rel=1e-3)


BEFORE = ("NVRM: loaded",)
AFTER = (
    *BEFORE,
    *(xid(79), "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."),
    *(xid(48), "Buffer I/O error on dev nvme0n1p1, logical block 1"),
    "mlx5_core 0000:49:00.0: wait_func:1:(pid 4): x timeout. Will cause a leak of a",
    "Out of memory: Killed process 72 (trainer) total-vm:1kB",
)
HOURS_BEFORE, HOURS_AFTER = 4, 4


def of_agent(node, text: Sequence[str], preempted: int) -> Iterator[Sample]:
    """Yield what an agent exports that has read this kernel log and seen so many pods go."""
    yield from opened(node, Log(*text)).collect()
    yield agent.BUILD_INFO.sample(1, **dict.fromkeys(agent.BUILD_INFO.labels, "x"))
    yield agent.COLLECTOR_SUCCESS.sample(1, collector="pods")
    life = JobLife()
    life.preempted = preempted
    yield from life_samples({"team/a": life}, frozenset(("team/a",)))


def exported(samples: Iterator[Sample], name: str) -> Mapping[str, float]:
    found = {}
    for one in samples:
        pairs = zip((*one.metric.labels, "node"), (*one.labels, name), strict=True)
        labels = ",".join(f'{label}="{value}"' for label, value in pairs)
        found[f"{one.metric.name}{{{labels}}}"] = one.value
    return found


def asked(folder: Path, node, expressions_: Sequence[str], expected: Sequence[Mapping]) -> str:
    """Ask promtool at the end, hours after a node's kernel log grew; return what is wrong."""
    inputs = []
    for name in ("n1", "n2"):  # the second one stays well
        before = exported(of_agent(node, BEFORE, 0), name)
        after = exported(of_agent(node, AFTER, 3), name) if name == "n1" else before
        node.state_file.unlink()
        for one, value in after.items():
            first = [f"{before[one]:.0f}" if one in before else "_"] * (HOURS_BEFORE * 12 + 1)
            values = [*first, *[f"{value:.0f}"] * HOURS_AFTER * 12]
            inputs.append({"series": one, "values": " ".join(values)})
    rules = Path(__file__).parent.parent / "dashboards/generated/rules/recording_rules.yaml"
    (folder / "test.yaml").write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(rules)],
                "evaluation_interval": expressions.HOURLY,
                "tests": [
                    {
                        "interval": "5m",
                        "input_series": inputs,
                        "promql_expr_test": [
                            {
                                "expr": expression,
                                "eval_time": f"{HOURS_BEFORE + HOURS_AFTER - 1}h30m",
                                "exp_samples": [
                                    {"labels": f'{{cause="{cause}"}}', "value": value}
                                    for cause, value in wanted.items()
                                ],
                            }
                            for expression, wanted in zip(expressions_, expected, strict=True)
                        ],
                    }
                ],
            }
        )
    )
    done = tried(folder, require_server("promtool"))
    return "" if done.returncode == 0 else done.stdout + done.stderr


COUNTS = {
    "all unexpected interruptions": 1,
    "faulty GPU": 1,
    "GPU lost": 1,
    "GPU hardware": 0,
    "NVLink": 0,
    "GPU memory (HBM3 and SRAM)": 1,
    "GPU system processor": 0,
    "program fault on a GPU": 0,
    "network adapter": 1,
    "out of memory on the host": 1,
    "kernel crash or sudden reboot": 0,
    "disk": 1,
    "preemption": 1,
}


def test_the_panel_counts_what_agents_read_in_kernel_logs(tmp_path, node):
    count, rate, low, high, compared = (
        one.replace("$__range", "12h") for one in expressions.rates("")
    )
    gpu_hours = 2 * (HOURS_BEFORE + HOURS_AFTER)
    rated = {name: 1000 * number / gpu_hours for name, number in COUNTS.items()}
    exact = {one.name: one for one in rates([], [], gpu_hours)}
    published = {name: exact[name].published_per_thousand_gpu_hours for name in COUNTS}
    published = {name: float(f"{rate:.3g}") for name, rate in published.items() if rate}
    wrong = asked(
        tmp_path,
        node,
        [
            count,
            rate,
            # By the approximation; exact are 0 to 3.689 of none, 0.025 to 5.572 of one.
            f"round({low} * {gpu_hours / 1000}, 0.001)",
            f"round({high} * {gpu_hours / 1000}, 0.001)",
            compared,
        ],
        [
            COUNTS,
            rated,
            {name: 0.013 * number for name, number in COUNTS.items()},
            {name: 5.564 if number else 3.668 for name, number in COUNTS.items()},
            published,
        ],
    )
    assert not wrong


def test_a_failure_is_not_counted_again_when_the_agent_is_replaced(tmp_path):
    """The monitors of the operator add the name of its pod; what it counts outlives it."""
    gpu = 'node="n1",gpu="0",uuid="GPU-0",pci="0000:3b:00"'
    told = {
        f'rankscope_gpu_xid_errors_total{{{gpu},xid="79",severity="fatal",action="RESET_GPU"': 1,
        f"rankscope_gpu_fallen_off_bus_total{{{gpu}": 1,
        'rankscope_build_info{node="n1",version="1"': 1,
    }
    series = {f'{one},pod="a"}}': f"{value}x36 stale" for one, value in told.items()}
    series |= {f'{one},pod="b"}}': f"_x37 {value}x60" for one, value in told.items()}
    counted = {
        "expr": f'sum by (cause) (sum_over_time({expressions.FAILURES}{{cause="GPU lost"}}[8h]))',
        "eval_time": "7h30m",
        "exp_samples": [{"labels": '{cause="GPU lost"}', "value": 0}],
    }
    rules = Path(__file__).parent.parent / "dashboards/generated/rules/recording_rules.yaml"
    block = {
        "interval": "5m",
        "input_series": [{"series": one, "values": text} for one, text in series.items()],
        "promql_expr_test": [counted],
    }
    test = {"rule_files": [str(rules)], "evaluation_interval": "1h", "tests": [block]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    done = tried(tmp_path, require_server("promtool"))
    assert done.returncode == 0, done.stdout + done.stderr
