"""The known SXid codes of NVSwitch, and which of them take down the fabric.

Codes and their three classes are those of NVIDIA's fabric manager user guide. The lines of an error
state whether it was fatal; the table limits what may become a label, and decides if only its data
are left.
"""

from __future__ import annotations

ALWAYS_FATAL = frozenset({10003, 12020, 22003, 22011, *range(23001, 23018)})
"""Each of these takes the switch's links down: GPUs and switches must be reset together."""

MAY_BE_FATAL = frozenset(
    {
        *(10001, 10002, 10004, 10005),
        *(11001, 11009, 11013, 11018, 11019, 11020),
        *(12001, 12002, 12022, 12024, 12025, 12026, 12027, 12030, 12031, 12032),
        14017,
        *(15001, 15006, 15009, 15010, 15012, 15013),
        *(19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063, 19064),
        *(19066, 19067, 19069, 19070),
        *(20034, 22012),
        *(24004, 24005, 24006, 24007),
    }
)
"""Fatal or not depending on the circumstances."""

CORRECTED = frozenset(
    {
        *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011),
        *(19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071),
        *(20001, 20009),
        *(24001, 24002, 24003),
    }
)
"""Repaired by the hardware: single-bit errors and repeated packets."""

OTHERS = frozenset({11004, 12028, 19084, 20012, 22013})
"""Not fatal, but may have killed a program on a GPU."""

KNOWN = ALWAYS_FATAL | MAY_BE_FATAL | CORRECTED | OTHERS
