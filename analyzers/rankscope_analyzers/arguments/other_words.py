"""Words that users of other tools type, and what Rankscope has for them.

Spelling is no guide here: `report` looks like `record`, and `status` like nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

WORDS_OF: Mapping[str, str] = {
    "diagnose": "analyse analyze diagnosis inspect report slow straggler stragglers summary why",
    "jobs": "get list ls ps show stat stats status top",
    "logs": "errors failures tail",
    "capture": "bundle collect dump save snapshot",
    "watch": "alert alerts export exporter follow metrics monitor serve server",
    "preflight": "lint validate",
    "fabric-check": "bandwidth bench benchmark fabric nccl-tests network",
    "doctor": "debug health troubleshoot",
    "gpus": "nvidia-smi smi",
    "diff": "compare",
    "demo": "example quickstart tour",
    "probe-path": "attach exec install launch probe profile run trace train",
    "diagnose or capture": "hang hangs hung stack stacks py-spy",
    "preflight, verify or doctor": "check test",
    "rankscope-agent, another program": "agent collector daemon node-agent",
    "rankscope-dashboards, another program": "dashboard dashboards grafana rules",
    "--help": "commands help usage",
    "--version": "version",
}
"""What to use instead of each word: mostly a command."""


def instead_of(word: str) -> str:
    """Return what Rankscope has for a word, empty if there is nothing."""
    known = (name for name, words in WORDS_OF.items() if word.lower() in words.split())
    return next(known, "")
