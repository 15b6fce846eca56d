"""Who is suspected by where ranks stand: pure, from what Flight Recorders and stacks say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flight_servers import dump, entry
from rankscope_agent.contract import flight_dump
from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.stalls import (
    MAX_MEMBERS,
    Call,
    GroupCalls,
    RankStall,
    as_object,
    groups_of,
    read,
)
from rankscope_analyzers.hangs.suspects import blame, newest_call
from rankscope_analyzers.hangs.waits import waits

NOW = 1_760_000_000.0


def call(sequence, operation="gloo:all_reduce", shape="10 Float", *, done=False, message=False):
    return Call(operation, sequence, message, shape, NOW + sequence, done)


def group(*calls, name="0", description="default_pg", ranks=()):
    launched = [one.sequence for one in calls if not one.message]
    return GroupCalls(name, description, tuple(ranks), max(launched, default=0), calls)


def pair(*calls, name):
    return group(*calls, name=name, description="undefined", ranks=())


def stall(rank, *groups, size=4, state="S", stack=(), recorder=""):
    return RankStall("job", rank, size, NOW, 60.0, True, state, 1.0, groups, recorder, stack, "")


def stood(*stalls):
    return {one.rank: one for one in stalls}


BEHIND = group(call(4, done=True))
IN_FIVE = group(call(4, done=True), call(5))
OWN = Frame("fetch", "/home/me/train.py", 12)


def test_a_rank_that_never_entered_is_named_with_the_collective():
    found = blame(stood(*(stall(r, BEHIND if r == 2 else IN_FIVE) for r in range(4))))
    assert found.ranks == (2,)
    assert found.sentence == "rank 2 has not entered all_reduce 5 of default_pg, where 3 ranks wait"


def test_where_it_stands_is_said():
    loader = Frame("__next__", "/x/site-packages/torch/utils/data/dataloader.py", 700)
    library = Frame("wait", "/usr/lib/python3.11/threading.py", 300)
    for stack, said in (
        ((OWN, loader), "it is in its data loader (fetch, me/train.py:12)"),
        ((library, OWN), "it is in fetch, me/train.py:12"),
    ):
        late = stall(2, BEHIND, stack=stack)
        found = blame(stood(late, *(stall(r, IN_FIVE) for r in (0, 1, 3))))
        assert found.sentence.endswith(f": {said}")


@pytest.mark.parametrize(
    ("state", "said"), [("T", "is stopped by a signal"), ("D", "uninterruptible sleep (state D)")]
)
def test_the_state_of_its_process_is_said(state, said):
    ranks = stood(stall(2, recorder="timeout", state=state), *(stall(r, IN_FIVE) for r in (0, 1)))
    found = blame(ranks | {3: stall(3, IN_FIVE)})
    assert found.ranks == (2,)
    assert "rank 2 does not answer" in found.sentence
    assert said in found.sentence


def test_a_rank_that_was_not_asked_is_not_blamed_for_its_silence():
    unasked = replace(stall(0, recorder="it was not asked"), asked=False)
    others = [stall(r, IN_FIVE) for r in (1, 2)]
    alone = blame(stood(unasked, *others, stall(3, IN_FIVE)))
    assert alone.ranks == ()
    assert alone.sentence.startswith("rank 0 was not asked in time, and 3 ranks wait for it")
    beside = blame(stood(unasked, *others, stall(3, BEHIND)))
    assert beside.ranks == (3,)
    assert beside.sentence.startswith("rank 3 has not entered all_reduce 5")
    stopped = blame(stood(replace(unasked, state="T"), *others, stall(3, IN_FIVE)))
    assert stopped.ranks == (0,)


def test_a_rank_that_waits_for_a_message_is_not_called_guilty():
    """Gloo's recorder has no messages: only the stack shows that the rank waits, too."""
    recv = Frame("recv", "/x/site-packages/torch/distributed/distributed_c10d.py", 2500)
    ranks = [stall(r, IN_FIVE) for r in (1, 2, 3)]
    found = blame(stood(stall(0, BEHIND, stack=(recv, OWN)), *ranks))
    assert found.ranks == ()
    assert "waits for a message or a collective, in recv" in found.sentence


TIMED_WAIT = Frame("wait", "/opt/rankscope_probe.py", 1240)
ENGINE = Frame("_communicate", "/lib/megatron/core/pipeline_parallel/p2p_communication.py", 392)


def test_a_rank_that_waits_for_what_it_launched_is_not_called_guilty():
    """Megatron-core waits for the requests of its messages, outside of torch.distributed."""
    others = [
        stall(0, group(call(5), name="a", ranks=(0, 1))),
        stall(2, group(call(5), name="b", ranks=(2, 3))),
        stall(3, group(call(4, done=True), name="b", ranks=(2, 3)), stack=(OWN,)),
    ]
    behind = group(call(4, done=True), name="a", ranks=(0, 1))
    found = blame(stood(stall(1, behind, stack=(TIMED_WAIT, ENGINE)), *others))
    assert found.ranks == (3,)
    assert found.sentence.startswith("rank 3 has not entered all_reduce 5"), "whom they wait for"
    assert "it waits for a message or a collective (_communicate, " in found.sentence
    own = blame(stood(stall(1, behind, stack=(OWN, TIMED_WAIT)), *others))
    assert own.ranks == (1, 3), "a signal's handler, say, of a rank that waited"


def test_messages_of_nccl_are_paired():
    waits = call(7, "nccl:recv 0<-1", message=True)
    sends = call(7, "nccl:send 1->0", message=True)
    found = blame(stood(stall(0, group(waits), size=2), stall(1, BEHIND, size=2)))
    assert found.ranks == (1,)
    assert "has not entered recv 0<-1 7" in found.sentence
    both = blame(stood(stall(0, group(waits), size=2), stall(1, group(sends), size=2)))
    assert both.ranks == ()


def dumped(rank, *entries):
    """Return a rank as its Flight Recorder shows it; all entries are of a pipeline's group."""
    common = {"process_group": ["7", "pp"], "is_p2p": True}
    numbered = [one | common | {"record_id": at} for at, one in enumerate(entries)]
    body = json.loads(dump(*numbered)) | {"pg_config": {"7": {"ranks": "[0, 4]"}}}
    groups = groups_of(flight_dump.read(json.dumps(body).encode()))
    return stall(rank, *groups, size=8)


def test_a_rank_that_does_not_enter_a_collective_of_gloo_is_named_in_a_job_on_nccl():
    """A group of two backends counts the collectives of each."""
    trained = group(call(900, "nccl:all_reduce", done=True), ranks=range(4))
    waits = group(call(4, done=True), call(5, "gloo:barrier"))
    late = group(call(4, done=True))
    found = blame(stood(*(stall(r, late if r == 2 else waits, trained) for r in range(4))))
    assert found.ranks == (2,)
    assert "barrier 5 of default_pg" in found.sentence


def gathered(rank, *, late):
    """Return a rank that has gathered tensors of different sizes, and has entered what follows."""
    names = ("nccl:_broadcast_oop", "nccl:_broadcast_oop", "nccl:ALLGATHER_coalesced")
    states = ("scheduled", "scheduled", "completed")
    entries = [
        entry(3, 10, profiling_name=name, state=state, retired=state == "completed", record_id=at)
        for at, (name, state) in enumerate(zip(names, states, strict=True))
    ]
    open_entry = entry(4, 11, profiling_name="nccl:all_reduce", retired=False, record_id=9)
    body = dump(*entries, *[] if late else [open_entry])
    return stall(rank, *groups_of(flight_dump.read(body)))


def test_operations_of_a_batch_that_has_ended_hide_no_later_collective():
    found = blame(stood(*(gathered(rank, late=rank == 2) for rank in range(4))))
    assert found.ranks == (2,)
    assert "has not entered all_reduce 4 of default_pg" in found.sentence


def test_a_group_that_was_made_again_counts_from_its_beginning():
    earlier = [entry(number, number, record_id=number) for number in range(1, 51)]
    again = [entry(number, 100 + number, record_id=60 + number) for number in (1, 2, 3)]
    open_entry = entry(4, 110, retired=False, record_id=70)
    dumps = [[*earlier, *again, *[open_entry] * (rank != 2)] for rank in range(4)]
    ranks = [
        stall(rank, *groups_of(flight_dump.read(dump(*entries))))
        for rank, entries in enumerate(dumps)
    ]
    assert blame(stood(*ranks)).ranks == (2,)
    assert [one.groups[0].enqueued for one in ranks] == [4, 4, 3, 4]


@pytest.mark.parametrize("batched", [False, True])
def test_a_stage_that_waits_for_the_one_before_it_is_not_called_late(batched):
    """Stage 1 waits in a recv from rank 0, its data-parallel peers wait for it."""
    recv = entry(1, 10, profiling_name="nccl:recv 1<-0", p2p_seq_id=3, retired=False)
    end = entry(1, 11, profiling_name="nccl:coalesced", p2p_seq_id=3, retired=False)
    waits = dumped(4, recv, *[end] * batched)

    def in_group(name, ranks, *calls):
        return group(call(4, done=True), *calls, name=name, description="dp", ranks=ranks)

    zero = stall(0, in_group("1", (0, 1)), size=8)
    one = stall(1, in_group("1", (0, 1), call(5)), size=8)
    four = replace(waits, groups=(*waits.groups, in_group("2", (4, 5))))
    five = stall(5, in_group("2", (4, 5), call(5)), size=8)
    found = blame(stood(zero, one, four, five))
    assert found.ranks == (0,)


@pytest.mark.parametrize(
    "odd", [call(5, "gloo:broadcast"), call(5, shape="400 Float"), call(5, "gloo:barrier", "")]
)
def test_of_three_and_more_the_rank_in_another_collective_is_named(odd):
    different = group(call(4, done=True), odd)
    found = blame(stood(*(stall(r, different if r == 3 else IN_FIVE) for r in range(4))))
    assert found.ranks == (3,)
    assert found.sentence.startswith("ranks are in different collectives: rank 3 in ")
    assert "ranks 0-2 in all_reduce 5 of 10 Float" in found.sentence


def test_of_two_ranks_both_operations_are_told_and_nobody_is_named():
    different = group(call(4, done=True), call(5, "gloo:broadcast"))
    found = blame(stood(stall(0, IN_FIVE, size=2), stall(1, different, size=2)))
    assert found.ranks == ()
    assert "rank 0 in all_reduce 5" in found.sentence
    assert "rank 1 in broadcast 5" in found.sentence


def test_sizes_that_may_differ_are_no_mismatch():
    ranks = [stall(r, group(call(5, "gloo:all_to_all", f"{r + 1} Float"))) for r in range(3)]
    assert "different" not in blame(stood(*ranks, stall(3, BEHIND))).sentence


def test_a_mismatch_that_all_have_behind_them_is_none():
    old = [group(call(4, shape=f"{r} Float", done=True), call(5)) for r in range(3)]
    ranks = [stall(r, one) for r, one in enumerate(old)]
    assert blame(stood(*ranks, stall(3, BEHIND))).ranks == (3,)


def across(*, ranks=()):
    """Return ranks 0 and 1, each in another group's collective, and two that wait for them."""
    first, second = (
        group(call(1, done=True), call(2), name=name, description="undefined", ranks=ranks)
        for name in "12"
    )
    done = [pair(call(1, done=True), name=name) for name in "12"]
    zero = stall(0, BEHIND, first, done[1])
    one = stall(1, BEHIND, done[0], second)
    return stood(zero, one, stall(2, IN_FIVE), stall(3, IN_FIVE))


def test_ranks_in_two_groups_wait_for_each_other_and_nobody_is_named():
    found = blame(across())
    assert found.ranks == ()
    assert found.sentence.startswith(
        "ranks 0, 1 wait for each other, rank 0 in all_reduce 2 of process group 1; rank 1 in"
        " all_reduce 2 of process group 2:"
    )


def test_groups_that_were_never_used_before_are_seen_too():
    """Gloo does not tell a group's ranks: each is seen alone in its own."""
    zero = stall(0, BEHIND, pair(call(1), name="1"))
    one = stall(1, BEHIND, pair(call(1), name="2"))
    found = blame(stood(zero, one, stall(2, IN_FIVE), stall(3, IN_FIVE)))
    assert found.ranks == ()
    assert found.sentence.startswith("ranks 0, 1 wait for each other")


def test_the_rank_at_the_end_of_a_chain_is_named():
    """Rank 1 waits for rank 2 in a group of theirs, the others for both in that of all."""
    chain = stall(1, BEHIND, group(call(3), name="1", description="tp", ranks=(1, 2)))
    end = stall(2, BEHIND, group(call(2, done=True), name="1", description="tp", ranks=(1, 2)))
    found = blame(stood(stall(0, IN_FIVE), chain, end, stall(3, IN_FIVE)))
    assert found.ranks == (2,)


def test_ranks_that_wait_in_one_collective_share_the_set_of_those_they_wait_for():
    """Else half of 4,096 ranks that wait for the other half were four million waits."""
    size = 4096
    found = waits(stood(*(stall(r, IN_FIVE, size=size) for r in range(0, size, 2))))
    assert len(found) == size // 2
    assert len({id(one.awaited) for one in found}) == 1
    named = blame(stood(*(stall(r, IN_FIVE, size=size) for r in range(0, size, 2))))
    assert named.ranks == tuple(range(1, size, 2))
    assert named.sentence.endswith("; and 2045 more")


def test_two_thousand_ranks_in_one_group_and_as_many_in_another_wait_for_each_other():
    """The cost is that of ranks and groups, not of all pairs of ranks."""
    size = 4096
    everybody = tuple(range(size))
    done, entered = call(4, done=True), call(5)
    halves = (
        (group(done, entered, ranks=everybody), group(done, name="1", ranks=everybody)),
        (group(done, ranks=everybody), group(done, entered, name="1", ranks=everybody)),
    )
    found = blame(stood(*(stall(r, *halves[r % 2], size=size) for r in everybody)))
    assert found.ranks == ()
    assert "wait for each other" in found.sentence


def test_a_rank_that_claims_millions_of_others_names_no_more_than_a_job_can_have():
    found = blame(stood(*(stall(r, IN_FIVE, size=1 << 24) for r in range(4))))
    assert len(found.ranks) == MAX_MEMBERS - 4


def test_where_all_have_entered_the_network_is_named():
    found = blame(stood(*(stall(r, IN_FIVE) for r in range(4))))
    assert found.ranks == ()
    assert found.sentence == (
        "all ranks that are known have entered all_reduce 5 of default_pg, which does not end:"
        " look at the network"
    )


def entered(rank, *, state="scheduled", timed=True):
    """Return a rank of NCCL that has entered what all have entered, as its recorder shows it."""
    begun = 10 if timed else None
    done = entry(4, 9, state="completed", time_discovered_started_ns=begun)
    started = 12 if state == "started" else None
    open_entry = entry(5, 11, state=state, retired=False, time_discovered_started_ns=started)
    return stall(rank, *groups_of(flight_dump.read(dump(done, open_entry))))


def test_a_gpu_that_has_not_begun_what_the_others_are_in_is_named():
    others = [entered(rank, state="started") for rank in (0, 1, 3)]
    found = blame(stood(*others, entered(2)))
    assert found.ranks == (2,)
    assert found.sentence == (
        "all ranks that are known have entered all_reduce 5 of default_pg, and the GPU of rank 2"
        " has not begun it, where those of ranks 0, 1, 3 wait: look at what it computes"
    )


def test_a_gpu_is_not_suspected_without_its_times_nor_while_it_waits_in_another_collective():
    others = [entered(rank, state="started") for rank in (0, 1, 3)]
    assert blame(stood(*others, entered(2, timed=False))).ranks == ()
    assert blame(stood(*(entered(rank) for rank in range(4)))).ranks == ()
    elsewhere = group(call(7), name="1", description="tp", ranks=range(4))
    inside = replace(elsewhere, calls=(replace(call(7), started=True),))
    both = [replace(one, groups=(*one.groups, inside)) for one in (*others, entered(2))]
    assert blame(stood(*both)).ranks == ()


def test_that_a_gpu_has_begun_a_collective_is_among_what_agents_send():
    sent = as_object(entered(0, state="started"))
    assert read(sent) == entered(0, state="started")


def test_ranks_of_nodes_that_do_not_answer_are_not_called_late():
    found = blame(stood(stall(0, IN_FIVE), stall(1, IN_FIVE)))
    assert found.ranks == (2, 3)
    assert "rank 2 does not answer" in found.sentence


def test_without_collectives_only_processes_that_are_held_are_named():
    calm = [stall(r, recorder="it has no worker server") for r in (0, 1, 2)]
    assert blame(stood(*calm)).ranks == ()
    assert blame(stood(*calm, stall(3, recorder="none", state="D"))).ranks == (3,)
    assert blame({}).sentence == ""


P2P = Frame("_wait_batch_p2p", "/lib/torch/distributed/pipelining/schedules.py", 683)
STAGE = Frame("forward_one_chunk", "/lib/torch/distributed/pipelining/stage.py", 700)
SAVING = Frame("write_data", "/lib/torch/distributed/checkpoint/filesystem.py", 90)
TIMED = Frame("waited", "/opt/rankscope_probe.py", 1240)


@pytest.mark.parametrize("elsewhere", [(OWN,), (SAVING, OWN)])
def test_a_stage_of_a_pipeline_that_sends_nothing_is_named(elsewhere):
    """Messages between stages are no collectives, and stages wait on different lines."""
    waiting = [
        stall(r, stack=(TIMED, P2P) if r else (P2P, STAGE), recorder="none") for r in (0, 1, 3)
    ]
    found = blame(stood(*waiting, stall(2, stack=elsewhere, recorder="none")))
    assert found.ranks == (2,)
    assert found.sentence.startswith(
        "ranks 0, 1, 3 wait for messages, in _wait_batch_p2p; rank 2 is "
    )


def test_a_stage_that_sends_nothing_is_named_where_the_others_wait_for_their_requests():
    waiting = [stall(r, stack=(TIMED_WAIT, ENGINE), recorder="none") for r in (0, 1, 3)]
    found = blame(stood(*waiting, stall(2, stack=(OWN,), recorder="none")))
    assert found.ranks == (2,)
    assert found.sentence.startswith("ranks 0, 1, 3 wait for messages, in _communicate; rank 2 is")


def test_nobody_is_named_if_half_of_the_ranks_or_none_waits_for_messages():
    waiting = [stall(r, stack=(P2P,), recorder="none") for r in (0, 1)]
    elsewhere = [stall(r, stack=(OWN,), recorder="none") for r in (2, 3)]
    for ranks in (waiting, elsewhere, waiting + elsewhere):
        assert blame(stood(*ranks)).ranks == ()


def test_the_newest_call_of_all_ranks_is_known():
    assert newest_call([stall(0, BEHIND), stall(1, IN_FIVE)]) == NOW + 5
    assert newest_call([stall(0, recorder="none")]) is None
