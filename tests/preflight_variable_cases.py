"""Cases of preflight's checks of the environment of ranks: variables of NCCL and PyTorch."""

from __future__ import annotations

from typing import Any

from preflight_jobs import GONE, JOB, Case, changed, env, hidden, two_parts


def mpi(launcher: str, launcher_env: Any = (), worker_env: Any = ()) -> dict[str, Any]:
    def part(count: int, **container: Any) -> dict[str, Any]:
        return {"replicas": count, "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": part(1, command=launcher.split(), env=list(launcher_env)),
                "Worker": part(2, env=list(worker_env)),
            }
        },
    }


def script(text: str) -> dict[str, Any]:
    return changed({"main command": ["bash", "-c", text], "main env": []})


VARIABLE_CASES: list[Case] = [
    ("nccl-variables", "pass", "known", [JOB]),
    ("nccl-variables", "warn", "no longer", [changed({"main +env": env(NCCL_LL_THRESHOLD=0)})]),
    ("nccl-variables", "warn", "no version", [changed({"main +env": env(NCCL_TURBO_MODE=1)})]),
    ("nccl-variables", "fail", "ignores", [changed({"main +env": env(NCCL_SOKET_IFNAME="x")})]),
    (
        *("nccl-variables", "undecided", "ConfigMap 'nccl'"),
        [changed({"main envFrom": [{"configMapRef": {"name": "nccl"}}]})],
    ),
    ("nccl-debug", "pass", "INFO", [JOB]),
    ("nccl-debug", "warn", "not set", [changed({"main env": []})]),
    ("nccl-debug", "warn", "WARN", [changed({"main env": env(NCCL_DEBUG="warn")})]),
    ("nccl-debug", "warn", "SUBSYS", [changed({"main +env": env(NCCL_DEBUG_SUBSYS="GRAPH")})]),
    ("nccl-debug", "warn", "pod's log", [changed({"main +env": env(NCCL_DEBUG_FILE="/tmp/x")})]),
    ("nccl-debug", "fail", "not a level", [changed({"main env": env(NCCL_DEBUG="yes")})]),
    ("nccl-debug", "undecided", "secret", [changed({"main env": hidden("NCCL_DEBUG")})]),
    (
        "equal-environment",
        "pass",
        "equal",
        [two_parts(env(NCCL_ALGO="Ring"), env(NCCL_ALGO="Ring"))],
    ),
    ("equal-environment", "warn", "'INFO'", [two_parts(env(NCCL_DEBUG="INFO"))]),
    (
        *("equal-environment", "fail", "NCCL_IB_HCA is 'mlx5' for Master and 'not set'"),
        [two_parts([*env(NCCL_DEBUG="INFO"), *env(NCCL_IB_HCA="mlx5")])],
    ),
    ("mpi-environment", "pass", "handed on: NCCL_ALGO", [mpi("mpirun -x NCCL_ALGO=Ring train")]),
    (
        *("mpi-environment", "warn", "Worker"),
        [mpi("mpirun -np 2 train", worker_env=env(NCCL_IB_HCA="mlx5"))],
    ),
    (
        *("mpi-environment", "fail", "NCCL_IB_HCA is set on the launcher"),
        [mpi("mpirun -np 2 train", env(NCCL_IB_HCA="mlx5"))],
    ),
    (
        *("mpi-environment", "undecided", "secret 's'"),
        [
            changed(
                {
                    "spec mpiReplicaSpecs Launcher template spec containers": [
                        {"envFrom": [{"secretRef": {"name": "s"}}]}
                    ]
                },
                mpi("mpirun train"),
            )
        ],
    ),
    *(
        ("rdma-transport", verdict, seen, [mpi(f"mpirun {options} train", launcher_env)])
        for verdict, seen, options, launcher_env in (
            ("warn", "NCCL_IB_DISABLE=1", "-x NCCL_IB_DISABLE=1", ()),
            ("warn", "NCCL_IB_DISABLE=1", "-genv NCCL_IB_DISABLE 1", ()),
            ("warn", "NCCL_IB_DISABLE=1", "-x NCCL_IB_DISABLE", env(NCCL_IB_DISABLE=1)),
            ("warn", "NCCL_NET=Socket", "--mca mca_base_env_list A;NCCL_NET=Socket", ()),
            ("warn", "NCCL_NET=Socket", "-genvall", env(NCCL_NET="Socket")),
            ("undecided", "the launcher's", "-x NCCL_IB_DISABLE", hidden("NCCL_IB_DISABLE")),
        )
    ),
    ("algorithm-tuning", "pass", "fixed", [changed({"main +env": env(NCCL_ALGO="Ring")})]),
    (
        *("algorithm-tuning", "warn", "NCCL_ALGO"),
        [changed({"main +env": env(NCCL_ALGO="Ring"), "pod affinity": GONE})],
    ),
    (
        *("algorithm-tuning", "undecided", "secret"),
        [changed({"main envFrom": [{"secretRef": {"name": "s"}}]})],
    ),
    ("progress-visible", "pass", "probe", [JOB]),
    ("progress-visible", "warn", "phase", [changed({"main env": []})]),
    (
        *("progress-visible", "fail", "hangs"),
        [changed({"main +env": env(TORCH_NCCL_ASYNC_ERROR_HANDLING=0)})],
    ),
    (
        *("progress-visible", "undecided", "secret"),
        [changed({"main +env": hidden("TORCH_NCCL_ENABLE_MONITORING")})],
    ),
    ("nccl-debug", "pass", "INFO", [script("NCCL_DEBUG=INFO torchrun a.py")]),
    ("nccl-debug", "undecided", "the shell fills in", [script("export NCCL_DEBUG=${D:-INFO}\na")]),
    ("nccl-debug", "undecided", "reads /etc/nccl.env", [script(". /etc/nccl.env && torchrun a")]),
    ("nccl-debug", "warn", "not set", [script("source /opt/venv/bin/activate; torchrun a")]),
    ("nccl-debug", "warn", "not set", [script("# don't\n  # export NCCL_DEBUG=INFO\na.py")]),
    ("nccl-debug", "pass", "INFO", [script("a '# b' \"#\" c#d && export NCCL_DEBUG=INFO # not")]),
    ("nccl-debug", "warn", "not set", [script("cat > a <<'EOF'\nNCCL_DEBUG=INFO\nEOF\na.py")]),
    ("nccl-debug", "pass", "INFO", [script("cat > a <<EOF\nA=1\nEOF\nNCCL_DEBUG=INFO a.py")]),
    ("nccl-debug", "warn", "not set", [script("NCCL_DEBUG=INFO\nif a; then unset NCCL_DEBUG; fi")]),
    (
        *("gpu-count", "pass", "8, and 8 GPUs"),
        [script("# torchrun --nproc-per-node=4 a\ntorchrun --nproc-per-node \\\n 8 a")],
    ),
    ("nccl-debug", "pass", "INFO", [script("set -e; export A=1 NCCL_DEBUG='INFO'; ./a")]),
    ("nccl-debug", "pass", "INFO", [script("cd /a &&\\\n  env NCCL_DEBUG=INFO ./a")]),
    ("nccl-debug", "warn", "not set", [script("mpirun -x NCCL_DEBUG=INFO ./a NCCL_DEBUG=INFO")]),
    (
        "nccl-debug",
        "warn",
        "not set",
        [changed({"main args": ["NCCL_DEBUG=INFO"], "main env": []})],
    ),
]
