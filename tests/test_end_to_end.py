"""The whole way: a script that is not ours, torchrun, probe, agent, `rankscope diagnose`."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from rankscope_analyzers import cli
from rankscope_analyzers.findings.finding import LAYER_NAMES
from running_agent import running_agent
from training_jobs import ForkedJob

skip_without("torch", "the end-to-end tests train with PyTorch")

SCRIPT = Path(__file__).parent / "foreign_jobs" / "train.py"
PATIENCE_SECONDS = 180.0


@contextlib.contextmanager
def training(
    nursery: Nursery,
    folder: Path,
    slow: str,
    steps: int,
    ranks: int = 3,
    job_id: str = "",
    torchrun: bool = False,
    computing: int = 0,
) -> Iterator[ForkedJob]:
    """Run a job with its rings in a folder."""
    variables = {"RANKSCOPE_RING_DIR": str(folder / "rings"), "SLOW": slow, "STEPS": str(steps)}
    variables["COMPUTING"] = str(computing)
    if job_id:
        variables["RANKSCOPE_JOB_ID"] = job_id
    job = ForkedJob(nursery, SCRIPT, ranks, variables, folder / "job.log", torchrun)
    try:
        yield job
    finally:
        job.end(PATIENCE_SECONDS)


def await_steps(page: Callable[[], str], count: int) -> dict[str, float]:
    """Wait until every rank on the page has done `count` steps; return steps by rank."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        done = steps_by_rank(page())
        if done and min(done.values()) >= count:
            return done
        time.sleep(0.2)
    raise AssertionError(f"no rank did {count} steps within {PATIENCE_SECONDS} s")


def steps_by_rank(page: str) -> dict[str, float]:
    found = re.findall(r'^rankscope_steps_total\{.*rank="(\d+)"\} (\S+)$', page, re.MULTILINE)
    return {rank: float(value) for rank, value in found}


def of_layers(sentence: str) -> bool:
    """Say whether it is about what this machine may lack beside step times, such as GPUs.

    Jobs of other tests on this machine may use its simulated GPUs as well, by their local ranks.
    """
    names = [f"{name} of node" for name in LAYER_NAMES.values()]
    return sentence.startswith((*names, "which rank uses which GPU", "which GPU belongs to "))


@pytest.mark.parametrize(
    ("slow", "node", "symptom", "cause", "ranks"),
    [
        ("1:forward:40", "h100x3:thermal@1", "gpu_compute", "thermal_slowdown", [1]),
        ("0:before:40", "h100x3:power-cap@0", "gpu_compute", "power_limit_differs", [0]),
        ("2:after:40", "h100x3:thermal@1", "gpu_compute", "gpu_compute", [2]),
        ("0:data:40", "", "data_loader", None, [0]),
        ("0:shared:40", "", "data_loader", None, [0]),
        ("", "h100x3", None, None, []),
    ],
)
def test_a_script_that_is_not_ours_is_diagnosed_while_it_runs(
    nursery, tmp_path, capsys, slow, node, symptom, cause, ranks
):
    paced = {"torchrun": not node, "computing": 0 if slow else 20}
    with (
        running_agent(tmp_path, f"--simulate={node}") as agent,
        training(nursery, tmp_path, slow, steps=100_000, **paced) as job,
    ):
        await_steps(lambda: agent.get("/metrics"), 120)
        assert cli.main(["diagnose", "--agent", agent.url, "--json"]) == 0
        assert job.poll() is None
    found = json.loads(capsys.readouterr().out).values()
    (said,) = [one for one in found if one["ranks"]]  # other training may go on on this machine
    assert said["verdict"]["class"] == symptom, said
    if cause:  # the host may be busy besides, which explains slow input on some machines
        assert said["verdict"]["cause"]["kind"] == cause
        assert [incident["ranks"] for incident in said["incidents"]] == [ranks]
    assert said["verdict"]["ranks"] == ranks
    assert len(said["ranks"]) == 3
    unobserved = [one for one in said["unobserved"] if not of_layers(one)]
    assert unobserved == (["data time is not measured on 2 of 3 ranks"] if "shared" in slow else [])


def test_killing_the_agent_in_the_middle_of_a_run_loses_no_record(nursery, tmp_path):
    with training(nursery, tmp_path, "", steps=300, ranks=2) as job:
        with running_agent(tmp_path) as agent:
            before = await_steps(lambda: agent.get("/metrics"), 50)
            agent.process.send_signal(signal.SIGKILL)
        assert job.wait(PATIENCE_SECONDS) == 0
    with running_agent(tmp_path) as agent:
        after = await_steps(lambda: agent.get("/metrics"), 299)
        page = agent.get("/metrics")
    assert max(before.values()) < 299, "the agent was not killed in the middle of the run"
    # The first of the 300 steps only starts the clock.
    assert after == {"0": 299.0, "1": 299.0}
    assert (
        re.findall(r"^rankscope_training_records_lost_total\{.*\} (\S+)$", page, re.MULTILINE)
        == ["0.0"] * 2
    )


def test_a_job_that_comes_back_under_its_name_is_judged_by_its_newest_run(
    nursery, tmp_path, capsys
):
    with running_agent(tmp_path) as agent:
        for slow, ranks in (("1:forward:40", 2), ("2:data:40", 3)):
            job = training(nursery, tmp_path, slow, 120, ranks=ranks, job_id="team/again")
            with job as running:
                assert running.wait(PATIENCE_SECONDS) == 0
        assert cli.main(["diagnose", "--agent", agent.url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["team/again"]["verdict"]["class"] == "data_loader"
    assert said["team/again"]["verdict"]["ranks"] == [2]
    assert len(said["team/again"]["ranks"]) == 3
