"""Parses RAS's JSON reply, available since NCCL 2.28.7: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.sources.nccl_ras.report import Lag, RasReplyError, RasReport, greatest, lag_of

# NCCL 2.28.9 omits the comma before the member `status` of a missing rank.
_NO_COMMA = re.compile(r'([\d"\]}el])([ \t\r]*\n[ \t\r\n]*"[^"\n]{1,64}"[ \t]*:)')


def parse(text: str) -> RasReport:
    """Read a reply.

    Raises:
        RasReplyError: it is not JSON, or contains no communicators.
    """
    reply = _loaded(text)
    communicators = [one for one in _list(reply, "communicators") if isinstance(one, dict)]
    return RasReport(
        version=_text(reply, "nccl_version"),
        communicators=len(communicators),
        largest=max((_number(one, "size") for one in communicators), default=0),
        missing_ranks=max((_missing(one) for one in communicators), default=0),
        dead_processes=len({who for one in communicators for who in _dead(one)}),
        failed_ranks=max((_failed(one) for one in communicators), default=0),
        timeouts=_number(_object(reply, "ras"), "timeouts_count"),
        lags=greatest(lag for one in communicators for lag in _lags(one)),
    )


def _loaded(text: str) -> dict[str, Any]:
    try:
        reply = untrusted_json.read(text)
    except ValueError:
        try:
            reply = untrusted_json.read(_NO_COMMA.sub(r"\1,\2", text))
        except ValueError as error:
            raise RasReplyError(f"is not JSON: {error}") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("communicators"), list):
        raise RasReplyError("has no list of communicators")
    return reply


def _missing(communicator: dict[str, Any]) -> int:
    return max(_number(communicator, "missing_ranks_count"), len(_ranks(communicator, "missing_")))


def _dead(communicator: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield host and pid of the processes that are considered dead."""
    for rank in _ranks(communicator, "missing_"):
        if _object(rank, "status").get("considered_dead") is True:
            yield _text(rank, "host"), _number(rank, "pid")


def _failed(communicator: dict[str, Any]) -> int:
    states = [_object(rank, "status") for rank in _ranks(communicator)]
    return sum(
        _number(state, "async_error") != 0 or state.get("abort_flag") is True for state in states
    )


def _lags(communicator: dict[str, Any]) -> Iterator[Lag]:
    launches: dict[str, dict[int, int]] = {}
    for rank in _ranks(communicator):
        for operation in _object(rank, "collective_counts"):
            by_rank = launches.setdefault(operation, {})
            count = _number(rank["collective_counts"], operation)
            by_rank[_number(rank, "rank")] = count
    for operation, by_rank in launches.items():
        lag = lag_of(operation, by_rank, _number(communicator, "size"))
        if lag is not None:
            yield lag


def _ranks(communicator: dict[str, Any], kind: str = "") -> list[dict[str, Any]]:
    return [rank for rank in _list(communicator, f"{kind}ranks") if isinstance(rank, dict)]


def _list(holder: dict[str, Any], name: str) -> list[Any]:
    value = holder.get(name)
    return value if isinstance(value, list) else []


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _number(holder: dict[str, Any], name: str) -> int:
    """Return a count; 0 if there is none: RAS has no negative ones and none above 64 bits."""
    value = holder.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(0, value), 1 << 63)


def _text(holder: dict[str, Any], name: str) -> str:
    value = holder.get(name)
    return value if isinstance(value, str) else ""
