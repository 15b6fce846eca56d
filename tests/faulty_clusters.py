"""Clusters of simulated GPU nodes under a simulated job: pages of their agents and step records.

Pages are those that the agent's own collector and writer make of simulated GPUs, with lines added
for what runs there and for layers whose sources a test cannot have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpu_nodes import Clock, library, read, session_of
from rankscope_agent.contract.model import Scrape, Snapshot
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from simulated_jobs import START_UNIX_SECONDS, Job, records

JOB = "team/llm"
GPUS = 8

Line = Callable[[str, float], str]
"""A line of a node's page by node and seconds since the first page."""


@dataclass(frozen=True)
class Cluster:
    """A job on some nodes.

    Args:
        scenarios: what is simulated on each node, by its name.
        job: its steps; None for a job without the probe.
        lines: further lines of pages.
        seconds: how long pages are read.
    """

    scenarios: Mapping[str, str]
    job: Job | None
    lines: Sequence[Line] = field(default=())
    seconds: int = 12

    @property
    def end(self) -> float:
        """Unix time of the last page: the job has just ended its last step."""
        steps = self.job.steps if self.job else 100
        return START_UNIX_SECONDS + 1.3 * steps

    def pages(self) -> Iterable[Page]:
        for index, (node, scenario) in enumerate(self.scenarios.items()):
            yield from self._pages_of(node, scenario, index * GPUS)

    def _pages_of(self, node: str, scenario: str, first_rank: int) -> Iterable[Page]:
        clock = Clock()
        session = session_of(library(f"h100x{GPUS}:{scenario}", clock), clock)
        for second in range(self.seconds):
            scrape = Scrape("nvml", True, 0.0, tuple(read(session).samples), "", None)
            text = render(Snapshot(node, clock.now, (scrape,)), TEXT, None).decode()
            text += self._ranks(node, text, first_rank)
            text += "".join(line(node, float(second)) for line in self.lines)
            yield Page(node, self.end - self.seconds + second, text)
            clock.now += 1

    def _ranks(self, node: str, text: str, first_rank: int) -> str:
        found = re.findall(r'rankscope_gpu_info\{.*?gpu="(\d+)".*?uuid="([^"]+)"', text)
        uuids = {int(gpu): uuid for gpu, uuid in found}
        return "".join(
            f'rankscope_rank_info{{job_id="{JOB}",rank="{first_rank + gpu}",node="{node}",'
            f'local_rank="{gpu}",uuid="{uuid}",pod_namespace="team",pod_name="llm-{node}",'
            f'pod_uid="u-{node}",world_size="{GPUS * len(self.scenarios)}"}} 1\n'
            f'rankscope_rank_alive{{job_id="{JOB}",rank="{first_rank + gpu}"}} 1\n'
            f'rankscope_gpu_nic_info{{uuid="{uuid}",device="mlx5_{gpu}",distance="PIX"}} 1\n'
            for gpu, uuid in uuids.items()
        )

    def report(self) -> JobReport:
        """Return what is reported about the job."""
        observed = from_pages(self.pages(), job_reports.READS, "pages")
        (said,) = job_reports.reports(diagnose_each(self._jobs()), JobEvidence(observed), self.end)
        return said

    def _jobs(self):
        if self.job is None:
            return ()
        rows = records(self.job)
        names = list(self.scenarios)
        rows = rows.assign(node=[names[rank // GPUS] for rank in rows["rank"]])
        world = GPUS * len(names)
        return (JobRecords(JOB, rows, world, (), live=True),)


def port_lines(node: str, second: float, odd: Mapping[str, Mapping[str, float]]) -> str:
    """Return the lines of a node's eight ports; `odd` has rates a second of some, by device."""
    text = ""
    for index in range(GPUS):
        device = f"mlx5_{index}"
        rates = {"out_of_sequence": 0.0, "cnp_handled": 0.0, **odd.get(device, {})}
        labels = f'device="{device}",port="1"'
        text += f'rankscope_rdma_device_info{{device="{device}",board_id="MT_1"}} 1\n'
        state = rates.pop("state", 4.0)
        speed = rates.pop("speed", 50e9)
        downed = rates.pop("flaps", 0.0) * second
        text += f"rankscope_rdma_port_state{{{labels}}} {state}\n"
        text += f"rankscope_rdma_port_rate_bytes_per_second{{{labels}}} {speed}\n"
        text += f"rankscope_rdma_link_flaps_total{{{labels}}} {downed}\n"
        for name in ("transmit", "receive"):
            text += f"rankscope_rdma_port_{name}_bytes_total{{{labels}}} {1.5e10 * second}\n"
        errors = rates.pop("symbol_error", 0.0) * second
        text += f'rankscope_rdma_port_errors_total{{{labels},type="symbol_error"}} {errors}\n'
        for event in ("cnp_handled",):
            text += (
                f'rankscope_rdma_congestion_packets_total{{{labels},type="{event}"}} '
                f"{rates.pop(event) * second}\n"
            )
        for event, rate in rates.items():
            text += f'rankscope_rdma_hw_events_total{{{labels},event="{event}"}} {rate * second}\n'
    return text


def ports(odd: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None) -> Line:
    """Return lines of all nodes' ports, with odd ones by node and device."""
    return lambda node, second: port_lines(node, second, (odd or {}).get(node, {}))


def pressure(shares: Mapping[str, Mapping[str, float]]) -> Line:
    """Return lines of pressure by node and resource; others have little."""

    def line(node: str, second: float) -> str:
        return "".join(
            f'rankscope_host_pressure_seconds_total{{resource="{resource}",kind="some"}} '
            f"{shares.get(node, {}).get(resource, 0.01) * second}\n"
            for resource in ("cpu", "memory", "io")
        )

    return line


def starved(who: str, rank: int, *, accounted: bool = False) -> Line:
    """Return lines of how long ranks, or their loaders, wait for CPUs; others wait a little.

    Args:
        who: "rank" or "loader".
        rank: the one that waits long.
        accounted: its probe takes such waits out of compute.
    """

    def line(node: str, second: float) -> str:
        first = GPUS * int(node.removeprefix("gpu-"))
        return "".join(
            f'rankscope_{who}_starved_seconds_total{{job_id="{JOB}",rank="{number}"}}'
            f" {(0.45 if number == rank else 0.03) * second}\n"
            + f'rankscope_cpu_wait_seconds_total{{job_id="{JOB}",rank="{number}"}} 1\n'
            * accounted
            for number in range(first, first + GPUS)
        )

    return line


def on(where: str, text: str) -> Line:
    """Return a line of one node that does not change."""
    return lambda node, second: f"{text}\n" if node == where else ""
