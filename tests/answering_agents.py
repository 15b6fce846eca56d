"""Servers that answer like the agents of nodes with ranks of one job, as far as readers ask."""

from __future__ import annotations

import functools
import http.server
import json
import threading
import time

from simulated_jobs import Fault, Job, records

SLOW = Job(ranks=8, steps=80, faults=(Fault("compute", (5,), 0.5, first_step=30),))
RECORDS = records(SLOW)


@functools.cache
def steps(node, ranks, ahead):
    """Return the records of ranks on a node as an agent serves them."""
    rows = RECORDS[RECORDS["rank"].isin(ranks)].assign(job_id="t/j", node=node)
    rows["t_start_unix_seconds"] += ahead
    body = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": False}
    return json.dumps(body).encode()


class Agent:
    """Answers like the agent of one node with ranks of a job; `ahead` is its clock's error."""

    def __init__(self, node="n0", ranks=range(4), ahead=0.0, environment=(), page=""):
        self.node, self.ranks, self.ahead = node, list(ranks), ahead
        self.environment, self.more = dict(environment), page
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = agent.answer(self.path.partition("?")[0])
                self.send_response(200 if body is not None else 404)
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_):
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, path):
        if path == "/metrics":
            return self.page().encode()
        return {
            "/healthz": json.dumps({"node": self.node, "unobserved": {}}).encode(),
            "/api/v1/ranks": json.dumps({"ranks": self.identities()}).encode(),
            "/api/v1/steps": self.steps(),
            "/api/v1/pods": json.dumps({"ranks": self.variables()}).encode(),
        }.get(path)

    def page(self):
        lines = [f"rankscope_snapshot_timestamp_seconds {time.time() + self.ahead}\n", self.more]
        for rank in self.ranks:
            labels = f'job_id="t/j",rank="{rank}"'
            lines.append(
                f'rankscope_rank_info{{{labels},node="{self.node}",local_rank="{rank % 4}"}} 1\n'
            )
            word = hash(self.environment.get(rank, ""))
            lines.append(f'rankscope_rank_environment_info{{{labels},hash="{word}"}} 1\n')
        return "".join(lines)

    def identities(self):
        return [
            {"job_id": "t/j", "rank": rank, "world_size": 8, "alive": True} for rank in self.ranks
        ]

    def variables(self):
        return [
            {
                "job_id": "t/j",
                "rank": rank,
                "environment": {"NCCL_IB_HCA": self.environment.get(rank, "mlx5")},
            }
            for rank in self.ranks
        ]

    def steps(self):
        return steps(self.node, tuple(self.ranks), self.ahead)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
