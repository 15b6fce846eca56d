"""The last that is still taken and the first that is not, of each limit on an agent's page."""

from __future__ import annotations

import logging
import socket
from types import SimpleNamespace

import pytest

from rankscope_agent.collecting import registry
from rankscope_agent.collecting.registry import next_start
from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract.metrics import gpus, host, nccl_log, netdev, rdma, training
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import STEP_COLUMNS, Scrape
from rankscope_agent.serving import exposition, logging_setup, step_stream
from rankscope_agent.settings.value_parsers import parse_max_series, parse_seconds
from rankscope_agent.sources.netdev import interfaces, namespace, netlink
from rankscope_agent.sources.netdev.drivers import find_adapters
from rankscope_agent.sources.netdev.ethtool import Ethtool, _capacity
from rankscope_agent.sources.netdev.host_links import _health, _name
from rankscope_agent.sources.netdev.netlink import LinkMonitor
from rankscope_agent.sources.netdev.tables import parse_count
from rankscope_agent.sources.pod_netdev.interfaces import read_network
from rdma_files import write
from standing_clock import Clock
from summarized_nodes import AT, DEVICE, GPU, POD, PORT, Node, of
from test_netdev_collector import PCI
from test_netdev_collector import Node as Interfaces
from test_node_summary import state, there


def errors(count):
    return gpus.GPU_ECC_ERRORS.sample(count, **GPU, kind="uncorrected", scope="volatile")


def grown(metric, sample, *, window, own):
    """Return whether a counter's growth shows just inside and just outside of a window."""
    shown = []
    for later in (window - 1.0, window + 1.0):
        node = Node()
        node.look(sample(0))
        node.look(sample(5))
        shown.append(bool(of(node.look(sample(5), after=later), metric).get(own)))
    return shown


@pytest.mark.parametrize(
    ("metric", "sample", "window", "own"),
    [
        (metrics.GPU_RECENT_UNCORRECTED, errors, 900.0, DEVICE),
        (
            metrics.PORT_RECENT_ERRORS,
            lambda count: rdma.PORT_ERRORS.sample(count, **PORT, type=rdma.LINK_ERRORS[0]),
            900.0,
            AT,
        ),
        (
            metrics.PORT_RECENT_FLAPS,
            lambda count: rdma.LINK_FLAPS.sample(count, **PORT),
            1800.0,
            AT,
        ),
        (
            metrics.POD_RECENT_OOM_KILLS,
            lambda count: host.POD_OOM_KILLS.sample(count, pod_uid="u-1"),
            3600.0,
            ("", "u-1"),
        ),
    ],
)
def test_growth_is_told_for_its_window(metric, sample, window, own):
    assert grown(metric, sample, window=window, own=own) == [True, False]


def thermal(load):
    reason = gpus.GPU_CLOCK_EVENT.sample(1, **GPU, reason="hw_thermal_slowdown")
    return (*state(0), reason, gpus.GPU_UTILIZATION.sample(load, **GPU))


@pytest.mark.parametrize(("load", "hot"), [(0.5, False), (0.51, True)])
def test_a_slowdown_counts_above_half_load(load, hot):
    found = of(Node().look(*thermal(load)), metrics.GPU_CONDITION)
    assert bool(found) is hot


@pytest.mark.parametrize(("later", "hot"), [(285.0, False), (330.0, True)])
def test_load_is_that_of_the_last_five_minutes(later, hot):
    node = Node()
    node.now = 15_000.0 - 15.0
    node.look(*there_with(0.3))
    found = of(node.look(*thermal(0.6), after=later), metrics.GPU_CONDITION)
    assert bool(found) is hot


def there_with(load):
    return (there(), gpus.GPU_UTILIZATION.sample(load, **GPU))


@pytest.mark.parametrize(("sent", "busy"), [(0.50, False), (0.52, True)])
def test_a_port_is_busy_above_half_of_its_rate_over_five_minutes(sent, busy):
    node = Node()
    found = {}
    for number in range(21):
        found = node.look(
            rdma.PORT_RATE.sample(100.0, **PORT),
            rdma.TRANSMIT_BYTES.sample(sent * 100.0 * 15.0 * number, **PORT),
        )
    assert bool(of(found, metrics.PORT_BUSY)) is busy


def test_a_ports_traffic_is_that_of_five_minutes():
    node = Node()
    sent = 0.0
    for number in range(80):
        sent += 1500.0 if 40 <= number < 51 else 0.0
        found = node.look(
            rdma.PORT_RATE.sample(100.0, **PORT), rdma.TRANSMIT_BYTES.sample(sent, **PORT)
        )
        if of(found, metrics.PORT_BUSY):
            break
    assert number == 50, "eleven of twenty looks are more than half"


@pytest.mark.parametrize(("paused", "told"), [(0.0099, False), (0.0101, True)])
def test_a_port_that_pauses_for_a_hundredth_is_told(paused, told):
    node, found = Node(), {}
    labels = dict.fromkeys(netdev.PFC_SECONDS.labels, "0") | {"device": "eth0"}
    for number in range(21):
        found = node.look(netdev.PFC_SECONDS.sample(paused * 15.0 * number, **labels))
    assert bool(of(found, metrics.NIC_PAUSED)) is told


@pytest.mark.parametrize(("used", "told"), [(0.80, False), (0.81, True)])
def test_a_resource_is_told_of_above_80_per_cent(used, told):
    found = Node().look(host.PIDS_USED.sample(used))
    assert bool(of(found, metrics.NODE_RESOURCE_USED)) is told


@pytest.mark.parametrize(("port", "told"), [(3, False), (4, True), (5, True)])
def test_a_fallback_is_told_of_where_a_port_is_active(port, told):
    found = Node().look(
        rdma.PORT_STATE.sample(port, **PORT),
        nccl_log.NCCL_SOCKET_FALLBACK.sample(1, **POD, reason="no_rdma_device"),
    )
    assert bool(of(found, metrics.POD_CONDITION)) is told


def is_valid(sample):
    (checked,) = Validator().validate([Scrape("training", True, 0.1, (sample,), "", 1.0)])
    return bool(checked.samples)


@pytest.mark.parametrize(("bits", "valid"), [(1023, True), (1024, False)])
def test_whole_numbers_fit_into_a_float(bits, valid):
    sample = training.RANK_ALIVE.sample((1 << bits) - 1, job_id="a/b", rank="0")
    assert is_valid(sample) is valid


@pytest.mark.parametrize(("size", "valid"), [(1024, True), (1025, False)])
def test_a_label_has_1024_bytes_at_most(size, valid):
    sample = training.RANK_ALIVE.sample(1, job_id="a" * size, rank="0")
    assert is_valid(sample) is valid


@pytest.mark.parametrize(("hours", "fails"), [(5.9, 1), (6.1, 0)])
def test_a_source_that_is_gone_is_missed_for_six_hours(hours, fails):
    scrape = Scrape("nvml", False, 0.1, (), "no data: gone", 1000.0)
    assert exposition._fails(scrape, 1000.0 + hours * 3600.0) is bool(fails)


def test_a_collector_that_cannot_be_made_is_tried_again_once_a_minute(monkeypatch):
    waits = []

    class Stop:
        def is_set(self):
            return bool(waits)

        def wait(self, seconds_):
            waits.append(seconds_)

    clock = Clock()
    monkeypatch.setattr(registry, "time", clock)
    runner = registry._Runner.__new__(registry._Runner)
    runner._stop, runner._interval = Stop(), 5.0
    runner._collector = SimpleNamespace(made=False, finishing=None)
    runner._run = runner._note_absence = lambda: None
    runner._keep_running()
    assert waits == [60.0]
    assert next_start(1000.0, 60.0, 1000.0) == 1060.0


def test_524288_rows_are_sent_at_once(monkeypatch):
    counted = []
    monkeypatch.setattr(
        step_stream, "_batch_json", lambda batch: counted.append(len(batch)) or "[]"
    )
    row = tuple(range(len(STEP_COLUMNS)))
    pieces = list(step_stream.steps_json((row for _ in range(524_289)), "n"))
    assert sum(counted) == 524_288
    assert b'"truncated":true' in pieces[-1]


def test_16384_characters_of_a_field_are_logged():
    line = logging_setup.LineFormatter().format(
        logging.LogRecord("x", logging.INFO, "f", 1, "q" * 20_000, None, None)
    )
    assert line.count("q") == 16_384


@pytest.mark.parametrize(("text", "taken"), [("86400", True), ("86401", False)])
def test_a_day_is_the_longest_time_that_can_be_set(text, taken):
    if taken:
        assert parse_seconds(text) == 86_400.0
        return
    with pytest.raises(ValueError, match="86400"):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "taken"), [("10000000", True), ("10000001", False)])
def test_ten_million_series_is_the_most_that_can_be_set(text, taken):
    if taken:
        assert parse_max_series(text) == 10_000_000
        return
    with pytest.raises(ValueError, match="10000000"):
        parse_max_series(text)


# network interfaces


def test_32_interfaces_are_shown_of_8192(tmp_path, monkeypatch):
    one = SimpleNamespace(kind="physical", name="e")
    monkeypatch.setattr(interfaces, "_interface", lambda path: one)
    monkeypatch.setattr(
        interfaces, "names_in", lambda root, limit: (["e"] * min(9000, limit), 9000 - limit)
    )
    shown, others = interfaces.list_interfaces(tmp_path, virtual=False)
    assert (len(shown), others) == (32, 9000 - 32)
    looked_at = []
    monkeypatch.setattr(interfaces, "_interface", lambda path: looked_at.append(path) or None)
    interfaces.list_interfaces(tmp_path, virtual=False)
    assert len(looked_at) == 8192


def test_8192_interfaces_are_looked_at_for_hardware(tmp_path, monkeypatch):
    looked_at = []
    monkeypatch.setattr("rankscope_agent.sources.kernel_files.natural", lambda names: ["x"] * 9000)
    (tmp_path / "class" / "net").mkdir(parents=True)
    monkeypatch.setattr(
        "pathlib.Path.exists", lambda path, **how: bool(looked_at.append(path)) and False
    )
    assert not namespace.has_hardware(tmp_path)
    assert len(looked_at) == 8192


def test_switches_of_eight_priorities_are_read(tmp_path):
    folder = tmp_path / "ecn" / "roce_np" / "enable"
    for priority in range(9):
        write(folder / str(priority), "1")
    (sample,) = interfaces._ecn(SimpleNamespace(path=tmp_path, name="e"), "np")
    assert sample.labels[2] == "0,1,2,3,4,5,6,7"


def test_64_adapters_are_looked_at(tmp_path):
    for index in range(70):
        device = tmp_path / "devices" / f"0000:{index:02x}:00.0"
        device.mkdir(parents=True)
        place = tmp_path / "class" / "infiniband" / f"mlx5_{index:02d}"
        place.mkdir(parents=True)
        (place / "device").symlink_to(device)
    assert len(find_adapters(tmp_path, ())) == 64


def test_1024_reporters_of_health_are_looked_at():
    one = SimpleNamespace(pci="p", errors=1, healthy=True)
    (sample,) = _health([one] * 1100)
    assert sample.value == 1024
    assert _name("x" * 100) == "x" * 64


def test_16384_statistics_of_a_driver_are_read(monkeypatch):
    driver = Ethtool.__new__(Ethtool)
    driver._names = {}
    monkeypatch.setattr(driver.__class__, "_read_names", lambda self, name, count: ["a"])
    monkeypatch.setattr(driver.__class__, "_read_values", lambda self, name, count: [1])
    for count, found in ((16_384, {"a": 1}), (16_385, {})):
        monkeypatch.setattr(driver.__class__, "_count", lambda self, name, count=count: count)
        assert driver.statistics("eth0") == found


def test_no_statistics_get_the_names_of_others_while_queues_come_and_go(monkeypatch):
    driver = Ethtool.__new__(Ethtool)
    driver._names = {"eth0": ["a", "b", "c"]}
    monkeypatch.setattr(driver.__class__, "_count", lambda self, name: 3)
    for values, found in (((1, 2), {}), ((1, 2, 3), {"a": 1, "b": 2, "c": 3})):
        monkeypatch.setattr(driver.__class__, "_read_values", lambda self, *_, v=values: v)
        assert driver.statistics("eth0") == found


def test_a_drivers_statistics_may_double_while_they_are_read():
    assert [_capacity(count) for count in (10, 128, 129, 1000)] == [256, 256, 258, 2000]


@pytest.mark.parametrize(("name", "asked"), [("e" * 15, True), ("e" * 16, False)])
def test_a_name_of_an_interface_has_15_characters(name, asked):
    driver = Ethtool()
    with pytest.raises(OSError, match="not the name" if not asked else "device|support"):
        driver.statistics(name)
    driver.close()


def test_4096_events_of_links_are_taken_at_a_look():
    monitor = LinkMonitor.__new__(LinkMonitor)
    monitor._next = lambda: b"x"
    assert sum(1 for _ in monitor._arrived()) == 4096


def test_states_of_4096_links_are_remembered(monkeypatch):
    monitor = LinkMonitor.__new__(LinkMonitor)
    monitor._arrived = lambda: ()
    monitor._states = dict.fromkeys(range(4096))
    list(monitor.changed())
    assert monitor._states
    monitor._states["one more"] = None
    list(monitor.changed())
    assert not monitor._states


def test_counts_of_interfaces_have_64_bits_and_their_last_value_is_none():
    assert parse_count(str(2**64 - 2)) == 2**64 - 2
    assert parse_count(str(2**64 - 1)) is None


@pytest.mark.parametrize(("more", "told"), [(0, True), (9.9, False), (10.1, True)])
def test_interfaces_are_looked_for_every_ten_seconds(tmp_path, more, told):
    node = Interfaces(tmp_path)
    node.add("eth0", "0000:3b:00.0")
    if more:
        node.look()
    node.add("eth1", "0000:5d:00.0")
    node.now += more
    found = {
        labels[0] for sample in node.collector.collect() for labels in [sample.labels] if labels
    }
    assert ("eth1" in found) is told


@pytest.mark.parametrize(("size", "counted"), [(1 << 16, 71), ((1 << 16) + 1, 7)])
def test_64_kibibytes_are_read_of_a_table_of_the_network(tmp_path, size, counted):
    made = Interfaces(tmp_path)
    made.add("eth0", PCI)
    counts = "TcpExt: 71"
    write(made.net / "netstat", "TcpExt: TCPTimeouts".ljust(size - len(counts) - 1) + f"\n{counts}")
    assert made.look()[netdev.TCP_EVENTS, ("timeouts",)] == counted


def test_the_largest_message_of_links_fits_and_a_mebibyte_of_them_waits(monkeypatch):
    asked = []

    class Socket:
        def __init__(self, *kind):
            self.bind = lambda address: None

        def setsockopt(self, level, option, size):
            asked.append((option, size))

        def recv(self, size):
            asked.append(("recv", size))
            return b"x"

    monkeypatch.setattr(netlink.socket, "socket", Socket)
    monitor = LinkMonitor.__new__(LinkMonitor)
    monitor._events = netlink._open_events()
    assert monitor._next() == b"x"
    assert asked == [(socket.SO_RCVBUF, 1_048_576), ("recv", 65_536)]


@pytest.mark.parametrize(("size", "known"), [(1 << 16, True), ((1 << 16) + 1, False)])
def test_64_kibibytes_are_read_of_a_pods_table(tmp_path, size, known):
    uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    counts = " ".join(["5"] * 16)
    write(tmp_path / "7" / "net" / "dev", f"eth0: {counts}".rjust(size, "\n"))
    write(tmp_path / "7" / "cgroup", f"0::/kubepods/pod{uid}/x\n")
    network = read_network(tmp_path, SimpleNamespace(uid=uid, process=lambda: 7))
    assert ("eth0" in network.traffic) is known
