"""What alerts say: of the right cluster, of nobody if nobody is named, and safe to paste."""

import json
from dataclasses import replace

import pytest

from alert_cases import CASES
from alert_texts import TEXTS, texts_of
from alert_timelines import Case, Series, counter, gauge, steady
from promtool_tests import run
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

BY_NAME = {alert.name: alert for alert in ALERTS}


def in_cluster(series: Series, name: str) -> Series:
    return replace(series, selector=series.selector.replace("{", f'{{cluster="{name}",', 1))


def test_numbers_in_texts_are_those_of_the_alerts_own_cluster(tmp_path):
    """Two clusters may have jobs of one name, and share a server."""
    name = "RankscopeGpuHardwareFault"
    case = CASES[name]
    other = (
        counter(
            'rankscope_job_lost_gpu_seconds_total{job_id="team/llm",cause="gpu_hardware"}', 1e6
        ),
    )
    series = (
        *(in_cluster(one, "a") for one in case.series),
        *(in_cluster(one, "b") for one in other),
    )
    (known,) = json.loads(TEXTS.read_text())[name]
    texts = dict(known["annotations"])
    texts["dashboard_url"] = texts["dashboard_url"].replace("&var-job", "&var-cluster=a&var-job")
    expected = [{"labels": known["labels"] | {"cluster": "a"}, "annotations": texts}]
    done = run(
        tmp_path, require_server("promtool"), BY_NAME[name], replace(case, series=series), expected
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("job_id", "shell", "url"),
    [
        ("team/llm", "team/llm", "team%2Fllm"),
        ("exp 1; reboot&x=#", "'exp 1; reboot&x=#'", "exp+1%3B+reboot%26x%3D%23"),
        ("it's $(id)", "'it'\\''s $(id)'", "it%27s+%24%28id%29"),
        ("größe/日本", "'größe/日本'", "gr%C3%B6%C3%9Fe%2F%E6%97%A5%E6%9C%AC"),
    ],
)
def test_odd_names_of_jobs_can_be_put_into_a_shell_and_a_link(job_id, shell, url, tmp_path):
    name = "RankscopeJobStalled"
    case = CASES[name]
    series = tuple(
        replace(one, selector=one.selector.replace("team/llm", job_id)) for one in case.series
    )
    (known,) = json.loads(TEXTS.read_text())[name]
    texts = {
        key: text.replace("--job team/llm", f"--job {shell}")
        .replace("team%2Fllm", url)
        .replace("job team/llm", f"job {job_id}")
        .replace("Job team/llm", f"Job {job_id}")
        for key, text in known["annotations"].items()
    }
    severity = "page" if job_id.startswith("team/") else "ticket"
    labels = known["labels"] | {"job_id": job_id, "severity": severity}
    expected = [{"labels": labels, "annotations": texts}]
    done = run(
        tmp_path, require_server("promtool"), BY_NAME[name], replace(case, series=series), expected
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("labels", "who", "what"),
    [
        ('rank="13",node="gpu-07"', "rank 13 on node gpu-07", "congestion"),
        (
            'rank="13",node="gpu-07",device="mlx5_3"',
            *("rank 13 on node gpu-07", "congestion of mlx5_3"),
        ),
        (
            'rank="",node="gpu-07",device="mlx5_3"',
            *("no rank in particular", "congestion of mlx5_3 on node gpu-07"),
        ),
        ('rank="",node=""', "no rank in particular", "congestion"),
    ],
)
def test_a_finding_says_whom_it_names_if_anybody(labels, who, what, tmp_path):
    name = "RankscopeSlowNetworkGroup"
    of_job = 'job_id="team/llm",kind="congestion"'
    runbook = 'runbook="docs/runbooks/RankscopeLinkCongestion.md"'
    info = f'rankscope_finding_culprit_info{{{of_job},symptom="network_link",{labels},{runbook}}}'
    lost = gauge(f"rankscope_finding_lost_fraction{{{of_job}}}", 0.1, None, 0.04)
    case = Case((steady(info), lost))
    done = run(tmp_path, require_server("promtool"), BY_NAME[name], case, [])
    (told,) = texts_of(done.stdout + done.stderr)
    assert told["annotations"]["description"].startswith(
        f"Step times show network_link: {who}. It costs 10% of every step. Cause: {what}, see"
    )
