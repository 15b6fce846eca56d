"""Facts survive the agent's restart as JSON."""

from __future__ import annotations

import json

import pytest

from nccl_job_text import facts_of, info, start
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.sources.nccl_log.state import StateError, from_json, to_json

LOG = (
    "".join(start(rank, 4, "NET/IB/0/GDRDMA") for rank in range(4))
    + info(0, "Bootstrap timings total 2.500000 (create 0.1, send 0.1, recv 0.1, ring 0.1)")
    + info(0, "NCCL_IB_HCA set to mlx5")
    + info(9, "Channel 00/0 : 1[1] -> 0[0] via P2P/IPC")
    + "#  Rank  0 Group  0 Pid 4000 on gpu-00 device  0 [0x1a] NVIDIA H100\n"
    + "#  Rank  1 Group  0 Pid 4001 on gpu-00 device  1 [0x1b] NVIDIA H100\n"
    + "INFO 11-21 02:14:00 [pynccl.py:63] vLLM is using nccl==2.27.3\n"
    + "a:1:2 [0] x.cc:1 NCCL WARN NET/IB: Got completion from peer a<1> with status=12 hca mlx5_1\n"
    + "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE,"
    " Timeout(ms)=8000) ran for 8097 milliseconds before timing out.\n"
    "     [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
)


def test_facts_come_back_as_they_were():
    facts = facts_of(LOG)
    state = json.loads(json.dumps(to_json(facts)))
    again = from_json(state)
    assert (facts.one_host, facts.stated_version) == (True, "2.27.3")
    for several in facts.loose_edges.values():
        several[:] = [edges for edges in several if edges.counts]  # others are not saved
    assert again == facts


WORK = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1,"
    " NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)
TAG = "[rank3]:[E1121 02:14:00.1 ProcessGroupNCCL.cpp:616] "
PRINTED = (
    f"{TAG}[Rank 3] {WORK}",
    f"{TAG}[PG ID 2 PG GUID 9(tp) Rank 3] {WORK}",
    f"terminate ProcessGroupNCCL.cpp:9] what():  [PG ID 2 PG GUID 9(tp) Rank 3] {WORK}",
)


@pytest.mark.parametrize("before", range(1, len(PRINTED)))
def test_a_timeout_that_is_printed_again_after_a_restart_counts_once(before):
    facts = facts_of("".join(PRINTED[:before]))
    log = NcclLog(facts=from_json(json.loads(json.dumps(to_json(facts)))))
    log.feed("".join(PRINTED[before:]).encode())
    assert [(one.rank, one.group) for one in log.facts.watchdog.timeouts.values()] == [(3, "9")]
    assert log.facts.warnings["TORCH_WATCHDOG_TIMEOUT"].count == 1


def test_a_state_of_an_earlier_version_is_read():
    state = to_json(facts_of(LOG))
    del state["said_by_others"]
    assert from_json(state).members


@pytest.mark.parametrize("damage", [{"version": 1}, {"members": [[1]]}, {"counts": None}])
def test_another_shape_is_refused(damage):
    state = to_json(facts_of(LOG)) | damage
    with pytest.raises(StateError):
        from_json(state)


def test_facts_of_version_3_are_read_and_of_no_other():
    state = to_json(facts_of(LOG))
    assert from_json(state | {"version": 3}).members
    for other in (2, 4, 6):
        with pytest.raises(StateError):
            from_json(state | {"version": other})
