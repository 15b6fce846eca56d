"""What a streaming watch does not take for new: pages and reports from before it could not see."""

from __future__ import annotations

import time

from test_watch_streaming import SLOW, Watch, fleet  # noqa: F401 - a fixture


def until(watched, condition):
    """Look until something is the case."""
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end, watched.said
        watched.look()


def test_pages_from_before_a_watch_stood_by_are_not_judged_when_it_leads_again(fleet, tmp_path):  # noqa: F811
    clock, urls = fleet(SLOW)
    clock.steps = 90
    watched = Watch(urls, tmp_path)
    until(watched, lambda: watched.cycle._pages.ready)
    watched.cycle.stand_by()
    watched.exporter.stand_by()
    watched.source.stand_by()
    leads_again = time.time()
    watched.look()
    assert watched.cycle._look is None
    watched.evaluate()
    assert min(page.time for page in watched.cycle._look.poll.pages) >= leads_again
    assert [one.job_id for one in watched.source.exported.reports] == ["team/job"]
    watched.cycle.stand_by()
