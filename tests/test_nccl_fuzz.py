"""No input crashes the parser or makes it keep more than its limits."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_job_text import edge, info, start
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Limits
from rankscope_agent.contract.nccl.lines import SCAN, records
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_agent.sources.nccl_log.state import from_json, to_json
from rankscope_analyzers.logs import nccl_report
from rankscope_analyzers.logs.nccl_findings import findings
from rankscope_analyzers.logs.watchdog_suspects import suspects

LIMITS = Limits(members=20, threads=20, edges=50, warning_codes=5)

PIECES = (
    start(3, 16, "NET/IB/0/GDRDMA").encode(),
    start(2, 4, "NET/Socket/0", network="Socket").encode(),
    info(5, edge(5, 6, "P2P/IPC")).encode(),
    b"\ngpu-00:4003:4073 [3] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion with error 12",
    b"[rank1]:[E ProcessGroupNCCL.cpp:6] [PG ID 0 PG GUID 0(default_pg) Rank 1] Watchdog caught"
    b" collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,",
    b" Timeout(ms)=8000) ran for 8097 milliseconds before timing out.\n",
    b"  [1, 2] finished collective #2, but didn't join collective #3 (count from 1)\n",
    b'{"log":"x NCCL INFO comm 0x1 rank 1 nranks 2 - Init START\\n","stream":"stdout"}\n',
    b"2026-11-21T02:14:00.1Z stdout P gpu-00:1:2 [0] NCCL IN\n",
    b"2026-11-21T02:14:00.1Z stdout F FO Using network IB\n",
    b"NCCL version 99999999999999999999.1\n",
    b"NCCL INFO comm 0xffffffffffffffff rank 99999999 nranks 10000000 nNodes 9999999 MNNVL 1\n",
    b"\x00\xff\xfe\x1b[31m\r",
    b"\n",
)


def torn(draw: st.DrawFn) -> bytes:
    """Return lines that are cut at any byte and put together in any order."""
    parts = draw(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=12))
    cut = draw(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60)), max_size=4))
    text = b"".join(parts)
    for begin, length in cut:
        text = text[:begin] + text[begin + length :]
    return text


@settings(max_examples=300)
@given(text=st.composite(torn)(), size=st.integers(1, 500))
def test_any_text_in_any_chunks_gives_a_report_within_the_limits(text, size):
    framing, parser = Unframer(max_pending=1000), NcclLog(LIMITS)
    for begin in range(0, len(text), size):
        parser.feed(framing.feed(text[begin : begin + size]))
    parser.feed(framing.finish())
    parser.sum_up()
    facts = parser.facts
    assert len(facts.members) + len(facts.past_members) <= LIMITS.members
    assert len(facts.processes) <= LIMITS.threads + 1
    assert len(facts.warnings) <= LIMITS.warning_codes
    verdict = judge(facts)
    found = findings(facts, verdict)
    json.dumps(nccl_report.as_object(facts, verdict, found), allow_nan=False)
    list(nccl_report.lines(facts, verdict, found))
    list(nccl_report.suspects_lines(facts, suspects(facts)))
    assert judge(from_json(json.loads(json.dumps(to_json(facts))))) == verdict


HOPPED_OVER = st.sampled_from(
    (b"L", b"C", b"Loss LR " * 60, b"NCCL", b"NCC", b" INFO Using network IB", b"x" * 700, b"\n")
)


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(st.sampled_from(PIECES), HOPPED_OVER, st.binary(max_size=20)), max_size=60
    ).map(b"".join)
)
def test_hopping_finds_what_the_pattern_finds(text):
    expected = [(match.span(), match.lastindex) for match in SCAN.finditer(text)]
    assert [(match.span(), match.lastindex) for match in records(text)] == expected


@settings(max_examples=100)
@given(st.binary(max_size=2000))
def test_any_bytes_are_unframed_without_growing(text):
    framing = Unframer(max_pending=100)
    given_back = framing.feed(text) + framing.finish()
    assert len(given_back) <= len(text)
