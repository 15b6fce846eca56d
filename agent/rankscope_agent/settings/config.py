"""The agent's settings: each is declared once, with flag, default and help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.address import AGENT_PORT, ListenAddress, parse_listen_address
from rankscope_agent.contract.job_labels import parse_job_labels
from rankscope_agent.settings.option import option, options_of
from rankscope_agent.settings.simulation import MODELS, SCENARIOS, Simulation, parse_simulation
from rankscope_agent.settings.step_pattern import StepPattern, parse_step_pattern
from rankscope_agent.settings.value_parsers import (
    LOG_LEVELS,
    parse_api_url,
    parse_http_url,
    parse_jitter,
    parse_log_level,
    parse_log_paths,
    parse_max_series,
    parse_node_name,
    parse_optional_listen_address,
    parse_optional_path,
    parse_path,
    parse_remote_address,
    parse_seconds,
    parse_seconds_or_none,
    parse_switch,
)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of the agent; each field is described by the help of its option.

    Args:
        collectors: names of the enabled collectors.
    """

    collectors: tuple[str, ...]
    once: bool = option(
        "--once",
        parse_switch,
        "0",
        "0|1",
        "run each collector once, print the page, exit 0",
        switch=True,
    )
    listen: ListenAddress = option(
        "--web.listen-address",
        parse_listen_address,
        f":{AGENT_PORT}",
        "HOST:PORT",
        "address to listen on; port 0 takes a free one, which the log names",
    )
    health: ListenAddress | None = option(
        "--web.health-address",
        parse_optional_listen_address,
        "",
        "HOST:PORT",
        "serve only /healthz there, on a separate thread, for liveness probes; off if empty",
    )
    web_config_file: Path | None = option(
        "--web.config.file",
        parse_optional_path,
        "",
        "FILE",
        "TLS, client certificates and passwords, in the format of Prometheus' exporters",
    )
    token_file: Path | None = option(
        "--web.token-file",
        parse_optional_path,
        "",
        "FILE",
        "bearer tokens that may read /api/v1, one per line; read again when the file changes",
    )
    insecure_api: bool = option(
        "--web.insecure-api",
        parse_switch,
        "0",
        "0|1",
        "serve /api/v1 to everybody; by default, without credentials only on loopback",
        switch=True,
    )
    protect_metrics: bool = option(
        "--web.protect-metrics",
        parse_switch,
        "0",
        "0|1",
        "require credentials for /metrics and / as well",
        switch=True,
    )
    max_series: int = option(
        "--web.max-series",
        parse_max_series,
        "2000",
        "N",
        "maximum series on the page; the rest is dropped and counted; --once has no limit",
    )
    procfs: Path = option(
        "--path.procfs",
        parse_path,
        "/proc",
        "DIR",
        "the node's procfs",
    )
    sysfs: Path = option(
        "--path.sysfs",
        parse_path,
        "/sys",
        "DIR",
        "the node's sysfs",
    )
    debugfs: Path | None = option(
        "--path.debugfs",
        parse_optional_path,
        "",
        "DIR",
        "the node's debugfs, read for its clients of Lustre and CephFS; not read if empty",
    )
    kubelet: Path = option(
        "--path.kubelet",
        parse_path,
        "/var/lib/kubelet",
        "DIR",
        "the kubelet's directory, which holds the rings of pods",
    )
    ring_dir: Path = option(
        "--path.ring-dir",
        parse_path,
        "/run/rankscope",
        "DIR",
        "directory of the rings that probes outside of pods write",
        variables=("RANKSCOPE_RING_DIR",),
    )
    checkpoint_objective_seconds: float = option(
        "--training.checkpoint-objective",
        parse_seconds_or_none,
        "0",
        "SECONDS",
        "age that a running job's newest checkpoint should not exceed, for an alert; 0 is none",
    )
    step_pattern: StepPattern | None = option(
        "--training.step-pattern",
        parse_step_pattern,
        "",
        "REGEX",
        "lines about steps in jobs' logs, such as `step (?P<step>\\d{1,12}) loss (?P<loss>\\S+)`",
    )
    pod_logs: Path = option(
        "--path.pod-logs",
        parse_path,
        "/var/log/pods",
        "DIR",
        "the kubelet's directory of container logs, read for NCCL's output",
    )
    nccl_logs: tuple[Path, ...] = option(
        "--nccl.log-files",
        parse_log_paths,
        "",
        "PATHS",
        "more logs, separated by commas: /logs/nccl.%%h.%%p.log as in NCCL_DEBUG_FILE, or *",
    )
    inspector_dirs: tuple[Path, ...] = option(
        "--nccl.inspector-dirs",
        parse_log_paths,
        "",
        "PATHS",
        "directories of NCCL Inspector outside of pods, comma-separated: /logs/nccl-inspector-*",
    )
    ras_address: ListenAddress | None = option(
        "--nccl.ras-address",
        parse_remote_address,
        "",
        "HOST:PORT",
        "query NCCL's RAS there for lagging and missing ranks: localhost:28028; off if empty",
    )
    ras_interval_seconds: float = option(
        "--nccl.ras-interval",
        parse_seconds,
        "60",
        "SECONDS",
        "time between two RAS queries; every rank of the job answers each of them",
    )
    kmsg: Path = option(
        "--path.kmsg",
        parse_path,
        "/dev/kmsg",
        "FILE",
        "the kernel's log device; without it the agent tries syslog(2), then the journal",
    )
    system_logs: Path = option(
        "--path.system-logs",
        parse_path,
        "/var/log",
        "DIR",
        "the node's logs: journald's files and the shutdown records (wtmp)",
    )
    state_dir: Path = option(
        "--path.state",
        parse_path,
        "/var/lib/rankscope",
        "DIR",
        "where the agent stores positions in logs and totals of steps, to continue after a restart",
    )
    kubernetes_api: str = option(
        "--kubernetes.api",
        parse_api_url,
        "",
        "URL",
        "URL of the Kubernetes API server, such as a proxy (default: from the pod's environment)",
    )
    kubernetes_jitter_seconds: float = option(
        "--kubernetes.start-jitter",
        parse_jitter,
        "30",
        "SECONDS",
        "longest random wait before the first API request, so that nodes do not start at once",
    )
    job_labels: Mapping[str, Sequence[str]] = option(
        "--kubernetes.job-labels",
        parse_job_labels,
        "",
        "FACT=LABEL",
        "pod labels that name a job's owner: project=LABEL,class=...,owner=...,team=...",
    )
    dcgm_url: str = option(
        "--dcgm.url",
        parse_http_url,
        "",
        "URL",
        "read GPUs from a dcgm-exporter instead of NVML, such as http://localhost:9400/metrics",
    )
    simulate: Simulation | None = option(
        "--simulate",
        parse_simulation,
        "",
        "NODE",
        f"simulate GPUs and RDMA ports: {'|'.join(MODELS)}xN[-mig][:{'|'.join(SCENARIOS)}[@GPU]]",
    )
    node_name: str = option(
        "--node-name",
        parse_node_name,
        None,
        "NAME",
        "this node's name on every series (default: the host name)",
        variables=("RANKSCOPE_NODE_NAME", "NODE_NAME"),
    )
    copy_probe: Path | None = option(
        "--copy-probe",
        parse_optional_path,
        "",
        "DIR",
        "copy the probe to DIR, for a trainer's PYTHONPATH, and exit; for init containers",
    )
    interval_seconds: float = option(
        "--collector.interval",
        parse_seconds,
        "1",
        "SECONDS",
        "time between two runs of a collector; without its source five times as long",
    )
    deadline_seconds: float = option(
        "--collector.deadline",
        parse_seconds,
        "10",
        "SECONDS",
        "a collector run that takes longer counts as failed",
    )
    log_level: str = option(
        "--log.level",
        parse_log_level,
        "info",
        "LEVEL",
        f"lowest level to log: {', '.join(LOG_LEVELS)}",
    )


OPTIONS = options_of(Config)
"""Every option by its field, in the order of --help."""
