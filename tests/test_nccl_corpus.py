"""Real logs with hand-made labels, where they lie beside the checkout: every field is scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_job_text import facts_of
from rankscope_agent.contract.nccl.verdict import judge

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpora" / "nccl"

BAR = 0.95

# A number that a label infers from outside of the excerpt, as its text says, is none to be read.
INFERRED = " ("

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no labelled logs in {CORPUS}")


def _answers(log: Path) -> dict[str, object]:
    facts = facts_of(log.read_bytes())
    verdict = judge(facts)
    return {
        "nccl_version": verdict.nccl_version,
        "ranks_seen": list(verdict.ranks_seen),
        "nranks": verdict.nranks,
        "net_selected": verdict.net_selected,
        "inter_node_transports": list(verdict.network.transports),
        "gdr": verdict.network.gdr,
        "socket_fallback": verdict.network.socket_fallback,
        "init_complete_ranks": list(verdict.init_complete_ranks),
        "warnings": sorted(facts.warnings),
    }


def _label(log: Path) -> dict[str, object]:
    label = json.loads(log.with_suffix(".json").read_text())
    if INFERRED in (label["nccl_version"] or ""):
        label["nccl_version"] = None
    return label | {"warnings": sorted(label["warnings"])}


def _scores() -> dict[str, list[str]]:
    """Return for each field the logs in which it is wrong."""
    wrong: dict[str, list[str]] = {}
    for log in sorted(CORPUS.glob("*.log")):
        label = _label(log)
        for field, answer in _answers(log).items():
            wrong.setdefault(field, [])
            if answer != label[field]:
                wrong[field].append(f"{log.stem}: {answer!r}, labelled {label[field]!r}")
    return wrong


def test_every_labelled_field_is_right_on_nearly_all_logs():
    logs = len(list(CORPUS.glob("*.log")))
    wrong = _scores()
    for field, cases in wrong.items():
        print(f"{field}: {logs - len(cases)}/{logs}", *cases, sep="\n  ")
    assert logs > 0
    assert all(len(cases) <= (1 - BAR) * logs for cases in wrong.values()), wrong


def test_no_log_is_called_a_fallback_or_not_against_its_label():
    assert _scores()["socket_fallback"] == []
