"""Ranks whose agent names no GPU: local rank n uses GPU n, unless others use that one."""

from __future__ import annotations

import pytest

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import READS, JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers.rank_locations import rank_locations
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from simulated_jobs import Job, diagnosed, records

NODE, NOW = "node-00000", 1_760_000_300.0
GPUS = "".join(
    f'rankscope_gpu_info{{gpu="{n}",uuid="GPU-{n}",pci="0{n}:00"}} 1\n' for n in range(8)
)
LOST = 'rankscope_gpu_lost{gpu="2",uuid="GPU-2",pci="02:00"} 1\n'
POD, OTHER_POD, NAMELESS = ("b-0", "ub"), ("c-0", "uc"), ("", "ud")


def ranks(job, pod=("", ""), started=None, ended=None, local=range(4), uuid="", dead=False):
    """Return the series of a job's ranks on the node; they live unless dead or ended."""
    name, uid = pod
    where = f'pod_namespace="{"ml" if name else ""}",pod_name="{name}",pod_uid="{uid}"'
    text = ""
    for n in local:
        key = f'job_id="{job}",rank="{n}"'
        text += f'rankscope_rank_info{{{key},local_rank="{n}",uuid="{uuid}",{where}}} 1\n'
        text += f"rankscope_rank_alive{{{key}}} {int(ended is None and not dead)}\n"
        if started:
            text += f"rankscope_rank_started_timestamp_seconds{{{key}}} {started}\n"
        if ended:
            text += f"rankscope_rank_ended_timestamp_seconds{{{key}}} {ended}\n"
    return text


def held(pod, *devices, container="c"):
    """Return the series of the GPUs that a container holds."""
    where = f'pod_namespace="ml",pod_name="{pod[0]}",container_name="{container}"'
    return "".join(f'rankscope_gpu_allocation_info{{uuid="{one}",{where}}} 1\n' for one in devices)


def gpus(*texts, job="ml/b", frame=None):
    """Return the GPUs of a job's ranks; the same page was read twice."""
    pages = [Page(NODE, at, GPUS + "".join(texts)) for at in (NOW - 30, NOW)]
    found = rank_locations(from_pages(pages, READS)).of(job, frame)
    return [one.gpu for one in found.values()]


UNKNOWN, FIRST, LAST = [""] * 4, ["0", "1", "2", "3"], ["4", "5", "6", "7"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((ranks("ml/b"),), FIRST),
        ((ranks("ml/b"), ranks("ml/a")), UNKNOWN),
        ((ranks("ml/b"), ranks("ml/a", local=(2,))), ["0", "1", "", "3"]),
        ((ranks("ml/b"), ranks("ml/a", local=(6,), uuid="GPU-2")), ["0", "1", "", "3"]),
        ((ranks("ml/b"), ranks("ml/a", local=(6,), uuid="GPU-6")), FIRST),
        ((ranks("ml/b"), held(POD, "GPU-0", "GPU-1::3")), ["", "", "2", "3"]),
    ],
    ids=["alone", "two jobs", "a rank", "a named GPU", "another GPU", "a pod"],
)
def test_a_gpu_that_others_use_is_not_assumed_to_be_that_of_a_local_rank(texts, expected):
    assert gpus(*texts) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (held(POD, "GPU-7", "GPU-5", "GPU-4", "GPU-6"), LAST),
        (held(POD, "GPU-4", "GPU-5"), ["4", "5", "", ""]),
        (held(POD, "GPU-4", "GPU-5") + held(POD, "GPU-6", "GPU-7", container="d"), UNKNOWN),
        (held(POD, "GPU-0", "GPU-1", "GPU-2", "GPU-9"), UNKNOWN),
        (held(POD, "node-0/gpu-4", "node-0/gpu-5"), FIRST),
        (held(POD, *(f"GPU-{n}" for n in range(8))) + ranks("ml/a", OTHER_POD), FIRST),
        (held(POD, *(f"GPU-{n}" for n in range(8))) + ranks("ml/a", POD), UNKNOWN),
        (held(POD, *(f"GPU-{n}::1" for n in range(4))) + held(OTHER_POD, "GPU-0::2"), FIRST),
    ],
    ids=[
        "its own", "fewer than ranks", "two containers", "one of no such GPU", "names of a claim",
        "beside another pod", "two jobs of a pod", "shared by pods",
    ],
)  # fmt: skip
def test_local_ranks_of_a_pod_count_the_gpus_that_it_holds(texts, expected):
    assert gpus(ranks("ml/b", POD), texts) == expected


def test_a_pod_without_a_name_may_be_the_one_that_holds_the_gpus():
    assert gpus(ranks("ml/b", NAMELESS), held(POD, "GPU-0", "GPU-1", "GPU-2", "GPU-3")) == FIRST


@pytest.mark.parametrize(
    ("started", "expected"), [(NOW - 99, FIRST), (None, FIRST), (NOW - 101, UNKNOWN)]
)
def test_a_job_that_began_after_another_had_ended_may_have_its_gpus(started, expected):
    texts = ranks("ml/a", ended=NOW - 100), ranks("ml/b", started=started)
    assert gpus(*texts, job="ml/a") == gpus(*texts) == expected


@pytest.mark.parametrize("uuid", ["", "GPU-2"])
def test_ranks_that_were_dead_when_first_seen_share_no_gpu_with_those_that_run(uuid):
    assert gpus(ranks("ml/a", uuid=uuid, dead=True), ranks("ml/b", started=NOW - 500)) == FIRST


def test_step_records_do_not_bring_back_a_gpu_that_is_unknown():
    frame = diagnosed(records(Job(ranks_per_node=4)), job_id="ml/b").frame
    assert frame.gpus.tolist()[:4] == [0, 1, 2, 3]
    assert gpus(ranks("ml/b"), ranks("ml/a"), frame=frame)[:4] == UNKNOWN


def test_a_lost_gpu_of_a_shared_node_blames_no_rank_and_the_report_says_why():
    def reports(*texts):
        page = Page(NODE, NOW, "".join((GPUS, LOST, *texts)))
        evidence = JobEvidence(from_pages([page], READS))
        return job_reports.reports(TimingResults((), {}, ()), evidence, NOW)

    (alone,) = reports(ranks("ml/b"))
    assert [one.where.ranks for one in alone.incidents] == [(2,)]
    assumed = "which rank uses which GPU: local rank n is assumed to use GPU n"
    assert assumed in alone.unobserved
    for report in reports(ranks("ml/b"), ranks("ml/a")):
        (incident,) = report.incidents
        assert (incident.where.ranks, incident.where.gpus) == ((0, 1, 2, 3), ("2",))
        assert assumed not in report.unobserved
        assert any("which GPU belongs to ranks 0-3: others" in s for s in report.unobserved)
