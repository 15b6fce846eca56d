"""Types in validating policies: what an API server's checker would warn of in their status.

It checks expressions against the schema of the kind that a policy is for, as CEL's own checker does
here (https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy, "Type
checking").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from rendered_manifests import ROOT

if sys.version_info < (3, 11):
    pytest.skip("there is no type checker for CEL", allow_module_level=True)

from cel_expr_python import cel

from kubernetes_types import PACKAGE, pool_of

POLICIES = ROOT / "components" / "admission-policy" / "policy.yaml"
NODES = pool_of("V1Node")


def validating(text: str) -> list[dict[str, Any]]:
    found = [one for one in yaml.safe_load_all(text) if one["kind"].startswith("Validating")]
    return [one for one in found if "validations" in one["spec"]]


class Checker:
    """Knows the types of what expressions may name, for a policy on nodes."""

    def __init__(self) -> None:
        node = cel.Type(f"{PACKAGE}.V1Node")
        self.types = {"object": node, "oldObject": node, "request": cel.Type.DYN}

    def type_of(self, expression: str) -> tuple[Any, list[str]]:
        """Return an expression's type and what is wrong with it."""
        flat = re.sub(r"\bvariables\.(\w+)", r"variables_\1", expression)
        try:
            return cel.NewEnv(NODES, variables=self.types).compile(flat).return_type(), []
        except Exception as error:  # noqa: BLE001 - the library's own are of several kinds
            return cel.Type.DYN, [f"{expression}: {error}"]


def warnings(policy: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the types of a policy for nodes."""
    spec, checker = policy["spec"], Checker()
    for variable in spec.get("variables", ()):
        kind, wrong = checker.type_of(variable["expression"])
        checker.types[f"variables_{variable['name']}"] = kind
        yield from wrong
    for one in (*spec.get("matchConditions", ()), *spec["validations"]):
        kind, wrong = checker.type_of(one["expression"])
        yield from wrong
        if not wrong and kind != cel.Type.BOOL:
            yield f"{one['expression']} is not true or false"


def test_no_policy_for_nodes_is_warned_of():
    policies = validating(POLICIES.read_text())
    assert len(policies) == 2
    assert [warning for policy in policies for warning in warnings(policy)] == []


@pytest.mark.parametrize(
    ("right", "wrong", "warned"),
    [
        ("dyn(object)", "object", "cannot be the range of a comprehension"),
        ("size(variables.own) <= 8", "size(variables.own) <= '8'", "no matching overload"),
        ("variables.node.spec ==", "object.specs ==", "undefined field 'specs'"),
        ("variables.conditions ==", "variables.condition ==", "undeclared reference"),
        ('expression: "false"', 'expression: "0"', "is not true or false"),
    ],
)
def test_wrong_types_are_warned_of(right, wrong, warned):
    text = POLICIES.read_text()
    assert right in text
    policies = validating(text.replace(right, wrong))
    assert warned in "\n".join(warning for policy in policies for warning in warnings(policy))
