"""Cases of preflight's checks where manifests leave open which devices or pods a job has."""

from __future__ import annotations

from preflight_jobs import GONE, Case, changed

CLAIMS = {
    "limits nvidia.com/gpu": GONE,
    "limits rdma/hca": GONE,
    "main resources claims": [{"name": "devices"}],
}

CLAIMED_CASES: list[Case] = [
    (check, "undecided", "resource claims", [changed(CLAIMS)])
    for check in ("gpu-count", "nccl-debug", "numa", "rdma-devices", "locked-memory", "gpudirect")
]

TRAIN_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "llm", "namespace": "ml"},
    "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 4}},
}


# What a manifest with pods always says, and a TrainJob without its runtime does not.
RUNTIME_CASES: list[Case] = [
    *(
        (name, "undecided", "runtime 'torch'", [TRAIN_JOB])
        for name in ("shared-memory", "locked-memory", "numa", "eviction")
    ),
    ("termination-grace", "undecided", "runtime 'torch'", [TRAIN_JOB]),
    (
        *("job-project", "undecided", "runtime 'torch'"),
        [changed({"metadata namespace": "other"}, TRAIN_JOB)],
    ),
    ("equal-environment", "undecided", "runtime 'torch'", [TRAIN_JOB]),
]
