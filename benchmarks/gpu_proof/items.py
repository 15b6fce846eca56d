"""The items of the proof: each measures one thing, or reports what it lacks."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import diagnosed, gpu_check
from benchmarks.agents import agents_over
from benchmarks.gpu_proof import jobs, nccl_items, pairs
from benchmarks.gpu_proof.device import need_gpu
from benchmarks.gpu_proof.outcome import Figures, NotAvailableError
from benchmarks.gpu_proof.training import FAULTS, KINDS, SLOW_RANK
from benchmarks.probe_cost import memory_directory

Item = Callable[[Path, float], tuple[Figures, str]]
"""Given a directory for its files and the seconds left, returns figures, and why it failed."""

NVML_LOOKS = 15
LOAD_SECONDS = 12.0
OVERHEAD_SECONDS, PAIRS_SECONDS = 40.0, 30.0
COMPILED_SECONDS = 15.0
"""Compiling takes most of it; the first step that is sampled is the eighth."""
MANY_LAYERS = 100
"""Each is gathered twice and reduced once: 300 collectives a step."""

BUDGET = 0.001
LONGER = 1.01
"""Limits: sampled steps may be 1 % longer in median, and the probe's own host time a thousandth of
all."""

BY_DEFAULT = {"RANKSCOPE_PROBE_STREAM_WAITS": ""}
"""Variables of jobs for which the probe chooses how waits are timed: under DistributedDataParallel
at the ends of backward passes, in each step."""

LOAD = """
import sys, time, torch
square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(50):
        square @ square
    torch.cuda.synchronize()
"""

VERSIONS = """
import json, torch
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda,
    "nccl": list(torch.cuda.nccl.version()), "gpu": torch.cuda.get_device_name(0),
    "capability": list(torch.cuda.get_device_capability(0)), "gpus": torch.cuda.device_count()}))
"""


def versions(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Return the versions that all this was run with."""
    need_gpu()
    done = subprocess.run(
        [sys.executable, "-c", VERSIONS],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if done.returncode:
        return {}, done.stderr.strip()[-200:]
    figures = json.loads(done.stdout)
    smi = shutil.which("nvidia-smi")
    if smi:
        shown = subprocess.run([smi, "-q"], capture_output=True, text=True, check=False, timeout=30)
        (folder / "nvidia-smi-q.txt").write_text(shown.stdout, encoding="utf-8")
        figures["driver"] = driver_version(shown.stdout)
    return figures, ""


def driver_version(text: str) -> str:
    """Read the driver's version from `nvidia-smi -q`; empty if it is missing."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Driver Version":
            return value.strip()
    return ""


def nvml(folder: Path, load: float) -> tuple[Figures, str]:
    """Compare the collector's values with nvidia-smi's, idle or under load."""
    check = gpu_check.measure(NVML_LOOKS)
    if check.missing:
        raise NotAvailableError(check.missing)
    name = "loaded" if load else "idle"
    (folder / f"page-{name}.prom").write_text(check.page, encoding="utf-8")
    (folder / f"check-{name}.txt").write_text(gpu_check.report(check), encoding="utf-8")
    differing = [one.query.name for one in check.compared if not one.agrees]
    slowest = max((max(calls) for calls in check.calls.values()), default=0.0)
    figures = {
        "values": len(check.compared),
        "differ": differing,
        "slowest_call_ms": slowest * 1e3,
        "at_power_limit": at_power_limit(check.page),
    }
    return figures, f"{len(differing)} values differ" if differing else ""


def at_power_limit(page: str) -> bool:
    """Return True if a page shows a GPU that its power limit slows down now."""
    name, reason = "rankscope_gpu_clock_event_active{", 'reason="sw_power_cap"'
    lines = [one for one in page.splitlines() if one.startswith(name) and reason in one]
    return any(float(one.rsplit(" ", 1)[1]) == 1 for one in lines)


def nvml_idle(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Compare NVML's values of a GPU without work."""
    return nvml(folder, 0.0)


def nvml_loaded(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Compare NVML's values of a GPU at work, heavy enough to reach the board's own limit."""
    need_gpu()
    load = subprocess.Popen([sys.executable, "-c", LOAD, str(LOAD_SECONDS)])
    try:
        time.sleep(5.0)  # until CUDA has started and clocks have settled
        return nvml(folder, LOAD_SECONDS)
    finally:
        load.kill()
        load.wait()


def verdict_item(kind: str, fault: str, variables: Mapping[str, str] | None = None) -> Item:
    """Return the item that runs one job and judges it."""

    def item(folder: Path, seconds: float) -> tuple[Figures, str]:
        need_gpu()
        words = ("--budget", str(jobs.VERDICT_BUDGET))
        run = jobs.Run(kind, fault, words=words, variables=variables)
        return run_and_judge(run, folder, seconds)

    return item


def run_and_judge(run: jobs.Run, folder: Path, seconds: float) -> tuple[Figures, str]:
    """Run a job in memory, keep its logs and records, and judge it."""
    with tempfile.TemporaryDirectory(dir=memory_directory()) as memory:
        place = Path(memory)
        failed = jobs.finish(run, place, seconds)
        keep(place, folder)
        if failed:
            return {}, failed
        rows = jobs.records(place)
        rows.to_csv(folder / "records.csv", index=False)
        figures, wrong = jobs.judged(rows, run)
        return {**figures, **jobs.costs(place)}, wrong


def keep(place: Path, folder: Path) -> None:
    """Keep a job's logs."""
    for path in place.glob("*.log"):
        shutil.copyfile(path, folder / path.name)


def overhead(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Measure what sampling costs a fully sharded job of many layers.

    How often a job of its kind is sampled is what the probe chooses; what a sample costs and how
    much longer it makes a step takes more samples than that gives in so short a time.
    """
    need_gpu()
    words = ("--steps", "100000", "--layers", str(MANY_LAYERS), "--width", "256")
    usual = jobs.Run("fsdp2", "healthy", OVERHEAD_SECONDS, words=words)
    often = jobs.Run("fsdp2", "healthy", PAIRS_SECONDS, words=(*words, "--every", "8"))
    rows, spent = {}, {}
    for name, run in (("usual", usual), ("often", often)):
        with tempfile.TemporaryDirectory(dir=memory_directory()) as memory:
            place = Path(memory)
            failed = jobs.finish(run, place, seconds)
            if failed:
                keep(place, folder)
                return {}, failed
            rows[name], spent[name] = jobs.records(place), jobs.costs_of_samples(place)
        rows[name].to_csv(folder / f"records-{name}.csv", index=False)
    once = {**spent["often"], "every": spent["usual"]["every"]}
    once["own_share"] = (once["sample"] / once["every"] + once["between"]) / once["step"]
    return judged_overhead(pairs.ratios(rows["often"]), once)


def compiling(kind: str, what: str) -> Item:
    """Return the item that compiles a job with and without waits timed: as much is compiled.

    Args:
        kind: one of `KINDS`.
        what: `model`, or `streams` for code that waits for streams itself as well, which leaves
            samples without what Python sees.
    """

    def item(folder: Path, seconds: float) -> tuple[Figures, str]:
        need_gpu()
        figures: dict[str, Any] = {}
        for timed in ("0", "1"):
            words = ("--compile", what, "--budget", "1")
            variables = {"RANKSCOPE_PROBE_STREAM_WAITS": timed}
            run = jobs.Run(kind, "healthy", COMPILED_SECONDS, words=words, variables=variables)
            with tempfile.TemporaryDirectory(dir=memory_directory()) as memory:
                place = Path(memory)
                failed = jobs.finish(run, place, seconds)
                keep(place, folder)
                if failed:
                    return figures, failed
                figures[timed], rows = jobs.compiled(place), jobs.records(place)
        rows.to_csv(folder / "records.csv", index=False)
        figures["sampled"] = int(rows["timing_source"].eq("sampled").sum())
        if figures["0"] != figures["1"]:
            return figures, "not the same is compiled"
        return figures, "" if figures["sampled"] or what == "streams" else "nothing is sampled"

    return item


def judged_overhead(found: Any, spent: Figures) -> tuple[Figures, str]:
    """Return the cost of sampling, and which parts of it are too high."""
    try:
        middle, low, high = pairs.median_interval(found)
    except ValueError as error:
        return dict(spent), str(error)
    figures = {**spent, "pairs": len(found), "longer": middle, "from": low, "to": high}
    if spent.get("own_share", 0.0) > BUDGET:
        return figures, f"own host time is {spent['own_share']:.2%} of all"
    return figures, f"sampled steps are {middle - 1:.1%} longer" if middle > LONGER else ""


def through_agent(folder: Path, seconds: float) -> tuple[Figures, str]:
    """Have an agent read a job and the GPU, and `rankscope diagnose` judge it by the agent."""
    need_gpu()
    for name in ("shtab", "h2"):
        if importlib.util.find_spec(name) is None:
            raise NotAvailableError(f"{name} is not installed")
    run = jobs.Run("ddp", "device", 10.0, words=("--linger", "15"), variables=BY_DEFAULT)
    with tempfile.TemporaryDirectory(dir=memory_directory()) as memory:
        place = Path(memory) / "gpu-node"
        (place / "rings").mkdir(parents=True)
        with agents_over([place]) as (url,), jobs.started(run, place) as ranks:
            wait_for_end(place, ranks, seconds)
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - own
                page = answer.read().decode()
            by_job, wrong = diagnosed.diagnose(["--agent", url.removeprefix("http://")])
        keep(place, folder)
    (folder / "page.prom").write_text(page, encoding="utf-8")
    (folder / "verdict.json").write_text(json.dumps(by_job, indent=1), encoding="utf-8")
    if by_job is None:
        return {}, wrong[-300:]
    return judged_answer(page, by_job)


def wait_for_end(place: Path, ranks: Sequence[jobs.Rank], seconds: float) -> None:
    """Wait until a job lingers after its steps, or has ended."""
    end = time.monotonic() + min(seconds, jobs.START_SECONDS)
    while time.monotonic() < end and ranks[0].exit_code(0.0) is None:
        if "trained" in "".join(
            path.read_text(errors="replace") for path in place.glob("output-*")
        ):
            break
        time.sleep(0.2)
    time.sleep(3.0)  # until the agent has looked twice


def judged_answer(page: str, by_job: Mapping[str, Any]) -> tuple[Figures, str]:
    """Return what an agent's page and the verdict show, and what is wrong with either."""
    wanted = ("rankscope_gpu_info{", "rankscope_steps_total{", "rankscope_gpu_clock_hertz{")
    missing = [name for name in wanted if f"\n{name}" not in page]
    verdicts = [job["verdict"] for job in by_job.values()]
    kinds = [(one["class"], one["ranks"]) for one in verdicts]
    figures: dict[str, object] = {
        "series": sum(not line.startswith("#") for line in page.splitlines())
    }
    figures |= {"verdicts": kinds, "sentences": [one["summary"] for one in verdicts]}
    if missing:
        return figures, f"the agent's page lacks {missing}"
    expected = [("gpu_compute", [SLOW_RANK])]
    return figures, "" if kinds == expected else f"expected {expected}, the verdicts are {kinds}"


ITEMS: Mapping[str, Item] = {
    "versions": versions,
    "nvml idle": nvml_idle,
    "nvml under load": nvml_loaded,
    **{
        f"{kind} {fault}": verdict_item(kind, fault)
        for fault in FAULTS
        for kind in KINDS
        if fault != "hidden" or kind in {"ddp", "fsdp2"}
    },
    **{
        f"ddp {fault} by default": verdict_item("ddp", fault, BY_DEFAULT)
        for fault in ("healthy", "device", "input", "hidden")
    },
    "agent": through_agent,
    "compiled model": compiling("fsdp2", "model"),
    "compiled streams": compiling("ddp", "streams"),
    "overhead": overhead,
    "flight recorder": nccl_items.flight_recorder,
    "explain nccl-log": nccl_items.explain_nccl,
    "nccl inspector": nccl_items.inspector,
}
"""All items, in the order in which they are run."""
