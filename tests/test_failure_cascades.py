"""Jobs that fail together, and jobs that fail again and again, each for itself."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from alert_timelines import Series, steady
from named_alerts import BY_NAME
from promtool_tests import LINKS, tried
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.rule_files import rule
from servers import require_server


def _failure(node: str, job: str) -> str:
    name = "rankscope_job_last_failure_timestamp_seconds"
    return f'{name}{{node="{node}",job_id="{job}",reason="Error",detail="application"}}'


def _repeatedly(job: str, node: str, first: int, count: int = 1000) -> tuple[Series, ...]:
    """Return a job that fails in a minute, and then every five minutes in a crash loop."""

    def failed(states: Sequence[str], step: int) -> list[str]:
        minutes = range(0, len(states) * step, step)
        times = [first + 5 * min(max(0, one - first) // 5, count - 1) for one in minutes]
        return [
            "_" if one < first else f"{60 * at}" for one, at in zip(minutes, times, strict=True)
        ]

    return (
        Series(_failure(node, job), failed),
        steady(f'rankscope_job_pods{{node="{node}",job_id="{job}",phase="Pending"}}', 1),
    )


OTHERS_RUN = tuple(
    steady(f'rankscope_job_pods{{node="m{i}",job_id="c/j{i}",phase="Running"}}', 8)
    for i in range(20)
)


def _cascading(
    folder: Path, series: Sequence[Series], length: int, checks: Sequence[tuple[str, int, int]]
) -> subprocess.CompletedProcess[str]:
    """Let promtool follow both alerts of a cascade, of which each reads the other's."""
    alerts = [BY_NAME["RankscopeJobFailureCascade"], BY_NAME["RankscopeJobInCascade"]]
    own = {"name": "alerts", "rules": [rule(one, LINKS) for one in alerts]}
    records = [
        {"name": group.name, "rules": [{"record": r.name, "expr": r.expression}]}
        for group in recording_rules.GROUPS
        for r in group.records
        if r.name == recording_rules.JOB_PODS
    ]
    (folder / "rules.yaml").write_text(json.dumps({"groups": [*records, own]}))
    block = {
        "interval": "1m",
        "input_series": [
            {"series": one.selector, "values": " ".join(one.values(["bad"] * length, 1))}
            for one in series
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            for name, minute, count in checks
        ],
    }
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": [one["name"] for one in (*records, own)],
        "tests": [block],
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    return tried(folder, require_server("promtool"))


WHOLE, ONE = "RankscopeJobFailureCascade", "RankscopeJobInCascade"


def test_jobs_that_fail_again_and_again_since_different_times_are_no_cascade(tmp_path):
    """Three broken jobs of two users, started an hour apart."""
    started = (("a/x", 60), ("a/y", 120), ("b/z", 180))
    loops = [_repeatedly(job, f"n{i}", first) for i, (job, first) in enumerate(started)]
    series = [*OTHERS_RUN, *(one for loop in loops for one in loop)]
    checks = [(name, minute, 0) for name in (WHOLE, ONE) for minute in (70, 130, 182, 190, 300)]
    done = _cascading(tmp_path, series, 310, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_cascade_goes_on_while_its_jobs_fail_again_and_again_and_mutes_no_other(tmp_path):
    """What they share is broken from minute 100 to 200; another job failed long before."""
    started = (("a/x", 100), ("a/y", 103), ("b/z", 106))
    loops = [_repeatedly(job, f"n{i}", first, 20) for i, (job, first) in enumerate(started)]
    loops.append(_repeatedly("d/own", "n9", 30))
    series = [*OTHERS_RUN, *(one for loop in loops for one in loop)]
    checks = [(WHOLE, 95, 0), (WHOLE, 109, 1), (ONE, 109, 3)]
    checks += [
        (name, minute, n) for minute in (130, 160, 200) for name, n in ((WHOLE, 1), (ONE, 3))
    ]
    checks += [(WHOLE, 245, 0), (ONE, 245, 0)]
    done = _cascading(tmp_path, series, 250, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_second_cascade_is_one_too(tmp_path):
    """The network fails twice; each time all jobs of it are started again and train."""
    jobs = ("a/x", "a/y", "b/z")
    failed = tuple(
        Series(
            _failure(f"n{i}", job),
            lambda states, step: [
                "_" if i * step < 100 else f"{60 * (100 if i * step < 145 else 145)}"
                for i in range(len(states))
            ],
        )
        for i, job in enumerate(jobs)
    )
    checks = [(WHOLE, 102, 1), (WHOLE, 140, 0), (WHOLE, 147, 1), (ONE, 147, 3)]
    done = _cascading(tmp_path, [*OTHERS_RUN, *failed], 160, checks)
    assert done.returncode == 0, done.stdout + done.stderr
