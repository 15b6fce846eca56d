"""No command prints what controls a terminal, whatever agents, logs and files say."""

from __future__ import annotations

import http.server
import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

import simulated_jobs
from rankscope_analyzers import cli
from rankscope_analyzers.text.console import PlainConsole, open_console
from rankscope_analyzers.text.plain_lines import REPLACEMENT, shown, write_lines
from ring_writer import RingWriter
from running_agent import running_agent

ATTACK = "\x1b[2J\x1b]0;owned\x07\u202e[red]\x9b31m"
"""Clears the screen, renames the window, turns the line round, and colours it by C1."""

NODE = "test-node"
NAMES = (NODE, "H100", "GPU-")
XID = 'gpu="3",uuid="GPU-07",pci="0000:3b:00",xid="48",severity="fatal",action="reset_gpu"'
PATIENCE_SECONDS = 60.0
SLOW = simulated_jobs.Fault("data", (4,), 0.4)


class LyingAgent(http.server.ThreadingHTTPServer):
    """Passes a real agent's answers on, with the attack behind every name in them."""

    def __init__(self, real: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = fetch(real + self.path)
                attack = ATTACK if self.path.startswith("/metrics") else json.dumps(ATTACK)[1:-1]
                if self.path == "/metrics":
                    body += f"rankscope_gpu_xid_errors_total{{{XID}}} 3\n"
                    at = time.time() - 30
                    body += f"rankscope_gpu_xid_last_timestamp_seconds{{{XID}}} {at}\n"
                for name in NAMES:
                    body = body.replace(name, name + attack)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(scope="module")
def liar(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "rings").mkdir()
    for rank in range(4):
        writer = RingWriter(
            folder / "rings", f"{rank}-1.ring", capacity=256, rank=rank, local_rank=rank
        )
        slow = 40_000_000 * (rank == 2)
        compute, sync = 60_000_000 + slow, 70_000_000 - slow
        writer.step(120, compute_ns=compute, sync_ns=sync, step_ns=142_000_000)
    with running_agent(folder, "--simulate=h100x4:thermal@2+xid79@1") as agent:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "rankscope_gpu_clock_hertz{" not in agent.get("/metrics"):
            assert time.monotonic() < deadline, "no GPUs on the page"
            time.sleep(0.1)
        with LyingAgent(agent.url) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield server.url
            server.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    lines = {
        "job.log": f"[rank1]: RuntimeError: {ATTACK} went wrong\n",
        "nccl.log": f"h{ATTACK}:1:2 [0] NCCL WARN Call to connect failed: {ATTACK}\n",
        "kernel.log": f"[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a{ATTACK}, GPU lost\n",
    }
    for name, text in lines.items():
        (folder / name).write_text(text)
    saved = folder / "saved"
    saved.mkdir()
    (saved / f"step_3{ATTACK.replace('/', '')}.pt").write_bytes(b"PK\x03\x04 cut off")
    (saved / "latest").write_text(f"gone{ATTACK}")
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"job{ATTACK}"}}
    manifest["spec"] = {"backoffLimit": ATTACK}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    gpu = f'rankscope_gpu_info{{gpu="0",model="H{ATTACK}"}} 1'
    (folder / f"page{ATTACK.replace('/', '')}.prom").write_text(
        f"rankscope_build_info{{}} 1\n{gpu}\n"
    )
    for number in (1, 2):
        kept: dict[str, Any] = {key: {} for key in ("command", "environment", "versions")}
        kept |= {"format": 1, "ranks": [], "images": {f"{number}{ATTACK}": [0]}}
        (folder / f"{number}.json").write_text(json.dumps(kept))
    rows = simulated_jobs.records(simulated_jobs.Job(faults=(SLOW,)))
    rows["node"] = [f"n{rank}{ATTACK}" for rank in rows["rank"]]
    for trace in (folder / "trace", folder / f"odd{ATTACK}"):
        trace.mkdir()
        rows.to_csv(trace / "records.csv", index=False)
    budget = {"version": 1, "budgets": [{"project": ATTACK, "month": 1}]}
    (folder / "rankscope.yaml").write_text(json.dumps(budget))
    (folder / "wrong.yaml").write_text(json.dumps({"version": ATTACK, ATTACK: 1}))
    (folder / "trace" / "meta.json").write_text(json.dumps({"job_id": f"owned{ATTACK}"}))
    (folder / f"odd{ATTACK}" / "meta.json").write_text("[")
    return folder


CASES: dict[str, tuple[str, ...]] = {
    "diagnose": (
        "diagnose --agent AGENT --since 9000d",
        "diagnose --trace FILES/trace",
        "diagnose --trace FILES/oddATTACK",
        "diagnose --kineto FILES/oddATTACK",
    ),
    "jobs": ("jobs --agent AGENT --since 9000d",),
    "verify": (
        "verify team/job --agent AGENT --since 9000d",
        "verify team/job --agent AGENT --since 9000d --nccl-log FILES/nccl.log",
    ),
    "gpus": ("gpus --agent AGENT --seconds 2",),
    "xids": ("xids --agent AGENT",),
    "doctor": ("doctor --agent AGENT",),
    "config": ("config render FILES/rankscope.yaml", "config check FILES/wrong.yaml"),
    "record": ("record --agent AGENT --since 9000d --job team/job -",),
    "watch": ("watch --agent AGENT --once --since 9000d",),
    "explain": (
        "explain job-log FILES/job.log",
        "explain nccl-log FILES/nccl.log",
        "explain kernel-log FILES/kernel.log",
        "explain checkpoint FILES/saved",
    ),
    "preflight": (
        "preflight FILES/manifest.json",
        "preflight --agent AGENT",
        "preflight --page FILES/pageATTACK.prom",
    ),
    "diff": ("diff FILES/1.json FILES/2.json",),
    "logs": ("logs --errors --from FILES/job.log", "logs --from FILES/job.log"),
    "capture": ("capture --agent AGENT --since 9000d --job team/job FILES/captured.tar.gz",),
}

TEXT_ALONE = ("config", "record", "watch", "capture", "logs --from")
"""Lines that begin so have no JSON to print."""

OF_ITSELF = {"canary", "demo", "fabric-check", "probe-path", "runbook"}
"""Commands that print nothing that anybody else wrote; test_fabric_check has that one's hosts, and
test_canary why a watch could not be asked."""


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, text in places.items():
        word = word.replace(place, text)
    return word


def test_every_command_has_a_case():
    assert CASES.keys() | OF_ITSELF == cli.COMMANDS.keys()


@pytest.mark.parametrize("line", [line for lines in CASES.values() for line in lines])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_command_prints_what_shows(liar, files, capsys, monkeypatch, line, form):
    monkeypatch.setenv("COLUMNS", "400")  # a name that is broken over two lines is not found
    places = {"AGENT": liar, "FILES": str(files), "ATTACK": ATTACK}
    arguments = [_filled(word, places) for word in line.split()]
    if form == "json":
        if line.startswith(TEXT_ALONE):
            return
        arguments.append("--json")
    cli.main(arguments)
    printed = capsys.readouterr()
    text = printed.out + printed.err
    hidden = {letter for letter in text if letter != "\n" and not letter.isprintable()}
    assert not hidden
    assert "owned" in text or arguments[0] == "doctor", "the attack did not reach this command"


def test_a_name_that_no_sentence_made_visible_is_stopped_by_the_console():
    sink = io.StringIO()
    console = PlainConsole(file=sink, force_terminal=True, color_system="standard", highlight=False)
    console.print(f"rank {ATTACK}", style="bold", markup=False, soft_wrap=True)
    printed = sink.getvalue()
    assert printed.startswith("\x1b[1m"), "its own codes stay"
    assert printed.count("\x1b") == 2
    assert f"rank {REPLACEMENT}[2J{REPLACEMENT}]0;owned" in printed


def test_lines_keep_their_length(capsys):
    write_lines(["a" * 5000, f"b{ATTACK}"])
    first, second = capsys.readouterr().out.splitlines()
    assert (first, len(second)) == ("a" * 5000, 1 + len(ATTACK))
    assert shown("two\nlines") == "two\nlines"


def test_no_line_ends_in_blanks_and_those_within_lines_stay(capsys):
    table = Table("name", "what it is", title="Title", title_justify="left", box=None)
    table.add_row("a", Text("x  y ", style="bold"))
    table.add_row("b", "")
    console = open_console(no_color=True)
    console.print(table)
    console.print("plain  \n  second ", "and third")
    console.print(Text("unended "), end="")
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "Title"
    assert lines[1:] == [
        " name  what it is", " a     x  y", " b", "plain", "  second  and third", "unended "
    ]  # fmt: skip
