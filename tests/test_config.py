"""The agent's settings: flags, variables, defaults and the sentences about bad ones."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rankscope_agent.contract.address import ListenAddress, parse_listen_address
from rankscope_agent.contract.job_labels import DEFAULT_LABELS
from rankscope_agent.settings.command_line import UsageError, collector_variable, parse_config
from rankscope_agent.settings.config import OPTIONS, Config

COLLECTORS = ("training", "nvml")


KUBERNETES_TEXTS = {"kubernetes_api": "http://127.0.0.1:8001", "job_labels": "team=squad"}


def parsed(*argv: str, **environ: str) -> Config:
    return parse_config(argv, environ, COLLECTORS, "1.2.3")


def complaint(*argv: str, **environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        parsed(*argv, **environ)
    return str(caught.value)


def test_defaults_are_those_an_exporter_is_expected_to_have():
    assert parsed() == Config(
        listen=ListenAddress("", 9877),
        health=None,
        web_config_file=None,
        token_file=None,
        insecure_api=False,
        protect_metrics=False,
        procfs=Path("/proc"),
        sysfs=Path("/sys"),
        debugfs=None,
        kubelet=Path("/var/lib/kubelet"),
        ring_dir=Path("/run/rankscope"),
        checkpoint_objective_seconds=0.0,
        step_pattern=None,
        pod_logs=Path("/var/log/pods"),
        nccl_logs=(),
        inspector_dirs=(),
        ras_address=None,
        ras_interval_seconds=60.0,
        kmsg=Path("/dev/kmsg"),
        system_logs=Path("/var/log"),
        state_dir=Path("/var/lib/rankscope"),
        kubernetes_api="",
        kubernetes_jitter_seconds=30.0,
        job_labels=DEFAULT_LABELS,
        dcgm_url="",
        simulate=None,
        copy_probe=None,
        node_name=socket.gethostname(),
        interval_seconds=1.0,
        deadline_seconds=10.0,
        log_level="info",
        max_series=2000,
        collectors=COLLECTORS,
        once=False,
    )


def test_a_flag_beats_its_variable_and_a_variable_beats_the_default():
    assert parsed(RANKSCOPE_COLLECTOR_INTERVAL="5").interval_seconds == 5
    both = parsed("--collector.interval=7", RANKSCOPE_COLLECTOR_INTERVAL="5")
    assert both.interval_seconds == 7


def test_an_empty_variable_counts_as_unset():
    assert parsed(RANKSCOPE_RING_DIR="", RANKSCOPE_COLLECTOR_NVML="") == parsed()


def test_every_option_has_a_flag_and_a_variable_of_its_own():
    flags = [option.flag for option in OPTIONS.values()]
    variables = [option.variables[0] for option in OPTIONS.values()]
    variables += [collector_variable(name) for name in COLLECTORS]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)
    assert all(variable.startswith("RANKSCOPE_") for variable in variables)


@pytest.mark.parametrize("field", OPTIONS)
def test_every_option_is_read_from_flag_and_from_variable_alike(field):
    option = OPTIONS[field]
    texts = {"listen": "127.0.0.1:1", "log_level": "debug", "node_name": "gpu-07"}
    texts |= {"health": "[::1]:2"}
    texts |= {"nccl_logs": "/a.log", "ras_address": "localhost:28028"} | KUBERNETES_TEXTS
    texts |= {"dcgm_url": "http://n:9400/m", "simulate": "h100x8:flap"}
    texts |= {"step_pattern": r"step (?P<step>\d+)"}
    texts |= {
        "nccl_logs": "/a.log",
        "inspector_dirs": "/a",
        "ras_address": "localhost:28028",
    } | KUBERNETES_TEXTS
    text = texts.get(field, "1" if option.switch else "17")
    by_flag = parsed(f"{option.flag}={text}")
    assert by_flag == parsed(**{option.variables[0]: text})
    assert getattr(by_flag, field) == option.parse(text)
    assert by_flag != parsed()


def test_the_node_name_comes_from_our_variable_before_kubernetes_usual_one():
    assert parsed(NODE_NAME="a").node_name == "a"
    assert parsed(NODE_NAME="a", RANKSCOPE_NODE_NAME="b").node_name == "b"
    assert parsed("--node-name=c", NODE_NAME="a", RANKSCOPE_NODE_NAME="b").node_name == "c"


def test_collectors_are_switched_by_flag_and_by_variable():
    assert parsed("--no-collector.nvml").collectors == ("training",)
    assert parsed(RANKSCOPE_COLLECTOR_TRAINING="0").collectors == ("nvml",)
    back_on = parsed("--collector.training", RANKSCOPE_COLLECTOR_TRAINING="0")
    assert back_on.collectors == COLLECTORS
    assert parsed("--no-collector.nvml", "--collector.nvml").collectors == COLLECTORS


def test_once_is_a_flag_or_a_variable():
    assert parsed("--once").once
    assert parsed(RANKSCOPE_ONCE="1").once
    assert not parsed(RANKSCOPE_ONCE="0").once


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":9877", "", 9877),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::]:9877", "::", 9877),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("node-7.example:65535", "node-7.example", 65535),
    ],
)
def test_listen_addresses_are_taken_as_node_exporter_takes_them(text, host, port):
    assert parse_listen_address(text) == ListenAddress(host, port)


@pytest.mark.parametrize("text", ["", "9877", "::1:9877", "host:", "host:65536", "h:-1", "a b:1"])
def test_a_bad_listen_address_is_named(text):
    with pytest.raises(ValueError, match="expected host:port"):
        parse_listen_address(text)


@pytest.mark.parametrize(
    "argv",
    [
        ["--web.listen-address=nowhere"],
        ["--collector.interval=0"],
        ["--collector.interval=nan"],
        ["--collector.deadline=-1"],
        ["--collector.deadline=1e9"],
        ["--web.max-series=0"],
        ["--web.max-series=2e3"],
        ["--log.level=loud"],
        ["--path.procfs="],
        ["--node-name=a\nb"],
        ["--dcgm.url=localhost:9400"],
        ["--dcgm.url=http://"],
        ["--dcgm.url=http://h:port/metrics"],
        ["--dcgm.url=http://h/a b"],
        ["--simulate=tpux8"],
        ["--simulate=h100x0"],
        ["--simulate=h100x17"],
        ["--simulate=l40sx4-mig"],
        ["--simulate=h100x8:meltdown"],
        ["--simulate=h100x8:thermal@8"],
    ],
)
def test_a_bad_value_is_named_with_its_flag_and_what_was_expected(argv):
    text = complaint(*argv)
    assert text.startswith(f"{argv[0].split('=')[0]}: expected ")
    assert "\n" not in text


def test_a_bad_variable_is_named_as_the_variable():
    assert complaint(RANKSCOPE_LOG_LEVEL="loud") == (
        "RANKSCOPE_LOG_LEVEL: expected one of debug, info, warning, error, got 'loud'"
    )
    assert complaint(RANKSCOPE_COLLECTOR_NVML="maybe").startswith("RANKSCOPE_COLLECTOR_NVML: ")


def test_an_unknown_flag_is_named_and_flags_are_not_abbreviated():
    assert "--collector.nvm" in complaint("--collector.nvm")
    assert "--web.listen" in complaint("--web.listen=:1")


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as caught:
        parsed("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out == "rankscope-agent 1.2.3\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_flag(shell, capsys):
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as caught:
        parsed("--print-completion", shell)
    assert caught.value.code == 0
    script = capsys.readouterr().out
    for option in OPTIONS.values():
        assert option.flag.removeprefix("--") in script


def test_help_names_every_flag_and_variable(capsys):
    with pytest.raises(SystemExit):
        parsed("--help")
    text = capsys.readouterr().out
    for option in OPTIONS.values():
        assert option.flag in text
        assert option.variables[0] in text
    assert "--no-collector.nvml" in text


def test_paths_of_logs_are_parted_by_commas_and_may_end_in_a_pattern():
    found = parsed("--nccl.log-files", "/logs/nccl.*.log, /tmp/one.log")
    assert found.nccl_logs == (Path("/logs/nccl.*.log"), Path("/tmp/one.log"))
    assert parsed(RANKSCOPE_NCCL_LOG_FILES="/a.log").nccl_logs == (Path("/a.log"),)
    as_nccl_writes_it = parsed("--nccl.log-files", "/logs/nccl.%h.%p.log")
    assert as_nccl_writes_it.nccl_logs == (Path("/logs/nccl.*.*.log"),)


@pytest.mark.parametrize("paths", ["logs/nccl.log", "/logs/*/nccl.log"])
def test_relative_logs_and_patterns_of_directories_are_refused(paths):
    assert "wildcards in the last part only" in complaint("--nccl.log-files", paths)


def test_ras_is_asked_at_an_address_or_not_at_all():
    assert parsed("--nccl.ras-address=[::1]:28028").ras_address == ListenAddress("::1", 28028)
    assert parsed("--nccl.ras-address=").ras_address is None
    for text in (":28028", "localhost", "localhost:0"):
        assert "expected host:port" in complaint("--nccl.ras-address", text)
