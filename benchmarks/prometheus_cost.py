"""Reading 4,096 series of 360 points from a real Prometheus, compared with prometheus-pandas.

Both send the same query to the same server alternately and end with a frame. Wall time counts too:
it includes the server's work, which gzip multiplies.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus

SERIES, POINTS, STEP = 4096, 360, 15
START = 1_760_000_000
ROUNDS = 5
QUERY = "rankscope_step_seconds_total"
BAR = 0.15
READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Medians over the rounds, in seconds: CPU time of the reader, and wall time."""

    cpu: float
    wall: float
    pandas_cpu: float
    pandas_wall: float


def measure() -> ReadCost:
    """Read the same range with both, alternately."""
    from prometheus_pandas import query

    end = START + (POINTS - 1) * STEP
    with tempfile.TemporaryDirectory() as folder, _Server(Path(folder)) as url:
        theirs = query.Prometheus(url)
        costs = [
            (
                *_cost(lambda: _frame(Prometheus(url).range(QUERY, START, end, STEP))),
                *_cost(lambda: theirs.query_range(QUERY, START, end, STEP)),
            )
            for _ in range(ROUNDS)
        ]
    return ReadCost(*(float(np.median(column)) for column in zip(*costs, strict=True)))


def _frame(matrix: Matrix) -> pd.DataFrame:
    """Return what the other library returns: a column per series, named by its labels."""
    columns = pd.MultiIndex.from_frame(pd.DataFrame([dict(x) for x in matrix.labels]).fillna(""))
    index = pd.to_datetime(matrix.times, unit="s", utc=True)
    return pd.DataFrame(matrix.values.T, index=index, columns=columns)


def _cost(read: Callable[[], pd.DataFrame]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    frame = read()
    took = time.process_time() - cpu, time.perf_counter() - wall
    if frame.shape != (POINTS, SERIES):
        raise RuntimeError(f"expected {(POINTS, SERIES)} values, got {frame.shape}")
    return took


def _exposition() -> Iterator[str]:
    yield "# TYPE rankscope_step_seconds counter\n"
    random = np.random.default_rng(0)
    for rank in range(SERIES):
        totals = np.cumsum(random.uniform(14, 16, POINTS))
        host = f"10.0.{rank // 2048}.{rank // 8 % 256}:9877"
        labels = f'{{instance="{host}",job_id="ml/llm",rank="{rank}"}}'
        for point, total in enumerate(totals.tolist()):
            yield f"rankscope_step_seconds_total{labels} {total:.6f} {START + point * STEP}\n"
    yield "# EOF\n"


class _Server:
    """A Prometheus that holds the series and scrapes nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        text, config = self._folder / "text", self._folder / "config.yml"
        with text.open("w") as file:
            file.writelines(_exposition())
        config.write_text("global: {scrape_interval: 15s}\n")
        data = self._folder / "data"
        make = [_program("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
        subprocess.run([*make, text, data], check=True, stdout=subprocess.DEVNULL)
        url = f"127.0.0.1:{free_port()}"
        flags = [f"--config.file={config}", f"--storage.tsdb.path={data}"]
        flags += ["--storage.tsdb.retention.time=100y", f"--web.listen-address={url}"]
        self._process = subprocess.Popen(
            [_program("prometheus"), *flags], stderr=subprocess.DEVNULL
        )
        _await(f"http://{url}/-/ready")
        return f"http://{url}"

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed: apt-get install prometheus, or make servers")
    return path


def _await(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _answers(url):
        if time.monotonic() > deadline:
            raise RuntimeError(f"Prometheus was not ready within {READY_SECONDS:.0f} s")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - loopback
            return True
    except OSError:
        return False


def report(cost: ReadCost) -> str:
    """Return the figures and their bar."""
    return (
        f"{SERIES} series of {POINTS} points out of Prometheus into a frame, {ROUNDS} rounds\n"
        f"  rankscope:         {cost.cpu:.2f} s CPU, {cost.wall:.2f} s wall\n"
        f"  prometheus-pandas: {cost.pandas_cpu:.2f} s CPU, {cost.pandas_wall:.2f} s wall\n"
        f"  ratio: {cost.cpu / cost.pandas_cpu:.3f} of its CPU time, "
        f"{cost.wall / cost.pandas_wall:.3f} of its wall time (bar {BAR})\n"
    )
