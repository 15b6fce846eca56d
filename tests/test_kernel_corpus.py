"""The verdict on labelled excerpts of real kernel logs, where they are at hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from rankscope_agent.contract.kernel.log import KernelLog
from rankscope_agent.contract.kernel.verdict import judge

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpora" / "kmsg"

CAUSE_BAR, ACTION_BAR = 0.90, 0.80

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no labelled logs in {CORPUS}")


def labelled() -> list[tuple[dict, KernelLog]]:
    found = []
    for path in sorted(CORPUS.glob("*.log")):
        log = KernelLog()
        log.feed(path.read_bytes())
        found.append((json.loads(path.with_suffix(".json").read_text()), log))
    return found


def test_every_xid_has_its_code_gpu_and_process():
    for label, log in labelled():
        wanted = Counter((x["code"], x["pci"], x["pid"]) for x in label["xids"])
        found = {
            (s.event.code, s.event.pci, s.event.pid): s.count
            for s in log.seen
            if s.event.kind == "xid"
        }
        assert found == wanted, label["source"]


def test_causes_and_actions_are_those_of_the_labels_on_nearly_all_logs():
    cases = [(label, judge(log.seen, log.boot)) for label, log in labelled()]
    causes = [label["root_cause_class"] == verdict.cause for label, verdict in cases]
    actions = [label["action_expected"] == verdict.action for label, verdict in cases]
    print(f"cause {sum(causes)}, action {sum(actions)} of {len(cases)}")
    assert cases
    assert sum(causes) >= CAUSE_BAR * len(cases)
    assert sum(actions) >= ACTION_BAR * len(cases)


def test_benign_logs_have_no_incident():
    benign = [log for label, log in labelled() if label["root_cause_class"] == "benign"]
    assert benign
    assert not [
        judge(log.seen, log.boot).incidents for log in benign if judge(log.seen, log.boot).incidents
    ]
