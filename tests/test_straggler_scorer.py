"""The scorer follows the rules of the trace contract."""

import pytest
from benchmarks.straggler_suite import scorer

ENDS = [float(end) for end in range(101, 301)]


def fault(**changes):
    known = {"fault_id": "a", "class": "gpu_compute", "subtype": "gpu", "start_unix": 150.0}
    known |= {"end_unix": 200.0, "start_exec": 50, "end_exec": 100, "culprit_ranks": [3]}
    known |= {"accept_ranks": [3, 4], "culprit_nodes": [0], "culprit_stage": -1}
    return known | {"lost_fraction": 0.2, "gpu_hours_lost": 1.0, "detectable": True} | changes


def said(at, kind="gpu_compute", ranks=(3,), **more):
    return {"class": kind, "detected_at_unix": at, "ranks": list(ranks), **more}


def tally(faults, verdicts):
    label = {"world_size": 8, "timing": "kernel", "job_start_unix": 100.0, "wall_seconds": 200.0}
    label |= {"median_step_seconds": 1.0, "exec_end_unix": ENDS, "faults": faults}
    return scorer.tally({"jobs": {"j": label}}, {"jobs": {"j": {"verdicts": verdicts}}})


@pytest.mark.parametrize(("at", "matches"), [(147.8, 0), (147.9, 1), (220.0, 1), (220.1, 0)])
def test_a_verdict_matches_from_two_steps_before_to_twenty_after(at, matches):
    counted = tally([fault()], [said(at)])
    assert len(counted.matched) == matches
    assert len(counted.missed) == len(counted.wrong) == 1 - matches


def test_the_earliest_verdict_of_the_right_class_wins():
    counted = tally([fault()], [said(160.0, "data_loader"), said(170.0), said(180.0, ranks=(9,))])
    ((_, _, verdict),) = counted.matched
    assert verdict["detected_at_unix"] == 170.0
    assert [wrong["class"] for _, wrong in counted.wrong] == ["data_loader"]


def test_an_undetectable_fault_is_neither_missed_nor_a_false_alarm():
    assert not tally([fault(detectable=False)], []).missed
    counted = tally([fault(detectable=False)], [said(160.0)])
    assert not (counted.matched)
    assert not (counted.wrong)


def test_a_verdict_on_a_healthy_job_is_an_alarm_per_day():
    counted = tally([], [said(160.0)])
    assert scorer.scores(counted)["alarms per healthy day"] == pytest.approx(86400 / 200)


def test_the_scores_of_one_right_verdict():
    scores = scorer.scores(tally([fault()], [said(160.0, ranks=(4, 9), lost_fraction=0.25)]))
    assert scores["detection F1"] == scores["macro class F1"] == scores["top-1 detected"] == 1.0
    assert scores["median delay"] == 10
    assert scores["median cost error"] == pytest.approx(0.05)


def test_a_miss_counts_against_the_culprit_end_to_end():
    scores = scorer.scores(tally([fault()], []))
    assert scores["top-1 end to end"] == 0.0
    assert scores["recall"] == 0.0


def test_naming_ranks_where_nobody_is_to_blame_is_false_blame():
    nobody = fault(accept_ranks=[], culprit_ranks=[])
    assert scorer.scores(tally([nobody], [said(160.0)]))["false blame"] == 1.0


def test_a_heavy_stage_must_be_named():
    heavy = fault(accept_ranks=[], culprit_stage=2, **{"class": "partition_imbalance"})
    right = said(160.0, "partition_imbalance", (), pp_stage=2)
    assert scorer.scores(tally([heavy], [right]))["top-1 detected"] == 1.0
    assert scorer.scores(tally([heavy], [right | {"pp_stage": 1}]))["top-1 detected"] == 0.0


def test_each_of_two_faults_at_a_time_gets_the_verdict_of_its_class():
    faults = [fault(), fault(fault_id="b", **{"class": "data_loader"})]
    counted = tally(faults, [said(160.0, "data_loader"), said(165.0), said(170.0, "data_loader")])
    assert [(f["class"], v["class"]) for _, f, v in counted.matched] == [
        ("gpu_compute", "gpu_compute"),
        ("data_loader", "data_loader"),
    ]
    assert not counted.wrong


def test_one_verdict_does_not_answer_for_two_faults():
    counted = tally([fault(), fault(fault_id="b")], [said(160.0)])
    assert [f["fault_id"] for _, f, _ in counted.matched] == ["a"]
    assert [f["fault_id"] for f in counted.missed] == ["b"]


def test_an_undetectable_fault_does_not_take_the_verdict_of_a_detectable_one():
    faint = fault(fault_id="b", detectable=False, **{"class": "data_loader"})
    counted = tally([faint, fault()], [said(160.0)])
    assert [f["fault_id"] for _, f, _ in counted.matched] == ["a"]
