"""The state, physical state and rate of RDMA ports, where reading them fails for a while."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.sources.rdma.port import StatusFile
from rankscope_agent.sources.rdma.tree import RdmaTree
from rdma_files import add_port, write

ONE = ("mlx5_0", "1")
STATUSES = {
    "state": metrics.PORT_STATE,
    "phys_state": metrics.PORT_PHYSICAL_STATE,
    "rate": metrics.PORT_RATE,
}


@pytest.fixture
def port(tmp_path):
    return add_port(tmp_path)


@pytest.fixture
def tree(tmp_path):
    made = RdmaTree(tmp_path, 100, everything=False)
    yield made
    made.close()


def look(tree, *, refresh=True):
    if refresh:
        tree.refresh()
    return {sample.metric: sample.value for sample in tree.samples() if sample.labels == ONE}


@contextmanager
def no_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", STATUSES)
def test_a_status_that_cannot_be_read_is_told_and_read_again_by_the_next_scan(port, tree, name):
    healthy = look(tree)
    text = (port / name).read_text()
    (port / name).unlink()
    (port / name).mkdir()  # opens, and fails to read
    for _ in range(2):
        failing = look(tree)
        assert STATUSES[name] not in failing
        assert failing[metrics.UNREADABLE] == 1
    (port / name).rmdir()
    write(port / name, text.strip())
    assert look(tree) == healthy


def test_between_two_scans_a_status_that_failed_is_not_read(port, tree):
    (port / "state").unlink()
    (port / "state").mkdir()
    look(tree)
    (port / "state").rmdir()
    write(port / "state", "4: ACTIVE")
    assert metrics.PORT_STATE not in look(tree, refresh=False)
    assert look(tree)[metrics.PORT_STATE] == 4


def test_a_status_that_does_not_exist_is_not_called_unreadable(port, tree):
    (port / "rate").unlink()
    found = look(tree)
    assert metrics.PORT_RATE not in found
    assert metrics.UNREADABLE not in found


def test_a_want_of_descriptors_costs_one_look(port):
    status = StatusFile(port / "state")
    with no_descriptors():
        status.refresh()
        assert not status.read()
    assert status.text == ""
    assert not status.unreadable
    assert status.read()
    assert status.text == "4: ACTIVE"
    status.close()


def test_a_link_that_goes_down_while_its_state_cannot_be_read_is_a_flap(port, tree):
    look(tree)
    (port / "state").unlink()
    (port / "state").mkdir()
    assert look(tree)[metrics.LINK_FLAPS] == 0
    (port / "state").rmdir()
    write(port / "state", "1: DOWN")
    found = look(tree)
    assert found[metrics.PORT_STATE] == 1
    assert found[metrics.LINK_FLAPS] == 1


def test_failing_statuses_leave_no_descriptor_open(port, tree):
    before = len(list(Path("/proc/self/fd").iterdir()))
    (port / "state").unlink()
    (port / "state").mkdir()
    for _ in range(3):
        look(tree)
    tree.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
