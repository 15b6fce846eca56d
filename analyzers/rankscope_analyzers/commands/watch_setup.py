"""The options of `rankscope watch`, and the parts that it is made of by them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rankscope_agent.contract.shards import Shard
from rankscope_analyzers.captures.kept import add_captures
from rankscope_analyzers.command import InputError, age_seconds
from rankscope_analyzers.commands import connection, hang_age, watch_shards
from rankscope_analyzers.commands.config_option import add_config
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.intake.cluster_objects import ClusterObjects
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.kubernetes_api import Api, KubernetesApi
from rankscope_analyzers.tracing.otlp import Sender, TracingError
from rankscope_analyzers.tracing.traces import Traces
from rankscope_analyzers.tracking.mlflow_api import MlflowApi, TrackingError
from rankscope_analyzers.tracking.runs import RunLog, Runs
from rankscope_analyzers.watch import server as watch_server
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.cluster_jobs import ClusterJobs
from rankscope_analyzers.watch.cluster_nodes import ClusterNodes
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.election import Term
from rankscope_analyzers.watch.incident_log import IncidentLog
from rankscope_analyzers.watch.leadership import Leadership, LeaseLeadership, SingleInstance
from rankscope_analyzers.watch.node_publisher import NodePublisher
from rankscope_analyzers.watch.shard_states import ShardStore, Source, states_of
from rankscope_analyzers.watch.store import FileStore, Store
from rankscope_analyzers.watch.webhook import Webhook

DEFAULT_INTERVAL = "30s"
DEFAULT_STEP_INTERVAL = "5s"

WEBHOOK = "webhook"
"""The part of what a watch keeps that says what was posted."""

SUMS, SUMS_MAP = ".goodput", "-goodput"
"""What is added to the name of the state's file or ConfigMap."""

MOST_STATES = 8
"""ConfigMaps that manifests make for shards: each is looked at when their number changes."""

Say = Callable[[str], None]
"""Takes a sentence for the watch's own log."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    watch_shards.add_arguments(parser)
    watch_server.add_arguments(parser)
    add_captures(parser)
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


def hang_after_seconds(options: argparse.Namespace, known: Configuration) -> float:
    """Return the patience with a job without steps: of the flag, else of the configuration.

    Raises:
        InputError: it is no age.
    """
    is_default = options.hang_after == hang_age.HANG_AFTER
    return age_seconds(known.hang_after if known.hang_after and is_default else options.hang_after)


def api(options: argparse.Namespace) -> Api | None:
    """Return the way to the API server if an option takes it.

    Raises:
        InputError: options do not go together.
    """
    if not (options.cluster_jobs or options.state_config_map):
        return None
    if options.cluster_jobs and options.once:
        raise InputError("--cluster-jobs follows jobs, and does not go with --once")
    return KubernetesApi(connection.cluster_access(options))


def cluster_jobs(
    found: Api | None, options: argparse.Namespace, say: Say, known: Configuration
) -> ClusterJobs | None:
    """Return what follows the cluster's jobs, if that is wanted.

    Raises:
        InputError: options do not go together.
    """
    if found is None or not options.cluster_jobs:
        return None
    return ClusterJobs(ClusterObjects(found, say, known.labels["class"]).view)


def store(options: argparse.Namespace, found: Api | None, leadership: Leadership) -> Store | None:
    """Return where the state of the watch is kept, None for nowhere.

    Raises:
        InputError: options do not go together.
    """
    if options.state_config_map is None or found is None:
        return FileStore(options.state) if options.state else None
    if options.state or not options.namespace:
        raise InputError("--state-config-map goes with --namespace, and without --state")
    own = _config_map(options, found, leadership)
    if options.total_shards is None:
        return own
    shard = watch_shards.shard_of(options)
    return ShardStore(shard, own, partial(_other_states, options, found, shard))


def _other_states(options: argparse.Namespace, found: Api, shard: Shard) -> Iterator[Source]:
    """Yield the states of other shards, and the one from before there were shards."""
    name, namespace = options.state_config_map, options.namespace
    names = {index: f"{name}-{index}" for index in range(MOST_STATES) if index != shard.index}
    stores = [(0, name), *names.items()]
    return states_of((index, ConfigMapStore(found, one, namespace)) for index, one in stores)


def _config_map(
    options: argparse.Namespace, found: Api, leadership: Leadership, suffix: str = ""
) -> ConfigMapStore:
    shard = watch_shards.shard_of(options)
    name = watch_shards.own_name(options.state_config_map, options, shard) + suffix
    return ConfigMapStore(found, name, options.namespace, _term_in(leadership))


def _term_in(leadership: Leadership) -> Callable[[], Term | None] | None:
    return leadership.term if isinstance(leadership, LeaseLeadership) else None


def sums_store(
    options: argparse.Namespace, found: Api | None, leadership: Leadership
) -> Store | None:
    """Return where sums that grow at each look are kept, beside the state; None for nowhere.

    The state of all jobs is too large to be written as often.
    """
    if options.state_config_map is None or found is None:
        return (
            FileStore(options.state.with_name(options.state.name + SUMS)) if options.state else None
        )
    return _config_map(options, found, leadership, SUMS_MAP)


def announcer(options: argparse.Namespace, say: Say) -> Announcer:
    """Return what tells changes of incidents.

    Raises:
        InputError: options do not go together.
    """
    if options.webhook_secret_file and not options.webhook_url:
        raise InputError("--webhook-secret-file goes with --webhook-url")
    if options.incident_log is None:
        if options.webhook_url:
            raise InputError("--webhook-url goes with --incident-log, which it posts")
        return Announcer(say)
    log = IncidentLog(options.incident_log)
    if not options.webhook_url:
        return Announcer(say, log)
    if urlsplit(options.webhook_url).scheme not in {"http", "https"}:
        raise InputError(f"--webhook-url {options.webhook_url} is not an http address")
    webhook = Webhook(options.webhook_url, log.after, say, options.webhook_secret_file)
    return Announcer(say, log, webhook)


def publisher(options: argparse.Namespace, say: Say) -> NodePublisher | None:
    """Return what writes to nodes, if that is wanted.

    Raises:
        InputError: options do not go together.
    """
    if not options.publish_nodes:
        return None
    if not options.cluster or options.once:
        raise InputError("--publish-nodes goes with --cluster, and not with --once")
    return NodePublisher(ClusterNodes(), say)


def tracing(options: argparse.Namespace) -> Traces | None:
    """Return the traces of jobs and what sends them, None where nobody wants them.

    Raises:
        InputError: it cannot be used.
    """
    if not options.otlp_endpoint:
        return None
    try:
        sender = Sender(options.otlp_endpoint)
    except TracingError as error:
        raise InputError(f"--otlp-endpoint: {error}") from None
    return Traces(sender.send, sender.close)


def tracking(options: argparse.Namespace, say: Say) -> Runs | None:
    """Return what logs jobs as runs of MLflow, None where nobody wants it.

    Raises:
        InputError: it cannot be used.
    """
    if not options.mlflow_tracking_uri:
        return None
    try:
        entry = Entry(token_file=options.mlflow_token_file)
        api = MlflowApi(options.mlflow_tracking_uri, entry)
    except TrackingError as error:
        raise InputError(f"--mlflow-tracking-uri: {error}") from None
    return Runs(RunLog(api, options.mlflow_experiment), say)


def leadership(options: argparse.Namespace, say: Say) -> Leadership:
    """Return who leads: this watch, or the holder of the lease.

    Raises:
        InputError: options do not go together.
    """
    if options.lease is None:
        return SingleInstance()
    if not (options.cluster and options.namespace) or options.once:
        raise InputError("--lease goes with --cluster and --namespace, where the lease is to be")
    if connection.cluster_access(options).chosen:
        raise InputError("--lease takes the kubeconfig's current context, not another one")
    lease = watch_shards.own_name(options.lease, options, watch_shards.shard_of(options))
    return LeaseLeadership(lease, options.namespace, say)
