"""What a watch says of the jobs whose GPU time it does not count."""

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.watch.goodput import Goodput


def look(goodput: Goodput, jobs: int, now: float) -> None:
    reports = [
        JobReport(f"job-{number}", None, None, (), (), {}, (), (), now) for number in range(jobs)
    ]
    assert not goodput.look(Gathered((), JobEvidence(Observed({}))), reports, now)


def unaccounted(goodput: Goodput) -> list[float]:
    return [one.value for one in goodput.samples() if one.metric is metrics.UNACCOUNTED_JOBS]


def test_jobs_beyond_the_thousandth_are_counted_and_named_in_the_log_once():
    said: list[str] = []
    goodput = Goodput(60.0, say=said.append)
    assert unaccounted(goodput) == []
    look(goodput, 1000, 1000.0)
    assert (unaccounted(goodput), said) == ([0], [])
    for number in range(3):
        look(goodput, 1002, 1030.0 + number)
        assert unaccounted(goodput) == [2]
    (sentence,) = said
    assert sentence.startswith("GPU time of 2 jobs is not counted, as 1000 others have accounts")
    look(goodput, 1000, 1060.0)
    assert unaccounted(goodput) == [0]
    assert said[1:] == ["GPU time of all jobs is counted again"]


def test_a_watch_that_stands_by_counts_no_jobs():
    goodput = Goodput(60.0)
    look(goodput, 1001, 1000.0)
    goodput.stand_by()
    assert unaccounted(goodput) == []
