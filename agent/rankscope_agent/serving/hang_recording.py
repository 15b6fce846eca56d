"""Assembles what saves the evidence of stalled jobs, in a separate thread."""

from __future__ import annotations

import threading

from rankscope_agent.collecting.registry import Registry
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.evidence.hang_recorder import HangRecorder
from rankscope_agent.sources.evidence.node_evidence import node_evidence
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence
from rankscope_agent.sources.evidence.stalled_jobs import StalledJobs
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource


class HangRecording:
    """What a node knows about stalled jobs, and what is saved of it.

    Args:
        config: the agent's settings.
        registry: its collectors, whose page is saved too.
        rings: the node's rings.
    """

    def __init__(self, config: Config, registry: Registry, rings: RingStepSource) -> None:
        self.stalls = StallSource(rings, config.procfs)
        self.evidence = node_evidence(config, rings, self.stalls)
        self.kept = SavedEvidence(config.state_dir)
        self._recorder = HangRecorder(
            config.node_name,
            StalledJobs(rings, RingSpanSource(rings)),
            self.evidence,
            lambda: render(registry.snapshot(), TEXT, config.max_series).decode(),
            self.kept,
        )
        self._thread = threading.Thread(target=self._recorder.run, name="hangs", daemon=True)

    def start(self) -> None:
        """Start looking for stalled jobs."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; evidence that is being collected is lost."""
        self._recorder.stop()
