"""The paths for evidence of stalled jobs: what is known now, and what was saved."""

from __future__ import annotations

from rankscope_agent.serving.json_response import json_response
from rankscope_agent.sources.evidence.node_evidence import PARTS, NodeEvidence
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence
from rankscope_agent.web.routes import Request, Response, sentence

SHOWN = ("id", "job_id", "since_unix_seconds", "taken_unix_seconds")
"""What a list contains about each saved piece of evidence."""


class EvidencePaths:
    """Answers both paths; if an agent has nothing, the answer is empty.

    Args:
        node: name of this node.
        evidence: what the node knows now.
        kept: what was saved.
    """

    def __init__(
        self, node: str, evidence: NodeEvidence | None, kept: SavedEvidence | None
    ) -> None:
        self._node = node
        self._evidence = evidence
        self._kept = kept

    def part(self, request: Request) -> Response:
        """Return one part of the evidence about one job; separate requests, so that none waits."""
        job, wanted = (request.query.get(name, [""])[0] for name in ("job", "part"))
        part = next((name for name in PARTS if name == wanted), None)
        if set(request.query) != {"job", "part"} or not job or part is None:
            return sentence(400, f"This path takes job and part: {', '.join(PARTS)}.")
        known = self._evidence.part(part, job) if self._evidence else {}
        return json_response({"node": self._node, **known}, in_one_line=True)

    def hangs(self, request: Request) -> Response:
        """List what was saved, of one job or all, or return the evidence with an id."""
        if not set(request.query) <= {"job", "id"}:
            return sentence(400, "Unknown query parameter; this path takes job and id.")
        job, name = (request.query.get(one, [""])[0] for one in ("job", "id"))
        if name:
            found = self._kept.get(name) if self._kept else None
            if found is None or job not in ("", found.get("job_id")):
                return sentence(404, "No evidence is kept under this id.")
            return json_response({"node": self._node, "hang": found}, in_one_line=True)
        return json_response({"node": self._node, "hangs": self._listed(job)})

    def _listed(self, job: str) -> list[dict[str, object]]:
        if self._kept is None:
            return []
        known = (self._kept.get(name) for name in self._kept.names())
        return [
            {name: one.get(name) for name in SHOWN}
            for one in known
            if one is not None and job in ("", one.get("job_id"))
        ]
