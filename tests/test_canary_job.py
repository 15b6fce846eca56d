"""A real canary: its job, an agent and a watch on this machine, and what they export of it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from probe_jobs.demo_jobs import forked
from promtool_tests import LINKS
from rankscope_agent.contract.canary import NAME
from rankscope_analyzers import cli
from rankscope_analyzers.demo import run
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_dashboards.rules.alerts.canary import MISSED
from rankscope_dashboards.rules.rule_files import rule
from running_agent import PATIENCE_SECONDS, running_agent
from servers import require_server

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the canary trains with PyTorch"
)

JOB = f"local/{NAME}"
WATCH = "import sys; from rankscope_analyzers.cli import main; sys.exit(main())"


@contextlib.contextmanager
def watching(agent, folder):
    """Run a watch until the block ends; give its address."""
    address = f"127.0.0.1:{free_port()}"
    files = [f"--incident-log={folder / 'incidents'}", f"--state={folder / 'state'}"]
    pace = ["--interval=2s", "--step-interval=1s", f"--web.listen-address={address}"]
    command = [sys.executable, "-c", WATCH, "watch", "--agent", agent, *pace, *files]
    environment = {name: value for name, value in os.environ.items() if name != "POD_NAMESPACE"}
    with (folder / "watch.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def page(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def without_processes(folder):
    """Give a procfs of this machine without its processes, of which some may train."""
    folder.mkdir()
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def tried(tmp_path_factory, nursery):
    """What a canary printed, and the pages of watch and agent after it."""
    folder = tmp_path_factory.mktemp("canary")
    (folder / "rings").mkdir()
    procfs = without_processes(folder / "procfs")
    with (
        running_agent(folder, "--collector.interval=1", f"--path.procfs={procfs}") as agent,
        watching(agent.url, folder) as url,
    ):
        train = ["--train", str(folder / "rings"), "--patience=3m"]
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
            patch.setattr(run, "process", forked(nursery))
            patch.delenv("POD_NAMESPACE", raising=False)
            code = cli.main(["canary", "--json", "--watch", url, *train])
        yield code, printed.getvalue(), page(url), page(agent.url), folder


def test_the_slow_rank_of_a_real_job_is_named(tried):
    code, printed, *_ = tried
    assert code == 0, printed
    outcome = json.loads(printed)
    assert (outcome["job_id"], outcome["result"]) == (JOB, "named")
    assert outcome["expected"] == {"symptom": "gpu_compute", "rank": 2}


def test_no_series_but_its_own_tells_of_it(tried):
    *_, watch, agent, folder = tried
    own = [line for line in watch if NAME in line]
    assert {line.partition("{")[0] for line in own} == {
        "rankscope_canary_step_timestamp_seconds",
        "rankscope_canary_named_timestamp_seconds",
    }
    assert "rankscope_watch_jobs 0.0" in watch
    assert not [line for line in watch if '"local' in line and NAME not in line]
    assert not [line for line in agent if NAME in line]
    assert any(line.startswith("rankscope_build_info") for line in agent)
    assert not (folder / "incidents").exists()


def exported(watch, minutes, lasting):
    """Return the canary's series as exported, for promtool, whose clock begins at zero.

    Args:
        watch: its page.
        minutes: for which they are scraped.
        lasting: minutes in which the canary goes on as it did; then its times stand.
    """
    (now,) = (float(line.split()[1]) for line in watch if "last_evaluation" in line)
    for line in watch:
        if NAME in line:
            series, value = re.fullmatch(r"(\S+) (\S+)", line).groups()
            age = float(value) - now
            values = [f"{min(at, lasting) * 60 + age:.3f}" for at in range(minutes)]
            yield {"series": series, "values": " ".join(values)}


def test_the_alert_fires_by_what_was_exported_once_two_runs_are_missed(tried, tmp_path):
    *_, watch, _, _ = tried
    firing = 'count(ALERTS{alertname="RankscopeCanaryMissed",alertstate="firing"}) or vector(0)'
    (tmp_path / "rules.yaml").write_text(
        json.dumps({"groups": [{"name": "canary", "rules": [rule(MISSED, LINKS)]}]})
    )
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [*exported(watch, 160, 10)],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": f"{at}m", "exp_samples": [sample]}
                    for at, count in ((10, 0), (138, 0), (143, 1))
                    for sample in [{"labels": "{}", "value": count}]
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    command = [require_server("promtool"), "test", "rules", "test.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_that_ends_at_once_is_said_with_its_last_lines(
    tmp_path, capsys, monkeypatch, nursery
):
    monkeypatch.setattr(run, "process", forked(nursery))
    monkeypatch.setattr("rankscope_analyzers.commands.canary.STEPS", "many")
    arguments = ["--watch", f"http://127.0.0.1:{free_port()}", "--train", str(tmp_path)]
    assert cli.main(["canary", *arguments]) == 1
    said = capsys.readouterr().err
    assert "the job ended with 2: " in said
    assert "--steps: invalid int value: 'many'" in said


def test_the_end_of_one_rank_ends_those_that_wait_for_it(bare_nursery):
    script = Path(run.__file__).with_name("job.py")
    command = [str(script), "--ranks=2", "--steps=1", "--fault=none", "--rank=0"]
    job = bare_nursery.start(command, {})
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
    while len(pids := children.read_text().split()) < 2:
        time.sleep(0.01)
    os.kill(int(pids[0]), signal.SIGKILL)
    (end,) = bare_nursery.end_of([job])
    assert end.code == 1, end.errors
    assert not Path(f"/proc/{pids[1]}").exists()
