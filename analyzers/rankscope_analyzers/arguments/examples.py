"""Examples in the help of each command: command lines, and their purpose."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

COLUMNS = 80
INDENT = "  "

GATE = "Exit code: 0 passed, 2 failed, 3 inconclusive, 1 usage error or no input."
VERDICT = "Exit code: 0 if there is a verdict, whatever it is; 1 if none was possible."

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "diagnose": (
        ("--agent gpu-07:9877 --agent gpu-08:9877", "the jobs of two nodes"),
        (
            "--cluster --token-file token --job team/llm",
            "one job, from all agents of the cluster",
        ),
        (
            "--cluster --job team/llm --save evidence",
            "save the evidence before the job is restarted",
        ),
        ("--trace evidence --html report.html", "the same verdict later, as an HTML page"),
        ("--kineto profiles/team-llm", "from PyTorch profiler traces"),
    ),
    "jobs": (
        ("--cluster --namespace rankscope --refresh 10", "all jobs, every ten seconds"),
        ("--prometheus http://prometheus:9090 --since 2h", "the last two hours"),
    ),
    "logs": (
        ("team/llm --errors", "errors of all ranks, earliest first"),
        ("--from logs/ --errors", "the same from files"),
    ),
    "capture": (
        ("--agent gpu-07:9877 --job team/llm llm.tar.gz", "the evidence about a job that hangs"),
        (
            "--cluster --job team/llm --kept llm.tar.gz",
            "what agents saved when it last hung, even after its pods are gone",
        ),
    ),
    "watch": (
        (
            "--cluster --state /var/lib/rankscope/watch.json",
            "evaluate all jobs every 30 s, and keep state over restarts",
        ),
        ("--agent localhost:9877 --once", "evaluate once and print the series"),
    ),
    "canary": (
        ("--train /run/rankscope", "train on this machine, and query its watch"),
        ("--watch http://rankscope-watch:9878", "check the job that the canary component runs"),
    ),
    "config": (
        ("example", "an example with every key: rankscope config example > rankscope.yaml"),
        ("check rankscope.yaml", "list errors with line and column"),
        ("render rankscope.yaml", "print the effective configuration, defaults included"),
    ),
    "record": (("--agent gpu-07:9877 --job team/llm fast.json", "while the job is fast"),),
    "diff": (("fast.json slow.json", "what changed since then"),),
    "preflight": (
        ("job.yaml", "a manifest before it is submitted"),
        (
            "job.yaml --cluster --strict --junit preflight.xml",
            "as a gate in CI, with the cluster's nodes",
        ),
        ("--job team/llm", "a submitted job: its pods, or its object while it has none"),
    ),
    "fabric-check": (
        ("", "in each rank: torchrun --nproc-per-node 1 ... --no-python rankscope fabric-check"),
        ("--minimum 100 --sizes 64K,16M,1G", "the same, with a minimum rate in Gbit/s"),
    ),
    "verify": (
        ("team/llm --cluster --wait 15m --world-size 64", "as a gate after the job has started"),
        (
            "team/llm --agent gpu-07:9877 --checkpoint-dir /ckpt/llm",
            "verify the newest checkpoint, too",
        ),
    ),
    "doctor": (
        (
            "team/llm-worker-0 --cluster --namespace rankscope",
            "why the job of a pod is not visible",
        ),
        ("--agent gpu-07:9877", "what an agent cannot read, and why"),
    ),
    "explain": (
        ("job-log rank*.log", "which rank failed first, and why"),
        ("nccl-log nccl.*.log.gz", "whether the job runs over TCP"),
        ("watchdog-log rank*.log", "which ranks hold up a collective that timed out"),
        ("flight-recorder dump_*", "which rank did not enter which collective"),
        ("kernel-log -", "from standard input: dmesg | rankscope explain kernel-log -"),
        ("checkpoint /ckpt/llm", "the last good checkpoint"),
        ("checkpoint /ckpt/llm --deep", "the same, with all data read and checksums verified"),
        ("dataset manifest.json", "shards that are missing or have another size"),
    ),
    "gpus": (
        ("--agent gpu-07:9877 --seconds 30", "watch the GPUs of a node"),
        ("--cluster --job team/llm", "only GPUs allocated to a job"),
    ),
    "xids": (
        ("--agent gpu-07:9877", "one node, since its agent started"),
        ("--prometheus http://prometheus:9090 --since 7d", "all nodes, over a week"),
    ),
    "runbook": (
        ("RankscopeStraggler", "what to do if a rank holds up its job"),
        ("", "the names of all runbooks"),
    ),
    "demo": (
        ("--tour", "a healthy job and four faults in turn"),
        ("--fault slow-data --rank 0", "a single fault"),
        ("--stack", "with Prometheus, Alertmanager and, if installed, Grafana"),
    ),
    "probe-path": (("", "PYTHONPATH=$(rankscope probe-path) torchrun train.py"),),
}
"""By command, arguments and purpose."""

EXIT_CODES: Mapping[str, str] = {
    **dict.fromkeys(("preflight", "fabric-check", "verify", "canary"), GATE),
    **dict.fromkeys(("diagnose", "explain", "gpus", "xids"), VERDICT),
}
"""The meaning of a command's exit code, if scripts use it."""


def epilog(command: str, kind: str = "") -> str:
    """Return the end of a command's help: examples, each with its purpose on the next line.

    Args:
        command: its name.
        kind: of what it explains, for the help of this alone.
    """
    lines = ["examples:"]
    for arguments, purpose in EXAMPLES[command]:
        if kind and arguments.split()[0] != kind:
            continue
        lines.append(f"{INDENT}rankscope {command} {arguments}".rstrip())
        lines += textwrap.wrap(
            purpose, COLUMNS, initial_indent=INDENT * 4, subsequent_indent=INDENT * 4
        )
    if meaning := EXIT_CODES.get(command):
        lines += ["", *textwrap.wrap(meaning, COLUMNS)]
    return "\n".join(lines)
