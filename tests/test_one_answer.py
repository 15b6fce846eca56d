"""Class, culprits, summary, action and runbook of a verdict are those of its first incident."""

from __future__ import annotations

import pytest

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.reports import job_json
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from suite_jobs import fault, made, running

FLAT = {"world": 16, "tensor": 1, "pipeline": 1, "steps": 260}
GPU = fault("gpu_compute", "gpu", 1.5, first=60, last=260)
PAST_GPU = fault("gpu_compute", "gpu", 1.8, last=150)
LOADER = fault("data_loader", "rank", 0.9, first=120, last=260, slot=3)
PAST_LOADER = fault("data_loader", "rank", 2.5, first=60, last=150, slot=3)
ALL = fault("global_slowdown", "compute", 1.5, first=180, last=260)
PAIRS = {
    "two that go on": (GPU, LOADER),
    "one that is over and cost more": (GPU, PAST_LOADER),
    "one that is over and one of all": (PAST_GPU, ALL),
}


@pytest.mark.parametrize("name", PAIRS)
def test_all_parts_of_an_answer_are_about_one_fault(name):
    simulated = made(*PAIRS[name], **FLAT)
    job = JobRecords("job-a", running(simulated), 16, (), live=True)
    (report,) = job_reports.reports(
        diagnose_each([job]), JobEvidence(), simulated.labels["exec_end_unix"][-1] + 5.0
    )
    said, first = job_json.as_object(report), report.incidents[0]
    verdict = said["verdict"]
    assert len(report.incidents) >= 2
    assert first.timing is not None
    assert (verdict["class"], verdict["ranks"]) == (first.timing.kind, list(first.where.ranks))
    assert verdict["until_unix_seconds"] is None
    listed = said["incidents"][0]
    for part in ("summary", "ranks", "severity", "confidence"):
        assert verdict[part] == listed[part], part
    assert (verdict["action"], verdict["runbook"]) == (listed["action"], listed["runbook"])
