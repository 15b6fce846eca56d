"""The training collector on rings of fake processes: totals, restarts and endings."""

from __future__ import annotations

import pytest

from collected_page import CREATED, CREATED_NS, Clock, Page, collector
from known_pods import pods_of
from pod_json import pod, uid
from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.settings.command_line import parse_config
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.read_turns import ReadTurns
from ring_writer import NS, ExtensionWriter, RingWriter

BUCKETS_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0)


def test_totals_and_newest_values_of_a_rank(tmp_path):
    writer = RingWriter(tmp_path, rank=3)
    writer.step(5)
    writer.step(step_ns=250_000_000, data_ns=50_000_000, sync_ns=0, samples=32)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.STEPS, 3) == 6
    assert page.rank(metrics.STEP_SECONDS, 3) == 0.75
    assert page.rank(metrics.DATA_SECONDS, 3) == 0.1
    assert page.rank(metrics.COMPUTE_SECONDS, 3) == 0.36
    assert page.rank(metrics.SYNC_SECONDS, 3) == 0.15
    assert page.rank(metrics.SAMPLES, 3) == 5 * 8 + 32
    assert page.rank(metrics.LAST_STEP, 3) == 5
    assert page.rank(metrics.LAST_STEP_SECONDS, 3) == 0.25
    assert page.rank(metrics.LAST_DATA_SECONDS, 3) == 0.05
    assert page.rank(metrics.LAST_COMPUTE_SECONDS, 3) == 0.06
    assert page.rank(metrics.LAST_STEP_TIMESTAMP, 3) == pytest.approx(CREATED + 0.85)
    assert page.rank(metrics.RANK_ALIVE, 3) == 1
    assert page.rank(metrics.RECORDS_LOST, 3) == 0
    assert page.value(metrics.RINGS) == 1
    writer.end()


def test_the_rest_of_steps_is_a_total_of_its_own_and_no_compute(tmp_path):
    extension, writer = ExtensionWriter(tmp_path), RingWriter(tmp_path, rank=3)
    for seq in (1, 2):
        extension.write(seq, other_ns=20_000_000)
    writer.step(3, compute_ns=60_000_000)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.OTHER_SECONDS, 3) == 0.04
    assert page.rank(metrics.COMPUTE_SECONDS, 3) == 0.14
    writer.end()


def test_where_a_rank_runs_stands_on_one_series(tmp_path):
    writer = RingWriter(tmp_path, rank=1, local_rank=-1, world_size=-1)
    writer.step(flags=0)
    assert Page(collector(tmp_path)).labels(metrics.RANK_INFO) == [
        ("team/job", "1", "gpu-07", "unknown", "unknown", *[""] * 8, "torchrun", "none")
    ]
    writer.end()


def test_ranks_that_left_a_job_when_it_shrank_have_no_series(tmp_path):
    collecting = collector(tmp_path)
    before = [RingWriter(tmp_path, f"{n}.ring", rank=n, world_size=4) for n in range(4)]
    for writer in before:
        writer.step()
    assert len(Page(collecting).labels(metrics.STEPS)) == 4
    for writer in before:
        writer.end()
    later = CREATED_NS + NS
    again = RingWriter(tmp_path, "a.ring", rank=0, world_size=2, created_unix_ns=later)
    again.step()
    page = Page(collecting)
    assert sorted(page.labels(metrics.STEPS)) == [("team/job", "0"), ("team/job", "1")]
    assert page.rank(metrics.STEPS, 0) == 2
    total = page.value(metrics.JOB_SAMPLES, "team/job")
    assert total == 5 * 8, "samples of ranks that left stay in the job's, or it would start again"
    again.end()


def test_what_was_never_measured_is_absent_not_zero(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(3, data_ns=-1, compute_ns=-1, sync_ns=-1, samples=0xFFFFFFFF, flags=0)
    page = Page(collector(tmp_path))
    for metric in (
        metrics.DATA_SECONDS,
        metrics.COMPUTE_SECONDS,
        metrics.SYNC_SECONDS,
        metrics.OTHER_SECONDS,
        metrics.SAMPLES,
        metrics.LAST_DATA_SECONDS,
        metrics.LAST_COMPUTE_SECONDS,
        metrics.SYNC_TIME,
    ):
        assert page.labels(metric) == []
    assert page.rank(metrics.STEPS) == 3
    assert page.value(metrics.STEP_LATENCY, "team/job").count == 3
    writer.end()


def test_a_total_that_was_measured_once_stays_when_the_newest_value_goes(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step()
    writer.step(data_ns=-1)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.DATA_SECONDS) == 0.01
    assert page.rank(metrics.LAST_DATA_SECONDS) is None
    writer.end()


def test_a_ring_without_records_shows_a_rank_that_has_not_stepped(tmp_path):
    writer = RingWriter(tmp_path)
    page = Page(collector(tmp_path))
    assert (page.rank(metrics.STEPS), page.rank(metrics.RANK_ALIVE)) == (0, 1)
    assert page.rank(metrics.LAST_STEP) is None
    writer.end()


def test_histograms_hold_the_steps_of_all_ranks_of_a_job(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    writers[0].step(3, step_ns=20_000_000, data_ns=0, compute_ns=0, sync_ns=5_000_000)
    writers[1].step(1, step_ns=200 * NS, data_ns=0, compute_ns=0, sync_ns=-1)
    page = Page(collector(tmp_path))
    latency = page.value(metrics.STEP_LATENCY, "team/job")
    assert dict(latency.buckets)[0.005] == 0
    assert dict(latency.buckets)[0.02] == 3
    assert dict(latency.buckets)[120.0] == 3
    assert (latency.count, latency.sum) == (4, 200.06)
    sync = page.value(metrics.SYNC_TIME, "team/job")
    assert (sync.count, sync.sum, dict(sync.buckets)[0.005]) == (3, 0.015, 3)
    assert len(BUCKETS_SECONDS) + 1 <= 12
    for writer in writers:
        writer.end()


def test_an_agent_restart_neither_loses_nor_repeats_a_record(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(5)
    first = collector(tmp_path)
    Page(first)
    writer.step(6)  # while no agent runs
    second = collector(tmp_path)
    assert Page(second).rank(metrics.STEPS) == writer.seq == 11
    writer.step(2)
    assert Page(second).rank(metrics.STEPS) == writer.seq == 13
    assert Page(second).rank(metrics.STEP_SECONDS) == pytest.approx(1.3)
    writer.end()


class Pieces(ReadTurns):
    """Gives each ring one turn in a run, as an agent does that has just been started."""

    def take(self, rings, read):
        for ring in rings:
            read(ring)


def test_totals_appear_once_all_is_counted_that_rings_held_when_the_agent_was_started(tmp_path):
    """Else Prometheus takes the steps of hours for steps of the minute in which they are read."""
    held = {0: 1300, 1: 700, 2: 5}
    writers = [RingWriter(tmp_path, f"{n}.ring", rank=n, capacity=2048) for n in held]
    for writer, steps in zip(writers, held.values(), strict=True):
        writer.step(steps)
    rings = collector(tmp_path, turns=Pieces())
    pages = [Page(rings) for _ in range(3)]
    of_ranks = [[page.rank(metrics.STEPS, rank) for rank in held] for page in pages]
    assert of_ranks == [[None, None, 5], [None, 700, 5], [1300, 700, 5]]
    assert [page.rank(metrics.STEP_SECONDS) for page in pages] == [None, None, 130.0]
    of_job = [page.value(metrics.STEP_LATENCY, "team/job") for page in pages]
    assert of_job[:2] == [None, None]
    assert of_job[2].count == 2005
    samples = [page.value(metrics.JOB_SAMPLES, "team/job") for page in pages]
    assert samples == [None, None, 8 * 2005]
    assert [page.rank(metrics.RANK_ALIVE) for page in pages] == [1, 1, 1]
    writers[0].step(1000)
    page = Page(rings)
    assert page.rank(metrics.STEPS) == 1812, "what is new counts as it is read"
    assert page.value(metrics.STEP_LATENCY, "team/job").count == 2005 + 512
    for writer in writers:
        writer.end()


@pytest.mark.parametrize(("runs", "shown"), [(60, False), (61, True)])
def test_totals_of_rings_that_are_never_read_to_their_end_appear_after_a_minute(
    tmp_path, runs, shown
):
    writer = RingWriter(tmp_path, capacity=2048)
    rings = collector(tmp_path, turns=Pieces())
    writer.step(600)
    for _ in range(runs):
        page = Page(rings)
        writer.step(600)
    assert (page.rank(metrics.STEPS) is not None) is shown
    assert (page.value(metrics.STEP_LATENCY, "team/job") is not None) is shown
    writer.end()


def test_totals_go_on_round_the_ring(tmp_path):
    writer = RingWriter(tmp_path)
    rings = collector(tmp_path)
    for count in (10, 16, 5, 16):
        writer.step(count)
        page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RECORDS_LOST)) == (47, 0)
    writer.end()


def test_records_overwritten_before_they_were_read_are_counted_exactly(tmp_path):
    writer = RingWriter(tmp_path)
    rings = collector(tmp_path)
    writer.step(4)
    Page(rings)
    writer.step(20)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RECORDS_LOST)) == (20, 4)
    writer.end()


def test_a_restarted_process_goes_on_with_the_ranks_counters(tmp_path):
    rings = collector(tmp_path)
    first = RingWriter(tmp_path, "1.ring", attempt=0)
    first.step(10)
    Page(rings)
    first.step(2)
    first.end()
    second = RingWriter(tmp_path, "2.ring", attempt=1, created_unix_ns=CREATED_NS + NS)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RANK_ALIVE)) == (12, 1)
    assert page.rank(metrics.LAST_STEP) is None
    second.step(3, attempt=1)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.LAST_STEP)) == (15, 2)
    assert Page(collector(tmp_path)).rank(metrics.STEPS) == 15
    second.end()


def test_the_newest_process_says_whether_the_rank_lives(tmp_path):
    old = RingWriter(tmp_path, "1.ring")
    new = RingWriter(tmp_path, "2.ring", created_unix_ns=CREATED_NS + NS)
    rings = collector(tmp_path)
    old.end()
    assert [Page(rings).rank(metrics.RANK_ALIVE) for _ in range(3)] == [1, 1, 1]
    new.end()


def test_an_ended_jobs_series_go_after_ten_minutes(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    writer = RingWriter(tmp_path)
    writer.step(3)
    Page(rings)
    writer.end()
    page = Page(rings)
    assert (page.rank(metrics.RANK_ALIVE), page.rank(metrics.STEPS)) == (0, 3)
    clock.now += 599
    assert Page(rings).rank(metrics.STEPS) == 3
    clock.now += 1
    page = Page(rings)
    assert page.rank(metrics.STEPS) is None
    assert page.labels(metrics.STEP_LATENCY) == []


def test_a_restarted_agent_does_not_bring_back_a_job_that_ended_long_ago(tmp_path):
    clock = Clock()
    writer = RingWriter(tmp_path)
    writer.step(3)
    writer.end()
    clock.now += 3600
    assert Page(collector(tmp_path, clock)).labels(metrics.STEPS) == []


def test_an_ended_jobs_series_go_too_when_its_file_is_gone(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    writer = RingWriter(tmp_path)
    writer.step()
    Page(rings)
    writer.path.unlink()
    writer.end()
    assert Page(rings).rank(metrics.RANK_ALIVE) == 0
    clock.now += 600
    assert Page(rings).labels(metrics.STEPS) == []


def test_a_hung_job_stays_with_all_its_ranks(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    hung = RingWriter(tmp_path, "0.ring", rank=0)
    dead = RingWriter(tmp_path, "1.ring", rank=1)
    for writer in (hung, dead):
        writer.step(2)
    Page(rings)
    dead.end()
    clock.now += 7 * 86_400
    page = Page(rings)
    assert (page.rank(metrics.RANK_ALIVE, 0), page.rank(metrics.RANK_ALIVE, 1)) == (1, 0)
    hung.end()


def test_running_jobs_come_first_on_the_page_and_of_ended_ones_the_latest(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    jobs = ("a", "b", "c", "d")
    writers = {one: RingWriter(tmp_path, f"{one}.ring", job_id=one) for one in jobs}
    for writer in writers.values():
        writer.step()
        Page(rings)
    for ended in ("a", "c"):
        clock.now += 60
        Page(rings)
        writers.pop(ended).end()
    orders = {
        metric: [job for job, *_ in Page(rings).labels(metric)]
        for metric in (metrics.STEP_LATENCY, metrics.STEPS)
    }
    assert set(map(tuple, orders.values())) == {("b", "d", "c", "a")}
    for writer in writers.values():
        writer.end()


def test_records_written_just_before_the_end_are_counted(tmp_path):
    rings = collector(tmp_path)
    writer = RingWriter(tmp_path)
    writer.step()
    Page(rings)
    writer.step(4)
    writer.end()
    assert Page(rings).rank(metrics.STEPS) == 5
    assert Page(rings).rank(metrics.STEPS) == 5


def test_a_pods_volume_is_enough(tmp_path):
    volume = tmp_path / "kubelet/pods/uid-a/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, node="trainer-0")
    writer.step()
    kubelet = tmp_path / "kubelet"
    rings = TrainingCollector(tmp_path / "none", kubelet, "gpu-01", Clock(), pods_of("team"))
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    assert (info[2], *info[6:9]) == ("gpu-01", "uid-a", "team", "pod-uid-a")
    writer.end()


def test_a_pods_job_is_called_as_kubernetes_calls_it(tmp_path):
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, job_id="local/1234", pod_uid=uid(1))
    writer.step()
    pods = PodDirectory()
    pods.replace([parse_pod(pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm")))], 1.0)
    page = Page(TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods))
    (info,) = page.labels(metrics.RANK_INFO)
    labels = dict(zip(metrics.RANK_INFO.labels, info, strict=True))
    assert (labels["job_id"], labels["pod_name"]) == ("ml/llm", "w0")
    assert labels["container_name"] == "main"
    assert pods.probed_ranks() == {("ml/llm", int(labels["rank"]))}
    writer.end()


def test_a_rank_whose_pod_is_gone_keeps_its_namespace(tmp_path):
    """Without it, readers would take it for one that speaks for a job from outside of pods."""
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, job_id="local/1234", pod_uid=uid(1))
    writer.step()
    pods = PodDirectory()
    pods.replace([parse_pod(pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm")))], 1.0)
    rings = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods)
    assert len(Page(rings).labels(metrics.RANK_INFO)) == 1
    pods.replace([], 2.0)
    writer.end()
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    labels = dict(zip(metrics.RANK_INFO.labels, info, strict=True))
    assert (labels["job_id"], labels["pod_namespace"]) == ("ml/llm", "ml")


def test_rings_of_pods_wait_until_their_jobs_names_are_known(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "FIRST_NAMES_SECONDS", 0.0)
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, pod_uid=uid(1))
    writer.step()
    pods = PodDirectory()
    pods.expect()
    rings = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods)
    assert Page(rings).labels(metrics.RANK_INFO) == []
    pods.replace([parse_pod(pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm")))], 1.0)
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    assert info[0] == "ml/llm"
    writer.end()


def test_it_is_made_of_the_agents_settings(tmp_path):
    argv = ["--path.ring-dir", str(tmp_path), "--path.kubelet", str(tmp_path / "kubelet")]
    config = parse_config([*argv, "--node-name", "gpu-01"], {}, ("training",), "0")
    writer = RingWriter(tmp_path, node="")
    (info,) = Page(training.create(config, PodDirectory())).labels(metrics.RANK_INFO)
    assert info[2] == "gpu-01"
    writer.end()


@pytest.mark.parametrize(("flags", "exported"), [((), None), (("600",), 600.0)])
def test_an_objective_for_checkpoints_is_exported_only_if_one_is_set(tmp_path, flags, exported):
    made = collector(tmp_path)
    assert Page(made).value(reported.CHECKPOINT_OBJECTIVE) is None
    set_to = [f"--training.checkpoint-objective={seconds}" for seconds in flags]
    places = [f"--path.ring-dir={tmp_path}", f"--path.kubelet={tmp_path}"]
    config = parse_config([*set_to, *places], {}, ("training",), "0")
    page = Page(training.create(config, PodDirectory()))
    assert page.value(reported.CHECKPOINT_OBJECTIVE) == exported
