"""What must not leave a node: credentials in texts and in environments."""

from __future__ import annotations

import re

import pytest

from counted_work import bytecodes, unbounded
from rankscope_agent.contract import redaction
from rankscope_agent.contract.redaction import is_kept, redacted

SECRET = "Zx9-correct-horse-77"

LINES = [
    f"WANDB_API_KEY={SECRET}",
    f'{{"api_key": "{SECRET}", "lr": 0.1}}',
    f"tokenizer=llama hf_tokens={SECRET}",
    f"tokenizer:hf_token={SECRET}",
    f"--tokenizer-token {SECRET}",
    f"login with --token {SECRET} now",
    f"aws_secret_access_key = {SECRET}",
    f"password: '{SECRET} with words'",
    f"Authorization: Bearer {SECRET}",
    f"header Authorization=Basic {SECRET}",
    f"got bearer {SECRET}",
    f"cloning https://me:{SECRET}@git.example.org/x.git",
    f"hf_{SECRET}",
    f"AKIA{SECRET.upper()}",
    f"eyJhbGciOi.{SECRET}",
    f"-----BEGIN RSA PRIVATE KEY-----{SECRET}",
]


@pytest.mark.parametrize("line", LINES)
def test_what_looks_like_a_credential_is_replaced(line):
    assert SECRET.lower() not in redacted(line).lower()
    assert "***" in redacted(line)


@pytest.mark.parametrize(
    "line",
    [
        "step 100 tokens=4096 loss 2.31",
        "max_tokens: 2048, batch 8",
        "tokens per second 91234",
        "rank 3 waits in all_reduce 77 of default_pg",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "tokenizer loaded in 3 s",
        "tokenizer: meta-llama/Llama-3.1-8B, detokenization=fast",
        "train.py --tokenizer /data/llama --tokenized-data /data/c4",
        "see https://pytorch.org/docs/stable/x.html#key",
    ],
)
def test_what_people_need_to_read_is_left(line):
    assert redacted(line) == line


@pytest.mark.parametrize("line", ["pas\u017fword=", "to\u212aen: ", "\u017fecret = ", "API_KEY="])
def test_letters_with_further_forms_hide_no_name(line):
    assert SECRET not in redacted(line + SECRET)


def test_lines_without_a_name_that_smells_are_not_searched_for_one(monkeypatch):
    """The search takes 0.2 ms a line, and a kernel's log has hundreds."""

    class Untouchable:
        def sub(self, *_):
            raise AssertionError("searched")

    monkeypatch.setattr(redaction, "_NAMED", Untouchable())
    line = "nvidia 0000:3b:00.0: Xid 79, GPU has fallen off the bus"
    assert redacted(line) == line
    with pytest.raises(AssertionError, match="searched"):
        redacted("MY_Token=abc")


@pytest.mark.parametrize("unit", ["token", "a=", '"', "://", "key=abcd ", "x\n"])
def test_a_line_twice_as_long_takes_twice_the_work(unit):
    once, twice = (bytecodes(lambda n=n: redacted("password=" + unit * n)) for n in (500, 1000))
    assert once <= twice < 2.2 * once


@pytest.mark.parametrize("name", ["_NAMED", "SECRET_VALUE", "_SECRET_NAME", "_KEY_BLOCK"])
def test_no_position_of_a_line_meets_the_whole_line(name):
    assert unbounded(getattr(redaction, name)) == []


@pytest.mark.parametrize("pattern", ["a*b", "(?:a+|c)d", "(?=a*)b", "(a*){2}", "(?:a|b{3,})c"])
def test_a_repetition_without_limit_is_found(pattern):
    assert unbounded(re.compile(pattern))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("NCCL_DEBUG", True), ("RANK", True), ("NCCL_SECRET", False), ("HF_TOKEN", False)],
)
def test_of_environments_only_known_variables_are_kept(name, kept):
    assert is_kept(name) is kept
