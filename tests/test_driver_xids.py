"""Xids that the driver reported to the agent count where the kernel log does not show them."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from rankscope_agent.contract.metrics import gpus, kernel_log
from rankscope_analyzers.gpus import driver_xids
from rankscope_analyzers.gpus.error_sources import from_pages
from rankscope_analyzers.gpus.xid_incidents import analyze
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.page_history import Page
from running_agent import COMMAND, PATIENCE_SECONDS, agent_environment

NOW = 1_800_000_000.0
GPU = {"gpu": "5", "uuid": "GPU-5", "pci": "0000:5b:00"}


def series(metric, value, *, node="gpu-07", **labels):
    return Series(node, metric.name, {**GPU, **labels}, np.array([NOW]), np.array([value]))


def driver(xid="79", **labels):
    return [
        series(gpus.GPU_XIDS, 1.0, xid=xid, **labels),
        series(gpus.GPU_XID_TIMESTAMP, NOW - 30, xid=xid, **labels),
    ]


def logged(xid="79", **labels):
    words = {"xid": xid, "severity": "fatal", "action": "reboot_node", **labels}
    return [series(kernel_log.XID_ERRORS, 1.0, **words), series(kernel_log.XID_LAST, NOW, **words)]


def codes(merged):
    return sorted(one.labels["xid"] for one in merged if one.name == kernel_log.XID_ERRORS.name)


@pytest.mark.parametrize(
    ("in_log", "reported", "expected"),
    [
        ([], driver(), ["79"]),
        (logged(), driver(), ["79"]),
        (logged(uuid=""), driver(), ["79"]),
        (logged(pci="unknown"), driver(), ["79"]),
        (logged(uuid="", pci="unknown"), driver(), ["79", "79"]),
        (logged(xid="48"), driver(), ["48", "79"]),
        (logged(node="gpu-08"), driver(), ["79", "79"]),
    ],
    ids=["only driver", "both", "by pci", "by uuid", "no gpu", "other code", "other node"],
)
def test_an_xid_in_both_is_counted_once(in_log, reported, expected):
    assert codes(driver_xids.merge([*in_log, *reported])) == expected


@pytest.mark.parametrize(
    ("xid", "severity", "action"),
    [("79", "fatal", "reboot_node"), ("other", "warn", "investigate")],
)
def test_a_code_has_the_meaning_that_the_table_of_xids_gives_it(xid, severity, action):
    counter, stamp = driver_xids.merge(driver(xid))
    assert (counter.name, stamp.name) == (kernel_log.XID_ERRORS.name, kernel_log.XID_LAST.name)
    assert {one.labels["severity"] for one in (counter, stamp)} == {severity}
    assert {one.labels["action"] for one in (counter, stamp)} == {action}


def simulated_page(node):
    """Return the page that an agent with simulated GPUs prints."""
    command = [*COMMAND, "--once", f"--simulate={node}"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
        env=agent_environment(),
    )
    return Page("gpu-07", NOW, done.stdout)


def test_the_xid_of_a_simulated_gpu_is_an_incident():
    page = simulated_page("h100x8:xid79@5")
    (found,) = analyze(from_pages([page], 0.0).errors)
    assert (found.where.gpu, found.action, found.codes) == ("5", "reboot_node", {"Xid 79": 1})


def test_healthy_simulated_gpus_have_no_incident():
    assert from_pages([simulated_page("h100x8")], 0.0).errors == ()
