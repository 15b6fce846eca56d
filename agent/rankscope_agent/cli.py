"""The command `rankscope-agent`: serve the node's metrics, or print them once."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rankscope_agent import __version__
from rankscope_agent.collecting.registry import Registry, all_collectors, create_registry
from rankscope_agent.collecting.visibility import unseen_parts
from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.descriptor_limit import allow_descriptors
from rankscope_agent.probe_copy import ProbeCopyError, copy_probe
from rankscope_agent.serving import logging_setup
from rankscope_agent.serving.api import Api
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_agent.serving.hang_recording import HangRecording
from rankscope_agent.settings.command_line import PROGRAM, UsageError, parse_config
from rankscope_agent.settings.config import Config
from rankscope_agent.settings.file_descriptors import WANTED
from rankscope_agent.sources.collector import Collector
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.gpus.simulation.ports import simulated_sysfs
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import LogDirectories
from rankscope_agent.sources.pods.server_url import server_url
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_agent.web.health import HealthServer
from rankscope_agent.web.memory_arenas import limit_arenas
from rankscope_agent.web.server import WebServer

log = logging.getLogger(__name__)

PODS = "pods"
"""The collector that follows the API server."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

WATCH_SECONDS = 1.0
"""How often the main thread checks for runs past their deadline, to log them: the default interval
of collectors."""


KEPT_OUT = (
    "PYTHONPATH of the pod's containers begins with the probe's folder; what an image sets itself"
    " is not kept, because it cannot be known here: repeat it in the pod's env if imports fail"
)
"""Printed to the log of the pod's init container, where it applies."""


CLOSED = (
    "no client can read step records: there is no token to check clients by, and other machines"
    " reach this address; give --web.token-file FILE, or --web.listen-address=localhost:9877 for"
    " clients on this node only"
)


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    collectors: Mapping[str, Callable[[Config], Collector]] | None = None,
) -> int:
    """Run the agent.

    Args:
        argv: arguments without the program's name, those of the process by default.
        environ: environment variables, those of the process by default.
        collectors: all available collectors, by default those of the registry.

    Returns:
        The exit code: 0 after `--once` and after a stop signal, 1 if the settings are invalid
        or the agent cannot listen on its address.
    """
    arguments = sys.argv[1:] if argv is None else argv
    variables = os.environ if environ is None else environ
    pods, windows = PodDirectory(), FlightWindows()
    if collectors is None:
        collectors = all_collectors(pods, windows)
    try:
        config = parse_config(arguments, variables, tuple(collectors), __version__)
    except UsageError as error:
        return _complain(str(error))
    pods.fall_back_on(LogDirectories(config.pod_logs, time.monotonic).find)
    pods.look_for_owners(config.procfs)
    # Collectors have threads of their own: those that need pods' names may be first.
    if PODS in config.collectors and server_url(config.kubernetes_api, os.environ):
        pods.expect()
    logging_setup.set_up(config.log_level)
    limit_arenas()  # each collector has a thread
    allow_descriptors(WANTED)
    if config.copy_probe is not None:
        return _copy_probe(config.copy_probe)
    with _simulated(config) as node:
        registry = create_registry(node, collectors)
        if node.once:
            return _print_once(registry)
        disabled = [name for name in collectors if name not in node.collectors]
        return _serve(node, registry, pods, windows, disabled)


@contextlib.contextmanager
def _simulated(config: Config) -> Iterator[Config]:
    """Return the settings, with a sysfs of simulated RDMA ports if a node is to be simulated."""
    if config.simulate is None:
        yield config
        return
    with simulated_sysfs(config.simulate) as sysfs:
        yield replace(config, sysfs=sysfs)


def _complain(problem: str) -> int:
    sys.stderr.write(f"{PROGRAM}: {problem}\n")
    return 1


def _copy_probe(target: Path) -> int:
    try:
        count = copy_probe(target)
    except ProbeCopyError as error:
        return _complain(str(error))
    log.info("copied the probe's %d files to %s", count, target)
    log.info("%s", KEPT_OUT)
    return 0


def _print_once(registry: Registry) -> int:
    """Print the page after one run of every collector, whatever its outcome."""
    page = render(registry.run_once(), TEXT, max_series=None)
    try:
        sys.stdout.write(page.decode())
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone: do not flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _guard(config: Config) -> Guard:
    """Return the access rules.

    Raises:
        ValueError: a file of passwords or tokens is invalid.
    """
    settings = AccessSettings(
        config.web_config_file, config.token_file, config.insecure_api, config.protect_metrics
    )
    return Guard(settings)


def _serve(
    config: Config,
    registry: Registry,
    pods: PodDirectory,
    windows: FlightWindows,
    disabled: Sequence[str],
) -> int:
    """Serve until a stop signal arrives."""
    try:
        guard = _guard(config)
    except ValueError as error:
        return _complain(str(error))
    steps = RingStepSource(config.ring_dir, config.kubelet, config.node_name, names=pods)
    parts = unseen_parts(config.procfs, config.sysfs, config.kubelet, config.collectors)
    for name, lines in parts.items():
        for line in lines:
            log.info("collector %s does not see %s", name, line)
    recording = HangRecording(config, registry, steps)
    api = Api(
        config.node_name,
        registry,
        steps,
        config.max_series,
        disabled,
        pods,
        windows,
        parts,
        spans=RingSpanSource(steps),
        stalls=recording.stalls,
        evidence=recording.evidence,
        kept=recording.kept,
    )
    with _held_back(STOP_SIGNALS), contextlib.ExitStack() as listening:
        try:
            server = listening.enter_context(WebServer(config.listen, api.routes(), guard))
        except OSError as error:
            return _complain(_no_address(config.listen, error, "--web.listen-address"))
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        try:
            health = _health(config, lambda: registry.alive and thread.is_alive())
        except OSError as error:
            return _complain(_no_address(config.health, error, "--web.health-address"))
        registry.start()
        thread.start()
        recording.start()
        log.info("listening on %s as node %s", server.url, config.node_name)
        if server.refuses_api:
            log.warning("%s", CLOSED)
        with health:
            while (caught := _stop_signal()) is None:
                registry.log_overdue()
        log.info("stopping after %s", caught.name)
        recording.stop()
        registry.stop()
        server.shutdown()
    return 0


def _stop_signal(seconds: float = WATCH_SECONDS) -> signal.Signals | None:
    """Wait for a signal that ends the agent; return None if none arrives in time.

    If the process was stopped, by a debugger or SIGSTOP, until after the end of the wait, the
    result is uninitialised memory: when the time is over after EINTR, Modules/signalmodule.c leaves
    its loop without a signal and returns a siginfo that was never written.
    """
    caught = signal.sigtimedwait(STOP_SIGNALS, seconds)
    return next((one for one in STOP_SIGNALS if caught and caught.si_signo == one), None)


def _health(config: Config, alive: Callable[[], bool]) -> contextlib.AbstractContextManager[object]:
    """Return the server of the block's liveness probes; without an address there is none.

    Raises:
        OSError: listening on the address fails.
    """
    if config.health is None:
        return contextlib.nullcontext()
    made = HealthServer(config.health, alive)
    log.info("answering liveness probes on %s", made.url)
    return made


def _no_address(listen: ListenAddress | None, error: OSError, flag: str) -> str:
    address = f"{listen.host}:{listen.port}" if listen else ""
    return f"cannot listen on {address}: {error.strerror}; choose another with {flag}"


@contextlib.contextmanager
def _held_back(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Block signals for `sigtimedwait`, in this thread and those it starts.

    A handler could run between any two instructions of the main thread, and could not safely set an
    event that the main thread waits for: that might deadlock.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
