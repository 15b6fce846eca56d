"""A watch that is started anew goes on where the last one ended."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from faulty_clusters import JOB, Cluster, pressure
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FORMAT, VERSION, FileStore, Part, StoreError
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, agent_environment, running_agent
from simulated_jobs import Fault, Job
from test_followed_jobs import JOB as LAYOUT
from test_followed_jobs import SLOW_FOR_EVER, STREAMS, looks, running
from test_watch import watch_command_options

SAVE_SECONDS = 300.0
# What this machine's kernel, memory and links say is nothing of these jobs.
OWN_RINGS_ALONE = [
    f"--no-collector.{name}" for name in ("host", "kernel_log", "netdev", "rdma", "nvml", "dcgm")
]
SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))


@pytest.fixture(scope="module")
def report():
    return Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, SLOW, [pressure({})]).report()


class Process:
    """What one process of the watch has in memory, and the file that outlives it."""

    def __init__(self, path, **limits):
        self.exported, self.followed, self.said = FindingsExporter(), FollowedJobs(), []
        self.memory = Memory(FileStore(path, **limits), self.said.append)

    def look(self, reports, now, shown=None, name="job", changed=False):
        self.memory.begin(self.exported, self.followed)
        self.exported.update(reports, now, 0, ())
        found = None
        if shown is not None:
            self.followed.start_poll()
            found = self.followed.update(name, shown, LAYOUT)
        self.memory.end(self.exported, self.followed, changed=changed)
        return found

    def save(self):
        self.memory.save(self.exported, self.followed)


@pytest.mark.parametrize("name", STREAMS)
def test_a_watch_that_is_started_anew_at_every_look_finds_what_one_that_runs_on_does(
    name, tmp_path
):
    changes = dict(STREAMS[name])
    records = running(*changes.pop("faults", ()), **changes)
    there = Process(tmp_path / "there")
    for shown in looks(records, 60.0, window=300.0):
        anew = Process(tmp_path / "anew")
        expected = there.look((), 1.0, shown)
        assert anew.look((), 1.0, shown) == expected
        anew.save()
        assert anew.said == []


def test_incidents_that_go_on_are_not_opened_again_and_sums_go_on(report, tmp_path):
    first = Process(tmp_path / "state")
    for now in (1000.0, 1030.0):
        first.look([report], now, changed=bool(first.exported.events))
    first.save()
    second = Process(tmp_path / "state")
    second.look([report], 1060.0)
    assert [event.change for event in first.exported.events] == []
    assert second.exported.events == ()
    observed = f'rankscope_job_observed_gpu_seconds_total{{job_id="{JOB}"}} '
    assert observed + "480.0" in second.exported.text()
    second.look([report], 1090.0, changed=True)
    assert observed + "960.0" in second.exported.text()
    second.look([replace(report, incidents=())], 1120.0)
    assert [event.change for event in second.exported.events] == ["over"]


def test_an_incident_is_kept_at_once_and_what_does_not_change_now_and_then(report, tmp_path):
    path = tmp_path / "state"
    watch = Process(path)
    watch.look([report], 1000.0)
    kept = path.read_bytes()
    watch.look([report], 1030.0)
    assert path.read_bytes() == kept, f"nothing changed for {SAVE_SECONDS} s"
    watch.look([replace(report, incidents=())], 1060.0, changed=True)
    assert path.read_bytes() != kept


def test_what_an_evaluation_left_half_done_is_not_kept(report, tmp_path):
    path = tmp_path / "state"
    watch = Process(path)
    watch.look([report], 1000.0)
    kept = path.read_bytes()
    watch.memory.begin(watch.exported, watch.followed)
    watch.save()
    assert path.read_bytes() == kept


def test_a_watch_that_takes_over_reads_what_the_other_one_kept(report, tmp_path):
    standing_by, leading = Process(tmp_path / "state"), Process(tmp_path / "state")
    standing_by.look([], 900.0)
    standing_by.memory.forget()
    leading.look([report], 1000.0, changed=True)
    standing_by.save()
    standing_by.look([report], 1030.0)
    assert standing_by.exported.events == (), "the other one told of it"


@pytest.fixture(scope="module")
def document(tmp_path_factory, report):
    """A file with three jobs, the newest one first."""
    path = tmp_path_factory.mktemp("kept") / "state"
    watch = Process(path)
    shown = next(looks(running(SLOW_FOR_EVER), 60.0))
    for name in ("a", "b", "c"):
        watch.look([report], 1000.0, shown, name)
    watch.save()
    return path.read_bytes()


def started(path, **limits):
    watch = Process(path, **limits)
    watch.memory.begin(watch.exported, watch.followed)
    return watch


def names(watch):
    return [name for name, _ in watch.followed.jobs()]


def test_jobs_come_back_in_the_order_in_which_they_were_seen(document, tmp_path):
    (tmp_path / "state").write_bytes(document)
    watch = started(tmp_path / "state")
    assert (names(watch), watch.followed.polls, watch.said) == (["a", "b", "c"], 3, [])


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_of_a_file_that_is_cut_short_what_is_whole_is_used_and_the_rest_said(
    document, tmp_path, share
):
    (tmp_path / "state").write_bytes(document[: int(share * len(document))])
    watch = started(tmp_path / "state")
    assert names(watch) == ["a", "b", "c"][3 - len(names(watch)) :]
    assert any("truncated" in one for one in watch.said)


CUT = b"rankscope watch st"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: b"", "does not begin like the state of a watch"),
        (lambda _: b"\x00" * 4096, "does not begin"),
        (lambda _: b"[" * 100_000, "does not begin"),
        (lambda whole: whole.replace(b'"version":1,', b'"version":2,', 1), "of version 2"),
        (lambda whole: whole.replace(FORMAT.encode(), CUT, 1), "does not begin"),
    ],
)
def test_a_file_that_is_no_state_is_said_and_begun_anew(document, tmp_path, made, said):
    path = tmp_path / "state"
    path.write_bytes(made(document))
    watch = started(path)
    assert (names(watch), len(watch.said)) == ([], 1)
    assert said in watch.said[0]
    watch.look([], 1.0)
    watch.save()
    assert FileStore(path).read().problems == ()


def test_a_job_whose_state_makes_no_sense_costs_no_other(document, tmp_path):
    lines = document.split(b"\n")
    place = next(n for n, one in enumerate(lines) if one.startswith(b'{"part":"job"'))
    bad = json.loads(lines[place])
    bad["value"]["state"]["object"] = "os.system"
    lines[place : place + 1] = [json.dumps(bad).encode(), b"{]"]
    (tmp_path / "state").write_bytes(b"\n".join(lines))
    watch = started(tmp_path / "state")
    assert names(watch) == ["a", "b"]
    assert any("job 'c' starts again" in one for one in watch.said)
    assert any("1 of its lines" in one for one in watch.said)


@pytest.mark.parametrize(
    "value",
    [None, [], {"lost": 3}, {"lost": {"a": {"x": -1}}, "observed": {"a": 1}}, {"lives": 3}],
)
def test_sums_that_make_no_sense_are_said_and_begin_anew(value, tmp_path):
    FileStore(tmp_path / "state").write([Part("watch", "", value)], 1.0)
    watch = started(tmp_path / "state")
    assert ["are invalid" in one for one in watch.said] == [True]
    assert "rankscope_watch_failed_evaluations_total 0.0" in watch.exported.text()


def test_parts_of_others_are_left_alone(tmp_path):
    FileStore(tmp_path / "state").write([Part("completions", "team/job", [1])], 1.0)
    assert started(tmp_path / "state").said == []


def test_what_finds_no_room_is_left_out_the_longest_gone_first_and_said(document, tmp_path):
    (tmp_path / "state").write_bytes(document)
    room = int(len(document) * 0.8)
    watch = Process(tmp_path / "small", most_bytes=room)
    full = started(tmp_path / "state")
    watch.exported, watch.followed = full.exported, full.followed
    watch.memory.end(watch.exported, watch.followed, changed=True)
    assert (tmp_path / "small").stat().st_size <= room
    why = "too large to be saved, or hold values that cannot be"
    assert watch.said == [f"1 parts of the state of jobs are {why}"]
    assert names(started(tmp_path / "small")) == ["b", "c"]


def test_a_file_that_grew_beyond_all_bounds_is_not_read(document, tmp_path):
    (tmp_path / "state").write_bytes(document)
    with pytest.raises(StoreError, match="more than 1000 bytes"):
        FileStore(tmp_path / "state", most_bytes=1000).read()


def test_a_file_that_cannot_be_written_is_said_once_and_ends_nothing(tmp_path):
    watch = Process(tmp_path / "nowhere" / "state")
    for now in (1.0, 2.0):
        watch.look([], now, changed=True)
    assert len(watch.said) == 1
    assert "cannot be saved" in watch.said[0]
    (tmp_path / "nowhere").mkdir()
    watch.look([], 3.0, changed=True)
    assert watch.said[1:] == ["the state of jobs can be saved again"]


def test_the_file_is_private_and_nobodys_link_is_followed(tmp_path):
    path = tmp_path / "state"
    FileStore(path).write([], 1.0)
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / "state.new").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError):
        FileStore(path).write([], 2.0)
    assert (tmp_path / "victim").read_text() == "theirs"
    assert FileStore(path).read().saved_unix_seconds == 1.0
    assert VERSION == 1


STEP = {"compute_ns": 60_000_000, "sync_ns": 70_000_000, "step_ns": 142_000_000}


def rings(folder):
    folder.mkdir()
    return [
        RingWriter(folder, f"{rank}-1.ring", capacity=256, rank=rank, local_rank=rank)
        for rank in range(4)
    ]


def go_on(writers, steps, slow_by=0):
    for rank, writer in enumerate(writers):
        more = slow_by if rank == 2 else 0
        writer.step(
            steps, **(STEP | {"compute_ns": 60_000_000 + more, "sync_ns": 70_000_000 - more})
        )


def watched_once(url, state, capsys):
    arguments = ("--agent", url, "--once", "--since", "9000d", "--state", str(state))
    assert watch_command.run(watch_command_options(*arguments)) == 0
    return capsys.readouterr()


def test_a_real_agent_is_watched_on(tmp_path, capsys):
    writers = rings(tmp_path / "rings")
    go_on(writers, 120, slow_by=40_000_000)
    with running_agent(tmp_path, *OWN_RINGS_ALONE) as agent:
        first = watched_once(agent.url, tmp_path / "state", capsys)
        assert "opened" in first.err
        go_on(writers, 60, slow_by=40_000_000)
        second = watched_once(agent.url, tmp_path / "state", capsys)
        assert "opened" not in second.err
        go_on(writers, 200)
        third = watched_once(agent.url, tmp_path / "state", capsys)
        assert "over, recovered at" in third.err
    for page in (first.out, second.out):
        assert 'kind="gpu_compute",owned_by="platform",severity' in page


def series(url, prefix="rankscope_finding_"):
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        page = answer.read().decode()
    return [line for line in page.splitlines() if line.startswith(prefix)]


def newest(url):
    """Return when the newest evaluation was."""
    (line,) = series(url, "rankscope_watch_last_evaluation_timestamp_seconds{")
    return float(line.split()[1])


def awaited(what, holds):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)
    return found


def test_a_watch_that_is_ended_and_started_goes_on(tmp_path):
    """Two processes, one after the other, ended as Kubernetes ends a container."""
    go_on(rings(tmp_path / "rings"), 120, slow_by=40_000_000)
    analyzers = Path(watch_command.__file__).parents[2]
    path = f"{analyzers}:{Path(analyzers).parent / 'agent'}"
    told, pages = [], []
    with running_agent(tmp_path, *OWN_RINGS_ALONE) as agent:
        command = [
            sys.executable, "-m", "rankscope_analyzers", "watch", "--agent", agent.url,
            "--interval=1s", "--since=9000d", "--hang-after=1d", "--web.listen-address=127.0.0.1:0",
            f"--state={tmp_path / 'state'}",
        ]  # fmt: skip
        for turn in range(2):
            log = tmp_path / f"log-{turn}"
            with log.open("wb") as err:
                watch = subprocess.Popen(
                    command, stderr=err, env=agent_environment(PYTHONPATH=path)
                )
            try:
                url = awaited("its address", lambda log=log: _address(log))
                pages.append(awaited("a finding", lambda url=url: series(url)))
                first = newest(url)
                awaited("another evaluation", lambda url=url, first=first: newest(url) > first)
            finally:
                watch.send_signal(signal.SIGTERM)
                assert watch.wait(PATIENCE_SECONDS) == 0
            told.append(log.read_text())
    assert "opened" in told[0]
    assert "opened" not in told[1]
    first, second = ([line for line in page if "_seen_" not in line] for page in pages)
    assert first == second
    assert not list(tmp_path.glob("state.new"))
    assert os.access(tmp_path / "state", os.R_OK)


def _address(log):
    lines = [line for line in log.read_text().splitlines() if "listening on " in line]
    return lines[0].rpartition("listening on ")[2] if lines else ""
