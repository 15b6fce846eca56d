"""What a capture holds besides the diagnosis: agents' responses, what they kept, and objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.captures.objects import without_secrets
from rankscope_analyzers.intake import agent_evidence
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.agent_evidence import FIRST, LAST, RAS, Answers
from rankscope_analyzers.intake.job_objects import JobObjects
from rankscope_analyzers.text import finite_json
from rankscope_analyzers.text.file_stem import file_stem

RAS_APART_SECONDS = 5.0
"""Between two RAS reports: counts that differ but change are normal."""

MAX_SENTENCES = 64
"""Limit of the sentences on what could not be read."""

Parts = Sequence[tuple[str, Answers]]
"""The requests, in the order in which they were made, and the responses."""


@dataclass(frozen=True, slots=True)
class CaptureEvidence:
    """Evidence that is kept as it was read.

    Args:
        parts: what agents know.
        kept: what agents kept when the job stood still.
        objects: of the cluster, None if none were requested.
    """

    parts: Parts = ()
    kept: Answers | None = None
    objects: JobObjects | None = None

    def files(self) -> Mapping[str, bytes]:
        """Return the files, those whose source disappears first before the rest."""
        made = {}
        for number, (name, answers) in enumerate(self.parts, start=1):
            for node, answer in answers.items():
                made[f"evidence/{number}-{name}-{file_stem(node)}.json"] = _json(answer)
        for node, one in (self.kept or {}).items():
            made[f"kept/{file_stem(node)}.json"] = _json(one)
        if self.objects is not None:
            pods = [without_secrets(pod) for pod in self.objects.pods]
            owners = [without_secrets(owner) for owner in self.objects.owners]
            made["objects/pods.json"] = _json({"pods": pods})
            made["objects/owners.json"] = _json({"owners": owners})
        return made

    def not_read(self) -> Sequence[str]:
        """Return what could not be read, as sentences."""
        sentences = list(dict.fromkeys(self._not_read()))
        more = len(sentences) - MAX_SENTENCES
        return [*sentences[:MAX_SENTENCES], *([f"and {more} more"] if more > 0 else [])]

    def _not_read(self) -> Iterator[str]:
        for name, answers in self.parts:
            for node, answer in answers.items():
                found = answer.get(name)
                why = answer.get("not_read") or (
                    found.get("not_read") if isinstance(found, dict) else ""
                )
                if why:
                    yield f"{name} of {node}: {str(why)[:200]}"
        for node, one in (self.kept or {}).items():
            if "not_read" in one:
                yield f"what {node} kept: {str(one['not_read'])[:200]}"
        yield from self.objects.not_read if self.objects else ()


def _json(value: Any) -> bytes:
    return (finite_json.text(value, indent=1) + "\n").encode()


class EvidenceReader:
    """Queries agents for their evidence, the most short-lived first.

    Args:
        agents: of the job's nodes.
        job_id: the job.
        wait: sleeps.
    """

    def __init__(
        self, agents: Sequence[Agent], job_id: str, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._agents = agents
        self._job_id = job_id
        self._wait = wait
        self._parts: list[tuple[str, Answers]] = []
        self._asked_ras = float("-inf")

    def first(self) -> None:
        """Read what does not last."""
        self._asked_ras = time.monotonic()
        self._read(FIRST)

    def rest(self) -> Parts:
        """Read what lasts a while, RAS a second time if it is available; return everything read."""
        name, answers = self._parts[0]
        again = agent_evidence.readable(answers, name)
        if again:
            self._wait(max(0.0, self._asked_ras + RAS_APART_SECONDS - time.monotonic()))
        self._read([one for one in LAST if again or one != RAS])
        return self._parts

    def _read(self, names: Sequence[str]) -> None:
        for name in names:
            self._parts.append((name, agent_evidence.part(self._agents, self._job_id, name)))
