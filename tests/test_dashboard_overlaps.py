"""Whether panels stay readable while two series tell of one thing, or more happens than fits."""

from __future__ import annotations

import pytest

from panel_queries import expression, gives, panel, ranks
from rankscope_dashboards.expressions.queries import UNMEASURED

__all__ = ["gives"]


def test_watches_that_name_two_culprits_leave_the_table_of_incidents_readable(gives):
    """For a while after one took over from another; an alert names one of them, too."""
    of_kind = 'job_id="t/j",kind="gpu_compute"'
    culprit = f'{of_kind},symptom="gpu_compute",node="a",runbook="docs/runbooks/RankscopeX.md"'
    series = {
        f'rankscope_finding_lost_fraction{{{of_kind},instance="new"}}': "0.4x20",
        f'rankscope_finding_lost_fraction{{{of_kind},instance="old"}}': "0.3x20",
        f'rankscope_finding_culprit_info{{{culprit},rank="3",instance="new"}}': "1x20",
        f'rankscope_finding_culprit_info{{{culprit},rank="3",gpu="5",instance="old"}}': "1x20",
    }
    found = f"count({expression('debug', 'Incidents and culprits')}) + 0.4"
    gives(found, series, {"{}": 1.4})


def test_a_rank_that_two_agents_report_in_two_stages_is_still_compared(gives):
    """The first process ended before it knew its stage; its agent tells so for ten minutes."""
    over = expression("debug", "Time over the median of the stage")
    gone = 'job_id="t/j",rank="3",node="b",pp_stage=""'
    series = ranks({0: 4, 1: 4, 2: 4, 3: 6}) | {
        f"rankscope_rank_info{{{gone}}}": "1x20",
        'rankscope_rank_alive{job_id="t/j",rank="3",node="b"}': "0x20",
    }
    expected = {'{job_id="t/j",pp_stage="0",rank="3"}': 0.5}
    gives(over, series, expected, rank="3")


def test_an_adapter_whose_firmware_was_updated_has_the_new_one(gives):
    adapter = 'node="a",pci="0000:49:00.0"'
    series = ranks({0: 4}) | {
        f"rankscope_adapter_health_errors_total{{{adapter}}}": "0+1x20",
        f'rankscope_adapter_info{{{adapter},driver="mlx5_core",firmware="28.39"}}': "1x14 stale",
        f'rankscope_adapter_info{{{adapter},driver="mlx5_core",firmware="28.43"}}': "_x16 1x4",
    }
    row = f'{{driver="mlx5_core",firmware="28.43",{adapter}}}'
    gives(expression("debug", "Adapters by health and firmware"), series, {row: 10})


def test_gpus_that_were_numbered_anew_within_the_time_range_are_still_shown(gives):
    """As after a GPU was lost and the driver loaded again, where ranks know no uuid."""
    now = 'node="a",gpu="0",uuid="GPU-1"'
    series = {
        'rankscope_gpu_info{node="a",gpu="1",uuid="GPU-1"}': "1x14 stale",
        f"rankscope_gpu_info{{{now}}}": "_x16 1x4",
        f'rankscope_gpu_temperature_celsius{{{now},sensor="core"}}': "_x16 70x4",
    }
    for rank in ("0", "1"):
        labels = f'job_id="t/j",rank="{rank}",local_rank="{rank}",node="a",uuid=""'
        series |= {f"rankscope_rank_info{{{labels}}}": "1x20"}
    gives(expression("debug", "GPU temperature"), series, {f'{{{now},rank="0"}}': 70})


def test_nodes_in_maintenance_push_no_alert_out_of_the_table(gives):
    """They fire to mute other alerts, and are nothing to act on; pages come first."""

    def alert(name: str, severity: str, node: str) -> str:
        return f'alertname="{name}",severity="{severity}",node="{node}"'

    muting = [alert("RankscopeNodeMaintenance", "none", f"m{i}") for i in range(25)]
    tickets = [alert("RankscopeGpuLost", "ticket", f"t{i}") for i in range(25)]
    page = alert("RankscopeNodeResourceExhausted", "page", "a")
    series = {f'ALERTS{{{one},alertstate="firing"}}': "1x20" for one in (*muting, *tickets, page)}
    gives(expression("on-call", "Firing alerts"), series, {"{}": 26})
    shown = expression("on-call", "Alerts that fire")
    gives(f"count({shown})", series, {"{}": 20})
    gives(f'count(({shown}) and on (alertname) ALERTS{{severity="page"}})', series, {"{}": 1})


def test_no_alert_fires_only_where_rules_are_loaded(gives):
    agents = {'rankscope_build_info{cluster="a",node="n"}': "1x20"}
    watchdog = 'ALERTS{alertname="RankscopeWatchdog",severity="none",alertstate="firing"}'
    gives(expression("on-call", "Firing alerts"), agents, {})
    gives(expression("on-call", "Firing alerts"), {watchdog: "1x20"}, {})
    gives(expression("on-call", "Firing alerts"), agents | {watchdog: "1x20"}, {"{}": 0})


@pytest.mark.parametrize("view", ["on-call", "debug"])
def test_findings_whose_cost_is_unknown_follow_those_that_cost_something(gives, view):
    """NaN would do here, but VictoriaMetrics drops it, and with it the finding."""
    lost = 'rankscope_finding_lost_fraction{job_id="t/j",kind="slow"}'
    culprit = 'rankscope_finding_culprit_info{job_id="t/j",kind="%s",node="a"}'
    series = {lost: "0.2x20", culprit % "slow": "1x20", culprit % "lost": "1x20"}
    shown = expression(view, "Incidents and culprits")
    expected = {'{kind="slow"}': 0.2, '{kind="lost"}': UNMEASURED}
    gives(f"sum by (kind) ({shown})", series, expected)
    (values,) = [
        one["value"]
        for field in panel(view, "Incidents and culprits")["fieldConfig"]["overrides"]
        if field["matcher"]["options"] == "step time lost"
        for one in field["properties"]
        if one["id"] == "mappings"
    ]
    (words,) = [one["options"] for one in values]
    assert words[str(UNMEASURED)]["text"] == "not measured"
