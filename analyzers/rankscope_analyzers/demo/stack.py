"""`rankscope demo --stack`: a complete installation on this machine, until it is stopped.

A node of simulated GPUs, a real training job with a slow rank, `rankscope watch`, Prometheus with
our rules, Alertmanager, and Grafana with our dashboards where it is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.demo.run import DemoError
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.text.sanitize import visible

STEPS = 1_000_000
"""Steps: more than anybody watches; the job ends with the demo."""

GPU_FAULTS = {"slow-compute": ":thermal@{rank}"}
"""The fault of the slow rank's simulated GPU, by the fault of its job."""

INTERVAL = "5s"
"""Interval at which Prometheus scrapes, and rules and `rankscope watch` are evaluated."""

POLL_SECONDS = 1.0

# A user of the demo does not wait the 15 minutes after which this would page the engineer on call.
WAITING = re.compile(r"^ *(?:for|keep_firing_for): .*\n", re.MULTILINE)
EVERY = re.compile(r"^( *interval:) .*$", re.MULTILINE)

PROMETHEUS = "prometheus"
ALERTMANAGERS = ("prometheus-alertmanager", "alertmanager")
"""Debian's name, and that of Prometheus' own releases."""

GRAFANAS = (("grafana", ("server",)), ("grafana-server", ()))
"""Programs of Grafana with their first arguments, the current one first."""

GRAFANA_HOMES = ("/usr/share/grafana", "/usr/local/share/grafana", "/opt/grafana")


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the servers; `grafana` is a command or empty if it is not installed."""

    prometheus: str
    alertmanager: str
    grafana: tuple[str, ...]


def find_programs() -> Programs:
    """Return the servers that are installed.

    Raises:
        DemoError: Prometheus or Alertmanager is missing.
    """
    prometheus = shutil.which(PROMETHEUS)
    alertmanager = next(filter(None, map(shutil.which, ALERTMANAGERS)), None)
    if prometheus is None or alertmanager is None:
        missing = "Prometheus" if prometheus is None else "Alertmanager"
        raise DemoError(
            f"{missing} is not on PATH: apt-get install prometheus prometheus-alertmanager"
        )
    grafana: tuple[str, ...] = ()
    for name, first in GRAFANAS:
        path = shutil.which(name)
        if path is not None:
            grafana = (path, *first)
            break
    return Programs(prometheus, alertmanager, grafana)


def generated_folder() -> Path:
    """Return the directory of generated rules and dashboards.

    Raises:
        DemoError: neither the installed package nor the checkout contains it.
    """
    here = Path(__file__).parents[1]
    # An installed wheel has the directory inside the package; a checkout next to it.
    for folder in (here / "generated", here.parent.parent / "dashboards" / "generated"):
        if (folder / "rules").is_dir():
            return folder
    raise DemoError(f"no generated rules beside {here}: install rankscope again")


def run(fault: str, rank: int, seconds: float | None, console: Console) -> None:
    """Run the stack until it is interrupted.

    Args:
        fault: of the job.
        rank: the rank with the fault.
        seconds: how long; None for until Ctrl-C.
        console: where addresses and alerts are printed.

    Raises:
        DemoError: a program is missing or does not start.
    """
    demo.require(rank)
    programs, generated = find_programs(), generated_folder()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-demo-")))
        broken = GPU_FAULTS.get(fault, "").format(rank=rank)
        agent = stack.enter_context(demo.agent(folder, f"--simulate=h100x{demo.RANKS}{broken}"))
        job = stack.enter_context(demo.training(folder, fault, rank, STEPS))
        watch = stack.enter_context(_watch(folder, agent))
        alertmanager = stack.enter_context(_alertmanager(folder, programs))
        prometheus = stack.enter_context(
            _prometheus(folder, programs, generated, (agent, watch, alertmanager))
        )
        addresses = {
            "Agent": agent,
            "rankscope watch": f"{watch}/metrics",
            "Prometheus": prometheus,
            "Alertmanager": alertmanager,
        }
        if programs.grafana:
            addresses["Grafana"] = stack.enter_context(
                _grafana(folder, programs, generated, prometheus)
            )
        _say(console, addresses, generated, seconds)
        try:
            _follow(job, folder, alertmanager, seconds, console)
        except KeyboardInterrupt:
            console.print("Stopping.")


def _say(
    console: Console, addresses: dict[str, str], generated: Path, seconds: float | None
) -> None:
    for name, address in addresses.items():
        console.print(f"{name + ':':<17}{address}", soft_wrap=True)
    if "Grafana" not in addresses:
        where = generated / "dashboards"
        console.print(f"Grafana is not installed; its dashboards are in\n  {where}", soft_wrap=True)
    until = "Ctrl-C stops it." if seconds is None else f"It stops after {seconds:.0f} s."
    console.print(f"Alerts fire without delay here. {until}")


def _follow(
    job: Any, folder: Path, alertmanager: str, seconds: float | None, console: Console
) -> None:
    """Print alerts as they arrive until the time is over.

    Raises:
        DemoError: the job has ended.
    """
    end = None if seconds is None else time.monotonic() + seconds
    seen: set[str] = set()
    while end is None or time.monotonic() < end:
        if job.poll() is not None:
            raise DemoError(f"the job ended: {demo.last_lines(folder / 'job.log')}")
        for line, summary in _alerts(alertmanager):
            if line not in seen:
                console.print(line, soft_wrap=True, markup=False)
                console.print(Padding(Text(summary), (0, 0, 0, 2)))
                seen.add(line)
        time.sleep(POLL_SECONDS)


def _alerts(alertmanager: str) -> Iterator[tuple[str, str]]:
    """Yield which alerts fire, and the summary of each."""
    try:
        with urlopen(f"{alertmanager}/api/v2/alerts", timeout=demo.STOP_SECONDS) as answer:  # noqa: S310 - our own server
            alerts = json.load(answer)
    except (URLError, OSError, ValueError):
        return
    for alert in alerts:
        labels = alert["labels"]
        subject = ", ".join(
            f"{key} {labels[key]}" for key in ("kind", "rank", "gpu") if key in labels
        )
        line = f"Alert {labels['alertname']}{f' ({subject})' if subject else ''}"
        yield inert(line), visible(alert["annotations"].get("summary", ""))


@contextmanager
def _server(
    name: str, command: list[str], folder: Path, address: str, ready: str, **variables: str
) -> Iterator[str]:
    log = folder / f"{name}.log"
    with demo.process(command, log, {**os.environ, **variables}) as running:
        deadline = time.monotonic() + demo.START_SECONDS
        while not demo.answers(f"http://{address}{ready}"):
            if running.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"{name} did not start: {demo.last_lines(log)}")
            time.sleep(POLL_SECONDS / 5)
        yield f"http://{address}"


@contextmanager
def _watch(folder: Path, agent: str) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    start = "import sys; from rankscope_analyzers.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "watch", f"--agent={agent}"]
    command += [f"--interval={INTERVAL}", f"--web.listen-address={address}"]
    with _server("watch", command, folder, address, "/metrics") as url:
        yield url


@contextmanager
def _alertmanager(folder: Path, programs: Programs) -> Iterator[str]:
    config = {
        "route": {"receiver": "screen", "group_wait": "1s"},
        "receivers": [{"name": "screen"}],
    }
    (folder / "alertmanager.yml").write_text(json.dumps(config))  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    command = [programs.alertmanager, f"--config.file={folder / 'alertmanager.yml'}"]
    command += [f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address="]
    command += [f"--web.listen-address={address}"]
    with _server("alertmanager", command, folder, address, "/-/ready") as url:
        yield url


@contextmanager
def _prometheus(
    folder: Path, programs: Programs, generated: Path, targets: tuple[str, str, str]
) -> Iterator[str]:
    agent, watch, alertmanager = (url.removeprefix("http://") for url in targets)
    for rules in (generated / "rules").glob("*.yaml"):
        text = EVERY.sub(rf'\1 "{INTERVAL}"', WAITING.sub("", rules.read_text(encoding="utf-8")))
        (folder / rules.name).write_text(text, encoding="utf-8")
    node = {"node": socket.gethostname()}
    scrape = {
        "job_name": "rankscope",
        "honor_labels": True,
        "static_configs": [{"targets": [agent], "labels": node}, {"targets": [watch]}],
    }
    config = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(folder / "*.yaml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [programs.prometheus, f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'prometheus'}", f"--web.listen-address={address}"]
    with _server("prometheus", command, folder, address, "/-/ready") as url:
        yield url


def _grafana_home(program: str) -> Path | None:
    """Return the directory of Grafana's defaults: of an unpacked release, or of a package."""
    folders = (Path(program).resolve().parent.parent, *map(Path, GRAFANA_HOMES))
    return next((one for one in folders if (one / "conf" / "defaults.ini").is_file()), None)


@contextmanager
def _grafana(folder: Path, programs: Programs, generated: Path, prometheus: str) -> Iterator[str]:
    provisioning, dashboards = folder / "provisioning", generated / "dashboards"
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "url": prometheus,
        "access": "proxy",
        "isDefault": True,
        "jsonData": {"timeInterval": INTERVAL},  # of rates: Grafana takes 15 s otherwise
    }
    provider = {
        "name": "rankscope",
        "type": "file",
        "options": {"path": str(dashboards)},
    }
    documents = {
        "datasources": {"apiVersion": 1, "datasources": [source]},
        "dashboards": {"apiVersion": 1, "providers": [provider]},
    }
    for kind, document in documents.items():
        (provisioning / kind).mkdir(parents=True)
        (provisioning / kind / "rankscope.yaml").write_text(json.dumps(document))
    port = free_port()
    home = _grafana_home(programs.grafana[0])
    settings = {
        "GF_PATHS_PROVISIONING": str(provisioning),
        "GF_PATHS_DATA": str(folder / "grafana"),
        "GF_PATHS_LOGS": str(folder / "grafana"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",  # it would download plugins
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(dashboards / "rankscope-on-call.json"),
    }
    command = [*programs.grafana, *([f"--homepath={home}"] if home else [])]
    address = f"127.0.0.1:{port}"
    with _server("grafana", command, folder, address, "/api/health", **settings) as url:
        yield url
