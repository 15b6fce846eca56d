"""Traces in Google's and in Azure's object stores, as emulators on loopback serve them.

`make stores` has what the first takes; the second one is served by Azurite, `npm install azurite`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.steps import stored_traces
from rankscope_analyzers.steps.job_records import SourceError
from suite_jobs import fault, made

PATIENCE_SECONDS = 60.0
BUCKET = "archive"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""That of its only account, which its manual names."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Two jobs on disk."""
    traces = tmp_path_factory.mktemp("traces")
    for kind, subtype in (("gpu_compute", "gpu"), ("data_loader", "rank")):
        simulated = made(fault(kind, subtype, 1.5, last=130), steps=140)
        folder = traces / kind
        folder.mkdir()
        (folder / "meta.json").write_text(json.dumps(simulated.meta | {"job": kind}))
        simulated.records.to_parquet(folder / "records.parquet")
    return traces


def filled(files, traces):
    for path in traces.glob("*/*"):
        files.pipe(f"{BUCKET}/2026/{path.relative_to(traces)}", path.read_bytes())
    files.pipe(f"{BUCKET}/2026/notes.txt", b"no trace")


@pytest.fixture(scope="module")
def gs(traces):
    """Serve the traces as Google does; give their address."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="serves GCS: make stores")
    port = free_port()
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    server.start()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        # It would ask for the kind of the bucket by gRPC, which the emulator does not speak.
        patched.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        gcsfs = pytest.importorskip("gcsfs", reason="reads GCS: make stores")
        filled(gcsfs.GCSFileSystem(token="anon", skip_instance_cache=True), traces)
        yield f"gs://{BUCKET}/2026"
    server.stop()


@pytest.fixture(scope="module")
def az(traces):
    """Serve the traces as Azure does; give their address."""
    adlfs = pytest.importorskip("adlfs", reason="reads Azure's blobs: make stores")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not on PATH: npm install azurite")
    port = free_port()
    words = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    connection = (
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
        f"AccountKey={AZURITE_KEY};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )
    with subprocess.Popen([program, *words]) as server, pytest.MonkeyPatch.context() as patched:
        try:
            patched.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
            answers(f"http://127.0.0.1:{port}")
            files = adlfs.AzureBlobFileSystem(connection_string=connection)
            files.mkdir(BUCKET)
            filled(files, traces)
            yield f"az://{BUCKET}/2026"
        finally:
            server.terminate()


def answers(url):
    """Wait until somebody listens."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        with suppress(ConnectionError, urllib.error.URLError):
            try:
                urllib.request.urlopen(url, timeout=PATIENCE_SECONDS).close()
            except urllib.error.HTTPError as error:
                error.close()
            return
        time.sleep(0.1)


def verdicts(path, *words):
    code = cli.main(["diagnose", "--verdicts", str(path), "--workers", "1", *map(str, words)])
    return code, path.read_bytes() if path.exists() else None


@pytest.fixture(params=["gs", "az"])
def address(request):
    return request.getfixturevalue(request.param)


def test_verdicts_on_a_bucket_are_those_on_disk_byte_for_byte(address, traces, tmp_path):
    code, stored = verdicts(tmp_path / "a.json", "--trace", f"{address}/")
    assert (code, stored) == verdicts(tmp_path / "b.json", "--trace", traces)
    assert code == 0
    assert [len(job["verdicts"]) for job in json.loads(stored)["jobs"].values()] == [1, 1]


def test_what_is_not_there_is_one_sentence(address):
    with pytest.raises(SourceError, match="FileNotFoundError") as raised:
        stored_traces.job_directories(stored_traces.directory(f"{address}/nothing"))
    assert "\n" not in str(raised.value)
