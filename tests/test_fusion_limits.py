"""How much is kept of what several sources say of jobs: at each limit and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics.training import LAST_STEP
from rankscope_analyzers.findings.finding import Cost
from rankscope_analyzers.fusion import gather, saved
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.steps.job_records import Read, SourceError
from test_incidents import seen


def test_pages_of_nine_polls_are_kept():
    pages = gather.EarlierPolls(1.0, (LAST_STEP,)).pages
    for at in range(12):
        line = f'{LAST_STEP.name}{{job_id="a",rank="0"}} {at}\n'
        pages.add([Page("n", float(at), line)])
    (series,) = pages.observed().of(LAST_STEP)
    assert series.times.tolist() == [float(at) for at in range(3, 12)]


def test_of_traces_no_agent_is_silent():
    assert gather.of_files(lambda _: Read(), ["a"]).silent == 0


class Saved(SimpleNamespace):
    """A saved diagnosis that says how large it is, and holds none."""

    def __truediv__(self, name):
        return self

    def stat(self):
        return SimpleNamespace(st_size=self.size)

    def read_text(self, encoding):
        return "[]"


@pytest.mark.parametrize(("size", "refused"), [(536_870_912, False), (536_870_913, True)])
def test_half_a_gibibyte_of_a_saved_diagnosis_is_read(size, refused):
    with pytest.raises(SourceError) as error:
        saved.read(Saved(size=size))
    assert ("536,870,913 bytes" in str(error.value)) is refused


def test_a_finding_of_which_nothing_is_known_costs_nothing_and_is_of_no_stage():
    found = seen()
    assert (found.known_cost, found.where.stage) == (Cost(0.0, 0.0), -1)
