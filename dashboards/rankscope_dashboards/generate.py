"""`rankscope-dashboards generate`: writes the generated files, or compares them.

A kind of output is a function that returns files by name; GENERATORS is their table. What lists the
files comes after them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rankscope_analyzers.configuration.document import ConfigurationError
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.configuration.values import read as read_configuration
from rankscope_dashboards import kustomizations
from rankscope_dashboards.rules import routing, rule_files
from rankscope_dashboards.rules.rule_files import Links

Files = Mapping[str, str]


def _dashboards(links: Links) -> Files:
    from rankscope_dashboards import dashboard_files

    return dashboard_files.files(links)


# What takes grafanalib is imported when it is called: a plain installation does not have it.
GENERATORS: tuple[Callable[[Links], Files], ...] = (
    rule_files.files,
    routing.files,
    _dashboards,
)

OF_THE_EXTRA = frozenset(("grafanalib", "attr"))
"""Modules of the packages that the extra `dashboards` brings."""


class MissingPackageError(Exception):
    """The extra is not installed; the message is one sentence."""


DEFAULT_FOLDER = Path("dashboards/generated")
"""Directory of the output in a checkout; elsewhere it is created below the current directory."""


def everything(links: Links) -> Files:
    """Return the content of all files by their path below the output directory."""
    made = {name: text for generator in GENERATORS for name, text in generator(links).items()}
    return {**made, **kustomizations.files(list(made))}


def differences(folder: Path, files: Files) -> list[str]:
    """Return missing, different and superfluous files of a directory, one line each."""
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    found = [f"{name}: missing" for name in files if name not in there]
    found += [f"{name}: not made by this version" for name in there if name not in files]
    found += [
        f"{name}: differs"
        for name, text in files.items()
        if name in there and there[name].read_text(encoding="utf-8") != text
    ]
    return sorted(found)


def write(folder: Path, files: Files) -> None:
    """Write all files below a directory."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if --check finds a difference."""
    options = _parser().parse_args(arguments)
    try:
        known = read_configuration(options.config) if options.config else Configuration()
        files = _made(_links(options, known))
    except (ConfigurationError, MissingPackageError) as error:
        sys.stderr.write(f"rankscope-dashboards: {error}\n")
        return 1
    if options.check:
        found = differences(options.out, files)
        sys.stdout.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    try:
        write(options.out, files)
    except OSError as error:
        sys.stderr.write(f"rankscope-dashboards: cannot write {options.out}: {error.strerror}\n")
        return 1
    sys.stdout.write(f"{len(files)} files written to {options.out}\n")
    return 0


def _made(links: Links) -> Files:
    try:
        return everything(links)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OF_THE_EXTRA:
            raise
        needs = f"{package} is not installed: pip install 'rankscope[dashboards]'"
        raise MissingPackageError(needs) from None


def _links(options: argparse.Namespace, known: Configuration) -> Links:
    """Return the targets of links and who may page: from flags, else from the configuration."""
    defaults = Links()
    addresses = {"runbooks": options.runbook_url, "grafana": options.grafana_url}
    return Links(
        (addresses["runbooks"] or known.links.get("runbooks", defaults.runbooks)).rstrip("/"),
        (addresses["grafana"] or known.links.get("grafana", defaults.dashboards)).rstrip("/"),
        tuple(dict.fromkeys((*options.paging_namespace, *known.paging_namespaces))),
        known,
    )


EXAMPLES = """\
examples:
  rankscope-dashboards generate --out rankscope-generated
        dashboards, alerts, recording rules and routes of a cluster
  rankscope-dashboards generate --config rankscope.yaml --out rankscope-generated
        with its own objectives, thresholds, owners and links
  rankscope-dashboards generate --config rankscope.yaml --out rankscope-generated --check
        in CI: exit 1 if what was generated is not up to date"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rankscope-dashboards",
        description="What is made from the metric catalogue.",
        epilog="rankscope-dashboards generate --help has examples.",
    )
    commands = parser.add_subparsers(required=True)
    generate = commands.add_parser(
        "generate",
        help="write all files, or compare them",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    generate.add_argument(
        "--out", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="default: %(default)s"
    )
    generate.add_argument(
        "--check", action="store_true", help="write nothing; say what differs, exit 1 if anything"
    )
    defaults = Links()
    generate.add_argument(
        "--runbook-url",
        default="",
        metavar="URL",
        help=f"where docs/runbooks is served (default: {defaults.runbooks})",
    )
    generate.add_argument(
        "--grafana-url", default="", metavar="URL", help=f"default: {defaults.dashboards}"
    )
    generate.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="rankscope.yaml: objectives of classes, thresholds and owners of alerts, paging"
        " namespaces, links; flags win",
    )
    generate.add_argument(
        "--paging-namespace",
        type=_namespace,
        action="append",
        default=[],
        metavar="NAME",
        help="namespace whose jobs of the class production may page; may be given again"
        " (default: alerts about jobs are tickets)",
    )
    return parser


def _namespace(text: str) -> str:
    """Return a namespace's name, which goes into rules.

    Raises:
        argparse.ArgumentTypeError: it is invalid.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of a namespace")
    return text


if __name__ == "__main__":
    sys.exit(main())
