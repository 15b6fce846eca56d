"""What a collector that works does not see is said, with the component that brings it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from rankscope_agent.collecting.visibility import unseen_parts
from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART
from running_agent import COMMAND, PATIENCE_SECONDS, agent_environment

BOTH = ("netdev", "host")


def test_a_recorded_node_is_seen_whole_but_for_what_takes_a_socket_in_its_network(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "sys").mkdir()
    found = unseen_parts(tmp_path, tmp_path / "sys", tmp_path / "kubelet", BOTH)
    assert list(found) == ["netdev"]
    (line,) = found["netdev"]
    assert line.endswith("component host-network)")


def test_collectors_that_are_switched_off_miss_nothing(tmp_path):
    assert unseen_parts(tmp_path, tmp_path, tmp_path, ()) == {}


def test_what_cgroups_of_version_1_do_not_show_of_pods_is_said(tmp_path):
    root, kubelet = tmp_path / "fs" / "cgroup", tmp_path / "kubelet"
    for folder in (root / "memory", root / "unified", kubelet):
        folder.mkdir(parents=True)
    (root / "unified" / "cgroup.controllers").touch()

    def said(kubelet):
        found = unseen_parts(tmp_path, tmp_path, kubelet, ("host", "pod_netdev"))
        return [name for name, lines in found.items() if "cgroup version 1" in "".join(lines)]

    assert said(kubelet) == ["host", "pod_netdev"]
    assert said(tmp_path / "none") == []  # a node without pods misses nothing
    (root / "cgroup.controllers").touch()
    assert said(kubelet) == []


IN_A_POD = """
set -e
{ip} link set lo up
mkdir {folder}/sys && mount --bind /sys {folder}/sys && mount -t sysfs sysfs /sys
{agent} --web.listen-address=127.0.0.1:9877 --path.state={folder} --path.sysfs={folder}/sys \\
    2>{folder}/log &
{python} - <<'END'
import time, urllib.request
for _ in range(300):
    try:
        pages = [
            urllib.request.urlopen("http://127.0.0.1:9877/" + path).read().decode()
            for path in ("readyz", "healthz")
        ]
        break
    except OSError:
        time.sleep(0.2)
print(*pages, sep=chr(0))
END
kill $!
"""


def test_in_process_and_network_spaces_of_its_own_the_agent_names_both(tmp_path):
    """As tier 0 runs: no hostPID, no hostNetwork."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    apart = ["--pid", "--fork", "--mount-proc", "--net"]
    if not unshare or not ip or subprocess.run([unshare, *apart, "true"], check=False).returncode:
        pytest.skip("no process or network space can be had here")
    script = IN_A_POD.format(agent=" ".join(COMMAND), folder=tmp_path, ip=ip, python=sys.executable)
    done = subprocess.run(
        [unshare, *apart, "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS * 2,
        env=agent_environment(),
    )
    assert done.returncode == 0, done.stderr
    ready, health = done.stdout.split("\0")
    assert "Not seen by netdev: the node's TCP counters: /proc shows a PID namespace" in ready
    assert "Not seen by host: limits of training processes" in ready
    said = [line for line in ready.splitlines() if line.startswith("Not seen by ")]
    parts = json.loads(health)["unobserved_parts"]
    assert len(said) == sum(map(len, parts.values())) == 3
    assert all("component tier-1" in line or "component host-network" in line for line in said)
    log = (tmp_path / "log").read_text()
    assert "collector host does not see limits of training processes" in log
    assert set(parts) <= set(BY_COLLECTOR_OR_PART)
