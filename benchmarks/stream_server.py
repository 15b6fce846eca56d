"""Stands in for many agents whose steps are followed: one process, each agent under its own path.

python -m benchmarks.stream_server PORT AGENTS [CERTIFICATE KEY TOKEN]

With a certificate, its key and a token they answer by TLS, and only with the token. Responses are
made of blocks that were built before. Of every eight jobs two get a slow rank and one becomes
slower as a whole while it runs; one agent of ten accepts requests and never answers, another one
answers after three seconds.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
from benchmarks.fleet_server import page_of_a_node

from rankscope_agent.contract import step_blocks as form
from rankscope_agent.contract.api_version import API_VERSION, HEADER

RANKS_OF_A_NODE = 8
AGENTS_OF_A_JOB = 16
HISTORY_STEPS = 120
"""Steps that jobs have made when the server starts."""

FAULT_SECONDS = 50.0
"""Seconds after the start of the server: the watch has read all agents by then."""

MOST_STEPS = 1200
COMPUTE, DATA, TRANSFER = 0.7, 0.02, 0.28
SLOW_FACTOR, JOB_FACTOR = 1.5, 1.4
SLOW_SECONDS = 3.0
GZIP = 31
NOISES = 4
SLOW_RANK = 5
"""Offset of the first node of a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job: `fault` is "", "rank" or "job"; `starts` are of each step."""

    number: int
    fault: str
    starts: np.ndarray

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return f"team/job-{self.number:04d}"


def fault_of(number: int) -> str:
    """Return the fault of a job."""
    return {1: "rank", 5: "rank", 3: "job"}.get(number % 8, "")


def hangs(agent: int) -> bool:
    """Return True for agents that never answer; the slow ranks are not on these."""
    return agent % 10 == 9


def is_slow(agent: int) -> bool:
    """Return True for agents that answer late."""
    return agent % 10 == 4


class Fleet:
    """All agents."""

    def __init__(self, agents: int) -> None:
        self.agents = agents
        self.began = time.time()
        first = int((self.began + FAULT_SECONDS) - (self.began - HISTORY_STEPS))
        self.fault_step = first
        count = -(-agents // AGENTS_OF_A_JOB)
        self.kinds = {kind: self._rows(kind) for kind in ("", "rank", "job")}
        self.starts = {kind: self._starts(kind) for kind in self.kinds}
        self.jobs = [Job(n, fault_of(n), self.starts[fault_of(n)]) for n in range(count)]
        self.page = page_of_a_node()
        self.lateness = {n: SLOW_SECONDS if is_slow(n) else 0.0 for n in range(agents)}

    def _lengths(self, kind: str) -> np.ndarray:
        steps = np.full(MOST_STEPS, COMPUTE + DATA + TRANSFER)
        more = {"": 0.0, "rank": SLOW_FACTOR - 1, "job": JOB_FACTOR - 1}[kind]
        steps[self.fault_step :] += more * COMPUTE
        return steps

    def _starts(self, kind: str) -> np.ndarray:
        ends = np.cumsum(self._lengths(kind))
        return self.began - HISTORY_STEPS + np.append(0.0, ends)

    def _rows(self, kind: str) -> list[np.ndarray]:
        """Return (kind of node, columns, ranks) for each step: usual nodes, and the slow rank's."""
        random = np.random.default_rng(0)
        lengths = self._lengths(kind)
        found = []
        for step in range(MOST_STEPS):
            late = step >= self.fault_step
            noise = 0.01 * np.abs(random.standard_normal((NOISES + 1, RANKS_OF_A_NODE)))
            compute = COMPUTE * (1 + noise) * (JOB_FACTOR if late and kind == "job" else 1.0)
            if late and kind == "rank":
                compute[NOISES, SLOW_RANK] *= SLOW_FACTOR
            found.append(np.stack([np.full_like(compute, lengths[step]), compute]))
        return found

    def answer(self, agent: int, path: str, query: Mapping[str, list[str]]) -> tuple[str, bytes]:
        """Return the media type and the body of an agent's response."""
        if path == "/metrics":
            name = f"gpu-{agent:05d}"
            page = self.page.replace("@NODE@", name).replace("@TIME@", str(time.time()))
            return "text/plain", (page + self._ranks_on_page(agent, name)).encode()
        if path == "/healthz":
            return "application/json", json.dumps({"node": f"gpu-{agent:05d}"}).encode()
        if path == "/api/v1/steps":
            return form.MEDIA_TYPE, self.steps(agent, query)
        empty = {"columns": [], "rows": [], "truncated": False, "stalls": [], "windows": []}
        return "application/json", json.dumps(empty).encode()

    def _ranks_on_page(self, agent: int, name: str) -> str:
        job, first = self.jobs[agent // AGENTS_OF_A_JOB], self._first_rank(agent)
        return "".join(
            f'rankscope_rank_info{{job_id="{job.name}",rank="{first + n}",node="{name}",'
            f'local_rank="{n}",uuid=""}} 1\n'
            for n in range(RANKS_OF_A_NODE)
        )

    @staticmethod
    def _first_rank(agent: int) -> int:
        return agent % AGENTS_OF_A_JOB * RANKS_OF_A_NODE

    def steps(self, agent: int, query: Mapping[str, list[str]]) -> bytes:
        """Return the records that a reader does not have."""
        job = self.jobs[agent // AGENTS_OF_A_JOB]
        cursors = form.cursors_of(query.get("after", [""])[0])
        ended = int(np.searchsorted(job.starts, time.time())) - 1
        first = min(cursors.values(), default=1) - 1
        text = self._head(agent, job, whole=not cursors)
        parts = [form.HEAD.pack(form.MAGIC, form.VERSION, 0, len(text)), text]
        parts += [self._block(agent, job, step) for step in range(first, ended)]
        behind = [max(first, ended) + 1] * RANKS_OF_A_NODE
        tail = json.dumps({"next": behind, "truncated": False}).encode()
        return b"".join((*parts, form.BLOCK.pack(0, len(tail)), tail))

    def _head(self, agent: int, job: Job, *, whole: bool) -> bytes:
        world = min(AGENTS_OF_A_JOB, self.agents - job.number * AGENTS_OF_A_JOB) * RANKS_OF_A_NODE
        rings = [
            {
                "ring": f"{agent * RANKS_OF_A_NODE + n:016x}", "whole": whole, "job_id": job.name,
                "rank": self._first_rank(agent) + n, "node": f"gpu-{agent:05d}", "local_rank": n,
                "world_size": world, "alive": True, "attempt": 0, "dp_group": 0,
                "tp_group": self._first_rank(agent) + n, "pp_stage": 0, "pod_uid": "u",
                "pod_namespace": "team",
            }
            for n in range(RANKS_OF_A_NODE)
        ]  # fmt: skip
        head = {"node": "", "columns": form.NUMBERS, "timing_sources": form.TIMING_SOURCES}
        return json.dumps({**head, "rings": rings}).encode()

    def _block(self, agent: int, job: Job, step: int) -> bytes:
        slow = agent % AGENTS_OF_A_JOB == 0
        length, compute = self.kinds[job.fault][step][:, NOISES if slow else agent % NOISES]
        known = {
            "ring": np.arange(RANKS_OF_A_NODE, dtype=np.float64), "timing": 1.0, "step": step,
            "t_start_unix_seconds": job.starts[step], "step_seconds": length,
            "data_seconds": DATA, "compute_seconds": compute,
            "sync_seconds": length - DATA - compute, "attempt": 0.0, "samples": 32.0, "flags": 0.0,
        }  # fmt: skip
        block = np.full((len(form.NUMBERS), RANKS_OF_A_NODE), np.nan)
        for row, name in enumerate(form.NUMBERS):
            if name in known:
                block[row] = known[name]
        return form.BLOCK.pack(RANKS_OF_A_NODE, 0) + block.astype("<f8").tobytes()


@dataclass(frozen=True, slots=True)
class Guard:
    """The agents' access control.

    Args:
        context: for TLS, None without.
        shown: the header line that a reader has to send, empty if everybody has access.
    """

    context: ssl.SSLContext | None = None
    shown: bytes = b""


def guard_of(files: Sequence[str]) -> Guard:
    """Return the access control of agents with a certificate, its key and a token, or without."""
    if not files:
        return Guard()
    certificate, key, token = files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return Guard(context, f"Authorization: Bearer {Path(token).read_text().strip()}".encode())


async def serve(port: int, fleet: Fleet, guard: Guard) -> None:
    """Answer until killed; a line on standard output shows that it listens."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if guard.shown not in head:
                    break
                await answered(head, writer)
            writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answered(head: bytes, writer: asyncio.StreamWriter) -> None:
        asked = urlsplit(head.split(b" ", 2)[1].decode())
        agent, _, path = asked.path[1:].partition("/")
        number = int(agent)
        if hangs(number):
            await asyncio.sleep(3600)
        if fleet.lateness[number]:
            await asyncio.sleep(fleet.lateness[number])
        kind, body = fleet.answer(number, f"/{path}", parse_qs(asked.query))
        packed = zlib.compress(body, 1, GZIP)
        lines = (
            "HTTP/1.1 200 OK",
            f"Content-Type: {kind}",
            f"{HEADER}: {API_VERSION}",
            "Content-Encoding: gzip",
            f"Content-Length: {len(packed)}",
        )
        writer.write("\r\n".join((*lines, "\r\n")).encode() + packed)
        await writer.drain()

    server = await asyncio.start_server(
        connected, "127.0.0.1", port, backlog=4096, ssl=guard.context
    )
    sys.stdout.write(json.dumps({"began": fleet.began, "fault_step": fleet.fault_step}) + "\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Fleet(int(sys.argv[2])), guard_of(sys.argv[3:])))
