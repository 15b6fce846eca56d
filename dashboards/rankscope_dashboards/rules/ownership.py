"""Who acts on an alert: those who run nodes, those who run the network, or those who train."""

from __future__ import annotations

from rankscope_analyzers.findings.advice import ADVICE
from rankscope_analyzers.findings.finding import Owner

WITHOUT_FINDING: dict[str, Owner] = {
    "RankscopeAdapterUnhealthy": "network",
    "RankscopeGpusIdle": "ml",
    "RankscopeJobStalled": "ml",
    "RankscopeLowGpuUtilisation": "ml",
    "RankscopeNetworkSaturated": "network",
    "RankscopePfcStorm": "network",
    "RankscopePodInterface": "network",
    "RankscopeStepTailSlow": "ml",
    "RankscopeSyncShareHigh": "ml",
    "RankscopeThroughputDegraded24h": "ml",
}
"""Owners of alerts without a finding; all others of that kind belong to the platform."""


def owner_of(alert: str) -> Owner:
    """Return who acts on an alert: the owner of the first kind of finding with its runbook."""
    kinds = (advice.owner for advice in ADVICE.values() if advice.runbook == alert)
    return next(kinds, WITHOUT_FINDING.get(alert, "platform"))
