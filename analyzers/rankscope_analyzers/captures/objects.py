"""A job's pods and job objects as a capture keeps them: without possible secrets. Pure.

Only environment variables that agents keep too retain their value. Texts below names that suggest a
secret are hidden, except for references to secrets; commands and all other texts are searched for
credentials, and so are objects in texts (JSON), as in annotations. Fields that servers add for
themselves are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.command_secrets import (
    arguments_without_credentials,
    without_credentials,
)
from rankscope_agent.contract.redaction import (
    HIDDEN,
    is_kept,
    redacted,
    suggests_secret,
)

DROPPED = frozenset(
    ("managedFields", "kubectl.kubernetes.io/last-applied-configuration", "data", "stringData")
)
"""Members that repeat the object, or that other software put there for programs only."""

ENVIRONMENTS = ("env", "envs", "env_vars")
"""Members that hold environment variables: a list of names and values, or an object."""

_FURTHER_SECRET = re.compile(
    "authorization|bearer|passphrase|pwd|connection[-_]?string|sas[-_]?url"
    "|(?:account|storage|auth|encryption|signing|shared|master|ssh|client|webhook)[-_]?key",
    re.IGNORECASE,
)
"""Names of members, annotations and parameters whose values are secrets as well."""

_COMMAND = re.compile(r"(?:command|args|arguments|entrypoint|script|source|cmd)$", re.IGNORECASE)
"""Members that hold a command, as a list or as a text for a shell."""

_PAIR = re.compile(
    r"""(\bname["']?\s{0,4}[:=]\s{0,4}["']?([\w.-]{1,256})["']?[\s,]{1,64}
        ["']?value["']?\s{0,4}[:=]\s{0,4})("[^"]{0,4096}"|'[^']{0,4096}'|[^\s,}]{1,4096})""",
    re.VERBOSE,
)
"""An environment variable in a text that is no JSON: its name, and its value."""

_REFERENCE = re.compile(r"[sS]ecret(?:Key)?Ref$")
"""Members that refer to a secret, as Kubernetes and its operators call them."""

_NAME_OF_SECRET = re.compile(
    r"[sS]ecret(?:Name|Namespace|File|ProviderClass)$|^(?:gmsaCredentialSpecName|credentialBundlePath)$"
)
"""Members whose text is the name of a secret, or the path of its file."""

_NAMES = frozenset(("name", "namespace", "key"))
_SHOWN: Mapping[str, frozenset[str]] = {
    "secret": frozenset(("name",)),
    "secrets": frozenset(("name",)),
    "imagePullSecrets": frozenset(("name",)),
    "serviceAccountToken": frozenset(("audience", "path")),
}
_SHOWN_ITEMS = frozenset(("key", "path"))
"""Members of references and of a pod's volumes that show which secret is meant."""

MAX_DEPTH = 64
MAX_TEXT = 8192

MAX_JSON = 256 << 10
"""Characters of a text that is read as JSON: annotations have no more. Longer ones are hidden."""


def without_secrets(value: Any, depth: int = 0) -> Any:
    """Return an object of the API server without possible secrets."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        found = {
            str(name): _member(str(name), one, depth)
            for name, one in value.items()
            if name not in DROPPED
        }
        return _hidden_value(found) if _is_named_secret(value) else found
    if isinstance(value, str):
        return _text(value, depth)
    if isinstance(value, Sequence):
        return [without_secrets(one, depth + 1) for one in value]
    return value


def _text(text: str, depth: int) -> str:
    """Return a text without possible secrets; one that holds an object is searched like one."""
    if text.lstrip()[:1] in ("{", "["):
        if len(text) > MAX_JSON:
            return HIDDEN
        try:
            found = untrusted_json.read(text.encode(errors="replace"))
        except ValueError:
            found = None
        clean = without_secrets(found, depth + 1)
        if clean != found:
            text = json.dumps(clean)
    return redacted(_PAIR.sub(_hidden_pair, text[:MAX_TEXT]))


def _hidden_pair(found: re.Match[str]) -> str:
    return found[0] if is_kept(found[2]) else f"{found[1]}{HIDDEN}"


def _member(name: str, value: Any, depth: int) -> Any:
    if name in ENVIRONMENTS and isinstance(value, Mapping):
        return {str(key): _kept(str(key), one, depth) for key, one in value.items()}
    if name in ENVIRONMENTS and _is_list(value):
        return [_variable(one, depth) for one in value]
    if name == "httpHeaders" and _is_list(value):
        return [_header(one, depth) for one in value]
    if _COMMAND.search(name) and _is_list(value) and not any(map(_is_object, value)):
        return arguments_without_credentials([str(one)[:MAX_TEXT] for one in value])
    if _COMMAND.search(name) and isinstance(value, str) and not _is_secret(name):
        return without_credentials(_text(value, depth)[:MAX_TEXT])
    if name.lower() in ("env_vars", "runtimeenvyaml") and isinstance(value, str):
        return HIDDEN
    if _is_secret(name):
        return _secret_member(name, value, depth, frozenset())
    return without_secrets(value, depth + 1)


def _is_secret(name: str) -> bool:
    return suggests_secret(name) or bool(_FURTHER_SECRET.search(name))


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _kept(name: str, value: Any, depth: int) -> Any:
    return without_secrets(value, depth + 2) if is_kept(name) else HIDDEN


def _variable(one: Any, depth: int) -> Any:
    if not isinstance(one, Mapping):
        return HIDDEN
    found = without_secrets(one, depth)
    return found if is_kept(str(one.get("name", ""))) else _hidden_value(found)


def _header(one: Any, depth: int) -> Any:
    """Return a header of a request without its value: any may hold a credential."""
    return _hidden_value(without_secrets(one, depth)) if isinstance(one, Mapping) else HIDDEN


def _is_named_secret(value: Mapping[Any, Any]) -> bool:
    """Return True for a parameter, as lists of names and values hold it, that is a secret."""
    return any(_is_secret(str(value.get(key, ""))) for key in ("name", "key"))


def _hidden_value(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**found, "value": HIDDEN} if "value" in found else found


def _secret_member(name: str, value: Any, depth: int, shown: frozenset[str]) -> Any:
    """Return a member whose own name, or that of an object around it, suggests a secret.

    Args:
        name: of the member.
        value: of the member.
        depth: of the object that it is a member of.
        shown: names of members whose text is no secret.
    """
    if not isinstance(value, str):
        return _concealed(value, depth + 1, _shown_below(name, shown))
    if name in shown or _NAME_OF_SECRET.search(name):
        return redacted(value[:MAX_TEXT])
    return HIDDEN


def _shown_below(name: str, shown: frozenset[str]) -> frozenset[str]:
    """Return which texts of a member are shown, given those of the object around it."""
    if name == "items" and shown:
        return _SHOWN_ITEMS
    return _NAMES if _REFERENCE.search(name) else _SHOWN.get(name, frozenset())


def _concealed(value: Any, depth: int, shown: frozenset[str]) -> Any:
    """Return a value with its texts hidden; numbers and truth values are counts and settings."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {
            str(name): _secret_member(str(name), one, depth, shown)
            for name, one in value.items()
            if name not in DROPPED
        }
    if isinstance(value, str):
        return HIDDEN
    if isinstance(value, Sequence):
        return [_concealed(one, depth + 1, shown) for one in value]
    return value
