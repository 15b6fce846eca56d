"""Rings in volumes of pods: what the training collector calls their jobs, pods and nodes."""

from __future__ import annotations

from collected_page import Clock, Page
from known_pods import pods_of
from pod_json import pod, uid
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training.collector import TrainingCollector
from ring_writer import RingWriter


def test_a_pods_volume_is_enough(tmp_path):
    volume = tmp_path / "kubelet/pods/uid-a/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, node="trainer-0")
    writer.step()
    kubelet = tmp_path / "kubelet"
    rings = TrainingCollector(tmp_path / "none", kubelet, "gpu-01", Clock(), pods_of("team"))
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    assert (info[2], *info[6:9]) == ("gpu-01", "uid-a", "team", "pod-uid-a")
    writer.end()


def test_a_pods_job_is_called_as_kubernetes_calls_it(tmp_path):
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, job_id="local/1234", pod_uid=uid(1))
    writer.step()
    pods = PodDirectory()
    pods.replace([parse_pod(pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm")))], 1.0)
    collector = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods)
    (info,) = Page(collector).labels(metrics.RANK_INFO)
    labels = dict(zip(metrics.RANK_INFO.labels, info, strict=True))
    assert (labels["job_id"], labels["pod_name"]) == ("ml/llm", "w0")
    assert labels["container_name"] == "main"
    assert pods.probed.ranks == {("ml/llm", int(labels["rank"]))}
    assert pods.probed.sizes == {"ml/llm": {int(labels["world_size"])}}
    writer.end()
    Page(collector)
    assert pods.probed.sizes == {"ml/llm": set()}


def test_a_rank_whose_pod_is_gone_keeps_its_namespace(tmp_path):
    """Without it, readers would take it for one that speaks for a job from outside of pods."""
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, job_id="local/1234", pod_uid=uid(1))
    writer.step()
    pods = PodDirectory()
    pods.replace([parse_pod(pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm")))], 1.0)
    rings = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods)
    assert len(Page(rings).labels(metrics.RANK_INFO)) == 1
    pods.replace([], 2.0)
    writer.end()
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    labels = dict(zip(metrics.RANK_INFO.labels, info, strict=True))
    assert (labels["job_id"], labels["pod_namespace"]) == ("ml/llm", "ml")


def test_rings_of_pods_wait_until_their_jobs_names_are_known(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "FIRST_NAMES_SECONDS", 0.0)
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, pod_uid=uid(1))
    writer.step()
    pods = PodDirectory()
    pods.expect()
    rings = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods)
    assert Page(rings).labels(metrics.RANK_INFO) == []
    pods.replace([parse_pod(pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm")))], 1.0)
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    assert info[0] == "ml/llm"
    writer.end()
