"""The effect of probe injection on a pod's `PYTHONPATH`, from its specification. Pure.

A container's own variable replaces its image's, which cannot be read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankscope_analyzers.doctor.checks import Check
from rankscope_analyzers.text.name_lists import named

SOURCE = "PYTHONPATH"
PROBE = "rankscope"
"""Part of the name of every directory that holds a probe: of the policies, the docs and the
package."""

REMEDY = "repeat in the pod's env what the image sets as PYTHONPATH; injection keeps it"


def python_path_checks(pod: Mapping[str, Any]) -> Sequence[Check]:
    """Return whether a pod's containers kept their own PYTHONPATH; nothing without a probe.

    Args:
        pod: from the API server.
    """
    found = dict(_with_probe(pod))
    alone = [name for name, own in found.items() if not own]
    kept = [name for name, own in found.items() if own]
    checks = []
    if alone:
        detail = (
            f"the probe's folder is all of it in {named(alone, 'container')}: one that the image"
            " sets is lost there"
        )
        checks.append(Check(SOURCE, "not seen", detail, REMEDY))
    if kept:
        detail = f"{named(kept, 'container')}: folders of its own behind the probe's"
        checks.append(Check(SOURCE, "seen", detail))
    return checks


def _with_probe(pod: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each container whose PYTHONPATH names a probe, with the other folders in it."""
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for container in containers if isinstance(containers, list) else ():
        value = _value(container) if isinstance(container, dict) else ""
        folders = [folder for folder in value.split(":") if folder]
        if any(PROBE in folder for folder in folders):
            yield (
                str(container.get("name", "")),
                [folder for folder in folders if PROBE not in folder],
            )


def _value(container: Mapping[str, Any]) -> str:
    """Return a container's PYTHONPATH; of several the last one counts."""
    env = container.get("env")
    entries = [one for one in env if isinstance(one, dict)] if isinstance(env, list) else []
    return next((str(e.get("value", "")) for e in reversed(entries) if e.get("name") == SOURCE), "")
