"""Real agent processes for tests: started, awaited until they listen, ended by their pid."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

AGENT_ROOT = Path(__file__).parent.parent / "agent"
PATIENCE_SECONDS = (
    60.0  # a loaded machine may take long to start Python; nobody waits if it does not
)

COMMAND = (sys.executable, "-m", "rankscope_agent")

HEALTH = "--web.health-address=127.0.0.1:0"

_LISTENING = re.compile(r"listening on (http://\S+)")
_HEALTH = re.compile(r"liveness probes on ([\w:/.]+)")


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """A process that listens; `log` is the file that its standard error goes to.

    `health_url` is empty unless it was started with `HEALTH`.
    """

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    health_url: str = ""

    def get(self, path: str) -> str:
        """Fetch a path as text."""
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SECONDS) as answer:
            text: str = answer.read().decode()
        return text

    def logged(self, text: str) -> str:
        """Return the log once it has a text, which may be later than on the page."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in (log := self.log.read_text()):
            assert time.monotonic() < deadline, f"not logged: {text}\n{log}"
            time.sleep(0.05)
        return log

    def liveness(self) -> int:
        """Ask as the kubelet does whether it lives, and return the status."""
        connection = http.client.HTTPConnection(
            self.health_url.removeprefix("http://"), timeout=PATIENCE_SECONDS
        )
        with contextlib.closing(connection):
            connection.request("GET", "/healthz", headers={"Connection": "close"})
            return connection.getresponse().status


def agent_environment(**variables: str) -> Mapping[str, str]:
    """Return this process' environment without settings for the agent, plus the given ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}
    return kept | {"PYTHONPATH": str(AGENT_ROOT), "RANKSCOPE_NODE_NAME": "test-node"} | variables


@contextlib.contextmanager
def running_agent(
    folder: Path, *flags: str, command: Sequence[str] = COMMAND
) -> Iterator[RunningAgent]:
    """Run an agent on a free loopback port until the block ends.

    Args:
        folder: where its log and its state go, and where it finds neither rings nor pods.
        flags: further flags.
        command: what to run instead of the agent as it is.
    """
    log = folder / "agent.log"
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "kmsg").touch()  # what this machine's kernel says of other programs is no test's
    listen = ["--web.listen-address=127.0.0.1:0", f"--path.kubelet={folder}/kubelet"]
    rings = [f"--path.ring-dir={folder}/rings"]
    logs = [f"--path.pod-logs={folder}/logs", f"--path.kmsg={folder}/kmsg"]
    logs += [f"--path.state={folder}"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, *listen, *rings, *logs, *flags], stderr=sink, env=agent_environment()
        )
    try:
        url = _await_url(process, log)
        health = _HEALTH.search(log.read_text())
        yield RunningAgent(process, url, log, health[1] if health else "")
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


def _await_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := _LISTENING.search(log.read_text()):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"the agent did not listen:\n{log.read_text()}")
