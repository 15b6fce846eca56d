"""A job whose GPU time a watch counts, at one look after the other."""

import pytest

from goodput_records import run, table
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.watch.goodput import KEPT_AS, Goodput
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore

RANKS = 4
STEPS = run(1000.0, range(1, 601), lambda s, r: {"own": 0.05} if s > 300 and r == 2 else {})
RECORDS = table(STEPS)


def job(name="job", records=RECORDS, live=True):
    return JobRecords(name, records, RANKS, (), live)


def report(now, name="job"):
    places = {rank: RankLocation(rank, "node") for rank in range(RANKS)}
    return JobReport(name, None, None, (), (), places, (), (), now)


def look(goodput, now, names=("job",), observed=None):
    shown = RECORDS[RECORDS.t_start_unix_seconds + RECORDS.step_seconds <= now]
    evidence = JobEvidence(observed or Observed({}))
    gathered = Gathered(tuple(job(name, shown) for name in names), evidence)
    for _ in range(2):  # the first one waits for the start of the processes
        assert not goodput.look(gathered, [report(now, name) for name in names], now)


def values(goodput):
    counters = [one for one in goodput.samples() if one.metric.kind == "counter"]
    return {(*one.labels,): one.value for one in counters if one.value > 1e-6}


def started(path):
    goodput = Goodput(60.0)
    return goodput, Memory(FileStore(path), pytest.fail, {KEPT_AS: goodput})
