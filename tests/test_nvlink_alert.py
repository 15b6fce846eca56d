"""The alert on NVLinks: a GPU without any fires while others of its node have some."""

from __future__ import annotations

from alert_timelines import Case, steady
from named_alerts import BY_NAME
from promtool_tests import follow
from rankscope_agent.contract.metrics import gpus, summary
from servers import require_server
from summarized_nodes import Node, of


def links(node: str, *up: int):
    """Return what the agent of a node says of GPUs with so many NVLinks that are up."""
    found = Node().look(
        *(
            gpus.GPU_NVLINKS_UP.sample(
                count, gpu=str(gpu), uuid=f"GPU-{node}-{gpu}", pci=f"0000:0{gpu}:00"
            )
            for gpu, count in enumerate(up)
        )
    )
    return tuple(
        steady(
            f'{summary.GPU_CONDITION.name}{{node="{node}",gpu="{gpu}",uuid="{uuid}",pci="{pci}",'
            f'condition="{condition}"}}',
            value,
        )
        for (gpu, uuid, pci, condition), value in of(found, summary.GPU_CONDITION).items()
    )


def fires(folder, series, times):
    """Check how many alerts fire after the five minutes that it waits."""
    alert = BY_NAME["RankscopeNvlinkFault"]
    case = Case((steady('rankscope_build_info{node="a"}'), *series))
    done = follow(folder, require_server("promtool"), alert, case, 20, [(4, 0), (15, times)])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_gpu_without_any_link_fires_if_others_of_its_node_have_some(tmp_path):
    fires(tmp_path, (*links("a", 18, 0, 18, 18), *links("b", 18, 18)), 1)


def test_nodes_of_which_no_gpu_has_links_fire_nothing(tmp_path):
    fires(tmp_path, (*links("a", 0, 0, 0, 0), *links("b", 18, 18), *links("c", 0)), 0)
