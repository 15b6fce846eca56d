"""Traces in object stores, and those that a Dask cluster judges, have the same verdicts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import types
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

from rankscope_analyzers import cli
from rankscope_analyzers.steps import job_records, stored_traces
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.trace_directories import directory
from suite_jobs import fault, made

STORE = "memory://archive/2026"
SCHEDULER = "tcp://127.0.0.1:8786"


def write(folder: Path, simulated, **meta):
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(simulated.meta | meta))
    simulated.records.to_parquet(folder / "records.parquet")


@pytest.fixture
def traces(tmp_path):
    """Two jobs on disk, and the same in a store."""
    for kind, subtype in (("gpu_compute", "gpu"), ("data_loader", "rank")):
        slow = made(fault(kind, subtype, 1.5, last=130), steps=140)
        write(tmp_path / "traces" / kind, slow, job=kind)
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path / "traces"), "/archive/2026", recursive=True)
    yield tmp_path / "traces"
    store.rm("/archive", recursive=True)


def verdicts(path, *words):
    code = cli.main(["diagnose", "--verdicts", str(path), "--workers", "1", *map(str, words)])
    return code, path.read_bytes() if path.exists() else None


def test_the_same_verdicts_come_from_a_store_byte_for_byte(traces, tmp_path):
    code, stored = verdicts(tmp_path / "a.json", "--trace", STORE + "/")
    assert (code, stored) == verdicts(tmp_path / "b.json", "--trace", traces)
    assert code == 0
    assert [len(job["verdicts"]) for job in json.loads(stored)["jobs"].values()] == [1, 1]


def test_the_report_on_a_stored_job_is_that_of_the_one_on_disk(traces, capsys, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1.8e9)  # a report says how long ago steps were
    assert cli.main(["diagnose", "--json", "--trace", f"{STORE}/gpu_compute"]) == 0
    stored = capsys.readouterr().out
    assert cli.main(["diagnose", "--json", "--trace", str(traces / "gpu_compute")]) == 0
    here = capsys.readouterr().out
    assert "gpu_compute" in here
    assert stored.replace(STORE, str(traces)) == here


def test_nothing_of_a_stored_trace_stays_on_disk(traces, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    where = directory(f"{STORE}/gpu_compute")
    with stored_traces.at_hand(where) as folder:
        assert {one.name for one in folder.iterdir()} == {"meta.json", "records.parquet"}
        assert scratch in folder.parents
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("within", [0, -1])
def test_a_file_is_copied_up_to_its_bound(within, traces, monkeypatch):
    size = (traces / "gpu_compute" / "records.parquet").stat().st_size
    monkeypatch.setattr(stored_traces, "MAX_FILE_BYTES", size + within)
    where = directory(f"{STORE}/gpu_compute")
    if within == 0:
        assert stored_traces.trace(where).job_id == "gpu_compute"
        return
    with pytest.raises(SourceError, match=f"{size:,} bytes in records.parquet, and a trace may"):
        stored_traces.trace(where)


def test_what_one_file_may_take_is_sixteen_gibibytes():
    assert stored_traces.MAX_FILE_BYTES == 17_179_869_184


def test_a_hostile_stored_trace_is_refused_by_its_address(capsys, tmp_path):
    store = fsspec.filesystem("memory")
    store.pipe("/archive/bad/records.csv", ",".join(map(str, range(300))).encode() + b"\n1\n")
    try:
        with pytest.raises(SourceError, match=r"memory://archive/bad/records\.csv.*300 columns"):
            stored_traces.trace(directory("memory://archive/bad"))
        assert verdicts(tmp_path / "a.json", "--trace", "memory://archive/bad")[0] == 1
        said = capsys.readouterr().err
        assert "memory://archive/bad/records.csv cannot be read" in said
        assert "rankscope-trace-" not in said
    finally:
        store.rm("/archive", recursive=True)


def test_a_directory_that_is_not_there_is_one_sentence(capsys):
    assert cli.main(["diagnose", "--trace", "memory://nowhere"]) == 1
    said = capsys.readouterr().err
    assert "memory://nowhere cannot be read: FileNotFoundError" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://bucket/traces", "s3fs", "s3"),
        ("gs://bucket/traces", "gcsfs", "gcs"),
        ("az://container/traces", "adlfs", "azure"),
    ],
)
def test_a_missing_package_names_its_extra(url, package, extra, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["diagnose", "--trace", url]) == 1
    needs = f"{url} cannot be read without {package}: pip install 'rankscope[{extra}]'"
    assert needs in capsys.readouterr().err


def test_what_save_wrote_is_to_be_copied(capsys):
    store = fsspec.filesystem("memory")
    store.pipe("/saved/evidence.json", b"{}")
    try:
        assert cli.main(["diagnose", "--trace", "memory://saved"]) == 1
        assert "which is read from disk" in capsys.readouterr().err
    finally:
        store.rm("/saved", recursive=True)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_store_is_searched_for_jobs_up_to_a_bound(extra, traces, monkeypatch):
    monkeypatch.setattr(stored_traces, "MAX_ENTRIES", 2 - extra)
    where = directory(STORE)
    if not extra:
        assert [one.name for one in stored_traces.job_directories(where)] == [
            "data_loader",
            "gpu_compute",
        ]
        return
    with pytest.raises(SourceError, match=r"2026 holds over 100,000 files.* 60 s to list: give"):
        stored_traces.job_directories(where)


def test_a_job_among_too_many_files_is_found_by_its_name(traces, monkeypatch):
    monkeypatch.setattr(stored_traces, "MAX_ENTRIES", 1)
    where = directory(f"{STORE}/gpu_compute")
    assert stored_traces.job_directories(where) == [where]
    assert stored_traces.trace(where).meta["job"] == "gpu_compute"


@pytest.mark.parametrize("extra", [0, 1])
def test_a_directory_on_disk_is_searched_up_to_the_same_bound(extra, traces, monkeypatch, capsys):
    monkeypatch.setattr(job_records, "MAX_ENTRIES", 2 - extra)
    assert cli.main(["diagnose", "--trace", str(traces)]) == extra
    assert ("files and directories: give --trace the" in capsys.readouterr().err) == bool(extra)
    assert job_records.trace(traces / "gpu_compute").job_id == "gpu_compute"


def test_the_bound_is_a_hundred_thousand():
    assert stored_traces.MAX_ENTRIES == job_records.MAX_ENTRIES == 100_000


class EndlessStore(AsyncFileSystem):
    """A store of which a listing never ends."""

    protocol = "endless"
    cachable = False
    asked = 0

    async def _ls(self, path, detail=True, **_):
        type(self).asked += 1
        await asyncio.sleep(60.0)
        return []

    async def _isfile(self, path):
        return path.endswith("/job/records.csv")


def test_a_listing_that_does_not_end_is_given_up(monkeypatch):
    fsspec.register_implementation("endless", EndlessStore, clobber=True)
    monkeypatch.setattr(stored_traces, "LISTING_SECONDS", 0.05)
    with pytest.raises(SourceError, match=r"endless://bucket holds over .* or takes over 0\.05 s"):
        stored_traces.job_directories(directory("endless://bucket"))
    where = directory("endless://bucket/job")
    assert stored_traces.job_directories(where) == [where]
    assert EndlessStore.asked == 2


def test_a_store_has_a_minute_to_list_a_directory(monkeypatch):
    allowed = []

    def sync(loop, listing, path, detail, timeout):
        allowed.append(timeout)
        return []

    monkeypatch.setattr("fsspec.asyn.sync", sync)
    store = SimpleNamespace(async_impl=True, loop=None, _ls=None)
    assert stored_traces._listed(store, "bucket") == []
    assert allowed == [60.0]


@pytest.mark.parametrize(
    ("length", "why"), [(255, "cannot be copied"), (256, "has no name that a job could have")]
)
def test_a_job_has_a_name_that_a_directory_on_disk_can_have(length, why):
    where = directory(f"memory://nothing/{'n' * length}")
    with pytest.raises(SourceError, match=why), stored_traces.at_hand(where):
        pass


class FakeClient:
    """A cluster of two workers; the first task's worker is killed where that is wanted."""

    killing = False

    def __init__(self, address, timeout, set_as_default):
        assert (address, timeout, set_as_default) == (SCHEDULER, 30, False)
        self.pool = ThreadPoolExecutor(2)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.pool.shutdown()

    def get_executor(self):
        return self

    def submit(self, judge, directory):
        if self.killing and directory.name == "data_loader":
            lost: Future[object] = Future()
            lost.set_exception(RuntimeError("the worker was killed"))
            return lost
        return self.pool.submit(judge, directory)


@pytest.fixture
def dask(monkeypatch):
    module = types.ModuleType("distributed")
    module.Client = FakeClient
    monkeypatch.setitem(sys.modules, "distributed", module)
    return FakeClient


def test_a_cluster_gives_the_same_verdicts_byte_for_byte(traces, tmp_path, dask):
    found = verdicts(tmp_path / "a.json", "--trace", STORE, "--scheduler", SCHEDULER)
    assert found == verdicts(tmp_path / "b.json", "--trace", traces)
    assert found[0] == 0


def test_a_trace_whose_worker_is_killed_costs_only_itself(
    traces, tmp_path, dask, monkeypatch, capsys
):
    monkeypatch.setattr(dask, "killing", True)
    code, found = verdicts(tmp_path / "a.json", "--trace", traces, "--scheduler", SCHEDULER)
    assert (code, list(json.loads(found)["jobs"])) == (1, ["gpu_compute"])
    assert "the worker was killed" in capsys.readouterr().err


REAL_CLUSTER = """
import sys
from distributed import LocalCluster
from rankscope_analyzers import cli
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        sys.exit(cli.main([*sys.argv[1:], "--scheduler", cluster.scheduler_address]))
"""

IMPORTED_ONCE = {"DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
"""Workers are processes of their own, forked from one that has imported what all of them need."""


def test_workers_of_a_real_cluster_give_the_same_verdicts(traces, tmp_path):
    """In a process of its own: a module of some tests is called `distributed`, too."""
    script, out = tmp_path / "cluster.py", tmp_path / "a.json"
    script.write_text(REAL_CLUSTER)
    words = ["diagnose", "--trace", str(traces), "--verdicts", str(out)]
    done = subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | IMPORTED_ONCE,
    )
    if "No module named 'distributed'" in done.stderr:
        pytest.skip("rankscope[dask] is not installed")
    assert done.returncode == 0, done.stderr
    assert verdicts(tmp_path / "b.json", "--trace", traces) == (0, out.read_bytes())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--scheduler", "http://a"], "--scheduler takes tcp://HOST:PORT or tls://..."),
        (["--scheduler", "tcp://a:1"], "takes distributed: pip install 'rankscope[dask]'"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_sentence(
    words, complaint, traces, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert verdicts(tmp_path / "a.json", "--trace", traces, *words) == (1, None)
    assert complaint in capsys.readouterr().err


def test_a_scheduler_without_verdicts_is_refused(traces, capsys):
    assert cli.main(["diagnose", "--trace", str(traces), "--scheduler", SCHEDULER]) == 1
    assert "--scheduler needs --verdicts" in capsys.readouterr().err
