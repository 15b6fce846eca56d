"""The environment of a role's container, as far as a manifest has it; secrets are never read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_analyzers.preflight.job import Job, Role, UndecidedError
from rankscope_analyzers.preflight.mpi_options import handed_on
from rankscope_analyzers.preflight.shell_scripts import assigned, sourced, unset
from rankscope_analyzers.preflight.values import Object, mapping, mappings, text


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that the manifest only refers to."""

    reason: str


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables of a container.

    Args:
        values: by name.
        hidden: why there may be more variables, empty if there are none.
    """

    values: Mapping[str, str | Unreadable]
    hidden: str = ""

    def get(self, name: str) -> str | None:
        """Return a variable's value, None if it is not set.

        Raises:
            UndecidedError: the value, or whether there is one, is not in the manifests.
        """
        value = self.values.get(name)
        if isinstance(value, Unreadable):
            raise UndecidedError(f"{name} {value.reason}")
        if value is None and self.hidden:
            raise UndecidedError(f"{name} may be set elsewhere: {self.hidden}")
        return value

    def named(self, *prefixes: str) -> Mapping[str, str | Unreadable]:
        """Return the variables whose names have one of these prefixes."""
        return {name: value for name, value in self.values.items() if name.startswith(prefixes)}


def environment(job: Job, role: Role) -> Environment:
    """Return the environment of the container that computes, with what mpirun passes on to it."""
    own = _of_container(job, role)
    if job.kind != "MPIJob" or not role.has_ranks or job.launcher is None:
        return own
    launcher = own if role is job.launcher else _of_container(job, job.launcher)
    words = job.launcher.command
    by_mpirun = dict(launcher.values) if "-genvall" in words else {}
    for name, given in handed_on(words):
        value = _of_launcher(launcher, name) if given is None else _by_shell(given)
        by_mpirun |= {} if value is None else {name: value}
    return Environment({**own.values, **by_mpirun}, own.hidden)


def _of_launcher(launcher: Environment, name: str) -> str | Unreadable | None:
    try:
        return launcher.get(name)
    except UndecidedError as reason:
        return Unreadable(f"is the launcher's: {reason}")


def _of_container(job: Job, role: Role) -> Environment:
    values: dict[str, str | Unreadable] = {}
    hidden = role.missing
    for source in mappings(role.trainer.get("envFrom")):
        found, unseen = _from_source(job, source)
        values |= found
        hidden = hidden or unseen
    for entry in mappings(role.trainer.get("env")):
        name = text(entry.get("name"))
        if name:
            values[name] = _entry(job, entry, values)
    unseen = _apply_shell(role, values)
    return Environment(values, hidden or unseen)


def _from_source(job: Job, source: Object) -> tuple[Mapping[str, str], str]:
    reference = mapping(source, "configMapRef")
    name = text(reference.get("name"))
    if not reference:
        return {}, f"envFrom takes the secret {text(mapping(source, 'secretRef').get('name'))!r}"
    found = job.cluster.get("ConfigMap", job.namespace, name)
    if found is None:
        why = job.cluster.unknown("ConfigMap", job.namespace, name)
        return {}, f"envFrom takes the ConfigMap {name!r}, which {why}"
    prefix = text(source.get("prefix"))
    return {f"{prefix}{key}": text(value) for key, value in mapping(found, "data").items()}, ""


def _entry(job: Job, entry: Object, earlier: Mapping[str, str | Unreadable]) -> str | Unreadable:
    source = mapping(entry, "valueFrom")
    if not source:
        return _expanded(text(entry.get("value")), earlier)
    if "fieldRef" in source:
        return Unreadable(f"is the field {text(mapping(source, 'fieldRef').get('fieldPath'))}")
    if "configMapKeyRef" in source:
        return _config_map_value(job, mapping(source, "configMapKeyRef"))
    kind = "a secret" if "secretKeyRef" in source else "another object"
    return Unreadable(f"comes from {kind}, which is not read")


_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_.-][\w.-]*)\))")


def _expanded(value: str, earlier: Mapping[str, str | Unreadable]) -> str | Unreadable:
    """Return a value with its references, such as `$(NAME)`, to variables of earlier entries."""
    names = [match[1] for match in _REFERENCE.finditer(value) if match[1]]
    for name in names:
        if not isinstance(earlier.get(name), str):
            return Unreadable(f"is {value}, which is filled in when the pod starts")
    return _REFERENCE.sub(lambda found: str(earlier[found[1]]) if found[1] else "$", value)


def _config_map_value(job: Job, reference: Object) -> str | Unreadable:
    name, key = text(reference.get("name")), text(reference.get("key"))
    found = job.cluster.get("ConfigMap", job.namespace, name)
    if found is None:
        why = job.cluster.unknown("ConfigMap", job.namespace, name)
        return Unreadable(f"comes from ConfigMap {name!r}, which {why}")
    value = mapping(found, "data").get(key)
    return (
        Unreadable(f"comes from a key that ConfigMap {name!r} lacks")
        if value is None
        else text(value)
    )


def _apply_shell(role: Role, values: dict[str, str | Unreadable]) -> str:
    """Change variables as a shell script does; return why it may set more, empty if it does not."""
    hidden = ""
    for script in role.scripts:
        for line in script.splitlines():
            file = sourced(line)
            hidden = hidden or (f"the script reads {file}" if file else "")
            for name, value in assigned(line.split()):
                values[name] = _by_shell(value)
            for name in unset(line):
                values.pop(name, None)
    return hidden


def _by_shell(value: str) -> str | Unreadable:
    filled_in = "$" in value or "`" in value
    return Unreadable(f"is {value}, which the shell fills in") if filled_in else value
