"""`rankscope verify`: a real gloo job beside NCCL logs and simulated GPUs, asked as users do."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.running_jobs import run
from benchmarks.running_jobs.cases import Case

from answering_agents import Agent
from nccl_job_text import comm, info, start
from probe_jobs.fork_server import NurseryServer
from rankscope_analyzers import cli
from rankscope_analyzers.commands import verify
from rankscope_analyzers.verification import judgement, report
from rankscope_analyzers.verification.criteria import CRITERIA, Result
from rankscope_analyzers.verification.report import Verification

RANKS = 4
LOOKS, LOOK_SECONDS = 24, 5.0
DAY = 86_400.0
PAGE = Path(__file__).parents[1] / "docs" / "verify.md"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


class Clock:
    """The module `time` of the command: it moves on by pauses alone, and counts them."""

    def __init__(self):
        self.pauses, self.time = [], time.time

    def sleep(self, seconds):
        self.pauses.append(seconds)

    def monotonic(self):
        return sum(self.pauses)


def log(*ends: str) -> str:
    """Return the logs of all ranks, each on a host of its own; `ends` replace what ranks print."""
    texts = [start(rank, RANKS, "NET/IB/0/GDRDMA") for rank in range(RANKS)]
    texts[: len(ends)] = ends
    return "".join(text.replace("gpu-00:", f"gpu-{rank:02d}:") for rank, text in enumerate(texts))


@pytest.fixture(scope="module")
def server(nurseries):
    return NurseryServer(nurseries)


@pytest.fixture(scope="module")
def agents(server, tmp_path_factory):
    """Two agents of one healthy job on gloo, of which the second has NCCL logs, GPUs and ports."""
    written = tmp_path_factory.mktemp("nccl") / "nccl.log"
    written.write_text(log())
    case = Case("healthy", "ddp", ranks=RANKS, seconds=4.0, settings={"compute": 0.06})
    made_up = ("--simulate=h100x4", f"--nccl.log-files={written}")
    with run.under_agents(case, server, (), made_up) as urls:
        yield urls


@pytest.fixture(scope="module")
def plain(agents):
    """The agent that sees no GPU."""
    return agents[0]


@pytest.fixture(scope="module")
def simulated(agents):
    """The agent of a node with NCCL logs, simulated GPUs and RDMA ports."""
    return agents[1]


def verified(capsys, url: str, *flags: str, job: str = "healthy") -> tuple[int, dict]:
    code = cli.main(["verify", job, "--agent", url, "--since", "9000d", "--json", *flags])
    found = json.loads(capsys.readouterr().out)
    return code, found | {one["id"]: one["status"] for one in found["criteria"]}


def verified_in_peace(capsys, url: str, *flags: str) -> tuple[int, dict]:
    """Ask of a healthy job until no other program of this machine slows all of its ranks down."""
    for _ in range(LOOKS):
        code, found = verified(capsys, url, *flags)
        if found["straggler"] != "broken":
            break
        time.sleep(LOOK_SECONDS)
    return code, found


def test_a_straggler_fails_the_job_and_is_named(capsys):
    with Agent() as one, Agent("n1", range(4, 8)) as two:
        code, found = verified(capsys, one.url, "--agent", two.url, job="t/j")
    assert (code, found["straggler"]) == (2, "broken")
    (bad,) = (one for one in found["criteria"] if one["status"] == "broken")
    assert "rank 5" in bad["seen"]


def test_ranks_that_are_not_seen_are_waited_for_or_unknown(capsys):
    with Agent(page='rankscope_rank_info{job_id="t/j",rank="0",world_size="8"} 1\n') as one:
        _, found = verified(capsys, one.url, job="t/j")
        assert found["world-size"] == "not yet"
        with Agent("n1", range(4, 8)) as two:
            two.answer = lambda _: None
            _, found = verified(capsys, one.url, "--agent", two.url, job="t/j")
    assert found["world-size"] == "unknown"
    assert found["steps"] == "unknown"


LABELS = 'job_id="t/j",rank="0"'
STARTED = "rankscope_rank_started_timestamp_seconds{{" + LABELS + "}} {}\n"


@pytest.mark.parametrize(
    ("page", "criterion", "status"),
    [
        (f"rankscope_checkpoint_write_failures_total{{{LABELS}}} 1\n", "checkpoint", "broken"),
        (
            f"rankscope_checkpoint_last_success_timestamp_seconds{{{LABELS}}} 1795170000\n",
            "checkpoint",
            "unknown",
        ),
        (f"rankscope_rank_alive{{{LABELS}}} 0\n", "world-size", "broken"),
        (
            f'rankscope_rank_info{{{LABELS},world_size="8"}} 1\n'
            'rankscope_rank_info{job_id="t/j",rank="1",world_size="16"} 1\n',
            "world-size",
            "broken",
        ),
        ("rankscope_nccl_ras_missing_ranks 2\n", "nccl-start", "broken"),
    ],
)
def test_what_pages_say_counts(capsys, page, criterion, status):
    with Agent(page=page) as one, Agent("n1", range(4, 8)) as two:
        _, found = verified(capsys, one.url, "--agent", two.url, job="t/j")
    assert found[criterion] == status


SAVES = """
import sys, torch
torch.save({"model": torch.zeros(1000), "step": 100}, sys.argv[1])
"""


def saved_by(server: NurseryServer, path: Path) -> None:
    """Have a process that has imported torch save a checkpoint."""
    script, output = path.with_name("save.py"), path.with_name("save.log")
    script.write_text(SAVES)
    pid = server.start(script, [str(path)], {}, output)
    while (code := server.exit_code(pid)) is None:
        time.sleep(0.02)
    assert code == 0, output.read_text()
    script.unlink()
    output.unlink()


@pytest.mark.parametrize(
    ("kept", "status"), [(1.0, "met"), (0.5, "broken"), (None, "not yet"), (0, "unknown")]
)
def test_the_newest_checkpoint_is_verified(server, tmp_path, capsys, kept, status):
    folder = tmp_path / "saved"
    if kept != 0:
        folder.mkdir()
    if kept:
        path = folder / "step_100.pt"
        saved_by(server, path)
        os.truncate(path, int(path.stat().st_size * kept))
        os.utime(path, (time.time() - DAY,) * 2)
    with Agent() as one, Agent("n1", range(4, 8)) as two:
        named = ("--checkpoint-dir", str(folder))
        _, found = verified(capsys, one.url, "--agent", two.url, *named, job="t/j")
    assert found["checkpoint"] == status


@pytest.mark.parametrize(("ago", "status"), [(2 * DAY, "met"), (60.0, "not yet")])
def test_a_checkpoint_of_an_earlier_run_is_not_the_first_of_this_one(
    server, tmp_path, capsys, ago, status
):
    path = tmp_path / "step_100.pt"
    saved_by(server, path)
    os.utime(path, (time.time() - DAY,) * 2)
    page = STARTED.format(time.time() - ago)
    with Agent(page=page) as one, Agent("n1", range(4, 8)) as two:
        named = ("--require", "checkpoint", "--checkpoint-dir", str(tmp_path))
        _, found = verified(capsys, one.url, "--agent", two.url, *named, job="t/j")
    assert found["checkpoint"] == status


@pytest.mark.parametrize(("busy", "status"), [((0.9, 0.05), "broken"), ((0.9, 0.31), "met")])
def test_one_idle_gpu_is_too_much(capsys, busy, status):
    page = "".join(
        f'rankscope_gpu_info{{gpu="{gpu}",uuid="GPU-{gpu}"}} 1\n'
        f'rankscope_gpu_utilization_ratio{{gpu="{gpu}",uuid="GPU-{gpu}"}} {busy[gpu == 2]}\n'
        for gpu in range(4)
    )
    with Agent(page=page) as one, Agent("n1", range(4, 8), page=page.replace("-", "-n1-")) as two:
        _, found = verified(capsys, one.url, "--agent", two.url, job="t/j")
    assert found["utilization"] == status


def test_a_gpu_that_is_not_read_is_unknown(capsys):
    page = 'rankscope_gpu_info{gpu="0",uuid="GPU-0"} 1\n'
    with Agent(page=page) as one, Agent("n1", range(4, 8)) as two:
        _, found = verified(capsys, one.url, "--agent", two.url, job="t/j")
    assert found["utilization"] == "unknown"


def test_the_process_of_an_earlier_attempt_does_not_count(capsys):
    old = f'rankscope_rank_info{{{LABELS},world_size="16"}} 1\nrankscope_rank_alive{{{LABELS}}} 0\n'
    new = f'rankscope_rank_info{{{LABELS},world_size="8"}} 1\nrankscope_rank_alive{{{LABELS}}} 1\n'
    with Agent(page=new) as one, Agent("n1", range(4, 8), page=old) as two:
        _, found = verified(capsys, one.url, "--agent", two.url, job="t/j")
    assert found["world-size"] == "met"


def test_a_job_is_waited_for_until_it_is_there_and_no_longer(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(verify, "time", clock)
    with Agent() as one:
        assert cli.main(["verify", "t/none", "--agent", one.url]) == 1
        assert "'t/none' in what was read; there are: t/j" in capsys.readouterr().err
        assert not clock.pauses
        assert cli.main(["verify", "t/none", "--agent", one.url, "--wait", "20s"]) == 1
    assert clock.pauses == [5.0] * 4


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--skip", "steps"), "--skip"),
        (("--utilization", "2"), "a share from 0 to 1"),
        (("--step-seconds", "no"), "a positive number of seconds"),
        (("--world-size", "-1"), "a number of ranks"),
        (("--wait", "long"), "--wait takes an age"),
        (("--nccl-log", "/nowhere"), "/nowhere"),
    ],
)
def test_wrong_options_are_one_sentence(flags, complaint, capsys):
    try:
        code = cli.main(["verify", "t/j", "--agent", "127.0.0.1:9", *flags])
    except SystemExit as error:
        code = error.code
    assert code == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("transport", "summary"),
    [
        (judgement.met("sockets"), "PASS: job t/j"),
        (
            judgement.not_applicable("no NCCL log was read"),
            "PASS: job t/j; not judged: transport (--require makes them count)",
        ),
        (judgement.broken("sockets", "RDMA", ""), "FAIL: job t/j; broken: transport"),
    ],
)
def test_a_pass_says_what_it_does_not_cover(transport, summary):
    results = [
        Result(one, transport if one.id == "transport" else judgement.met("")) for one in CRITERIA
    ]
    assert report.summary(Verification("t/j", results, frozenset())) == summary


def test_every_criterion_has_its_section_and_every_section_its_criterion():
    sections = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    assert sections == [one.id for one in CRITERIA]


def test_a_healthy_job_on_gloo_passes_and_says_what_does_not_apply(plain, capsys):
    code, found = verified_in_peace(capsys, plain, "--wait", "2m")
    assert (code, found["answer"]) == (0, "PASS"), found
    statuses = {one["id"]: one["status"] for one in found["criteria"]}
    assert [name for name, status in statuses.items() if status == "met"] == [
        *("world-size", "steps", "straggler"),
    ]
    assert set(statuses.values()) == {"met", "not applicable"}


def test_all_criteria_are_judged_with_nccl_logs_and_simulated_gpus(simulated, capsys):
    for _ in range(LOOKS):  # what logs say of a job is known a moment after its first steps
        code, found = verified_in_peace(capsys, simulated, "--wait", "2m", "--skip", "checkpoint")
        statuses = {one["status"] for one in found["criteria"]}
        if "not applicable" not in statuses:
            break
        time.sleep(LOOK_SECONDS)
    assert (code, found["answer"], statuses) == (0, "PASS", {"met"}), found
    assert len(found["criteria"]) == len(CRITERIA) - 1


def test_a_required_criterion_that_does_not_apply_is_no_pass(plain, capsys):
    code, found = verified_in_peace(capsys, plain, "--require", "transport")
    assert (code, found["answer"]) == (3, "CANNOT TELL")
    assert found["required_but_not_applicable"] == ["transport"]
    code, found = verified_in_peace(capsys, plain, "--require", "checkpoint")
    assert (code, found["answer"], found["checkpoint"]) == (3, "NOT YET", "not yet")


FALLBACK = start(0, RANKS, "NET/Socket/0", network="Socket")
WITHOUT_GDR = start(0, RANKS, "NET/IB/0")
FEWER_CHANNELS = start(0, RANKS, "NET/IB/0/GDRDMA").replace("16 coll channels", "8 coll channels")


@pytest.mark.parametrize(
    ("criterion", "flags", "text"),
    [
        ("world-size", ("--world-size", "8"), None),
        ("steps", ("--step-seconds", "0.001"), None),
        ("transport", (), log(FALLBACK)),
        ("transport", ("--transport", "gpudirect"), log(WITHOUT_GDR)),
        ("transport", ("--transport", "sockets"), log()),
        ("channels", (), log(FEWER_CHANNELS)),
    ],
)
def test_one_broken_criterion_fails_the_job(simulated, tmp_path, capsys, criterion, flags, text):
    given = []
    if text is not None:
        (tmp_path / "given.log").write_text(text)
        given = ["--nccl-log", str(tmp_path / "given.log")]
    code, found = verified(capsys, simulated, *flags, *given)
    assert (code, found["answer"]) == (2, "FAIL")
    assert [one["id"] for one in found["criteria"] if one["status"] == "broken"] == [criterion]
    (bad,) = (one for one in found["criteria"] if one["status"] == "broken")
    assert bad["seen"]
    assert bad["expected"]
    assert bad["remedy"]


@pytest.mark.parametrize(
    ("criterion", "text", "status"),
    [
        ("nccl-start", log("".join(info(0, comm(0, RANKS, "START")))), "not yet"),
        ("nccl-start", log("".join(info(0, "Using network IB"))), "unknown"),
        ("channels", log(start(0, RANKS, "NET/IB/0").replace("coll channels", "x")), "met"),
        ("transport", "".join(info(rank, comm(rank, RANKS, "COMPLETE"), host=f"h{rank}")
                              for rank in range(RANKS)), "unknown"),
        ("channels", "".join(info(rank, comm(rank, RANKS, "COMPLETE"), host=f"h{rank}")
                             for rank in range(RANKS)), "unknown"),
    ],
)  # fmt: skip
def test_what_nccls_log_does_not_tell_is_never_met(
    simulated, tmp_path, capsys, criterion, text, status
):
    (tmp_path / "given.log").write_text(text)
    code, found = verified(capsys, simulated, "--nccl-log", str(tmp_path / "given.log"))
    assert found[criterion] == status
    assert code == (0 if status == "met" else 3)


def test_the_answer_is_written_for_people_and_for_ci(plain, tmp_path, capsys, monkeypatch):
    verified_in_peace(capsys, plain, "--wait", "2m")
    clock = Clock()
    monkeypatch.setattr(verify, "time", clock)
    xml = tmp_path / "verify.xml"
    command = ["verify", "healthy", "--agent", plain, "--wait", "20s", "--no-color"]
    assert cli.main([*command, "--junit", str(xml), "--require", "utilization"]) == 3
    assert len(clock.pauses) == 4, "what does not apply so far may come, and is waited for"
    said = capsys.readouterr().out
    assert "CANNOT TELL: job healthy; unknown: utilization (required, not applicable)" in said
    suite = ElementTree.fromstring(xml.read_text()).find("testsuite")
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("8", "1", "0")
    assert suite.get("skipped") == "4"
