"""Refused rings are remembered by their reasons, and nothing else of the look that met them."""

from __future__ import annotations

import gc
import logging

import pytest

from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import RingError

FILES, LOOKS = 5, 20


def refusals() -> list[RingError]:
    """Return all refusals that are held by anything in this process.

    By their type itself: isinstance also asks each object for its class, which warns where an
    object of another library is deprecated.
    """
    gc.collect()
    return [one for one in gc.get_objects() if issubclass(type(one), RingError)]


@pytest.fixture
def _unlogged():
    """Keep refusals out of the log, whose records tests hold on to."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_unlogged")
def test_refusals_of_earlier_looks_are_forgotten(tmp_path):
    follower, before = RingFollower(tmp_path, tmp_path / "kubelet"), len(refusals())
    for look in range(LOOKS):
        for old in tmp_path.glob("*.ring"):
            old.unlink()
        for number in range(FILES):
            (tmp_path / f"{look * FILES + number}-1.ring").write_bytes(b"none")
        follower.scan(100.0 * look)
    held = refusals()
    assert FILES <= len(held) - before <= 2 * FILES
    assert [one for one in held if one.__traceback__ is not None] == []
