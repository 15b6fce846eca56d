"""The agent as a process: how it starts, how it ends, and what a hanging collector costs it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ring_writer import RingWriter
from running_agent import COMMAND, HEALTH, PATIENCE_SECONDS, agent_environment, running_agent

EXIT_PATIENCE_SECONDS = 15.0  # two seconds are promised; a busy machine may stretch them

WITH_A_HANGING_COLLECTOR = (
    sys.executable,
    "-c",
    textwrap.dedent("""
        import sys
        import threading
        from rankscope_agent import cli
        from rankscope_agent.contract.metrics import training as metrics

        class Hanging:
            def collect(self):
                threading.Event().wait()

        class Working:
            def collect(self):
                yield metrics.RINGS.sample(2)

        collectors = {"hanging": lambda config: Hanging(), "working": lambda config: Working()}
        sys.exit(cli.main(sys.argv[1:], collectors=collectors))
    """),
)


def end_by(agent, number: int) -> int:
    agent.process.send_signal(number)
    return agent.process.wait(EXIT_PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_the_agent_with_success(tmp_path, number):
    with running_agent(tmp_path) as agent:
        assert "rankscope_build_info{" in agent.get("/metrics")
        assert end_by(agent, number) == 0
        assert f"stopping after {number.name}" in agent.log.read_text()


def test_an_agent_that_was_stopped_for_longer_than_a_wait_goes_on(tmp_path):
    """Python 3.11 answers its wait with a signal that never came."""
    with running_agent(tmp_path) as agent:
        for _ in range(3):
            agent.process.send_signal(signal.SIGSTOP)
            time.sleep(1.2)
            agent.process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
            assert "rankscope_build_info{" in agent.get("/metrics")
        assert agent.process.poll() is None, agent.log.read_text()
        assert end_by(agent, signal.SIGTERM) == 0
        assert "stopping after SIGTERM" in agent.log.read_text()


def test_a_hanging_collector_and_open_connections_do_not_delay_the_end(tmp_path):
    flags = ("--collector.deadline=0.2", "--collector.interval=0.1")
    with running_agent(tmp_path, *flags, command=WITH_A_HANGING_COLLECTOR) as agent:
        address = ("127.0.0.1", urlsplit(agent.url).port)
        with contextlib.ExitStack() as stack:
            silent = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
            half = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
            half.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
            page = until(agent, "/metrics", 'rankscope_collector_success{collector="hanging"} 0.0')
            assert 'rankscope_collector_success{collector="working"} 1.0\n' in page
            assert "rankscope_training_rings 2.0\n" in page
            assert end_by(agent, signal.SIGTERM) == 0
            assert silent.recv(1) == b""


def test_a_hanging_collector_is_named_in_health_and_log(tmp_path):
    flags = ("--collector.deadline=0.2", "--collector.interval=0.1")
    with running_agent(tmp_path, *flags, command=WITH_A_HANGING_COLLECTOR) as agent:
        until(agent, "/readyz", "Every collector has had its first run.")
        health = json.loads(agent.get("/healthz"))
        assert health["status"] == "partial"
        assert health["unobserved"]["hanging"].startswith("still running after ")
        assert "working" not in health["unobserved"]
        agent.logged("collector hanging failed: still running")


WITH_A_DYING_COLLECTOR = (
    sys.executable,
    "-c",
    textwrap.dedent("""
        import sys
        from pathlib import Path
        from rankscope_agent import cli

        class Dying:
            def collect(self):
                if Path(sys.argv[-1].partition("=")[2], "end").exists():
                    raise SystemExit  # which ends no more than its thread
                return ()

        sys.exit(cli.main(sys.argv[1:], collectors={"dying": lambda config: Dying()}))
    """),
)


def test_liveness_is_told_on_a_port_of_its_own_and_ends_with_a_collectors_thread(tmp_path):
    flags = ("--collector.interval=0.05", HEALTH, f"--path.ring-dir={tmp_path}")
    with running_agent(tmp_path, *flags, command=WITH_A_DYING_COLLECTOR) as agent:
        assert agent.liveness() == 200
        (tmp_path / "end").touch()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while agent.liveness() != 503:
            assert time.monotonic() < deadline
        assert end_by(agent, signal.SIGTERM) == 0


def test_a_health_address_in_use_is_one_sentence_and_exit_code_1(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [*COMMAND, "--web.listen-address=127.0.0.1:0", f"--web.health-address={address}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            env=agent_environment(),
        )
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"cannot listen on {address}: Address already in use;"
        " choose another with --web.health-address\n"
    )


def until(agent, path: str, text: str) -> str:
    """Fetch a path until it holds a text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # a 503 of /readyz
            page = agent.get(path)
            if text in page:
                return page
        time.sleep(0.02)
    raise AssertionError(f"{path} never held {text!r}")


def once(tmp_path: Path, *flags: str, command=COMMAND) -> subprocess.CompletedProcess[str]:
    rings = (f"--path.ring-dir={tmp_path}/rings", f"--path.kubelet={tmp_path}/kubelet")
    return subprocess.run(
        [*command, "--once", *rings, *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=agent_environment(),
    )


def test_once_ends_with_success_though_a_collector_hangs(tmp_path):
    done = once(tmp_path, "--collector.deadline=0.2", command=WITH_A_HANGING_COLLECTOR)
    assert done.returncode == 0
    assert 'rankscope_collector_success{collector="hanging"} 0.0\n' in done.stdout
    assert 'rankscope_collector_success{collector="working"} 1.0\n' in done.stdout


def test_once_on_a_node_without_any_source_prints_a_page_and_nothing_else(tmp_path):
    done = once(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# HELP rankscope_build_info ")


def test_once_into_a_closed_pipe_is_no_error(tmp_path):
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" "$@" | true', *COMMAND, "--once", f"--path.ring-dir={tmp_path}"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=agent_environment(),
    )
    assert done.stderr == b""


def test_usage_errors_have_exit_code_1(tmp_path):
    done = once(tmp_path, "--no-such-flag")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rankscope-agent: unrecognized arguments: --no-such-flag")


def test_the_port_of_a_running_agent_cannot_be_taken_by_a_second_one(tmp_path):
    with running_agent(tmp_path) as agent:
        address = f"127.0.0.1:{urlsplit(agent.url).port}"
        second = subprocess.run(
            [*COMMAND, f"--web.listen-address={address}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            env=agent_environment(),
        )
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert "Address already in use" in second.stderr


def test_a_ring_that_appears_while_the_agent_runs_is_on_every_page(tmp_path):
    rings = tmp_path / "rings"
    with running_agent(tmp_path, "--collector.interval=0.1") as agent:
        until(agent, "/healthz", "no ring directory")
        rings.mkdir()
        writer = RingWriter(rings, rank=3, job_id="team/job")
        try:
            writer.step(5, start_unix_ns=time.time_ns())
            steps = 'rankscope_steps_total{job_id="team/job",rank="3"} 5.0\n'
            page = until(agent, "/metrics", steps)
            assert 'rankscope_rank_alive{job_id="team/job",rank="3"} 1.0\n' in page
            (rank,) = json.loads(agent.get("/api/v1/ranks"))["ranks"]
            assert (rank["job_id"], rank["rank"], rank["alive"]) == ("team/job", 3, True)
            answer = json.loads(agent.get("/api/v1/steps?job=team/job&since=0"))
            step = answer["columns"].index("step")
            assert [row[step] for row in answer["rows"]] == [0, 1, 2, 3, 4]
            assert json.loads(agent.get("/api/v1/steps?job=another"))["rows"] == []
            assert "training" not in json.loads(agent.get("/healthz"))["unobserved"]
        finally:
            writer.end()
        until(agent, "/metrics", 'rankscope_rank_alive{job_id="team/job",rank="3"} 0.0\n')
