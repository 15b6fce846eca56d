"""Measurements of another process: CPU time, memory and port."""

from __future__ import annotations

import contextlib
import http.client
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

START_SECONDS = 30.0  # seconds; a process that does not listen by then has failed

PROMETHEUS_HEADERS: Mapping[str, str] = {
    "Accept": "application/openmetrics-text;version=1.0.0,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}
"""What Prometheus 2.42 sends."""


def end_on_terminate() -> None:
    """Let SIGTERM end this process like ctrl-C, so that whatever it started is ended with it."""
    for number in (signal.SIGTERM, signal.SIGINT):  # shells start jobs in the background without
        signal.signal(number, signal.default_int_handler)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process so far, to the nanosecond.

    The number of its clock is computed as in clock_getcpuclockid(3): CPUCLOCK_SCHED is 2.
    """
    return time.clock_gettime((~pid << 3) | 2)


def memory_mib(pid: int, field: str) -> float:
    """Return a field of /proc/PID/status that is given in kB, such as VmRSS, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no {field}")


def scrape(port: int, headers: Mapping[str, str] = PROMETHEUS_HEADERS) -> bytes:
    """Fetch /metrics over a new connection; return the body as received."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers=dict(headers))
        response = connection.getresponse()
        body = response.read()
    if response.status != 200:
        raise RuntimeError(f"port {port} answered {response.status}, expected 200: {body[:200]!r}")
    return body


def series_on(port: int) -> int:
    """Count the series on a page."""
    page = scrape(port, {"Accept": "text/plain"})
    return sum(not line.startswith(b"#") for line in page.splitlines())


@contextlib.contextmanager
def serving(command: Sequence[str], port: int) -> Iterator[int]:
    """Run a server until the block ends; yield its pid once it answers on its port."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            await_answer(process, port)
            yield process.pid
        finally:
            process.terminate()


def await_answer(
    process: subprocess.Popen[bytes], port: int, seconds: float = START_SECONDS
) -> None:
    """Wait until a server answers.

    Raises:
        RuntimeError: it does not, or it ended.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            scrape(port)
            return
        time.sleep(0.05)
    ended = "" if process.returncode is None else f", it ended with {process.returncode}"
    raise RuntimeError(
        f"{process.args!r} does not answer on port {port} within {seconds:g} s{ended}"
    )
