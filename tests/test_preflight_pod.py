"""`rankscope preflight --this-pod`, `--this-node` and `--page`: what needs nobody to be asked."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import yaml

from rankscope_analyzers import cli
from rankscope_analyzers.preflight import pod_checks
from rankscope_analyzers.preflight.checks import CHECKS, POD_CHECKS, pod_results
from rankscope_analyzers.preflight.surroundings import RdmaDevice, Surroundings, look

GIB = 1 << 30
UP = RdmaDevice(usable=True, ports={"1": True})
DOWN = RdmaDevice(usable=True, ports={"1": False})

SOUND = Surroundings(
    variables={
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "net1",
        "PET_NPROC_PER_NODE": "8",
        "PYTHONPATH": "/opt/rankscope/probe",
    },
    shm_bytes=16 * GIB,
    memlock_bytes=inf,
    may_lock=False,
    interfaces={"eth0": True, "net1": True},
    rdma={"mlx5_0": UP, "mlx5_1": UP},
    gpus=8,
)


def with_variables(**values: str) -> Surroundings:
    return replace(SOUND, variables={**SOUND.variables, **values})


def without(name: str, **changes: object) -> Surroundings:
    kept = {key: value for key, value in SOUND.variables.items() if key != name}
    return replace(SOUND, variables=kept, **changes)


UNREADABLE = RdmaDevice(usable=True, ports={})
LIMITED = {"memlock_bytes": float(8 << 20)}

CASES = [
    ("pod-shared-memory", "pass", "16Gi", SOUND),
    ("pod-shared-memory", "warn", "512Mi", replace(SOUND, shm_bytes=512 << 20)),
    ("pod-shared-memory", "fail", "No space left", replace(SOUND, shm_bytes=64 << 20)),
    ("pod-shared-memory", "undecided", "cannot be read", replace(SOUND, shm_bytes=None)),
    ("pod-locked-memory", "pass", "no limit", SOUND),
    ("pod-locked-memory", "pass", "IPC_LOCK", replace(SOUND, **LIMITED, may_lock=True)),
    ("pod-locked-memory", "skip", "no RDMA", replace(SOUND, **LIMITED, rdma={})),
    ("pod-locked-memory", "warn", "2Gi", replace(SOUND, memlock_bytes=2.0 * GIB)),
    ("pod-locked-memory", "fail", "8Mi may be locked", replace(SOUND, **LIMITED)),
    ("pod-locked-memory", "undecided", "cannot be read", replace(SOUND, memlock_bytes=None)),
    ("pod-interfaces", "pass", "matches net1", SOUND),
    ("pod-interfaces", "pass", "not set", without("NCCL_SOCKET_IFNAME")),
    ("pod-interfaces", "warn", "eth0, net1", without("NCCL_SOCKET_IFNAME", rdma={})),
    ("pod-interfaces", "pass", "has eth0",
     without("NCCL_SOCKET_IFNAME", rdma={}, interfaces={"eth0": True, "tunl0": False})),
    ("pod-interfaces", "fail", "none of eth0", replace(SOUND, interfaces={"eth0": True})),
    ("pod-interfaces", "fail", "none is up", replace(SOUND, interfaces={"net1": False})),
    ("pod-interfaces", "undecided", "cannot be listed", replace(SOUND, interfaces=None)),
    ("pod-rdma", "pass", "2 ports", SOUND),
    ("pod-rdma", "pass", "1 ports", with_variables(NCCL_IB_HCA="=mlx5_1:1")),
    ("pod-rdma", "skip", "no RDMA", replace(SOUND, rdma={})),
    ("pod-rdma", "warn", "mlx5_1/1 of 2", replace(SOUND, rdma={"mlx5_0": UP, "mlx5_1": DOWN})),
    ("pod-rdma", "fail", "mlx5_0/1, mlx5_1/1",
     replace(SOUND, rdma={"mlx5_0": DOWN, "mlx5_1": DOWN})),
    ("pod-rdma", "fail", "mlx5_1/1",
     replace(with_variables(NCCL_IB_HCA="mlx5"), rdma={"mlx5_0": UP, "mlx5_1": DOWN})),
    ("pod-rdma", "fail", "takes sockets", replace(with_variables(NCCL_IB_HCA="mlx5"), rdma={})),
    ("pod-rdma", "fail", "none of mlx5_0", with_variables(NCCL_IB_HCA="bnxt")),
    ("pod-rdma", "fail", "opened", replace(SOUND, rdma={"mlx5_0": replace(UP, usable=False)})),
    ("pod-rdma", "undecided", "cannot be read", replace(SOUND, rdma={"mlx5_0": UNREADABLE})),
    ("pod-gpus", "pass", "8 GPUs", SOUND),
    ("pod-gpus", "skip", "no variable gives", without("PET_NPROC_PER_NODE")),
    ("pod-gpus", "warn", "idle", with_variables(PET_NPROC_PER_NODE="4")),
    ("pod-gpus", "fail", "share one", replace(SOUND, gpus=4)),
    ("pod-gpus", "fail", "no /dev/nvidia",
     replace(with_variables(NVIDIA_VISIBLE_DEVICES="GPU-1"), gpus=0)),
    ("pod-gpus", "undecided", "cannot be listed", replace(SOUND, gpus=None)),
    ("rdma-transport", "fail", "TCP", with_variables(NCCL_IB_DISABLE="1")),
    ("nccl-variables", "fail", "ignores", with_variables(NCCL_SOKET_IFNAME="x")),
    ("nccl-debug", "warn", "not set", without("NCCL_DEBUG")),
    ("gpudirect", "fail", "LOC", with_variables(NCCL_NET_GDR_LEVEL="LOC")),
    ("progress-visible", "fail", "hangs", with_variables(TORCH_NCCL_ASYNC_ERROR_HANDLING="0")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "verdict", "seen", "pod"), CASES, ids=[f"{c}-{v}-{s}" for c, v, s, _ in CASES]
)
def test_a_check_concludes(check, verdict, seen, pod):
    outcome = {one.check.id: one.outcome for one in pod_results(pod)}[check]
    got = "undecided" if outcome.undecided else outcome.verdict
    assert (got, seen in outcome.seen) == (verdict, True), outcome
    assert bool(outcome.remedy) == bool(outcome.expected) == (verdict in {"warn", "fail"})


def test_each_check_of_a_pod_is_seen_with_each_verdict():
    seen = {(check, verdict) for check, verdict, _, _ in CASES}
    for check in (one.id for one in POD_CHECKS):
        for verdict in ("pass", "warn", "fail", "undecided"):
            assert (check, verdict) in seen, (check, verdict)
    assert {check for check, *_ in CASES} >= set(pod_checks.FROM_VARIABLES)
    assert {one.id for one in CHECKS} >= set(pod_checks.FROM_VARIABLES)


def test_a_sound_pod_passes():
    assert {one.outcome.verdict for one in pod_results(SOUND)} == {"pass"}


@pytest.fixture
def root(tmp_path) -> Path:
    """A machine's files as a pod with one adapter and two GPUs sees them."""
    files = {
        "proc/self/status": "Name:\tsh\nCapEff:\t00000000a80425fb\n",
        "proc/self/limits": "Max locked memory         8388608              8388608   bytes\n",
        "sys/class/net/lo/operstate": "unknown\n",
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/net1/operstate": "down\n",
        "sys/class/infiniband_verbs/uverbs3/ibdev": "mlx5_3\n",
        "sys/class/infiniband/mlx5_3/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_3/ports/2/state": "1: DOWN\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "1: DOWN\n",
        **{f"dev/{name}": "" for name in ("nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm")},
        "dev/infiniband/uverbs3": "",
        "dev/infiniband/rdma_cm": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_pod_sees_its_own_devices_alone(root):
    seen = look({"A": "b"}, root)
    assert seen.interfaces == {"eth0": True, "net1": False}
    assert seen.rdma == {"mlx5_3": RdmaDevice(usable=True, ports={"1": True, "2": False})}
    assert (seen.gpus, seen.memlock_bytes, seen.may_lock) == (2, 8388608.0, False)
    (root / "proc/self/limits").write_text("Max locked memory   unlimited    unlimited   bytes\n")
    (root / "proc/self/status").write_text("CapEff:\t000001ffffffffff\n")
    seen = look({}, root)
    assert (seen.memlock_bytes, seen.may_lock) == (inf, True)


@pytest.mark.parametrize(
    ("users", "lifted"), [("         0          0 4294967295\n", True), ("0 100000 65536\n", False)]
)
def test_ipc_lock_in_a_user_namespace_lifts_no_limit(root, users, lifted):
    (root / "proc/self/status").write_text("CapEff:\t000001ffffffffff\n")
    (root / "proc/self/uid_map").write_text(users)
    assert look({}, root).may_lock is lifted


def test_a_device_that_its_mode_allows_to_open_and_the_kernel_does_not_is_not_usable(
    root, monkeypatch
):
    device = root / "dev/infiniband/uverbs3"
    device.unlink()
    monkeypatch.chdir(device.parent)  # the name of a socket is at most 108 bytes long
    with socket.socket(socket.AF_UNIX) as refusing:
        refusing.bind(device.name)
        assert os.access(device, os.R_OK | os.W_OK)
        assert not look({}, root).rdma["mlx5_3"].usable


def test_what_cannot_be_read_is_not_taken_for_nothing(tmp_path):
    seen = look({}, tmp_path, tmp_path / "gone")
    assert seen == Surroundings({}, None, None, None, None, None, None)
    undecided = {one.check.id for one in pod_results(seen) if one.outcome.undecided}
    assert undecided == {one.id for one in POD_CHECKS}


TEMPLATE = Path(__file__).parents[1] / "daemonset" / "preflight" / "init-container.yaml"


def init_container() -> tuple[dict, dict]:
    spec = yaml.safe_load(TEMPLATE.read_text())["spec"]["template"]["spec"]
    return spec["initContainers"][0], spec["containers"][0]


def test_the_init_container_sees_what_the_trainer_will():
    check, trainer = init_container()
    for key in ("env", "resources", "securityContext", "volumeMounts"):
        assert check[key] == trainer[key]
    assert check["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_the_manifest_with_the_init_container_fails_no_check():
    path = str(TEMPLATE)
    assert cli.main(["preflight", path, "--checkpoint-path", "s3://b", "--json"]) in {0, 3}


@pytest.mark.parametrize(("value", "code"), [("^net17", 0), ("=net17", 1)])
def test_its_command_ends_the_pod_with_the_reason_alone(value, code, tmp_path):
    """In a place without GPUs or adapters, where some checks cannot be made."""
    folders = ("agent", "analyzers")
    given = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(str(TEMPLATE.parents[2] / one) for one in folders),
        "NCCL_SOCKET_IFNAME": value,
    }
    command = init_container()[0]["command"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    failed = re.search(r"fail +pod-interfaces +NCCL_SOCKET_IFNAME", done.stdout)
    assert bool(failed) == bool(code), done.stdout


def test_this_node_is_what_its_agent_prints_once(monkeypatch, capsys):
    monkeypatch.setenv("RANKSCOPE_SIMULATE", "h100x2")
    code = cli.main(["preflight", "--this-node", "--skip", "clocks", "--skip", "xids", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert (code, shown["pool"]["nodes"]) == (0, [os.uname().nodename])
    verdicts = {one["id"]: one["verdict"] for one in shown["pool"]["checks"]}
    assert verdicts["gpu-kind"] == verdicts["rdma-ports"] == verdicts["peer-memory"] == "pass"


def test_an_agent_that_does_not_start_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setenv("RANKSCOPE_SIMULATE", "h100x99")
    assert cli.main(["preflight", "--this-node"]) == 1
    shown = capsys.readouterr().err
    assert "this node's agent cannot be run once: " in shown
    assert shown.count("\n") == 1


PAGE = 'rankscope_build_info{{version="1"}} 1\nrankscope_gpu_info{{gpu="0",model="{}"}} 1\n'


def test_pages_that_were_kept_are_nodes(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.prom").write_text(PAGE.format("H100"))
    monkeypatch.setattr("sys.stdin", io.StringIO(PAGE.format("A100")))
    given = ["preflight", "--page", str(tmp_path / "a.prom"), "--page", "-", "--json"]
    assert cli.main(given) == 2
    shown = json.loads(capsys.readouterr().out)["pool"]
    assert shown["nodes"] == ["a", "standard input"]
    seen = {one["id"]: one["seen"] for one in shown["checks"]}["gpu-kind"]
    assert "H100 on node a, 1 x A100" in seen


@pytest.mark.parametrize(
    ("text", "message"),
    [("<html>", "is not an agent's page"), (b"\xff\xfe", "not UTF-8"), (None, "No such file")],
)
def test_what_is_no_page_is_one_sentence(text, message, tmp_path, capsys):
    path = tmp_path / "page"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert cli.main(["preflight", "--page", str(path)]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_two_pages_of_one_node_are_refused(tmp_path, capsys):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.prom").write_text(PAGE.format("H100"))
    given = [word for name in ("x", "y") for word in ("--page", str(tmp_path / name / "a.prom"))]
    assert cli.main(["preflight", *given]) == 1
    assert "more than one page of node a" in capsys.readouterr().err
