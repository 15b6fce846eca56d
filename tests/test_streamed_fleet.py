"""Jobs that are seen for the first time wait for agents that were not asked or did not answer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rankscope_analyzers.fusion.streamed_fleet import StreamedFleet
from rankscope_analyzers.intake.credentials import NONE
from rankscope_analyzers.intake.step_stream import StepStream, StreamLook
from rankscope_analyzers.intake.step_windows import Writer
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs

NOW = 1_700_000_000.0


@pytest.fixture
def fleet(monkeypatch):
    """Return a fleet whose agents told of one job at `NOW`, and are all there or not."""
    made = StreamedFleet(NONE, 1800.0, 4.5, FollowedJobs())
    newcomers = SimpleNamespace(left=True)
    monkeypatch.setattr(StepStream, "has_newcomers", property(lambda _: newcomers.left))
    monkeypatch.setattr(StepStream, "look", lambda *_: StreamLook(1, ()))
    window = made.stream.windows.of("team/job")
    writer = np.full(4, window.number(Writer(0, "n", 0, 0, 0, 0)))
    window.add(NOW, writer, {"step": np.arange(4.0), "t_start_unix_seconds": NOW + np.arange(4.0)})
    made.look(NOW, 0.0)
    yield made, newcomers
    made.stream.connections.close()


@pytest.mark.parametrize(
    ("left", "pause", "seconds"), [(True, 0.0, 60.0), (False, 15.1, 60.0), (False, 15.0, 15.0)]
)
def test_a_new_job_waits_longer_while_agents_were_not_asked_or_not_heard(
    fleet, left, pause, seconds
):
    made, newcomers = fleet
    newcomers.left, made._pause = left, pause
    assert made.news(NOW + seconds - 0.1).changed == []
    assert made.news(NOW + seconds).changed == ["team/job"]


def test_jobs_that_were_seen_while_agents_were_read_lose_no_record_until_they_are_followed(
    fleet, monkeypatch
):
    made, newcomers = fleet
    asked, followed = [], set()
    monkeypatch.setattr(
        made.timing.shares, "too_many", lambda *_, starting: asked.append(starting) or {}
    )
    monkeypatch.setattr(FollowedJobs, "knows", lambda _, name: name in followed)
    made.look(NOW, 0.0)
    newcomers.left = False
    made.look(NOW, 0.0)
    followed.add("team/job")
    made.look(NOW, 0.0)
    made.stream.windows.of("team/later").add(NOW, np.zeros(1, dtype=np.int64), {"step": np.ones(1)})
    made.look(NOW, 0.0)
    assert asked == [True, True, False, False]
