"""The proof on a GPU as far as it can be tried without one: its loops on gloo, and all else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from benchmarks import gpu_check
from benchmarks.gpu_proof import items, jobs, pairs, run
from benchmarks.gpu_proof.outcome import NotAvailableError, TimeLeft
from benchmarks.gpu_proof.packing import MAX_FILE_BYTES, pack, shortened

from probe_jobs.fork_server import NurseryServer
from probe_jobs.nurseries import Nurseries

ROOT = Path(__file__).parents[1]

SMI = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 23 04:00:00 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H200
"""

BLOCKED = """
import sys
for name in ("shtab", "h2", "bcrypt"):
    sys.modules[name] = None
from benchmarks.__main__ import main
sys.exit(main(["gpu-proof"]))
"""


@pytest.fixture
def forked_ranks(nurseries: Nurseries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ranks forked by what has imported torch for all tests."""
    server = NurseryServer(nurseries)
    monkeypatch.setattr(jobs, "fork_server", lambda: server)


def test_every_item_says_what_is_not_available_without_a_gpu(tmp_path: Path) -> None:
    paths = [ROOT, ROOT / "agent", ROOT / "analyzers"]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "GPU_PROOF_DIR": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": "/nonexistent",
    }
    shown = subprocess.run(
        [sys.executable, "-c", BLOCKED], env=variables, check=True, capture_output=True, text=True
    ).stdout
    lines = [line for line in shown.splitlines() if ": not available here; " in line]
    assert len(lines) == len(items.ITEMS) == 36
    written = json.loads((tmp_path / "gpu-proof.json").read_text())
    assert [one["item"] for one in written["items"]] == list(items.ITEMS)
    assert any("time slices" in note for note in written["notes"])
    with tarfile.open(tmp_path / "gpu-proof.tar.gz") as packed:
        assert packed.getnames() == []


@pytest.mark.parametrize(("kind", "fault"), [("tp", "host"), ("pipeline", "healthy")])
@pytest.mark.usefixtures("forked_ranks")
def test_loops_train_on_gloo_and_are_judged(kind: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    short = jobs.Run(kind, fault, 1.0, device="cpu", words=("--budget", "0.05"))
    figures, wrong = items.run_and_judge(short, tmp_path / "kept", 120.0)
    assert figures, wrong
    assert figures["steps"] >= 3, (tmp_path / "kept" / "output-0.log").read_text()
    assert figures["medians"]["sync"][0] is not None
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"output-0.log", "output-1.log", "records.csv"} <= kept


def rows(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_expected_verdicts_are_compared_with_what_is_said() -> None:
    assert jobs.judged(pd.DataFrame(columns=["step"]), jobs.Run("ddp", "healthy"))[1] != ""
    with pytest.raises(ValueError, match="no job ddp with fire"):
        jobs.Run("ddp", "fire")


def test_sampled_steps_are_compared_with_their_unsampled_neighbours() -> None:
    count = 60
    steps = list(range(1, count + 1))
    sampled = [step % 8 == 0 for step in steps]
    parts = {
        7: 1.005,
        0: 1.05,
        1: 0.965,
    }  # what is lost in a sampled step is made up for in the next
    frame = rows(
        rank=[0] * count,
        step=steps,
        step_seconds=[0.1 * (1 + step / 1000) * parts.get(step % 8, 1.0) for step in steps],
        timing_source=["sampled" if one else "none" for one in sampled],
    )  # fmt: skip
    found = pairs.ratios(frame)
    assert len(found) == 7
    assert found == pytest.approx([1.02] * 7, rel=2e-3)
    with pytest.raises(ValueError, match="7 pairs"):
        pairs.median_interval(found)


def test_median_lies_in_its_interval_and_too_much_is_said() -> None:
    middle, low, high = pairs.median_interval([1 + number / 1000 for number in range(101)])
    assert low < middle < high
    assert middle == pytest.approx(1.05)
    assert (low, high) == (pytest.approx(1.040), pytest.approx(1.061))
    assert items.judged_overhead([1.0] * 20, {"own_share": 0.0005, "every": 8})[1] == ""
    assert "longer" in items.judged_overhead([1.03] * 20, {"own_share": 0.0005})[1]
    assert "own host time" in items.judged_overhead([1.0] * 20, {"own_share": 0.002})[1]


def test_what_nvidia_smi_and_the_page_say_is_read() -> None:
    assert items.driver_version(SMI) == "580.95.05"
    assert items.driver_version("NVIDIA-SMI has failed") == ""
    line = 'rankscope_gpu_clock_event_active{gpu="0",uuid="GPU-1",reason="sw_power_cap"} '
    assert items.at_power_limit(f"# TYPE x gauge\n{line}1\n")
    assert not items.at_power_limit(f"{line}0\n")


def test_archive_holds_texts_within_its_limits_and_follows_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "long.log").write_bytes(b"a" * MAX_FILE_BYTES + b"the end")
    (folder / "ring.ring").write_bytes(b"0")
    (folder / "link.log").symlink_to("/etc/hostname")
    for number in range(40):
        (folder / f"part-{number:02}.json").write_bytes(os.urandom(MAX_FILE_BYTES))
    left_out = pack(folder, tmp_path / "packed.tar.gz")
    with tarfile.open(tmp_path / "packed.tar.gz") as packed:
        names = packed.getnames()
        content = packed.extractfile("long.log")
        assert content is not None
        assert content.read().endswith(b"the end")
    assert len(names) + len(left_out) == 41
    assert left_out
    assert len(shortened(b"a" * (1 << 20))) <= MAX_FILE_BYTES


def test_item_that_raises_or_comes_too_late_costs_no_other(tmp_path: Path) -> None:
    def broken(folder: Path, seconds: float) -> tuple[dict[str, object], str]:
        raise RuntimeError("CUDA error: out of memory")

    def lacking(folder: Path, seconds: float) -> tuple[dict[str, object], str]:
        raise NotAvailableError("no plugin")

    def fine(folder: Path, seconds: float) -> tuple[dict[str, object], str]:
        return {"value": 1.5}, ""

    ended = run.measure({"a": broken, "b": lacking, "c": fine}, tmp_path)
    assert [one.status for one in ended] == ["failed", "not available here", "passed"]
    assert "out of memory" in ended[0].line()
    assert "1 passed" in run.report(ended)
    late = run.measure({"a": fine}, tmp_path, seconds=1.0)
    assert [one.status for one in late] == ["out of time"]
    assert TimeLeft(0.0).seconds == 0.0


GPU_PAGE = "# HELP x\nrankscope_gpu_info{} 1\nrankscope_gpu_clock_hertz{} 2"


def test_answer_through_an_agent_is_right_with_the_gpu_on_its_page_and_the_slow_rank() -> None:
    def by_job(kind: str | None, *ranks: int) -> dict[str, object]:
        return {"a": {"verdict": {"class": kind, "ranks": list(ranks), "summary": "one"}}}

    page = f"{GPU_PAGE}\nrankscope_steps_total{{}} 3\n"
    figures, wrong = items.judged_answer(page, by_job("gpu_compute", 1))
    assert (figures["series"], figures["sentences"], wrong) == (3, ["one"], "")
    assert "the verdicts are [(None, [])]" in items.judged_answer(page, by_job(None))[1]
    assert "rankscope_steps_total" in items.judged_answer(GPU_PAGE, by_job("gpu_compute", 1))[1]


def test_value_that_is_left_out_while_it_is_zero_differs_from_another_one() -> None:
    (query,) = (one for one in gpu_check.QUERIES if one.if_nonzero)
    assert gpu_check.Compared("0", query, None, 0.0).agrees
    assert not gpu_check.Compared("0", query, None, 2.0).agrees
    assert gpu_check.Compared("0", query, 2.0, 2.0).agrees
    other = next(one for one in gpu_check.QUERIES if not one.if_nonzero)
    assert not gpu_check.Compared("0", other, None, 0.0).agrees
