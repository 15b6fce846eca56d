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
    """Declare the options."""
    parser.add_argument(
        "--total-shards",
        type=int,
        metavar="N",
        help="distribute the jobs over N watches; each appends its number to the names of its"
        " Lease and ConfigMaps",
    )
    parser.add_argument(
        "--shard",
        default=AUTO,
        metavar="NUMBER",
        help="with --total-shards: number of this watch, from 0 (default: from the ordinal of its"
        " StatefulSet pod, modulo N, so that 2N pods give each shard a standby)",
    )


DEFAULT_LISTEN = "127.0.0.1:9878"


def _add_server(parser: argparse.ArgumentParser) -> None:
    """Declare the options: where findings are served, and who may read them."""
    parser.add_argument(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where /metrics is served (default %(default)s)",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, client certificates and passwords, as Prometheus' exporters have them",
    )
    parser.add_argument(
        "--web.token-file",
        dest="web_token_file",
        type=Path,
        metavar="FILE",
        help="bearer tokens, one per line, of clients that may read /metrics (default: all)",
    )


def _add_captures(parser: argparse.ArgumentParser) -> None:
    """Declare where captures are kept."""
    parser.add_argument(
        "--captures",
        type=Path,
        metavar="DIR",
        help="keep what is known of a job that hangs in DIR, once an hour for each job, for"
        " rankscope diagnose --capture; the oldest go beyond 64 files or 2 GiB",
    )


DEFAULT_INTERVAL = "30s"


DEFAULT_STEP_INTERVAL = "5s"


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    """Declare the options beside those of whom to ask."""
    parser.add_argument(
        "--lease",
        metavar="NAME",
        help="with --cluster and --namespace: name of the Lease; of several watches only its"
        " holder evaluates, the others stand by",
    )
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
    hang_age.add_argument(parser)
    add_config(
        parser,
        "projects of namespaces, prices of GPUs, budgets, labels of classes, patience with hangs",
    )
    _add_shards(parser)
    _add_server(parser)
    _add_captures(parser)
    _add_kept(parser)
    _add_exporters(parser)
    _add_cluster(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="evaluate once, print the series and exit; exit code 1 if nothing could be read",
    )


def _add_kept(parser: argparse.ArgumentParser) -> None:
    """Declare where the watch keeps what it knows, and whom it tells."""
    parser.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="keep a record of each run in DIR, for rankscope diff (agents only)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="keep the state of jobs and incidents in FILE, so that a restarted watch continues"
        " where it stopped; the account of GPU time is kept in FILE.goodput",
    )
    parser.add_argument(
        "--state-config-map",
        metavar="NAME",
        help="the same in ConfigMaps of --namespace, NAME and NAME-goodput, for several watches"
        " with --lease",
    )
    parser.add_argument(
        "--incident-log",
        type=Path,
        metavar="FILE",
        help="append a line of JSON to FILE for each incident that opens, changes or ends",
    )
    parser.add_argument(
        "--webhook-url",
        metavar="URL",
        help="with --incident-log: post each line to URL, as Alertmanager's webhooks (version 4)",
    )
    parser.add_argument(
        "--webhook-secret-file",
        type=Path,
        metavar="FILE",
        help="sign posts with the secret in FILE (HMAC-SHA256, X-Rankscope-Signature-256)",
    )


def _add_exporters(parser: argparse.ArgumentParser) -> None:
    """Declare the services of others that jobs are sent to."""
    parser.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="send jobs, attempts, incidents and checkpoints as traces (OTLP/HTTP) to the collector"
        " at URL; needs the extra rankscope[tracing]",
    )
    parser.add_argument(
        "--mlflow-tracking-uri",
        metavar="URL",
        help="log jobs as runs of the MLflow tracking server at URL",
    )
    parser.add_argument(
        "--mlflow-experiment",
        default="rankscope",
        metavar="NAME",
        help="experiment of these runs (default %(default)s)",
    )
    parser.add_argument(
        "--mlflow-token-file",
        type=Path,
        metavar="FILE",
        help="send the token in FILE to the MLflow tracking server, as bearer token",
    )


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare what the watch reads from the API server, and writes there."""
    parser.add_argument(
        "--cluster-jobs",
        action="store_true",
        help="follow the cluster's job objects (PyTorchJob, JobSet, RayJob and so on) and pods, and"
        " export how jobs wait, start and end; needs additional RBAC permissions",
    )
    parser.add_argument(
        "--publish-nodes",
        action="store_true",
        help="with --cluster: publish hardware and kernel faults as node conditions (Rankscope...)"
        " and Events",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: what to watch and where to serve findings."""
    connection.add_arguments(parser, prometheus=True)
    _add_evaluation(parser)
