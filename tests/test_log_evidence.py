"""The last lines of ranks and of the kernel that an agent shows of a job that stands."""

from __future__ import annotations

import os
import time

import pytest

from rankscope_agent.sources.evidence import kernel_lines as kernel_module
from rankscope_agent.sources.evidence.kernel_lines import kernel_lines
from rankscope_agent.sources.evidence.log_tails import LogTails, last_lines
from rankscope_agent.sources.kernel_log.records import Batch, Record
from standing_jobs import Clock, evidence_of, standing_ring

SECRET = "hf_Zx9correcthorse77"


def cri(text, stream="stderr"):
    return f"2026-01-01T00:00:00.000000000Z {stream} F {text}\n"


def test_the_last_lines_of_each_rank_are_kept_redacted_and_of_no_other_pod(tmp_path):
    for uid in ("mine", "other"):
        folder = tmp_path / f"team_{uid}_{uid}" / "trainer"
        folder.mkdir(parents=True)
        lines = [cri(f"[rank{n % 2}]: line {n} of {uid}") for n in range(1000)]
        (folder / "0.log").write_text("".join(lines) + cri(f"HF_TOKEN={SECRET} \x1b[2J end"))
    (found,) = LogTails(tmp_path, ()).of({"mine"}, outside=True)
    assert found["pod"] == "team/mine"
    assert len(found["lines"]) == 2 * 200 + 1
    assert "line 600 of mine" in found["lines"][0]
    assert SECRET not in "".join(found["lines"])
    assert all(line.isprintable() for line in found["lines"])
    assert "***" in found["lines"][-1]


def test_a_rank_that_talks_much_does_not_push_out_the_one_that_fell_silent():
    loud = b"".join(b"[rank1]: loud\n" for _ in range(5000))
    assert last_lines(b"[rank0]: my last words\n" + loud)[0] == "[rank0]: my last words"


def test_a_huge_log_is_read_from_its_end_alone(tmp_path):
    log = tmp_path / "nccl.log"
    with log.open("wb") as sink:
        sink.truncate(2 << 30)
        sink.seek(0, os.SEEK_END)
        sink.write(b"\nthe end\n")
    (found,) = LogTails(tmp_path / "none", (log,)).of((), outside=True)
    assert found["lines"][-1] == "the end"
    (found,) = LogTails(tmp_path / "none", (tmp_path / "*.log",)).of((), outside=True)
    (tmp_path / "link.log").symlink_to("/etc/passwd")
    tails = LogTails(tmp_path / "none", (tmp_path / "*.log",)).of((), outside=True)
    assert [one["not_read"] for one in tails] == ["symlink", ""]


def test_logs_outside_of_pods_are_left_out_where_two_jobs_may_have_written_them(tmp_path):
    (tmp_path / "x.log").write_text("whose line is it\n")
    standing_ring(tmp_path / "rings")
    evidence = evidence_of(tmp_path / "rings", Clock(), patterns=[tmp_path / "x.log"])
    assert len(evidence.part("logs", "team/job")["logs"]) == 1
    standing_ring(tmp_path / "rings", "9-9.ring", job_id="team/other")
    assert evidence.part("logs", "team/job")["logs"] == []


class Ring:
    """A kernel's log with one line per second of uptime."""

    name = "kmsg"

    def __init__(self, texts) -> None:
        self._texts = texts

    def read(self, cursor) -> Batch:
        assert not cursor
        booted = time.clock_gettime(time.CLOCK_MONOTONIC) - len(self._texts)
        found = [Record(n, booted + n, text) for n, text in enumerate(self._texts)]
        return Batch(found, {}, 0)

    def close(self) -> None:
        self._texts = []


def refused():
    raise PermissionError(1, "Operation not permitted")


def test_the_kernels_lines_since_a_moment_are_read_by_the_first_way_that_is_open():
    texts = [b"old"] * 100 + [b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off", b"key=\x07a"]
    found = kernel_lines((refused, lambda: Ring(texts)), time.time() - 50)
    assert found["source"] == "kmsg"
    assert len(found["lines"]) == pytest.approx(50, abs=2)
    assert "Xid" in found["lines"][-2]
    assert found["lines"][-1].isprintable()
    many = kernel_lines((lambda: Ring([b"x"] * 5000),), 0.0)
    assert (len(many["lines"]), many["left_out"]) == (2000, 3000)


def test_lines_of_the_kernel_that_are_left_out_are_not_worked_on(monkeypatch):
    worked_on = []
    monkeypatch.setattr(kernel_module, "redacted", lambda text: worked_on.append(text) or text)
    found = kernel_lines((lambda: Ring([b"x"] * 5000),), 0.0)
    assert len(worked_on) == len(found["lines"]) == 2000


def test_where_every_way_is_closed_it_is_said():
    found = kernel_lines((refused, refused), 0.0)
    assert found["lines"] == []
    assert found["not_read"] == "Operation not permitted; Operation not permitted"
