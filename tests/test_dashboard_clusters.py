"""Dashboards over several clusters: what is called alike in two of them stays apart."""

from __future__ import annotations

import pytest

from dashboard_lint import panels_of
from panel_queries import MODELS, expression, gives, of_rank

__all__ = ["gives"]


def test_alerts_of_two_clusters_are_two(gives):
    firing = 'alertname="RankscopeGpuLost",alertstate="firing",severity="ticket",node="a"'
    series = {f'ALERTS{{{firing},cluster="{cluster}"}}': "1x20" for cluster in ("east", "west")}
    row = 'alertname="RankscopeGpuLost",severity="ticket",node="a"'
    expected = {
        f'{{cluster="{cluster}",clusters="{cluster}",{row}}}': 1.0 for cluster in ("east", "west")
    }
    gives(expression("on-call", "Alerts that fire"), series, expected)


def test_numbers_of_jobs_of_one_name_are_those_of_each_cluster(gives):
    series = {
        f'rankscope_rank_alive{{{of_rank(rank)},cluster="{cluster}"}}': "1x20"
        for cluster, ranks in (("east", 4), ("west", 2))
        for rank in range(ranks)
    }
    expected = {'{cluster="east"}': 4.0, '{cluster="west"}': 2.0}
    gives(expression("debug", "Ranks alive"), series, expected)
    for one in panels_of(MODELS["debug"]):
        if one["type"] == "stat" and one["gridPos"]["y"] < 5:
            assert one["targets"][0]["legendFormat"] == "{{cluster}}", one["title"]


@pytest.mark.parametrize("view", MODELS)
def test_rows_of_several_clusters_can_be_told_apart(view):
    for one in panels_of(MODELS[view]):
        kept = [
            step["options"]["include"]["names"]
            for step in one["transformations"]
            if step["id"] == "filterFieldsByName"
        ]
        if any("node" in names or "job_id" in names for names in kept):
            assert "cluster" in kept[0], one["title"]
