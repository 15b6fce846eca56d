"""Every setting of the agent: its flag, its variables, its default; one table, read by `config`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract.address import parse_listen_address
from rankscope_agent.settings.setting_values import (
    LOG_LEVELS,
    parse_api_url,
    parse_http_url,
    parse_jitter,
    parse_log_level,
    parse_log_paths,
    parse_max_series,
    parse_node_name,
    parse_optional_path,
    parse_path,
    parse_remote_address,
    parse_seconds,
    parse_switch,
)
from rankscope_agent.sources.gpus.simulation.spec import MODELS, SCENARIOS, parse_simulation
from rankscope_agent.sources.pods.job_labels import parse_job_labels


@dataclass(frozen=True, slots=True)
class Option:
    """A setting: its flag, its variables in falling order, how its text is read, what it is.

    `default` is text, read like a given value; None says that the default is found at run time.
    A `switch` may be given without a value, which then is 1.
    """

    field: str
    flag: str
    variables: tuple[str, ...]
    parse: Callable[[str], Any]
    default: str | None
    metavar: str
    help: str
    switch: bool = False


OPTIONS: tuple[Option, ...] = (
    Option(
        "listen",
        "--web.listen-address",
        ("RANKSCOPE_WEB_LISTEN_ADDRESS",),
        parse_listen_address,
        ":9877",
        "HOST:PORT",
        "address to listen on; port 0 takes a free one, which the log names",
    ),
    Option(
        "web_config_file",
        "--web.config.file",
        ("RANKSCOPE_WEB_CONFIG_FILE",),
        parse_optional_path,
        "",
        "FILE",
        "TLS, client certificates and passwords, as exporters of Prometheus have them configured",
    ),
    Option(
        "token_file",
        "--web.token-file",
        ("RANKSCOPE_WEB_TOKEN_FILE",),
        parse_optional_path,
        "",
        "FILE",
        "bearer tokens, one per line, of those who may read /api/v1; read again when it changes",
    ),
    Option(
        "insecure_api",
        "--web.insecure-api",
        ("RANKSCOPE_WEB_INSECURE_API",),
        parse_switch,
        "0",
        "0|1",
        "answer /api/v1 to everybody; without, and without credentials, only on loopback",
        switch=True,
    ),
    Option(
        "protect_metrics",
        "--web.protect-metrics",
        ("RANKSCOPE_WEB_PROTECT_METRICS",),
        parse_switch,
        "0",
        "0|1",
        "ask for credentials on /metrics and / as well",
        switch=True,
    ),
    Option(
        "max_series",
        "--web.max-series",
        ("RANKSCOPE_WEB_MAX_SERIES",),
        parse_max_series,
        "2000",
        "N",
        "most series on the page; later ones are left off and counted; --once has no limit",
    ),
    Option(
        "procfs",
        "--path.procfs",
        ("RANKSCOPE_PATH_PROCFS",),
        parse_path,
        "/proc",
        "DIR",
        "the node's procfs",
    ),
    Option(
        "sysfs",
        "--path.sysfs",
        ("RANKSCOPE_PATH_SYSFS",),
        parse_path,
        "/sys",
        "DIR",
        "the node's sysfs",
    ),
    Option(
        "kubelet",
        "--path.kubelet",
        ("RANKSCOPE_PATH_KUBELET",),
        parse_path,
        "/var/lib/kubelet",
        "DIR",
        "the kubelet's directory, under which pods keep their rings",
    ),
    Option(
        "ring_dir",
        "--path.ring-dir",
        ("RANKSCOPE_RING_DIR",),
        parse_path,
        "/run/rankscope",
        "DIR",
        "directory of the rings that probes write outside of pods",
    ),
    Option(
        "pod_logs",
        "--path.pod-logs",
        ("RANKSCOPE_PATH_POD_LOGS",),
        parse_path,
        "/var/log/pods",
        "DIR",
        "the kubelet's directory of containers' logs, read for what NCCL says",
    ),
    Option(
        "nccl_logs",
        "--nccl.log-files",
        ("RANKSCOPE_NCCL_LOG_FILES",),
        parse_log_paths,
        "",
        "PATHS",
        "further logs, parted by commas: /logs/nccl.%%h.%%p.log as NCCL_DEBUG_FILE has it, or *",
    ),
    Option(
        "inspector_dirs",
        "--nccl.inspector-dirs",
        ("RANKSCOPE_NCCL_INSPECTOR_DIRS",),
        parse_log_paths,
        "",
        "PATHS",
        "directories of NCCL Inspector outside of pods, parted by commas: /logs/nccl-inspector-*",
    ),
    Option(
        "ras_address",
        "--nccl.ras-address",
        ("RANKSCOPE_NCCL_RAS_ADDRESS",),
        parse_remote_address,
        "",
        "HOST:PORT",
        "ask NCCL's RAS there for ranks that lag or are missing: localhost:28028; off if empty",
    ),
    Option(
        "ras_interval_seconds",
        "--nccl.ras-interval",
        ("RANKSCOPE_NCCL_RAS_INTERVAL",),
        parse_seconds,
        "60",
        "SECONDS",
        "time between two questions to NCCL's RAS, each of which all ranks of the job answer",
    ),
    Option(
        "kmsg",
        "--path.kmsg",
        ("RANKSCOPE_PATH_KMSG",),
        parse_path,
        "/dev/kmsg",
        "FILE",
        "the kernel's log device; without it the agent asks syslog(2), then reads the journal",
    ),
    Option(
        "system_logs",
        "--path.system-logs",
        ("RANKSCOPE_PATH_SYSTEM_LOGS",),
        parse_path,
        "/var/log",
        "DIR",
        "the node's logs: journald's files and the record of shutdowns (wtmp)",
    ),
    Option(
        "state_dir",
        "--path.state",
        ("RANKSCOPE_PATH_STATE",),
        parse_path,
        "/var/lib/rankscope",
        "DIR",
        "where the agent keeps how far it read logs; without it, it reads them again",
    ),
    Option(
        "kubernetes_api",
        "--kubernetes.api",
        ("RANKSCOPE_KUBERNETES_API",),
        parse_api_url,
        "",
        "URL",
        "the Kubernetes API server, for a proxy; without it, the one that every pod is told",
    ),
    Option(
        "kubernetes_jitter_seconds",
        "--kubernetes.start-jitter",
        ("RANKSCOPE_KUBERNETES_START_JITTER",),
        parse_jitter,
        "30",
        "SECONDS",
        "longest wait before the API server is first asked, so that not all nodes ask at once",
    ),
    Option(
        "job_labels",
        "--kubernetes.job-labels",
        ("RANKSCOPE_KUBERNETES_JOB_LABELS",),
        parse_job_labels,
        "",
        "FACT=LABEL",
        "pod labels that say whose a job is: project=LABEL,class=...,owner=...,team=...",
    ),
    Option(
        "dcgm_url",
        "--dcgm.url",
        ("RANKSCOPE_DCGM_URL",),
        parse_http_url,
        "",
        "URL",
        "read GPUs from a dcgm-exporter, such as http://localhost:9400/metrics, not from NVML",
    ),
    Option(
        "simulate",
        "--simulate",
        ("RANKSCOPE_SIMULATE",),
        parse_simulation,
        "",
        "NODE",
        f"make up GPUs and RDMA ports: {'|'.join(MODELS)}xN[-mig][:{'|'.join(SCENARIOS)}[@GPU]]",
    ),
    Option(
        "node_name",
        "--node-name",
        ("RANKSCOPE_NODE_NAME", "NODE_NAME"),
        parse_node_name,
        None,
        "NAME",
        "this node's name on every series (default: the host name)",
    ),
    Option(
        "copy_probe",
        "--copy-probe",
        ("RANKSCOPE_COPY_PROBE",),
        parse_optional_path,
        "",
        "DIR",
        "copy the probe there, for a trainer's PYTHONPATH, and exit; for init containers",
    ),
    Option(
        "interval_seconds",
        "--collector.interval",
        ("RANKSCOPE_COLLECTOR_INTERVAL",),
        parse_seconds,
        "1",
        "SECONDS",
        "time between two runs of a collector",
    ),
    Option(
        "deadline_seconds",
        "--collector.deadline",
        ("RANKSCOPE_COLLECTOR_DEADLINE",),
        parse_seconds,
        "10",
        "SECONDS",
        "a collector's run that lasts longer counts as failed",
    ),
    Option(
        "log_level",
        "--log.level",
        ("RANKSCOPE_LOG_LEVEL",),
        parse_log_level,
        "info",
        "LEVEL",
        f"least level to log: {', '.join(LOG_LEVELS)}",
    ),
)
