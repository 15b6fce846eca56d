"""Limits of what is read: how long servers have, how much they answer, how much is asked for."""

from __future__ import annotations

import threading
from email.message import Message
from types import SimpleNamespace

import numpy as np
import pytest
from kubernetes.client.exceptions import ApiException

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake import (
    agent_pages,
    agent_stalls,
    agent_steps,
    clock_skew,
    cluster,
    job_ownership,
    job_pods,
    known_agents,
    kubernetes_api,
    log_files,
    log_sources,
    object_watch,
    page_history,
    prometheus_instances,
    prometheus_nodes,
    prometheus_steps,
)
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import AgentTimeouts
from rankscope_analyzers.intake.cluster import ClusterError, ForbiddenError, NodeAgents
from rankscope_analyzers.intake.deadline import Deadline
from rankscope_analyzers.intake.kubernetes_api import Answer, NoAnswerError
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus, PrometheusError
from rankscope_analyzers.intake.step_history import StepHistory, step_answer
from rankscope_analyzers.steps.job_records import SourceError


class Reader:
    """An answer of endless length that notes how much of it was read."""

    def __init__(self, most=1 << 62):
        self.headers, self.left, self.read_bytes, self.sizes = Message(), most, 0, []

    def read1(self, size):
        self.sizes.append(size)
        piece = bytes(min(size, self.left))
        self.left -= len(piece)
        self.read_bytes += len(piece)
        return piece

    def read(self, size):
        self.sizes.append(size)
        return b"{}"

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Entry:
    """Opens nothing, and notes by when answers had to be there."""

    scheme, shows = "http", False

    def __init__(self, answer=None):
        self.answer, self.deadlines = answer or Reader(2), []

    def open(self, request, deadline):
        self.deadlines.append(deadline)
        return self.answer


def test_an_agent_has_ten_seconds_for_a_byte_and_twenty_for_an_answer():
    entry = Entry()
    Agent("a:1", entry).body("/metrics", 10)
    (given,) = entry.deadlines
    assert (given.seconds, given.silence_seconds, given.connect_seconds) == (20.0, 10.0, 3.0)


def test_steps_may_take_an_agent_half_of_their_minute_to_begin_with():
    entry = Entry()
    Agent("a:1", entry).body("/api/v1/steps", 10, 60.0)
    assert (entry.deadlines[0].seconds, entry.deadlines[0].silence_seconds) == (60.0, 30.0)


def test_an_agent_answers_64_mib_and_is_read_in_pieces():
    entry = Entry(Reader())
    with pytest.raises(AgentError, match="more than 64 MiB"):
        Agent("a:1", entry).text("/metrics")
    assert 64 << 20 < entry.answer.read_bytes <= (64 << 20) + (1 << 16)
    assert set(entry.answer.sizes) == {1 << 16}


def test_prometheus_has_a_minute_for_a_byte_and_two_for_an_answer_of_a_gibibyte():
    entry = Entry()
    with pytest.raises(PrometheusError, match="not answer as Prometheus"):
        Prometheus("http://p", entry).instant("up", 1.0)
    (given,) = entry.deadlines
    assert (given.seconds, given.silence_seconds) == (120.0, 60.0)
    assert entry.answer.sizes == [(1 << 30) + 1]


@pytest.mark.parametrize(("points", "asked"), [(11_000, 1), (11_001, 0)])
def test_prometheus_gives_eleven_thousand_points(points, asked):
    entry = Entry()
    with pytest.raises(PrometheusError, match="not a matrix" if asked else "11000"):
        Prometheus("http://p", entry).range("up", 0.0, points - 1.0, 1.0)
    assert len(entry.deadlines) == asked


def test_a_lost_syn_may_be_repeated_and_a_dead_node_is_not_waited_for():
    assert Deadline(60.0).connect_seconds == 3.0


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("took", "late"), [(1.4, False), (1.6, True)])
def test_who_took_longer_than_a_second_and_a_half_is_late(took, late):
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = took
    timeouts.failed("http://a:1", "/metrics", given)
    following = timeouts.deadline("http://a:1", "/metrics", 20.0, 10.0)
    assert (following.seconds, following.connect_seconds) == ((6.0, 1.5) if late else (20.0, 3.0))


@pytest.mark.parametrize(("late", "seconds"), [(64, 6.0), (65, 3.0), (192, 2.0), (300, 1.5)])
def test_all_late_agents_together_add_six_seconds_to_a_look(late, seconds):
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = 5.0
    urls = [f"http://a:{number}" for number in range(late)]
    for url in urls:
        timeouts.failed(url, "/", given)
    timeouts.keep(urls)
    assert timeouts.deadline(urls[0], "/", 20.0, 10.0).seconds == seconds
    assert timeouts.deadline(urls[0], "/", 3.0, 1.0).seconds == pytest.approx(
        min(3.0, max(1.5, 1.8 / -(-late // 64)))
    )


@pytest.mark.parametrize(("late", "seconds"), [(32, 6.0), (33, 3.0), (300, 1.5)])
def test_where_fewer_are_asked_at_a_time_each_late_agent_has_less_time(late, seconds):
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = 5.0
    urls = [f"http://a:{number}" for number in range(late)]
    for url in urls:
        timeouts.failed(url, "/api/v1/stalls", given)
    timeouts.keep([*urls, *(f"http://b:{number}" for number in range(2048))])
    assert timeouts.deadline(urls[0], "/api/v1/stalls", 20.0, 10.0).seconds == seconds


def test_a_late_agent_is_waited_for_again_after_nine_short_looks_and_its_turn():
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = 5.0
    short = []
    for number in range(300):
        timeouts.failed(f"http://a:{number}", "/", given)
        looks = 0
        while timeouts.deadline(f"http://a:{number}", "/", 20.0, 10.0).seconds < 20.0:
            looks += 1
        short.append(looks)
    assert (min(short), max(short)) == (9, 17)


def test_an_api_server_has_less_time_once_addresses_are_known():
    asked = []

    def look_up(seconds):
        asked.append(seconds)
        return NodeAgents({"n": "http://a:1"})

    known = known_agents.KnownAgents(look_up, vouched=False)
    known.now()
    known.now()
    assert asked == [20.0, 10.0]


def test_an_agent_without_a_named_port_is_asked_at_its_default_one(monkeypatch):
    pod = {
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"nodeName": "n"},
        "status": {"podIP": "10.0.0.1"},
    }
    asked = []
    monkeypatch.setattr(cluster, "agent_pods", lambda *given: asked.append(given) or [pod])
    assert cluster.agents_of_cluster() == {"n": "http://10.0.0.1:9877"}
    assert asked[0][1] == 20.0


class Core:
    """Kubernetes' core API; notes what it is asked."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        def request(*given, **options):
            self.asked.append(options)
            return SimpleNamespace(data=b'{"items": []}')

        return request


def test_two_thousand_warnings_are_asked_for_and_pods_within_twenty_seconds(monkeypatch):
    core = Core()
    monkeypatch.setattr(cluster, "core_api", lambda access: core)
    cluster.warnings(None)
    cluster.agent_pods()
    cluster.pods_of("team")
    assert core.asked[0]["limit"] == 2000
    assert [options["_request_timeout"] for options in core.asked] == [20.0, 20.0, 20.0]


@pytest.mark.parametrize(("status", "forbidden"), [(403, True), (401, False), (404, False)])
def test_one_status_says_that_the_user_may_not_ask(status, forbidden):
    with pytest.raises(ClusterError) as raised, cluster.refused("list"):
        raise ApiException(status, "no")
    assert isinstance(raised.value, ForbiddenError) is forbidden


def test_a_log_is_copied_up_to_a_gibibyte_within_two_minutes(tmp_path, monkeypatch):
    class Sink:
        """A file that takes everything and keeps nothing."""

        def open(self, mode):
            return self

        def write(self, piece):
            pass

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

    class Log:
        def __init__(self):
            self.pieces = 0

        def stream(self, size):
            piece = bytes(64 << 20)
            while True:
                self.pieces += 1
                yield piece

        def close(self):
            pass

    log, options = Log(), {}
    api = SimpleNamespace(read_namespaced_pod_log=lambda *_, **given: options.update(given) or log)
    one = job_pods.PodLog("team", "a", "main", previous=False)
    assert job_pods._copy(api, one, Sink(), None, None)
    assert log.pieces == 16
    assert options["_request_timeout"] == 120.0


class Urllib:
    """A response as urllib3 has it."""

    def __init__(self, pieces):
        self.pieces, self.sizes = pieces, []

    def read1(self, size):
        self.sizes.append(size)
        return next(self.pieces, b"")

    def close(self):
        pass


def test_an_api_server_answers_64_mib():
    piece = bytes(1 << 20)
    whole = Urllib(iter([piece] * 64))
    assert len(kubernetes_api._whole(whole)) == 64 << 20
    assert set(whole.sizes) == {1 << 16}
    with pytest.raises(NoAnswerError, match="more than 67108864 bytes"):
        kubernetes_api._whole(Urllib(iter([piece] * 64 + [b"x"])))


def test_an_event_of_a_watch_has_4_mib():
    piece = b"x" * (1 << 20)
    (line,) = kubernetes_api._lines(Urllib(iter([*[piece] * 4, b"\n"])))
    assert len(line) == 4 << 20
    with pytest.raises(NoAnswerError, match="more than 4194304 bytes"):
        list(kubernetes_api._lines(Urllib(iter([*[piece] * 4, b"x"]))))


def test_what_an_api_server_says_is_cut_at_three_hundred_characters():
    assert 290 <= Answer(500, {"message": "x" * 5000}).message.count("x") <= 300


def test_events_of_an_answer_with_another_status_are_none(monkeypatch):
    api = kubernetes_api.KubernetesApi.__new__(kubernetes_api.KubernetesApi)
    for status, pieces in ((200, [b"{}\n{}\n"]), (410, [b"{}"])):
        response = Urllib(iter(pieces))
        response.status = status
        monkeypatch.setattr(api, "_asked", lambda *_, found=response: found, raising=False)
        answers = list(api.lines("/", {}, 1.0))
        assert [one.status for one in answers] == [status] * (2 if status == 200 else 1)


PODS = object_watch.Resource("pods", "", ("v1",), lambda item: (item["uid"], item["uid"]))


class Objects:
    """An API server; notes how it is asked."""

    def __init__(self, lists=(), events=()):
        self.lists, self.events, self.gets, self.watches = iter(lists), events, [], []

    def get(self, path, query, seconds):
        self.gets.append((dict(query), seconds))
        return next(self.lists)

    def lines(self, path, query, seconds):
        self.watches.append((int(query["timeoutSeconds"]), seconds))
        yield from self.events


class Pauses(threading.Event):
    """Notes pauses instead of making them; is set after some."""

    def __init__(self, most):
        super().__init__()
        self.most, self.seconds = most, []

    def wait(self, timeout=None):
        self.seconds.append(timeout)
        if len(self.seconds) == self.most:
            self.set()
        return self.is_set()


def follower(api, pauses=1):
    found = object_watch.Follower(api, PODS, lambda _: None)
    found._closing = Pauses(pauses)
    return found


def test_objects_are_listed_a_hundred_at_a_time_within_a_minute():
    api = Objects([Answer(200, {"metadata": {"resourceVersion": "7"}})])
    assert follower(api)._listed() == "7"
    assert api.gets == [({"limit": "100"}, 60.0)]


def test_a_watch_lasts_45_to_75_seconds_and_ten_more_are_waited(monkeypatch):
    asked = []
    monkeypatch.setattr(object_watch.random, "randint", lambda *given: asked.append(given) or 60)
    api = Objects()
    follower(api)._watched("1")
    assert asked == [(45, 75)]
    assert api.watches == [(60, 70.0)]


def test_a_server_that_ends_watches_at_once_is_asked_once_a_second():
    found = follower(Objects())
    found._watched("1")
    assert found._closing.seconds == [1.0]


def test_pauses_after_errors_double_from_one_second_to_thirty(monkeypatch):
    monkeypatch.setattr(object_watch.random, "uniform", lambda least, most: most)
    found = follower(Objects(), 7)
    monkeypatch.setattr(found, "_tried", lambda: None)
    found._run()
    assert found._closing.seconds == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize(("lasted", "pause"), [(29.9, 4.0), (30.1, 1.0)])
def test_pauses_begin_anew_after_half_a_minute_without_an_error(monkeypatch, lasted, pause):
    clock = iter([0.0, 0.0, 0.0, lasted])
    monkeypatch.setattr(object_watch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(object_watch.random, "uniform", lambda least, most: most)
    found = follower(Objects(), 2)
    monkeypatch.setattr(found, "_tried", lambda: None)
    found._run()
    assert found._closing.seconds == [2.0, pause]


@pytest.mark.parametrize(
    ("status", "condition"), [(403, "forbidden"), (404, "absent"), (500, "failing")]
)
def test_a_kind_that_may_not_be_read_is_asked_for_every_five_minutes(status, condition):
    found = follower(Objects([Answer(status, {})] * 2), 1)
    found._run()
    assert found.held.condition == condition
    assert found._closing.seconds == ([300.0] if status != 500 else found._closing.seconds)
    assert found._closing.seconds[0] <= 2.0 or status != 500


@pytest.mark.parametrize(("status", "stale"), [(410, True), (500, False)])
def test_one_status_says_that_a_version_is_too_old(status, stale):
    with pytest.raises(object_watch.StaleVersionError if stale else NoAnswerError):
        follower(Objects(events=[Answer(status, {})]))._watched("1")


def test_twenty_thousand_objects_of_a_kind_are_held_and_8192_ends():
    held = object_watch.Held()
    for number in range(20_001):
        held.put(str(number), number)
    assert len(held.values) == 20_000
    items = [{"uid": str(number)} for number in range(20_001)]
    api = Objects([Answer(200, {"items": items, "metadata": {}})])
    listed = follower(api)
    listed._listed()
    assert len(listed.held.values) == 20_000
    held.replace({})
    assert len(held.gone) == 8192


def series(metric, value, node="n", times=(0.0,), **labels):
    values = np.full(len(times), value)
    return Series(node, metric.name, labels, np.array(times), values)


def observed(*found):
    by_name = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    return Observed({"n": by_name})


@pytest.mark.parametrize(("ahead", "off"), [(59.0, False), (61.0, True), (-61.0, True)])
def test_a_clock_that_is_a_minute_off_is_far_off(ahead, off):
    page = observed(series(agent_metrics.SNAPSHOT_TIMESTAMP, 1000.0 + ahead, times=(1000.0,)))
    assert bool(clock_skew.ahead(page)) is off


@pytest.mark.parametrize(("quiet", "asked"), [(1.9, []), (2.1, ["n"])])
def test_a_node_whose_ranks_ended_a_step_two_seconds_ago_is_not_asked(quiet, asked):
    page = observed(
        series(agent_metrics.SNAPSHOT_TIMESTAMP, 1000.0),
        series(training.RANK_ALIVE, 1.0, job_id="j", rank="0"),
        series(training.LAST_STEP_TIMESTAMP, 1000.0 - quiet, job_id="j", rank="0"),
    )
    assert sorted(agent_stalls._quiet_jobs(page, None)) == asked


class Asked:
    """An agent; notes limits of size and time."""

    def __init__(self, answer):
        self.answer, self.limits = answer, []

    def json(self, path, most_bytes=0, seconds=None):
        self.limits.append((most_bytes, seconds))
        return self.answer


def test_where_ranks_stand_is_answered_in_twenty_seconds_and_16_mib():
    agent = Asked({"stalls": []})
    agent_stalls._asked(agent, None)
    assert agent.limits == [(16 << 20, 20.0)]


def truncated(rows):
    document = {"columns": ["job_id", "rank", "t_start_unix_seconds"], "rows": rows}
    return {**document, "truncated": True}


def test_steps_are_asked_for_six_times_in_512_mib_and_a_minute_in_all():
    agent = Asked(truncated([["j", 0, 0.0], ["j", 0, 100.0]]))
    agent.url = "a:1"
    with pytest.raises(ValueError, match="more than 2 records"):
        agent_steps._steps(agent, None, 0.0)
    assert len(agent.limits) == 6
    assert {most for most, _ in agent.limits} == {512 << 20}
    assert all(59.0 < seconds <= 60.0 for _, seconds in agent.limits)


def test_first_steps_are_asked_for_in_512_mib_and_a_minute():
    agent = Asked({"columns": [], "rows": []})
    agent.url = "a:1"
    agent_steps._start(agent, None, 0.0)
    assert agent.limits == [(512 << 20, 60.0)]


@pytest.mark.parametrize(
    ("module", "ask", "workers"),
    [
        (agent_pages, lambda: agent_pages.poll([]), 64),
        (agent_stalls, lambda: agent_stalls.from_agents({}, observed(), None), 32),
        (agent_steps, lambda: agent_steps.from_agents(["a:1"], None, 0.0), 32),
    ],
)
def test_so_many_agents_are_asked_at_once(monkeypatch, module, ask, workers):
    pools = []

    class Pool:
        def __init__(self, size):
            pools.append(size)
            raise SourceError("enough is known")

    monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    with pytest.raises(SourceError, match="enough"):
        ask()
    assert pools == [workers]


@pytest.mark.parametrize(("passed", "slept"), [(1.0, 2.0), (3.5, 0.0)])
def test_agents_are_polled_again_after_three_seconds(monkeypatch, passed, slept):
    pauses = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + passed, sleep=pauses.append)
    monkeypatch.setattr(agent_pages, "time", clock)
    apart = agent_pages.seconds_between(60.0)
    agent_pages.poll_again(agent_pages.AgentPoll((), {}, (), 0.0), 100.0, apart)
    assert pauses == [slept]


@pytest.mark.parametrize(
    ("quiet", "apart"), [(7.5, 3.0), (8.5, 2.5), (9.9, 1.1), (500.0, 1.0), (0.2, 3.0)]
)
def test_jobs_that_make_no_steps_are_looked_at_again_as_they_are_called_hung(quiet, apart):
    """What a page tells may be a second old: a look at the very moment would still see none."""
    assert agent_pages.seconds_between(10.0 - quiet) == pytest.approx(apart)


def test_twenty_thousand_series_of_a_page_are_read():
    name = training.RANK_ALIVE.name
    lines = "\n".join(f'{name}{{job_id="j",rank="{n}"}} 1' for n in range(20_001))
    page = page_history.Page("n", 1.0, lines)
    found = page_history.from_pages([page], [training.RANK_ALIVE])
    assert len(found.by_node["n"][name]) == 20_000


class Server:
    """Prometheus; notes the windows that it is asked for."""

    url = "http://p"

    def __init__(self, labels=(), rows=()):
        self.windows, self.instants, self.labels, self.rows = [], [], labels, rows

    def range(self, query, start, end, step):
        self.windows.append((query, start, end, step))
        times = np.arange(start, end + 1, step)
        values = np.array([np.resize(row, len(times)) for row in self.rows])
        return Matrix(tuple(self.labels), times, values)

    def instant(self, query, at):
        self.instants.append(query)
        return []


@pytest.mark.parametrize(
    ("since", "start", "step"),
    [(0.0, 6400.0, 150.0), (9640.0, 9640.0, 15.0), (9520.0, 9520.0, 20.0)],
)
def test_nodes_are_read_at_24_moments_of_the_last_hour(since, start, step):
    server = Server()
    prometheus_nodes.from_prometheus(server, {"a": "n"}, [training.STEPS], since, 10_000.0)
    assert [window[1:] for window in server.windows] == [(start, 10_000.0, step)]


@pytest.mark.parametrize(("nodes", "queries"), [(64, 1), (65, 2), (129, 3)])
def test_64_nodes_are_named_in_one_query(nodes, queries):
    server = Server()
    names = {f"i{number}": "n" for number in range(nodes)}
    prometheus_nodes.from_prometheus(server, names, [training.STEPS], 0.0, 100.0)
    assert len(server.windows) == queries


@pytest.mark.parametrize(
    ("length", "interval"), [(600.0, 15.0), (10_800.0, 15.0), (21_600.0, 30.0)]
)
def test_steps_are_read_over_720_intervals_of_a_quarter_minute_or_longer(length, interval):
    server = Server()
    with pytest.raises(SourceError, match="has no"):
        prometheus_steps.from_prometheus(server, None, 100_000.0, 100_000.0 + length)
    assert {window[3] for window in server.windows} == {interval}


@pytest.mark.parametrize(("now", "end"), [(995.0, 990.0), (994.0, 975.0)])
def test_samples_are_settled_after_five_seconds(now, end):
    server = Server()
    with pytest.raises(SourceError, match="has no"):
        prometheus_steps.from_prometheus(server, None, now - 150.0, now)
    (last,) = {window[2] for window in server.windows}
    assert last == end + 15.0 / 4


@pytest.mark.parametrize(("minutes", "refused"), [(6, 0), (7, 2)])
def test_agents_of_one_node_that_are_there_together_for_six_minutes_are_refused(minutes, refused):
    both = np.array([1.0] * minutes + [np.nan] * (61 - minutes))
    server = Server([{"instance": "a"}, {"instance": "b"}], [both, both])
    addresses = {"a": ("", "n"), "b": ("", "n")}
    found = prometheus_instances._believed(addresses, server, 10_000.0)
    assert len(found.refused) == refused
    assert server.windows[0][1:] == (6400.0, 10_000.0, 60.0)


def test_agents_are_looked_for_in_the_last_hour():
    server = Server()
    prometheus_instances.known(server, None, 0.0, 10_000.0)
    assert all("[3600s]" in query for query in server.instants)


def test_an_agent_is_asked_for_everything_at_every_twentieth_poll():
    rows = [["j", 0, 100.0]]
    document = {"columns": ["job_id", "rank", "t_start_unix_seconds"], "rows": rows}
    history, asked = StepHistory(), []
    for _ in range(60):
        since = history.since("http://a:1", [{"job_id": "j", "rank": 0, "alive": True}], 50.0)
        asked.append(since == 50.0)
        history.add([step_answer("http://a:1", since, document)], 50.0)
    whole = [index for index, everything in enumerate(asked) if everything]
    assert whole[0] == 0
    assert np.diff(whole[1:]).tolist() == [20] * (len(whole) - 2)
    assert len(whole) in {3, 4}


@pytest.mark.parametrize(("number", "taken"), [(2**63 - 1, True), (2**63, False)])
def test_numbers_of_records_fit_into_63_bits(number, taken):
    document = {"columns": ["job_id", "rank", "step"], "rows": [["j", 0, number]]}
    if taken:
        assert step_answer("a", 0.0, document).rows
        return
    with pytest.raises(ValueError, match="larger than"):
        step_answer("a", 0.0, document)


def test_logs_are_read_96_kib_at_a_time(monkeypatch):
    log = Reader()
    monkeypatch.setattr(log_files, "_opened", lambda name, **_: log)
    next(log_files.chunks("x"))
    assert log.sizes[0] == 96 << 10


@pytest.mark.parametrize(("files", "read"), [(4096, True), (4097, False)])
def test_4096_logs_are_read_at_once(files, read):
    names = [f"/nowhere/{number}" for number in range(files)]
    if read:
        assert len(log_sources.opened(names)) == 4096
        return
    with pytest.raises(log_files.LogError, match="at most 4096"):
        log_sources.opened(names)


def test_64_sentences_say_what_was_refused():
    claims = [
        job_ownership.OwnershipClaim("n", f"other/{n}", "0", "team", in_pod=True) for n in range(99)
    ]
    notes = job_ownership.notes(claims, set())
    assert 64 <= sum(len(own) for own in notes.values()) <= 65
