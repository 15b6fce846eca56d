"""What a capture holds beside the diagnosis, and a job's verdict when its processes are gone."""

from __future__ import annotations

import contextlib
import json
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from fake_api_server import FakeApiServer
from kubeconfigs import written
from pod_states import worker
from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.stalls import RankStall, as_object
from rankscope_analyzers import cli
from rankscope_analyzers.captures import archive
from rankscope_analyzers.captures.evidence import CaptureEvidence, EvidenceReader
from rankscope_analyzers.captures.objects import without_secrets
from rankscope_analyzers.intake import agent_evidence, job_objects
from rankscope_analyzers.intake.agent_client import Agent, StatusError
from rankscope_analyzers.intake.cluster import ClusterAccess
from rankscope_analyzers.intake.job_objects import JobObjects
from ring_writer import NS, RingWriter
from running_agent import PATIENCE_SECONDS, running_agent

SECRET = "hf_Zx9correcthorse77"


def content(path):
    """Return the files of a capture by name."""
    with tarfile.open(path) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}


def standing_rings(folder: Path, ranks=2):
    """Write rings of ranks that made their newest step a minute and a half ago."""
    folder.mkdir()
    now, rings = time.time(), []
    for rank in range(ranks):
        header = {"created_unix_ns": round((now - 1000) * NS), "world_size": ranks}
        ring = RingWriter(folder, f"{7 + rank}-8.ring", rank=rank, **header)
        for step in range(3):
            ring.step(start_unix_ns=round((now - 90.5 + step / 10) * NS))
        rings.append(ring)
    return rings


def run(capsys, *arguments):
    code = cli.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_hang_is_kept_by_the_agent_and_gives_its_verdict_when_the_job_is_gone(tmp_path, capsys):
    rings = standing_rings(tmp_path / "rings")
    (tmp_path / "job.log").write_text(f"[rank0]: waits\nHF_TOKEN={SECRET}\n")
    log = f"--nccl.log-files={tmp_path}/job.log"
    with running_agent(tmp_path, log, "--collector.interval=0.5") as agent:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if json.loads(agent.get("/api/v1/hangs?job=team/job"))["hangs"]:
                break
            time.sleep(0.5)
        asked = ["capture", "--agent", agent.url, "--job", "team/job"]
        code, out, err = run(capsys, *asked, tmp_path / "now.tar.gz")
        assert (code, err) == (0, "")
        assert out.split("\n", 1)[1].startswith("no step since ")
        assert "Not read: ras of" in out
        for ring in rings:
            ring.end()
        for path in (tmp_path / "rings").iterdir():
            path.unlink()
    with running_agent(tmp_path, log) as agent:  # started anew, on a node without the job
        code, out, err = run(
            capsys, "capture", "--agent", agent.url, "--job", "team/job", tmp_path / "kept.tar.gz"
        )
        assert (code, err) == (0, "")
        assert out.split("\n", 1)[1].startswith("no step since ")
        code, out, err = run(
            capsys, *("capture", "--agent", agent.url, "--job", "team/none"), tmp_path / "none"
        )
        assert code == 1
        assert "no agent has kept anything" in err
    now, kept = content(tmp_path / "now.tar.gz"), content(tmp_path / "kept.tar.gz")
    names = [name.split("-")[1] for name in now if name.startswith("evidence/")]
    assert names == ["ras", "stalls", "processes", "kernel", "logs"]
    assert "kept/test-node.json" in now
    assert "kept/test-node.json" in kept
    processes = json.loads(now["evidence/3-processes-test-node.json"])["processes"]
    assert [one["rank"] for one in processes] == [0, 1]
    assert all(one["status"]["State"] for one in processes)
    assert b"waits" in now["evidence/5-logs-test-node.json"]
    for body in (*now.values(), *kept.values()):
        assert SECRET.encode() not in body
    assert json.loads(now["manifest.json"])["not_read"][0].startswith("ras of test-node: RAS is")
    for name in ("now", "kept"):
        code, out, _ = run(capsys, "diagnose", "--capture", tmp_path / f"{name}.tar.gz", "--json")
        assert code == 0
        found = json.loads(out)["team/job"]
        assert found["verdict"]["class"] == "hang"
        assert "usual step 100.0 ms" in found["verdict"]["summary"]
        assert "diagnosis/job-0/records.parquet" in content(tmp_path / f"{name}.tar.gz")


class FakeAgent(Agent):
    """Answers from a table; remembers what it was asked for."""

    asked: ClassVar[list[str]] = []
    answers: ClassVar[dict[str, object]] = {}

    def json(self, path, *_):
        FakeAgent.asked.append(path)
        for part, answer in FakeAgent.answers.items():
            if part in path:
                return answer
        raise StatusError(f"{self.url} answers 404", 404)


@pytest.fixture
def agent():
    FakeAgent.asked, FakeAgent.answers = [], {}
    return FakeAgent("n1:9877")


def test_ras_is_asked_first_and_once_more_after_some_seconds_where_it_is_there(agent):
    FakeAgent.answers = {"part=ras": {"node": "n1", "ras": {"text": "x", "not_read": ""}}}
    waits = []
    reader = EvidenceReader([agent], "team/job", waits.append)
    reader.first()
    parts = reader.rest()
    assert [name for name, _ in parts] == ["ras", "stalls", "processes", "ras", "kernel", "logs"]
    assert len(waits) == 1
    assert 4.0 < waits[0] <= 5.0
    assert FakeAgent.asked[0] == "/api/v1/evidence?job=team%2Fjob&part=ras"


def test_an_agent_without_the_paths_is_named_and_hides_nothing(agent):
    reader = EvidenceReader([agent], "team/job", lambda _: None)
    reader.first()
    evidence = CaptureEvidence(reader.rest())
    assert "stalls of n1:9877: n1:9877 answers 404" in evidence.not_read()
    assert next(iter(evidence.files())).startswith("evidence/1-ras-n1_9877-")
    assert agent_evidence.kept([agent], "team/job") == {}


@pytest.mark.parametrize("answer", [[], {"hangs": 3}, {"hangs": [{}]}, {"hangs": [{"id": "1"}]}])
def test_a_list_that_no_agent_gives_is_nothing_kept(agent, answer):
    FakeAgent.answers = {"/api/v1/hangs": answer}
    assert agent_evidence.kept([agent], "team/job") == {}


@pytest.mark.parametrize(
    "kept", [{"pages": 1}, {"pages": [{}]}, {"stalls": {"stalls": [{}]}}, {"stalls": None}]
)
def test_what_was_kept_and_cannot_be_read_is_nothing(kept):
    assert agent_evidence.kept_pages({"n1": kept}) == ([], [])
    assert agent_evidence.kept_stalls({"n1": kept}) == []
    assert agent_evidence.kept_steps({"n1": kept}, "team/job").empty


def test_a_stall_that_cannot_be_read_costs_no_other_rank_its_own():
    whole = RankStall("team/job", 0, 2, 1.5, 60.0, True, "S", 1.0, (), "", (), "")
    text = json.dumps([as_object(replace(whole, rank=rank)) for rank in (0, 777, 1)])
    listed = untrusted_json.read(text.replace("777", "9" * 400))
    found = agent_evidence.kept_stalls({"n1": {"stalls": {"stalls": listed}}})
    assert [stall.rank for stall in found] == [0, 1]


def test_steps_that_were_kept_are_of_the_job_and_of_the_node_that_kept_them():
    columns = ["job_id", "rank", "node", "step", "t_start_unix_seconds", "step_seconds"]
    rows = [["team/job", 0, "elsewhere", 1, 5.0, 0.1], ["other", 0, "n1", 1, 5.0, 0.1]]
    kept = {"n1": {"steps": {"columns": columns, "rows": rows}}, "n2": {"steps": {"rows": 7}}}
    found = agent_evidence.kept_steps(kept, "team/job")
    assert found[["job_id", "node"]].to_numpy().tolist() == [["team/job", "n1"]]


POD = {
    "metadata": {
        "name": "p",
        "managedFields": [{"x": 1}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "note": f"password={SECRET}",
        },
    },
    "spec": {
        "containers": [
            {
                "command": ["python", "train.py", "--api-token", SECRET, "--lr=0.1"],
                "args": ["--wandb-key=x", f"https://me:{SECRET}@host/x"],
                "env": [
                    {"name": "HF_TOKEN", "value": SECRET},
                    {"name": "MY_SETTING", "value": SECRET},
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                    {"name": "DB", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}},
                    SECRET,
                ],
            }
        ]
    },
    "status": {"phase": "Running", "containerStatuses": [{"restartCount": 2}]},
}


def test_objects_are_kept_without_secrets_and_with_what_says_why():
    found = without_secrets(POD)
    assert SECRET not in json.dumps(found)
    container = found["spec"]["containers"][0]
    assert container["command"] == ["python", "train.py", "--api-token", "***", "--lr=0.1"]
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    assert found["status"] == POD["status"]
    assert "managedFields" not in found["metadata"]
    deep = {}
    for _ in range(1000):
        deep = {"spec": deep}
    assert without_secrets(deep) is not None
    made = CaptureEvidence(objects=JobObjects([POD], [], ["no right"]))
    assert set(made.files()) == {"objects/pods.json", "objects/owners.json"}
    assert made.not_read() == ["no right"]


def test_every_file_of_a_capture_has_a_name_that_is_read_again(tmp_path):
    answers = {"n/1 é": {"node": "x"}, "n 1 é": {}, "a" * 300: {}}
    evidence = CaptureEvidence([("ras", answers)], answers, JobObjects([POD]))
    archive.write(tmp_path / "c", evidence.files(), {})
    (tmp_path / "out").mkdir()
    with contextlib.suppress(FileNotFoundError):
        archive.read(tmp_path / "c", tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.json"))) == len(evidence.files()) == 8


def test_a_jobs_pods_and_what_owns_them_are_read_as_far_as_the_user_may(tmp_path):
    server = FakeApiServer()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm"}
    above = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "llm"}
    unknown = {"apiVersion": "x.org/v1", "kind": "Job", "name": "other"}
    pod = worker(0, number=1)
    pod["metadata"]["ownerReferences"] = [owner, unknown]
    server.put(pod)
    job = {"metadata": {"name": "llm", "ownerReferences": [above]}}
    server.config_maps["/apis/batch/v1/namespaces/ml/jobs/llm"] = job
    access = ClusterAccess("x", str(written(server.url, tmp_path)))
    found = job_objects.read("ml/llm", access)
    assert [one["metadata"]["name"] for one in found.pods] == ["llm-worker-0"]
    assert list(found.owners) == [job]
    (said,) = found.not_read
    assert "get JobSet llm" in said
    missing = job_objects.read("ml/nobody", access)
    assert missing.not_read == ("no pod of job ml/nobody in namespace ml",)
    server.close()
