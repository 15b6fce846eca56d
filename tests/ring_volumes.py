"""Pods' volumes for rings, and how many rings of each pod a node's agent follows."""

from __future__ import annotations

from rankscope_agent.sources.training.follower import RingFollower

VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


def volume(root, uid):
    path = root / "kubelet" / "pods" / uid / VOLUME
    path.mkdir(parents=True)
    return path


def held(rings: RingFollower) -> dict[str, int]:
    uids = [followed.ring.pod_uid for followed in rings.rings]
    return {uid: uids.count(uid) for uid in dict.fromkeys(uids)}
