"""Logs say what they said after a web page, a chat or an editor went over them."""

from __future__ import annotations

import json
import quopri
from collections.abc import Callable

import pytest

from nccl_job_text import edge, info, start, verdict_of
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_analyzers.logs import nccl_explanation
from rankscope_analyzers.logs.pasted_text import plain

JOB = "".join(start(rank, 16, "NET/Socket/0", network="Socket") for rank in (0, 7, 8, 15))


def lines_with(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(line) + "\n" for line in text.splitlines())


def entities(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")


PASTES: dict[str, Callable[[str], str]] = {
    "no-break spaces": lambda text: text.replace(" ", "\N{NO-BREAK SPACE}"),
    "zero-width spaces": lambda text: text.replace("/", "/\N{ZERO WIDTH SPACE}"),
    "tabs": lambda text: text.replace(" ", "\t"),
    "arrows": lambda text: text.replace("->", "\N{RIGHTWARDS ARROW}"),
    "dashes": lambda text: text.replace("->", "\N{EN DASH}>"),
    "entities": entities,
    "entities twice": lambda text: entities(text).replace("&", "&amp;"),
    "tags": lines_with(lambda line: f'<span class="line">{entities(line)}</span>'),
    "line breaks of HTML": lambda text: f"<p>{entities(text)}</p>".replace("\n", "<br/>"),
    "Markdown's escapes": lambda text: text.replace("[", "\\[").replace("_", "\\_"),
    "JSON's escapes": lambda text: text.replace(">", "\\u003e"),
    "one string": lambda text: json.dumps(text),
    "one paragraph": lambda text: text.replace("\n", " "),
    "carriage returns": lambda text: text.replace("\n", "\r"),
    "a table": lines_with(lambda line: f"| 12 | {line} |"),
    "a terminal's box": lines_with(lambda line: f"\N{BOX DRAWINGS LIGHT VERTICAL}{line:<150}│"),
    "a spoiler": lines_with(lambda line: f"||{line}||"),
    "bold words": lambda text: text.replace("NCCL INFO", "**NCCL INFO**"),
    "a mail's source": lambda text: quopri.encodestring(text.encode()).decode(),
    "progress bars": lines_with(lambda line: f"\r 45%|####  | 45/100 [00:10<00:12]{line}"),
    "quoted and broken": lines_with(
        lambda line: ">> " + line.replace(" ", "\N{NO-BREAK SPACE}").replace("[send]", "[send]\n>>")
    ),
}


@pytest.mark.parametrize("name", PASTES)
def test_a_pasted_log_says_the_same(name, tmp_path):
    log = tmp_path / "paste.txt"
    log.write_text(PASTES[name](JOB), newline="")
    whole, verdict = verdict_of(JOB), judge(nccl_explanation.read([str(log)]))
    assert verdict.network == whole.network
    assert verdict.network.socket_fallback is True
    assert (verdict.nranks, verdict.net_selected) == (whole.nranks, whole.net_selected)
    assert verdict.ranks_seen == whole.ranks_seen
    assert verdict.init_complete_ranks == whole.init_complete_ranks


def test_a_log_that_nobody_changed_is_left_alone():
    text = JOB.encode()
    assert plain(text) is text


def test_a_connection_that_was_cut_behind_its_rank_is_no_ring_of_one():
    assert verdict_of(info(7, "Channel 04/0 : 7")).nranks is None
    assert verdict_of(info(7, "Channel 00/32 :    0")).nranks == 1
    assert verdict_of(info(7, edge(7, 6, "P2P/CUMEM")) + info(7, "Channel 04/0 : 7")).nranks is None
