"""Alerts about pods without a node: one ticket for each job, whoever reports its pods."""

import pytest

from alert_timelines import Case, Series, steady
from named_alerts import BY_NAME
from promtool_tests import follow
from servers import require_server


def test_a_gang_whose_pods_have_no_node_waits_only_while_others_hold_gpus(tmp_path):
    """Agents see no pod without a node; the watch does."""
    alert = BY_NAME["RankscopeGangPartial"]

    def of_job(name: str, waiting_gpus: float) -> tuple[Series, ...]:
        job = f'{{job_id="team/{name}"}}'
        return (
            steady(f"rankscope_job_unscheduled_pods{job}", 2),
            steady(f"rankscope_job_waiting_gpus{job}", waiting_gpus),
        )

    # One holds eight GPUs while it waits; of the other no pod has a node.
    case = Case((*of_job("partial", 8), *of_job("whole", 0)))
    checks = [(10, 0), (17, 1), (30, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, case, 40, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_without_any_node_is_pending_once_its_queue_has_admitted_it(tmp_path):
    """Of one no pod has a node, one is in its queue still, and one holds nodes for a part of it."""
    alert = BY_NAME["RankscopeJobPending"]

    def of_job(name: str, held: float, *more: str) -> tuple[Series, ...]:
        job = f'job_id="team/{name}"'
        return (
            steady(f"rankscope_job_unscheduled_pods{{{job}}}", 2),
            steady(f"rankscope_job_held_gpus{{{job}}}", held),
            *(steady(f'rankscope_job_pending_seconds{{{job},reason="{one}"}}', 9) for one in more),
        )

    case = Case((*of_job("whole", 0, "no_gpu"), *of_job("queued", 0, "quota"), *of_job("part", 8)))
    done = follow(
        tmp_path, require_server("promtool"), alert, case, 50, [(25, 0), (32, 1), (45, 1)]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def unscheduled(namespace: str, number: int) -> tuple[Series, ...]:
    """Return what kube-state-metrics says of pods without a node, of eight GPUs each."""
    pods = [f'namespace="{namespace}",pod="llm-{i}"' for i in range(number)]
    gpus = 'container="main",resource="nvidia_com_gpu"'
    return (
        *(steady(f"kube_pod_status_unschedulable{{{one}}}") for one in pods),
        *(steady(f"kube_pod_container_resource_requests{{{one},{gpus}}}", 8) for one in pods),
    )


def waiting(job_id: str, pods: float, held_gpus: float) -> tuple[Series, ...]:
    """Return what the watch says of a job some of whose pods have no node."""
    job = f'{{job_id="{job_id}"}}'
    return (
        steady(f"rankscope_job_unscheduled_pods{job}", pods),
        steady(f"rankscope_job_held_gpus{job}", held_gpus),
        steady(f"rankscope_job_waiting_gpus{job}", held_gpus if pods else 0),
    )


# Nothing else than the launcher of the job runs, which has no GPU: no alert of a job is about it.
LAUNCHER = steady('rankscope_job_pods{job_id="team/llm",node="n",phase="Running"}')


@pytest.mark.parametrize(
    ("known", "pods", "ticket"),
    [
        ((), 2, "RankscopeGpuPodsUnscheduled"),
        (waiting("team/llm", 2, 0), 2, "RankscopeJobPending"),
        (waiting("team/llm", 2, 8), 2, "RankscopeGangPartial"),
        (waiting("team/llm", 0, 16), 2, "RankscopeGpuPodsUnscheduled"),
        ((*waiting("team/llm", 2, 0), LAUNCHER), 2, "RankscopeGpuPodsUnscheduled"),
    ],
)
def test_pods_without_a_node_have_one_ticket(tmp_path, known, pods, ticket):
    """With the watch that of their job, else the one of kube-state-metrics."""
    case = Case((*unscheduled("team", pods), *known))
    for name in ("RankscopeGpuPodsUnscheduled", "RankscopeJobPending", "RankscopeGangPartial"):
        checks = [(33, int(name == ticket)), (45, int(name == ticket))]
        done = follow(tmp_path, require_server("promtool"), BY_NAME[name], case, 50, checks)
        assert done.returncode == 0, name + done.stdout + done.stderr


def test_pods_of_which_the_watch_does_not_know_have_a_ticket_beside_those_of_a_job(tmp_path):
    """One pod more in the job's namespace, two in another."""
    alert, promtool = BY_NAME["RankscopeGpuPodsUnscheduled"], require_server("promtool")
    for others, count in ((unscheduled("team", 3), 1), (unscheduled("else", 2), 1)):
        case = Case((*others, *waiting("team/llm", 2, 0)))
        done = follow(tmp_path, promtool, alert, case, 50, [(25, 0), (33, count), (45, count)])
        assert done.returncode == 0, done.stdout + done.stderr
