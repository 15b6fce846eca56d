"""Who is answered: tokens, passwords and certificates against a real server, and real clients."""

from __future__ import annotations

import hmac
import socket
import ssl
from urllib.error import URLError

import pytest

from certificates import Authority
from rankscope_agent.contract.address import is_loopback
from rankscope_agent.web import server
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_agent.web.config_file import read_web_config
from rankscope_agent.web.credentials import (
    is_known_token,
    read_tokens,
)
from rankscope_agent.web.routes import Route, sentence
from rankscope_analyzers.intake.agent_client import Agent, AgentError, StatusError
from rankscope_analyzers.intake.credentials import CredentialsError, Entry
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError
from serving import EVERYWHERE, LOOPBACK, PATIENCE_SECONDS, ROUTES, Serving

TOKEN, OTHER = "correct-horse-battery-staple", "another-token-of-ours"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"{TOKEN}\n\n{OTHER}\n")
    return path


def write_config(tmp_path, text):
    path = tmp_path / "web.yml"
    path.write_text(text)
    return path


def test_without_credentials_the_api_is_refused_with_what_would_open_it():
    with Serving() as serving:
        assert serving.statuses() == [200, 200, 403]
        assert "--web.token-file" in serving.answer("/api/v1/steps")[2]
        assert serving.statuses(**bearer(TOKEN)) == [200, 200, 403]


def test_a_loopback_listener_needs_no_credentials():
    with Serving(LOOPBACK) as serving:
        assert serving.statuses() == [200, 200, 200]


def test_the_api_is_open_to_all_where_that_is_asked_for():
    with Serving(insecure_api=True) as serving:
        assert serving.statuses() == [200, 200, 200]


@pytest.mark.parametrize("host", [EVERYWHERE, LOOPBACK])
def test_each_token_of_the_file_opens_the_api_and_nothing_else_does(token_file, host):
    with Serving(host, token_file=token_file) as serving:
        assert serving.statuses(**bearer(TOKEN)) == [200, 200, 200]
        assert serving.status("/api/v1/steps", **bearer(OTHER)) == 200
        for wrong in ("", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "a" * 16_000, "\xff"):
            assert serving.status("/api/v1/steps", **bearer(wrong)) == 401
        for header in (TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", "Bearer"):
            assert serving.status("/api/v1/steps", Authorization=header) == 401
        status, headers, body = serving.answer("/api/v1/steps")
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="rankscope"')
        assert TOKEN not in body


def test_two_authorization_headers_are_none(token_file):
    request = "GET /api/v1/steps HTTP/1.0\r\nAuthorization: Bearer {}\r\n{}\r\n"
    with Serving(token_file=token_file) as serving:
        for more, expected in (("", b"200"), ("Authorization: Bearer x\r\n", b"401")):
            with socket.create_connection((LOOPBACK, serving.port), PATIENCE_SECONDS) as peer:
                peer.sendall(request.format(TOKEN, more).encode())
                assert peer.recv(65536).split()[1] == expected


def test_metrics_take_a_token_too_if_asked_for_but_probes_of_the_kubelet_never(token_file):
    with Serving(token_file=token_file, protect_metrics=True) as serving:
        assert serving.statuses() == [200, 401, 401]
        assert serving.statuses(**bearer(TOKEN)) == [200, 200, 200]


def test_tokens_are_read_again_when_the_file_is_replaced(token_file):
    with Serving(token_file=token_file) as serving:
        fresh = token_file.with_name("fresh")
        fresh.write_text("a-completely-new-token\n")
        fresh.rename(token_file)
        assert serving.status("/api/v1/steps", **bearer(TOKEN)) == 401
        assert serving.status("/api/v1/steps", **bearer("a-completely-new-token")) == 200


def test_a_token_file_that_goes_away_lets_nobody_in_until_it_is_back(token_file, caplog):
    with Serving(LOOPBACK, token_file=token_file) as serving:
        kept = token_file.read_text()
        token_file.unlink()
        assert serving.status("/api/v1/steps", **bearer(TOKEN)) == 401
        assert serving.status("/metrics") == 200
        token_file.write_text(kept)
        assert serving.status("/api/v1/steps", **bearer(TOKEN)) == 200
    assert str(token_file) in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("content", ["", "\n\n", "short", "with space in-the-token-text", "a" * 15])
def test_a_token_file_without_good_tokens_is_refused_without_quoting_it(tmp_path, content):
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(ValueError, match="tokens") as caught:
        Guard(AccessSettings(token_file=path))
    assert not content.strip() or content not in str(caught.value)


def test_a_missing_or_huge_token_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        Guard(AccessSettings(token_file=tmp_path / "none"))
    huge = tmp_path / "huge"
    huge.write_text("x" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="larger than"):
        Guard(AccessSettings(token_file=huge))


@pytest.mark.parametrize("shown", [TOKEN, OTHER, "no-token-of-this-file"])
def test_every_token_is_compared_whichever_is_right(token_file, monkeypatch, shown):
    compared = []
    plain = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(1) or plain(*both))
    known = is_known_token(f"Bearer {shown}", read_tokens(token_file))
    assert known is (shown in {TOKEN, OTHER})
    assert len(compared) == 2


def test_headers_of_the_configuration_come_with_every_answer(tmp_path):
    text = "http_server_config: {http2: true, headers: {X-Frame-Options: DENY}}\n"
    with Serving(config_file=write_config(tmp_path, text)) as serving:
        assert serving.answer("/healthz")[1]["X-Frame-Options"] == "DENY"
        assert serving.answer("/nowhere")[1]["X-Frame-Options"] == "DENY"


TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def authority(tmp_path):
    made = Authority(tmp_path)
    made.sign("server")
    return made


def test_agents_speak_tls_to_clients_that_know_their_authority(tmp_path, authority, token_file):
    config = write_config(tmp_path, TLS)
    with Serving(config_file=config, token_file=token_file) as serving:
        assert serving.server.url.startswith("https://")
        entry = Entry(token_file, authority.cert)
        assert Agent(f"{LOOPBACK}:{serving.port}", entry).text("/api/v1/steps") == "steps\n"
        named = Entry(token_file, authority.cert, server_name="rankscope-agent")
        assert Agent(serving.url("https"), named).text("/metrics") == "metrics\n"
        with pytest.raises(StatusError, match="401: give --token-file"):
            Agent(serving.url("https"), Entry(ca_file=authority.cert)).text("/api/v1/steps")
        other = Entry(ca_file=authority.cert, server_name="somebody-else")
        with pytest.raises(AgentError, match="certificate"):
            Agent(serving.url("https"), other).text("/metrics")
        with pytest.raises(AgentError, match="certificate"):
            Agent(serving.url("https"), Entry(token_file)).text("/metrics")
        with pytest.raises(AgentError, match="if it serves TLS, give https:// or --ca-file"):
            Agent(serving.url("http"), Entry(token_file)).text("/metrics")


def test_a_handshake_with_a_server_without_tls_fails_at_once_and_the_error_names_the_scheme():
    with Serving() as serving, pytest.raises(AgentError) as failed:
        Agent(serving.url("https")).text("/metrics")
    assert str(failed.value).endswith(": if it serves plain http, give http://")
    assert "in time" not in str(failed.value)


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_a_refused_address_says_which_port_was_asked_or_what_to_start(scheme, port, monkeypatch):
    def refused(*_):
        raise URLError(ConnectionRefusedError(111, "Connection refused"))

    monkeypatch.setattr(Entry, "open", refused)
    with pytest.raises(AgentError, match=f"port {port} was asked, because the address names none"):
        Agent(f"{scheme}://gpu-7").text("/metrics")
    with pytest.raises(AgentError, match="refused: start rankscope-agent there, or give the port"):
        Agent(f"{scheme}://gpu-7:9877").text("/metrics")
    with pytest.raises(AgentError, match="refused: start rankscope watch there, or give the port"):
        Agent(f"{scheme}://gpu-7:9878", role="watch").text("/metrics")


def test_a_client_certificate_opens_the_api(tmp_path, authority):
    more = f"  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: {authority.cert}\n"
    ours = authority.sign("client", "DNS:watch")
    theirs_by = Authority(tmp_path, "stranger")
    theirs = theirs_by.sign("impostor", "DNS:watch")
    with Serving(config_file=write_config(tmp_path, TLS + more)) as serving:
        agent = serving.url("https")
        entry = Entry(ca_file=authority.cert, cert_file=ours.cert, key_file=ours.key)
        assert Agent(agent, entry).text("/api/v1/steps") == "steps\n"
        assert Agent(agent, Entry(ca_file=authority.cert)).text("/metrics") == "metrics\n"
        with pytest.raises(StatusError, match="401"):
            Agent(agent, Entry(ca_file=authority.cert)).text("/api/v1/steps")
        stranger = Entry(ca_file=authority.cert, cert_file=theirs.cert, key_file=theirs.key)
        with pytest.raises(AgentError):
            Agent(agent, stranger).text("/api/v1/steps")


def test_a_client_reads_certificates_once_until_they_are_replaced(tmp_path, authority):
    """Reading them takes 20 ms, and a watch of 2,048 agents asks 6,144 questions at a time."""
    where = tmp_path / "ca.crt"
    where.write_bytes(authority.cert.read_bytes())
    first, again = (Entry(ca_file=where).tls_context() for _ in range(2))
    assert first is again
    other = Authority(tmp_path, "other")
    where.write_bytes(other.cert.read_bytes())
    assert Entry(ca_file=where).tls_context() is not first
    where.unlink()
    with pytest.raises(CredentialsError, match="cannot be used for TLS"):
        Entry(ca_file=where).tls_context()


def test_certificates_can_be_demanded_of_all_and_be_limited_to_names(tmp_path, authority):
    more = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.crt\n"
    more += "  client_allowed_sans: [watch]\n"
    watch, other = authority.sign("watch", "DNS:watch"), authority.sign("other", "DNS:other")
    with Serving(config_file=write_config(tmp_path, TLS + more)) as serving:
        agent = serving.url("https")
        right = Entry(ca_file=authority.cert, cert_file=watch.cert, key_file=watch.key)
        assert Agent(agent, right).text("/api/v1/steps") == "steps\n"
        for pair in (None, other):
            files = () if pair is None else (pair.cert, pair.key)
            with pytest.raises(AgentError):
                Agent(agent, Entry(None, authority.cert, *files)).text("/healthz")


def served_certificate(port):
    return ssl.get_server_certificate((LOOPBACK, port), timeout=PATIENCE_SECONDS)


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path, authority):
    with Serving(config_file=write_config(tmp_path, TLS)) as serving:
        first = served_certificate(serving.port)
        (tmp_path / "server.crt").write_text("in the middle of being written")
        assert served_certificate(serving.port) == first
        authority.sign("server")
        second = served_certificate(serving.port)
        assert second != first
        assert second == (tmp_path / "server.crt").read_text()


def test_a_silent_tls_peer_is_dropped_in_time_and_holds_nobody_up(tmp_path, authority, monkeypatch):
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.3)
    with (
        Serving(config_file=write_config(tmp_path, TLS)) as serving,
        socket.create_connection((LOOPBACK, serving.port), PATIENCE_SECONDS) as silent,
    ):
        entry = Entry(ca_file=authority.cert)
        assert Agent(serving.url("https"), entry).text("/healthz") == "healthy\n"
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tls_server_config: {cert_file: a}", "lacks key_file"),
        ("tls_server_config: {cert_file: a, key_file: b}", "No such file"),
        ("tls_server_config: {cert_file: a, key_file: b, client_ca: x}", "not supported"),
        (TLS + "  client_auth_type: RequireAnyClientCert", "is not supported; have"),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert", "do not go together"),
        (TLS + "  client_ca_file: x", "do not go together"),
        (TLS + "  min_version: TLS10", "is not supported; have"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12", "above max_version"),
        (TLS + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]", "are not supported"),
        (TLS + "  client_allowed_sans: [x]", "RequireAndVerifyClientCert"),
        ("rate_limit: {burst: 3}", "rate_limit"),
        ("basic_auth_users: {p: plain-text}", "bcrypt"),
        ("basic_auth_users: [p]", "not a mapping"),
        ("http_server_config: {headers: {Set-Cookie: x}}", "Set-Cookie"),
        ('http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}', "not a line of ASCII"),
        ("just text", "not a mapping"),
        ("{", "not YAML in line"),
    ],
)
def test_a_configuration_that_cannot_be_obeyed_is_refused_by_name(tmp_path, text, complaint):
    with pytest.raises(ValueError, match=complaint) as caught:
        Guard(AccessSettings(config_file=write_config(tmp_path, text)))
    assert "plain-text" not in str(caught.value)


def test_an_empty_configuration_asks_for_nothing(tmp_path):
    assert Guard(AccessSettings(config_file=write_config(tmp_path, "# nothing\n"))).secure is False


def test_cipher_suites_have_the_names_that_go_gives_them(tmp_path, authority):
    suites = "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256]\n"
    path = write_config(tmp_path, TLS + suites + "  max_version: TLS12\n")
    assert read_web_config(path).tls.ciphers == ("ECDHE-ECDSA-AES256-GCM-SHA384",)
    with Serving(config_file=path) as serving:
        context = ssl.create_default_context(cafile=authority.cert)
        with (
            socket.create_connection((LOOPBACK, serving.port), PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=LOOPBACK) as secured,
        ):
            assert secured.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_a_redirect_is_not_followed_so_that_no_token_goes_astray(token_file, monkeypatch):
    asked = []

    def redirecting(request):
        asked.append(request)
        answer = sentence(302, "")
        headers = (("Location", elsewhere.url() + "/metrics"),)
        return type(answer)(302, answer.content_type, b"", headers)

    with Serving(insecure_api=True) as elsewhere:
        monkeypatch.setitem(ROUTES, "/healthz", Route(redirecting, "open"))
        with pytest.raises(StatusError, match="302"):
            Agent(elsewhere.url(), Entry(token_file)).text("/healthz")
    assert len(asked) == 1


def test_a_token_that_cannot_be_read_is_named_and_prometheus_is_shown_the_same(tmp_path):
    entry = Entry(tmp_path / "none")
    with pytest.raises(AgentError, match="token cannot be read"):
        Agent("127.0.0.1:9", entry).text("/metrics")
    with pytest.raises(PrometheusError, match="token cannot be read"):
        Prometheus("127.0.0.1:9", entry).instant("up", 0)
    (tmp_path / "bad").write_text("two\x00 words")
    with pytest.raises(CredentialsError, match="does not begin with a bearer token"):
        Entry(tmp_path / "bad").open(http_request(), 1)


def http_request():
    from urllib.request import Request

    return Request("http://127.0.0.1:9/")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_known_in_every_spelling(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1"])
def test_other_addresses_are_no_loopback(host):
    assert not is_loopback(host)
