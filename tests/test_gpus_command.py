"""`rankscope gpus` on running agents of simulated nodes."""

from __future__ import annotations

import json

import pytest

from rankscope_analyzers.cli import main
from running_agent import running_agent


def test_a_throttled_gpu_is_named_in_text_and_in_json(tmp_path, capsys):
    with running_agent(tmp_path, "--simulate=h100x8:thermal") as agent:
        assert main(["gpus", "--agent", agent.url, "--seconds", "4"]) == 0
        text = capsys.readouterr().out
        arguments = ["--agent", "127.0.0.1:1", "--seconds", "2", "--json"]
        assert main(["gpus", "--agent", agent.url, *arguments]) == 0
    assert "thermal_slowdown: GPU 5 of node test-node" in text
    assert "docs/runbooks/GpuThermalSlowdown.md" in text
    printed = json.loads(capsys.readouterr().out)
    assert printed["unobserved"][0].startswith("agent 127.0.0.1:1 cannot be reached")
    assert isinstance(printed["findings"], list)


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--seconds", "2", "--job", "team/x"]])
def test_what_cannot_be_answered_is_said(tmp_path, capsys, arguments):
    with running_agent(tmp_path, "--simulate=h100x2") as agent:
        assert main(["gpus", "--agent", agent.url, *arguments]) == 1
    assert capsys.readouterr().err.startswith("rankscope gpus: ")
