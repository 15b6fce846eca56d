"""The command rankscope-agent, called in this process where a process of its own adds nothing."""

from __future__ import annotations

import logging
import re
import socket

import pytest

from rankscope_agent import cli
from rankscope_agent.cli import main
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.collector import NoData


class Working:
    def collect(self):
        for rank in range(3000):
            yield metrics.STEPS.sample(rank, job_id="a", rank=str(rank))


class WithoutSource:
    def collect(self):
        raise NoData("no rings")


class Broken:
    def collect(self):
        raise OSError("gone")


@pytest.fixture(autouse=True)
def untouched_logging():
    """Keep the handlers that pytest has put in place."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    for handler in before:
        root.removeHandler(handler)
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in before:
        root.addHandler(handler)
    root.setLevel(level)


COLLECTORS = {
    "training": lambda config: Working(),
    "absent": lambda config: WithoutSource(),
    "broken": lambda config: Broken(),
}


def test_once_prints_the_page_and_succeeds_whatever_collectors_do(capsys):
    assert main(["--once"], {}, COLLECTORS) == 0
    page = capsys.readouterr().out
    assert 'rankscope_collector_success{collector="training"} 1.0\n' in page
    assert 'rankscope_collector_success{collector="absent"} 0.0\n' in page
    assert 'rankscope_collector_success{collector="broken"} 0.0\n' in page
    assert "rankscope_build_info{" in page


def test_once_has_no_series_limit(capsys):
    assert main(["--once", "--web.max-series=5"], {}, COLLECTORS) == 0
    page = capsys.readouterr().out
    assert page.count("\nrankscope_steps_total{") == 3000
    assert "\nrankscope_page_series_dropped 0.0\n" in page


def test_once_leaves_switched_off_collectors_out(capsys):
    assert (
        main(["--once", "--no-collector.broken"], {"RANKSCOPE_COLLECTOR_ABSENT": "0"}, COLLECTORS)
        == 0
    )
    captured = capsys.readouterr()
    working = re.findall(r"^rankscope_collector_success\{(.*)\}", captured.out, re.MULTILINE)
    assert sorted(working) == ['collector="summary"', 'collector="training"']
    assert captured.err == ""


def test_once_ends_despite_a_collector_that_cannot_be_made(capsys):
    def create(config):
        raise ImportError("no library")

    assert main(["--once"], {}, {"nvml": create}) == 0
    assert 'rankscope_collector_success{collector="nvml"} 0.0\n' in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv", [["--no-such-flag"], ["--collector.interval=soon"], ["--collector.interval"], ["word"]]
)
def test_what_cannot_be_used_is_one_sentence_and_exit_code_1(argv, capsys):
    assert main(argv, {}, COLLECTORS) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rankscope-agent: ")
    assert captured.err.count("\n") == 1


def test_a_port_in_use_is_one_sentence_and_exit_code_1(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main([f"--web.listen-address={address}"], {}, COLLECTORS) == 1
    text = capsys.readouterr().err
    assert text == (
        f"rankscope-agent: cannot listen on {address}: Address already in use;"
        " choose another with --web.listen-address\n"
    )


def test_an_address_that_is_not_ours_is_one_sentence_too(capsys):
    assert main(["--web.listen-address=192.0.2.1:9877"], {}, COLLECTORS) == 1
    assert capsys.readouterr().err.startswith("rankscope-agent: cannot listen on 192.0.2.1:9877: ")


def test_runs_past_their_deadline_are_looked_for_once_a_second(monkeypatch):
    waits = []
    monkeypatch.setattr(cli.signal, "sigtimedwait", lambda signals, wait: waits.append(wait))
    assert cli._stop_signal() is None
    assert waits == [1.0]


@pytest.mark.parametrize(
    ("flags", "names", "awaited"),
    [
        (("--kubernetes.api=http://127.0.0.1:9",), ("training", "pods"), True),
        (("--kubernetes.api=http://127.0.0.1:9",), ("training",), False),
        ((), ("training", "pods"), False),
    ],
    ids=["server", "not followed", "no server"],
)
def test_pods_names_are_awaited_before_any_collector_runs(monkeypatch, flags, names, awaited):
    """Collectors run in threads of their own, and that of the pods may not be the first."""
    seen = []

    def collectors(pods, windows):
        def create(config):
            seen.append(pods.pending)
            return WithoutSource()

        return dict.fromkeys(names, create)

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(cli, "all_collectors", collectors)
    assert main(["--once", *flags], {}) == 0
    assert seen == [awaited] * len(names)
