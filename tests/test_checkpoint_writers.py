"""Checkpoint files that several ranks of a node write: one file in one pod, two files in two."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from collected_page import CREATED_NS, Clock, Page
from known_pods import pods_of
from pod_json import uid
from rankscope_agent.contract.metrics import reported
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.files import POD_VOLUME
from ring_writer import NS, RingWriter, SpanWriter

SAVE, DONE, ONE_FILE = 1, 1, 8
"""Kind, outcome and flag of a span, as the probe documents them."""

CKPT_MODEL = 0x5A17
"""The checksum of a path, `/ckpt/model.pt`."""


def saving(volume: Path, rank: int, pod_uid: str) -> contextlib.closing[RingWriter]:
    """Return the ring of a living rank that has saved its model."""
    pid = 4242 + rank
    spans = SpanWriter(volume, f"{pid}-9.span", pid=pid)
    began = CREATED_NS + (1 + rank) * NS
    words = {"outcome": DONE, "flags": ONE_FILE, "target": CKPT_MODEL}
    spans.write(1, SAVE, start_ns=began, duration_ns=5 * NS, **words)
    ring = Ring(volume, f"{pid}-9.ring", rank=rank, pid=pid, pod_uid=pod_uid)
    ring.step()
    return contextlib.closing(ring)


class Ring(RingWriter):
    close = RingWriter.end


@pytest.mark.parametrize("says_its_pod", [False, True])
@pytest.mark.parametrize(("pods", "shared"), [((1, 2), 0), ((1, 1), 1)])
def test_equal_paths_are_one_file_within_a_pod_only(tmp_path, pods, shared, says_its_pod):
    """The injected probe is given no POD_UID: the volume of its ring says which pod it is in."""
    volumes = [tmp_path.joinpath("kubelet", "pods", uid(number), *POD_VOLUME) for number in pods]
    read = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods_of())
    with contextlib.ExitStack() as job:
        for rank, (volume, number) in enumerate(zip(volumes, pods, strict=True)):
            volume.mkdir(parents=True, exist_ok=True)
            job.enter_context(saving(volume, rank, uid(number) if says_its_pod else ""))
        page = Page(read)
    assert page.value(reported.CHECKPOINT_SHARED, "team/job") == shared
    wrote = [labels for labels in page.labels(reported.TRAINING_EVENT) if "path" in labels[2]]
    assert len(wrote) == 2 * shared
