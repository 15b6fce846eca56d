"""Writes docs/xid_codes.md from the table of Xid codes, so that the two cannot disagree.

`python -m rankscope_dashboards.references.xid_reference FILE` writes the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rankscope_agent.contract.kernel.xid import XIDS
from rankscope_agent.contract.kernel.xid_actions import CATALOGUE, PUBLISHED

INTRODUCTION = f"""# Xid codes

Made from the table in `agent/rankscope_agent/contract/kernel/xid.py`; do not edit.

What a code means when it is all there is. The line may say more: 94 and 95 carry reset bits, 144 to
150 sub-codes, and 154 the driver's own recommendation; docs/kernel_log.md says what decides then.
Severity: `info` loses nothing, `warn` perhaps something later, `error` a program's work, `fatal`
the GPU. Program: whether a program's own fault is a likely reason. The last column is what the
{CATALOGUE} says to do immediately, and what then; `explain kernel-log` shows it.

| Xid | what happened | cause | severity | program | first action | NVIDIA publishes |
|---|---|---|---|---|---|---|
"""


def markdown() -> str:
    """Return the page: one row per code, in order."""
    rows = (
        f"| {code} | {known.text} | {known.cause} | {known.severity} | {known.application} |"
        f" {known.action} | {_published(code)} |\n"
        for code, known in sorted(XIDS.items())
    )
    return INTRODUCTION + "".join(rows)


def _published(code: int) -> str:
    pair = PUBLISHED.get(code)
    return ", then ".join(part for part in pair if part) if pair else "nothing"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
