"""When an agent says over HTTP that it is healthy and ready."""

from __future__ import annotations

import json
import threading

from rankscope_agent.web.access import AccessSettings, Guard
from served_agents import PATIENCE_SECONDS, Agent, Hanging, WithoutSource, Working


def test_healthz_is_fine_while_the_schedule_runs_even_without_a_source():
    agent = Agent({"training": Working, "rdma": WithoutSource})
    try:
        agent.registry.start()
        wait_until_ready(agent)
        status, _, body = agent.ask("/healthz")
        found = json.loads(body)
        assert (status, found["status"]) == (200, "partial")
        assert found["unobserved"] == {
            "rdma": "no data: <script>alert(1)</script>",
            "nvml": "switched off",
        }
    finally:
        agent.close()


def test_where_pages_are_protected_reasons_are_told_to_those_who_may_see_pages(tmp_path):
    """They quote what others wrote: labels, names of pods and files."""
    tokens = tmp_path / "tokens"
    tokens.write_text("correct-horse-battery-staple")
    guard = Guard(AccessSettings(token_file=tokens, protect_metrics=True))
    agent = Agent({"training": Working, "rdma": WithoutSource}, guard=guard)
    shown = {"Authorization": "Bearer correct-horse-battery-staple"}
    try:
        agent.registry.start()
        wait_until_ready(agent)
        assert agent.ask("/metrics")[0] == 401
        for wrong in ({}, {"Authorization": "Bearer no-token-of-this-file"}):
            status, _, body = agent.ask("/healthz", **wrong)
            assert (status, json.loads(body)["status"]) == (200, "partial")
            assert set(json.loads(body)) == {"status", "node", "version", "api_version"}
            assert agent.ask("/readyz", **wrong)[2] == b"Every collector has had its first run.\n"
        assert b"script" in agent.ask("/healthz", **shown)[2]
        assert b"Not seen: rdma" in agent.ask("/readyz", **shown)[2]
    finally:
        agent.close()


def wait_until_ready(agent):
    deadline = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.02)):
        if agent.ask("/readyz")[0] == 200:
            return
        deadline.wait(0.02)
    raise AssertionError("the agent did not become ready")


def test_ready_only_after_every_collectors_first_run():
    hanging = Hanging()
    agent = Agent({"training": Working, "slow": lambda: hanging})
    try:
        status, _, body = agent.ask("/readyz")
        assert (status, body) == (503, b"Waiting for the first run of: training, slow.\n")
        agent.registry.start()
        assert agent.ask("/readyz")[0] == 503
        hanging.released.set()
        wait_until_ready(agent)
    finally:
        agent.close()


def test_ready_despite_a_hanging_collector_once_its_deadline_has_passed():
    hanging = Hanging()
    agent = Agent({"slow": lambda: hanging}, deadline=0.1)
    try:
        agent.registry.start()
        wait_until_ready(agent)
    finally:
        hanging.released.set()
        agent.close()
