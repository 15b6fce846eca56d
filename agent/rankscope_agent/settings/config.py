"""The agent's settings as given by flags and environment variables; `options` is their table.

A flag beats its environment variable, which beats the default; there is no configuration file.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.settings.completion import add_completion
from rankscope_agent.settings.options import OPTIONS
from rankscope_agent.settings.setting_values import parse_switch
from rankscope_agent.sources.gpus.simulation.spec import Simulation

PROGRAM = "rankscope-agent"


class UsageError(Exception):
    """A flag or variable cannot be used; the argument is one sentence for whoever started us."""


@dataclass(frozen=True, slots=True)
class Config:
    """What the agent was told.

    Args:
        listen: address of the HTTP server.
        web_config_file: TLS, certificates and passwords, None without.
        token_file: bearer tokens of readers, None without.
        insecure_api: answer /api/v1 to everybody.
        protect_metrics: ask scrapers for credentials, too.
        procfs: where the node's /proc is.
        sysfs: where the node's /sys is.
        kubelet: the kubelet's directory, under which pods' own volumes lie.
        ring_dir: directory of probe rings outside of pods.
        pod_logs: the kubelet's directory of containers' logs.
        nccl_logs: further logs in which NCCL speaks, with wildcards in their names.
        inspector_dirs: directories of NCCL Inspector, with wildcards in their names.
        ras_address: where NCCL's RAS listens, None if it is not asked.
        ras_interval_seconds: time from one question to RAS to the next.
        kmsg: the kernel's log device.
        system_logs: the node's directory of logs, for its journal and its record of shutdowns.
        state_dir: where the agent keeps what it wants to know after a restart.
        kubernetes_api: URL of the API server, empty to find it as pods do.
        kubernetes_jitter_seconds: longest wait before the API server is first asked.
        job_labels: pod labels that say whose a job is, in order of preference, by fact.
        dcgm_url: address of dcgm-exporter's page, empty for none.
        simulate: the node of GPUs and RDMA ports to make up, None for the real one.
        copy_probe: where to copy the probe instead of serving, None to serve.
        node_name: this node's name on every series.
        interval_seconds: time from the start of one run of a collector to the next.
        deadline_seconds: a run that lasts longer counts as failed.
        log_level: one of `LOG_LEVELS`.
        max_series: series on the page, beyond which collectors' series are left off.
        collectors: names of the enabled collectors.
        once: print the page once instead of serving it.
    """

    listen: ListenAddress
    web_config_file: Path | None
    token_file: Path | None
    insecure_api: bool
    protect_metrics: bool
    procfs: Path
    sysfs: Path
    kubelet: Path
    ring_dir: Path
    pod_logs: Path
    nccl_logs: tuple[Path, ...]
    inspector_dirs: tuple[Path, ...]
    ras_address: ListenAddress | None
    ras_interval_seconds: float
    kmsg: Path
    system_logs: Path
    state_dir: Path
    kubernetes_api: str
    kubernetes_jitter_seconds: float
    job_labels: Mapping[str, Sequence[str]]
    dcgm_url: str
    simulate: Simulation | None
    copy_probe: Path | None
    node_name: str
    interval_seconds: float
    deadline_seconds: float
    log_level: str
    max_series: int
    collectors: tuple[str, ...]
    once: bool


ONCE_VARIABLE = "RANKSCOPE_ONCE"


def collector_variable(name: str) -> str:
    """Name the environment variable that switches a collector on or off."""
    return f"RANKSCOPE_COLLECTOR_{name.upper()}"


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of leaving the process with its own exit code."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {PROGRAM} --help lists the flags")


def build_parser(collectors: Sequence[str], version: str) -> argparse.ArgumentParser:
    """Make the command line's parser; what it leaves None comes from the environment."""
    parser = _Parser(
        prog=PROGRAM,
        description="Serves what this node knows about its training ranks to Prometheus.",
        epilog="Each flag has the environment variable named in brackets; the flag wins.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {version}")
    parser.add_argument(
        "--once",
        action="store_const",
        const="1",
        help=f"run each collector once, print the page, exit 0 [{ONCE_VARIABLE}]",
    )
    for option in OPTIONS:
        shown = "" if option.default is None else f" (default: {option.default})"
        parser.add_argument(
            option.flag,
            dest=option.field,
            metavar=option.metavar,
            nargs="?" if option.switch else None,
            const="1" if option.switch else None,
            help=f"{option.help}{shown} [{option.variables[0]}]",
        )
    for name in collectors:
        _add_switch(parser, name)
    add_completion(parser)
    return parser


def _add_switch(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the pair of flags that switches one collector on or off; the last one given wins."""
    for flag, value in ((f"--collector.{name}", "1"), (f"--no-collector.{name}", "0")):
        parser.add_argument(
            flag,
            dest=f"collector.{name}",
            action="store_const",
            const=value,
            help=f"switch the {name} collector {'on' if value == '1' else 'off'}"
            f" [{collector_variable(name)}={value}]",
        )


def _resolve(
    flag: str,
    variables: Sequence[str],
    parse: Callable[[str], Any],
    given: str | None,
    environ: Mapping[str, str],
    default: str,
) -> Any:
    """Read the first text there is: flag, variables in order (an empty one is unset), default."""
    named = [(flag, given), *((name, environ.get(name) or None) for name in variables)]
    origin, text = next(((n, t) for n, t in named if t is not None), (flag, default))
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{origin}: {error}") from None


def parse_config(
    argv: Sequence[str], environ: Mapping[str, str], collectors: Sequence[str], version: str
) -> Config:
    """Read the settings from a command line and an environment.

    Args:
        argv: arguments without the program's name.
        environ: environment variables.
        collectors: names that the registry has, all switched on unless told otherwise.
        version: what `--version` prints.

    Raises:
        UsageError: a flag is unknown or a value cannot be used.
        SystemExit: `--help` or `--version` was asked for and printed.
    """
    given = vars(build_parser(collectors, version).parse_args(argv))
    values = {
        option.field: _resolve(
            option.flag,
            option.variables,
            option.parse,
            given[option.field],
            environ,
            socket.gethostname() if option.default is None else option.default,
        )
        for option in OPTIONS
    }
    switches = {
        name: _resolve(
            f"--collector.{name}",
            (collector_variable(name),),
            parse_switch,
            given[f"collector.{name}"],
            environ,
            "1",
        )
        for name in collectors
    }
    once = _resolve("--once", (ONCE_VARIABLE,), parse_switch, given["once"], environ, "0")
    enabled = tuple(name for name in collectors if switches[name])
    return Config(**values, collectors=enabled, once=once)
