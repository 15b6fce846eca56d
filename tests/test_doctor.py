"""`rankscope doctor` on the real agent, with a fake kubelet and a fake API server beside it."""

import json
from collections.abc import Iterator

import pytest

import kubeconfigs
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet, devices, pod_resources
from node_with_agent import CID, GPU, LLM, Node, eventually, ready
from pod_json import pod, uid
from rankscope_agent.collecting.registry import all_collectors
from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_analyzers import cli
from rankscope_analyzers.commands import doctor as doctor_command
from rankscope_analyzers.doctor import agent_startup
from rankscope_analyzers.doctor.checks import AgentFacts, Check, node_checks, pod_checks, remedy
from rankscope_analyzers.intake import cluster
from rankscope_analyzers.intake.cluster import ClusterError
from rankscope_analyzers.intake.credentials import Entry
from ring_writer import RingWriter


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    made = FakeApiServer()
    yield made
    made.close()


@pytest.fixture
def node(tmp_path, api) -> Node:
    return Node(tmp_path, api)


@pytest.fixture
def kubelet(node) -> Iterator[FakeKubelet]:
    made = FakeKubelet(node.path / "kubelet/pod-resources/kubelet.sock")
    yield made
    made.close()


def doctor(capsys, *arguments: str) -> tuple[int, str]:
    code = cli.main(["doctor", "--no-color", *arguments])
    out, err = capsys.readouterr()
    return code, out + err


def checks(capsys, *arguments: str) -> dict[str, dict[str, str]]:
    code, text = doctor(capsys, "--json", *arguments)
    assert code == 0, text
    document = json.loads(text)
    return {c["source"]: c for section in document["sections"] for c in section["checks"]}


def test_pod_that_all_see(node, api, kubelet, capsys):
    environ = {"NCCL_DEBUG": "INFO"}
    data = pod("w0", owner=LLM, limits={"nvidia.com/gpu": "1"}, container_id=CID, env=environ)
    api.put(data)
    kubelet.answer = pod_resources("ml", "w0", devices("nvidia.com/gpu", GPU))
    launched = {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "1"}
    node.process(10, 1, RANK="3", LOCAL_RANK="0", NCCL_NET="IB", **launched)
    writer = RingWriter(
        node.volume(1), rank=3, local_world_size=1, pod_uid=uid(1), job_id="local/77"
    )
    writer.step(3)
    with node.agent() as agent:
        assert eventually(lambda: f'uuid="{GPU}"' in agent.get("/metrics"))
        assert eventually(lambda: 'rankscope_rank_alive{job_id="ml/llm"' in agent.get("/metrics"))
        found = checks(capsys, "w0", "--agent", agent.url)
        assert {source: check["state"] for source, check in found.items()} == {
            "job": "seen",
            "devices": "seen",
            "processes": "seen",
            "probe": "seen",
            "logs": "not seen",
        }
        assert "PyTorchJob ml/llm" in found["job"]["detail"]
        assert GPU in found["devices"]["detail"]

        def info() -> str:
            lines = agent.get("/metrics").splitlines()
            return next(line for line in lines if line.startswith("rankscope_rank_info{"))

        assert eventually(lambda: f'uuid="{GPU}"' in info())
        assert 'pod_name="w0"' in info()
        # What the process says of the rank goes as soon as the ring's word has come round.
        assert eventually(lambda: agent.get("/metrics").count("\nrankscope_rank_info{") == 1)
        rows = json.loads(agent.get("/api/v1/steps?job=ml/llm"))["rows"]
        assert len(rows) == 3
    writer.end()


def test_pod_that_none_sees(node, api, capsys):
    api.put(pod("w0", owner=LLM, limits={"nvidia.com/gpu": "8"}))
    with node.agent() as agent:
        assert eventually(lambda: "rankscope_job_info{" in agent.get("/metrics"))
        found = checks(capsys, "ml/w0", "--agent", agent.url)
        assert found["devices"]["state"] == "not seen"
        assert "no kubelet socket" in found["devices"]["detail"]
        assert found["devices"]["remedy"].endswith(
            ": hostPath /var/lib/kubelet/pod-resources and root: base"
        )
        assert "NCCL_DEBUG is not set" in found["logs"]["detail"]
        assert found["probe"]["remedy"].endswith("component probe")
        code, text = doctor(capsys, "other", "--agent", agent.url)
        assert (code, "no pod 'other' on n1" in text) == (1, True)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([], "no pod of this node has a probe"),
        ([{"rank": 0, "pod_uid": "another"}], "other pods of this node have a probe, this one"),
    ],
)
def test_other_pods_have_a_probe_only_where_one_has(ranks, said):
    wanted = {"name": "w0", "namespace": "ml", "uid": "own"}
    facts = AgentFacts("a", {}, {"pods": [wanted]}, ranks, "")
    (probe,) = [one for one in pod_checks(facts, wanted) if one.source == "probe"]
    assert probe.state == "not seen"
    assert said in probe.detail


def test_a_node_says_what_each_collector_lacks(node, api, capsys):
    with node.agent() as agent:
        assert eventually(lambda: ready(agent))
        found = checks(capsys, "--agent", agent.url)
        assert found["pods"]["state"] == "seen"
        assert found["training"]["state"] == "not seen"
        assert found["pods: kubelet"]["state"] == "not seen"
        lacking = [c for c in found.values() if c["state"] == "not seen"]
        assert all(check["detail"] and check["remedy"] for check in lacking)
        _, text = doctor(capsys, "--agent", agent.url, "--agent", "http://127.0.0.1:9")
        assert "node n1" in text
        assert "Not asked: agent http://127.0.0.1:9 cannot be reached" in text


def test_ranks_whose_environments_differ_are_named(node, api, capsys):
    api.put(pod("w0", owner=LLM, container_id=CID))
    launched = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2"}
    for rank, interface in (("0", "eth0"), ("1", "eth1")):
        node.process(
            10 + int(rank), 1, RANK=rank, LOCAL_RANK=rank, NCCL_SOCKET_IFNAME=interface, **launched
        )
    with node.agent() as agent:
        assert eventually(lambda: "rankscope_rank_environment_info{" in agent.get("/metrics"))
        _, text = doctor(capsys, "--agent", agent.url)
        assert "NCCL_SOCKET_IFNAME is 'eth0' on 1 of 2 ranks, but 'eth1' on rank 1" in " ".join(
            text.split()
        )


def test_every_collector_has_a_remedy_that_names_its_component():
    for name in (*all_collectors(PodDirectory(), FlightWindows()), "api", "kubelet", "processes"):
        assert BY_COLLECTOR_OR_PART[name].remedy in remedy(name)
        assert remedy(name).endswith(f"In Kubernetes: {BY_COLLECTOR_OR_PART[name].needs}")
        assert BY_COLLECTOR_OR_PART[name].needs
    assert remedy("kernel_log").endswith("component tier-3; or journald's files: component journal")


def test_what_a_collector_sees_in_part_is_a_check_of_its_own():
    part = "the node's TCP counters: no hostPID (needs hostPID: component tier-1)"
    told = {"collectors": {"netdev": {}}, "unobserved": {}}
    expected = Check(
        *("netdev, in part", "not seen", "the node's TCP counters: no hostPID"),
        "it needs hostPID: component tier-1",
    )
    for parts, more in (({"netdev": [part]}, [expected]), ({"netdev": 3}, []), (None, [])):
        facts = AgentFacts("http://a", told | {"unobserved_parts": parts}, {}, (), "")
        seen, *found = node_checks(facts)
        assert (seen.source, seen.state, found) == ("netdev", "seen", more)


def test_no_agent_at_all_is_an_error(capsys):
    code, text = doctor(capsys, "--agent", "http://127.0.0.1:9")
    assert (code, "cannot be reached" in text) == (1, True)
    assert "--cluster" not in text


def test_without_an_agent_here_the_error_says_how_to_start_or_name_one(capsys, monkeypatch):
    monkeypatch.setattr(doctor_command, "LOCAL_AGENT", "http://127.0.0.1:9")
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().err
    assert "; without --agent or --cluster, this node's agent is asked" in text


@pytest.fixture
def kubeconfig(tmp_path, api, monkeypatch) -> None:
    kubeconfigs.point_at(api.url, tmp_path, monkeypatch)


def agent_pod(name: str, number: int, on: str, address: str):
    data = pod(
        name, "rankscope", number=number, labels={"app.kubernetes.io/name": "rankscope-agent"}
    )
    data["spec"]["nodeName"] = on
    data["status"]["podIP"] = address
    return data


def test_agents_are_found_in_the_cluster_of_the_kubeconfig(api, kubeconfig):
    api.put(agent_pod("a-1", 1, "n1", "10.0.0.7"))
    api.put(agent_pod("a-2", 2, "n2", "fd00::7"))
    api.put(pod("w0", number=3, owner=LLM))
    assert cluster.agents_of_cluster() == {
        "n1": "http://10.0.0.7:9877",
        "n2": "http://[fd00::7]:9877",
    }
    assert cluster.placed_pod("ml/w0")["spec"]["nodeName"] == "n1"
    assert cluster.placed_pod("other/w0") is None


def test_a_token_is_shown_to_no_pod_that_only_carries_the_label_of_an_agent(
    api, kubeconfig, tmp_path
):
    api.put(agent_pod("a-1", 1, "n1", "10.0.0.7"))
    impostor = agent_pod("impostor", 2, "n2", "10.6.6.6")
    impostor["metadata"]["namespace"] = "team"
    api.put(impostor)
    assert len(cluster.trusted_agents(None, Entry())) == 2
    with pytest.raises(ClusterError, match="--namespace"):
        cluster.trusted_agents(None, Entry(tmp_path / "token"))
    shown = Entry(tmp_path / "token", tmp_path / "ca.crt")
    assert cluster.trusted_agents("rankscope", shown) == {"n1": "https://10.0.0.7:9877"}


def test_of_two_pods_that_carry_the_label_on_one_node_none_is_believed(api, kubeconfig, capsys):
    api.put(agent_pod("a-1", 1, "n1", "127.0.0.7"))
    api.put(agent_pod("a-2", 2, "n2", "127.0.0.8"))
    impostor = agent_pod("impostor", 3, "n1", "127.6.6.6")
    impostor["metadata"]["namespace"] = "team"
    api.put(impostor)
    found = cluster.agents_of_cluster()
    assert found == {"n2": "http://127.0.0.8:9877"}
    (doubt,) = found.doubts
    assert "node n1: rankscope/a-1, team/impostor" in doubt
    said = " ".join(doctor(capsys, "--cluster")[1].split())
    assert "rankscope/a-1, team/impostor" in said
    trusted = cluster.trusted_agents("rankscope", Entry())
    assert (trusted["n1"], trusted.doubts) == ("http://127.0.0.7:9877", ())


def test_an_agent_that_has_no_address_yet_is_said_not_to_be_asked(api, kubeconfig, capsys):
    api.put(agent_pod("a-1", 1, "n1", ""))
    assert cluster.agents_of_cluster() == {}
    one = "the agent of node n1 cannot be asked: its pod has no address"
    assert one in " ".join(doctor(capsys, "--cluster")[1].split())
    api.put(agent_pod("a-2", 2, "n2", ""))
    api.put(agent_pod("evicted", 3, "n3", ""))
    api.put(agent_pod("a-3", 4, "n3", "10.0.0.7"))
    found = cluster.agents_of_cluster()
    assert found == {"n3": "http://10.0.0.7:9877"}
    assert found.doubts == (
        "the agents of nodes n1, n2 cannot be asked: their pods have no address",
    )


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ({"deletionTimestamp": "2026-11-20T10:00:00Z"}, {}, "127.0.0.8"),
        ({}, {"ready": False}, "127.0.0.7"),
        ({}, {}, "127.0.0.8"),
    ],
)
def test_of_an_agent_that_is_being_replaced_the_one_that_stays_is_asked(
    api, kubeconfig, old, new, kept
):
    owner = {"kind": "DaemonSet", "name": "rankscope-agent", "uid": "ds", "controller": True}
    for number, changes in ((7, old), (8, new)):
        data = agent_pod(f"a-{number}", number, "n1", f"127.0.0.{number}")
        status = "True" if changes.pop("ready", True) else "False"
        data["status"]["conditions"] = [{"type": "Ready", "status": status}]
        data["metadata"] |= {"ownerReferences": [owner], **changes}
        api.put(data)
    assert cluster.agents_of_cluster() == {"n1": f"http://{kept}:9877"}


def test_a_pod_without_an_agent_on_its_node_is_named(api, kubeconfig, capsys):
    assert "no agent runs in the cluster" in doctor(capsys, "--cluster")[1]
    api.put(agent_pod("a-2", 2, "n2", "10.0.0.7"))
    api.put(pod("w0", number=3, owner=LLM))
    code, text = doctor(capsys, "w0", "--cluster")
    assert (code, "runs on n1, which has no agent" in text) == (1, True)


def test_what_keeps_agents_from_starting_is_named_with_what_mends_it(api, kubeconfig, capsys):
    api.events = [warning(text) for text in KEPT] + [warning(KEPT[0]), warning(OTHERS, "web-0")]
    code, text = doctor(capsys, "--cluster", "--namespace", "rankscope")
    said = " ".join(text.split())
    assert (code, said.count("violates PodSecurity")) == (1, 1)
    assert "enforce=privileged: base sets it" in said
    assert 'secret "rankscope-api-token" not found (base takes it: kubectl' in said
    assert "/var/lib/kubelet/pods is not a directory (component probe takes" in said
    assert "(component nvml takes it; nvml-default-runtime and dcgm do without)" in said
    assert (
        "only where a ResourceQuota of the namespace speaks of it: ask its administrators" in said
    )
    assert "another namespace than rankscope takes transformers: daemonset/installation" in said
    assert "(OpenShift admits agents by component openshift)" in said
    assert "component tls" not in said
    api.events = [warning(f"{KEPT[1]} \x1b[2J")]
    assert "\x1b" not in doctor(capsys, "--cluster")[1]
    for hidden in (None, [], [{}, {"involvedObject": 3, "message": []}]):
        api.events = hidden
        said = " ".join(doctor(capsys, "--cluster")[1].split())
        assert "or component gpu-nodes finds no node with one of its labels" in said


KEPT = (
    'Error creating: pods "rankscope-agent-x" is forbidden: violates PodSecurity "baseline:latest":'
    ' hostPath volumes (volumes "pod-resources", "pod-logs", "sys")',
    'MountVolume.SetUp failed for volume "token" : secret "rankscope-api-token" not found',
    'MountVolume.SetUp failed for volume "pods" : hostPath type check failed: /var/lib/kubelet/pods'
    " is not a directory",
    'Error creating: pods "rankscope-agent-x" is forbidden: pod rejected: RuntimeClass "nvidia" not'
    " found",
    "Error creating: insufficient quota to match these scopes: [{PriorityClass In"
    " [rankscope-agent.rankscope]}]",
    'Error creating: pods "rankscope-agent-x" is forbidden: no PriorityClass with name'
    " rankscope-agent.team was found",
    'Error creating: pods "rankscope-agent-" is forbidden: unable to validate against any security'
    ' context constraint: [provider "anyuid": Forbidden: not usable by user or serviceaccount]',
)

FULL = (
    "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 2 node(s) didn't satisfy"
    " plugin(s) [NodeAffinity]. preemption: not eligible due to preemptionPolicy=Never."
)


def without_place(name: str, number: int, on: str, message: str) -> dict:
    """Make a DaemonSet's pod that the scheduler finds no place for."""
    data = agent_pod(name, number, on, "")
    field = {"key": "metadata.name", "operator": "In", "values": [data["spec"].pop("nodeName")]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    data["spec"]["affinity"] = {"nodeAffinity": required}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    data["status"] = {"phase": "Pending", "conditions": [condition | {"message": message}]}
    return data


def test_an_agent_without_room_is_pending_and_named_with_what_its_node_lacks(
    api, kubeconfig, capsys
):
    """Nothing is preempted for it, so that somebody has to hear of it."""
    for number in range(12):
        api.put(without_place(f"rankscope-agent-{number}", number, f"gpu-{number:02d}", FULL))
    api.put(without_place("rankscope-agent-x", 20, "gpu-77", "0/3 nodes: \x1b[2J of no use"))
    _, text = doctor(capsys, "--cluster", "--namespace", "rankscope")
    said = " ".join(text.split())
    assert "the agents of nodes gpu-00, gpu-01" in said
    assert "gpu-07 and 4 more are Pending: Insufficient cpu, Insufficient memory: nothing" in said
    assert "the agent of node gpu-77 is Pending: 0/3 nodes:" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "odd",
    [
        {"conditions": "x"},
        {"conditions": [3, {"type": "PodScheduled", "status": "True"}]},
    ],
)
def test_pods_that_have_a_place_or_say_nothing_are_not_said_to_wait(odd):
    assert agent_startup.waiting([{"status": odd, "spec": {"affinity": []}}]) == ()
    lost = {"conditions": [{"type": "PodScheduled", "status": "False", "message": FULL}]}
    (sentence,) = agent_startup.waiting([{"status": lost, "spec": None}])
    assert sentence.startswith("the agent of node unknown is Pending: Insufficient cpu")


OTHERS = 'MountVolume.SetUp failed for volume "a" : secret "rankscope-agent-tls" not found'


def warning(message: str, name: str = "rankscope-agent") -> dict:
    about = {"kind": "DaemonSet", "name": name, "namespace": "rankscope"}
    return {"type": "Warning", "involvedObject": about, "message": message}


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_cluster_that_refuses_is_an_error(api, kubeconfig, status):
    api.faults.status = status
    with pytest.raises(ClusterError, match=f"answers {status}"):
        cluster.agent_pods()
