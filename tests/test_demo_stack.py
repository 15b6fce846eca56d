"""`rankscope demo --stack` for real; a small server stands in for Grafana alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from installed import skip_without
from rankscope_analyzers.demo import stack as demo_stack
from rankscope_analyzers.demo.run import DemoError
from scraped_stack import ask
from servers import require_server

skip_without("torch", "the demo trains with PyTorch")

PATIENCE_SECONDS = 120.0
START = "import sys; from rankscope_analyzers.cli import main; sys.exit(main())"

GRAFANA = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        said = dict(arguments=sys.argv[1:], settings=dict(os.environ))
        body = json.dumps(said).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", int(os.environ["GF_SERVER_HTTP_PORT"])), Handler).serve_forever()
"""


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Return what is printed up to the line with a text; end the process if that does not come."""
    said: list[str] = []
    watchdog = threading.Timer(PATIENCE_SECONDS, process.terminate)
    watchdog.start()
    try:
        for line in process.stdout or ():
            said.append(line.rstrip())
            if text in line:
                return said
    finally:
        watchdog.cancel()
    raise AssertionError(f"no line with {text!r} in: {said}")


def address(said: list[str], name: str) -> str:
    (found,) = [re.search(r"127[.]0[.]0[.]1:\d+", line) for line in said if line.startswith(name)]
    return found[0]


def culprits(prometheus: str) -> set[str]:
    """Return the ranks that the watch names, once it names any: the alert can come first.

    It fires by what agents measure for a job that no watch has judged yet.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found = ask(prometheus, "query", query="rankscope_finding_culprit_info")["result"]
        if found:
            return {one["metric"]["rank"] for one in found}
        time.sleep(0.5)
    return set()


@pytest.fixture
def program(tmp_path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "grafana").write_text(GRAFANA.format(python=sys.executable))
    (folder / "grafana").chmod(0o755)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "defaults.ini").touch()  # as in an unpacked release
    return folder


def test_the_stack_runs_alerts_and_leaves_nothing_behind(program):
    for server in ("prometheus", "prometheus-alertmanager"):
        require_server(server)
    root = Path(__file__).parent.parent
    variables = {
        "PATH": f"{program}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(root / name) for name in ("agent", "analyzers")),
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", START, "demo", "--stack", "--no-color"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | variables,
    )  # fmt: skip
    try:
        said = lines_until(process, "Alerts fire without delay")
        with urllib.request.urlopen(f"http://{address(said, 'Grafana')}/api/health") as answer:
            grafana = json.load(answer)
        check_grafana(grafana, address(said, "Prometheus"))
        assert grafana["arguments"][1:] == [f"--homepath={program.parent.resolve()}"]
        said += lines_until(process, "Alert RankscopeStraggler (")
        assert culprits(address(said, "Prometheus")) == {"2"}
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, rest
    for name in ("Agent", "Prometheus", "Alertmanager", "Grafana"):
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"http://{address(said, name)}/")


def check_grafana(grafana: dict, prometheus: str) -> None:
    """Check what the stand-in was started with, and the files that it was pointed to."""
    assert grafana["arguments"][0] == "server"
    folder = Path(grafana["settings"]["GF_PATHS_PROVISIONING"])
    sources = json.loads((folder / "datasources" / "rankscope.yaml").read_text())
    assert sources["datasources"][0]["url"] == f"http://{prometheus}"
    assert sources["datasources"][0]["jsonData"]["timeInterval"] == "5s"
    home = Path(grafana["settings"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert json.loads(home.read_text())["uid"] == "rankscope-on-call"
    assert grafana["settings"]["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
    provider = json.loads((folder / "dashboards" / "rankscope.yaml").read_text())["providers"][0]
    names = {path.name for path in Path(provider["options"]["path"]).iterdir()}
    assert {
        f"rankscope-{view}.json" for view in ("executive", "on-call", "debug", "checkpoints")
    } == names


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError, match="Prometheus is not on PATH"):
        demo_stack.find_programs()


def test_rules_of_the_demo_wait_for_nothing():
    text = (demo_stack.generated_folder() / "rules" / "alerts.yaml").read_text()
    assert re.search(r"^ +for: ", text, re.MULTILINE)
    assert not re.search(
        r"^ +(?:for|keep_firing_for): ", demo_stack.WAITING.sub("", text), re.MULTILINE
    )
