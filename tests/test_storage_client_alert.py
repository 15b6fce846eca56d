"""The alert on nodes with a slow file system, fed with what agents read in the nodes' debugfs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from alert_timelines import Case, Series, State
from promtool_tests import run
from rankscope_agent.contract.metrics import storage_clients as metrics
from rankscope_agent.sources.storage_clients.collector import StorageClientsCollector
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server
from test_hang_alert import selector

READS = 60
"""A minute."""

(ALERT,) = [one for one in ALERTS if one.name == "RankscopeStorageClientSlow"]


def samples(debugfs: Path, count: int, microseconds: int):
    """Return what an agent exports of a Lustre client that has read so often, for so long."""
    stats = debugfs / "lustre" / "llite" / "scratch-ffff8ba123456000" / "stats"
    stats.parent.mkdir(parents=True, exist_ok=True)
    stats.write_text(f"read {count} samples [usecs] 20 90000 {microseconds} 99999\n")
    return list(StorageClientsCollector(debugfs).collect())


def of_node(node: str, debugfs: Path, milliseconds: Mapping[State, float]) -> list[Series]:
    """Return a node's series, each of its reads taking so long in a state."""

    def series(metric) -> Series:
        (one,) = [one for one in samples(debugfs, 1, 1) if one.metric is metric]

        def values(states: Sequence[State], _step: int) -> list[str]:
            count, spent, texts = 0, 0.0, []
            for state in states:
                (now,) = [
                    one for one in samples(debugfs, count, int(spent)) if one.metric is metric
                ]
                texts.append(f"{now.value:.10g}")
                count, spent = count + READS, spent + READS * milliseconds[state] * 1e3
            return texts

        return Series(selector(one).replace("{", f'{{node="{node}",'), values)

    return [series(metric) for metric in (metrics.OPERATIONS, metrics.SECONDS)]


USUAL = {"good": 20.0, "bad": 20.0, "below": 20.0}


@pytest.mark.parametrize(
    "others",
    [("b",), ("b", "c", "d", "e", "f", "g", "h")],
)
def test_the_one_slow_node_fires_and_one_that_is_hardly_slower_does_not(tmp_path, others):
    slow = of_node("a", tmp_path / "a", {"good": 20.0, "bad": 90.0, "below": 49.0})
    usual = (one for node in others for one in of_node(node, tmp_path / node, USUAL))
    done = run(tmp_path, require_server("promtool"), ALERT, Case((*slow, *usual), lag=11), None)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_system_that_is_slow_for_all_nodes_is_no_nodes_fault(tmp_path):
    slow = {"good": 20.0, "bad": 90.0, "below": 95.0}
    nodes = [one for node in ("a", "b", "c") for one in of_node(node, tmp_path / node, slow)]
    done = run(
        tmp_path, require_server("promtool"), ALERT, Case(tuple(nodes), lag=11, alerts=0), None
    )
    assert done.returncode == 0, done.stdout + done.stderr
