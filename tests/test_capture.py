"""`rankscope capture`: one file that gives the same verdict offline, and files that are none."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import replace

import pytest

from hanging_jobs import NOW, training_page
from rankscope_agent.contract import stalls
from rankscope_analyzers import cli
from rankscope_analyzers.captures import archive, contents
from rankscope_analyzers.captures.kept import HangCaptures
from rankscope_analyzers.captures.one_job import of_job, page_of_job
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from test_saved import known
from test_stalls import real

OTHER = 'rankscope_steps_total{job_id="other/job",rank="0"} 9\n'


def captured(tmp_path, gathered=None, pages=()):
    """Write the capture of a job that hangs; return its file."""
    gathered = gathered or known()
    (report,) = job_reports.reports(diagnose_each(gathered.jobs), gathered.evidence, NOW)
    made = contents.files(gathered, report, pages, NOW)
    path = tmp_path / "capture.tar.gz"
    assert archive.write(path, made, contents.about(report, "0.1.0")) == []
    return path


def diagnosed(capsys, *arguments):
    code = cli.main(["diagnose", *map(str, arguments), "--json"])
    captured_text = capsys.readouterr()
    return code, captured_text.err or json.loads(captured_text.out)


def test_a_capture_gives_the_verdict_of_its_moment(tmp_path, capsys):
    code, found = diagnosed(capsys, "--capture", captured(tmp_path))
    assert code == 0
    assert found["job"]["verdict"]["class"] == "hang"
    assert found["job"]["made_unix_seconds"] == NOW


def test_it_begins_with_a_manifest_and_holds_a_summary_for_people(tmp_path):
    first = training_page(90.0)
    with_other = Page("n1", NOW, first.text + OTHER)
    path = captured(tmp_path, pages=[with_other, with_other, Page("n9", NOW, OTHER)])
    with tarfile.open(path) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("manifest.json"))
        assert names[0] == "manifest.json"
        assert tar.extractfile("summary.txt").read().startswith(b"no step since ")
        assert b"<html" in tar.extractfile("summary.html").read()
        text = tar.extractfile("pages/2-n1.txt").read().decode()
    assert "pages/1-n9.txt" not in names
    assert "other/job" not in text
    assert 'job_id="job"' in text
    assert (manifest["job_id"], manifest["left_out"]) == ("job", [])
    assert {one["name"] for one in manifest["files"]} == set(names) - {"manifest.json"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_of_other_jobs_is_left_out(tmp_path):
    evidence = known().evidence
    more = replace(evidence, stalls={**evidence.stalls, "other": [stalls.read(real())]})
    one = of_job(replace(known(), evidence=more), "job")
    assert set(one.evidence.stalls) == {"job"}
    assert of_job(known(), "other").evidence.observed.by_node == {}
    assert of_job(known(), "other").jobs == ()
    assert page_of_job(OTHER + "up 1\n# HELP x y\n", "job") == "up 1\n# HELP x y\n"


def test_a_file_that_exists_is_left_as_it_is(tmp_path, capsys):
    path = tmp_path / "c.tar.gz"
    path.write_text("mine")
    assert cli.main(["capture", "--agent", "127.0.0.1:1", "--job", "job", str(path)]) == 1
    assert "exists" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_what_exceeds_its_size_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 10)
    files = {"summary.txt": b"12345678", "summary.html": b"123", "pages/1-a.txt": b"1"}
    assert archive.write(tmp_path / "c", files, {}) == ["summary.html"]
    (tmp_path / "out").mkdir()
    manifest = archive.read(tmp_path / "c", tmp_path / "out")
    assert manifest["left_out"] == ["summary.html"]
    assert (tmp_path / "out/pages/1-a.txt").read_bytes() == b"1"


def packed(path, *entries, manifest=None):
    """Write a tar of entries: name and body, or a TarInfo by itself."""
    with tarfile.open(path, "w:gz") as tar:
        for name, body in (("manifest.json", json.dumps(manifest).encode()), *entries):
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return path


def listing(*names):
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    return {"format_version": 1, "files": [{"name": one, "sha256": empty} for one in names]}


def link(name):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("entries", "manifest", "why"),
    [
        ([("../evil", b"")], listing("../evil"), "not a file of a capture"),
        ([("/etc/evil", b"")], listing("/etc/evil"), "not a file of a capture"),
        ([("summary.txt", b"x")], listing("summary.txt"), "not as its manifest says"),
        ([("summary.txt", b"")], listing(), "not a file of a capture"),
        ([("summary.txt", b"")] * 2, listing("summary.txt"), "not a file of a capture"),
        ([], listing("summary.txt"), "is missing"),
        ([(link("summary.txt"), b"")], listing("summary.txt"), "not a regular file"),
        ([], {"format_version": 2}, "manifest of version 1"),
        ([], [], "manifest of version 1"),
        ([], {"format_version": 1, "files": 7}, "manifest"),
    ],
)
def test_what_is_no_capture_is_refused_and_writes_nothing_elsewhere(
    tmp_path, capsys, entries, manifest, why
):
    path = packed(tmp_path / "c.tar.gz", *entries, manifest=manifest)
    code, error = diagnosed(capsys, "--capture", path)
    assert code == 1
    assert why in error
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.tar.gz"]


def test_a_capture_that_is_cut_off_is_refused(tmp_path, capsys):
    path = captured(tmp_path)
    for length in (0, 10, 1000, path.stat().st_size // 2):
        cut = tmp_path / f"cut-{length}"
        cut.write_bytes(path.read_bytes()[:length])
        assert diagnosed(capsys, "--capture", cut)[0] == 1


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 20)
    path = packed(tmp_path / "c.tar.gz", ("summary.txt", bytes(1 << 22)), manifest=listing())
    assert path.stat().st_size < 1 << 16
    code, error = diagnosed(capsys, "--capture", path)
    assert code == 1
    assert "more than a capture holds" in error


def test_the_watch_keeps_a_hang_once_an_hour_within_its_quota(tmp_path, monkeypatch):
    gathered = known()
    reports = job_reports.reports(diagnose_each(gathered.jobs), gathered.evidence, NOW)
    kept = HangCaptures(tmp_path / "kept", "0.1.0")
    (first,) = kept.take(gathered, reports, NOW)
    assert first.name == "20251009T085820Z-job.capture.tar.gz"
    assert kept.take(gathered, reports, NOW + 3599) == []
    assert len(kept.take(gathered, reports, NOW + 3600)) == 1
    archive.read(first, tmp_path)
    monkeypatch.setattr("rankscope_analyzers.captures.kept.MAX_KEPT_BYTES", 10)
    (last,) = kept.take(gathered, reports, NOW + 7200)
    assert list((tmp_path / "kept").iterdir()) == [last]


def test_jobs_whose_names_differ_in_a_slash_have_captures_of_their_own(tmp_path):
    gathered, lines = known(), []
    (report,) = job_reports.reports(diagnose_each(gathered.jobs), gathered.evidence, NOW)
    both = [replace(report, job_id=job_id) for job_id in ("a/b_c", "a_b/c")]
    HangCaptures(tmp_path / "kept", "0.1.0").keep(gathered, both, NOW, lines.append)
    assert len(list((tmp_path / "kept").iterdir())) == 2
    assert [line.startswith("captured what is known") for line in lines] == [True, True]


def test_a_directory_that_cannot_be_written_costs_a_line(tmp_path):
    (tmp_path / "kept").write_text("a file")
    gathered, lines = known(), []
    reports = job_reports.reports(diagnose_each(gathered.jobs), gathered.evidence, NOW)
    HangCaptures(tmp_path / "kept", "0.1.0").keep(gathered, reports, NOW, lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("a capture cannot be written: ")


def test_a_job_that_makes_steps_is_not_captured(tmp_path):
    observed = from_pages([training_page(1.0)], job_reports.READS)
    gathered = replace(known(), evidence=JobEvidence(observed))
    reports = job_reports.reports(diagnose_each(gathered.jobs), gathered.evidence, NOW)
    assert reports
    assert HangCaptures(tmp_path / "kept", "0.1.0").take(gathered, reports, NOW) == []
    assert not (tmp_path / "kept").exists()


def test_other_files_are_no_captures(tmp_path, capsys):
    for body in (b"", b"text", gzip.compress(b"text")):
        (tmp_path / "c").write_bytes(body)
        assert diagnosed(capsys, "--capture", tmp_path / "c")[0] == 1


def test_a_directory_that_cannot_be_looked_into_is_one_sentence(tmp_path, capsys, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "c.tgz"
    monkeypatch.setattr("pathlib.Path.exists", refused)  # root is refused nothing
    assert cli.main(["capture", "--agent", "localhost:1", "--job", "j", str(path)]) == 1
    said = (
        f"rankscope capture: the capture cannot be written: [Errno 13] Permission denied: '{path}'"
    )
    assert capsys.readouterr().err == said + "\n"


def test_a_place_where_no_file_can_be_made_is_refused_before_anything_is_asked(
    tmp_path, capsys, monkeypatch
):
    command = ["capture", "--agent", "localhost:1", "--job", "j"]
    refused = "rankscope capture: the capture cannot be written: "
    assert cli.main([*command, str(tmp_path / "none" / "c.tgz")]) == 1
    assert capsys.readouterr().err == f"{refused}there is no directory {tmp_path / 'none'}\n"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root is refused nothing
    assert cli.main([*command, str(tmp_path / "c.tgz")]) == 1
    assert capsys.readouterr().err == f"{refused}{tmp_path} is not writable\n"


def test_of_a_capture_that_cannot_be_written_whole_nothing_remains(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_add", full)
    with pytest.raises(OSError, match="No space left"):
        archive.write(tmp_path / "c.tgz", {"summary.txt": b"x"}, {})
    assert not list(tmp_path.iterdir())
