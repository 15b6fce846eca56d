"""Faults on their whole way: job or node, agent, watch, Prometheus, Alertmanager, one notification.

Rules and routes are the generated ones with seconds instead of minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alertmanagers import PATIENCE_SECONDS, Notifications, alertmanager, webhooks
from nccl_job_text import start
from probe_jobs.nurseries import Nursery
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts import ALERTS
from rankscope_dashboards.rules.routing import Timing, Timings
from rankscope_dashboards.rules.rule_files import Links, recording, rule
from running_agent import running_agent
from servers import require_server
from training_jobs import ForkedJob

SCRIPT = Path(__file__).parent / "foreign_jobs" / "train.py"
TRIED = {
    "RankscopeStraggler",
    "RankscopeXidFatal",
    "RankscopeGpuLost",
    "RankscopeSocketFallback",
    "RankscopeWatchdog",
}
SOON = Timing("3s", "1s", "1h")
TIMINGS = Timings(SOON, SOON, SOON, Timing("0s", "1s", "1h"))
"""Groups wait for three seconds, so that a lost GPU and its Xid go together."""

LINKS = Links("https://books.example.com", "https://graphs.example.com")
RANGE_SECONDS = 10
"""Ranges in expressions: longer than a few scrapes, short enough to wait for."""


def quick_rules() -> dict:
    """Return the rules that are tried, with waits of a second and ranges of some."""

    def quick(expression: str) -> str:
        return re.sub(r"\[\d+[smhd]\]", f"[{RANGE_SECONDS}s]", expression)

    alerts = [rule(alert, LINKS) for alert in ALERTS if alert.name in TRIED]
    assert len(alerts) == len(TRIED)
    for one in alerts:
        one["expr"] = quick(one["expr"])
        if "for" in one:
            one["for"] = "1s"
        if "keep_firing_for" in one:
            one["keep_firing_for"] = "2s"
    records = [
        recording(one) | {"expr": quick(one.expression)}
        for group in recording_rules.GROUPS
        for one in group.records
    ]
    groups = {"records": records, "alerts": alerts}
    return {
        "groups": [{"name": name, "interval": "1s", "rules": all_} for name, all_ in groups.items()]
    }


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group of its own until the block ends."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env=kept, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)


def at_once(*contexts: tuple[contextlib.ExitStack, contextlib.AbstractContextManager]) -> None:
    """Enter contexts that wait for something, all at the same time; their stacks leave them."""
    with ThreadPoolExecutor(len(contexts)) as pool:
        entered = [pool.submit(context.__enter__) for _, context in contexts]
    for (stack, context), done in zip(contexts, entered, strict=True):
        if done.exception() is None:
            stack.push(context)
    for done in entered:
        done.result()


@contextlib.contextmanager
def training(nursery: Nursery, folder: Path) -> Iterator[None]:
    variables = {
        "RANKSCOPE_RING_DIR": str(folder / "rings"),
        "SLOW": "1:forward:40",
        "STEPS": "100000",
    }
    job = ForkedJob(nursery, SCRIPT, 3, variables, folder / "job.log")
    try:
        yield
    finally:
        job.end(PATIENCE_SECONDS)


def watch(folder: Path, agent: str, address: str):
    # Records older than these seconds are not judged, so that an ended job is soon forgotten.
    options = ["--interval", "1s", "--since", "7s", f"--web.listen-address={address}"]
    program = "import sys; from rankscope_analyzers.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "watch", "--agent", agent]
    return running([*command, *options], folder / "watch.log")


def prometheus(folder: Path, targets: dict[str, str], alertmanagers: str):
    """Scrape agents and watch; `node` stands on every series, as docs/alerts.md asks for."""
    (folder / "rules.yaml").write_text(json.dumps(quick_rules()))
    scrape = {
        "job_name": "rankscope",
        "honor_labels": True,
        "static_configs": [
            {"targets": [address], "labels": {"node": name} if name else {}}
            for name, address in targets.items()
        ],
    }
    config = {
        "global": {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
            "external_labels": {"replica": "a"},
        },
        "rule_files": ["rules.yaml"],
        "scrape_configs": [scrape],
        "alerting": {
            "alert_relabel_configs": [{"action": "labeldrop", "regex": "replica"}],
            "alertmanagers": [{"static_configs": [{"targets": [alertmanagers]}]}],
        },
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        require_server("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{free_port()}",
        "--rules.alert.resend-delay=1s",
    ]
    return running(command, folder / "prometheus.log")


def subfolder(folder: Path, name: str) -> Path:
    (folder / name / "rings").mkdir(parents=True)
    return folder / name


def write_fallback(folder: Path) -> Path:
    """Write what NCCL prints when it falls back to TCP in a pod that has an adapter."""
    log = folder / "logs/team_train-0_uid-1/main/0.log"
    log.parent.mkdir(parents=True)
    extra = ("NET/IB : No device found.",)
    text = start(7, 16, "NET/Socket/0", network="Socket", extra=extra)
    log.write_text(
        "".join(f"2026-11-21T02:14:00.1Z stdout F {line}\n" for line in text.splitlines())
    )
    return log


def is_news(message: dict) -> bool:
    """Whether a message tells of faults alone, and not that one of its group has ended."""
    return all(one["status"] == "firing" for one in message["alerts"])


def about(told: Notifications, name: str) -> list[tuple[str, dict]]:
    """Return the messages that tell of an alert and of no end."""
    return [
        (receiver, message)
        for receiver, message in list(told.got)
        if is_news(message) and any(one["labels"]["alertname"] == name for one in message["alerts"])
    ]


def ended(told: Notifications, name: str) -> bool:
    """Whether a message has told that an alert has ended, alone or beside others of its group."""
    return any(
        one["labels"]["alertname"] == name and one["status"] == "resolved"
        for _, message in list(told.got)
        for one in message["alerts"]
    )


def await_until(condition: Callable[[], object], what: str, told: Notifications) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS * 2
    while not condition():
        seen = [(r, m["status"], [a["labels"] for a in m["alerts"]]) for r, m in told.got]
        assert time.monotonic() < deadline, f"{what}: {seen}"
        time.sleep(0.2)


def page(address: str) -> str:
    """Return the metrics of a server, or nothing while it does not answer."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics") as got:
        return got.read().decode()
    return ""


FAULTS = ("RankscopeStraggler", "RankscopeXidFatal", "RankscopeSocketFallback")


def test_each_fault_is_one_notification_and_ends(tmp_path, nursery):
    slow, lost, tcp = (subfolder(tmp_path, name) for name in ("slow", "lost", "tcp"))
    log = write_fallback(tcp)
    targets = {name: f"127.0.0.1:{free_port()}" for name in ("gpu-a", "gpu-b", "gpu-c", "")}

    def agent(node: str, folder: Path, *flags: str):
        # Of several --web.listen-address the last counts.
        at = (f"--web.listen-address={targets[node]}", "--collector.interval=1")
        return running_agent(folder, *at, *flags)

    with contextlib.ExitStack() as stack:
        told = stack.enter_context(webhooks())
        job = stack.enter_context(contextlib.ExitStack())
        broken = stack.enter_context(contextlib.ExitStack())
        job.enter_context(training(nursery, slow))  # what takes longest comes first
        address = stack.enter_context(alertmanager(tmp_path, told.url, TIMINGS))
        stack.enter_context(watch(tmp_path, targets["gpu-a"], targets[""]))
        stack.enter_context(agent("gpu-a", slow))
        # Until a watch names the rank, step times alone would: an alert with other labels.
        await_until(lambda: 'symptom="gpu_compute"' in page(targets[""]), "a verdict", told)
        stack.enter_context(prometheus(tmp_path, targets, address))
        at_once(
            (broken, agent("gpu-b", lost, "--simulate=h100x8:xid79")),
            (stack, agent("gpu-c", tcp, "--simulate=h100x8")),
        )
        for name in FAULTS:
            await_until(lambda name=name: about(told, name), f"{name} fires", told)
        shutil.rmtree(log.parent.parent)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(job.close)
            broken.close()
            stack.enter_context(agent("gpu-b", lost, "--simulate=h100x8"))
        for name in FAULTS:
            await_until(lambda name=name: ended(told, name), f"{name} ends", told)
    check_straggler(told)
    check_xid(told)
    check_fallback(told)
    assert [receiver for receiver, _ in about(told, "RankscopeWatchdog")] == ["deadman"]
    news = [one for one in told.got if one[0] != "deadman" and is_news(one[1])]
    assert len(news) == len(FAULTS)


def only(told: Notifications, name: str) -> tuple[str, dict]:
    """Return the one notification that told of an alert."""
    ((receiver, message),) = about(told, name)
    return receiver, message


def check_straggler(told: Notifications) -> None:
    receiver, message = only(told, "RankscopeStraggler")
    (one,) = message["alerts"]
    labels, texts = one["labels"], one["annotations"]
    assert receiver == "ticket-owner"
    assert labels["rank"] == "1"
    assert labels["symptom"] == "gpu_compute", "from the watch, not from step times alone"
    # On a machine that is busy with other things the watch rightly names its CPUs as the cause.
    assert re.search(r" Cause: (gpu_compute|cpu_\w+), see docs/runbooks/", texts["description"])
    assert message["groupLabels"] == {"job_id": labels["job_id"]}
    assert re.fullmatch(r"A rank holds up job \S+: [\d.]+% of every step", texts["summary"])
    assert "rank 1 on node test-node" in texts["description"]
    assert texts["runbook_url"] == "https://books.example.com/RankscopeStraggler.md"
    assert "&var-rank=1" in texts["dashboard_url"]
    assert "replica" not in labels


def check_xid(told: Notifications) -> None:
    receiver, message = only(told, "RankscopeXidFatal")
    assert receiver == "ticket"
    assert message["groupLabels"] == {"node": "gpu-b"}
    by_name = {one["labels"]["alertname"]: one for one in message["alerts"]}
    assert set(by_name) == {"RankscopeXidFatal", "RankscopeGpuLost"}, "one fault, one notification"
    labels = by_name["RankscopeXidFatal"]["labels"]
    assert (labels["xid"], labels["gpu"]) == ("79", "5")
    assert labels["uuid"].startswith("GPU-")
    texts = by_name["RankscopeXidFatal"]["annotations"]
    assert texts["runbook_url"] == "https://books.example.com/RankscopeXidFatal.md"
    assert "&var-node=gpu-b" in texts["dashboard_url"]


def check_fallback(told: Notifications) -> None:
    receiver, message = only(told, "RankscopeSocketFallback")
    (one,) = message["alerts"]
    labels = one["labels"]
    assert receiver == "ticket", "whose job it is is not known here"
    assert (labels["pod_namespace"], labels["pod_name"]) == ("team", "train-0")
    assert labels["node"] == "gpu-c"
    assert labels["reason"] == "no_rdma_device"
    texts = one["annotations"]
    assert texts["runbook_url"] == "https://books.example.com/RankscopeSocketFallback.md"
