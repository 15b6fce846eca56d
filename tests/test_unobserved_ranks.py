"""A rank that nobody sees is never convicted, and named where its peers wait."""

import pytest

from rankscope_analyzers.steps import frames
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose
from rankscope_analyzers.stragglers.unobserved_ranks import fallen_silent, unseen_during
from simulated_jobs import Fault, Job, records
from suite_jobs import fault, made


def verdict_of(simulated):
    job = JobRecords("job-a", simulated.records, 32, (), live=False, meta=simulated.meta)
    (said,) = diagnose([job])
    return said


def waited_for(said):
    return [sentence for sentence in said.unobserved if "peers wait for" in sentence]


@pytest.mark.parametrize("layout", [{"tensor": 1, "pipeline": 1}, {"tensor": 2, "pipeline": 2}])
def test_a_dark_rank_that_becomes_slow_is_named_but_not_convicted(layout):
    slow = fault("gpu_compute", "gpu", 1.6, first=100, last=220)
    said = verdict_of(made(slow, dark=13, checkpoint_period=0, **layout))
    (sentence,) = waited_for(said)
    assert sentence.startswith("rank 13 is unobserved, peers wait for it")
    assert said.cause is None or 13 not in said.cause.where.ranks


def test_a_dark_rank_of_a_healthy_job_is_not_named():
    said = verdict_of(made(dark=13))
    assert not waited_for(said)
    assert "no records of 1 of 32 ranks: 13" in said.unobserved


def test_a_dark_rank_is_not_named_where_an_observed_one_is_slow():
    said = verdict_of(made(fault("gpu_compute", "gpu", 1.6, slot=20, last=220), dark=13))
    assert 20 in said.cause.where.ranks
    assert not waited_for(said)


def test_running_jobs_name_theirs_too():
    rows = records(Job(ranks=8, steps=200, faults=(Fault("compute", (3,), 0.5, first_step=100),)))
    job = JobRecords("job", rows[rows["rank"] != 3], 8, (), live=True)
    (said,) = diagnose([job])
    assert waited_for(said)[0].startswith("rank 3 is unobserved, peers wait for it")
    assert said.cause is None or not said.cause.where.ranks


def dark(ranks, job, live=True):
    """Return the verdict on a job of which some ranks never report."""
    rows = records(job)
    left = rows[~rows["rank"].isin(ranks)]
    return diagnose([JobRecords("job", left, job.ranks, (), live=live)])[0]


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    ("ranks", "size", "named"),
    [
        ((3,), 8, "rank 3, which has no records,"),
        ((8, 9, 10, 11, 12, 13, 14, 15), 32, "one of ranks 8-15, which have no records,"),
    ],
)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_all_observed_ranks_wait_for_may_be_one_that_never_reports(
    ranks, size, named, live, share
):
    slow = Fault("compute", ranks[:1], 0.5, first_step=100, share=share)
    cause = dark(ranks, Job(ranks=size, faults=(slow,)), live).cause
    assert (cause.kind, cause.where.ranks) == ("global_slowdown", ())
    assert cause.summary.startswith("all observed ranks wait")
    assert cause.summary.endswith(f"for {named} or for a slower exchange")
    assert "`rankscope doctor`" in cause.action


def test_an_exchange_that_is_slower_for_all_while_all_report_is_that_alone():
    slow = Fault("transfer", (0,), 0.5, first_step=100)
    cause = dark((), Job(faults=(slow,))).cause
    assert cause.summary.startswith("all ranks spend")


@pytest.mark.parametrize(
    ("ended", "seen_from", "named"),
    [(None, 0, True), (100, 0, True), (100, 150, False)],
)
def test_a_rank_is_named_beside_a_past_incident_only_if_the_steps_of_that_time_are_known(
    ended, seen_from, named
):
    slow = Fault("compute", (3,), 0.5, first_step=50, last_step=ended or 200)
    rows = records(Job(faults=(slow,)))
    rows = rows[rows["rank"] != 3]
    frame = frames.build("job", rows[rows["step"] >= seen_from], 8)
    times = [float(rows[rows["step"] == step]["t_start_unix_seconds"].min()) for step in (50, 100)]
    until = times[1] if ended else None
    assert unseen_during(frame, {}, times[0], until) == ((3,) if named else ())


@pytest.mark.parametrize(("fell", "named"), [(60, (3,)), (120, ())])
def test_a_silent_rank_is_named_beside_what_began_after_it_fell_silent(fell, named):
    rows = records(Job())
    frame = frames.build("job", rows[(rows["rank"] != 3) | (rows["step"] < fell)], 8)
    since = float(rows[rows["step"] == 100]["t_start_unix_seconds"].min())
    silent = fallen_silent(frame)
    assert set(silent) == ({3} if fell == 60 else set(silent))
    assert unseen_during(frame, silent, since, None) == named


@pytest.mark.parametrize(("seconds", "said"), [(0.5, True), (0.0, False)])
def test_of_a_rank_that_never_reports_nothing_is_certain_where_all_others_always_wait(
    seconds, said
):
    slow = Fault("compute", (3,), seconds)
    verdict = dark((3,), Job(faults=(slow,)))
    assert verdict.cause is None
    doubts = [one for one in verdict.unobserved if "rank 3 may be slow" in one]
    assert len(doubts) == said
    assert (verdict.confidence < 0.6) == said


def test_where_all_ranks_are_seen_long_exchanges_leave_no_doubt():
    verdict = dark((), Job(transfer=0.6))
    assert not any("may be slow" in one for one in verdict.unobserved)
    assert verdict.confidence > 0.9


def silent_from(step, slow=0.5, steps=200):
    """Return a job of whose ranks number 3 becomes slow and then no longer reports."""
    rows = records(
        Job(ranks=8, steps=steps, faults=(Fault("compute", (3,), slow, first_step=100),))
    )
    left = rows[(rows["rank"] != 3) | (rows["step"] < step)]
    return diagnose([JobRecords("job", left, 8, (), live=True)])[0]


@pytest.mark.parametrize(("step", "named"), [(104, ()), (112, (3,)), (125, (3,))])
def test_that_a_slow_rank_falls_silent_does_not_blame_the_exchange(step, named):
    """Its peers go on waiting for it; what they wait for is no longer seen."""
    said = silent_from(step)
    kinds = {one.kind for one in (said.cause, *said.others) if one}
    assert kinds == ({"gpu_compute"} if named else set())
    assert (said.cause.where.ranks if said.cause else ()) == named
    assert waited_for(said)[0].startswith("rank 3 is unobserved, peers wait for it")
    assert any(one.startswith("rank 3 has had no records for") for one in said.unobserved)


@pytest.mark.parametrize(("silent", "slow"), [((60, 200), 100), ((120, 200), 100)])
def test_a_slower_exchange_is_found_though_a_rank_fell_silent_before_or_after(silent, slow):
    simulated = made(
        fault("global_slowdown", "fabric", 3.0, first=slow, last=220),
        tensor=1,
        pipeline=1,
        checkpoint_period=0,
    )
    rows = simulated.records
    left = rows[(rows["rank"] != 3) | ~rows["step"].between(*silent)]
    job = JobRecords("job-a", left, 32, (), live=False, meta=simulated.meta)
    (said,) = diagnose([job])
    assert (said.cause.kind, said.cause.until_unix_seconds) == ("global_slowdown", None)


def test_a_slow_rank_that_is_silent_for_a_while_is_slow_again_afterwards():
    rows = records(Job(ranks=8, steps=260, faults=(Fault("compute", (3,), 0.5, first_step=100),)))
    left = rows[(rows["rank"] != 3) | ~rows["step"].between(130, 200)]
    (said,) = diagnose([JobRecords("job", left, 8, (), live=True)])
    assert (said.cause.kind, said.cause.where.ranks) == ("gpu_compute", (3,))
    assert {one.kind for one in said.others} <= {"gpu_compute"}
    assert not waited_for(said)


def test_a_rank_that_falls_silent_in_a_healthy_job_is_waited_for_by_nobody():
    said = silent_from(60, slow=0.0)
    assert not waited_for(said)
    assert any(one.startswith("rank 3 has had no records for") for one in said.unobserved)


def test_records_that_arrive_later_than_others_are_no_silence():
    said = silent_from(199, slow=0.0)
    assert not any("had no records" in one for one in said.unobserved)
