"""Quantities of Kubernetes as numbers."""

from __future__ import annotations

import re
from decimal import Decimal

QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]i?)?")
UNITS = {"m": Decimal("0.001"), **{u: Decimal(1000) ** n for n, u in enumerate("kMGTPE", 1)}}
UNITS |= {f"{u.upper()}i": Decimal(1024) ** n for n, u in enumerate("KMGTPE", 1)}


def quantity(text: object) -> Decimal | None:
    match = QUANTITY.fullmatch(str(text))
    return Decimal(match[1]) * UNITS.get(match[2] or "", Decimal(1)) if match else None
