"""Traces in S3, as moto serves it on loopback: `make stores` has what these tests need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.steps import stored_traces
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.trace_directories import directory
from suite_jobs import fault, made

s3fs = pytest.importorskip("s3fs", reason="reads S3: make stores")
moto = pytest.importorskip("moto.server", reason="serves S3: make stores")

BUCKET = "archive"


@pytest.fixture(scope="module")
def store():
    """Yield a file system of an empty bucket; processes that a test starts see the same."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        files.mkdir(BUCKET)
        yield files
    server.stop()


@pytest.fixture(scope="module")
def traces(tmp_path_factory, store):
    """Two jobs on disk, and the same in the bucket, beside what is no trace."""
    traces = tmp_path_factory.mktemp("traces")
    for kind, subtype in (("gpu_compute", "gpu"), ("data_loader", "rank")):
        simulated = made(fault(kind, subtype, 1.5, last=130), steps=140)
        folder = traces / kind
        folder.mkdir()
        (folder / "meta.json").write_text(json.dumps(simulated.meta | {"job": kind}))
        simulated.records.to_parquet(folder / "records.parquet")
        store.put(str(folder), f"{BUCKET}/2026/", recursive=True)
    store.pipe(f"{BUCKET}/2026/notes.txt", b"no trace")
    store.pipe(f"{BUCKET}/2026/checkpoints/step-1/model.bin", b"no trace")
    return traces


def verdicts(path, *words):
    code = cli.main(["diagnose", "--verdicts", str(path), "--workers", "1", *map(str, words)])
    return code, path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("ending", ["", "/"])
def test_verdicts_on_a_bucket_are_those_on_disk_byte_for_byte(ending, traces, tmp_path):
    code, stored = verdicts(tmp_path / "a.json", "--trace", f"s3://{BUCKET}/2026{ending}")
    assert (code, stored) == verdicts(tmp_path / "b.json", "--trace", traces)
    assert code == 0
    assert [len(job["verdicts"]) for job in json.loads(stored)["jobs"].values()] == [1, 1]


def test_two_processes_read_the_bucket_as_one_does(traces, tmp_path):
    written = []
    for workers in ("1", "2"):
        path = tmp_path / f"{workers}.json"
        words = ["diagnose", "--verdicts", str(path), "--workers", workers]
        command = [sys.executable, "-m", "rankscope_analyzers", *words]
        subprocess.run([*command, "--trace", f"s3://{BUCKET}/2026"], check=True, timeout=300)
        written.append(path.read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"s3://{BUCKET}/nothing", "FileNotFoundError"),
        ("s3://no-such-bucket/2026", "NoSuchBucket|FileNotFoundError|does not exist"),
        (f"s3://{BUCKET}/2026/checkpoints", "holds no trace"),
    ],
)
def test_what_is_not_there_is_one_sentence(url, said, traces):
    with pytest.raises(SourceError, match=said) as raised:
        stored_traces.job_directories(directory(url))
    assert "\n" not in str(raised.value)


def test_a_job_in_a_directory_too_large_to_list_is_found_by_its_name(traces, monkeypatch):
    monkeypatch.setattr(stored_traces, "MAX_ENTRIES", 1)
    where = directory(f"s3://{BUCKET}/2026/gpu_compute")
    assert stored_traces.job_directories(where) == [where]
    assert stored_traces.trace(where).job_id == "gpu_compute"
    with pytest.raises(SourceError, match="give --trace the directories of single jobs"):
        stored_traces.job_directories(directory(f"s3://{BUCKET}/2026"))
