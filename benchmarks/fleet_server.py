"""Stands in for many agents: one server process, with each agent under its own path.

python -m benchmarks.fleet_server PORT AGENTS STEPS STEP_SECONDS

All ranks belong to one job, of which one computes longer in the second half of its steps.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import math
import re
import socketserver
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from functools import cache
from urllib.parse import parse_qs, urlsplit

import numpy as np
from benchmarks.commands import environment
from benchmarks.processes import START_SECONDS

from rankscope_analyzers.demo.free_ports import free_port

RANKS_OF_A_NODE = 8
JOB = "t/j"
SLOW_NODE, SLOW_LOCAL_RANK = 3, 5
SLOW = SLOW_NODE * RANKS_OF_A_NODE + SLOW_LOCAL_RANK
LATE_FACTOR = 1.5
"""Factor by which the slow rank computes longer; all wait for it, so that every step does."""

SERVED_SECONDS = 1800.0
"""Seconds for which a fleet continues stepping while it is queried."""

GZIP = 31  # zlib's number for a gzip header and the largest window

COLUMNS = (
    *("job_id", "rank", "step", "t_start_unix_seconds", "step_seconds", "data_seconds"),
    *("compute_seconds", "sync_seconds", "node"),
)


@contextlib.contextmanager
def fleet(agents: int, steps: int, step_seconds: float) -> Iterator[list[str]]:
    """Serve until the block ends; yield the agents' addresses."""
    port = free_port()
    arguments = [str(port), str(agents), str(steps), str(step_seconds)]
    command = [sys.executable, "-m", "benchmarks.fleet_server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            if server.stdout is None or not server.stdout.readline():
                raise RuntimeError(f"{command} did not listen within {START_SECONDS} s")
            yield [f"http://127.0.0.1:{port}/{number}" for number in range(agents)]
        finally:
            server.kill()


class Fleet:
    """The responses of all agents; pages are made per request, records when the fleet starts."""

    def __init__(self, agents: int, steps: int, step_seconds: float) -> None:
        self.agents = agents
        self.steps = steps
        self.step_seconds = step_seconds
        self.begin = time.time() - (steps + 1) * step_seconds
        self.page = page_of_a_node()

    def answer(self, node: int, path: str, since: float) -> str:
        """Return one agent's response for a path, steps from `since` (Unix time) on."""
        name = f"gpu-{node:04d}"
        if path == "/metrics":
            page = self.page.replace("@NODE@", name).replace("@TIME@", str(time.time()))
            return page + "".join(
                f'rankscope_rank_info{{job_id="{JOB}",rank="{node * RANKS_OF_A_NODE + n}",'
                f'node="{name}",local_rank="{n}",uuid=""}} 1\n'
                for n in range(RANKS_OF_A_NODE)
            )
        if path == "/healthz":
            return json.dumps({"node": name, "unobserved": {}})
        first = node * RANKS_OF_A_NODE
        if path == "/api/v1/ranks":
            world = self.agents * RANKS_OF_A_NODE
            alive = {"job_id": JOB, "world_size": world, "alive": True}
            ranks = [{**alive, "rank": first + n} for n in range(RANKS_OF_A_NODE)]
            return json.dumps({"ranks": ranks})
        # A step is reported after it has ended.
        ended = int((time.time() - self.begin) / self.step_seconds)
        wanted = max(0, math.ceil((since - self.begin) / self.step_seconds))
        rows = ",".join(self._records(node == SLOW_NODE)[wanted:ended]).replace("@NODE@", name)
        for n in range(RANKS_OF_A_NODE):
            rows = rows.replace(f"@{n}@", str(first + n))
        header = json.dumps({"columns": COLUMNS})
        return f'{header[:-1]},"rows":[{rows}],"truncated":false}}'

    @cache  # noqa: B019 - there is one fleet in the process
    def _records(self, slow: bool) -> list[str]:
        """Return the rows of each step."""
        random = np.random.default_rng(0)
        return [
            ",".join(
                f'["{JOB}",@{n}@,{step},{self.begin + step * self.step_seconds:.6f},{row},"@NODE@"]'
                for n in range(RANKS_OF_A_NODE)
                for row in [self._row(step, random, late=slow and n == SLOW_LOCAL_RANK)]
            )
            for step in range(self.steps + int(SERVED_SECONDS / self.step_seconds))
        ]

    def _row(self, step: int, random: np.random.Generator, *, late: bool) -> str:
        """Return step, data, compute and sync seconds of a rank."""
        compute = 0.7 * self.step_seconds * (1 + 0.01 * abs(random.standard_normal()))
        whole = self.step_seconds
        if step >= self.steps // 2:
            whole += (LATE_FACTOR - 1) * 0.7 * self.step_seconds
            compute *= LATE_FACTOR if late else 1.0
        data = 0.01 * self.step_seconds
        return f"{whole:.6f},{data:.6f},{compute:.6f},{whole - data - compute:.6f}"


def page_of_a_node() -> str:
    """Return the page of a real agent with eight simulated GPUs, without its name and time."""
    agent = [sys.executable, "-m", "rankscope_agent", "--once", "--simulate=h100x8"]
    done = subprocess.run(agent, capture_output=True, text=True, check=True, env=environment())
    # Jobs that run on this machine do not belong to the fleet.
    text = re.sub(r'(?m)^.*[{,]job_id=".*\n', "", done.stdout).replace("GPU-", "GPU-@NODE@-")
    return re.sub(r"(?m)^(rankscope_snapshot_timestamp_seconds) .*$", r"\1 @TIME@", text)


def main(port: int, served: Fleet) -> None:
    """Answer until killed; a line on standard output shows that it listens."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            node, _, path = asked.path[1:].partition("/")
            since = float(parse_qs(asked.query).get("since", ["0"])[0])
            body = zlib.compress(served.answer(int(node), f"/{path}", since).encode(), 1, GZIP)
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            return

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
        request_queue_size = 256

    with Server(("127.0.0.1", port), Handler) as server:
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Fleet(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
