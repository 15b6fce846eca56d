"""What goes on once threads can be started again, after a limit of threads or memory."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from collected_page import Clock, Page
from known_pods import pods_of
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.netdev.inside import Visit
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.totals_file import TotalsFile
from rankscope_analyzers.tracking.runs import EVERY_SECONDS, Runs
from rankscope_analyzers.watch.webhook import Webhook
from ring_writer import RingWriter
from test_pod_netdev import ENTER_SECONDS, UID, Node, table

WAIT_SECONDS = 30.0


@pytest.fixture
def threads(monkeypatch):
    """A limit that can be raised: with False no thread starts."""
    limit, start = SimpleNamespace(allows=True), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if not limit.allows:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return limit


def test_rings_are_read_again(tmp_path, threads):
    clock = Clock()
    rings = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", clock, pods_of("team"))
    writer = RingWriter(tmp_path, job_id="team/job")
    writer.step(3)
    threads.allows = False
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            list(rings.collect())
    threads.allows = True
    assert Page(rings).rank(metrics.STEPS, job="team/job") == 3
    writer.end()


def test_totals_are_written_at_the_end(tmp_path, threads):
    file = TotalsFile(tmp_path / "totals")
    threads.allows = False
    with pytest.raises(RuntimeError):
        file.write({"jobs": {}})
    threads.allows = True
    file.write_last({"jobs": {}})
    assert (tmp_path / "totals").exists()


def test_visits_of_pods_networks_leave_no_descriptor_open(tmp_path, threads):
    node = Node(tmp_path)
    node.made_up(UID, 4001, table("eth0"))
    collector = node.collector(Visit)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    threads.allows = False
    for look in range(3):
        node.now = look * ENTER_SECONDS
        with pytest.raises(RuntimeError, match="can't start new thread"):
            list(collector.collect())
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_news_of_incidents_are_posted_later(threads):
    asked = threading.Event()
    webhook = Webhook("http://127.0.0.1:9/hook", lambda _: asked.set() or (), lambda _: None)
    webhook.restore({"delivered": 7})
    threads.allows = False
    webhook.post([])
    threads.allows = True
    webhook.post([])
    assert asked.wait(WAIT_SECONDS), "nobody asks for what is to be posted"
    webhook.close()


def test_runs_are_logged_later(threads):
    logged = threading.Event()
    runs = Runs(SimpleNamespace(write=lambda *_: logged.set()), lambda _: None)
    threads.allows = False
    runs.look((), (), 1000.0)
    threads.allows = True
    runs.look((), (), 1000.0 + EVERY_SECONDS)
    assert logged.wait(WAIT_SECONDS), "nothing is logged"
    runs.close()
