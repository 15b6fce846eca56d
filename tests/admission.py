"""Decides on pods and nodes as an API server does by admission policies: selectors, CEL, patches.

What differs between API servers is left out: costs, versions of objects, parameters. cel-python
evaluates; the types and the function that Kubernetes adds to CEL are given to it here
(https://kubernetes.io/docs/reference/using-api/cel, and admissionregistration's JSONPatch).
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import celpy
from celpy import celtypes

Document = dict[str, Any]
MESSAGE = re.compile(r"\b((?:Object|JSONPatch)(?:\.\w+)*)\s*\{")


class Message(celtypes.MapType):
    """What `Object.spec{...}` makes: a map that knows the path it is called by."""

    path = ""

    def __init__(self, fields: Mapping[Any, Any] | None = None) -> None:
        super().__init__(fields or {})


class TypeMismatchError(Exception):
    """A name of a type is not the path of the field that it is put into."""


def index_of(items: celtypes.ListType, wanted: Any) -> celtypes.IntType:
    return celtypes.IntType(next((n for n, one in enumerate(items) if one == wanted), -1))


@functools.cache
def compiled(expression: str) -> celpy.Runner:
    # cel-python cannot have a type within a type, so names lose their dots.
    flat = MESSAGE.sub(lambda match: match[1].replace(".", "__") + "{", expression)
    types = {
        name.replace(".", "__"): type("Made", (Message,), {"path": name})
        for name in MESSAGE.findall(expression)
    }
    environment = celpy.Environment(annotations=types)
    return environment.program(environment.compile(flat), functions={"indexOf": index_of})


def evaluated(expression: str, activation: Mapping[str, Any]) -> Any:
    """Evaluate an expression; raise celpy.CELEvalError for what an API server calls an error."""
    found = compiled(expression).evaluate(dict(activation))
    raise_first_error(found)
    return found


def raise_first_error(value: Any) -> None:
    """cel-python leaves errors in the lists and maps that it makes."""
    if isinstance(value, Exception):
        raise value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        raise_first_error(part)


class Activation(dict[str, Any]):
    """The variables of a request and of a policy, each of which sees those before it."""

    def __init__(self, spec: Document, **given: Any) -> None:
        super().__init__({name: celpy.json_to_cel(value) for name, value in given.items()})
        self["variables"] = celtypes.MapType()
        for variable in spec.get("variables", ()):
            value = evaluated(variable["expression"], self)
            self["variables"][celtypes.StringType(variable["name"])] = value


def plain(value: Any) -> Any:
    """Return a value of CEL as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, (bool, celtypes.BoolType)):
        return bool(value)
    return int(value) if isinstance(value, int) else str(value)


def check_names(value: Any) -> None:
    """Refuse a field whose type is called otherwise than by the path to it, as API servers do."""
    for field, part in value.items() if isinstance(value, Message) else ():
        for one in part if isinstance(part, list) else [part]:
            if isinstance(one, Message) and one.path != f"{value.path}.{field}":
                raise TypeMismatchError(f"{one.path} stands in {value.path}.{field}")
            check_names(one)


def add(document: Any, path: str, value: Any) -> None:
    """Add as RFC 6902 (4.1) says: before an index, behind a list, or in place of a member."""
    *parents, last = path.removeprefix("/").split("/")
    for key in parents:
        document = document[int(key) if isinstance(document, list) else key]
    if isinstance(document, dict):
        document[last] = value
    elif last == "-":
        document.append(value)
    elif int(last) <= len(document):
        document.insert(int(last), value)
    else:
        raise IndexError(f"{path} is beyond the list's end")


def selects(selector: Document, labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    for term in selector.get("matchExpressions", ()):
        assert term["operator"] == "NotIn"
        wanted = wanted and labels.get(term["key"]) not in term["values"]
    return wanted


def concerns(
    spec: Document, request: Document, pod: Document, namespace: Mapping[str, str]
) -> bool:
    constraints = spec["matchConstraints"]
    (rule,) = constraints["resourceRules"]
    asked = (request["operation"], request["resource"])
    return (
        asked in {(o, r) for o in rule["operations"] for r in rule["resources"]}
        and selects(constraints.get("namespaceSelector", {}), namespace)
        and selects(constraints.get("objectSelector", {}), pod["metadata"].get("labels") or {})
    )


def conditions_hold(spec: Document, activation: Activation) -> bool:
    return all(
        evaluated(condition["expression"], activation)
        for condition in spec.get("matchConditions", ())
    )


def mutated(
    spec: Document, pod: Document, namespace: Mapping[str, str], operation: str = "CREATE"
) -> Document:
    """Return the pod as the policy leaves it; raise errors, where an API server ignores them."""
    request = {"operation": operation, "resource": "pods"}
    pod = copy.deepcopy(pod)
    if not concerns(spec, request, pod, namespace):
        return pod
    if not conditions_hold(spec, Activation({}, object=pod, request=request)):
        return pod
    for mutation in spec["mutations"]:
        activation = Activation(spec, object=pod, request=request)
        for patch in evaluated(mutation["jsonPatch"]["expression"], activation):
            assert patch["op"] == "add"
            check_names(patch["value"])
            add(pod, str(patch["path"]), plain(patch["value"]))
    return pod


def denials(
    spec: Document,
    old: Document | None,
    new: Document | None,
    user: Document,
    resource: str = "nodes/status",
) -> Iterator[str]:
    """Yield the messages by which a validating policy denies a request; None: no such object."""
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    request = {"operation": operation, "resource": resource, "userInfo": user}
    given = {"object": new, "oldObject": old, "request": request}
    concerned = concerns(spec, request, new or old or {}, {})
    if concerned and conditions_hold(spec, Activation({}, **given)):
        activation = Activation(spec, **given)
        for rule in spec["validations"]:
            if not evaluated(rule["expression"], activation):
                yield rule["message"]
