"""What the help of each command shows to copy: command lines, and what they are for."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

COLUMNS = 80
INDENT = "  "

GATE = "Exit code: 0 passed, 2 failed, 3 could not be told, 1 called wrongly or nothing to read."
VERDICT = "Exit code: 0 for a verdict, whatever it says; 1 if nothing could be judged."

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "diagnose": (
        ("--agent gpu-07:9877 --agent gpu-08:9877", "the jobs of two nodes"),
        (
            "--cluster --token-file token --job team/llm",
            "one job, from all agents of the cluster",
        ),
        (
            "--cluster --job team/llm --save evidence",
            "keep what was read before the job is restarted",
        ),
        ("--trace evidence --html report.html", "the same verdict later, as a page"),
        ("--kineto profiles/team-llm", "traces of PyTorch's profiler"),
    ),
    "jobs": (
        ("--cluster --namespace rankscope --refresh 10", "all jobs, every ten seconds"),
        ("--prometheus http://prometheus:9090 --since 2h", "the last two hours"),
    ),
    "logs": (
        ("team/llm --errors", "what the job's ranks report as errors, the earliest first"),
        ("--from logs/ --errors", "the same from files"),
    ),
    "capture": (
        ("--agent gpu-07:9877 --job team/llm llm.tar.gz", "what is known of a job that hangs"),
        (
            "--cluster --job team/llm --kept llm.tar.gz",
            "what agents kept when it last stood, also when its pods are gone",
        ),
    ),
    "watch": (
        (
            "--cluster --state /var/lib/rankscope/watch.json",
            "judge all jobs every 30 s, and go on after a restart",
        ),
        ("--agent localhost:9877 --once", "print the series of one look"),
    ),
    "canary": (
        ("--train /run/rankscope", "train here, and ask the watch of this machine"),
        ("--watch http://rankscope-watch:9878", "ask about the job of the component canary"),
    ),
    "config": (
        ("example", "every key once: rankscope config example > rankscope.yaml"),
        ("check rankscope.yaml", "what is wrong with it, with line and column"),
        ("render rankscope.yaml", "what it amounts to, with all defaults"),
    ),
    "record": (("--agent gpu-07:9877 --job team/llm fast.json", "while the job is fast"),),
    "diff": (("fast.json slow.json", "what changed since then"),),
    "preflight": (
        ("job.yaml", "a manifest before it is submitted"),
        ("job.yaml --cluster --strict --junit preflight.xml", "with its nodes, as a gate in CI"),
        ("--job team/llm", "a job that is there: its pods, or its object"),
    ),
    "fabric-check": (
        ("", "in each rank: torchrun --nproc-per-node 1 ... --no-python rankscope fabric-check"),
        ("--minimum 100 --sizes 64K,16M,1G", "the same, with a rule for what links must carry"),
    ),
    "verify": (
        ("team/llm --cluster --wait 15m --world-size 64", "a gate after the start"),
        ("team/llm --agent gpu-07:9877 --checkpoint-dir /ckpt/llm", "with its newest checkpoint"),
    ),
    "doctor": (
        ("team/llm-worker-0 --cluster --namespace rankscope", "why a pod's job is not seen"),
        ("--agent gpu-07:9877", "what an agent lacks"),
    ),
    "explain": (
        ("job-log rank*.log", "which rank failed first, and why"),
        ("nccl-log nccl.*.log.gz", "whether the job runs over TCP"),
        ("kernel-log -", "what dmesg says, through a pipe"),
        ("checkpoint /ckpt/llm", "the last good checkpoint"),
    ),
    "gpus": (
        ("--agent gpu-07:9877 --seconds 30", "watch the GPUs of a node"),
        ("--cluster --job team/llm", "those that a job holds"),
    ),
    "xids": (("--prometheus http://prometheus:9090 --since 7d", "one week of all nodes"),),
    "demo": (
        ("--tour", "a healthy job and four faults in turn"),
        ("--fault slow-data --rank 0", "one of them"),
        ("--stack", "with Prometheus, Alertmanager and, where it is installed, Grafana"),
    ),
    "probe-path": (("", "PYTHONPATH=$(rankscope probe-path) torchrun train.py"),),
}
"""By command, arguments and what they are for."""

EXIT_CODES: Mapping[str, str] = {
    **dict.fromkeys(("preflight", "fabric-check", "verify", "canary"), GATE),
    **dict.fromkeys(("diagnose", "explain", "gpus", "xids"), VERDICT),
}
"""What the exit code of a command means, where scripts ask for it."""


def epilog(command: str) -> str:
    """Return the end of a command's help: examples, a line each and what they are for below."""
    lines = ["examples:"]
    for arguments, purpose in EXAMPLES[command]:
        lines.append(f"{INDENT}rankscope {command} {arguments}".rstrip())
        lines += textwrap.wrap(
            purpose, COLUMNS, initial_indent=INDENT * 4, subsequent_indent=INDENT * 4
        )
    if meaning := EXIT_CODES.get(command):
        lines += ["", *textwrap.wrap(meaning, COLUMNS)]
    return "\n".join(lines)
