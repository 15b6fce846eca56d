"""`rankscope xids` over a real Prometheus and over an agent's page."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.intake.page_history import Page
from servers import require_server

SCRAPE = 15
SCRAPES = 80
NODES = ("gpu-06", "gpu-07")
LOST_AT = 40


def gpu_of(node: str, gpu: int) -> str:
    uuid = f"GPU-{node[-2:]}000000-0000-0000-0000-00000000000{gpu}"
    return f'gpu="{gpu}",uuid="{uuid}",pci="0000:{gpu:02x}:00"'


def exposition(start: int) -> Iterator[str]:
    """Eight GPUs of one job; GPU 3 of gpu-07 is lost, and the node with it five scrapes later."""
    lines: dict[str, list[str]] = {}

    def add(name: str, labels: str, value: float, scrape: int) -> None:
        stamp = start + scrape * SCRAPE
        lines.setdefault(name, []).append(f"rankscope_{name}{{{labels}}} {value} {stamp}")

    for node in NODES:
        for gpu in range(4):
            lost = node == "gpu-07" and gpu == 3
            code = (
                'xid="79",severity="fatal",action="reboot_node"'
                if lost
                else 'xid="45",severity="info",action="none"'
            )
            for scrape in range(SCRAPES):
                if node == "gpu-07" and scrape > LOST_AT + 5:
                    continue
                labels = f'{gpu_of(node, gpu)},node="{node}"'
                add("gpu_fallen_off_bus_total", labels, int(lost and scrape > LOST_AT), scrape)
                holder = f'{labels},job_id="ml/llm",rank="{NODES.index(node) * 4 + gpu}"'
                add("gpu_allocation_info", holder, 1, scrape)
                if scrape > LOST_AT:
                    moment = start + LOST_AT * SCRAPE + 1 + (not lost)
                    add("gpu_xid_errors_total", f"{labels},{code}", 12, scrape)
                    add("gpu_xid_last_timestamp_seconds", f"{labels},{code}", moment, scrape)
        for scrape in range(SCRAPES if node == "gpu-06" else LOST_AT + 5):
            add("build_info", f'node="{node}",version="1"', 1, scrape)
            if node == "gpu-07" or scrape < LOST_AT:
                add("kernel_events_total", f'node="{node}",kind="disk_error"', 0, scrape)
            disk = 3 * max(0, scrape - LOST_AT) + 8  # 8 of them of an earlier day
            add("kernel_disk_errors_total", f'node="{node}",disk="sda"', disk, scrape)
    for name, samples in lines.items():
        yield f"# TYPE rankscope_{name} {'counter' if name.endswith('_total') else 'gauge'}"
        # Samples of a series have to stand together.
        yield from sorted(samples, key=lambda line: line.split("}")[0])
    yield "# EOF"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory) -> Iterator[str]:
    program, tool = require_server("prometheus"), require_server("promtool")
    folder: Path = tmp_path_factory.mktemp("prometheus")
    start = (int(time.time()) // SCRAPE) * SCRAPE - SCRAPES * SCRAPE
    text, config = folder / "text", folder / "config.yml"
    text.write_text("\n".join(exposition(start)) + "\n")
    config.write_text("global: {scrape_interval: 15s}\n")
    make = [tool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, *flags, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait()


def said(capsys, *arguments: str) -> dict:
    assert cli.main(["xids", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_lost_gpu_is_one_incident_of_its_job_though_its_node_is_gone(prometheus, capsys):
    answer = said(capsys, "--prometheus", prometheus, "--since", "25m")
    (found,) = answer["incidents"]
    assert (found["kind"], found["action"], found["severity"]) == ("pcie", "reboot_node", "page")
    assert (found["where"]["node"], found["where"]["gpu"]) == ("gpu-07", "3")
    assert (found["job_ids"], found["ranks"]) == (["ml/llm"], ["7"])
    assert found["codes"] == {"Xid 79": 12, "gpu fallen off bus": 1, "Xid 45": 84}
    assert len(found["affected"]) == 7
    watched = (4 * SCRAPES + 4 * (LOST_AT + 6)) * SCRAPE / 3600
    assert answer["gpu_hours"] == pytest.approx(watched, rel=0.1)
    everything, by_name = answer["rates"][0], {one["name"]: one for one in answer["rates"]}
    assert everything["count"] == by_name["GPU lost"]["count"] == 1
    assert by_name["disk"]["count"] == 2
    assert by_name["disk"]["expected"] == pytest.approx(3 / 21_233_664 * answer["gpu_hours"])
    assert by_name["preemption"]["count"] == 0
    assert everything["per_thousand_gpu_hours"] == pytest.approx(1000 / answer["gpu_hours"])
    assert cli.main(["xids", "--prometheus", prometheus, "--job", "ml/other"]) == 1
    assert "there is no job 'ml/other' in what was read" in capsys.readouterr().err


def test_nodes_that_prometheus_does_not_show_whole_are_named(prometheus, capsys):
    """The agent of gpu-06 reads its log no longer; that of gpu-07 is gone with its node."""
    unobserved = said(capsys, "--prometheus", prometheus, "--since", "25m")["unobserved"]
    assert unobserved[0].startswith("the kernel log of node gpu-06, so that at most")
    assert unobserved[1].startswith("what has happened lately on node gpu-07: Prometheus has had")
    assert cli.main(["xids", "--prometheus", prometheus, "--since", "25m"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"Not seen: {one}." in text for one in unobserved)


def test_the_text_says_who_what_and_what_to_do(prometheus, capsys):
    assert cli.main(["xids", "--prometheus", prometheus, "--since", "25m"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "GPU 3 of node gpu-07" in text
    assert "rank 7 of job ml/llm" in text
    assert "First action: reboot the node. See `rankscope runbook RankscopeGpuLost`." in text
    assert "faulty GPU 1" in text
    assert "disk 2" in text
    assert "RSC-1, 16,000 A100 (arXiv:2410.21680): 0.0339" in text
    assert "0.0070" in text


@contextmanager
def agent_of(node: str, labels: str, moment: float) -> Iterator[str]:
    """Serve the page of an agent with one Xid."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"node": node})
            if self.path == "/metrics":
                body = (
                    f"rankscope_gpu_xid_errors_total{{{labels}}} 3.0\n"
                    f"rankscope_gpu_xid_last_timestamp_seconds{{{labels}}} {moment}\n"
                )
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def agent() -> Iterator[str]:
    """An agent's page with one Xid, whose process has a name that no terminal should obey."""
    labels = f'{gpu_of("gpu-07", 3)},xid="48",severity="fatal",action="reset_gpu"'
    evil = labels.replace("GPU-07", "GPU-\x1b[2J<b>[red]")
    with agent_of("gpu-07", evil, time.time() - 30) as address:
        yield address


def test_a_node_with_an_impossible_time_does_not_hide_the_other_nodes_errors(agent, capsys):
    labels = f'{gpu_of("gpu-06", 1)},xid="79",severity="fatal",action="reboot_node"'
    with agent_of("gpu-06", labels, 4e11) as wrong:
        assert cli.main(["xids", "--agent", agent, "--agent", wrong]) == 0
    text = capsys.readouterr().out
    assert "At an unknown time. First action: reboot the node." in text
    assert "GPU 3 of node gpu-07" in text


def test_agents_say_what_happened_and_not_how_often_per_hour(agent, capsys):
    silent = f"http://127.0.0.1:{free_port()}"
    answer = said(capsys, "--agent", agent, "--agent", silent)
    (found,) = answer["incidents"]
    assert (found["kind"], found["codes"]) == ("gpu_memory", {"Xid 48": 3})
    assert [rate["per_thousand_gpu_hours"] for rate in answer["rates"]] == [None] * 8
    assert "no rates" in answer["unobserved"][0]
    assert "cannot be reached" in answer["unobserved"][1]


def test_agents_that_read_no_kernel_log_do_not_say_that_nothing_happened(monkeypatch, capsys):
    logged = 'rankscope_kernel_events_total{kind="disk_error"} 0.0\n'
    pages = [Page("n0", 1000.0, "rankscope_build_info 1\n"), Page("n1", 1000.0, logged)]
    monkeypatch.setattr(agent_pages, "pages", lambda _: (pages[:1], []))
    assert cli.main(["xids", "--agent", "x"]) == 1
    assert "unknown: no kernel log was read." in capsys.readouterr().out
    monkeypatch.setattr(agent_pages, "pages", lambda _: (pages, []))
    assert cli.main(["xids", "--agent", "x"]) == 0
    text = capsys.readouterr().out
    assert "No GPU reported an error" in text
    assert "Not seen: the kernel log of node n0, so that" in text


def test_names_that_a_terminal_would_obey_are_shown_as_text(agent, capsys):
    assert cli.main(["xids", "--agent", agent]) == 0
    text = capsys.readouterr().out
    assert "[red]" in text
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--agent", "http://127.0.0.1:9"), "cannot be reached"),
        (("--prometheus", "http://127.0.0.1:9"), "cannot be reached"),
        (("--agent", "x", "--since", "soon"), "takes an age"),
        (("--prometheus", "x", "--token-file", "/nowhere"), "token cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_sentence(arguments, why, capsys):
    assert cli.main(["xids", *arguments]) == 1
    assert why in capsys.readouterr().err
