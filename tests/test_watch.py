import argparse
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from faulty_clusters import JOB, Cluster, pressure
from rankscope_analyzers import cli
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.intake.agent_client import Agent, StatusError
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.watch import server as watch_server
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.leadership import SingleInstance
from rankscope_analyzers.watch.series import WatchSeries
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, running_agent
from simulated_jobs import Fault, Job

NODES = {"gpu-0": "healthy", "gpu-1": "thermal@5"}
SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))


@pytest.fixture(scope="module")
def report():
    return Cluster(NODES, SLOW, [pressure({})]).report()


def values(watch: WatchSeries) -> dict[tuple[str, ...], float]:
    """Return the series of a watch that saves nothing: it announces its sums at once."""
    watch.announce_sums()
    return {(one.metric.name, *one.labels): one.value for one in watch.samples()}


def test_a_finding_is_exported_with_cause_culprit_and_cost(report):
    watch = WatchSeries()
    watch.update([report], 1000.0)
    found = values(watch)
    kind = "thermal_slowdown"
    assert found["rankscope_finding_active", JOB, kind, "page", "platform"] == 1
    assert 0.28 < found["rankscope_finding_lost_fraction", JOB, kind] < 0.31
    (culprit,) = [key for key in found if key[0] == "rankscope_finding_culprit_info"]
    assert culprit[1:6] == (JOB, kind, "gpu_compute", "13", "gpu-1")
    assert culprit[6] == "5"


def test_clocks_of_a_jobs_nodes_are_exported_as_far_as_they_are_apart(report):
    watch = WatchSeries()
    ahead = ClockOffset("gpu-1", 0.25, 0.001, 0.0, 1000.0)
    verdict = replace(report.verdict, clock_offsets=(ahead,))
    watch.update([replace(report, verdict=verdict), replace(report, verdict=None)], 1000.0)
    name = "rankscope_job_clock_offset_seconds"
    assert {key: value for key, value in values(watch).items() if key[0] == name} == {
        (name, JOB, "gpu-1"): 0.25
    }


def test_lost_time_adds_up_while_the_finding_lasts(report):
    watch = WatchSeries()
    for now in (1000.0, 1030.0, 1060.0):
        watch.update([report], now)
    found = values(watch)
    assert found["rankscope_job_observed_gpu_seconds_total", JOB] == 16 * 60
    lost = found["rankscope_job_lost_gpu_seconds_total", JOB, "thermal_slowdown"]
    assert lost == pytest.approx(report.incidents[0].cost.lost_fraction * 16 * 60)
    healed = replace(report, incidents=())
    watch.update([healed], 1090.0)
    watch.update([healed], 1120.0)
    found = values(watch)
    left = {key[0] for key in found if key[0].startswith("rankscope_finding_")}
    assert left == {"rankscope_finding_recovered_timestamp_seconds"}
    after = found["rankscope_job_lost_gpu_seconds_total", JOB, "thermal_slowdown"]
    assert after == pytest.approx(lost * 1.5), "it lasted until the evaluation that missed it"
    assert found["rankscope_job_observed_gpu_seconds_total", JOB] == 16 * 120


@pytest.mark.parametrize(("pause", "observed"), [(299.0, 299.0), (301.0, 0.0)])
def test_nobody_knows_what_happened_in_a_long_pause(report, pause, observed):
    watch = WatchSeries()
    watch.update([report], 1000.0)
    watch.update([report], 1000.0 + pause)
    assert values(watch)["rankscope_job_observed_gpu_seconds_total", JOB] == 16 * observed


@pytest.mark.parametrize("confidence", [None, 0.0])
def test_time_of_jobs_without_a_verdict_is_not_taken_for_time_that_was_not_lost(report, confidence):
    """Nobody knows what they lost: counted, it would make the share that is lost look smaller."""
    verdict = None if confidence is None else replace(report.verdict, confidence=confidence)
    blind = replace(report, verdict=verdict, incidents=())
    watch = WatchSeries()
    for now in (1000.0, 1030.0, 1060.0):
        watch.update([blind], now)
    found = values(watch)
    assert found["rankscope_job_observed_gpu_seconds_total", JOB] == 0
    assert not [key for key in found if key[0] == "rankscope_job_lost_gpu_seconds_total"]


def test_sums_stay_when_nothing_can_be_read(report):
    watch = WatchSeries()
    watch.update([report], 1000.0)
    watch.update([report], 1030.0)
    watch.fail(1400.0)
    found = values(watch)
    assert not [key for key in found if key[0].startswith("rankscope_finding_")]
    assert found["rankscope_job_observed_gpu_seconds_total", JOB] == 16 * 30
    assert found["rankscope_watch_failed_evaluations_total",] == 1


def test_the_parts_of_several_findings_never_exceed_the_whole(report):
    (incident,) = report.incidents
    heavy = replace(incident, cost=replace(incident.cost, lost_fraction=0.7))
    other = replace(heavy, cause=replace(heavy.cause, kind="data_loader"))
    watch = WatchSeries()
    for now in (0.0, 10.0):
        watch.update([replace(report, incidents=(heavy, other))], now)
    found = values(watch)
    parts = [v for key, v in found.items() if key[0] == "rankscope_job_lost_gpu_seconds_total"]
    assert sorted(parts) == pytest.approx([0.3 * 160, 0.7 * 160])


def test_many_incidents_of_one_kind_hide_no_other_and_kinds_are_bounded(report):
    (incident,) = report.incidents
    kinds = ["data_loader"] * 30 + [f"kind_{n}" for n in range(30)]
    several = (replace(incident, cause=replace(incident.cause, kind=kind)) for kind in kinds)
    watch = WatchSeries()
    watch.update([replace(report, incidents=tuple(several))], 1.0)
    shown = [key[2] for key in values(watch) if key[0] == "rankscope_finding_active"]
    assert shown == ["data_loader", *(f"kind_{n}" for n in range(15))]


def test_names_that_lie_are_inert_in_labels(report):
    watch = WatchSeries()
    watch.update([replace(report, job_id="evil\x1b[2Jjob\n")], 1.0)
    assert all("\x1b" not in text and "\n" not in text for key in values(watch) for text in key)


def serve_once(url, capsys, code=0) -> str:
    options = watch_command_options("--agent", url, "--once", "--since", "9000d")
    assert watch_command.run(options) == code
    return capsys.readouterr().out


def watch_command_options(*arguments: str):
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    return parser.parse_args(arguments)


def wait_for_gpus(agent) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "rankscope_gpu_clock_hertz{" not in agent.get("/metrics"):
        assert time.monotonic() < deadline, "no GPUs on the page"
        time.sleep(0.1)


def test_a_real_agent_is_watched(tmp_path, capsys):
    (tmp_path / "rings").mkdir()
    for rank in range(4):
        writer = RingWriter(
            tmp_path / "rings", f"{rank}-1.ring", capacity=256, rank=rank, local_rank=rank
        )
        slow = 40_000_000 if rank == 2 else 0
        writer.step(
            120, compute_ns=60_000_000 + slow, sync_ns=70_000_000 - slow, step_ns=142_000_000
        )
    with running_agent(tmp_path, "--simulate=h100x4:thermal@2") as agent:
        wait_for_gpus(agent)
        page = serve_once(agent.url, capsys)
    assert 'kind="thermal_slowdown",owned_by="platform",severity="page"} 1.0' in page
    assert 'rank="2"' in page
    assert 'rankscope_watch_agents{state="answering"} 1.0' in page


def test_an_agent_that_is_gone_is_counted_and_ends_nothing(capsys):
    page = serve_once("http://127.0.0.1:9", capsys, code=1)
    assert "rankscope_watch_failed_evaluations_total 1.0" in page
    assert "rankscope_finding_active" not in page


@pytest.mark.parametrize("address", ["9878x", "host:", "host:99999"])
def test_addresses_that_cannot_be_are_refused(address):
    options = watch_command_options("--agent", "x", "--web.listen-address", address)
    with pytest.raises(watch_command.InputError, match="expected host:port such as"):
        watch_command.run(options)


def test_the_page_is_served_to_those_who_may_read_it(report, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("the-scraper-of-this-test\n")
    flags = ("--web.listen-address", "127.0.0.1:0", "--web.token-file", str(tokens))
    listen, guard = watch_server.listen_settings(watch_command_options("--agent", "x", *flags))
    exported = FindingsExporter()
    server = watch_server.start(exported, listen, guard)
    try:
        scraper = Agent(server.url, Entry(tokens))
        with pytest.raises(StatusError, match="401"):
            Agent(server.url).text("/metrics")
        assert Agent(server.url).text("/readyz") == "The first evaluation has not ended.\n"
        exported.update([report], 1.0, 0, ())
        assert "rankscope_finding_active{" in scraper.text("/metrics")
        assert Agent(server.url).text("/readyz") == "The first evaluation has ended.\n"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("ended", "rank", "gpu"), [(None, "", ""), (2, "2", "2")])
def test_what_touches_a_whole_node_names_the_rank_that_ended_or_none(ended, rank, gpu):
    """An Xid of which nobody knows the GPU: its first rank would be as good as any other."""
    ranks = "".join(
        f'rankscope_rank_info{{job_id="t/j",rank="{n}",uuid="GPU-{n}"}} 1\n'
        f'rankscope_rank_alive{{job_id="t/j",rank="{n}"}} {int(n != ended)}\n'
        f'rankscope_gpu_info{{gpu="{n}",uuid="GPU-{n}"}} 1\n'
        for n in range(4)
    )
    error = '{gpu="",uuid="",pci="0000:1b:00.0",xid="48",severity="fatal",action="reset_gpu"}'
    pages = [
        Page(
            "n0",
            at,
            f"{ranks}rankscope_gpu_xid_errors_total{error} {count}\n"
            f"rankscope_gpu_xid_last_timestamp_seconds{error} {at - 5}\n",
        )
        for at, count in ((1000.0, 0), (1030.0, 1))
    ]
    evidence = job_reports.JobEvidence(from_pages(pages, job_reports.READS))
    watch = WatchSeries()
    watch.update(job_reports.reports(TimingResults(), evidence, 1030.0), 1030.0)
    (culprit,) = [one for one in watch.samples() if one.metric.name.endswith("culprit_info")]
    labels = dict(zip(culprit.metric.labels, culprit.labels, strict=True))
    assert (labels["kind"], labels["node"]) == ("gpu_memory", "n0")
    assert (labels["rank"], labels["gpu"], labels["uuid"]) == (rank, gpu, gpu and f"GPU-{gpu}")


def test_a_watch_that_hangs_in_an_evaluation_is_not_healthy(monkeypatch):
    """The web server answers from a thread of its own, however long the other one stands still."""
    started, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(watch_command, "LONGEST_SECONDS", 0.2)
    exported = FindingsExporter()
    assert watch_server.liveness(exported)[0] == 200  # it has not begun

    def hang():
        started.set()
        go_on.wait()
        raise SourceError("at last")

    run_cycle = partial(
        watch_command.run_cycle,
        watch_command.JobSource(hang),
        exported,
        SingleInstance(),
        0.0,
        ErrorLog(print),
    )
    thread = threading.Thread(target=run_cycle)
    thread.start()
    try:
        assert started.wait(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while watch_server.liveness(exported)[0] == 200:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "hangs" in watch_server.liveness(exported)[1]
    finally:
        go_on.set()
        thread.join()
    monkeypatch.setattr(watch_command, "LONGEST_SECONDS", 900.0)
    watch_command.run_cycle(
        watch_command.JobSource(hang), exported, SingleInstance(), 0.0, ErrorLog(print)
    )
    assert watch_server.liveness(exported)[0] == 200


def test_one_look_that_could_read_nothing_is_a_failure(capsys):
    assert cli.main(["watch", "--once", f"--agent=http://127.0.0.1:{free_port()}"]) == 1
    printed = capsys.readouterr()
    assert "nothing could be read: agent http://127.0.0.1:" in printed.err
    assert "rankscope_watch_failed_evaluations_total 1.0" in printed.out
