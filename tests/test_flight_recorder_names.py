"""Windows of pods' ranks are those of the job that Kubernetes names, from the first one on."""

from __future__ import annotations

from pathlib import Path

import pytest

from flight_servers import dump, entry, recorder, serving
from known_pods import pods_of
from pod_json import pod, uid
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.flight_recorder.collector import FlightRecorderCollector
from rankscope_agent.sources.flight_recorder.windows import NS, FlightWindows
from rankscope_agent.sources.pods.records import parse_pod
from ring_writer import HEADER_FIELDS, RingWriter

BEGAN_NS = HEADER_FIELDS["created_unix_ns"]
LONGEST_PAUSE_SECONDS = 3600.0
POD = pod("llm-0", "team", number=1, owner=("batch/v1", "Job", "llm"))


def test_ranks_of_pods_are_asked_once_their_jobs_names_are_known(tmp_path, monkeypatch):
    volume = tmp_path / "kubelet/pods" / uid(1) / "volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    (tmp_path / "rings").mkdir()
    RingWriter(volume, job_id="local/1a2b3c4d").step(3, flags=0, sync_ns=-1, compute_ns=-1)
    now, names, windows = [BEGAN_NS / NS + 10], pods_of("team"), FlightWindows()
    names.expect()
    collector = FlightRecorderCollector(
        tmp_path / "rings", tmp_path / "kubelet", windows, names, lambda: now[0]
    )
    monkeypatch.chdir(volume)  # a socket's path has at most 107 characters
    answer = recorder(dump(entry(1, BEGAN_NS + 5 * NS), entry(2, BEGAN_NS + 6 * NS)))
    with serving(Path("4242-99.sock"), answer) as requests:
        with pytest.raises(NoData):
            list(collector.collect())
        assert requests == []
        names.replace([parse_pod(POD)], now[0])
        now[0] += LONGEST_PAUSE_SECONDS
        list(collector.collect())
    assert {window.job_id for window in windows.since(None, 0.0)} == {"team/llm"}
