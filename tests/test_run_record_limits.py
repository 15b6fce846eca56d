"""Limits of the files of run records: at each and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from large_bytes import Large
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import diff
from rankscope_analyzers.runs.files import RunRecordFiles


@pytest.mark.parametrize(("age", "due"), [(599.0, False), (600.0, True)])
def test_a_run_record_is_renewed_after_ten_minutes(tmp_path, age, due):
    files = RunRecordFiles(tmp_path)
    files.write({"job_id": "team/a", "attempt": 0}, 1000.0)
    assert files.due("team/a", 1000.0 + age) is due


def test_ten_thousand_run_records_are_kept(monkeypatch):
    gone = []

    def record(number):
        state = SimpleNamespace(st_mtime=float(number))
        return SimpleNamespace(stat=lambda: state, unlink=lambda missing_ok: gone.append(number))

    files = RunRecordFiles(SimpleNamespace(glob=lambda _: [record(n) for n in range(10_003)]))
    files._thin_out()
    assert gone == [0, 1, 2]


@pytest.mark.parametrize(("size", "read"), [(64 << 20, True), ((64 << 20) + 1, False)])
def test_a_run_record_to_compare_has_64_mib(monkeypatch, size, read):
    monkeypatch.setattr(diff.untrusted_json, "read", lambda data: {})
    document = SimpleNamespace(read=lambda most: Large(min(size, most)))

    class Record:
        def open(self, mode):
            return self

        def __enter__(self):
            return document

        def __exit__(self, *_):
            pass

    if read:
        assert diff._read(Record()) == {}
        return
    with pytest.raises(InputError):
        diff._read(Record())
