"""Queries of panels, and what they give for series of a test, compared by promtool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboard_lint import panels_of
from dashboard_models import dashboard_models
from promtool_tests import tried
from scraped_stack import filled
from servers import require_server

MODELS = {model["uid"].removeprefix("rankscope-"): model for model in dashboard_models()}
ANY = dict.fromkeys(("cluster", "job_id", "node", "rank"), ".*")
ANY |= {"__rate_interval": "4m", "__interval": "1m"}

Series = Mapping[str, str]
"""Values each minute by name and labels, in promtool's notation."""


def panel(view: str, title: str) -> Any:
    (found,) = [one for one in panels_of(MODELS[view]) if one["title"] == title]
    return found


def expression(view: str, title: str, query: int = 0) -> str:
    return panel(view, title)["targets"][query]["expr"]


@pytest.fixture
def gives(tmp_path: Path):
    """Return a function that lets promtool compare what a query gives after some minutes."""
    promtool = require_server("promtool")

    def compare(
        query: str, series: Series, expected: Mapping[str, float], at: str = "20m", **chosen: str
    ) -> None:
        expected_samples = [{"labels": key, "value": value} for key, value in expected.items()]
        asked = {
            "expr": filled(query, {**ANY, **chosen}, "10m"),
            "eval_time": at,
            "exp_samples": expected_samples,
        }
        block = {
            "interval": "1m",
            "input_series": [{"series": one, "values": text} for one, text in series.items()],
            "promql_expr_test": [asked],
        }
        (tmp_path / "test.yaml").write_text(json.dumps({"rule_files": [], "tests": [block]}))
        done = tried(tmp_path, promtool)
        assert done.returncode == 0, done.stdout + done.stderr

    return compare


def gpu(number: int) -> str:
    return f'gpu="{number}",uuid="GPU-{number}",node="a"'


def of_rank(rank: int, node: str = "a") -> str:
    return f'job_id="t/j",rank="{rank}",node="{node}"'


def ranks(seconds: Mapping[int, float]) -> dict[str, str]:
    """Return series of ranks that make a step a minute and need that long themselves."""
    series: dict[str, str] = {}
    for rank, own in seconds.items():
        labels = of_rank(rank)
        series |= {
            f"rankscope_steps_total{{{labels}}}": "0+1x20",
            f"rankscope_data_seconds_total{{{labels}}}": "0+1x20",
            f"rankscope_compute_seconds_total{{{labels}}}": f"0+{own - 1}x20",
            f'rankscope_rank_info{{{labels},pp_stage="0",uuid="GPU-{rank}"}}': "1x20",
            f"rankscope_rank_alive{{{labels}}}": "1x20",
        }
    return series
