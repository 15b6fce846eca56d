"""The location of the probe: the directory for a trainer's PYTHONPATH. It is not imported here."""

from __future__ import annotations

import importlib.util
from pathlib import Path


class ProbeMissingError(Exception):
    """The probe is not where an installation or a checkout has it; the message says where."""


def probe_folder() -> Path:
    """Return the folder that injects the probe into any Python that has it on PYTHONPATH.

    Raises:
        ProbeMissingError: neither the installed package nor the checkout holds it.
    """
    spec = importlib.util.find_spec("rankscope_agent")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    # An installed wheel carries the folder inside the package; a checkout has it beside it.
    for folder in (package / "probe", package.parent / "probe"):
        if (folder / "rankscope_probe.py").is_file():
            return folder
    raise ProbeMissingError(f"no probe beside {package}: install rankscope again")
