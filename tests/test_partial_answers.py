"""Series of Thanos or VictoriaMetrics without one of their stores: what is concluded says so."""

from __future__ import annotations

import http.server
import json
import threading
from urllib.parse import parse_qs

import numpy as np
import pytest

from rankscope_agent.contract.metrics import training
from rankscope_analyzers import cli
from rankscope_analyzers.intake.prometheus_api import PrometheusError, parse_matrix

RATES = {
    training.STEPS.name: 1.0,
    training.STEP_SECONDS.name: 1.0,
    training.DATA_SECONDS.name: 0.1,
    training.COMPUTE_SECONDS.name: 0.6,
    training.SYNC_SECONDS.name: 0.3,
}
"""Increase per second of the counters of both ranks of a healthy job."""

RANKS = [
    {"instance": "10.0.0.1:9877", "node": "n0", "job_id": "team/llm", "world_size": "2", "rank": at}
    for at in ("0", "1")
]
DOWN = "receive series from Addr: store-1:10901: rpc error: code = Unavailable"
WARNED = [({"warnings": [DOWN]}, DOWN), ({"isPartial": True}, "the answer is partial")]


class Server(http.server.ThreadingHTTPServer):
    """Answers as Prometheus does of a job of two ranks, with more members in each answer."""

    def __init__(self, more, ranks=RANKS):
        super().__init__(("127.0.0.1", 0), Handler)
        self.more, self.ranks = more, ranks
        self.url = f"http://127.0.0.1:{self.server_port}"

    def data(self, form):
        query = form["query"][0]
        if "start" not in form:
            known = self.ranks if training.RANK_INFO.name in query else ()
            return "vector", [{"metric": rank, "value": [0, "1"]} for rank in known]
        start, end, step = (float(form[name][0]) for name in ("start", "end", "step"))
        rates = [rate for name, rate in RATES.items() if f"({name})" in query]
        times = np.arange(start, end, step)
        return "matrix", [
            {"metric": rank, "values": [[at, f"{at * rate}"] for at in times]}
            for rank in self.ranks
            for rate in rates
        ]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        kind, result = self.server.data(form)
        data = {"resultType": kind, "result": result}
        body = {"status": "success", "data": data, **self.server.more}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body, separators=(",", ":")).encode())

    def log_message(self, *_):
        return


@pytest.fixture
def serving():
    """Return a function that starts a server and gives its address."""
    servers = []

    def start(*arguments):
        servers.append(server := Server(*arguments))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server.url

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def said(capsys, *arguments, code=0):
    assert cli.main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("more", "why"), WARNED)
def test_a_verdict_on_series_that_are_not_whole_says_so(serving, capsys, more, why):
    url = serving(more)
    sentence = f"series may be missing: Prometheus {url} warns: {why}"
    assert sentence in said(capsys, "diagnose", "--prometheus", url)["team/llm"]["unobserved"]
    assert sentence in said(capsys, "xids", "--prometheus", url, code=1)["unobserved"]
    assert cli.main(["jobs", "--prometheus", url]) == 0
    assert sentence in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("more", [{}, {"warnings": []}, {"isPartial": False}, {"warnings": "x"}])
def test_a_whole_answer_is_not_doubted(serving, capsys, more):
    report = said(capsys, "diagnose", "--prometheus", serving(more))["team/llm"]
    assert not [one for one in report["unobserved"] if "may be missing" in one]


def test_a_job_that_is_not_found_may_be_in_a_store_that_is_down(serving, capsys):
    url = serving(WARNED[0][0], [])
    assert cli.main(["diagnose", "--prometheus", url]) == 1
    assert DOWN in capsys.readouterr().err


def test_an_answer_that_breaks_off_between_two_series_is_refused():
    series = '{"metric":{"rank":"%s"},"values":[[100,"1"]]}'
    head = '{"status":"success","data":{"resultType":"matrix","result":['
    whole = f"{head}{series % 0},{series % 1}]}}}}"
    times = np.array([100.0, 115.0])
    assert len(parse_matrix(whole.encode(), times).labels) == 2
    for cut in (head, f"{head}{series % 0}", f"{head}{series % 0},", whole[:-1]):
        with pytest.raises(PrometheusError, match="breaks off"):
            parse_matrix(cut.encode(), times)
