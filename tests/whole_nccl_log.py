"""The facts of an NCCL log that is there in whole."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Facts, Limits
from rankscope_agent.contract.nccl.parser import NcclLog


def read_all(chunks: Iterable[bytes], limits: Limits | None = None) -> Facts:
    """Read a log's chunks, however they are cut, and sum up."""
    framing, parser = Unframer(), NcclLog(limits)
    for chunk in chunks:
        parser.feed(framing.feed(chunk))
    parser.feed(framing.finish())
    parser.sum_up()
    return parser.facts
