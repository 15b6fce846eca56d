"""What a streaming watch does not take for new: pages and reports from before it could not see."""

from __future__ import annotations

import re
import time

from rankscope_agent.web.routes import Response
from test_watch_streaming import SLOW, Node, Watch, fleet  # noqa: F401 - a fixture


class Refusing(Node):
    """A node whose page is refused while `refuses` is set on its clock."""

    def page(self, request):
        if getattr(self.clock, "refuses", False):
            return Response(500, "text/plain", b"no")
        return super().page(request)


def until(watched, condition):
    """Look until something is the case."""
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end, watched.said
        watched.look()


def await_pages(watched):
    """Wait until the pages that were asked for can be taken."""
    end = time.monotonic() + 60.0
    while not watched.cycle._pages.ready:
        assert time.monotonic() < end, watched.said
        time.sleep(0.01)


def seen(watched):
    """Return when the findings of each job were seen last."""
    page = watched.exporter.text()
    pattern = r'(?m)^rankscope_finding_seen_timestamp_seconds{job_id="([^"]*)".*} (\S+)$'
    return {job: float(at) for job, at in re.findall(pattern, page)}


def test_pages_from_before_a_watch_stood_by_are_not_judged_when_it_leads_again(fleet, tmp_path):  # noqa: F811
    clock, urls = fleet(SLOW)
    clock.steps = 90
    watched = Watch(urls, tmp_path)
    watched.look()  # asks for pages, which a further look may take
    await_pages(watched)
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


def test_after_a_look_without_pages_news_of_a_job_renew_no_findings_of_another(
    fleet,  # noqa: F811
    tmp_path,
):
    clock, urls = fleet(SLOW, node=Refusing)
    other, other_urls = fleet(SLOW, "other/job", node=Refusing)
    clock.steps = other.steps = 130
    watched = Watch([*urls, *other_urls], tmp_path)
    watched.evaluate()
    assert seen(watched).keys() == {"team/job", "other/job"}
    clock.refuses = other.refuses = True
    watched.cycle._pages._due = 0.0
    until(watched, lambda: watched.exporter.failed)
    failed = time.time()
    before = seen(watched)
    for clock.steps in range(135, 200, 5):
        watched.look()
    assert [line["change"] for line in watched.lines() if line["job_id"] == "team/job"] == [
        "opened",
        "closed",
    ]
    assert [one.job_id for one in watched.source.exported.reports] == ["team/job"]
    assert seen(watched) == {"other/job": before["other/job"]}
    assert before["other/job"] < failed
    clock.refuses = other.refuses = False
    watched.evaluate()
    assert seen(watched)["other/job"] > failed, "and the next evaluation sees it again"
    watched.cycle.stand_by()
