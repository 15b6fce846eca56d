"""NCCL logs that a mail, a ticket or a terminal's copy broke at a column say what they said."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_job_text import comm, edge, info, start
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_analyzers.logs import nccl_explanation
from rankscope_analyzers.logs.hard_wraps import unwrap
from whole_nccl_log import read_all

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpora" / "nccl"

# Records that other writers tore apart and that a terminal then wrapped: nobody knows what was
# one line of which writer.
TORN = ("s09-", "t02-")

Breaker = Callable[[str, int], list[str]]


def at_column(line: str, width: int) -> list[str]:
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]


def at_column_without_blanks(line: str, width: int) -> list[str]:
    return [part.rstrip() for part in at_column(line, width)]


def at_words(line: str, width: int) -> list[str]:
    parts, part = [], ""
    for word in re.findall(r"\s*\S+", line):
        if part and len(part) + len(word) > width:
            parts.append(part)
            part = word.lstrip()
        else:
            part += word
    return [*parts, part]


def flowed(line: str, width: int) -> list[str]:
    *broken, last = at_words(line, width)
    return [*(part + " " for part in broken), last]


def at_words_and_long_words(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_on_hyphens=False) or [""]


BREAKERS: tuple[Breaker, ...] = (
    at_column,
    at_column_without_blanks,
    at_words,
    flowed,
    at_words_and_long_words,
)
QUOTES = ("", "", "> ", "| ", ">> ", "    ")
INDENTS = ("", "", "", "  ", "    ", "\t")


def wrapped(text: str, width: int, breaker: Breaker, quote: str = "", indent: str = "") -> str:
    """Return a log as it looks once it was pasted."""
    lines = []
    for line in text.split("\n"):
        parts = breaker(line, width)
        if indent and len(parts) > 1:
            rest = line[len(parts[0]) :]
            rest = rest if breaker in BREAKERS[:2] else rest.lstrip()
            parts = [parts[0], *(indent + p for p in breaker(rest, width - len(indent)))]
        lines += [quote + part if part else quote.rstrip() for part in parts]
    return "\n".join(lines)


def said(facts: Facts) -> dict[str, object]:
    verdict = judge(facts)
    network = verdict.network
    return {
        "version": verdict.nccl_version,
        "nranks": (verdict.nranks, verdict.nranks_from),
        "ranks_seen": verdict.ranks_seen,
        "net_selected": verdict.net_selected,
        "transports": network.transports,
        "gdr": (network.gdr, network.gdr_missing),
        "fallback": (network.socket_fallback, network.reason),
        "complete": verdict.init_complete_ranks,
        "warnings": sorted(facts.warnings),
        "hosts": sorted({host for host, _ in facts.processes if host}),
    }


def plain(text: bytes) -> bytes:
    framing = Unframer()
    return framing.feed(text) + framing.finish()


def said_of(text: str) -> dict[str, object]:
    """Return what the explanation reads of a pasted log."""
    return said(read_all([unwrap(plain(text.encode(errors="surrogateescape")))]))


def job(network: str, via: str, *extra: str) -> str:
    return "".join(start(rank, 16, via, network=network, extra=extra) for rank in range(16))


FORCED = info(0, "NCCL_IB_DISABLE set by environment to 1.")
MERGED = "".join(
    f"[pod/trainer-worker-{rank}/pytorch] 2026-11-21T02:14:00.123456789Z {line}\n"
    for rank in (0, 8)
    for line in start(rank, 16, "NET/IB/0/GDRDMA").splitlines()
)
TAGGED = "".join(
    f"[1,{rank}]<stdout>:{line}\n"
    for rank in (0, 8)
    for line in start(rank, 16, "NET/AWS Libfabric/1/GDRDMA", network="AWS Libfabric").splitlines()
)
FAILED = (
    info(1, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.5<0>")
    + "gpu-00:4001:4071 [1] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer"
    " 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)\n"
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691,"
    " remote process exited or there was a network error, NCCL version 2.21.5\n"
)
LOGS = {
    "socket": job("Socket", "NET/Socket/0") + FORCED,
    "InfiniBand": job("IB", "NET/IB/3/GDRDMA"),
    "shared memory": "".join(start(rank, 4, "SHM/direct/direct") for rank in range(4)),
    "kubectl": MERGED,
    "mpirun": TAGGED,
    "failed": FAILED,
    "among steps": job("Socket", "NET/Socket/0").replace(
        "\n", "\nstep 100 of 5000, loss 2.31, learning rate 0.0001, 41 samples a second\n"
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_says_the_same_however_it_was_wrapped(name):
    text, draw = LOGS[name], random.Random(name)
    whole = said_of(text)
    for _ in range(40):
        width = draw.choice((72, 76, 80, 100, 120, 132, draw.randint(68, 160)))
        breaker, quote, indent = draw.choice(BREAKERS), draw.choice(QUOTES), draw.choice(INDENTS)
        pasted = wrapped(text, width, breaker, quote, indent)
        assert said_of(pasted) == whole, (width, breaker.__name__, quote, indent)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no labelled logs in {CORPUS}")
def test_real_logs_say_the_same_however_they_were_wrapped():
    draw, differing, asked = random.Random(25), [], 0
    for log in sorted(CORPUS.glob("*.log")):
        if log.name.startswith(TORN):
            continue
        text = plain(log.read_bytes()).decode(errors="surrogateescape")
        whole = said_of(text)
        for _ in range(8):
            width = draw.choice((72, 80, 100, 120, 132, draw.randint(60, 160)))
            breaker, quote = draw.choice(BREAKERS), draw.choice(QUOTES)
            answers = said_of(wrapped(text, width, breaker, quote, draw.choice(INDENTS)))
            asked += len(whole)
            differing += [(log.name, key) for key in whole if answers[key] != whole[key]]
    assert len(differing) <= asked // 100, differing


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no labelled logs in {CORPUS}")
def test_real_logs_that_nobody_wrapped_are_left_alone():
    for log in sorted(CORPUS.glob("*.log")):
        text = plain(log.read_bytes())
        assert unwrap(text) is text, log.name


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_nobody_wrapped_is_left_alone(name):
    text = LOGS[name].encode()
    assert unwrap(text) is text


def test_the_command_reads_wrapped_files(tmp_path):
    log = tmp_path / "mail.txt"
    log.write_text(wrapped(LOGS["socket"], 72, at_words, "> "))
    assert said(nccl_explanation.read([str(log)])) == said_of(LOGS["socket"])


@pytest.mark.parametrize("transport", ["NET/Socket/0", "NET/IB/0/GDRDMA"])
@pytest.mark.parametrize("width", range(40, 76, 3))
def test_one_connection_is_enough_to_tell(transport, width):
    text = info(0, edge(0, 1, transport))
    whole = said_of(text)["transports"]
    assert whole
    for breaker in BREAKERS:
        assert said_of(wrapped(text, width, breaker))["transports"] == whole, breaker.__name__


def test_a_network_s_name_that_was_broken_is_none_of_its_own():
    line = info(0, edge(0, 1, "NET/Socket/0"))
    at = line.index("ket/0")
    assert said_of(line[:at] + "\n" + line[at:])["fallback"] == (True, "unexplained")


def test_records_of_other_ranks_are_never_put_together():
    lines = [
        info(0, edge(0, 1, "NET/IB/0"), host="a").rstrip(),
        info(1, edge(1, 0, "NET/IB/1"), host="b").rstrip(),
    ]
    width = len(lines[0])
    text = "\n".join([*lines * 4, *at_column(info(0, comm(0, 2, "START"), host="a"), width)])
    joined = unwrap(text.encode()).decode().splitlines()
    assert joined[:8] == lines * 4
    assert joined[8].endswith("- Init START")


@pytest.mark.parametrize("breaker", BREAKERS)
@pytest.mark.parametrize("width", [44, 60, 72, 80])
def test_the_order_of_a_ring_keeps_its_ranks(breaker, width):
    ring = info(0, "Channel 00/02 : " + "".join(f"{rank:>4}" for rank in range(24)))
    assert said_of(ring)["nranks"] == (24, "ring")
    assert said_of(wrapped(ring, width, breaker))["nranks"] == (24, "ring")


@pytest.mark.parametrize("text", ["Using network Socket", "NET/Socket : Using [0]eth0:10.0.0.5<0>"])
@pytest.mark.parametrize("breaker", BREAKERS)
def test_the_network_s_name_keeps_its_letters(text, breaker):
    line = info(0, text)
    for width in range(34, len(line)):
        assert said_of(wrapped(line, width, breaker))["net_selected"] in {"Socket", None}, width
        broken_behind = line[: width - 1].endswith(("Using", "network", ":", "INFO"))
        if broken_behind:
            assert said_of(wrapped(line, width, breaker))["net_selected"] == "Socket", width


def test_what_the_program_prints_is_no_end_of_a_record_that_has_one():
    text = wrapped(LOGS["InfiniBand"], 80, at_column)
    printed = text.replace("Using network IB\n", "Using network IB\nstep 1\n")
    assert said_of(printed) == said_of(LOGS["InfiniBand"])


def test_a_log_that_nobody_can_have_pasted_is_read_as_it_is(tmp_path, monkeypatch):
    assert nccl_explanation.MAX_WRAPPED_BYTES == 4 << 20
    log = tmp_path / "nccl.log"
    log.write_text(wrapped(LOGS["socket"], 72, at_words))
    monkeypatch.setattr(nccl_explanation, "MAX_WRAPPED_BYTES", 1000)
    assert (
        said(nccl_explanation.read([str(log)]))["fallback"] != said_of(LOGS["socket"])["fallback"]
    )


@pytest.mark.parametrize("breaker", BREAKERS)
def test_lines_that_lost_their_beginning_are_put_together_too(breaker):
    texts = [edge(0, 1, "NET/Socket/0", channel) for channel in range(4)]
    stripped = wrapped("\n".join([*texts, "Using network Socket"]), 40, breaker)
    facts = unwrap(plain(stripped.encode())).decode().splitlines()
    assert [line.split() for line in facts[:4]] == [text.split() for text in texts]


EDGE = info(0, edge(0, 1, "NET/Socket/0")).rstrip()


def unwrapped(parts: list[str]) -> list[str]:
    return unwrap("\n".join(parts).encode()).decode().split("\n")


@pytest.mark.parametrize(("before", "joined"), [(2000, True), (2001, False)])
def test_a_log_that_lacks_no_end_in_4000_lines_was_not_wrapped(before, joined):
    whole = [EDGE, "step 1 done"] * before
    broken = [EDGE[:50], EDGE[50:]]
    assert unwrapped([*whole, *broken]) == [*whole, *([EDGE] if joined else broken)]


@pytest.mark.parametrize(("breaks", "joined"), [([37, 58, 66], True), ([37, 58, 66, 79], False)])
def test_three_breaks_may_each_have_been_a_blank_or_nothing(breaks, joined):
    edges = zip([0, *breaks], [*breaks, len(EDGE)], strict=True)
    parts = [EDGE[begin:end].strip() for begin, end in edges]
    assert unwrapped(parts) == ([EDGE] if joined else parts)


def test_a_record_has_64_lines_at_most():
    ring = info(0, "Channel 00/02 : " + "".join(f"{rank:>4}" for rank in range(1000))).rstrip()
    parts = at_column(ring, 60)
    assert len(parts) == 68
    first, second = unwrapped(parts)
    assert first.split() == " ".join(parts[:64]).split()
    assert second.split() == " ".join(parts[64:]).split()


@pytest.mark.parametrize(("before", "quoted"), [(798, True), (800, False)])
def test_the_first_1600_lines_show_whether_a_log_was_quoted(before, quoted):
    plain_lines = [EDGE, "step 1 done"] * (before // 2)
    rest = [f"> {EDGE}", "> step 1 done"] * 400
    joined = unwrapped([*plain_lines, *rest, f"> {EDGE[:50]}", f"> {EDGE[50:]}"])
    assert (joined[-1] == EDGE) == quoted
