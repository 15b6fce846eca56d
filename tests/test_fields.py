"""Settings of single fields: which line gets which colour."""

from __future__ import annotations

import re

import pytest

from rankscope_dashboards.parts.fields import PALETTE, line_style, numbered


def look(name: str, before: str = "rank ", after: str = "") -> str:
    """Return the settings of a line, of which there must be those of one override alone."""
    found = [
        str(one["properties"])
        for one in numbered(before, after)
        if re.search(one["matcher"]["options"].strip("/"), name)
    ]
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


@pytest.mark.parametrize("first", [0, 10, 95, 16_370])
def test_ten_ranks_in_a_row_look_different(first):
    looks = {look(f"rank {first + index} gpu-07 GPU {index % 8}") for index in range(10)}
    assert len(looks) == 10


def test_a_rank_looks_the_same_in_every_panel():
    assert look("rank 13") == look("rank 13 hw_thermal_slowdown") == look("rank 13 n8 GPU 5")


def test_a_port_is_told_by_its_adapter_and_not_by_its_node():
    assert look("gpu_07 mlx5_3:1", "_", ":") == look("node-2 mlx5_3:1", "_", ":")


def test_a_colour_comes_again_only_dashed():
    plain = [one for one in numbered("rank ") if len(one["properties"]) == 1]
    assert len(plain) == len(PALETTE)


def test_dashed_lines_have_long_and_short_dashes_and_dotted_ones_dots_alone():
    dash, dot = (line_style(fill)["custom.lineStyle"]["dash"] for fill in ("dash", "dot"))
    long, gap, short, following = dash
    assert long >= 4 * short > 0
    assert gap == following > short
    point, between = dot
    assert point == 0
    assert 2 * gap <= between < long
