"""Pods' volumes for rings, and how many rings of each pod a node's agent follows."""

from __future__ import annotations

from rankscope_agent.sources.training.follower import RingFollower
from ring_writer import RingWriter

VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


def volume(root, uid):
    path = root / "kubelet" / "pods" / uid / VOLUME
    path.mkdir(parents=True)
    return path


def rings_of_three_pods(root, count):
    """Return rings of two pods of one namespace and of one of another, as many of each.

    Each pod is a job; `pods_named_after_their_namespace` knows them.
    """
    return [
        RingWriter(directory, f"{n}.ring", rank=n, job_id=uid.partition("-")[2])
        for uid in ("greedy-0", "greedy-1", "team-late")
        for directory in [volume(root, uid)]
        for n in range(count)
    ]


def held(rings: RingFollower) -> dict[str, int]:
    uids = [followed.ring.pod_uid for followed in rings.rings]
    return {uid: uids.count(uid) for uid in dict.fromkeys(uids)}
