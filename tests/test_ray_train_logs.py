"""Crashes under Ray Train: logs of ray 2.60, which names processes and leaves out repetitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from failed_jobs import LOST, traceback
from failure_logs import attempts, verdict
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.ray_train import RayTrain

LOGS = Path(__file__).parent / "fixtures/ray_jobs"
CONTROLLER = "\x1b[36m(TrainController pid=700)\x1b[0m "


def captured(name: str) -> str:
    return (LOGS / name).read_text()


def started(*workers: str, controller: str = CONTROLLER) -> str:
    """Return what a controller prints when it has started workers, by address and process."""
    listed = (
        f"- ({worker}) world_rank={rank}, local_rank=0, node_rank={rank}\n"
        for rank, worker in enumerate(workers)
    )
    head = f"Started training worker group of size {len(workers)}: \n"
    return "".join(controller + line for line in (head, *listed))


def raised(process: str, *last: str) -> str:
    """Return what the worker of such a prefix prints."""
    lines = traceback(None, *last).splitlines(keepends=True)
    return "".join(f"(RayTrainWorker {process}) {line}" for line in lines)


def failed(*told: tuple[str, str]) -> str:
    """Return how the program ends that started them, with what ranks raised."""
    text = "Training failed due to worker errors:\n"
    text += "\n".join(f"[Rank {ranks} Error Snippet]:\n{what}" for ranks, what in told)
    return traceback(None, f"ray.train.WorkerGroupError: {text}")


def test_the_rank_whose_training_function_raised_is_named():
    """Its controller has printed an exception of its own before, and survived that."""
    (attempt,) = attempts(captured("raised.log"))
    assert (attempt.cause, attempt.first.rank) == (causes.USER_EXCEPTION, 1)
    assert attempt.first.text == "ValueError: bad sample in shard-00017"
    assert attempt.first.frame == "/app/train.py:7, in step"
    assert (attempt.others, attempt.victims) == ((), ())


def test_the_rank_whose_process_was_killed_is_named_before_those_that_lost_it():
    (attempt,) = attempts(captured("killed.log"))
    assert (attempt.cause, attempt.first.rank, attempt.others) == (causes.UNKNOWN, 2, ())
    assert "Worker exit type: SYSTEM_ERROR" in attempt.first.text
    assert [one.rank for one in attempt.victims] == [1, 3]


def test_a_process_is_told_from_one_of_another_node_that_has_its_number():
    log = started("ip=10.0.0.1, pid=77", "ip=10.0.0.2, pid=77", "ip=10.0.0.1, pid=78")
    assert verdict(log + raised("pid=77, ip=10.0.0.2", "ValueError: x"))[1] == 1
    assert verdict(log + raised("pid=78", "ValueError: x"))[1] == 2
    assert verdict(log + raised("pid=77", "ValueError: x"))[1] is None
    assert verdict(log + raised("pid=77, ip=10.0.0.3", "ValueError: x"))[1] is None


def test_the_program_that_started_them_says_which_ranks_raised_what():
    gone = traceback(None, LOST.format(peer=5), line=50)
    own = traceback(None, "KeyError: 'labels'")
    log = failed(("0,2,3", gone), ("1", own)) + "Error: nothing was saved\n"
    assert verdict(log) == (causes.USER_EXCEPTION, 1, [0, 2, 3])


def test_an_exception_after_what_a_heading_announced_is_of_no_rank():
    log = failed(("1", traceback(None, "KeyError: 'labels'")))
    log += 'Traceback (most recent call last):\n  File "x.py", line 3, in stop\nOSError: busy\n'
    (attempt,) = attempts(log)
    assert [one.rank for one in (attempt.first, *attempt.others)] == [1, None]


def test_what_a_controller_left_out_is_not_taken_from_what_it_prints_next():
    log = started("ip=10.0.0.1, pid=77") + CONTROLLER + "[Rank 0 Error Snippet]:\n"
    log += CONTROLLER + "Graceful shutdown of backend failed.\n"
    stopping = traceback(None, "ray.exceptions.GetTimeoutError: Get timed out").splitlines()
    log += "".join(f"{CONTROLLER}{line}\n" for line in stopping)
    assert attempts(log) == ()


def test_workers_that_are_started_again_are_another_attempt():
    before = started("ip=10.0.0.1, pid=77", "ip=10.0.0.1, pid=78") + raised("pid=78", "OSError: x")
    after = started("ip=10.0.0.1, pid=90", "ip=10.0.0.1, pid=91") + raised("pid=90", "KeyError: 1")
    first, second = attempts(before + after)
    assert (first.number, first.first.rank) == (0, 1)
    assert (second.number, second.first.rank) == (1, 0)
    other = started("ip=10.0.0.1, pid=90", controller="(TrainController pid=701) ")
    (both,) = attempts(before + other + raised("pid=90", "KeyError: 1"))
    assert [one.rank for one in (both.first, *both.others)] == [1, 0]


@pytest.mark.parametrize("rank", [(1 << 20) - 1, 1 << 20])
def test_a_rank_beyond_all_jobs_is_none_of_rays_either(rank):
    found = verdict(failed((str(rank), traceback(None, "KeyError: 'labels'"))))[1]
    assert found == (rank if rank < 1 << 20 else None)


def test_no_more_is_kept_than_writers_of_a_log():
    """Followers of a pod's log keep the reader for as long as there are failures in it."""
    ray = RayTrain(most=2)
    for number in range(5):
        writer = b"(pid %d)" % number
        assert ray.read(b"c", b"- (ip=h, pid=%d) world_rank=%d, local_rank=0" % (number, number), 1)
        assert ray.read(writer, b"[Rank %d,7,8,9 Error Snippet]:" % number, 2)
    assert [ray.rank_of(b"(W pid=%d, ip=h)" % number) for number in range(3)] == [0, 1, None]
    assert [ray.rank_of(b"(pid %d)" % number) for number in range(2)] == [0, None]
    assert [ray.others(number) for number in range(2)] == [(7,), ()]
    for line in range(5):
        ray.read(b"c", b"Started training worker group of size 2: ", line)
    assert ray.restarts == [0, 1]
