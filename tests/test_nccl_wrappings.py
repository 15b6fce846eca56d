"""NCCL's lines are read whatever wrapped them."""

from __future__ import annotations

import json

import pytest

from nccl_job_text import comm, edge, facts_of, info, start, verdict_of

WRAPPINGS = {
    "plain": "{line}",
    "CRI": "2026-11-21T02:14:00.123456789Z stdout F {line}",
    "kubectl --prefix": "[pod/train-0/main] {line}",
    "mpirun": "[1,3]<stdout>:{line}",
    "srun --label": "1: {line}",
    "torchrun": "[default3]:{line}",
    "Ray": "\x1b[36m(RayTrainWorker pid=77, ip=10.0.0.9)\x1b[0m {line}",
    "journald": "Nov 21 02:14:00 gpu-00 python[4003]: {line}",
    "quoted": "> {line}",
    "time stamp of NCCL": "[2026-11-21 02:14:00] {line}",
    "carriage return": "{line}\r",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_no_wrapping_hides_a_line(wrapping):
    lines = start(3, 16, "NET/Libfabric/0/GDRDMA", network="AWS Libfabric").splitlines()
    text = "".join(WRAPPINGS[wrapping].format(line=line) + "\n" for line in lines)
    facts = facts_of(text)
    assert [p.host for p in facts.processes.values()] == ["gpu-00"]
    assert [p.network for p in facts.processes.values()] == ["AWS Libfabric"]
    (judged,) = verdict_of(text).communicators
    assert judged.network.gdr is True
    assert judged.communicator.complete_ranks == (3,)


def test_dockers_json_is_unwrapped_with_its_escapes():
    lines = start(3, 16, "NET/IB/0").splitlines(keepends=True)
    wrapped = [
        json.dumps({"log": line, "stream": "stdout"}, separators=(",", ":")) for line in lines
    ]
    text = "\n".join(wrapped).replace(">", "\\u003e") + "\n"
    (judged,) = verdict_of(text).communicators
    assert judged.network.transports == ("NET/IB",)


def test_the_rank_of_mpiruns_tag_is_known_where_no_line_names_one():
    text = "[1,13]<stdout>:" + info(5, "Using network Socket")
    assert verdict_of(text).ranks_seen == (13,)


def test_a_slurm_task_is_not_taken_for_a_rank():
    assert verdict_of("13: " + info(5, "Using network Socket")).ranks_seen == ()


def test_records_that_run_into_each_other_are_both_read():
    whole = info(1, comm(1, 2, "START"), host="node-a").rstrip()
    torn = whole[: whole.index(" nranks")] + " nr"
    other = info(0, comm(0, 2, "START"), host="node-a")
    facts = facts_of(info(1, "Using network IB", host="node-a") + torn + other)
    assert facts.comm_ranks == {0, 1}
    assert {host for host, _ in facts.processes} == {"node-a"}


def test_a_communicators_line_that_another_follows_at_once_keeps_its_end():
    whole = info(1, "Using network IB", host="node-a")
    glued = info(1, comm(1, 2, "START"), host="node-a").rstrip()
    facts = facts_of(whole + glued + info(0, comm(0, 2, "START"), host="node-a"))
    assert [(m.rank, m.started) for m in facts.all_members()] == [(1, True), (0, True)]


def test_a_line_may_begin_with_its_rank():
    plain = start(3, 16, "NET/IB/0/GDRDMA")
    tagged = plain.replace("NCCL INFO ", "NCCL INFO [Rank 3] ")
    assert verdict_of(tagged) == verdict_of(plain)
    assert facts_of(tagged).unparsed == 0


def test_what_ray_adds_to_a_line_is_no_part_of_it():
    added = "\x1b[32m [repeated 3x across cluster]\x1b[0m"
    lines = ("NCCL_IB_DISABLE set by environment to 0.", "Using network Socket")
    text = "".join(info(0, line + added) for line in lines) + info(0, edge(0, 1, "NET/Socket/0"))
    verdict = verdict_of(text)
    assert (verdict.net_selected, verdict.network.reason) == ("Socket", "unexplained")
