"""The last that is still taken and the first that is not, of what is read of processes and jobs."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope_agent.contract import flight_dump
from rankscope_agent.contract.job_names import JobNameError
from rankscope_agent.contract.stalls import groups_of, readable
from rankscope_agent.sources.flight_recorder import worker_server
from rankscope_agent.sources.flight_recorder.launches import Launch, Launches
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.flight_recorder.worker_server import FlightError
from rankscope_agent.sources.pods.job_owners import JobOwners
from rankscope_agent.sources.pods.process_scan import ProcessScanner
from rankscope_agent.sources.rdma.names import rule_for
from rankscope_agent.sources.stalls import rank_queries, stall_source
from standing_clock import Clock
from test_flight_recorder_collector import TEAM
from test_stalls import dump, entry, quiet_ring, source

RINGS = Path("/run/rankscope")
POD = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
RANK = b"RANK=1\0WORLD_SIZE=2\0LOCAL_RANK=1\0"
IN_POD = f"0::/kubepods/pod{POD}/x\n"


def process(root, *, environ=RANK, cgroup=IN_POD, status="", boot="btime 1700000000\n"):
    """Make a procfs with one process, and return what looks at it."""
    folder = root / "7"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environ").write_bytes(environ)
    (folder / "cgroup").write_text(cgroup)
    (folder / "cmdline").write_bytes(b"python\0")
    (folder / "status").write_text(status)
    (folder / "stat").write_text(f"7 (python) S {'0 ' * 18}500 0\n")
    (root / "stat").write_text(boot)
    return ProcessScanner(root, lambda placement: {}, RINGS)


@pytest.mark.parametrize(("looks", "found"), [(1, 1), (2, 0)])
def test_a_process_that_was_no_rank_twice_is_not_read_a_third_time(tmp_path, looks, found):
    scanner = process(tmp_path, environ=b"HOME=/root\0")
    for _ in range(looks):
        assert scanner.scan().ranks == ()
    process(tmp_path)
    assert len(scanner.scan().ranks) == found


@pytest.mark.parametrize(("before", "uid"), [(0, POD), (1, "")])
def test_16_kibibytes_are_read_of_a_processs_cgroups(tmp_path, before, uid):
    text = IN_POD.rstrip()[:-2].rjust(16384 + before)
    (found,) = process(tmp_path, cgroup=text).scan().ranks
    assert found.placement.pod_uid == uid


@pytest.mark.parametrize(("more", "user"), [(0, 1234), (2, None)])
def test_16_kibibytes_are_read_of_a_processs_status(tmp_path, more, user):
    text = "Groups:\t".ljust(16384 - 14 + more) + "\nUid:\t0\t1234\t0"
    assert len(text) == 16384 + more
    (found,) = process(tmp_path, status=text).scan().ranks
    assert found.user == user


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
def test_a_mebibyte_is_read_of_when_the_node_was_booted(tmp_path, more, known):
    end = "\nbtime 1700000000"
    (found,) = process(tmp_path, boot="i" * ((1 << 20) - len(end) + more) + end).scan().ranks
    assert found.started_unix_seconds == (
        1_700_000_005 if known else 170_000_005
    )  # without the last digit


@pytest.mark.parametrize(("jobs", "remembered"), [(4096, True), (4097, False)])
def test_the_owners_of_4096_jobs_are_remembered(tmp_path, jobs, remembered):
    owners = JobOwners(tmp_path, Clock().monotonic)
    for number in range(jobs):
        owners.check_process(str(number), 1000, "")
    if remembered:
        with pytest.raises(JobNameError):
            owners.check_process("0", 1001, "")
    else:
        owners.check_process("0", 1001, "")


@pytest.mark.parametrize(("ranks", "asked"), [(64, 64), (65, 64)])
def test_64_ranks_are_asked_where_they_stand(tmp_path, ranks, asked):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "locks").write_text("")
    for rank in range(ranks):
        quiet_ring(tmp_path, f"{rank}-8.ring", rank=rank, world_size=ranks)
    assert len(source(tmp_path, procfs=tmp_path / "proc").stalls(None)) == asked


@pytest.mark.parametrize(("more", "read"), [(0, True), (1, False)])
def test_an_answer_of_a_worker_server_has_four_mebibytes_at_most(more, read):
    body = b'{"version": "2.10", "entries": []}'.ljust((4 << 20) + more)
    if read:
        assert flight_dump.read(body, flight_dump.ANSWER_LIMITS).version == "2.10"
        return
    with pytest.raises(flight_dump.DumpError):
        flight_dump.read(body, flight_dump.ANSWER_LIMITS)


def test_the_64_process_groups_that_were_used_last_are_kept():
    calls = [entry(1 + n, 10**18 + n, process_group=[str(n), "x"]) for n in range(65)]
    found = groups_of(flight_dump.read(dump(*calls)))
    assert {group.name for group in found} == {str(n) for n in range(1, 65)}


@pytest.mark.parametrize(("tensors", "kept"), [(256, 256), (257, 256)])
def test_256_tensors_of_16_dimensions_are_kept_of_a_collective(tensors, kept):
    one = entry(1, 10**18) | {
        "input_sizes": [[2] * 17] * tensors, "input_dtypes": ["Float"] * tensors,
    }  # fmt: skip
    (found,) = flight_dump.read(dump(one)).entries
    assert len(found.input_sizes) == len(found.input_types) == kept
    assert {len(shape) for shape in found.input_sizes} == {16}


@pytest.mark.parametrize(
    ("name", "factor", "ceiling"),
    [
        ("port_xmit_data", 4, 2**32 - 1),
        ("port_rcv_data", 4, 2**32 - 1),
        ("port_xmit_packets", 1, 2**32 - 1),
        ("port_rcv_packets", 1, 2**32 - 1),
        ("port_xmit_wait", 1, 2**32 - 1),
        ("link_downed", 1, 255),
        ("link_error_recovery", 1, 255),
        ("symbol_error", 1, 65535),
        ("local_link_integrity_errors", 1, 15),
        ("multicast_xmit_packets", 1, None),
    ],
)
def test_a_port_counts_words_as_four_bytes_and_all_else_as_it_is(name, factor, ceiling):
    rule = rule_for("counters", name)
    assert (rule.factor, rule.ceiling) == (factor, ceiling)


def of_agent(**changed):
    """Return what an agent says of a rank that stands in a group of these ranks."""
    group = {"name": "0", "description": "", "ranks": changed.pop("ranks", [0]), "enqueued": 1}
    said = {
        "job_id": "team/llm",
        "rank": 0,
        "world_size": 8,
        "taken_unix_seconds": 1e9,
        "quiet_seconds": 60.0,
        "stepped": True,
        "state": "R",
        "cpu_seconds": 1.0,
        "groups": [{**group, "calls": []}],
        "recorder": "",
        "stack": [],
        "no_stack": "",
        **changed,
    }
    return readable([said])


@pytest.mark.parametrize(("number", "known"), [((1 << 24) - 1, 1), (1 << 24, 0)])
@pytest.mark.parametrize("field", ["rank", "world_size"])
def test_an_agent_tells_of_ranks_below_2_to_the_24th(field, number, known):
    assert len(of_agent(**{field: number})) == known
    assert len(of_agent(ranks=[number])) == known


def test_200_000_members_of_a_group_are_kept():
    (found,) = of_agent(ranks=[0] * 200_001)
    assert len(found.groups[0].ranks) == 200_000


@pytest.mark.parametrize(("size", "read"), [(16 << 10, True), ((16 << 10) + 4097, False)])
def test_the_header_of_a_worker_servers_answer_ends_within_16_kibibytes(size, read):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: "
    near, far = socket.socketpair()
    with near, far:
        far.sendall(head + b"x" * (size - len(head) - 4) + b"\r\n\r\n{}")
        deadline = time.monotonic() + 20.0
        if read:
            assert worker_server._body(near, 1 << 20, deadline) == b"{}"
            return
        with pytest.raises(FlightError, match="no end of a header"):
            worker_server._body(near, 1 << 20, deadline)


def test_eight_ranks_are_asked_where_they_stand_at_once(tmp_path, monkeypatch):
    sizes = []

    class Pool:
        def __init__(self, size):
            sizes.append(size)

        def __enter__(self):
            return SimpleNamespace(map=map)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(stall_source, "ThreadPoolExecutor", Pool)
    quiet_ring(tmp_path)
    assert len(source(tmp_path).stalls(None)) == 1
    assert sizes == [8]


def test_a_rank_has_a_second_to_give_its_stack(monkeypatch):
    seconds = []
    monkeypatch.setattr(
        rank_queries, "ask", lambda question, what, limit: seconds.append(limit) or ()
    )
    rank_queries._stack(None)
    assert seconds == [1.0]


@pytest.mark.parametrize(("more", "kept"), [(0, 3), (1, 2)])
def test_512_000_launches_of_all_ranks_are_kept(more, kept):
    windows = FlightWindows()
    for at, count in enumerate((256_000, 256_000 + more), 1):
        launches = (Launch("0", "all_reduce", 1, at, -1),) * count
        windows.add(TEAM, "team/llm", at, 0, at + 1, Launches("nccl", launches, True, 0))
    assert windows.add(TEAM, "team/llm", 0, 0, 9, Launches("nccl", (), True, 0)) is not None
    assert len(windows.since(None, 0.0)) == kept
