"""Files of secrets that are emptied, replaced by odd ones, or lie on what does not answer."""

from __future__ import annotations

import base64
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest

from certificates import Authority
from rankscope_agent.web import access, watched_files
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_agent.web.watched_files import Watched
from serving import EVERYWHERE, PATIENCE_SECONDS, ROUTES, Serving

TOKEN = {"Authorization": "Bearer correct-horse-battery-staple"}
USERS = f"basic_auth_users: {{p: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n"
PASSWORD = {"Authorization": "Basic " + base64.b64encode(b"p:secret").decode()}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(TOKEN["Authorization"].split()[1])
    return path


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "web.yml"
    path.write_text(USERS)
    return path


@pytest.mark.parametrize("left", ["", "# nothing\n", "http_server_config: {http2: true}\n"])
def test_passwords_that_are_emptied_open_nothing_and_are_missed_in_the_log(
    config_file, caplog, left
):
    with Serving(config_file=config_file) as serving:
        assert serving.statuses() == [200, 401, 401]
        config_file.write_text(left)
        assert serving.statuses() == [200, 401, 401]
        assert serving.statuses(**PASSWORD) == [200, 200, 200]
    assert f"{config_file} no longer has ['basic_auth_users']" in caplog.text


def test_certificates_go_on_being_asked_for_when_the_file_is_emptied(tmp_path, caplog):
    authority = Authority(tmp_path)
    authority.sign("server")
    path = tmp_path / "web.yml"
    path.write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key,"
        " client_ca_file: authority.crt, client_auth_type: RequireAndVerifyClientCert,"
        " client_allowed_sans: [watch]}\n"
    )
    guard = Guard(AccessSettings(path))
    path.write_text("")
    context = guard.context()
    assert context is not None
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert guard.secure
    assert not guard.admits(Certified("DNS", "somebody-else"))
    assert guard.admits(Certified("DNS", "watch"))
    assert "no longer has ['tls_server_config']" in caplog.text


class Certified:
    """A connection whose client has shown a certificate for one name."""

    def __init__(self, kind, name):
        self._names = ((kind, name),)

    def getpeercert(self):
        return {"subjectAltName": self._names}


@pytest.mark.parametrize("users", ["", "{}", "null"])
def test_a_list_of_users_that_names_nobody_is_refused(tmp_path, users):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {users}\n")
    with pytest.raises(ValueError, match="basic_auth_users is empty"):
        Guard(AccessSettings(path))


def test_a_configuration_that_asks_nobody_for_anything_says_so_at_the_start(tmp_path, caplog):
    path = tmp_path / "web.yml"
    path.write_text("")
    caplog.set_level(logging.WARNING)
    Guard(AccessSettings(path))
    assert f"{path} requires neither TLS nor passwords" in caplog.text


def test_a_fifo_in_place_of_a_secret_is_no_file_and_holds_nobody_up(token_file, config_file):
    with Serving(EVERYWHERE, token_file=token_file, config_file=config_file) as serving:
        for path in (token_file, config_file):
            path.unlink()
            os.mkfifo(path)
        assert serving.statuses() == [200, 401, 401]
        assert serving.statuses(**TOKEN) == [200, 401, 401]
        assert serving.statuses(**PASSWORD) == [200, 200, 200]
    with pytest.raises(ValueError, match="is not a regular file"):
        Guard(AccessSettings(token_file=token_file))


class Hanging:
    """Reads a file that answers no more once it is told to, as one on a network's file system."""

    def __init__(self):
        self.hangs, self.answers = threading.Event(), threading.Event()
        self.asked = threading.Semaphore(0)

    def read(self, *path):
        self.asked.release()
        if self.hangs.is_set():
            assert self.answers.wait(PATIENCE_SECONDS)
        return ()


def test_a_token_file_that_hangs_keeps_no_path_from_being_answered_that_needs_none(
    token_file, monkeypatch
):
    hanging = Hanging()
    monkeypatch.setattr(access, "read_tokens", hanging.read)
    monkeypatch.setattr(watched_files, "READ_SECONDS", 0.1)
    with ThreadPoolExecutor(1) as pool, Serving(EVERYWHERE, token_file=token_file) as serving:
        assert hanging.asked.acquire(timeout=PATIENCE_SECONDS)
        hanging.hangs.set()
        token_file.write_text("another-token-of-ours")
        first = pool.submit(serving.status, "/api/v1/steps", **TOKEN)
        assert hanging.asked.acquire(timeout=PATIENCE_SECONDS)
        assert serving.statuses() == [200, 200, 401]
        assert serving.statuses(**TOKEN) == [200, 200, 401]
        hanging.answers.set()
        assert first.result(PATIENCE_SECONDS) == 401


def test_a_file_of_passwords_that_hangs_keeps_no_open_path_from_being_answered(
    config_file, monkeypatch
):
    hanging, read = Hanging(), access.read_web_config
    monkeypatch.setattr(access, "read_web_config", lambda path: hanging.read() or read(path))
    with ThreadPoolExecutor(1) as pool, Serving(config_file=config_file) as serving:
        open_path, page, _ = ROUTES
        assert hanging.asked.acquire(timeout=PATIENCE_SECONDS)
        hanging.hangs.set()
        config_file.write_text(USERS + "# changed\n")
        first = pool.submit(serving.status, page)
        assert hanging.asked.acquire(timeout=PATIENCE_SECONDS)
        monkeypatch.setattr(Guard, "_users", None)  # who is asked now is asked who he is
        assert serving.status(open_path) == 200
        hanging.answers.set()
        assert first.result(PATIENCE_SECONDS) == 401


def test_who_asks_behind_a_file_that_hangs_is_told_so_and_the_last_value_stays(
    token_file, monkeypatch
):
    monkeypatch.setattr(watched_files, "READ_SECONDS", 0.1)
    hanging = Hanging()
    watched = Watched(hanging.read, (token_file,))
    hanging.hangs.set()
    token_file.write_text("changed")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(watched.current)
        assert hanging.asked.acquire(timeout=PATIENCE_SECONDS)
        assert hanging.asked.acquire(timeout=PATIENCE_SECONDS)
        for _ in range(2):
            with pytest.raises(ValueError, match=f"cannot read {token_file}: no response"):
                watched.current()
            assert watched.last() == ()
        hanging.answers.set()
        assert first.result(PATIENCE_SECONDS) == ()
    assert watched.current() == ()
