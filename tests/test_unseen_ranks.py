"""Ranks of which an agent sees no process and no ring: that they were started, and hang."""

from __future__ import annotations

import pytest

from pod_states import BEGIN, at, with_state, worker
from rankscope_agent.contract.job_labels import DEFAULT_LABELS
from rankscope_agent.contract.metrics import agent
from rankscope_agent.contract.metrics.pods import JOB_PODS, RANK_STARTED
from rankscope_agent.contract.metrics.training import RANK_ALIVE
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.placement_view import PlacementView
from rankscope_agent.sources.pods.probed import Probed
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.pods.series import placement_samples
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.files import POD_VOLUME
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults

PROBED = {"RANKSCOPE_RING_DIR": "/rankscope"}
BOTH = {"PET_NPROC_PER_NODE": "2", "PET_NNODES": "2"}


def running(index, number, **variables):
    """Return a pod of two ranks whose container runs since a minute after the story's begin."""
    data = worker(index, number=number, env={"PET_NODE_RANK": str(index), **BOTH, **variables})
    data = with_state(data, {"running": {"startedAt": at(60.0)}})
    data["status"]["containerStatuses"][0]["started"] = True
    return data


def started(*pods, probed=frozenset(), now=BEGIN + 700.0):
    directory = PodDirectory()
    directory.replace([parse_pod(one) for one in pods], now)
    uids = frozenset(one["metadata"]["uid"] for one in pods)
    directory.note_probed(Probed(probed, loaded=uids))
    found = placement_samples(PlacementView(), directory, "n1", DEFAULT_LABELS, now)
    return [one for one in found if one.metric is RANK_STARTED]


def test_ranks_of_a_probed_pod_that_runs_are_as_old_as_their_container():
    found = started(running(0, 1, **PROBED), running(1, 2, **PROBED))
    assert [(one.labels, one.value) for one in found] == [
        (("ml/llm", str(rank)), BEGIN + 60.0) for rank in range(4)
    ]


@pytest.mark.parametrize(
    "pods",
    [
        [running(0, 1)],  # nobody gives it a probe
        [with_state(running(0, 1, **PROBED), {"waiting": {"reason": "ImagePullBackOff"}})],
        [worker(0, number=1, env=PROBED)],  # which ranks it has is decided at start
        [{**running(0, 1, **PROBED), "status": {"phase": "Succeeded"}}],
    ],
)
def test_other_pods_say_nothing(pods):
    assert started(*pods) == []


def test_ranks_with_a_ring_are_left_to_it():
    (one,) = started(running(0, 1, **PROBED), probed=frozenset({("ml/llm", 0)}))
    assert one.labels == ("ml/llm", "1")


@pytest.mark.parametrize(("waited", "hangs"), [(500.0, False), (640.0, True)])
def test_a_job_that_stays_in_init_process_group_is_called_hung_by_its_pods_alone(waited, hangs):
    now = BEGIN + 60.0 + waited
    lines = [f"{agent.SNAPSHOT_TIMESTAMP.name} {now}\n"] + [
        f'{RANK_STARTED.name}{{job_id="{one.labels[0]}",rank="{one.labels[1]}"}} {one.value}\n'
        for one in started(running(0, 1, **PROBED), running(1, 2, **PROBED), now=now)
    ]
    seen = from_pages([Page("n1", now, "".join(lines))], job_reports.READS)
    made = job_reports.reports(TimingResults(), JobEvidence(seen), now, asked="ml/llm")
    hung = [one.summary for report in made for one in report.incidents if one.stands]
    assert bool(hung) is hangs
    assert all(one.startswith("no step since the processes of ranks 0-3 were") for one in hung)


def test_of_a_pod_in_which_nothing_loaded_the_probe_nothing_tells_that_it_trains(tmp_path):
    """Its program may be any: what the pod was given says nothing of what it loads."""
    pods = [running(index, 1 + index, **PROBED) for index in range(3)]  # one without a volume
    uids = [pod["metadata"]["uid"] for pod in pods]
    volumes = [tmp_path.joinpath("pods", uid, *POD_VOLUME) for uid in uids[:2]]
    for volume in volumes:
        volume.mkdir(parents=True)
    (volumes[1] / ".loaded").touch()
    directory, now = PodDirectory(), [BEGIN + 700.0]
    directory.replace([parse_pod(one) for one in pods], BEGIN + 700.0)
    rings = TrainingCollector(tmp_path / "none", tmp_path, "n1", lambda: now[-1], directory)
    list(rings.collect())
    assert directory.probed.loaded == {uids[1]}
    found = placement_samples(PlacementView(), directory, "n1", DEFAULT_LABELS, BEGIN + 700.0)
    assert [one.labels[1] for one in found if one.metric is RANK_STARTED] == ["2", "3"]
    now.append(BEGIN + 710.0)
    (volumes[0] / ".loaded").touch()  # as soon as a rank imports torch
    list(rings.collect())
    assert directory.probed.loaded == set(uids[:2])


def test_a_job_whose_probe_nobody_loaded_is_not_called_hung_but_said_to_be_unknown():
    now = BEGIN + 1000.0
    page = f"{agent.SNAPSHOT_TIMESTAMP.name} {now}\n"
    page += f'{JOB_PODS.name}{{job_id="ml/llm",phase="Running"}} 2\n'
    seen = from_pages([Page("n1", now, page)], job_reports.READS)
    (report,) = job_reports.reports(TimingResults(), JobEvidence(seen), now, asked="ml/llm")
    assert report.incidents == ()
    assert any("no sign that the probe is loaded" in one for one in report.unobserved)
    ended = f'{page}{RANK_ALIVE.name}{{job_id="ml/llm",rank="0"}} 0\n'
    seen = from_pages([Page("n1", now, ended)], job_reports.READS)
    (report,) = job_reports.reports(TimingResults(), JobEvidence(seen), now, asked="ml/llm")
    assert not any("nothing tells" in one for one in report.unobserved)


@pytest.mark.parametrize(("processes", "ranks"), [(64, 64), (65, 0)])
def test_a_pod_has_64_ranks_at_most(processes, ranks):
    one = running(0, 1, **PROBED | {"PET_NPROC_PER_NODE": str(processes)})
    assert len(started(one)) == ranks
