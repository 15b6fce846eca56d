"""Passwords against a real server and real bcrypt: right and wrong ones, and floods of them."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest

from rankscope_agent.web import credentials
from rankscope_agent.web.credentials import Passwords, TooManyGuessesError
from serving import PATIENCE_SECONDS, Serving

MAX_REMEMBERED = 128


def basic(name, password):
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def write_config(tmp_path, text):
    path = tmp_path / "web.yml"
    path.write_text(text)
    return path


def hashed(password):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def match(passwords, users, password, peer="10.0.0.1"):
    return passwords.match(basic("prometheus", password)["Authorization"], users, peer)


def test_passwords_protect_pages_and_api_as_they_do_for_other_exporters(tmp_path):
    config = write_config(tmp_path, f"basic_auth_users:\n  prometheus: {hashed('secret')}\n")
    with Serving(config_file=config) as serving:
        assert serving.statuses() == [200, 401, 401]
        assert serving.statuses(**basic("prometheus", "secret")) == [200, 200, 200]
        assert serving.status("/metrics", **basic("prometheus", "wrong")) == 401
        assert serving.status("/metrics", **basic("nobody", "secret")) == 401
        assert serving.status("/metrics", **basic("prometheus", "x" * 5000)) == 401
        assert serving.status("/metrics", Authorization="Basic !!!") == 401
        assert "Basic" in serving.answer("/metrics")[1].get_all("WWW-Authenticate")[1]


def test_a_right_password_is_compared_once(tmp_path, monkeypatch):
    compared = []
    plain = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *both: compared.append(1) or plain(*both))
    config = write_config(tmp_path, f"basic_auth_users: {{prometheus: '{hashed('secret')}'}}\n")
    with Serving(config_file=config) as serving:
        before = len(compared)
        for _ in range(5):
            assert serving.status("/metrics", **basic("prometheus", "secret")) == 200
        assert len(compared) == before + 1


def test_an_unknown_user_takes_as_long_as_a_known_one(tmp_path, monkeypatch):
    compared = []
    plain = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *both: compared.append(both) or plain(*both))
    costly = bcrypt.hashpw(b"secret", bcrypt.gensalt(6)).decode()
    config = write_config(tmp_path, f"basic_auth_users: {{p: '{costly}', q: '{hashed('x')}'}}\n")
    with Serving(config_file=config) as serving:
        compared.clear()
        assert serving.status("/metrics", **basic("nobody", "secret")) == 401
        assert serving.status("/metrics", **basic("p", "wrong")) == 401
        assert serving.status("/metrics", **basic("p", "secret")) == 200
    assert [both[1] for both in compared] == [costly.encode()] * 3


class SlowBcrypt:
    """bcrypt whose comparisons end when they are let go, one by one."""

    def __init__(self, monkeypatch):
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.plain = bcrypt.checkpw
        monkeypatch.setattr(bcrypt, "checkpw", self.compare)

    def compare(self, password, hashed):
        self.begun.release()
        assert self.go_on.acquire(timeout=PATIENCE_SECONDS)
        return self.plain(password, hashed)


def in_thread(ask, *arguments):
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(ask, *arguments)
    pool.shutdown(wait=False)
    return answer


def test_an_address_that_guesses_waits_for_itself_and_no_scraper_waits_for_all_its_guesses(
    monkeypatch,
):
    users, passwords = {"prometheus": hashed("secret")}, Passwords()
    slow = SlowBcrypt(monkeypatch)

    def ask(password, peer):
        return match(passwords, users, password, peer)

    first = in_thread(ask, "guess 1", "10.0.0.66")
    assert slow.begun.acquire(timeout=PATIENCE_SECONDS)
    for number in range(2, 100):
        with pytest.raises(TooManyGuessesError):
            ask(f"guess {number}", "10.0.0.66")
    again = in_thread(ask, "guess 1", "10.0.0.66")
    scraper = in_thread(ask, "secret", "10.0.0.1")
    slow.go_on.release(2)  # all that is ever compared: one guess, and the scraper's password
    assert [found.result(PATIENCE_SECONDS) for found in (first, again, scraper)] == [
        *(False, False, True)
    ]
    assert ask("secret", "10.0.0.66")
    slow.go_on.release()
    assert not ask("guess 2", "10.0.0.66")


def test_a_guess_beside_another_is_a_429(tmp_path, monkeypatch):
    config = write_config(tmp_path, f"basic_auth_users: {{p: '{hashed('secret')}'}}\n")
    with Serving(config_file=config) as serving:
        slow = SlowBcrypt(monkeypatch)
        first = in_thread(lambda: serving.status("/metrics", **basic("p", "guess 1")))
        assert slow.begun.acquire(timeout=PATIENCE_SECONDS)
        status, headers, body = serving.answer("/metrics", **basic("p", "guess 2"))
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "still being compared" in body
        slow.go_on.release()
        assert first.result(PATIENCE_SECONDS) == 401


def test_no_number_of_wrong_passwords_displaces_a_right_one(tmp_path, monkeypatch):
    compared = []
    plain = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *both: compared.append(both[0]) or plain(*both))
    users, passwords = {"prometheus": hashed("secret")}, Passwords()
    assert match(passwords, users, "secret")
    guesses = (f"guess {number}" for number in range(2 * MAX_REMEMBERED))
    assert not any(match(passwords, users, guess) for guess in guesses)
    assert match(passwords, users, "secret")
    assert compared.count(b"secret") == 1
    assert len(compared) == 1 + 2 * MAX_REMEMBERED


class StandingTime:
    """The CPU time that comparisons take, and how long the next ones are kept waiting."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.rests = 0.0, []
        monkeypatch.setattr(credentials.time, "thread_time", lambda: self.now)
        monkeypatch.setattr(credentials.time, "sleep", self.rests.append)
        plain = bcrypt.checkpw

        def compare(password, hashed):
            self.now += seconds
            return plain(password, hashed)

        monkeypatch.setattr(bcrypt, "checkpw", compare)


def test_guesses_take_a_tenth_of_a_core(monkeypatch):
    users, passing = {"prometheus": hashed("secret")}, StandingTime(monkeypatch, 0.1)
    passwords = Passwords()
    assert not any(match(passwords, users, f"guess {number}") for number in (1, 2, 1))
    assert passing.rests == pytest.approx([0.9, 0.9]), "what is known is not compared"
    assert passing.now / (passing.now + sum(passing.rests)) == pytest.approx(0.1)


def test_a_costly_hash_keeps_the_next_password_waiting_for_seconds_at_most(monkeypatch):
    users, passing = {"prometheus": hashed("secret")}, StandingTime(monkeypatch, 2.0)
    assert not match(Passwords(), users, "guess")
    assert passing.rests == [3.0]


def test_a_right_password_keeps_nobody_waiting(monkeypatch):
    users, passing = {"prometheus": hashed("secret")}, StandingTime(monkeypatch, 0.1)
    passwords = Passwords()
    assert match(passwords, users, "secret")
    assert match(passwords, users, "secret")
    assert passing.rests == []


def test_a_changed_password_counts_at_once_and_a_broken_file_leaves_the_old_one(tmp_path):
    config = write_config(tmp_path, f"basic_auth_users: {{p: '{hashed('old')}'}}\n")
    with Serving(config_file=config) as serving:
        assert serving.status("/metrics", **basic("p", "old")) == 200
        write_config(tmp_path, f"basic_auth_users: {{p: '{hashed('new')}'}} # longer\n")
        assert serving.status("/metrics", **basic("p", "old")) == 401
        write_config(tmp_path, "basic_auth_users: {p: [\n")
        assert serving.status("/metrics") == 401
        assert serving.status("/metrics", **basic("p", "new")) == 200
