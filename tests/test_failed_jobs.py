"""Jobs that really failed under torchrun: what agent and `rankscope explain` say of their logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe_jobs.nurseries import Nursery
from rankscope_agent.contract.failures import causes
from rankscope_analyzers import cli
from test_job_failures import JOB, Node

CRASH = Path(__file__).parent / "failing_jobs" / "crash.py"
REAL = {
    "exception": (causes.USER_EXCEPTION, "ValueError: sample 17 is damaged"),
    "kill": (causes.KILLED, "ended by signal 9 (SIGKILL)"),
    "exit": (causes.EXIT_CODE, "ended with exit code 3"),
}


@pytest.fixture(scope="module")
def real_logs(bare_nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the jobs that fail, all at once: each spends most of its time importing PyTorch."""
    folder = tmp_path_factory.mktemp("failed")
    launch = ["torchrun.py", "--standalone", "--nproc-per-node=2", str(CRASH)]
    running = [bare_nursery.start([*launch, way], {}, folder / f"{way}.log") for way in REAL]
    assert 0 not in [ended.code for ended in bare_nursery.end_of(running)]
    return folder


@pytest.mark.parametrize("way", REAL)
def test_the_rank_that_failed_is_named_by_who_explains_the_log(
    way: str, real_logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "job-log", "--json", str(real_logs / f"{way}.log")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cause"], said["rank"], said["exception"]) == (REAL[way][0], 1, REAL[way][1])
    (attempt,) = said["attempts"]
    assert [victim["rank"] for victim in attempt["victims"]] == [0]
    assert attempt["also_failed"] == []


@pytest.mark.parametrize("way", REAL)
def test_the_agent_exports_cause_and_rank(way: str, real_logs: Path, tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write((real_logs / f"{way}.log").read_text())
    assert list(node.settled()) == [(JOB, REAL[way][0], "1", "true")]
