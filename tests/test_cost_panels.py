"""What panels show of how many jobs succeed, how long they take and what they cost."""

from __future__ import annotations

import pytest

from panel_queries import expression, gives
from rankscope_dashboards.rules import recording_rules

__all__ = ["gives"]

ENDS = "rankscope_job_completions_total"


def ends(outcome, values, cause="", namespace="team", more=""):
    labels = f'cluster="c",job_namespace="{namespace}",job_class="prod",outcome="{outcome}"'
    return {f'{ENDS}{{{labels},cause="{cause}"{more}}}': values}


def success_7d():
    """Return the rule with a window that a test can wait for."""
    groups = {group.name: group for group in recording_rules.GROUPS}
    record = groups["rankscope-job-ends"].records[0]
    assert record.name == recording_rules.success("7d")
    return record.expression.replace("7d", "2h")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        # What had ended before the window does not count.
        (ends("succeeded", "10x60 11x60 13x60") | ends("failed", "7x60 7x60 8x60"), 0.75),
        # A first end that is born as 1 counts, and each cause by itself.
        (ends("succeeded", "0x60 0x60 3x60") | ends("failed", "_x120 1x60", "oom"), 0.75),
        # Cancelled jobs and those that nobody observed are neither good nor bad.
        (ends("succeeded", "0x60 1x120") | ends("cancelled", "0x60 9x120"), 1.0),
        # Two watches that tell the same count once.
        (
            ends("succeeded", "0x60 1x120", more=',instance="a"')
            | ends("succeeded", "0x60 1x120", more=',instance="b"')
            | ends("failed", "0x60 1x120"),
            0.5,
        ),
        # The watch was away at the moment with which it is compared.
        (ends("succeeded", "10x55 _x20 11x105") | ends("failed", "0x60 1x120"), 0.5),
    ],
)
def test_the_share_of_jobs_that_succeed_is_that_of_the_window(gives, series, expected):
    gives(success_7d(), series, {'{cluster="c", job_class="prod"}': expected}, at="179m")


def test_the_time_to_complete_is_that_of_the_time_range(gives):
    def buckets(*values):
        keys = 'cluster="c",job_class="prod",le='
        bounds = ("60.0", "600.0", "+Inf")
        name = "rankscope_job_duration_seconds_bucket"
        return {f'{name}{{{keys}"{b}"}}': v for b, v in zip(bounds, values, strict=True)}

    before_and_after = buckets("100x100", "100x60 101x40", "100x60 101x40")
    query = expression("executive", "Time to complete")
    gives(query, before_and_after, {'{job_class="prod"}': 330.0}, at="65m")


def test_the_share_of_jobs_in_time_is_that_which_the_alert_judges(gives):
    series = {f'{recording_rules.CLASS_LATE}{{cluster="c",job_class="prod"}}': "0.25x20"}
    gives(expression("executive", "Jobs in time"), series, {'{job_class="prod"}': 0.75})


def test_mfu_is_of_the_jobs_whose_gpus_are_known_and_long_ones_count_more(gives):
    def job(name, flops, peak):
        labels = f'cluster="c",job_id="{name}"'
        found = {f'rankscope_job_model_flops_per_second{{{labels},flops_by="program"}}': flops}
        if peak:
            found[f'rankscope_job_peak_flops_per_second{{{labels},dtype="bf16"}}'] = peak
        return found

    series = job("a", "40x20", "100x20") | job("b", "_x18 100x2", "_x18 200x2")
    series |= job("unknown", "1000x20", "")
    query = expression("executive", "MFU")
    gives(query, series, {"{}": (40 * 10 + 100 * 2) / (100 * 10 + 200 * 2)}, at="19m30s")
    gives(expression("executive", "MFU of all jobs"), series, {"{}": 140 / 300}, at="19m30s")


def test_a_million_tokens_cost_what_a_project_spent_while_they_were_made(gives):
    def counters(name, step, **labels):
        keys = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return {f'rankscope_project_{name}_total{{cluster="c",job_class="x",{keys}}}': step}

    series = counters("cost", "0+2x20", project="llm", part="productive", currency="EUR")
    series |= counters("cost", "0+1x20", project="llm", part="hang", currency="EUR")
    series |= counters("cost", "0+1x20", project="other", part="hang", currency="EUR")
    series |= counters("tokens", "0+600000x20", project="llm")
    series |= counters("tokens", "5x20", project="other")
    query = expression("executive", "Cost of a million tokens")
    gives(query, series, {'{project="llm", currency="EUR"}': 5.0})


def test_a_day_of_spending_is_compared_with_days_of_the_week_before(gives):
    def cost(project, part, values):
        labels = f'cluster="c",job_class="x",project="{project}",part="{part}",currency="EUR"'
        return {f"rankscope_project_cost_total{{{labels}}}": values}

    # 8 minutes stand for 8 days.
    query = expression("executive", "Spent in 24 hours, against the week before")
    query = query.replace("[1d]", "[2m]").replace("[7d] offset 1d", "[14m] offset 2m")
    series = cost("a", "productive", "0+10x14 170 200x6") | cost("b", "hang", "0+10x20")
    series |= cost("new", "hang", "_x15 0+10x5")
    gives(query, series, {'{project="a"}': 3.0, '{project="b"}': 1.0}, at="16m")


def test_the_trend_of_success_is_of_the_week_before_each_point(gives):
    query = expression("executive", "Jobs that succeed, week by week").replace("7d", "2h")
    series = ends("succeeded", "10x60 11x60 13x60") | ends("failed", "7x60 7x60 8x60")
    gives(query, series, {"{}": 0.75}, at="179m")
