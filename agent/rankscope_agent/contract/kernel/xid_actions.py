"""The actions in NVIDIA's Xid catalogue for each code, in its own words: immediate and follow-up.

This project's own first action (`xid.XidCode.action`) is one word for all codes and lines; if a
code alone is ambiguous, the catalogue's pair shows the possible readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

CATALOGUE = "NVIDIA Xid catalogue of 2025-10-29"
"""The edition that the pairs are taken from; it publishes no actions for codes above 161."""


class Published(NamedTuple):
    """The catalogue's actions for a code; the second is empty if it lists only one."""

    immediate: str
    investigatory: str


# fmt: off
_GROUPS: tuple[tuple[Published, tuple[int, ...]], ...] = (
    (Published("RESTART_APP", "CONTACT_SUPPORT"), (
        8, 39, 40, 41, 68, 70, 71, 72, 75, 76, 77, 82, 83, 84, 85, 86, 88, 89, *range(96, 106),
        *range(126, 136), 139,
    )),
    (Published("RESTART_APP", "CHECK_APP/CUDA"), (11, 25, 32, 69, 80)),
    (Published("RESTART_APP", "WORKFLOW_XID_13"), (13,)),
    (Published("RESTART_APP", "WORKFLOW_XID_31"), (31,)),
    (Published("RESTART_APP", "INVESTIGATE_SW"), (60,)),
    (Published("RESTART_APP", "IGNORE"), (94,)),
    (Published("RESET_GPU", "CONTACT_SUPPORT"), (46, 62, 64, 109, 140, 143, 158)),
    (Published("RESET_GPU", "INVESTIGATE_SW"), (110, 119, 120)),
    (Published("RESET_GPU", "INVESTIGATE_LINK_SI"), (136,)),
    (Published("RESET_GPU", "INVESTIGATE_SW_USER"), (155,)),
    (Published("RESET_GPU", "IGNORE"), (95, 156)),
    (Published("RESTART_BM", "CONTACT_SUPPORT"), (79,)),
    (Published("RESTART_VM", "CONTACT_SUPPORT"), (151,)),
    (Published("IGNORE", "CONTACT_SUPPORT"), (14, 38, 43, 44, 67, 92, 93, 121, 141, 152, 153, 157)),
    (Published("IGNORE", "INVESTIGATE_SW"), (66, 160, 161)),
    (Published("IGNORE", "CHECK_APP/CUDA"), (37,)),
    (Published("IGNORE", "XID_137_FLOW"), (108, 137)),
    (Published("IGNORE", "IGNORE"), (63, 106, 107)),
    (Published("WORKFLOW_XID_45", "RESTART_FM if it is alone"), (45,)),
    (Published("WORKFLOW_XID_48", "WORKFLOW_XID_48"), (48,)),
    (Published("WORKFLOW_NVLINK_ERR", "CONTACT_SUPPORT"), (74,)),
    (Published("WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"), tuple(range(144, 151))),
    (Published("CHECK_MECHANICALS", "CONTACT_SUPPORT"), (54,)),
    (Published("CHECK_UVM", "SYMPATHETIC_REPORT_SOLO"), (159,)),
    (Published("UPDATE_SWFW", "UPDATE_SWFW"), (78,)),
    (Published("XID_154", ""), (154,)),
    (Published("CONTACT_SUPPORT", "CONTACT_SUPPORT"), (16,)),
    (Published("CONTACT_SUPPORT", ""), (
        1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15, *range(17, 25), *range(26, 31), *range(33, 37), 42, 47,
        *range(49, 54), *range(55, 60), 61, 65, 73, 81, 87, 90, 91, *range(111, 119),
        *range(122, 126), 138, 142,
    )),
)
# fmt: on

PUBLISHED: Mapping[int, Published] = {code: pair for pair, codes in _GROUPS for code in codes}
"""The catalogue's pair for every code that has one."""
