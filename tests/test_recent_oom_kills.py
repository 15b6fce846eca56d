"""Whose processes were killed for lack of memory within the last hour."""

from rankscope_agent.contract.metrics import host, kernel_log
from rankscope_agent.contract.metrics import summary as metrics
from summarized_nodes import Node, of
from test_node_summary import rank


def test_kills_for_want_of_memory_keep_their_job_when_the_pod_is_gone():
    def kills(count):
        return host.POD_OOM_KILLS.sample(count, pod_uid="u-1")

    node = Node()
    assert not of(node.look(kills(0), *rank(0)), metrics.POD_RECENT_OOM_KILLS)
    expected = {("team/llm", "u-1"): 2}
    assert of(node.look(kills(2), *rank(0)), metrics.POD_RECENT_OOM_KILLS) == expected
    assert of(node.look(), metrics.POD_RECENT_OOM_KILLS) == expected, "the pod is gone"
    assert of(node.look(after=1800), metrics.POD_RECENT_OOM_KILLS) == expected
    assert node.look(after=2000) == {}


def test_kills_that_the_kernels_log_tells_count_once_and_for_pods_with_ranks():
    def log(*kills):
        samples = [
            kernel_log.KERNEL_OOM_KILLS.sample(count, scope=scope, pod_uid=uid)
            for scope, uid, count in kills
        ]
        return (kernel_log.KERNEL_LOG_INFO.sample(1, source="kmsg"), *samples)

    node = Node()
    assert not of(node.look(*log(("cgroup", "u-1", 5)), *rank(0)), metrics.POD_RECENT_OOM_KILLS)
    both = (host.POD_OOM_KILLS.sample(0, pod_uid="u-1"), *rank(0))
    node.look(*log(("cgroup", "u-1", 5)), *both)
    hit = (host.POD_OOM_KILLS.sample(2, pod_uid="u-1"), *rank(0))
    found = node.look(*log(("cgroup", "u-1", 7), ("cgroup", "stranger", 1), ("node", "", 1)), *hit)
    assert of(found, metrics.POD_RECENT_OOM_KILLS) == {("team/llm", "u-1"): 2}
    found = node.look(*log(("cgroup", "u-1", 7), ("node", "u-1", 1)), *hit)
    assert of(found, metrics.POD_RECENT_OOM_KILLS) == {("team/llm", "u-1"): 3}


def test_kills_outside_of_pods_are_no_jobs():
    """The log does not name the job: a process there may be that of any job or program."""

    def log(count):
        killed = kernel_log.KERNEL_OOM_KILLS.sample(count, scope="cgroup", pod_uid="")
        return (kernel_log.KERNEL_LOG_INFO.sample(1, source="kmsg"), killed)

    def outside(job):
        return rank(0, job=job, uid="", pod="")

    node = Node()
    node.look(*log(1), *outside("1001"), *outside("1002"))
    kills = {("", ""): 3}
    found = node.look(*log(4), *outside("1001"), *outside("1002"))
    assert of(found, metrics.POD_RECENT_OOM_KILLS) == kills
    assert of(node.look(*log(4), *outside("1003")), metrics.POD_RECENT_OOM_KILLS) == kills
