"""The benchmark of real jobs: what it runs, and what it takes for a right answer."""

import signal
import sys
from pathlib import Path

import pytest
from benchmarks.processes import end_on_terminate
from benchmarks.running_jobs import __main__ as table
from benchmarks.running_jobs import drawn, run
from benchmarks.running_jobs.cases import ENDED, FAULTY, HEALTHY, NO_STEPS, NOBODY, Case
from benchmarks.running_jobs.launch import SCRIPTS, ForkServer

VERDICT = {"class": None, "ranks": [], "summary": "no straggler"}
MEASURED = [{"rank": 0}, {"rank": 1}]


def answer(incidents=(), ranks=MEASURED, **verdict):
    reported = {"incidents": list(incidents), "ranks": ranks, "verdict": VERDICT | verdict}
    return reported | {"observations": []}


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (answer(), (None, ())),
        (answer(**{"class": "gpu_compute"}), ("gpu_compute", ())),
        (answer([{"cause": {"kind": "missing_rank"}, "ranks": [2]}]), (ENDED, (2,))),
        (answer([{"cause": {"kind": "disk_full"}, "ranks": [2]}]), (None, ())),
        (answer(ranks=[]), (NO_STEPS, ())),
    ],
)
def test_an_end_comes_before_a_class_and_a_class_before_silence(given, reported):
    assert run._answer_of(given) == reported


def test_any_of_the_expected_answers_is_right_whatever_the_order_of_ranks():
    case = Case("x", "ddp", (("gpu_compute", (1, 3)), ("host_transient", ())))
    assert run.right(case, ("gpu_compute", (3, 1)))
    assert run.right(case, ("host_transient", ()))
    assert not run.right(case, ("gpu_compute", (1,)))
    assert not run.right(case, (None, ()))


def test_every_case_names_a_loop_that_there_is_and_has_a_name_of_its_own():
    loops = (SCRIPTS / "loops.py").read_text()
    cases = [*FAULTY, *HEALTHY]
    assert len({case.name for case in cases}) == len(cases)
    assert {case.loop for case in cases if f"def {case.loop}()" not in loops} == set()
    assert len(FAULTY) >= 40
    assert len(HEALTHY) >= 40
    assert {case.expected for case in HEALTHY} == {((None, ()),)}


def test_whatever_is_done_to_a_job_from_outside_can_be_done():
    verbs = {case.outside[0] for case in FAULTY if case.outside}
    assert verbs == set(run._DEEDS)


@pytest.mark.skipif(sys.platform != "linux", reason="forks and /proc")
def test_a_real_job_is_run_judged_recorded_and_ended(tmp_path):
    case = Case("short", "ddp", ranks=2, seconds=2.0, settings={"compute": 0.01})
    with ForkServer() as server:
        outcome = run.run(case, server)
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        assert not children.exists() or children.read_text() == ""
    assert set(outcome.rows["rank"]) == {0, 1}
    assert len(outcome.rows) > 20
    assert run.right(case, outcome.reported), outcome.summary
    table.record(tmp_path, case, outcome)
    assert (tmp_path / "short.parquet").stat().st_size > 1000
    assert '"world_size": 2' in (tmp_path / "answers.json").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_told_to_end_cleans_up(number):
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
        end_on_terminate()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_jobs_drawn_from_a_seed_are_the_same_again_and_of_every_kind():
    made = list(drawn.cases(7, 200))
    assert made == list(drawn.cases(7, 200))
    assert made != list(drawn.cases(8, 200))
    healthy = [case for case in made if tuple(case.expected) == (NOBODY,)]
    assert len(healthy) == 100
    assert not any(case.fault or case.outside for case in healthy)
    kinds = {case.expected[0][0] for case in made}
    assert kinds == {
        None, ENDED, "gpu_compute", "data_loader", "host_transient", "storage_checkpoint",
    }  # fmt: skip
    named = [rank for case in made for _, ranks in case.expected for rank in ranks]
    assert max(named) == 3
    assert all(max(ranks, default=0) < case.ranks for case in made for _, ranks in case.expected)
