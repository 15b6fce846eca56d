"""JSON of others that nests too deeply or holds too much is unreadable, as that which is none."""

import ast
import http.server
import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest

import rankscope_agent
import rankscope_analyzers
from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError, parse_matrix

UNREADABLE = ["", "{", b"\xff", "[" * 100_000, '{"a":' * 100_000]


@pytest.mark.parametrize("text", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_cannot_be_read_is_a_value_error(text):
    try:
        untrusted_json.read(text)
    except ValueError:
        return
    raise AssertionError("it was read")


@pytest.mark.parametrize("digits", [309, 5000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_integer_that_no_float_holds_is_infinite_and_the_others_are_as_they_are(
    digits, encoding
):
    largest = int("9" * 308)
    text = f'[{{"size": -{"9" * digits}}}, {"9" * digits}, {largest}, {-largest}, 7]'
    read = untrusted_json.read(text.encode(encoding))
    assert read == [{"size": -math.inf}, math.inf, largest, -largest, 7]


def test_what_does_not_fit_into_memory_is_a_value_error(monkeypatch):
    def full(_):
        raise MemoryError

    monkeypatch.setattr(json, "loads", full)
    with pytest.raises(ValueError, match="MemoryError"):
        untrusted_json.read("[]")


def test_labels_that_nest_for_ever_are_an_error_of_their_server():
    head = b'{"status":"success","data":{"resultType":"matrix","result":['
    body = head + b'{"metric":' + b'{"a":' * 50_000 + b',"values":[[1,"2"]]}]}}'
    with pytest.raises(PrometheusError, match="not JSON"):
        parse_matrix(body, np.array([1.0]))


@pytest.mark.parametrize("status", [200, 422])
def test_an_answer_that_nests_for_ever_is_an_error_of_its_server(status):
    class Deep(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"[" * 100_000)

        def log_message(self, *_):
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Deep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(PrometheusError, match=r"does not answer as|answers 422: \[\["):
            Prometheus(f"127.0.0.1:{server.server_port}").instant("up", 0.0)
        server.shutdown()


def readers_of_json(package):
    """Yield the modules of a package that read JSON by themselves."""
    for path in sorted(Path(package.__file__).parent.rglob("*.py")):
        text = path.read_text()
        if "json" not in text or "load" not in text:
            continue  # parsing takes longer than all else
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Attribute(value=ast.Name(id="json"), attr="load" | "loads"):
                    yield path.name


def test_nothing_else_reads_json_that_others_wrote():
    found = {*readers_of_json(rankscope_agent), *readers_of_json(rankscope_analyzers)}
    assert found == {"untrusted_json.py", "stack.py"}, "the demo reads what it started itself"
