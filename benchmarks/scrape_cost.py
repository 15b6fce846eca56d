"""CPU time of one scrape of 2,000 series: our server compared with prometheus_client's.

Both serve the same values, in separate processes, and are scraped alternately like Prometheus does.
`cached` is a second scrape of the same snapshot, `new snapshot` one that has to be written.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cpu_seconds, scrape, series_on, serving
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from rankscope_agent.collecting.registry import Registry
from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Scrape, Snapshot
from rankscope_agent.serving.api import Api
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.web.access import OPEN
from rankscope_agent.web.server import WebServer
from rankscope_analyzers.demo.free_ports import free_port

FAMILIES = tuple(
    metric for metric in CATALOGUE if metric.labels == training.RANK and metric.kind != "histogram"
)
SERIES = 2000
RANKS = SERIES // len(FAMILIES)
JOB, VALUE = "research/llama-70b-pretraining-0042", 1234.5678901
ROUNDS = 7
SCRAPES = 20
GOAL = 0.2  # cached scrape, as a fraction of prometheus_client's

OURS_CACHED, OURS_NEW, CLIENT = "cached", "new snapshot", "prometheus_client"
VARIANTS = (OURS_CACHED, OURS_NEW, CLIENT)


@dataclass(frozen=True, slots=True)
class ScrapeCost:
    """CPU milliseconds of a server per scrape, by variant, as the median of the rounds."""

    milliseconds: Mapping[str, float]
    series: Mapping[str, int]


def measure(rounds: int = ROUNDS, scrapes: int = SCRAPES) -> ScrapeCost:
    """Start the three servers and scrape them alternately."""
    ports = {variant: free_port() for variant in VARIANTS}
    commands = {
        variant: [sys.executable, "-m", "benchmarks.scrape_cost", variant, str(port)]
        for variant, port in ports.items()
    }
    spent: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with (
        serving(commands[OURS_CACHED], ports[OURS_CACHED]) as cached,
        serving(commands[OURS_NEW], ports[OURS_NEW]) as new,
        serving(commands[CLIENT], ports[CLIENT]) as client,
    ):
        pids = {OURS_CACHED: cached, OURS_NEW: new, CLIENT: client}
        series = {variant: series_on(port) for variant, port in ports.items()}
        for _ in range(rounds):
            for variant in VARIANTS:
                spent[variant].append(_cost(pids[variant], ports[variant], scrapes))
    medians = {variant: statistics.median(values) for variant, values in spent.items()}
    return ScrapeCost(medians, series)


def _cost(pid: int, port: int, scrapes: int) -> float:
    """Return the CPU milliseconds of a server per scrape."""
    scrape(port)
    before = cpu_seconds(pid)
    for _ in range(scrapes):
        scrape(port)
    return (cpu_seconds(pid) - before) / scrapes * 1000


def _serve(variant: str, port: int) -> None:
    """Be one of the servers, until terminated."""
    if variant == CLIENT:
        registry = CollectorRegistry()
        registry.register(Families())
        start_http_server(port, "127.0.0.1", registry)
    else:
        nowhere = Path(os.devnull)
        steps = RingStepSource(nowhere, nowhere, "node")  # which nobody asks for any
        api = Api("node", Snapshots(renew=variant == OURS_NEW), steps, 10 * SERIES)
        server = WebServer(ListenAddress("127.0.0.1", port), api.routes(), OPEN)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


class Families:
    """The values in the form that a user of prometheus_client would provide."""

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the families."""
        for metric in FAMILIES:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for rank in range(RANKS):
                family.add_metric((JOB, str(rank)), VALUE)
            yield family


class Snapshots(Registry):
    """A registry without collectors: the values, in the same snapshot or a new one each time."""

    def __init__(self, *, renew: bool) -> None:
        super().__init__("node", {}, interval_seconds=1.0, deadline_seconds=1.0)
        self._renew = renew
        samples = tuple(
            metric.sample(VALUE, job_id=JOB, rank=str(rank))
            for metric in FAMILIES
            for rank in range(RANKS)
        )
        scrape_of_all = Scrape("training", True, 0.001, samples, "", time.time())
        self._snapshot = Snapshot("node", time.time(), (scrape_of_all,))

    def snapshot(self) -> Snapshot:
        """Return the snapshot."""
        if self._renew:
            self._snapshot = dataclasses.replace(self._snapshot)
        return self._snapshot


def report(cost: ScrapeCost) -> str:
    """Write the figures, one line for each variant."""
    client = cost.milliseconds[CLIENT]
    lines = [
        f"{variant:18} {cost.milliseconds[variant]:7.2f} ms CPU a scrape of"
        f" {cost.series[variant]} series, {cost.milliseconds[variant] / client:.3f}x"
        for variant in VARIANTS
    ]
    return "\n".join([*lines, f"goal: cached at most {GOAL}x prometheus_client's"])


def main(argv: Sequence[str]) -> None:
    """Measure and print, or be one of the servers, given its variant and port."""
    if argv:
        _serve(argv[0], int(argv[1]))
    else:
        print(report(measure()))


if __name__ == "__main__":
    main(sys.argv[1:])
