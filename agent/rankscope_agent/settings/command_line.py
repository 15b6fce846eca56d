"""Reads the agent's settings from flags and environment variables, as declared by `Config`.

A flag overrides its environment variable, which overrides the default; there is no configuration
file.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from rankscope_agent.settings.completion import add_completion
from rankscope_agent.settings.config import OPTIONS, Config
from rankscope_agent.settings.value_parsers import parse_switch

PROGRAM = "rankscope-agent"


class UsageError(Exception):
    """A flag or variable is invalid; the argument is one sentence for the user."""


def collector_variable(name: str) -> str:
    """Return the environment variable that switches a collector on or off."""
    return f"RANKSCOPE_COLLECTOR_{name.upper()}"


EPILOG = f"""\
examples:
  {PROGRAM} --once
        what this node shows, once, without a server
  {PROGRAM} --simulate h100x8 --web.listen-address 127.0.0.1:9877
        a node of eight GPUs that need not be there
  {PROGRAM} --no-collector.kernel_log --training.checkpoint-objective 3600
        without the kernel's log; checkpoints should be an hour old at most
  {PROGRAM} --copy-probe /opt/rankscope
        copy the probe there, for trainers' PYTHONPATH, and end

Each flag has the environment variable named in brackets; the flag wins."""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of exiting the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {PROGRAM} --help lists the flags")


def build_parser(collectors: Sequence[str], version: str) -> argparse.ArgumentParser:
    """Return the command line parser; values that it leaves None come from the environment."""
    parser = _Parser(
        prog=PROGRAM,
        description="Serves what this node knows about its training ranks to Prometheus.",
        usage=f"{PROGRAM} [FLAG ...]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {version}")
    for field, option in OPTIONS.items():
        shown = f" (default: {option.default})" if option.default else ""
        parser.add_argument(
            option.flag,
            dest=field,
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
    """Return the first text that is set: flag, variables in order (empty is unset), default."""
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
        collectors: the names in the registry, all switched on by default.
        version: the text that `--version` prints.

    Raises:
        UsageError: a flag is unknown or a value is invalid.
        SystemExit: `--help` or `--version` was asked for and printed.
    """
    given = vars(build_parser(collectors, version).parse_args(argv))
    values = {
        field: _resolve(
            option.flag,
            option.variables,
            option.parse,
            given[field],
            environ,
            socket.gethostname() if option.default is None else option.default,
        )
        for field, option in OPTIONS.items()
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
    enabled = tuple(name for name in collectors if switches[name])
    return Config(**values, collectors=enabled)
