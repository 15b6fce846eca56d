import pytest

from collected_pods import CID, Kubelet, Node
from fake_kubelet import claim, devices, pod_resources
from pod_json import pod, uid
from rankscope_agent.contract.job_labels import DEFAULT_LABELS, parse_job_labels
from rankscope_agent.contract.metrics import pods as metrics
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import RankIdentity
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.pods import directory
from rankscope_agent.sources.pods.kubelet import KubeletError
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.pods.probed import Probed
from rankscope_agent.sources.pods.server_url import in_cluster_url

GPUS = [f"GPU-{n:08d}-0000-0000-0000-000000000000" for n in range(4)]
LAUNCH = {"owner": ("kubeflow.org/v1", "PyTorchJob", "llm")}


def gpus_of(name: str, *ids: str) -> bytes:
    return pod_resources("ml", name, devices("nvidia.com/gpu", *ids))


def test_a_gpu_is_joined_to_pod_job_and_rank(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[3], GPUS[1])))
    node.gpu_order(GPUS)
    node.pods(pod("w0", number=1, container_id=CID, **LAUNCH))
    for local in (0, 1):
        node.process(
            10 + local,
            1,
            RANK=str(4 + local),
            LOCAL_RANK=str(local),
            LOCAL_WORLD_SIZE="2",
            WORLD_SIZE="8",
            TORCHELASTIC_RUN_ID="x",
        )
    rows = {row["uuid"]: row for row in node.samples(metrics.GPU_ALLOCATION_INFO)}
    assert rows[GPUS[1]] == {
        "uuid": GPUS[1], "gpu": "1", "resource": "nvidia.com/gpu", "node": "n1",
        "job_id": "ml/llm", "rank": "4", "node_rank": "", "pod_namespace": "ml",
        "pod_name": "w0", "container_name": "main",
    }  # fmt: skip
    assert rows[GPUS[3]]["rank"] == "5"


def test_without_the_drivers_order_ranks_of_several_gpus_stay_unknown(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[0], GPUS[1])))
    node.pods(pod("w0", number=1, container_id=CID, **LAUNCH))
    node.process(
        10,
        1,
        RANK="0",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="2",
        WORLD_SIZE="2",
        TORCHELASTIC_RUN_ID="x",
    )
    assert {row["rank"] for row in node.samples(metrics.GPU_ALLOCATION_INFO)} == {""}


def test_a_shared_gpu_keeps_its_replica_and_names_no_rank(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("a", f"{GPUS[0]}::0") + gpus_of("b", f"{GPUS[0]}::1")))
    node.pods(pod("a", number=1, **LAUNCH), pod("b", number=2))
    rows = node.samples(metrics.GPU_ALLOCATION_INFO)
    assert [row["uuid"] for row in rows] == [f"{GPUS[0]}::0", f"{GPUS[0]}::1"]
    assert [row["job_id"] for row in rows] == ["ml/llm", "ml/b"]


def test_gke_numbers_become_uuids_by_the_drivers_files(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("a", "nvidia2")))
    node.gpu_order(GPUS)
    (row,) = node.samples(metrics.GPU_ALLOCATION_INFO)
    assert (row["uuid"], row["gpu"], row["job_id"]) == (GPUS[2], "2", "")


def test_gpus_are_numbered_by_address_whatever_their_device_files_are_called(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("a", GPUS[0]) + gpus_of("b", "nvidia1")))
    node.gpu_order(GPUS, minors=(2, 3, 0, 1))
    rows = node.samples(metrics.GPU_ALLOCATION_INFO)
    assert [(row["uuid"], row["gpu"]) for row in rows] == [(GPUS[0], "0"), (GPUS[3], "3")]


def test_a_gpu_that_the_driver_excludes_has_no_number(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("a", GPUS[1]) + gpus_of("b", "nvidia3")))
    node.gpu_order(GPUS, excluded=GPUS[0])
    rows = node.samples(metrics.GPU_ALLOCATION_INFO)
    assert [(row["uuid"], row["gpu"]) for row in rows] == [(GPUS[1], "0"), (GPUS[3], "2")]


def identity(pod_uid, stated, local_world_size=2):
    return RankIdentity(
        "ml/llm", 0, "n1", 0, 2, local_world_size, 0, "wall", "torchrun", pod_uid, 1, True,
        gpu_uuid=stated.removeprefix("GPU-"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stated", "used"),
    [("", GPUS[1]), (GPUS[3], GPUS[3]), (GPUS[1], GPUS[1]), (GPUS[0], "")],
    ids=["nothing", "another than of its number", "that of its number", "one of another pod"],
)
def test_a_rank_is_on_the_gpu_that_its_process_states_if_its_pod_holds_that(tmp_path, stated, used):
    """CUDA_VISIBLE_DEVICES may name GPUs in another order."""
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[3], GPUS[1])))
    node.gpu_order(GPUS)
    node.pods(pod("w0", number=1, container_id=CID, **LAUNCH))
    node.samples(metrics.GPU_ALLOCATION_INFO)
    assert node.directory.rank_location(identity(uid(1), stated)).uuid == used


@pytest.mark.parametrize("stated", ["", GPUS[3]])
def test_ranks_on_some_gpus_of_a_node_outside_of_pods_state_which(tmp_path, stated):
    node = Node(tmp_path, Kubelet())
    node.gpu_order(GPUS)
    node.samples(metrics.GPU_ALLOCATION_INFO)
    assert node.directory.rank_location(identity("", stated)).uuid == stated


def test_a_rank_outside_of_pods_does_not_use_what_a_pod_holds(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[3])))
    node.gpu_order(GPUS)
    node.pods(pod("w0", number=1, container_id=CID, **LAUNCH))
    node.samples(metrics.GPU_ALLOCATION_INFO)
    assert node.directory.rank_location(identity("", GPUS[3])).uuid == ""
    assert node.directory.rank_location(identity("", GPUS[2])).uuid == GPUS[2]


def test_claims_and_mig_slices_are_gpus_too(tmp_path):
    mig = "MIG-11111111-2222-3333-4444-555555555555"
    message = pod_resources("ml", "a", devices("nvidia.com/mig-1g.10gb", mig)) + pod_resources(
        "ml", "b", claim("gpu.nvidia.com", "n1", "gpu-0", f"k8s.gpu.nvidia.com/claim={GPUS[0]}")
    )
    rows = Node(tmp_path, Kubelet(message)).samples(metrics.GPU_ALLOCATION_INFO)
    assert [row["uuid"] for row in rows] == [mig, GPUS[0]]


def test_an_rdma_device_is_named_by_its_pci_address(tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:3b:00.2/infiniband/mlx5_4").mkdir(parents=True)
    message = pod_resources("ml", "a", devices("rdma/vf", "0000:3b:00.2"))
    (row,) = Node(tmp_path, Kubelet(message)).samples(metrics.RDMA_ALLOCATION_INFO)
    assert (row["device"], row["pci"], row["device_id"]) == ("mlx5_4", *["0000:3b:00.2"] * 2)


def test_a_job_is_described_once_by_the_labels_of_its_oldest_pod(tmp_path):
    node = Node(tmp_path, Kubelet())
    labels = {"team": "nlp", "project": "llm", "kueue.x-k8s.io/queue-name": "prod"}
    node.pods(
        pod("w1", number=2, labels={**labels, "team": "other"}, **LAUNCH),
        pod("w0", number=1, labels=labels, **LAUNCH),
        pod("web", number=3, owner=("apps/v1", "ReplicaSet", "web-1")),
    )
    (row,) = node.samples(metrics.JOB_INFO)
    assert row == {
        "job_id": "ml/llm", "kind": "PyTorchJob", "project": "llm", "class": "", "owner": "",
        "team": "nlp", "queue": "prod", "gang": "", "parent": "",
    }  # fmt: skip
    assert node.values(metrics.JOB_PODS) == {("ml/llm", "Running"): 2}


def test_labels_of_the_organisations_own_choice_are_used():
    chosen = parse_job_labels("team=acme/squad,team=team,class=tier")
    assert chosen["team"] == ["acme/squad", "team"]
    assert chosen["class"] == ["tier"]
    assert chosen["owner"] == DEFAULT_LABELS["owner"]
    for wrong in ("squad", "colour=x", "team="):
        with pytest.raises(ValueError, match="FACT=LABEL"):
            parse_job_labels(wrong)


def test_a_rank_without_a_probe_is_known_by_its_process(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[0])))
    node.pods(pod("w0", number=1, container_id=CID, **LAUNCH))
    node.process(
        10,
        1,
        RANK="3",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        WORLD_SIZE="4",
        TORCHELASTIC_RUN_ID="x",
        NCCL_NET="IB",
    )
    (row,) = node.samples(training.RANK_INFO)
    assert {**row} == {
        "job_id": "ml/llm", "rank": "3", "node": "n1", "local_rank": "0", "world_size": "4",
        "uuid": GPUS[0], "pod_uid": uid(1), "pod_namespace": "ml", "pod_name": "w0",
        "container_name": "main", "dp_group": "", "tp_group": "", "pp_stage": "",
        "launcher": "torchrun", "timing_source": "none",
    }  # fmt: skip
    assert len(node.samples(metrics.RANK_ENVIRONMENT_INFO)) == 1


def test_a_process_of_a_pod_that_was_deleted_by_force_takes_no_rank_from_the_next_pod(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(directory, "PENDING_SECONDS", 0.0)
    node = Node(tmp_path, Kubelet())
    node.directory.fall_back_on(lambda of: PodIdentity("ml", "w0", of))
    launch = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "RANKSCOPE_JOB_ID": "llm"}
    node.process(10, 1, **launch)
    (tmp_path / "proc/10/cgroup").write_text(f"0::/kubepods/pod{uid(1)}/{'cd' * 32}")
    node.process(11, 2, **launch)
    node.pods(pod("w0", number=2, container_id=CID, **LAUNCH))
    assert [row["pod_uid"] for row in node.samples(training.RANK_INFO)] == [uid(2)]


def test_a_rank_with_a_probe_is_left_to_its_ring(tmp_path):
    node = Node(tmp_path, Kubelet())
    node.pods(pod("w0", number=1, container_id=CID, **LAUNCH))
    node.process(10, 1, RANK="3", LOCAL_RANK="0", WORLD_SIZE="4", TORCHELASTIC_RUN_ID="x")
    (tmp_path / "proc/stat").write_text("btime 1700000000\n")
    (tmp_path / "proc/10/stat").write_text(f"10 (python) S {'0 ' * 18}100 0\n")
    assert node.samples(metrics.RANK_STARTED) == []
    node.directory.note_probed(Probed(frozenset({("ml/llm", 3)})))
    assert node.samples(training.RANK_INFO) == []
    assert [row["rank"] for row in node.samples(metrics.RANK_STARTED)] == ["3"]


@pytest.mark.parametrize("step", ["0", "3"])
def test_a_task_that_spawns_ranks_is_none_of_them(tmp_path, step):
    node = Node(tmp_path, Kubelet())
    task = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    node.process(10, 1, SLURM_JOB_ID="4711", SLURM_STEP_ID=step, **task)
    (tmp_path / "proc/10/cgroup").write_text("0::/")
    assert [row["rank"] for row in node.samples(training.RANK_INFO)] == ["1"]
    spawned = frozenset(("4711", rank) for rank in (4, 5, 6, 7))
    node.directory.note_probed(Probed(spawned, sizes={"4711": {8}}))
    for metric in (training.RANK_INFO, metrics.RANK_STARTED, metrics.RANK_ENVIRONMENT_INFO):
        assert node.samples(metric) == []
    node.directory.note_probed(Probed(spawned, sizes={"4711": {2, 8}}))
    assert [row["rank"] for row in node.samples(training.RANK_INFO)] == ["1"]


def test_names_that_are_used_again_are_joined_to_the_pod_that_runs(tmp_path):
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[0])))
    old = pod("w0", number=1, phase="Failed", owner=("batch/v1", "Job", "old"))
    node.pods(pod("w0", number=2, owner=("batch/v1", "Job", "new")), old)
    (row,) = node.samples(metrics.GPU_ALLOCATION_INFO)
    assert row["job_id"] == "ml/new"


def test_a_device_that_the_kubelet_calls_unhealthy_is_told(tmp_path):
    data = pod("w0", number=1, **LAUNCH)
    data["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = [
        {"name": "nvidia.com/gpu", "resources": [{"resourceID": GPUS[0], "health": "Unhealthy"}]}
    ]
    node = Node(tmp_path, Kubelet(failure=FileNotFoundError(2, "No such file", "kubelet.sock")))
    node.pods(data)
    (row,) = node.samples(metrics.DEVICE_UNHEALTHY)
    assert (row["device_id"], row["pod_name"]) == (GPUS[0], "w0")
    # Without the kubelet, the pod's own status says what it holds.
    assert [r["uuid"] for r in node.samples(metrics.GPU_ALLOCATION_INFO)] == [GPUS[0]]


@pytest.mark.parametrize(
    "failure",
    [
        KubeletError("RESOURCE_EXHAUSTED"),
        TimeoutError("too long"),
        ConnectionRefusedError("no"),
        FileNotFoundError(2, "gone", "kubelet.sock"),
    ],
)
def test_what_the_kubelet_said_is_kept_while_it_fails(tmp_path, failure):
    node = Node(tmp_path, Kubelet(gpus_of("w0", GPUS[0])))
    before = node.samples(metrics.GPU_ALLOCATION_INFO)
    node.kubelet.failure = failure
    node.now += 60
    assert node.samples(metrics.GPU_ALLOCATION_INFO) == before
    assert node.values(metrics.POD_SOURCE_UP)["kubelet",] == 0
    assert node.values(metrics.POD_SOURCE_UPDATED)["kubelet",] == 1000.0
    assert node.values(metrics.POD_SOURCE_ERRORS)["kubelet",] == 1


def test_garbage_of_the_kubelet_is_a_failure_of_it_alone(tmp_path):
    node = Node(tmp_path, Kubelet(b"\x0a\xff"))
    assert node.values(metrics.POD_SOURCE_UP)["kubelet",] == 0


def test_the_kubelet_is_asked_every_ten_seconds_however_often_the_page_is_made(tmp_path):
    node = Node(tmp_path, Kubelet())
    for _ in range(25):
        node.collect()
        node.now += 1
    assert node.kubelet.calls == 3


def test_a_clock_that_is_set_back_does_not_stop_the_looks(tmp_path):
    node = Node(tmp_path, Kubelet())
    node.collect()
    node.now -= 500
    node.collect()
    assert node.kubelet.calls == 2


def test_outside_of_kubernetes_there_is_no_data_and_the_reason_is_said(tmp_path):
    node = Node(tmp_path, Kubelet(failure=FileNotFoundError(2, "x", "/k/kubelet.sock")), api=False)
    with pytest.raises(NoData, match=r"no kubelet socket /k/kubelet.sock.*no API server"):
        node.collect()


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "https://10.0.0.1:443"),
        (
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"},
            "https://[fd00::1]:6443",
        ),
    ],
)
def test_the_api_server_is_found_as_pods_find_it(environ, url):
    assert in_cluster_url(environ) == url
