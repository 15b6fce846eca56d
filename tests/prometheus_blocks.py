"""A real Prometheus over samples of the past: they are made blocks, nothing is scraped."""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankscope_analyzers.demo.free_ports import free_port
from servers import require_server


@contextlib.contextmanager
def serving_samples(folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """Serve samples until the block ends; give the address.

    Args:
        folder: where its data and its log go.
        lines: OpenMetrics text with times, which ends in `# EOF`.
    """
    program, tool = require_server("prometheus"), require_server("promtool")
    text, config = folder / "text", folder / "config.yml"
    text.write_text("\n".join(lines) + "\n")
    config.write_text("global: {scrape_interval: 15s}\n")
    make = [tool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *flags, f"--web.listen-address={address}"], stderr=log)
    try:
        _await_ready(f"http://{address}/-/ready")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _await_ready(url: str) -> None:
    deadline = time.monotonic() + 60
    while not _is_ready(url):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
