"""Saved state of a watch of which a part is of another form: it costs no other part."""

from __future__ import annotations

import json

from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore
from test_watch_memory import Process, document, names, report, started

__all__ = ["document", "report"]


def changed_job(document, change):
    """Return the document after a change of the fields of its first job, which is called c."""
    lines = document.split(b"\n")
    place = next(n for n, one in enumerate(lines) if one.startswith(b'{"part":"job"'))
    part = json.loads(lines[place])
    change(part["value"]["state"]["fields"])
    lines[place] = json.dumps(part).encode()
    return b"\n".join(lines)


def test_a_job_whose_poll_is_no_number_costs_no_other_a_look(document, tmp_path):
    (tmp_path / "state").write_bytes(changed_job(document, lambda job: job.update(last_poll="2")))
    watch = started(tmp_path / "state")
    watch.followed.start_poll()
    assert names(watch) == ["a", "b"]
    assert any("job 'c' starts again: '2' is no number" in one for one in watch.said)


def test_a_job_whose_state_cannot_be_saved_again_costs_no_other_and_is_said(document, tmp_path):
    mixed = {"set": [1, "x"]}
    (tmp_path / "state").write_bytes(changed_job(document, lambda job: job.update(_pace=mixed)))
    watch = started(tmp_path / "state")
    watch.memory.end(watch.exported, watch.followed, changed=True)
    assert names(started(tmp_path / "state")) == ["a", "b"]
    why = "too large to be saved, or hold values that cannot be"
    assert watch.said == [f"1 parts of the state of jobs are {why}"]


def test_what_cannot_be_kept_besides_jobs_costs_no_job(tmp_path, document):
    class Odd:
        def kept(self):
            raise TypeError("odd")

        def restore(self, kept):
            pass

    (tmp_path / "state").write_bytes(document)
    watch = Process(tmp_path / "state")
    watch.memory = Memory(FileStore(tmp_path / "state"), watch.said.append, {"odd": Odd()})
    watch.memory.begin(watch.exported, watch.followed)
    assert watch.memory.end(watch.exported, watch.followed, changed=True)
    assert "1 parts of the state of jobs" in watch.said[0]
    assert names(started(tmp_path / "state")) == ["a", "b", "c"]
