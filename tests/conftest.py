"""Which test files begin first, and the processes that fork training jobs for all tests.

A long file that begins last keeps everything waiting.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from installed import skip_without
from probe_jobs.nurseries import Nurseries, Nursery

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")  # other programs may want the cores: no test fails for its duration

WAITING = (
    "test_frameworks.py",
    "test_probe_safety.py",
    "test_hang_end_to_end.py",
    "test_end_to_end.py",
    "test_watch_streaming.py",
    "test_restarted_agent.py",
    "test_leadership.py",
    "test_report_page.py",
    "test_probe_loaders.py",
    "test_gather.py",
    "test_shards.py",
    "test_deadline.py",
    "test_capture_evidence.py",
    "test_combined_faults.py",
    "test_watch_memory.py",
    "test_agent_steps.py",
    "test_watch_cluster_jobs.py",
    "test_terminal_safety.py",
    "test_preflight_running.py",
    "test_checkpoints.py",
    "test_stream_waits_of_torch.py",
    "test_gpus_command.py",
    "test_watch_sums.py",
    "test_gpu_simulation.py",
    "test_probe_spans.py",
    "test_cpu_wait.py",
    "test_probe_accuracy.py",
    "test_prometheus_server.py",
    "test_doctor.py",
    "test_probe_untouched.py",
    "test_failure_cascades.py",
    "test_routing.py",
    "test_node_publishing.py",
    "test_hostile_pods.py",
    "test_kineto_real.py",
    "test_logs_command.py",
    "test_probe_injection.py",
    "test_probe_signals.py",
    "test_preflight_command.py",
)
"""Files that take ten seconds or longer and mostly wait for jobs, servers or browsers of their own,
roughly by how long."""

BUSY = (
    "test_demo.py",
    "test_mixed_attack.py",
    "test_chaos.py",
    "test_alert_gaps.py",
    "test_paged_findings.py",
    "test_week_sums.py",
    "test_alerts.py",
    "test_image.py",
    "test_streamed_jobs.py",
    "test_deployment.py",
    "test_filling_stores.py",
    "test_blind_watch.py",
    "test_alerts_end_to_end.py",
    "test_manifests.py",
    "test_straggler_state.py",
    "test_rank_faults.py",
    "test_verify_command.py",
    "test_dashboard_queries.py",
    "test_elastic_alert.py",
    "test_late_jobs.py",
    "test_followed_jobs.py",
    "test_pauses.py",
    "test_stored_traces.py",
    "test_wheel_installation.py",
    "test_agent_process.py",
    "test_fabric_check.py",
    "test_explain_command.py",
    "test_demo_stack.py",
    "test_tenancy.py",
    "test_running_path.py",
    "test_html_report.py",
    "test_pod_lists.py",
    "test_gpu_proof.py",
    "test_elastic_shrink.py",
    "test_straggler_detection.py",
    "test_recorded_jobs.py",
    "test_sampled_steps.py",
    "test_kinds_of_findings.py",
    "test_straggler_attribution.py",
    "test_running_jobs.py",
    "test_mutants.py",
    "test_canary_job.py",
    "test_web_attacks.py",
    "test_new_collector.py",
    "test_fresh_installation.py",
    "test_goodput_account.py",
    "test_damaged_jobs.py",
    "test_hang_lost_time.py",
    "test_job_alerts.py",
    "test_alert_subjects.py",
    "test_finite_numbers.py",
    "test_flight_recorder_turns.py",
    "test_untrusted_pickle.py",
    "test_sandbox.py",
    "test_plain_words.py",
    "test_success_objective.py",
    "test_locked_requirements.py",
)
"""Files that take ten seconds or longer and mostly compute, likewise."""

LONGEST_FIRST = tuple(
    name for pair in itertools.zip_longest(WAITING, BUSY) for name in pair if name is not None
)
"""Both kinds in turns, so that no core is idle while all test processes wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the long files to the front; the order within a file, and of the others, stays."""
    order = {name: index for index, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(Path(item.path).name, len(order)))


TEMPORARY = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give all that tests start, and their libraries, a directory that is removed at the end.

    Other users may look into it, as into /tmp. Tests' own directories stay where pytest keeps them.
    """
    if hasattr(config, "workerinput"):  # it has the variables of the process that started it
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    config.stash[TEMPORARY] = tempfile.mkdtemp(prefix="rankscope-tests-")
    Path(config.stash[TEMPORARY]).chmod(0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = config.stash[TEMPORARY]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what they left."""
    if TEMPORARY in config.stash:
        shutil.rmtree(config.stash[TEMPORARY], ignore_errors=True)


def pytest_sessionstart() -> None:
    """Collect no garbage while tests are collected: hardly anything is, and it takes a second."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what collecting made out of garbage collections: 700,000 objects, 0.3 s for each."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def nurseries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nurseries]:
    """Give what forks training processes, which have imported torch before any test needs them.

    Of each test process: importing torch takes seconds, and no job changes what it is forked from.
    """
    skip_without("torch", "jobs train with PyTorch")
    with Nurseries(tmp_path_factory.mktemp("nurseries")) as made:
        yield made


@pytest.fixture(scope="session")
def nursery(nurseries: Nurseries) -> Nursery:
    """Give the nursery of processes with the probe."""
    return nurseries.probed


@pytest.fixture(scope="session")
def bare_nursery(nurseries: Nurseries) -> Nursery:
    """Give the nursery of processes without the probe."""
    return nurseries.bare


@pytest.fixture(scope="session")
def trainer_nursery(nurseries: Nurseries) -> Nursery:
    """Give the nursery of processes that have imported transformers, accelerate and Lightning."""
    return nurseries.trainers


@pytest.fixture
def standing_uptime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the time since boot still, as tests hold the time of day, from which it is taken.

    Else it runs on while a busy machine does other things.
    """
    read, uptime = time.clock_gettime, time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(
        time, "clock_gettime", lambda which: uptime if which == time.CLOCK_BOOTTIME else read(which)
    )
