"""The alert on NVLinks: a GPU without any fires while others of its node have some."""

from __future__ import annotations

from alert_timelines import Case, steady
from promtool_tests import follow
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

ALERT = next(alert for alert in ALERTS if alert.name == "RankscopeNvlinkFault")


def links(node: str, *up: int):
    """Return the NVLinks that are up of the GPUs of a node."""
    return tuple(
        steady(
            f'rankscope_gpu_nvlinks_up{{node="{node}",gpu="{gpu}",uuid="GPU-{node}-{gpu}"}}', count
        )
        for gpu, count in enumerate(up)
    )


def fires(folder, series, times):
    """Check how many alerts fire after the five minutes that it waits."""
    done = follow(
        folder, require_server("promtool"), ALERT, Case(series), 20, [(4, 0), (15, times)]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_gpu_without_any_link_fires_if_others_of_its_node_have_some(tmp_path):
    fires(tmp_path, (*links("a", 18, 0, 18, 18), *links("b", 18, 18)), 1)


def test_nodes_of_which_no_gpu_has_links_fire_nothing(tmp_path):
    fires(tmp_path, (*links("a", 0, 0, 0, 0), *links("b", 18, 18), *links("c", 0)), 0)
