"""Agents that send the step records of rings, and older ones, and a reader that follows them."""

from __future__ import annotations

import contextlib
import json

from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.contract.step_blocks import MEDIA_TYPE
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.web.routes import JSON_TYPE, Response, Route, sentence
from rankscope_analyzers.intake.credentials import NONE
from rankscope_analyzers.intake.step_stream import StepStream

NOW = 1_700_000_100.0
"""A hundred seconds after rings of tests begin."""

WAIT_SECONDS = 5.0


class Rings:
    """The rings of a node behind the paths of an agent; `asked` are the queries for steps."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = []
        self.cut = False
        folder.mkdir()

    def steps(self, request):
        self.asked.append(dict(request.query))
        since = float(request.query.get("since", ["0"])[0])
        source = RingStepSource(self.folder, self.folder / "none", self.folder.name)
        cursors = request.query.get("after", [""])[0]
        known = dict(part.split(":") for part in cursors.split(",") if part)
        fresh = source.fresh(None, since, {name: int(number) for name, number in known.items()})
        pieces = steps_blocks(fresh, self.folder.name)
        return Response(200, MEDIA_TYPE, self.sent(pieces), compress=not self.cut)

    def sent(self, pieces):
        for number, piece in enumerate(pieces):
            if self.cut and number:
                raise BrokenPipeError("the agent is killed in the middle of its answer")
            yield piece

    def routes(self):
        return {"/api/v1/steps": Route(self.steps, "open")}


@contextlib.contextmanager
def followed(*urls, **more):
    stream = StepStream(NONE, 1800.0, **more)
    try:
        yield lambda: stream.look(urls, NOW, WAIT_SECONDS), stream
    finally:
        stream.connections.close()


def steps_of(stream, job="team/job"):
    if job not in stream.windows.jobs:
        return []
    records = stream.windows.of(job).records()
    return sorted(zip(records["rank"].astype(int), records["step"].astype(int), strict=True))


ROW = ("team/job", 0, 3, "old-node", 3, NOW - 50, 0.5, 0.1, 0.2, 0.2, 0, 3, 0, 0, 8, 0, "kernel")


class OldAgent:
    """Sends JSON and knows no cursors, as agents did before there were any."""

    def __init__(self):
        self.asked = []
        self.steps = 2

    def answer(self, request):
        self.asked.append(dict(request.query))
        if "after" in request.query:
            return sentence(400, "Unknown query parameter; this path takes job and since.")
        since = float(request.query["since"][0])
        rows = [(ROW[0], step, *ROW[2:5], ROW[5] + step, *ROW[6:]) for step in range(self.steps)]
        told = [row for row in rows if row[5] >= since]
        columns = STEP_COLUMNS[: len(ROW)]
        body = {"node": "old-node", "columns": columns, "rows": told, "truncated": False}
        return Response(200, JSON_TYPE, json.dumps(body).encode())

    def ranks(self, request):
        rank = {"job_id": "team/job", "rank": 3, "world_size": 8, "alive": True}
        body = json.dumps({"node": "old-node", "ranks": [rank]}).encode()
        return Response(200, JSON_TYPE, body)

    def routes(self):
        return {
            "/api/v1/steps": Route(self.answer, "open"),
            "/api/v1/ranks": Route(self.ranks, "open"),
        }
