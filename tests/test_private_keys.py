"""Private keys in logs and other texts: no line of one leaves the node, and other lines stay."""

from __future__ import annotations

import base64
import hashlib

import pytest

from counted_work import bytecodes
from rankscope_agent.contract import private_keys
from rankscope_agent.contract.private_keys import key_lines
from rankscope_agent.contract.redaction import redacted, redacted_arguments
from rankscope_agent.sources.evidence.kernel_lines import kernel_lines
from rankscope_agent.sources.evidence.log_tails import LogTails, last_lines
from rankscope_agent.sources.kernel_log.records import Batch, Record
from rankscope_analyzers.captures.objects import without_secrets

BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"


def body(seed: str = "a", lines: int = 4) -> list[str]:
    """Return the lines of a made-up key, the last of which is short."""
    data = b"".join(hashlib.sha512(f"{seed}{n}".encode()).digest() for n in range(lines))
    text = base64.b64encode(data[: 48 * lines - 32]).decode()
    return [text[at : at + 64] for at in range(0, len(text), 64)]


KEY = [BEGIN, *body(), END]


def shown(lines: list[str]) -> list[str]:
    return last_lines("\n".join(lines).encode() + b"\n")


def leaked(found: list[str], *secrets: str) -> list[str]:
    return [line for line in found if any(secret in line for secret in secrets or body())]


def test_a_key_in_a_log_is_hidden_from_its_first_line_to_its_last():
    assert shown(["loading", *KEY, "done"]) == ["loading", *["***"] * len(KEY), "done"]


def test_a_key_whose_beginning_is_missing_is_hidden():
    found = shown(["step 1", *KEY[2:], "step 2", "done"])
    assert found == ["step 1", *["***"] * (len(KEY) - 2), "step 2", "done"]


def test_a_key_whose_end_is_missing_is_hidden():
    found = shown(["step 1", *KEY[:-1], "Traceback (most recent call last):", "KeyError: 'x'"])
    assert not leaked(found)
    assert found[0] == "step 1"
    assert found[-2:] == ["Traceback (most recent call last):", "KeyError: 'x'"]


@pytest.mark.parametrize(
    "frame",
    ["[rank3]: {}", "2026-01-01T00:00:00.000000000Z stderr F {}", "INFO:root:{}", "{}\r", "> {}"],
)
@pytest.mark.parametrize("part", [KEY, KEY[2:]], ids=["whole", "end"])
def test_a_key_is_recognised_behind_what_launchers_and_loggers_put_first(frame, part):
    found = shown([frame.format(line) for line in ["step 1", *part, "step 2"]])
    assert not leaked(found, *body()[:-1])
    assert sum("step" in line for line in found) == 2


def test_keys_that_two_ranks_print_at_the_same_time_are_hidden():
    mixed = [line for pair in zip(KEY, [BEGIN, *body("b"), END], strict=True) for line in pair]
    late = [BEGIN, *KEY, *body("b"), END]
    early = [*body("b")[1:], *KEY, *body("b")[:1], END]
    for lines in (mixed, late, early):
        found = shown(["before", *lines, "after it all"])
        assert not leaked(found, *body(), *body("b"))
        assert (found[0], found[-1]) == ("before", "after it all")


def test_all_between_the_first_and_the_last_line_is_hidden_whatever_it_looks_like():
    assert shown([BEGIN, "Proc-Type: 4,ENCRYPTED", "", "my own words", END]) == ["***"] * 4


def test_a_key_within_one_line_hides_no_further_lines():
    line = "config: " + "\\n".join(KEY)
    assert shown([line, "abc123", "step 1"]) == ["config: ***", "abc123", "step 1"]


def test_a_line_that_ends_one_key_and_begins_another_is_hidden_with_both():
    assert not leaked(shown([*KEY[:-1], END + BEGIN, *body("b"), END]), *body(), *body("b"))


def test_public_certificates_and_keys_stay():
    lines = ["-----BEGIN CERTIFICATE-----", *body(), "-----END CERTIFICATE-----"]
    assert shown(lines) == lines


@pytest.mark.parametrize(
    "kind", ["", "EC ", "OPENSSH ", "ENCRYPTED "], ids=["pkcs8", "ec", "openssh", "encrypted"]
)
def test_keys_of_every_kind_are_hidden(kind):
    lines = [f"-----BEGIN {kind}PRIVATE KEY-----", *body(), f"-----END {kind}PRIVATE KEY-----"]
    assert set(shown(lines)) == {"***"}


def test_keys_of_openpgp_are_hidden():
    block = "PGP PRIVATE KEY BLOCK-----"
    assert set(shown([f"-----BEGIN {block}", "", *body(), "=aB3d", f"-----END {block}"])) == {"***"}


@pytest.mark.parametrize(("between", "hidden"), [(1023, True), (1024, False)])
def test_a_key_of_up_to_1024_lines_is_hidden_as_a_whole(between, hidden):
    lines = [BEGIN.encode(), *[b"step of another rank"] * between, END.encode()]
    assert (1 in key_lines(lines)) is hidden
    assert len(lines) - 1 in key_lines(lines)


@pytest.mark.parametrize(("between", "hidden"), [(1023, True), (1024, False)])
@pytest.mark.parametrize("mark", [BEGIN, END])
def test_base64_is_hidden_within_1024_lines_of_a_first_or_last_line(mark, between, hidden):
    lines = [mark.encode(), *[b"a step"] * between, body()[0].encode()]
    lines = lines if mark == BEGIN else lines[::-1]
    assert bool(key_lines(lines) - {len(lines) - 1 if mark == END else -1}) is hidden


@pytest.mark.parametrize("mark", [BEGIN, END, f"{END}{BEGIN}"], ids=["first", "last", "both"])
def test_of_logs_full_of_first_and_last_lines_one_twice_as_long_takes_twice_the_work(mark):
    """Windows of 1024 lines, one after each mark, would take three times the work in sum."""
    once, twice = (
        bytecodes(lambda n=n: key_lines([mark.encode(), b"QUJD1"] * n)) for n in (500, 1000)
    )
    assert once < twice < 2.2 * once


def test_a_log_of_a_pod_whose_read_part_begins_within_a_key_shows_none_of_it(tmp_path):
    log = tmp_path / "job.log"
    end = "\n".join(["", *body(), END, "step 1"]).encode() + b"\n"
    log.write_bytes(b"".join((BEGIN.encode(), b"\n", b"x" * (2 << 20), end)))
    (found,) = LogTails(tmp_path / "none", (log,)).of((), outside=True)
    assert found["lines"] == [*["***"] * (len(body()) + 1), "step 1"]


class KernelLog:
    name = "kernel"

    def read(self, _):
        return Batch([Record(n, float(n), line.encode()) for n, line in enumerate(KEY)], {}, 0)

    def close(self):
        pass


def test_a_key_in_the_kernels_log_is_hidden():
    found = kernel_lines([KernelLog], 0.0)["lines"]
    assert [line.partition(" ")[2] for line in found] == ["***"] * len(KEY)


@pytest.mark.parametrize(
    "text",
    ["\n".join(("loaded", *KEY)), "\n".join((*KEY[2:], "KeyError")), body()[0] + END],
    ids=["whole", "end", "one line"],
)
def test_a_text_of_several_lines_shows_nothing_of_a_key(text):
    """As a pod's termination message, which the kubelet takes from the end of its log."""
    assert not leaked(redacted(text).split("\n"))
    assert not leaked(redacted_arguments(["python", text]))
    assert "KeyError" in redacted(text) or text.endswith(END)
    message = without_secrets({"state": {"terminated": {"message": text}}})
    assert not leaked([str(message)])


@pytest.mark.parametrize("between", ["", "\n"], ids=["one line", "lines"])
def test_a_key_behind_its_name_is_hidden_as_well(between):
    text = between.join((f"ssl_private_key={BEGIN}", *body()))
    assert redacted(text) == "ssl_private_key=***"


def test_lines_without_a_key_are_not_searched(monkeypatch):
    monkeypatch.setattr(private_keys, "_MARK", None)
    assert key_lines([b"-----BEGIN CERTIFICATE-----", b"QUJD"]) == frozenset()
