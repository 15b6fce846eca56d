"""The pod, job and rank that hold each GPU and RDMA device of this node.

There are three sources, each of which may be missing: the API server (what pods are part of), the
kubelet (which devices they hold) and the processes themselves (which ranks they are). While a
source is silent, what it reported last is kept, with the time of that report.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from rankscope_agent.contract.metrics import pods as metrics
from rankscope_agent.contract.metrics.job_status import JOB_HISTORIES_DROPPED
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.pods.api_client import SERVICE_ACCOUNT, ApiServer
from rankscope_agent.sources.pods.devices import Allocation, parse_pod_resources
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.gpu_order import read_gpus
from rankscope_agent.sources.pods.kubelet import KubeletClient, KubeletError
from rankscope_agent.sources.pods.placement import (
    container_environment,
    hold,
    refused_names,
    status_allocations,
)
from rankscope_agent.sources.pods.placement_view import PlacementView
from rankscope_agent.sources.pods.process_scan import ProcessScanner, Scan
from rankscope_agent.sources.pods.protobuf import WireError
from rankscope_agent.sources.pods.reflector import Reflector
from rankscope_agent.sources.pods.series import placement_samples
from rankscope_agent.sources.pods.server_url import server_url

log = logging.getLogger(__name__)

REFRESH_SECONDS = 10.0
"""Time between two queries of the kubelet and two scans of all processes: a pod takes longer than
that to start training, and both take some milliseconds."""

FIRST_LIST_SECONDS = 5.0
"""How long the first run waits for the API server's list: half of a collector's deadline."""

MAX_LOGGED_REFUSALS = 64
"""Rejected names that are logged: those of a node's pods, but no flood."""

API, KUBELET, PROCESSES = "api", "kubelet", "processes"


def create(config: Config, directory: PodDirectory) -> PodsCollector:
    """Create the collector and start following the API server, if there is one."""
    reflector = None
    url = server_url(config.kubernetes_api, os.environ)
    if url:
        jitter = 0.0 if config.once else config.kubernetes_jitter_seconds
        server = ApiServer(url, SERVICE_ACCOUNT)
        reflector = Reflector(server, directory, config.node_name, start_jitter_seconds=jitter)
        reflector.start()
    if config.once:
        directory.wait(FIRST_LIST_SECONDS)
    socket_path = config.kubelet / "pod-resources" / "kubelet.sock"
    return PodsCollector(
        directory=directory,
        reflector=reflector,
        kubelet=KubeletClient(socket_path),
        roots=Roots(config.procfs, config.sysfs, config.ring_dir),
        node=config.node_name,
        job_labels=config.job_labels,
        clock=time.time,
    )


class DeviceSource(Protocol):
    """Provides the devices of containers; see `rankscope_agent.sources.pods.kubelet`."""

    def call(self) -> bytes:
        """Return a ListPodResourcesResponse."""
        ...


@dataclass(frozen=True, slots=True)
class Roots:
    """The node's /proc and /sys, and where processes outside of pods write their rings."""

    procfs: Path
    sysfs: Path
    ring_dir: Path


@dataclass(slots=True)
class _Source:
    """The state of one source."""

    updated_unix_seconds: float | None = None
    problem: str = ""
    errors: int = 0

    def worked(self, now: float) -> None:
        self.updated_unix_seconds, self.problem = now, ""

    def failed(self, name: str, problem: str, level: int) -> None:
        if problem != self.problem:
            log.log(level, "pods: source %s: %s", name, problem)
        self.errors += 1
        self.problem = problem


class PodsCollector:
    """Combines the information of the three sources.

    Args:
        directory: where the node's pods are kept, for this and other collectors.
        reflector: keeps the directory up to date; None without an API server.
        kubelet: provides the devices of containers.
        roots: the node's directories.
        node: name of this node.
        job_labels: pod labels that name a job's owner, team and the like.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        directory: PodDirectory,
        reflector: Reflector | None,
        kubelet: DeviceSource,
        roots: Roots,
        node: str,
        job_labels: Mapping[str, Sequence[str]],
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._reflector = reflector
        self._kubelet = kubelet
        self._roots = roots
        self._node = node
        self._job_labels = job_labels
        self._clock = clock
        self._scanner = ProcessScanner(
            roots.procfs,
            lambda placement: container_environment(directory, placement),
            roots.ring_dir,
        )
        self._sources = {KUBELET: _Source(), PROCESSES: _Source()}
        self._allocations: Sequence[Allocation] = ()
        self._scan: Scan | None = None
        self._refreshed_at: float | None = None
        self._placed: tuple[float | None, int, Mapping[str, str]] | None = None
        self._samples: tuple[Sample, ...] = ()
        self._logged_refusals: frozenset[str] = frozenset()

    def collect(self) -> Iterator[Sample]:
        """Yield what is known about the node's pods.

        Raises:
            NoData: there is no API server, no kubelet, and no process known to be a rank.
        """
        now = self._clock()
        since = self._refreshed_at
        if since is None or not since <= now < since + REFRESH_SECONDS:
            self._refreshed_at = now
            self._ask_kubelet(now)
            self._look_at_processes(now)
        problems = self._problems()
        self._place_ranks(problems)
        if (
            self._reflector is None
            and KUBELET in problems
            and not (self._scan and self._scan.ranks)
        ):
            raise NoData("; ".join(problems.values()))
        yield from self._source_samples()
        yield from self._samples

    def _place_ranks(self, problems: Mapping[str, str]) -> None:
        """Combine the sources again if anything has changed since the last time."""
        key = (self._refreshed_at, self._directory.changes, problems)
        if key != self._placed:
            self._placed = key
            view = self._view(problems)
            self._directory.publish(view)
            self._log_refusals(view)
            self._samples = tuple(
                placement_samples(
                    view, self._directory, self._node, self._job_labels, self._clock()
                )
            )

    def _log_refusals(self, view: PlacementView) -> None:
        """Log each rejected name once, as long as it persists."""
        refused = islice(refused_names(view, self._directory), MAX_LOGGED_REFUSALS)
        stated = frozenset(f"{who}: {error}" for who, error in refused)
        for sentence in sorted(stated - self._logged_refusals):
            log.warning("%s", sentence)
        self._logged_refusals = stated

    def _ask_kubelet(self, now: float) -> None:
        source = self._sources[KUBELET]
        try:
            self._allocations = parse_pod_resources(self._kubelet.call())
        except FileNotFoundError as error:
            # A kubelet that restarts lacks its socket for a moment; one that never had a socket has
            # reported nothing to keep.
            problem = f"no kubelet socket {error.filename or ''}".strip()
            self._fail(KUBELET, f"{problem}: is the directory pod-resources mounted?")
        except PermissionError:
            self._fail(KUBELET, "opening its socket: permission denied")
        except (OSError, KubeletError, WireError) as error:
            self._fail(KUBELET, f"{error}" or type(error).__name__)
        else:
            source.worked(now)

    def _fail(self, name: str, problem: str) -> None:
        """Record a failure; outside of Kubernetes none of them is worth a warning."""
        level = logging.DEBUG if self._reflector is None else logging.WARNING
        self._sources[name].failed(name, problem, level)

    def _look_at_processes(self, now: float) -> None:
        source = self._sources[PROCESSES]
        try:
            self._scan = self._scanner.scan()
        except OSError as error:
            self._fail(PROCESSES, f"cannot list processes: {error}")
            return
        unreadable, seen = self._scan.unreadable, self._scan.seen
        # A few processes protect themselves; if most may not be read, a capability is missing.
        if unreadable > seen / 2 and not self._scan.ranks:
            need = "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
            text = f"environments of {unreadable} processes are not readable without {need}"
            self._fail(PROCESSES, text)
        else:
            source.worked(now)

    def _view(self, problems: Mapping[str, str]) -> PlacementView:
        gpus = read_gpus(self._roots.procfs)
        asked = self._sources[KUBELET].updated_unix_seconds is not None
        allocations = self._allocations if asked else tuple(status_allocations(self._directory))
        return PlacementView(
            devices=tuple(hold(allocations, self._directory, gpus, self._roots.sysfs)),
            processes=self._scan.ranks if self._scan else (),
            gpus=gpus,
            problems=problems,
        )

    def _problems(self) -> Mapping[str, str]:
        found = {name: source.problem for name, source in self._sources.items()}
        if self._reflector is None:
            found[API] = "no API server: KUBERNETES_SERVICE_HOST is not set, nor --kubernetes.api"
        else:
            waiting = "" if self._directory.contact_unix_seconds else "waiting for the first list"
            found[API] = self._reflector.failure or waiting
        return {name: problem for name, problem in found.items() if problem}

    def _source_samples(self) -> Iterator[Sample]:
        sources = dict(self._sources)
        if self._reflector:
            sources[API] = _Source(
                self._directory.contact_unix_seconds,
                self._reflector.failure,
                self._reflector.errors,
            )
            for request, count in self._reflector.requests.items():
                yield metrics.POD_API_REQUESTS.sample(count, request=request)
            yield metrics.PODS.sample(len(self._directory.pods()))
            yield metrics.PODS_DROPPED.sample(self._directory.dropped)
            yield JOB_HISTORIES_DROPPED.sample(self._directory.histories_dropped)
        for name, source in sources.items():
            up = source.updated_unix_seconds is not None and not source.problem
            yield metrics.POD_SOURCE_UP.sample(int(up), source=name)
            yield metrics.POD_SOURCE_ERRORS.sample(source.errors, source=name)
            if source.updated_unix_seconds is not None:
                yield metrics.POD_SOURCE_UPDATED.sample(source.updated_unix_seconds, source=name)
