"""The last that is still taken and the first that is not, of answers of the API server."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from rankscope_agent.sources.pods import api_client, json_items
from rankscope_agent.sources.pods.api_client import ApiError, ApiServer
from rankscope_agent.sources.pods.json_items import JsonItems


class Silent:
    """A connection that answers nothing, and knows how long it would be waited for."""

    def __init__(self):
        self.waits = []
        self.sock = SimpleNamespace(settimeout=self.waits.append)

    def request(self, *asked, **headers):
        pass

    def getresponse(self):
        raise TimeoutError

    def close(self):
        pass


def test_a_list_is_waited_for_a_minute_and_events_for_100_seconds(tmp_path, monkeypatch):
    connection = Silent()
    server = ApiServer("http://127.0.0.1:1", tmp_path)
    monkeypatch.setattr(server.__class__, "_connect", lambda self: connection)
    with pytest.raises(TimeoutError):
        server.list_pods("n1", print)
    with pytest.raises(TimeoutError), server.watch_pods("n1", "1", 240):
        pass
    assert connection.waits == [60.0, 100.0]


def test_connecting_takes_ten_seconds_at_most(tmp_path):
    for scheme in ("http", "https"):
        assert ApiServer(f"{scheme}://127.0.0.1:1", tmp_path)._connect().timeout == 10.0


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_a_list_of_pods_has_256_mebibytes_at_most(more, taken):
    sizes = iter([(256 << 20), more])
    read = api_client._bounded(SimpleNamespace(read1=lambda size: range(next(sizes))))
    read(1)
    if taken:
        assert len(read(1)) == 0
        return
    with pytest.raises(ApiError, match="larger than 256 MiB"):
        read(1)


def test_64_kibibytes_are_read_of_a_token(tmp_path):
    (tmp_path / "token").write_text("a" * 70_000)
    given = ApiServer("http://127.0.0.1:1", tmp_path)._headers()["Authorization"]
    assert given == "Bearer " + "a" * 65_536


def test_a_value_has_16_mebi_characters_at_most():
    def reader(longest):
        items = JsonItems.__new__(JsonItems)
        items._ended, items._text, items._at = False, "x" * longest, 0
        items._read = lambda size: b""
        items._decoder = json_items.codecs.getincrementaldecoder("utf-8")()
        return items

    assert reader(16 << 20)._more()
    with pytest.raises(ValueError, match="longer than 16 Mi characters"):
        reader((16 << 20) + 1)._more()


def test_a_list_is_read_in_pieces_of_64_kibibytes_and_of_what_is_held_if_that_is_more():
    text = json.dumps({"items": ["x" * 300_000]}).encode()
    asked, left = [], memoryview(text)

    def read(size):
        nonlocal left
        asked.append(size)
        piece, left = left[:size], left[size:]
        return bytes(piece)

    assert len(list(JsonItems(read))) == 1
    assert asked[0] == 65536
    assert asked[1:] == sorted(asked[1:])
    assert len(asked) < 8
