"""How often commands look again, and for how long: at each limit and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import gpus, jobs, watch
from rankscope_analyzers.commands.job_source import JobSource


@pytest.mark.parametrize("seconds", [1.9, 600.1])
def test_gpus_are_watched_for_two_seconds_to_ten_minutes(seconds):
    with pytest.raises(InputError, match="takes 2 to 600"):
        gpus.run(SimpleNamespace(seconds=seconds))


@pytest.mark.parametrize("seconds", [2.0, 600.0])
def test_gpus_are_looked_at_every_two_seconds(monkeypatch, seconds):
    polls, pauses = [], []
    agents = SimpleNamespace(pages=lambda: polls.append(1) or (["page"], []))
    monkeypatch.setattr(gpus.time, "sleep", pauses.append)
    gpus.watch(agents, seconds)
    assert len(polls) == 1 + seconds / 2
    assert set(pauses) == {2.0}


@pytest.mark.parametrize(("refresh", "why"), [(1.9, "2 seconds or more"), (2.0, "--json")])
def test_a_table_of_jobs_is_shown_again_after_two_seconds(refresh, why):
    with pytest.raises(InputError, match=why):
        jobs.run(SimpleNamespace(refresh=refresh, json=True))


def test_who_leads_is_looked_at_every_second_and_an_evaluation_hangs_after_a_quarter_of_an_hour(
    monkeypatch,
):
    pauses, deadlines = [], []
    monkeypatch.setattr(watch.time, "sleep", pauses.append)
    exporter = SimpleNamespace(set_deadline=deadlines.append, stand_by=lambda: None)
    source = JobSource(lambda: None)
    standing_by = SimpleNamespace(held=lambda: False)
    watch.run_cycle(source, exporter, standing_by, 30.0, None)
    assert (deadlines, pauses) == ([930.0], [1.0])
