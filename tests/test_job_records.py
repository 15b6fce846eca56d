import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest

from rankscope_analyzers.steps import job_records, record_files, stored_traces
from rankscope_analyzers.steps.job_records import SourceError
from simulated_jobs import Job, records


def write_trace(folder, rows, name="records.csv", **meta):
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"format_version": 1, "job": "j", **meta}))
    if name == "records.npz":
        columns = rows.assign(node=rows["node"].str[-5:].astype(int))
        np.savez(folder / name, **{key: columns[key].to_numpy() for key in columns})
    elif name == "records.parquet":
        rows.to_parquet(folder / name)
    else:
        rows.to_csv(folder / name, index=False)
    return folder


@pytest.mark.parametrize("name", list(record_files.READERS))
def test_every_form_of_a_trace_gives_the_same_durations(tmp_path, name):
    rows = records(Job(ranks=4, steps=20))
    (job,) = stored_traces.from_traces([write_trace(tmp_path / "t", rows, name, world_size=4)]).jobs
    assert (job.job_id, job.world_size, job.live) == ("j", 4, False)
    np.testing.assert_allclose(job.records["compute_seconds"], rows["compute_seconds"])


def test_a_directory_of_traces_is_read_job_by_job(tmp_path):
    for name in ("one", "two"):
        write_trace(tmp_path / name, records(Job(ranks=2, steps=5)), job=name)
    assert [job.job_id for job in stored_traces.from_traces([tmp_path]).jobs] == ["one", "two"]


def test_two_traces_of_one_name_are_refused(tmp_path):
    for name in ("one", "two"):
        write_trace(tmp_path / name, records(Job(ranks=2, steps=5)))
    with pytest.raises(SourceError, match="both hold job j"):
        stored_traces.from_traces([tmp_path])


def test_a_trace_without_metadata_is_named_after_its_folder(tmp_path):
    folder = write_trace(tmp_path / "run7", records(Job(ranks=2, steps=5)))
    (folder / "meta.json").unlink()
    assert stored_traces.from_traces([folder]).jobs[0].job_id == "run7"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("records.csv", b"", "cannot be read as step records"),
        ("records.csv", b"step,rank\n", "holds no step records"),
        ("records.csv.gz", b"not gzip", "cannot be read as step records"),
        ("records.csv.gz", gzip.compress(b"step,rank\n1,2\n", mtime=0)[:-9], "cannot be read"),
        ("records.npz", b"PK\x03\x04 broken", "cannot be read as step records"),
        ("records.parquet", b"PAR1", "cannot be read as step records"),
    ],
)
def test_a_broken_record_file_is_named(tmp_path, name, content, complaint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=complaint) as raised:
        stored_traces.from_traces([tmp_path])
    assert str(tmp_path / name) in str(raised.value)


@pytest.mark.parametrize("meta", ["{", "[]", '{"format_version": 2}'])
def test_broken_metadata_is_named(tmp_path, meta):
    folder = write_trace(tmp_path / "t", records(Job(ranks=2, steps=5)))
    (folder / "meta.json").write_text(meta)
    with pytest.raises(SourceError, match=r"meta\.json"):
        stored_traces.from_traces([folder])


def test_a_folder_without_traces_says_what_was_expected(tmp_path):
    with pytest.raises(SourceError, match=r"holds no trace: expected one of .*records\.npz"):
        stored_traces.from_traces([tmp_path])
    with pytest.raises(SourceError, match="is not a directory"):
        stored_traces.from_traces([tmp_path / "absent"])


@pytest.mark.parametrize(("size", "read"), [(67_108_864, True), (67_108_865, False)])
def test_metadata_have_64_mib(size, read):
    state = SimpleNamespace(st_size=size)
    path = SimpleNamespace(stat=lambda: state, read_text=lambda encoding: "{}")
    if read:
        assert job_records._meta(path) == {}
        return
    with pytest.raises(SourceError, match="67,108,865 bytes"):
        job_records._meta(path)
