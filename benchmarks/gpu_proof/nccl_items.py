"""The items about what NCCL itself writes: its Flight Recorder, its logs and its Inspector."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from pathlib import Path

from benchmarks.gpu_proof import jobs
from benchmarks.gpu_proof.device import need_gpu
from benchmarks.gpu_proof.outcome import Figures, NotAvailableError
from benchmarks.probe_cost import memory_directory

from rankscope_agent.sources.flight_recorder.launches import read_launches
from rankscope_agent.sources.flight_recorder.worker_server import fetch


def flight_recorder(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Fetch the Flight Recorder of a running job over its socket, like the agent."""
    need_gpu()
    run = jobs.Run("ddp", "healthy", 4.0, words=("--linger", "12"))
    with tempfile.TemporaryDirectory(dir=memory_directory()) as memory:
        place = Path(memory)
        with jobs.started(run, place) as ranks:
            end = time.monotonic() + min(seconds, jobs.START_SECONDS)
            while time.monotonic() < end and all(one.exit_code(0.0) is None for one in ranks):
                bodies = dumps(place / "rings")
                if any(read_launches(body).launches for body in bodies):
                    break
                time.sleep(1.0)
            else:
                return {}, "no dump came from either rank"
        for number, body in enumerate(bodies):
            (folder / f"flight-{number}.json").write_bytes(body)
        counts = [len(read_launches(body).launches) for body in bodies]
        return {"dumps": len(bodies), "launches": counts}, ""


def dumps(rings: Path) -> list[bytes]:
    """Return what the worker servers next to rings have recorded."""
    bodies: list[bytes] = []
    directory = os.open(rings, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path in sorted(rings.glob("*.sock")):
            fetch(directory, path.name, os.getuid(), bodies.append)
    except OSError:  # not there yet, or no longer
        return bodies
    finally:
        os.close(directory)
    return bodies


def explain_nccl(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Explain the real logs of the previous jobs."""
    logs = sorted(str(path) for path in folder.parent.glob("*/nccl-*.log"))
    if not logs:
        raise NotAvailableError("no job before has written NCCL's logs")
    from rankscope_analyzers.logs.nccl_explanation import NcclExplanation

    explained = NcclExplanation(logs[:2])
    (folder / "explanation.txt").write_text("\n".join(explained.lines()), encoding="utf-8")
    (folder / "explanation.json").write_text(json.dumps(explained.as_object()), encoding="utf-8")
    text = (folder / "explanation.txt").read_text(encoding="utf-8")
    return {"lines": len(text.splitlines())}, "" if "Socket" in text else "no socket is named"


def inspector(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Run a job with NCCL's Inspector, if this NCCL has it, and count what it writes."""
    need_gpu()
    plugin = inspector_plugin()
    if plugin is None:
        raise NotAvailableError("libnccl-profiler-inspector.so is not beside libnccl.so")
    written = folder / "inspector"
    written.mkdir()
    variables = {
        "NCCL_PROFILER_PLUGIN": str(plugin),
        "NCCL_INSPECTOR_ENABLE": "1",
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "1000000",
        "NCCL_INSPECTOR_DUMP_DIR": str(written),
    }
    failed = jobs.finish(
        jobs.Run("ddp", "healthy", 4.0, variables=variables), folder / "job", seconds
    )
    for path in written.iterdir():
        path.rename(path.with_name(path.name + ".json" if not path.suffix else path.name))
    count = sum(1 for path in written.iterdir() for _ in path.open("rb"))
    return {"lines": count}, failed or ("" if count else "it has written nothing")


def inspector_plugin() -> Path | None:
    """Return the Inspector of torch's NCCL, None without one."""
    found = importlib.util.find_spec("nvidia")
    for place in found.submodule_search_locations or () if found else ():
        for path in Path(place).glob("nccl/lib/libnccl-profiler-inspector.so*"):
            return path
    return None
