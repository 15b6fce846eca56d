"""Cases of preflight's checks of what a job keeps when it fails or is ended."""

from __future__ import annotations

from preflight_jobs import CLAIM, GONE, JOB, Case, changed, env

ENDURANCE_CASES: list[Case] = [
    ("checkpoint-volume", "pass", "ReadWriteMany", [JOB, CLAIM]),
    (
        *("checkpoint-volume", "pass", "s3://b/run"),
        [changed({"main command": ["torchrun", "--checkpoint-dir", "s3://b/run"]})],
    ),
    (
        *("checkpoint-volume", "warn", "ReadWriteOnce"),
        [
            changed({"worker replicas": 1}),
            changed({"spec accessModes": ["ReadWriteOnce"]}, CLAIM),
        ],
    ),
    (
        *("checkpoint-volume", "fail", "4 pods mount it"),
        [JOB, changed({"spec accessModes": ["ReadWriteOnce"]}, CLAIM)],
    ),
    (
        *("checkpoint-volume", "fail", "disks of the node"),
        [
            JOB,
            CLAIM,
            {
                "kind": "StorageClass",
                "apiVersion": "storage.k8s.io/v1",
                "metadata": {"name": "cephfs"},
                "provisioner": "rancher.io/local-path",
            },
        ],
    ),
    (
        *("checkpoint-volume", "fail", "emptyDir"),
        [changed({"pod volumes": [{"name": "ckpt", "emptyDir": {}}]})],
    ),
    (
        *("checkpoint-volume", "fail", "nothing is mounted at /out"),
        [changed({"main +env": env(OUTPUT_DIR="/out"), "main command": ["train"]})],
    ),
    ("checkpoint-volume", "undecided", "Claim", [JOB]),
    ("restart-budget", "pass", "5", [JOB]),
    ("restart-budget", "warn", "unlimited", [changed({"spec runPolicy": GONE})]),
    ("restart-budget", "warn", "backoffLimit: 1", [changed({"spec runPolicy backoffLimit": 1})]),
    ("restart-budget", "fail", "backoffLimit: 0", [changed({"spec runPolicy backoffLimit": 0})]),
    ("restart-budget", "undecided", "is not a", [changed({"spec runPolicy backoffLimit": "x"})]),
    (
        *("elastic-bounds", "pass", "from 2 to 8"),
        [changed({"spec elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}})],
    ),
    (
        *("elastic-bounds", "warn", "every pod"),
        [changed({"main command": ["torchrun", "--nnodes=4:4", "x.py"]})],
    ),
    (
        *("elastic-bounds", "fail", "never starts"),
        [changed({"main command": ["torchrun", "--nnodes", "8:16", "x.py"]})],
    ),
    (
        *("elastic-bounds", "fail", "from 8 to 2"),
        [changed({"spec elasticPolicy": {"minReplicas": 8, "maxReplicas": 2}})],
    ),
    (
        *("elastic-bounds", "undecided", "how many"),
        [
            changed(
                {"spec elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}, "worker replicas": "n"}
            )
        ],
    ),
    ("termination-grace", "pass", "600", [JOB]),
    ("termination-grace", "warn", "150", [changed({"pod terminationGracePeriodSeconds": 150})]),
    ("termination-grace", "fail", "30", [changed({"pod terminationGracePeriodSeconds": GONE})]),
    (
        *("termination-grace", "undecided", "not a number"),
        [changed({"pod terminationGracePeriodSeconds": "x"})],
    ),
]
