"""Coverage-guided fuzzing of everything between a log's bytes and its report, with atheris.

Run it by hand: `pip install atheris`, then
`PYTHONPATH=agent:analyzers:tests python tests/fuzz_nccl_log.py -runs=1000000 -max_len=4096`.
It is no test that pytest collects: atheris is not there for every Python.
"""

from __future__ import annotations

import json
import sys

import atheris

with atheris.instrument_imports(include=["rankscope_agent", "rankscope_analyzers"]):
    from rankscope_agent.contract.log_text.framing import Unframer
    from rankscope_agent.contract.nccl.facts import Limits
    from rankscope_agent.contract.nccl.parser import NcclLog
    from rankscope_agent.contract.nccl.verdict import judge
    from rankscope_agent.sources.nccl_log.state import from_json, to_json
    from rankscope_analyzers.logs import nccl_report
    from rankscope_analyzers.logs.nccl_findings import findings
    from rankscope_analyzers.logs.watchdog_suspects import suspects

LIMITS = Limits(members=20, threads=20, edges=50, warning_codes=5)


def one_input(data: bytes) -> None:
    """Read a log, in chunks of a size that its first byte gives, and report on it."""
    size = 1 + data[0] if data else 1
    framing, parser = Unframer(max_pending=1000), NcclLog(LIMITS)
    for begin in range(1, len(data), size):
        parser.feed(framing.feed(data[begin : begin + size]))
    parser.feed(framing.finish())
    parser.sum_up()
    facts = parser.facts
    if len(facts.members) + len(facts.past_members) > LIMITS.members:
        raise AssertionError("more members than the limit")
    verdict = judge(facts)
    found = findings(facts, verdict)
    json.dumps(nccl_report.as_object(facts, verdict, found), allow_nan=False)
    list(nccl_report.lines(facts, verdict, found))
    list(nccl_report.suspects_lines(facts, suspects(facts)))
    if judge(from_json(json.loads(json.dumps(to_json(facts))))) != verdict:
        raise AssertionError("the verdict changes over a restart")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
