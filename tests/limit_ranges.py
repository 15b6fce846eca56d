"""What a LimitRange of a namespace refuses of a pod, as the API server's LimitRanger does.

See kubernetes plugin/pkg/admission/limitranger: init containers are held to the limits of
containers like the others, and a pod takes the largest init container or all containers together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from quantities import quantity

Amounts = Mapping[str, Decimal]


def refusals(limits: list[dict[str, Any]], pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a pod is refused; `limits` is that of a LimitRange's specification."""
    spec = pod["spec"]
    both = [*spec.get("initContainers", ()), *spec["containers"]]
    for limit in limits:
        if limit["type"] == "Container":
            for one in both:
                for reason in _broken(limit, _amounts(one, "requests"), _amounts(one, "limits")):
                    yield f"{one['name']}: {reason}"
        else:
            of_pod = _of_pod(spec, "requests"), _of_pod(spec, "limits")
            yield from (f"pod: {reason}" for reason in _broken(limit, *of_pod))


def _amounts(container: Mapping[str, Any], group: str) -> Amounts:
    """Return what a container asks for; the API server makes limits requests where none stand."""
    resources = container.get("resources") or {}
    given = dict(resources.get(group) or {})
    if group == "requests":
        given = {**(resources.get("limits") or {}), **given}
    return {name: quantity(text) or Decimal(0) for name, text in given.items()}


def _of_pod(spec: Mapping[str, Any], group: str) -> Amounts:
    together: dict[str, Decimal] = {}
    for container in spec["containers"]:
        for name, amount in _amounts(container, group).items():
            together[name] = together.get(name, Decimal(0)) + amount
    for container in spec.get("initContainers", ()):
        for name, amount in _amounts(container, group).items():
            together[name] = max(together.get(name, Decimal(0)), amount)
    return together


def _broken(limit: Mapping[str, Any], requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in _bounds(limit, "min"):
        if name not in requests or min(requests[name], limits.get(name, least)) < least:
            yield f"asks for less {name} than {least}"
    for name, most in _bounds(limit, "max"):
        if name not in limits or max(limits[name], requests.get(name, most)) > most:
            yield f"may take more {name} than {most}"
    for name, ratio in _bounds(limit, "maxLimitRequestRatio"):
        if not requests.get(name) or not limits.get(name):
            yield f"asks for no {name}, of whose limit a ratio is bounded"
        elif limits[name] / requests[name] > ratio:
            yield f"may take more than {ratio} times the {name} that it asks for"


def _bounds(limit: Mapping[str, Any], which: str) -> Iterator[tuple[str, Decimal]]:
    for name, text in (limit.get(which) or {}).items():
        yield name, quantity(text) or Decimal(0)
