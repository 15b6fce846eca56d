"""`python -m benchmarks gpu-proof`: what is tested with fakes elsewhere, on one real NVIDIA GPU.

Two NCCL ranks share the GPU and communicate over the loopback interface: DistributedDataParallel,
fully_shard, tensor-parallel and a pipeline, each healthy and with a rank that is slow on the
device, on its host, in its input and in its copies; the collector against nvidia-smi; the probe's
overhead, the Flight Recorder, NCCL's logs and Inspector. Each item is printed as it ends and
reports "not available here" if something is missing. Nothing is downloaded, and no setting of the
GPU is changed. It takes at most 9 minutes, and writes `gpu-proof.json` and `gpu-proof.tar.gz` into
the current directory (or GPU_PROOF_DIR).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu_proof import jobs
from benchmarks.gpu_proof.items import ITEMS, Item
from benchmarks.gpu_proof.outcome import TOTAL_SECONDS, NotAvailableError, Outcome, Status, TimeLeft
from benchmarks.gpu_proof.packing import pack

LEAST_SECONDS = 15.0
"""Seconds; an item is not started with less time left."""

NOTES = (
    "two ranks share one GPU in time slices: both are slower than on a GPU each, and a rank that is"
    " slow on the device slows the other one's kernels, too",
    "collectives go over sockets on the loopback interface",
    "jobs for verdicts sample more often than the probe does by itself, as they are short:"
    " own_share is not what it costs there, see the item `overhead`",
)


def run_item(name: str, item: Item, folder: Path, left: TimeLeft) -> Outcome:
    """Run one item; whatever it raises is its result."""
    if left.seconds < LEAST_SECONDS:
        return Outcome(name, "out of time")
    begin = time.monotonic()
    place = folder / name.replace(" ", "-")
    place.mkdir()
    try:
        figures, wrong = item(place, left.seconds)
    except NotAvailableError as error:
        return Outcome(name, "not available here", {}, str(error), time.monotonic() - begin)
    except subprocess.TimeoutExpired as error:
        return Outcome(name, "out of time", {}, str(error)[:200], time.monotonic() - begin)
    except Exception as error:  # noqa: BLE001 - one item's error costs no other its result
        (place / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        shown = f"{type(error).__name__}: {error}"[:200]
        return Outcome(name, "failed", {}, shown, time.monotonic() - begin)
    status: Status = "failed" if wrong else "passed"
    return Outcome(name, status, figures, wrong, time.monotonic() - begin)


def measure(
    items: Mapping[str, Item] = ITEMS,
    target: Path | None = None,
    seconds: float = TOTAL_SECONDS,
) -> Sequence[Outcome]:
    """Run all items, print each as it ends, and write the JSON and the archive."""
    target = target or Path(os.environ.get("GPU_PROOF_DIR", "."))
    left, outcomes = TimeLeft(seconds), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, item in items.items():
            outcomes.append(run_item(name, item, folder, left))
            sys.stdout.write(outcomes[-1].line() + "\n")
            sys.stdout.flush()
        jobs.end_fork_server()
        left_out = pack(folder, target / "gpu-proof.tar.gz")
    content = {
        "notes": NOTES,
        "items": [one.as_object() for one in outcomes],
        "left_out": list(left_out),
    }
    text = json.dumps(content, indent=1, default=str)
    (target / "gpu-proof.json").write_text(text + "\n", encoding="utf-8")
    return outcomes


def report(outcomes: Sequence[Outcome]) -> str:
    """Count the outcomes, which have been printed."""
    counts = [
        f"{sum(one.status == status for one in outcomes)} {status}"
        for status in dict.fromkeys(one.status for one in outcomes)
    ]
    return f"{len(outcomes)} items: {', '.join(counts)}; gpu-proof.json, gpu-proof.tar.gz"
