"""Options of `rankscope watch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_analyzers.arguments import (
    connection,
    hang_age,
)
from rankscope_analyzers.arguments.config_option import add_config

AUTO = "auto"


def _add_shards(parser: argparse.ArgumentParser) -> None:
    """Declare how several watches share the jobs."""
    group = parser.add_argument_group("several watches")
    group.add_argument(
        "--lease",
        metavar="NAME",
        help="with --cluster and --namespace: name of the Lease; of several watches only its"
        " holder evaluates, the others stand by",
    )
    group.add_argument(
        "--total-shards",
        type=int,
        metavar="N",
        help="distribute the jobs over N watches; each appends its number to the names of its"
        " Lease and ConfigMaps",
    )
    group.add_argument(
        "--shard",
        default=AUTO,
        metavar="NUMBER",
        help="with --total-shards: number of this watch, from 0 (default: from the ordinal of its"
        " StatefulSet pod, modulo N, so that 2N pods give each shard a standby)",
    )


DEFAULT_LISTEN = "127.0.0.1:9878"


def _add_server(parser: argparse.ArgumentParser) -> None:
    """Declare where findings are served, and who may read them."""
    group = parser.add_argument_group("what it serves")
    group.add_argument(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where /metrics is served (default %(default)s)",
    )
    group.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, client certificates and passwords, as Prometheus' exporters have them",
    )
    group.add_argument(
        "--web.token-file",
        dest="web_token_file",
        type=Path,
        metavar="FILE",
        help="bearer tokens, one per line, of clients that may read /metrics (default: all)",
    )


DEFAULT_INTERVAL = "30s"


DEFAULT_STEP_INTERVAL = "5s"


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    """Declare how often and over which time it evaluates, and the groups of the other options."""
    parser.add_argument(
        "--interval",
        default=DEFAULT_INTERVAL,
        metavar="AGE",
        help="time between full evaluations (default %(default)s); longer if one takes more"
        " than a fifth of it",
    )
    parser.add_argument(
        "--step-interval",
        default=DEFAULT_STEP_INTERVAL,
        metavar="AGE",
        help="time between fetches of new steps from agents (default %(default)s); 0s: only at"
        " evaluations",
    )
    parser.add_argument(
        "--since",
        default="30m",
        metavar="AGE",
        help="how far back each evaluation looks (default %(default)s)",
    )
    hang_age.add_argument(parser, default=None)
    add_config(
        parser,
        "projects of namespaces, prices of GPUs, budgets, labels of classes, time until a hang",
    )
    _add_shards(parser)
    _add_server(parser)
    _add_kept(parser)
    _add_exporters(parser)
    _add_cluster(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="evaluate once, print the series and exit; exit code 1 if nothing could be read",
    )


def _add_kept(parser: argparse.ArgumentParser) -> None:
    """Declare the files and receivers of its state, records and incidents."""
    group = parser.add_argument_group("what it keeps and sends")
    group.add_argument(
        "--captures",
        type=Path,
        metavar="DIR",
        help="once an hour for each hung job, write a capture to DIR for rankscope diagnose"
        " --capture; the oldest are removed beyond 64 files or 2 GiB",
    )
    group.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="keep a record of each run in DIR, for rankscope diff (agents only)",
    )
    group.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="keep the state of jobs and incidents in FILE, so that a restarted watch continues"
        " where it stopped; the account of GPU time is kept in FILE.goodput",
    )
    group.add_argument(
        "--state-config-map",
        metavar="NAME",
        help="the same in ConfigMaps of --namespace, NAME and NAME-goodput, for several watches"
        " with --lease",
    )
    group.add_argument(
        "--incident-log",
        type=Path,
        metavar="FILE",
        help="append a line of JSON to FILE for each incident that opens, changes or ends",
    )
    group.add_argument(
        "--webhook-url",
        metavar="URL",
        help="with --incident-log: post each line to URL, as Alertmanager's webhooks (version 4)",
    )
    group.add_argument(
        "--webhook-secret-file",
        type=Path,
        metavar="FILE",
        help="sign posts with the secret in FILE (HMAC-SHA256, X-Rankscope-Signature-256)",
    )


def _add_exporters(parser: argparse.ArgumentParser) -> None:
    """Declare the services to which it exports jobs."""
    group = parser.add_argument_group("traces and runs")
    group.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="send jobs, attempts, incidents and checkpoints as traces (OTLP/HTTP) to the collector"
        " at URL; needs the extra rankscope[tracing]",
    )
    group.add_argument(
        "--mlflow-tracking-uri",
        metavar="URL",
        help="log jobs as runs of the MLflow tracking server at URL",
    )
    group.add_argument(
        "--mlflow-experiment",
        default="rankscope",
        metavar="NAME",
        help="experiment of these runs (default %(default)s)",
    )
    group.add_argument(
        "--mlflow-token-file",
        type=Path,
        metavar="FILE",
        help="send the token in FILE to the MLflow tracking server, as bearer token",
    )


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare what the watch reads from the API server, and writes to it."""
    group = parser.add_argument_group("objects of the cluster")
    group.add_argument(
        "--cluster-jobs",
        action="store_true",
        help="follow the cluster's job objects (PyTorchJob, JobSet, RayJob and so on) and pods, and"
        " export how jobs wait, start and end; needs additional RBAC permissions",
    )
    group.add_argument(
        "--publish-nodes",
        action="store_true",
        help="with --cluster: publish hardware and kernel faults as node conditions (Rankscope...)"
        " and Events",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: what to watch and where to serve findings."""
    connection.add_arguments(parser, prometheus=True)
    _add_evaluation(parser)
