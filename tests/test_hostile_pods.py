"""What a pod says of itself, at whatever length, makes no collector of a real agent fail."""

from __future__ import annotations

import re
import time

from benchmarks.hostile.attackers import volume
from benchmarks.hostile.nodes import ANNOTATION, SHOWN, node, tenants_pod
from benchmarks.hostile.watching import SUCCESS, page_of

from ring_writer import RingWriter

PATIENCE_SECONDS = 120.0
LABEL = re.compile(r'="((?:[^"\\]|\\.)*)"')


def page_with(agent, *texts: str) -> str:
    """Return an agent's page once it holds all of these."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        page = page_of(agent.url, SHOWN)
        if all(text in page for text in texts):
            return page
        assert time.monotonic() < deadline, page
        time.sleep(0.2)


def test_annotations_labels_and_owners_of_3000_characters_make_no_collector_fail(tmp_path):
    with node(tmp_path / "n0") as one:
        ours = RingWriter(one.add_pod("llm", "llm-0", 1), job_id="team/llm")
        ours.step(3)
        steps = 'rankscope_steps_total{job_id="team/llm",rank="0"} '
        succeeded = [
            f'rankscope_collector_success{{collector="{name}"}} 1'
            for name in ("pods", "training", "nccl_log")
        ]
        before = page_with(one.agent, f"{steps}3", *succeeded)
        theirs = RingWriter(volume(one.folder, 0), job_id="x")
        theirs.step()
        for turn in range(3):
            one.api.put(tenants_pod("n0", 0, turn))
        ours.step(3)
        after = page_with(one.agent, 'pod_namespace="tenant"', f"{steps}6")
        assert set(SUCCESS.findall(before)) <= set(SUCCESS.findall(after))
        assert ANNOTATION[:254] not in after
        assert max(len(label) for label in LABEL.findall(after)) <= 320
        assert "yields invalid samples" not in one.agent.log.read_text()
    for writer in (ours, theirs):
        writer.end()
