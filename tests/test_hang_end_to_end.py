"""Real jobs that hang under a real agent: what `rankscope diagnose` and the watch say of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from installed import skip_without
from rankscope_analyzers import cli
from running_agent import running_agent
from test_end_to_end import PATIENCE_SECONDS, await_steps
from training_jobs import ForkedJob

skip_without("torch", "the end-to-end tests train with PyTorch")

SCRIPT = Path(__file__).parent / "foreign_jobs" / "hanging.py"
STEPS_BEFORE = 50
RANKS = 3


@contextlib.contextmanager
def hanging(nursery, folder, fault="", steps=100_000, pace=0.01):
    """Run a job of three ranks with its rings in a folder."""
    variables = {
        "RANKSCOPE_RING_DIR": str(folder / "rings"),
        "RANKSCOPE_JOB_ID": "team/hang",
        "FAULT": fault,
        "STEPS": str(steps),
        "PACE": str(pace),
    }
    job = ForkedJob(nursery, SCRIPT, RANKS, variables, folder / "job.log")
    try:
        yield job
    finally:
        job.end(PATIENCE_SECONDS)


def said(capsys, agent, *more):
    assert cli.main(["diagnose", "--agent", agent.url, "--job", "team/hang", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)["team/hang"]


def awaited(capsys, agent, after="4s", why=""):
    """Ask until the job is called hung, for that reason."""
    deadline, found = time.monotonic() + PATIENCE_SECONDS, {}
    while time.monotonic() < deadline:
        with contextlib.suppress(KeyError, SystemExit, json.JSONDecodeError, AssertionError):
            found = said(capsys, agent, "--hang-after", after)
            if found["verdict"]["class"] == "hang" and why in found["verdict"]["summary"]:
                return found
        time.sleep(0.5)
    raise AssertionError(f"not called hung: {found}")


WHY = {
    "never": "rank 1 has not entered all_reduce",
    "loader": "it is in its data loader (stand_still, foreign_jobs/hanging.py",
    "operation": "ranks are in different collectives: rank 1 in broadcast",
}


def capture_with(capsys, agent, why: str, path: Path) -> None:
    """Capture until the capture says why: on a busy machine a rank's state may come too late."""
    asked = ["--agent", agent.url, "--job", "team/hang", "--hang-after=4s"]
    deadline, said_so_far = time.monotonic() + PATIENCE_SECONDS, ""
    while why not in said_so_far:
        assert time.monotonic() < deadline, said_so_far
        path.unlink(missing_ok=True)
        assert cli.main(["capture", *asked, str(path)]) == 0
        said_so_far = capsys.readouterr().out


def kept_by_watch(capsys, agent, folder: Path) -> tuple[str, list[Path]]:
    """Let a watch look until it has captured the job; return its page and the captures.

    On a busy machine an agent may have no news of a rank just then, and others may hang beside it.
    """
    asked = ["--once", "--hang-after=4s", f"--captures={folder}", "--agent", agent.url]
    deadline, kept, said_so_far = time.monotonic() + PATIENCE_SECONDS, [], ""
    while not kept:
        assert time.monotonic() < deadline, said_so_far
        assert cli.main(["watch", *asked]) == 0
        page, log = capsys.readouterr()
        kept, said_so_far = list(folder.glob("*-team_hang-*")), page + log
    return page, kept


@pytest.mark.parametrize("fault", WHY)
def test_the_rank_that_does_not_come_is_named_with_what_the_others_wait_in(
    nursery, tmp_path, capsys, fault
):
    with (
        running_agent(tmp_path) as agent,
        hanging(nursery, tmp_path, f"{fault}:1") as job,
    ):
        await_steps(lambda: agent.get("/metrics"), STEPS_BEFORE)
        awaited(capsys, agent, why=WHY[fault])
        found = said(capsys, agent, "--hang-after=4s", f"--save={tmp_path / 'kept'}")
        page, captures = kept_by_watch(capsys, agent, tmp_path / "captures")
        capture_with(capsys, agent, WHY[fault], tmp_path / "mine.tar.gz")
        assert job.poll() is None
    again = ["diagnose", "--trace", str(tmp_path / "kept"), "--job", "team/hang", "--json"]
    assert cli.main([*again, "--hang-after=4s"]) == 0
    assert json.loads(capsys.readouterr().out)["team/hang"] == found
    for capture in (tmp_path / "mine.tar.gz", *captures):
        again = ["diagnose", "--capture", str(capture), "--hang-after=4s", "--json"]
        assert cli.main(again) == 0
        verdict = json.loads(capsys.readouterr().out)["team/hang"]["verdict"]
        assert (verdict["class"], verdict["ranks"]) == ("hang", [1])
        assert WHY[fault] in verdict["summary"]
    verdict = found["verdict"]
    assert verdict["summary"].startswith("no step since ")
    assert ", usual step " in verdict["summary"]
    assert WHY[fault] in verdict["summary"]
    assert verdict["ranks"] == [1]
    assert (verdict["lost_fraction"], verdict["severity"]) == (1.0, "page")
    assert verdict["gpu_hours_lost"] >= 3 * 4 / 3600
    assert 'symptom="hang"' in page


def test_ranks_in_the_collectives_of_two_groups_are_named_and_nobody_is_blamed(
    nursery, tmp_path, capsys
):
    with running_agent(tmp_path) as agent, hanging(nursery, tmp_path, "groups:0"):
        await_steps(lambda: agent.get("/metrics"), STEPS_BEFORE)
        verdict = awaited(capsys, agent)["verdict"]
    assert verdict["ranks"] == []
    assert "; ranks 0, 1 wait for each other, rank 0 in all_reduce 2" in verdict["summary"]
    assert "process group 1" in verdict["summary"]
    assert "process group 2" in verdict["summary"]


def test_a_rank_that_does_not_come_to_the_first_step_is_named(nursery, tmp_path, capsys):
    """A first step has ten times the patience of later ones: 20 s here."""
    with running_agent(tmp_path) as agent, hanging(nursery, tmp_path, "first:2"):
        found = awaited(capsys, agent, "2s")
    assert found["verdict"]["ranks"] == [2]
    assert "when the last collective was launched" in found["verdict"]["summary"]
    assert "rank 2 has not entered" in found["verdict"]["summary"]


def test_a_rank_that_is_stopped_is_named(nursery, tmp_path, capsys):
    with running_agent(tmp_path) as agent, hanging(nursery, tmp_path) as job:
        await_steps(lambda: agent.get("/metrics"), STEPS_BEFORE)
        os.kill(job.ranks[2], signal.SIGSTOP)
        found = awaited(capsys, agent)
    assert found["verdict"]["ranks"] == [2]
    assert found["verdict"]["cause"]["kind"] == "rank_stopped"
    assert found["verdict"]["summary"].startswith("no step since ")


def test_a_rank_that_is_killed_is_named(nursery, tmp_path, capsys):
    """Its parent is held, so that it stays a zombie, as that of a launcher that does not know."""
    with running_agent(tmp_path) as agent, hanging(nursery, tmp_path, "never:0") as job:
        await_steps(lambda: agent.get("/metrics"), STEPS_BEFORE)
        os.kill(nursery.pid, signal.SIGSTOP)
        try:
            os.kill(job.ranks[0], signal.SIGKILL)
            os.kill(job.ranks[1], signal.SIGSTOP)  # gloo would raise at once
            os.kill(job.ranks[2], signal.SIGSTOP)
            found = awaited(capsys, agent)
        finally:
            os.kill(nursery.pid, signal.SIGCONT)
    assert 0 in found["verdict"]["ranks"]


def test_a_job_that_ends_is_not_hung(nursery, tmp_path, capsys):
    with running_agent(tmp_path) as agent:
        with hanging(nursery, tmp_path, steps=80) as job:
            assert job.wait(PATIENCE_SECONDS) == 0
        deadline, summary = time.monotonic() + PATIENCE_SECONDS, ""
        while time.monotonic() < deadline and not summary.startswith("The job is over"):
            time.sleep(1)
            found = said(capsys, agent, "--hang-after", "2s")
            summary = found["verdict"]["summary"]
            assert found["incidents"] == []
    assert summary.startswith("The job is over")


def test_a_job_that_goes_on_is_not_hung_after_the_agent_is_restarted(nursery, tmp_path, capsys):
    with hanging(nursery, tmp_path, pace=0.05):
        for _ in range(2):
            with running_agent(tmp_path) as agent:
                await_steps(lambda url=agent: url.get("/metrics"), STEPS_BEFORE)
                found = said(capsys, agent)
                assert found["verdict"]["class"] != "hang", found["verdict"]["summary"]
