"""The last that is still taken and the first that is not, of each limit on ranks and rings."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flight_servers import dump, entry
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.flight_recorder import collector as flight
from rankscope_agent.sources.flight_recorder import worker_server
from rankscope_agent.sources.flight_recorder.budget import Budget
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import Launches, read_launches
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.topology.collector import TopologyCollector, adapters
from rankscope_agent.sources.topology.distance import distance
from rankscope_agent.sources.topology.nvidia_gpus import nvidia_gpus
from rankscope_agent.sources.training import cursor as ring_cursor
from rankscope_agent.sources.training import ends, files, ring_directory, ring_rows
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.follower import RingFollower, _RefusalLog
from rankscope_agent.sources.training.format import RingError, parse_header, parse_run, seq_in_slot
from rankscope_agent.sources.training.listing import RingListings
from rankscope_agent.sources.training.naming import NO_PODS
from rankscope_agent.sources.training.read_turns import ReadTurns
from rankscope_agent.sources.training.scan_turns import ScanTurns
from rankscope_agent.sources.training.span_totals import SpanTotals
from rankscope_agent.sources.training.spans import Span, _is_plausible
from rankscope_agent.sources.training.starts import RankStart, Surroundings, _began
from rankscope_agent.sources.training.totals import Histogram
from rdma_files import write
from ring_writer import RingWriter, header_page, record_bytes
from standing_clock import Clock
from test_flight_recorder_collector import make
from test_starvation import S, node, starved
from test_topology import GPU, at

__all__ = ["node"]

NS = 10**9
NOW = 1_795_272_662_623_976_391


@pytest.mark.parametrize(("cost", "due"), [(1.0, True), (1.01, False)])
def test_a_look_may_cost_a_core_second_at_first(cost, due):
    assert Budget(119.9).due(120.0, cost) is due


@pytest.mark.parametrize(("cost", "due"), [(1.0, True), (1.01, False)])
def test_three_core_seconds_are_saved_up(cost, due):
    budget = Budget(0.0)
    assert budget.due(959.9, 1.0)
    budget.spend(2.0)
    assert budget.due(960.0, cost) is due


def test_a_rank_that_was_not_asked_yet_is_taken_to_cost_a_tenth_of_a_second(tmp_path):
    collector = make(tmp_path, FlightWindows(), Clock())
    assert collector._state("new").cost_seconds == 0.1


@pytest.fixture
def asking(tmp_path, monkeypatch):
    clock = Clock()
    made = make(tmp_path, FlightWindows(), clock)
    made.now = clock
    monkeypatch.setattr(made, "_find", lambda now: made.finds.append(now))
    made.finds = []
    return made


def test_sockets_are_looked_for_every_five_seconds(asking):
    asking._pulls = 1
    for later in (0.0, 4.9, 0.2):
        asking.now.now += later
        list(asking.collect())
    assert asking.finds == [1000.0, pytest.approx(1005.1)]


def test_a_run_lasts_six_seconds_and_one_answer_two(asking, monkeypatch):
    clock, given = Clock(), []

    def pull(socket, seconds):
        given.append(seconds)
        clock.now += 1.5

    monkeypatch.setattr(flight, "time", clock)
    monkeypatch.setattr(asking, "_pull", pull)
    asking._ask([f"s{index}" for index in range(6)], 0.0)
    assert given == [2.0, 2.0, 2.0, 1.5]


def test_a_socket_that_is_gone_is_asked_again_after_five_seconds(asking, monkeypatch):
    def gone(socket, seconds):
        raise FileNotFoundError

    monkeypatch.setattr(asking, "_pull", gone)
    asking._ask(["s"], 1000.0)
    assert asking._states["s"].left_until == 1005.0


def test_failures_double_their_pause_from_half_a_minute_to_an_hour(asking):
    state = flight._SocketState()
    socket = SimpleNamespace(directory=SimpleNamespace(path=files.Path("/")), name="s")
    pauses = []
    for _ in range(9):
        asking._note_failure(socket, state, FlightError("timeout", "x"), 0.0)
        pauses.append(state.left_until)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_256_sockets_are_asked(tmp_path, monkeypatch):
    made = make(tmp_path, FlightWindows(), Clock())
    one = flight.RankSocket(None, "a.sock", None, "a/b", 0, 0, ("u", ""))
    sockets = [replace(one, rank=index) for index in range(300)]
    monkeypatch.setattr(made, "_sockets_of", lambda *of: sockets)
    made._find(0.0)
    assert len(made._sockets) == 256


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({"duration_ms": 86_400_000.0}, True),
        ({"duration_ms": 86_400_001.0}, False),
        ({"time_created_ns": 4_102_444_800 * NS}, True),
        ({"time_created_ns": 4_102_444_800 * NS + 1}, False),
        ({"collective_seq_id": 1 << 48}, True),
        ({"collective_seq_id": (1 << 48) + 1}, False),
    ],
)
def test_an_entry_has_limits_of_time_and_number(changed, taken):
    read = read_launches(dump(entry(1, NOW, profiling_name="nccl:all_reduce", **changed)))
    assert read.skipped == (not taken)


@pytest.mark.parametrize(("values", "read"), [(512_000, True), (512_001, False)])
def test_a_dump_has_64_values_for_each_of_8000_entries_at_most(values, read):
    frame = b'{"version":"2.1","entries":[]'
    marks = frame.count(b",") + frame.count(b"{") + frame.count(b"[") + 3
    body = frame + b',"x":[1' + b",1" * (values - marks + 1) + b"]}"
    assert sum(body.count(mark) for mark in (b",", b"{", b"[")) == values
    if read:
        assert read_launches(body).launches == ()
        return
    with pytest.raises(FlightError):
        read_launches(body)


def test_windows_are_kept_for_an_hour():
    windows = FlightWindows()
    windows.add("a/b", 0, 0, 2 * NS, Launches("gloo", (), True, 0))
    windows.add("c/d", 0, 0, 3602 * NS, Launches("gloo", (), True, 0))
    assert len(windows.since(None, 0.0)) == 2
    windows.add("e/f", 0, 0, 3603 * NS, Launches("gloo", (), True, 0))
    assert len(windows.since(None, 0.0)) == 2


def test_a_list_of_handlers_has_64_kibibytes_at_most(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(worker_server, "_check_socket", lambda descriptor, owner: None)
    monkeypatch.setattr(
        worker_server, "_ask", lambda path, order, limit, *rest: asked.append(limit) or b"[]"
    )
    (tmp_path / "s").touch()
    directory = os.open(tmp_path, os.O_RDONLY)
    worker_server.fetch(directory, "s", None, print)
    os.close(directory)
    assert asked == [64 << 10]


# waiting for CPUs


class Listing(list):
    """What os.scandir gives: entries of these names."""

    def __init__(self, names):
        super().__init__(SimpleNamespace(name=name) for name in names)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_a_rank_has_64_workers_that_are_watched(node):
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    for worker in range(50, 115):
        node.thread(worker, worker, S, S, parent=40)
    node.look()
    followed = node.collector._followed["team/job", 0]
    assert len(followed.workers) == 64


def test_64_ranks_are_watched(node):
    for rank in range(65):
        node.rank(rank, 100 + rank)
        node.thread(100 + rank, 100 + rank, S, 0)
    assert len([key for key in node.look() if key[0] == starved(0)[0]]) == 64


@pytest.mark.parametrize(("before", "seen"), [(1 << 20, True), ((1 << 20) + 10, False)])
def test_a_mebibyte_is_read_of_the_table_of_locks(node, before, seen):
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    path = node.procfs / "locks"
    path.write_text(path.read_text().strip().rjust(before, "\n"))
    if seen:
        assert starved(0) in node.look()
        return
    with pytest.raises(NoData, match="another PID namespace"):
        node.look()


def test_65536_processes_are_looked_at(node, monkeypatch):
    looked_at = []
    monkeypatch.setattr(os, "scandir", lambda root: Listing(map(str, range(70_000))))
    monkeypatch.setattr(
        "rankscope_agent.sources.starvation.collector.read_text",
        lambda path: looked_at.append(path) or "",
    )
    node.collector._children({1})
    assert len(looked_at) == 65_536


def test_a_node_without_ranks_in_sight_is_looked_at_again_after_five_seconds(node):
    with pytest.raises(NoData):
        node.look()
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    with pytest.raises(NoData):
        node.look(4.9)
    assert starved(0) in node.look(0.2)
    node.rank(1, 41)
    node.thread(41, 41, S, 0)
    assert starved(1) not in node.look(29.8)
    assert starved(1) in node.look(0.3)


# topology


def test_the_topology_is_looked_at_once_a_minute(tmp_path):
    clock, looks = Clock(), []
    collector = TopologyCollector(tmp_path, lambda: looks.append(1) or {}, clock)
    for later in (0.0, 59.9, 0.2):
        clock.now += later
        with pytest.raises(NoData, match="no GPU"):
            collector.collect()
    assert len(looks) == 2


def test_64_gpus_and_adapters_are_looked_at(tmp_path, monkeypatch):
    for index in range(65):
        text = f"GPU UUID: GPU-{index:08x}-0000-0000-0000-000000000000"
        write(tmp_path / f"driver/nvidia/gpus/0000:{index:02x}:00.0/information", text)
        (tmp_path / f"class/infiniband/mlx5_{index:02d}").mkdir(parents=True)
    assert len(nvidia_gpus(tmp_path)) == 64
    monkeypatch.setattr("rankscope_agent.sources.topology.collector.locate", lambda place: place)
    assert len(adapters(tmp_path)) == 64


@pytest.mark.parametrize(
    ("below", "way"), [("0000:1b:00.0", "PIX"), ("0000:1b:00.0/0000:1c:00.0", "PXB")]
)
def test_devices_two_steps_below_a_switch_share_it(below, way):
    assert distance(GPU, at(f"pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/{below}")) == way


# rings


def header_error(**fields):
    try:
        parse_header(header_page(**fields))
    except RingError as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("capacity", 65_536),
        ("rank", 1_048_575),
        ("local_rank", 1_048_575),
        ("pid", 1 << 22),
        ("created_unix_ns", 4_102_444_800 * NS),
    ],
)
def test_fields_of_a_rings_header_have_limits(field, most):
    assert header_error(**{field: most}) is None
    assert header_error(**{field: most + 1}) is not None


def test_refused_rings_are_named_64_times_in_ten_minutes(caplog):
    log = _RefusalLog()
    refusal = (files.Path("/r"), RingError("symlink", "x"))

    def named(count, now):
        caplog.clear()
        log.write([refusal] * count, now)
        return sum("is refused" in line for line in caplog.messages)

    assert named(100, 1000.0) == 64
    assert named(1, 1599.9) == 0
    assert named(1, 1600.1) == 1


@pytest.mark.parametrize("count", [1023, 1025])
def test_volumes_of_1024_pods_are_looked_at(tmp_path, monkeypatch, count):
    (tmp_path / "pods").mkdir()

    monkeypatch.setattr(os, "scandir", lambda root: Listing(map(str, range(count))))
    monkeypatch.setattr(os.path, "lexists", lambda path: True)
    assert len(files.pod_directories(tmp_path)) == min(count, 1024)


def test_256_users_have_directories_among_4096_names(tmp_path, monkeypatch):
    names = [str(index) for index in range(300)]

    monkeypatch.setattr(os, "scandir", lambda root: Listing(names))
    assert len(files.own_directories(tmp_path)) == 1 + 256
    names[:] = ["x"] * 4095 + ["7"]
    assert len(files.own_directories(tmp_path)) == 2
    names[:] = ["x"] * 4096 + ["7"]
    assert len(files.own_directories(tmp_path)) == 1


@pytest.mark.parametrize(("overruns", "reads"), [(8, 9), (9, 9)])
def test_a_writer_that_overtakes_eight_times_is_left_for_now(monkeypatch, overruns, reads):
    run = ring_cursor.Run([], 0, 0, "overrun", 100)
    looks = []

    def look(self, descriptor, records):
        looks.append(records)
        return run if len(looks) <= overruns else run._replace(stopped_by="head")

    monkeypatch.setattr(ring_cursor.Cursor, "_look", look)
    monkeypatch.setattr(ring_cursor.Cursor, "_catch_up", lambda self, *of: None)
    cursor = ring_cursor.Cursor(4, 1)
    list(cursor.read(0, 1 << 20))
    assert len(looks) == reads
    assert cursor.at_newest is (overruns <= 8)
    assert looks[:2] == [32, 1024]


def test_who_closes_rings_all_the_time_is_looked_at_fifty_times_a_second(monkeypatch):
    pauses = []

    class Poll:
        def register(self, *of):
            pass

        def poll(self, milliseconds=None):
            if milliseconds is None:
                return [(7, 1)] if len(pauses) == 2 else [(5, 1)]
            pauses.append(milliseconds)
            return []

    monkeypatch.setattr(ends.select, "poll", Poll)
    state = SimpleNamespace(descriptor=5, stop=7, take=lambda: None, close=lambda: None)
    ends._follow(state)
    assert pauses == [20.0, 20.0]


@pytest.mark.parametrize("bound", [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0])
def test_durations_up_to_a_bound_are_in_its_bucket(bound):
    counts = Histogram()
    counts.observe([round(bound * NS), round(bound * NS) + 1])
    buckets = dict(counts.value().buckets)
    assert buckets[bound] == 1
    assert counts.value().count == 2


def test_the_first_page_waits_five_seconds_for_the_names_of_pods(tmp_path):
    waits = []
    pods = PodDirectory()
    pods.wait = waits.append
    collector = TrainingCollector(tmp_path / "none", tmp_path, "n", Clock(), pods)
    with pytest.raises(NoData):
        next(collector.collect())
    assert waits == [5.0]


def test_a_ring_may_give_512_records_in_its_turn(tmp_path):
    writer = RingWriter(tmp_path, capacity=1024)
    writer.step(1024)
    given = []

    class Turns(ReadTurns):
        def take(self, rings, read):
            for ring in rings:
                read(ring)
                given.append(ring.cursor.next_seq - 1)

    list(TrainingCollector(tmp_path, tmp_path / "kubelet", "n", Clock(), turns=Turns()).collect())
    assert given == [512]
    writer.end()


@pytest.mark.parametrize(("cpu", "waited", "read"), [(0.04, 0.0, 3), (0.0, 0.4, 3), (0.03, 0.2, 4)])
def test_a_run_reads_for_a_tenth_of_a_second_of_cpu_time_and_a_second_in_all(cpu, waited, read):
    clock, cpu_clock, served = Clock(), Clock(), []
    ring = SimpleNamespace(holder=("u", ""))

    def serve(one):
        clock.now, cpu_clock.now = clock.now + waited, cpu_clock.now + cpu
        return not served.append(one)

    ReadTurns(cpu_clock, clock).take([SimpleNamespace(ring=ring, turn=0)], serve)
    assert len(served) == read


@pytest.mark.parametrize(("size", "kept"), [(255, False), (256, True)])
def test_listings_of_256_files_are_kept_once_they_are_two_seconds_old(tmp_path, size, kept):
    for number in range(size):
        (tmp_path / f"{number}.ring").write_bytes(bytes(4096))
    directory = files.RingDirectory(tmp_path, (), "")
    changed = tmp_path.stat().st_ctime
    listings = RingListings()
    ((_, _, newest),) = listings.newest([directory], changed + 1.9)
    assert len(newest) == 128
    assert not any(listing.settled for listing in listings._kept.values())
    list(listings.newest([directory], changed + 2.1))
    assert [listing.settled for listing in listings._kept.values()] == [True] * kept


def test_directories_are_scanned_for_a_quarter_of_a_second(tmp_path, monkeypatch):
    timer, scanned = Clock(0.0), []

    def scan(directory, *of):
        scanned.append(directory)
        timer.now += 0.12
        return ()

    monkeypatch.setattr(ring_directory.FollowedDirectory, "scan", scan)
    for user in range(5):
        (tmp_path / str(user)).mkdir()
    RingFollower(tmp_path, tmp_path / "kubelet", timer=timer, cpu_clock=timer).scan(0.0)
    assert len(scanned) == 3


@pytest.mark.parametrize(("later", "stride"), [(119.0, 1), (121.0, 2049)])
def test_clocks_may_have_stepped_back_by_two_minutes(monkeypatch, later, stride):
    starts = {5000: 9000.0, 3976: 9000.0, 2952: 9000.0, 1928: 9000.0, 904: 9000.0}
    starts[2952] = 1000.0 - later

    def record(descriptor, seq, capacity):
        return SimpleNamespace(start_unix_ns=starts[seq] * NS)

    monkeypatch.setattr(ring_rows, "read_record", record)
    first = ring_rows._first_seq(0, 5000, 65_536, 1000.0)
    assert (first == 2952) is (stride > 1)


@pytest.mark.parametrize(("step_ns", "taken"), [(7 * 86_400 * NS, 1), (7 * 86_400 * NS + 1, 0)])
def test_a_step_lasts_a_week_at_most(step_ns, taken):
    assert len(parse_run(record_bytes(1, step_ns=step_ns), 1, 16).records) == taken


@pytest.mark.parametrize(("seq", "known"), [(1 << 48, True), ((1 << 48) + 1, False)])
def test_a_record_has_a_number_of_48_bits(seq, known):
    slot = (seq - 1) % 16
    assert (seq_in_slot(record_bytes(seq), slot, 16) == seq) is known
    assert (parse_run(record_bytes(seq), seq - 16, 16).stopped_by == "overrun") is known


def test_all_of_a_records_check_is_compared():
    assert seq_in_slot(record_bytes(1 << 31), ((1 << 31) - 1) % 16, 16) == 1 << 31


def test_files_that_are_no_rings_are_looked_at_again_after_a_minute(tmp_path):
    place = files.RingDirectory(tmp_path, (), "")
    made = ring_directory.FollowedDirectory(place, NO_PODS, EndWatch())
    status = tmp_path.stat()
    now = status.st_ctime + 10.0
    for _ in range(2):
        made._is_unchanged(status, now)
    made._plan_next_look(now)
    assert made._is_unchanged(status, now + 59.9)
    assert not made._is_unchanged(status, now + 60.1)


@pytest.mark.parametrize("turns", [ReadTurns(Clock(), Clock()), ScanTurns(Clock(), Clock())])
def test_a_charge_below_a_microsecond_is_forgotten(turns):
    turns._charged = {"a": 2.1e-6, "b": 1.9e-6}
    turns.take([], None, *([1.0] if isinstance(turns, ScanTurns) else []))
    assert turns._charged == {"a": 1.05e-6}


def span(seq=1, **changed):
    fields = {"start_unix_ns": NS, "duration_ns": NS, "blocked_ns": 0, "size": 0, "step": 1}
    fields |= {"target": 0, "flags": 8, "kind": 1, "outcome": 1, "reserved": 0, "reserved_too": 0}
    return Span(seq=seq, check=4 * seq + 1, **fields | changed)


@pytest.mark.parametrize(("size", "known"), [(1 << 60, True), ((1 << 60) + 1, False)])
def test_no_checkpoint_is_larger_than_an_exbibyte(size, known):
    assert _is_plausible(span(size=size), 0) is known


@pytest.mark.parametrize(("others", "writes"), [(63, 64), (64, 66)])
def test_64_spans_are_known_when_a_processs_next_ring_repeats_them(others, writes):
    totals = SpanTotals()
    totals.add([span(1 + number) for number in range(others + 1)], 1)
    totals.add([span(1)], 2)
    assert totals.writes == writes


@pytest.mark.parametrize(("step", "told"), [(0xFFFFFFFE, 0xFFFFFFFE), (0xFFFFFFFF, 0)])
def test_the_step_of_a_checkpoint_may_be_unknown(step, told):
    totals = SpanTotals()
    totals.add([span(step=step)], 1)
    assert totals.last_success_step(1) == told


@pytest.mark.parametrize(
    ("began", "known"), [(998.0, True), (997.9, False), (1102.0, True), (1102.1, False)]
)
def test_a_process_may_seem_to_start_two_seconds_before_its_pod_or_after_its_ring(began, known):
    start = RankStart()
    start._begin(began, 1100 * NS)
    assert _began(start, Surroundings(pod_created=1000.0)) == (began if known else None)
