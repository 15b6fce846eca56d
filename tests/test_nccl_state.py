"""Facts survive the agent's restart as JSON."""

from __future__ import annotations

import json

import pytest

from nccl_job_text import facts_of, info, start
from rankscope_agent.sources.nccl_log.state import StateError, from_json, to_json

LOG = (
    "".join(start(rank, 4, "NET/IB/0/GDRDMA") for rank in range(4))
    + info(0, "Bootstrap timings total 2.500000 (create 0.1, send 0.1, recv 0.1, ring 0.1)")
    + info(0, "NCCL_IB_HCA set to mlx5")
    + info(9, "Channel 00/0 : 1[1] -> 0[0] via P2P/IPC")
    + "a:1:2 [0] x.cc:1 NCCL WARN NET/IB: Got completion from peer a<1> with status=12 hca mlx5_1\n"
    + "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE,"
    " Timeout(ms)=8000) ran for 8097 milliseconds before timing out.\n"
    "     [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
)


def test_facts_come_back_as_they_were():
    facts = facts_of(LOG)
    state = json.loads(json.dumps(to_json(facts)))
    again = from_json(state)
    assert to_json(again) == to_json(facts)
    assert again.members.keys() == facts.members.keys()
    assert again.watchdog.timeouts == facts.watchdog.timeouts
    assert again.warnings == facts.warnings


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
