import contextlib
import gzip
import json
import os

import pytest

from kineto_traces import Trace, device_trace
from rankscope_analyzers import cli
from rankscope_analyzers.profiles import kineto_files
from rankscope_analyzers.profiles.kineto_files import from_kineto
from rankscope_analyzers.steps.job_records import SourceError

ONLY_STEPS = "GPUs, links, kernel logs and hosts: only step records were given"


def write(folder, name, trace):
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps(trace.document(), indent=2).encode()
    path = folder / name
    path.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    return path


def job(folder, slow=2, ranks=4):
    for rank in range(ranks):
        compute = 80_000.0 if rank == slow else 50_000.0
        trace = device_trace(rank, compute=compute, peers=80_000.0)
        trace.world_size = ranks
        suffix = "gz" if rank % 2 else "json"
        name = f"gpu-07_{rank}.1795233619710776650.pt.trace.json{'.gz' if suffix == 'gz' else ''}"
        write(folder, name, trace)
    return folder


def test_the_rank_with_the_slow_device_is_named(tmp_path, capsys):
    folder = job(tmp_path / "run7")
    assert cli.main(["diagnose", "--kineto", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["run7"]
    assert (said["verdict"]["class"], said["verdict"]["ranks"]) == ("gpu_compute", [2])
    assert said["verdict"]["nodes"] == ["gpu-07"]
    assert said["unobserved"] == [ONLY_STEPS]


def test_equal_devices_accuse_nobody(tmp_path, capsys):
    folder = job(tmp_path / "run7", slow=None)
    assert cli.main(["diagnose", "--kineto", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run7"]["verdict"]["class"] is None


def test_rank_and_size_come_from_inside_the_files(tmp_path):
    (found,) = from_kineto([job(tmp_path / "run7")]).jobs
    assert (found.job_id, found.world_size, found.notes, found.live) == ("run7", 4, (), False)
    assert sorted(found.records["rank"].unique()) == [0, 1, 2, 3]
    assert set(found.records["timing_source"]) == {"kernel"}


def test_a_heavy_pipeline_stage_is_no_slow_rank(tmp_path, capsys):
    for rank in range(8):
        trace = device_trace(rank, compute=80_000.0 if rank >= 4 else 50_000.0, peers=80_000.0)
        trace.world_size = 8
        trace.groups = {"default_pg": list(range(8)), "mesh_pp": [rank % 4, rank % 4 + 4]}
        write(tmp_path / "j", f"{rank}.json", trace)
    (found,) = from_kineto([tmp_path / "j"]).jobs
    assert found.records.groupby("rank")["pp_stage"].first().tolist() == [0] * 4 + [1] * 4
    assert cli.main(["diagnose", "--kineto", str(tmp_path / "j"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["j"]["verdict"]["ranks"] == []


def test_a_rank_is_taken_from_the_name_only_where_the_file_does_not_say(tmp_path):
    write(tmp_path, "rank-7.json", Trace(rank=3, events=device_trace(3).events))
    write(tmp_path, "rank5.json.gz", Trace(rank=None, events=device_trace(5).events))
    (found,) = from_kineto([tmp_path]).jobs
    assert sorted(found.records["rank"].unique()) == [3, 5]


def test_times_and_node_are_known_of_traces_that_older_torch_wrote(tmp_path):
    """Before 2.3 events have whole microseconds of Unix time, and nothing says the host inside."""
    document = device_trace(0).document()
    del document["baseTimeNanoseconds"], document["host_name"]
    document["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}
    for event in document["traceEvents"]:
        event["ts"] = 1_740_461_679_000_000 + int(event["ts"])
    path = tmp_path / "gpu-09_4711.1740461680123.pt.trace.json"
    path.write_text(json.dumps(document))
    (found,) = from_kineto([tmp_path]).jobs
    assert set(found.records["node"]) == {"gpu-09"}
    assert found.records["t_start_unix_seconds"].iloc[0] == pytest.approx(1_740_461_679.0)
    assert found.records["compute_seconds"].iloc[5] == pytest.approx(0.050, abs=1e-4)


def test_a_file_of_no_known_rank_is_named(tmp_path):
    path = write(job(tmp_path / "j"), "some.json", Trace(rank=None))
    (found,) = from_kineto([tmp_path / "j"]).jobs
    assert found.notes == (f"{path} does not say which rank wrote it (distributedInfo.rank)",)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.json", b"", "expected '{'"),
        ("a.json", b"[]", "expected '{'"),
        ("a.json", b'{"traceEvents": [{"ph": "X", "na', "expected a JSON value"),
        ("a.json", b'{"a": "\xff\xfe"}', "cannot be read"),
        ("a.json.gz", b"not gzip", "cannot be read"),
        ("a.json.gz", gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "cannot be read"),
        ("a.json", b'{"distributedInfo": {"rank": -4}}', "expected 0 to"),
        ("rank4.json", b'{"traceEvents": []}', "holds neither a ProfilerStep nor two optimizer"),
    ],
)
def test_a_bad_file_is_named_and_the_others_are_used(tmp_path, name, content, complaint):
    folder = job(tmp_path / "j")
    (folder / name).write_bytes(content)
    (found,) = from_kineto([folder]).jobs
    assert sorted(found.records["rank"].unique()) == [0, 1, 2, 3]
    (note,) = found.notes
    assert note.startswith(f"{folder / name} ")
    assert complaint in note


def test_only_bad_files_are_an_error_that_names_some_and_counts_the_rest(tmp_path, capsys):
    for number in range(12):
        (tmp_path / f"{number}.json").write_text("{")
    assert cli.main(["diagnose", "--kineto", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count(".json") == 8
    assert "4 more traces cannot be used" in said


def test_a_half_written_trace_is_refused_as_it_would_name_the_wrong_rank(tmp_path):
    folder = job(tmp_path / "j")
    path = next(folder.glob("*_0.*"))
    path.write_bytes(path.read_bytes()[:-2_000])
    (found,) = from_kineto([folder]).jobs
    assert sorted(found.records["rank"].unique()) == [1, 2, 3]
    assert found.notes[0].startswith(str(path))


def test_a_pipe_in_the_directory_does_not_hang(tmp_path):
    folder = job(tmp_path / "j")
    os.mkfifo(folder / "pipe.json")
    assert from_kineto([folder]).jobs[0].notes == ()


def test_what_a_profiler_writes_after_a_job_s_last_whole_cycle_is_left_out(tmp_path):
    folder = tmp_path / "j"
    whole = device_trace(0)
    cut = Trace(rank=0)
    cut.add("user_annotation", "ProfilerStep#24", 9_000_000, 48)
    write(folder, "one.json", whole)
    write(folder, "two.json", cut)
    (found,) = from_kineto([folder]).jobs
    assert (len(found.records), found.notes) == (24, ())


def test_traces_in_which_compute_cannot_be_told_from_waiting_say_so(tmp_path, capsys):
    for rank in range(2):
        trace = Trace(rank)
        for step in range(30):
            trace.add("user_annotation", f"ProfilerStep#{step}", step * 1000, 990)
        write(tmp_path / "j", f"{rank}.json", trace)
    assert cli.main(["diagnose", "--kineto", str(tmp_path / "j"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["j"]
    assert said["verdict"]["class"] is None
    assert any("2 of 2 traces hold neither kernels nor gloo" in each for each in said["unobserved"])


def test_traces_of_jobs_of_different_sizes_are_said(tmp_path):
    folder = job(tmp_path / "j")
    write(folder, "x.json", Trace(rank=9, world_size=16, events=device_trace(9).events))
    (found,) = from_kineto([folder]).jobs
    assert found.world_size == 16
    assert found.notes == ("traces are of jobs of 4 and 16 ranks",)


def test_a_trace_larger_than_its_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_files, "MAXIMUM_CHARACTERS", 3_000)
    with pytest.raises(SourceError, match="has more than 3000 characters"):
        from_kineto([job(tmp_path / "j")])


def test_directories_that_cannot_be_used_say_what_was_expected(tmp_path):
    with pytest.raises(SourceError, match="is not a directory"):
        from_kineto([tmp_path / "absent"])
    with pytest.raises(SourceError, match=r"expected \*\.json\[\.gz\]"):
        from_kineto([tmp_path])
    job(tmp_path / "a" / "same")
    job(tmp_path / "b" / "same")
    with pytest.raises(SourceError, match="several directories hold a job same"):
        from_kineto([tmp_path / "a" / "same", tmp_path / "b" / "same"])


def places(value, path=()):
    """Yield the way to everything in a JSON document but the document itself."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from places(inner, (*path, key))


@pytest.mark.parametrize("number", ["9" * 309, "-" + "9" * 309, "9" * 4300], ids=len)
def test_an_integer_that_fits_into_no_float_costs_at_most_its_own_trace(tmp_path, number):
    trace = device_trace(1, steps=3)
    trace.groups = {"mesh_tp": [0, 1], "mesh_pp": [1]}
    document, usable = trace.document(), 0
    for place in places(document):
        if len(place) > 1 and place[0] == "traceEvents" and place[1] > len(trace.events) // 3:
            continue  # all steps are alike
        damaged = inner = json.loads(json.dumps(document))
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = "HERE"
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(damaged).replace('"HERE"', number))
        with contextlib.suppress(SourceError):  # a sentence, such as one about an impossible rank
            (found,) = from_kineto([tmp_path]).jobs
            starts = found.records["t_start_unix_seconds"]
            assert starts.between(1_700_000_000.0, 1_700_001_000.0).all()
            usable += 1
    assert usable > 50
