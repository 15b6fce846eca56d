"""Manifests as text: YAML or JSON, several documents to a file; errors name line and column."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.preflight.values import Object, mappings

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
MAX_BYTES = 256 << 20
"""Bytes: some 30,000 pods as the API server writes them; a larger file is given by mistake."""

MAX_DEPTH = 100
"""Levels: a PyTorchJob's deepest field is some 20 levels down."""

_HELM = re.compile(
    r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b"
    r"|include\b|toYaml\b|tpl\b)"
)
# Texts of rendered manifests may be templates for others: Vault's annotations, Alertmanager's.
_PERHAPS_HELM = re.compile(r"\{\{-?\s*(?:template\b|if\b|range\b|with\b|end\b|define\b|/\*)")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if it is available


class ManifestError(Exception):
    """A manifest cannot be read; the message says where, and what to do."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest.

    Args:
        source: its file and line.
        body: the object.
    """

    source: str
    body: Object


def read(paths: Sequence[str]) -> Iterator[Document]:
    """Yield the objects of files and directories; `-` is standard input.

    Raises:
        ManifestError: one cannot be read, or is not a manifest.
    """
    for path in paths:
        if path == "-":
            yield from parse(_piped(), "standard input")
            continue
        for file in _files(Path(path)):
            yield from parse(_text(file), str(file))


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise ManifestError(f"no .yaml, .yml or .json file in {path}")
    return found


def _piped() -> str:
    text = sys.stdin.read(MAX_BYTES + 1)
    _refuse_size(len(text), "standard input")
    return text


def _refuse_size(size: int, source: str) -> None:
    if size > MAX_BYTES:
        raise ManifestError(f"{source} is larger than {MAX_BYTES >> 20} MiB")


def _text(path: Path) -> str:
    try:
        if path.is_file():
            _refuse_size(path.stat().st_size, str(path))
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8 text, at byte {error.start}") from None


def parse(text: str, source: str) -> Iterator[Document]:
    """Yield the objects of a manifest's text.

    Raises:
        ManifestError: it is not YAML, or a template that must be rendered first.
    """
    template = _HELM.search(text)
    if template:
        raise _of_helm(text, source, template)
    try:
        bodies = list(_bodies(text, source))
    except ManifestError:
        template = _PERHAPS_HELM.search(text)
        if template:
            raise _of_helm(text, source, template) from None
        raise
    for line, body in bodies:
        yield from _objects(f"{source}:{line}", body)


def _of_helm(text: str, source: str, template: re.Match[str]) -> ManifestError:
    line = text.count("\n", 0, template.start()) + 1
    column = template.start() - text.rfind("\n", 0, template.start())
    return ManifestError(
        f"{source}:{line}:{column}: a Helm template, not a manifest; render it first:"
        " helm template CHART | rankscope preflight -"
    )


def _bodies(text: str, source: str) -> Iterator[tuple[int, object]]:
    if text.lstrip().startswith("{"):  # much faster than YAML, for what kubectl writes
        try:
            yield 1, untrusted_json.read(text)
        except ValueError:
            pass  # a flow mapping of YAML; its reader reports what is wrong
        else:
            return
    try:
        _refuse_nesting(text, source)
        yield from _yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ManifestError(
            f"{source}{place}: not YAML: {error.problem or error.context}"
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ManifestError(f"{source}: not YAML: {' '.join(str(error).split())}") from None


def _refuse_nesting(text: str, source: str) -> None:
    """Refuse text that nests so deeply that libyaml's composer, which recurses, would crash."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            mark = event.start_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            why = f"not YAML of a manifest: it nests deeper than {MAX_DEPTH} levels"
            raise ManifestError(f"{source}{place}: {why}")


def _yaml(text: str) -> Iterator[tuple[int, object]]:
    loader = _LOADER(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            yield (node.start_mark.line + 1 if node else 1), loader.construct_document(node)
    finally:
        loader.dispose()


def _objects(source: str, body: object) -> Iterator[Document]:
    if body is None:
        return
    if not isinstance(body, dict):
        raise ManifestError(
            f"{source}: expected an object of Kubernetes, not a {type(body).__name__}"
        )
    if str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
        kind = str(body["kind"]).removesuffix("List")
        for one in mappings(body["items"]):
            # Items of a PodList carry neither kind nor version; those of a List do.
            yield Document(source, {"kind": kind, "apiVersion": body.get("apiVersion"), **one})
    else:
        yield Document(source, body)
