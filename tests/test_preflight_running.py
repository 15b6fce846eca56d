"""`rankscope preflight --job`: pods of the cluster, what makes them, and what both name."""

from __future__ import annotations

import copy
import json

import pytest

from fake_api_server import FakeApiServer, Store
from kubeconfigs import written
from preflight_jobs import CLAIM, GONE, JOB, NETWORK, POD, changed, env
from rankscope_analyzers import cli

ZONE, LEAF = "topology.kubernetes.io/zone", "network.topology.nvidia.com/leaf"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/llm"
PATHS = {
    "NetworkAttachmentDefinition": "/apis/k8s.cni.cncf.io/v1/namespaces/ml"
    "/network-attachment-definitions/rail-0",
    "PersistentVolumeClaim": "/api/v1/namespaces/ml/persistentvolumeclaims/shared",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses/cephfs",
}


def network_status(number: int) -> str:
    eth0 = {"name": "cni", "interface": "eth0", "ips": [f"10.244.0.{number}"], "default": True}
    net1 = {"name": "ml/rail-0", "interface": "net1", "ips": [f"10.1.0.{number}"]}
    return json.dumps([eth0, net1])


def worker(number: int, phase: str = "Running") -> dict:
    made = copy.deepcopy(POD)
    name = f"llm-worker-{number}"
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm"}
    made["metadata"] |= {
        "name": name,
        "namespace": "ml",
        "uid": f"u-{number}",
        "ownerReferences": [owner | {"controller": True, "uid": "j"}],
    }
    made["metadata"]["labels"]["training.kubeflow.org/job-name"] = "llm"
    made["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = network_status(number)
    made["spec"]["nodeName"] = f"n{number}"
    statuses = [{"name": "pytorch", "restartCount": 0, "state": {"running": {}}}]
    made["status"] = {"phase": phase, "containerStatuses": statuses}
    return made


def node(number: int, **labels: str) -> dict:
    known = {ZONE: "a", LEAF: "s1", **labels}
    return {"kind": "Node", "metadata": {"name": f"n{number}", "labels": known}, "spec": {}}


class Site:
    """A cluster with a job of four pods in which nothing is wrong."""

    def __init__(self, folder) -> None:
        self.server = FakeApiServer()
        self.kubeconfig = str(written(self.server.url, folder))
        self.objects = self.server.config_maps
        for number in range(4):
            self.server.put(worker(number))
            self.objects[f"/api/v1/nodes/n{number}"] = node(number)
        self.objects[PYTORCH_JOBS] = JOB
        for one in (NETWORK, CLAIM):
            self.objects[PATHS[one["kind"]]] = one
        self.objects[PATHS["StorageClass"]] = {"provisioner": "rook-ceph.cephfs.csi.ceph.com"}
        self.server.collections["/api/v1/namespaces/ml/services"] = Store()

    def change(self, number: int, changes: dict) -> None:
        self.server.put(changed(changes, worker(number)))

    def check(self, capsys, *more: str) -> tuple[int, dict]:
        given = ["preflight", "--job", "ml/llm", "--kubeconfig", self.kubeconfig, "--json", *more]
        code = cli.main(given)
        text = capsys.readouterr()
        assert not text.err, text.err
        return code, json.loads(text.out)

    def verdicts(self, capsys) -> dict[str, tuple[str, str]]:
        _, shown = self.check(capsys)
        (job,) = shown["jobs"]
        return {
            one["id"]: ("undecided" if one["undecided"] else one["verdict"], one["seen"])
            for one in job["checks"]
        }


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.server.close()


def test_pods_in_which_nothing_is_wrong_pass(site, capsys):
    code, shown = site.check(capsys)
    (job,) = shown["jobs"]
    assert (code, job["pods"], job["kind"]) == (0, 4, "PyTorchJob")
    assert shown["not_read"] == []
    assert {one["verdict"] for one in job["checks"]} == {"pass", "skip"}
    assert not any(one["undecided"] for one in job["checks"])
    seen = {one["id"]: one["seen"] for one in job["checks"]}
    assert seen["pod-addresses"] == "4 addresses, each once"
    assert seen["one-zone"] == "all pods are in a"
    assert seen["few-racks"] == f"all pods are in s1 of {LEAF}"


def test_secrets_are_never_asked_for(site, capsys):
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    site.change(0, {"spec containers": [changed({"env": [{"name": "NCCL_NET", "valueFrom": secret}],
        "envFrom": [{"secretRef": {"name": "s"}}]}, POD["spec"]["containers"][0])]})  # fmt: skip
    assert site.verdicts(capsys)["rdma-transport"][0] == "undecided"
    assert not [path for _, path, _ in site.server.requests if "secret" in path]


def test_each_fault_of_the_cluster_is_found(site, capsys):
    def verdict(check: str) -> tuple[str, str]:
        return site.verdicts(capsys)[check]

    site.objects["/api/v1/nodes/n3"] = node(3, **{ZONE: "b", LEAF: "s2"})
    assert verdict("one-zone") == ("fail", f"pods are in a (3), b (1) of {ZONE}")
    assert verdict("few-racks") == ("warn", f"pods are in s1 (3), s2 (1) of {LEAF}")
    site.objects["/api/v1/nodes/n2"] = node(2, **{LEAF: "s2"})
    assert verdict("few-racks")[0] == "pass", "equally many in each"
    site.change(1, {"metadata annotations k8s.v1.cni.cncf.io/network-status": network_status(2)})
    assert verdict("pod-addresses")[0] == "fail"
    site.change(1, {"metadata annotations k8s.v1.cni.cncf.io/network-status": "[]"})
    assert "network-status does not list it" in verdict("secondary-interface")[1]
    del site.objects[PATHS["NetworkAttachmentDefinition"]]
    gone = "NetworkAttachmentDefinition ml/rail-0 does not exist"
    assert verdict("attachment-definition") == ("fail", gone)
    del site.objects[PATHS["PersistentVolumeClaim"]]
    assert verdict("checkpoint-volume")[0] == "fail"
    site.objects[PATHS["PersistentVolumeClaim"]] = changed(
        {"spec accessModes": ["ReadWriteOnce"]}, CLAIM
    )
    assert "4 pods mount it" in verdict("checkpoint-volume")[1]


def test_restarts_that_are_used_up_no_longer_count(site, capsys):
    def restarted(times: int) -> tuple[str, str]:
        statuses = [{"name": "pytorch", "restartCount": times}]
        site.change(1, {"status containerStatuses": statuses})
        return site.verdicts(capsys)["restart-budget"]

    assert restarted(0)[0] == "pass"
    limit = "spec.runPolicy.backoffLimit: 5"
    assert restarted(4) == ("warn", f"{limit}, of which 4 are used")
    assert restarted(5) == ("fail", f"{limit}, of which 5 are used")


def test_what_the_api_server_refuses_is_undecided_and_said(site, capsys):
    site.server.forbidden |= {*PATHS.values(), PYTORCH_JOBS, "/api/v1/nodes/n2"}
    site.server.forbidden.add("/api/v1/namespaces/ml/services")
    code, shown = site.check(capsys)
    assert code == 3
    undecided = {one["id"] for one in shown["jobs"][0]["checks"] if one["undecided"]}
    assert undecided == {
        *("attachment-definition", "address-ranges", "checkpoint-volume", "restart-budget"),
        *("one-zone", "few-racks"),
    }
    for name in ("rail-0", "shared", "n2", "services of namespace ml", "PyTorchJob llm"):
        assert any(name in one and "403" in one for one in shown["not_read"]), name


def test_pods_that_ended_do_not_count(site, capsys):
    site.server.put(worker(7, "Failed"))
    assert site.check(capsys)[1]["jobs"][0]["pods"] == 4
    for number in range(4):
        site.server.put(worker(number, "Succeeded"))
    code = cli.main(["preflight", "--job", "ml/llm", "--kubeconfig", site.kubeconfig])
    assert (code, capsys.readouterr().err) == (
        1,
        "rankscope preflight: all 5 pods of job ml/llm have ended\n",
    )


def test_a_job_without_pods_is_checked_by_its_object(site, capsys):
    for number in range(4):
        site.server.delete("ml", f"llm-worker-{number}")
    code, shown = site.check(capsys)
    (job,) = shown["jobs"]
    assert (code, job["pods"], job["source"]) == (0, 4, "in the cluster, without pods")
    site.objects[PYTORCH_JOBS] = changed({"limits cpu": GONE, "main +env": env(NCCL_IB_DISABLE=1)})
    assert site.verdicts(capsys)["rdma-transport"][0] == "fail"
    del site.objects[PYTORCH_JOBS]
    assert cli.main(["preflight", "--job", "ml/llm", "--kubeconfig", site.kubeconfig]) == 1
    assert "no pod of job ml/llm" in capsys.readouterr().err


def test_the_object_of_a_train_job_is_completed_by_its_runtime(site, capsys):
    for number in range(4):
        site.server.delete("ml", f"llm-worker-{number}")
    del site.objects[PYTORCH_JOBS]
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 4}},
    }
    replicated = [{"name": "node", "template": {"spec": {"template": POD}}}]
    runtime = {"spec": {"template": {"spec": {"replicatedJobs": replicated}}}}
    trainer = "/apis/trainer.kubeflow.org/v1alpha1"
    site.objects[f"{trainer}/namespaces/ml/trainjobs/llm"] = train
    gone = "the runtime 'torch' of the TrainJob does not exist"
    assert site.verdicts(capsys)["numa"] == ("undecided", gone)
    site.objects[f"{trainer}/clustertrainingruntimes/torch"] = runtime
    assert site.verdicts(capsys)["numa"][0] == "pass"
    assert site.verdicts(capsys)["checkpoint-volume"][0] == "pass"


def test_nodes_of_many_pods_are_listed(site, capsys):
    store = Store()
    for number in range(300):
        site.server.put(worker(number))
        store.pods[str(number)] = changed({"metadata namespace": ""}, node(number))
    store.pods["x"] = {"metadata": {"name": "other", "namespace": ""}, "spec": {}}
    site.server.collections["/api/v1/nodes"] = store
    found = site.verdicts(capsys)
    assert found["one-zone"] == ("pass", "all pods are in a")
    asked = [path for _, path, _ in site.server.requests if path.startswith("/api/v1/nodes")]
    assert asked == ["/api/v1/nodes"] * 2
    site.server.forbidden.add("/api/v1/nodes")
    assert site.verdicts(capsys)["one-zone"][0] == "undecided"


@pytest.mark.parametrize("name", ["llm", "ml/../secrets", "../ml", "ml/", "a/b/c"])
def test_what_is_no_name_is_not_asked_for(site, name, capsys):
    assert cli.main(["preflight", "--job", name, "--kubeconfig", site.kubeconfig]) == 1
    assert "is called namespace/name" in capsys.readouterr().err
    assert site.server.requests == []
