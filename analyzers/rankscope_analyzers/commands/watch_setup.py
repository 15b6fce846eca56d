"""The options of `rankscope watch`, and the parts that it builds from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import urlsplit

from rankscope_agent.contract.shards import Shard
from rankscope_analyzers.arguments.hang_age import HANG_AFTER
from rankscope_analyzers.command import InputError, age_seconds
from rankscope_analyzers.commands import connection, watch_shards
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.intake.cluster_objects import ClusterObjects
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.kubernetes_api import Api, KubernetesApi
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.tracing.otlp import Sender, TracingError
from rankscope_analyzers.tracing.traces import Traces
from rankscope_analyzers.tracking.mlflow_api import MlflowApi, TrackingError
from rankscope_analyzers.tracking.runs import RunLog, Runs
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

WEBHOOK = "webhook"
"""The part of a watch's state with what was posted."""

SUMS, SUMS_MAP = ".goodput", "-goodput"
"""Suffix of the name of the state's file or ConfigMap."""

MOST_STATES = 8
"""ConfigMaps that manifests create for shards: all are read when their number changes."""

Say = Callable[[str], None]
"""Writes a sentence to the watch's own log."""


def hang_after_seconds(options: argparse.Namespace, known: Configuration) -> float:
    """Return how long a job may make no step: from the flag, else from the configuration.

    Raises:
        InputError: it is not an age.
    """
    return age_seconds(options.hang_after or known.hang_after or HANG_AFTER, "--hang-after")


def records(options: argparse.Namespace) -> RunRecordFiles | None:
    """Return where records of runs are written, None for nowhere.

    Raises:
        InputError: options exclude each other.
    """
    if options.records is None:
        return None
    if options.prometheus:
        raise InputError("--records needs agents: Prometheus knows too little of runs")
    return RunRecordFiles(options.records)


def api(options: argparse.Namespace) -> Api | None:
    """Return the API server if an option needs it.

    Raises:
        InputError: options exclude each other.
    """
    if not (options.cluster_jobs or options.state_config_map):
        return None
    if options.cluster_jobs and options.once:
        raise InputError("--cluster-jobs follows jobs and cannot be used with --once")
    return KubernetesApi(connection.cluster_access(options))


def cluster_jobs(
    found: Api | None, options: argparse.Namespace, say: Say, known: Configuration
) -> ClusterJobs | None:
    """Return the object that follows the cluster's jobs, if that is wanted.

    Raises:
        InputError: options exclude each other.
    """
    if found is None or not options.cluster_jobs:
        return None
    return ClusterJobs(
        ClusterObjects(found, say, known.labels["class"]).view, known.times_to_complete
    )


def store(options: argparse.Namespace, found: Api | None, leadership: Leadership) -> Store | None:
    """Return where the state of the watch is saved, None for nowhere.

    Raises:
        InputError: options exclude each other.
    """
    if options.state_config_map is None or found is None:
        return FileStore(options.state) if options.state else None
    if options.state or not options.namespace:
        raise InputError("--state-config-map needs --namespace and cannot be used with --state")
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
    """Return where sums that grow at each look are saved, next to the state; None for nowhere.

    The state of all jobs is too large to be written as often.
    """
    if options.state_config_map is None or found is None:
        return (
            FileStore(options.state.with_name(options.state.name + SUMS)) if options.state else None
        )
    return _config_map(options, found, leadership, SUMS_MAP)


def announcer(options: argparse.Namespace, say: Say) -> Announcer:
    """Return the announcer of changes of incidents.

    Raises:
        InputError: options exclude each other.
    """
    if options.webhook_secret_file and not options.webhook_url:
        raise InputError("--webhook-secret-file needs --webhook-url")
    if options.incident_log is None:
        if options.webhook_url:
            raise InputError("--webhook-url needs --incident-log, which it posts")
        return Announcer(say)
    log = IncidentLog(options.incident_log)
    if not options.webhook_url:
        return Announcer(say, log)
    if urlsplit(options.webhook_url).scheme not in {"http", "https"}:
        raise InputError(f"--webhook-url {options.webhook_url} is not an http address")
    webhook = Webhook(options.webhook_url, log.after, say, options.webhook_secret_file)
    return Announcer(say, log, webhook)


def publisher(options: argparse.Namespace, say: Say) -> NodePublisher | None:
    """Return the publisher of node conditions, if that is wanted.

    Raises:
        InputError: options exclude each other.
    """
    if not options.publish_nodes:
        return None
    if not options.cluster or options.once:
        raise InputError("--publish-nodes needs --cluster and cannot be used with --once")
    return NodePublisher(ClusterNodes(), say)


def tracing(options: argparse.Namespace) -> Traces | None:
    """Return the traces of jobs and their sender, None if that is not wanted.

    Raises:
        InputError: the address cannot be used.
    """
    if not options.otlp_endpoint:
        return None
    try:
        sender = Sender(options.otlp_endpoint)
    except TracingError as error:
        raise InputError(f"--otlp-endpoint: {error}") from None
    return Traces(sender.send, sender.close)


def tracking(options: argparse.Namespace, say: Say) -> Runs | None:
    """Return the logger of jobs as runs of MLflow, None if that is not wanted.

    Raises:
        InputError: the address cannot be used, or is missing.
    """
    if not options.mlflow_tracking_uri:
        if options.mlflow_token_file:
            raise InputError("--mlflow-token-file needs --mlflow-tracking-uri")
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
        InputError: options exclude each other.
    """
    if options.lease is None:
        return SingleInstance()
    if options.once:
        raise InputError("--lease is for watches that go on: leave it out with --once")
    if not (options.cluster and options.namespace):
        raise InputError("--lease needs --cluster and --namespace, in which the lease is")
    if connection.cluster_access(options).chosen:
        raise InputError("--lease takes the kubeconfig's current context, not another one")
    lease = watch_shards.own_name(options.lease, options, watch_shards.shard_of(options))
    return LeaseLeadership(lease, options.namespace, say)
