"""Memory errors that agents count from pages as agents write them: the first is a finding."""

from __future__ import annotations

from gpu_nodes import Clock, Library, read, session_of
from gpu_sessions import gpus
from rankscope_agent.serving.page_text import SeriesLines, write_text
from rankscope_agent.sources.gpus.nvml import FieldValue
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import gpu_health
from rankscope_analyzers.layers.job_view import job_view

UNCORRECTED_VOLATILE = 4  # NVML_FI_DEV_ECC_DBE_VOL_TOTAL


def findings(*counts):
    """Return what is wrong with the second of two GPUs whose pages had these counts."""
    clock, devices = Clock(), gpus(2)
    session = session_of(Library(devices), clock)
    pages = []
    for count in counts:
        devices[1].field_answers[UNCORRECTED_VOLATILE] = FieldValue(0, count)
        clock.now += 15
        text = write_text(read(session).samples, SeriesLines()).decode()
        pages.append(Page("n", clock.now, text))
    places = {
        rank: RankLocation(rank, "n", uuid=one.identity().uuid) for rank, one in enumerate(devices)
    }
    return list(
        gpu_health.findings(from_pages(pages, gpu_health.READS), job_view("team/job", places))
    )


def test_the_first_uncorrectable_error_of_a_gpu_is_a_finding():
    (found,) = findings(0, 0, 1, 1)
    assert (found.kind, found.where.ranks) == ("ecc_uncorrected", (1,))
    assert found.evidence[0].observed == 1


def test_errors_from_before_the_agent_began_are_none():
    assert findings(0, 0) == findings(3, 3) == []
