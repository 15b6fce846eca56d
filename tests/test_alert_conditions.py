"""Where alerts about jobs and GPUs are easily wrong: long steps, jobs that end, chosen limits."""

from collections.abc import Sequence

from alert_series import JOB, JOB_KNOWN, LOG_POD, NODE
from alert_timelines import Case, Series, steady
from named_alerts import BY_NAME
from promtool_tests import follow
from rankscope_agent.contract.metrics.training import SPAN_BEGAN
from servers import require_server


def test_a_job_with_long_steps_does_not_stand_between_them(tmp_path):
    """Steps of a quarter of an hour, as rollouts take; the first brings the series."""
    alert, of_job = BY_NAME["RankscopeJobStalled"], '{node="n",job_id="j"}'

    def counting(states: Sequence[str], step: int, each: float) -> list[str]:
        ended = (min(i * step, 180) // 15 for i in range(len(states)))  # after 3 hours it hangs
        return [f"{8 * (1 + number) * each:.10g}" for number in ended]

    series = (
        Series(
            f"rankscope_step_latency_seconds_count{of_job}", lambda s, step: counting(s, step, 1)
        ),
        Series(
            f"rankscope_step_latency_seconds_sum{of_job}", lambda s, step: counting(s, step, 900)
        ),
        steady(f"rankscope_job_ranks_alive{of_job}", 8),
    )
    # The ten minutes of the record, the hour, and the five minutes of the alert.
    checks = [*((minute, 0) for minute in range(20, 250, 5)), (262, 1), (280, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 280, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_in_a_marked_checkpoint_does_not_stand_for_an_hour(tmp_path):
    """It writes from minute 60 on and never ends; another job does nothing that is marked."""
    alert = BY_NAME["RankscopeJobStalled"]

    def counting(states: Sequence[str], step: int) -> list[str]:
        return [f"{40 * min(i * step, 60)}" for i in range(len(states))]

    def began(states: Sequence[str], step: int) -> list[str]:
        return ["3600" if i * step >= 60 else "_" for i in range(len(states))]

    def job(name: str) -> tuple[Series, ...]:
        of_job = f'{{node="n",job_id="{name}"}}'
        seconds = f"rankscope_step_latency_seconds_sum{of_job}"
        return (
            Series(f"rankscope_step_latency_seconds_count{of_job}", counting),
            Series(seconds, counting),
            steady(f"rankscope_job_ranks_alive{of_job}", 8),
        )

    marked = f'{SPAN_BEGAN.name}{{node="n",job_id="saves",rank="0",kind="checkpoint_save"}}'
    series = (*job("saves"), *job("hangs"), Series(marked, began))
    checks = [(50, 0), (70, 0), (80, 1), (110, 1), (119, 1), (130, 2)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 140, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_loss_that_the_probe_has_counts_and_not_what_the_log_says_of_it(tmp_path):
    """The log's is that of single steps; the probe's level moves from minute 60 on."""
    alert = BY_NAME["RankscopeLossDiverging"]
    printed = f'rankscope_job_log_loss{{{LOG_POD},framework="pytorch",source="log"}}'
    rank = f'{{{NODE},{JOB},rank="0"}}'

    def level(states: Sequence[str], step: int) -> list[str]:
        return ["2.0" if i * step < 60 else "4.01" for i in range(len(states))]

    def spiky(states: Sequence[str], step: int) -> list[str]:
        return ["2.0" if i * step < 20 else "9.0" for i in range(len(states))]

    series = (
        Series(printed, spiky),
        Series(f"rankscope_loss_level{rank}", level),
        steady(f"rankscope_loss_level_lowest{rank}", 2.0),
        *JOB_KNOWN,
    )
    checks = [(50, 0), (58, 0), (74, 0), (76, 1), (100, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 110, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_that_has_ended_is_not_told_to_use_its_gpus(tmp_path):
    """It hung for 25 minutes, was ended, and is part of the last hour's mean for an hour."""
    busy = ["7.2"] * 120 + ["0.2"] * 25 + ["stale"] * 120
    held = ["8"] * 145 + ["stale"] * 120
    of_job = '{node="n",job_id="j"}'
    series = (
        Series(f"rankscope_job_busy_gpus{of_job}", lambda _states, _step: busy),
        Series(f"rankscope_job_gpus{of_job}", lambda _states, _step: held),
    )
    checks = [(minute, 0) for minute in range(100, 265, 5)]
    for name in ("RankscopeLowGpuUtilisation", "RankscopeGpusIdle"):
        done = follow(
            tmp_path, require_server("promtool"), BY_NAME[name], Case(series), 264, checks
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_power_limit_that_the_whole_cluster_has_was_chosen(tmp_path):
    def nodes(number: int, lowered: int) -> Case:
        reduced = "rankscope_gpu_power_limit_reduced_ratio"
        return Case(
            (
                *(steady(f'rankscope_build_info{{node="n{i}"}}') for i in range(number)),
                *(
                    steady(f'{reduced}{{node="n{i}",gpu="{j}",uuid="{i}-{j}",pci=""}}', 0.8)
                    for i in range(lowered)
                    for j in range(2)
                ),
            )
        )

    for number, lowered, told in ((1, 1, 2), (3, 3, 6), (8, 4, 8), (8, 5, 0), (8, 8, 0)):
        done = follow(
            *(tmp_path, require_server("promtool"), BY_NAME["RankscopeGpuPowerLimited"]),
            *(nodes(number, lowered), 30, [(5, 0), (20, told), (29, told)]),
        )
        assert done.returncode == 0, done.stdout + done.stderr
