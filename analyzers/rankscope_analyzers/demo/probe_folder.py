"""The location of the probe: the directory for a trainer's PYTHONPATH. It is not imported here."""

from __future__ import annotations

import importlib.util
from pathlib import Path


class ProbeMissingError(Exception):
    """The probe is missing from the installation or checkout; the message names the directory."""


def probe_folder() -> Path:
    """Return the directory that injects the probe into any Python that has it on PYTHONPATH.

    Raises:
        ProbeMissingError: neither the installed package nor the checkout contains it.
    """
    spec = importlib.util.find_spec("rankscope_agent")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    # An installed wheel has the directory inside the package; a checkout next to it.
    for folder in (package / "probe", package.parent / "probe"):
        if (folder / "rankscope_probe.py").is_file():
            return folder
    raise ProbeMissingError(f"no probe beside {package}: install rankscope again")
