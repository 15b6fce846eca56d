"""How much a watch keeps of incidents, and reads and writes of its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.kubernetes_api import Answer
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.incident_history import IncidentHistory, IncidentState
from rankscope_analyzers.watch.store import FileStore, StoreError, parsed

NOTHING_FOUND = JobReport("team/a", None, None, (), (), {}, (), (), 0.0)


def kept(job_id, number=0):
    return {job_id: {f"kind-{n}": ["gpu_compute", [0], "s", None] for n in range(number)}}


def test_32_incidents_of_a_job_are_restored_and_4096_jobs():
    assert len(IncidentHistory.of(kept("team/a", 33)).kept()["team/a"]) == 32
    many = {f"team/{number}": {} for number in range(4097)}
    restored = IncidentHistory.of(many).kept()
    assert len(restored) == 4096
    assert "team/0" not in restored


@pytest.mark.parametrize(("age", "remembered"), [(86399.0, 1), (86400.0, 0)])
def test_an_incident_that_is_over_is_remembered_for_a_day(age, remembered):
    history = IncidentHistory()
    history._jobs["team/a"] = {"gpu_compute": IncidentState("gpu_compute", (0,), "s", 1000.0)}
    history.update(NOTHING_FOUND, 1000.0 + age)
    assert len(history.kept().get("team/a", ())) == remembered


class Endless:
    """A file that notes how much of it is asked for."""

    name = "state"

    def __init__(self):
        self.asked = []

    def open(self, mode):
        return self

    def read(self, count):
        self.asked.append(count)
        return b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def with_name(self, name):
        return Path("/nonexistent") / name


def test_512_mib_of_a_file_are_read_and_a_byte_that_says_whether_there_is_more():
    file = Endless()
    with pytest.raises(StoreError, match="does not begin"):
        FileStore(file).read()
    assert file.asked == [(512 << 20) + 1]


@pytest.mark.parametrize(("characters", "whole"), [(4096, 1), (4097, 0)])
def test_a_part_has_a_name_of_4096_characters(characters, whole):
    name = "n" * characters
    document = (
        b'{"format": "rankscope watch state", "version": 1, "saved": 1.0}\n'
        b'{"part": "job", "name": "%s", "value": 1}\n{"parts": 1}\n' % name.encode()
    )
    assert len(parsed(document).parts) == whole


def test_state_of_another_version_is_refused():
    with pytest.raises(StoreError, match="of version 2, expected 1"):
        parsed(b'{"format": "rankscope watch state", "version": 2, "saved": 1.0}\n')


class Maps:
    """An API server with one ConfigMap, that notes how long it is given."""

    def __init__(self, status):
        self.status, self.seconds, self.written = status, [], ""

    def get(self, path, query, seconds):
        self.seconds.append(seconds)
        return Answer(200, {})

    def put(self, path, body, seconds):
        self.seconds.append(seconds)
        self.written = body["data"]["state"]
        return Answer(self.status, body)


def test_requests_for_a_config_map_end_after_ten_seconds():
    api = Maps(200)
    store = ConfigMapStore(api, "state", "rankscope")
    assert store.read() is None
    assert store.write([], 1.0) == 0
    assert api.seconds == [10.0, 10.0]


@pytest.mark.parametrize(
    ("status", "sentence"), [(409, "written by another watch"), (404, "create it empty")]
)
def test_a_config_map_that_cannot_be_written_is_explained(status, sentence):
    store = ConfigMapStore(Maps(status), "state", "rankscope")
    store.read()
    with pytest.raises(StoreError, match=sentence):
        store.write([], 1.0)
