from dataclasses import replace

import numpy as np
import pytest

from job_reports import frame
from rankscope_analyzers.reports import heat_map
from simulated_jobs import Fault, Job

LEVELS = 254


def decoded(drawn):
    share = (drawn.cells.astype(float) - 1) / LEVELS
    values = (
        drawn.low * (drawn.high / drawn.low) ** share
        if drawn.scale == "ratio"
        else drawn.low + (drawn.high - drawn.low) * share
    )
    return np.where(drawn.cells == 0, np.nan, values)


def named(maps, name):
    return next(one for one in maps if one.name == name)


def test_every_step_has_a_bin_while_they_are_few():
    assert heat_map.bin_edges(5).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("steps", [240, 241, 1000, 99_999])
def test_more_steps_share_bins_that_are_equal_but_for_one_step(steps):
    edges = heat_map.bin_edges(steps)
    widths = np.diff(edges)
    assert (len(widths), edges[0], edges[-1]) == (240, 0, steps)
    assert widths.min() > 0
    assert np.ptp(widths) <= 1


def test_cells_are_the_ratio_to_the_peers_and_the_share_of_the_step():
    of = frame(Job(ranks=6, steps=90, faults=(Fault("compute", (4,), 0.8, first_step=40),)))
    maps = heat_map.maps(of, heat_map.bin_edges(len(of.steps)))
    for rank in range(6):
        others = np.delete(of.compute, rank, axis=1)
        ratio = of.compute[:, rank] / np.median(others, axis=1)
        assert decoded(named(maps, "compute"))[rank] == pytest.approx(ratio, rel=0.008)
        share = of.sync[:, rank] / of.step[:, rank]
        assert decoded(named(maps, "sync"))[rank] == pytest.approx(share, abs=0.0025)


def test_a_bin_holds_the_mean_of_its_steps():
    of = frame(Job(ranks=4, steps=1200, noise=0.2))
    edges = heat_map.bin_edges(1200)
    share = heat_map.share_of_step(of, of.sync, edges)
    wanted = (of.sync / of.step).reshape(240, 5, 4).mean(axis=1)
    assert share == pytest.approx(wanted)


def test_what_was_not_measured_is_code_zero_and_nothing_else_is():
    of = frame(Job(ranks=4, steps=60))
    of.compute[10:20, 2] = np.nan
    of.sync[:, 1] = np.nan
    maps = heat_map.maps(of, heat_map.bin_edges(60))
    compute = named(maps, "compute").cells
    assert np.array_equal(np.argwhere(compute == 0)[:, 0], np.full(10, 2))
    assert (named(maps, "sync").cells[1] == 0).all()
    assert (named(maps, "sync").cells[0] > 0).all()


def test_stages_are_compared_with_themselves():
    of = frame(Job(ranks=8, steps=60))
    of = replace(of, stages=np.repeat([0, 1], 4))
    of.compute[:, 4:] *= 3
    ratio = heat_map.compute_ratio(of, heat_map.bin_edges(60))
    assert np.nanmedian(ratio, axis=0) == pytest.approx(np.ones(8), abs=0.03)


def test_the_only_rank_of_a_stage_is_compared_with_its_own_past():
    of = frame(Job(ranks=2, steps=60, warm_up=0, faults=(Fault("compute", (1,), 1.0, 50),)))
    of = replace(of, stages=np.array([0, 1]))
    ratio = heat_map.compute_ratio(of, heat_map.bin_edges(60))
    assert ratio[:50, 1] == pytest.approx(np.ones(50), abs=0.05)
    assert ratio[50:, 1] == pytest.approx(np.full(10, 2.0), abs=0.1)


def test_input_has_a_map_only_where_somebody_waits_for_it():
    def names(job):
        of = frame(job)
        return [one.name for one in heat_map.maps(of, heat_map.bin_edges(len(of.steps)))]

    assert names(Job(steps=60)) == ["compute", "sync"]
    slow = Job(steps=60, faults=(Fault("data", (3,), 0.5),))
    assert names(slow) == ["compute", "sync", "data"]


def test_one_hiccup_does_not_set_the_scale_of_colours_but_a_slow_rank_does():
    once = frame(Job(steps=100, faults=(Fault("compute", (1,), 9.0, 50, 51),)))
    slow = frame(Job(steps=100, faults=(Fault("compute", (1,), 1.0, 50),)))
    tops = [named(heat_map.maps(of, heat_map.bin_edges(100)), "compute").top for of in (once, slow)]
    assert tops == pytest.approx([1.25, 2.0], abs=0.05)


def test_values_beyond_the_scale_take_its_ends():
    values = np.array([0.0, 0.5, 1.0, 16.0, 1e9, np.nan, np.inf])
    codes = heat_map.encode(values, 0.5, 16.0, True)
    assert codes.tolist() == [1, 1, 52, 255, 255, 0, 0]


def test_a_job_in_which_nothing_was_measured_has_empty_maps():
    of = frame(Job(ranks=3, steps=30))
    for values in (of.compute, of.sync, of.data):
        values[:] = np.nan
    maps = heat_map.maps(of, heat_map.bin_edges(30))
    assert [one.cells.any() for one in maps] == [False, False]


@pytest.mark.parametrize(
    ("name", "value", "top"),
    [
        *(("compute", 1.0, 1.25), ("compute", 2.0, 2.0), ("compute", 9.0, 4.0)),
        *(("sync", 0.05, 0.1), ("sync", 0.5, 0.5), ("data", 3.0, 1.0)),
    ],
)
def test_the_darkest_colour_is_a_ratio_of_5_quarters_to_4_or_a_share_from_a_tenth_on(
    name, value, top
):
    assert heat_map._map(name, np.full((10, 2), value)).top == top


@pytest.mark.parametrize(("part", "drawn"), [(0.051, True), (0.049, False)])
def test_input_has_a_map_if_a_rank_waits_for_it_for_a_twentieth_of_the_step(part, drawn):
    of = frame(Job(ranks=4, steps=60))
    waited = replace(of, data=part * of.step)
    names = [one.name for one in heat_map.maps(waited, heat_map.bin_edges(60))]
    assert ("data" in names) is drawn
