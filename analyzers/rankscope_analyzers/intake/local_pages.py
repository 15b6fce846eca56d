"""Pages of agents that need no connection: saved in files, or printed once by this node's agent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rankscope_analyzers.intake.agent_client import AgentError
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.text.sanitize import visible

LARGEST_PAGE = 16 << 20
"""Characters; an agent's page has 2,000 series by default, some 300 KiB."""

PATIENCE_SECONDS = 120.0
"""An agent that runs every collector once takes some five seconds."""

STANDARD_INPUT = "-"
ONCE = ("-m", "rankscope_agent", "--once")


def of_files(paths: Sequence[str]) -> list[Page]:
    """Return saved pages; each node is named after its file, without the suffix.

    Raises:
        AgentError: a file cannot be read, or does not hold a page.
    """
    return [_of_file(path) for path in paths]


def _of_file(path: str) -> Page:
    try:
        if path == STANDARD_INPUT:
            return _page("standard input", sys.stdin.read(LARGEST_PAGE + 1), path)
        with Path(path).open(encoding="utf-8") as source:
            return _page(Path(path).stem, source.read(LARGEST_PAGE + 1), path)
    except OSError as error:
        raise AgentError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AgentError(f"{path} is not an agent's page: it is not UTF-8 text") from None


def _page(node: str, text: str, source: str) -> Page:
    if len(text) > LARGEST_PAGE:
        raise AgentError(f"{source} is not an agent's page: it has over {LARGEST_PAGE} characters")
    if "\nrankscope_build_info{" not in f"\n{text}":
        raise AgentError(
            f"{source} is not an agent's page; rankscope-agent --once prints one on its node"
        )
    return Page(node, time.time(), text)


def of_this_node() -> Page:
    """Return what the agent prints of this node when all its collectors run once.

    Its settings come from the environment, as those of an agent that serves.

    Raises:
        AgentError: it does not start, or takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter with fixed arguments
            [sys.executable, *ONCE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError(f"this node's agent cannot be run once: {error}") from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise AgentError(f"this node's agent cannot be run once: {visible(last)}")
    text = done.stdout.decode("utf-8", "replace")
    return _page(os.uname().nodename, text, "what this node's agent prints")
