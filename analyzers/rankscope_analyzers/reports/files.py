"""`rankscope diagnose --html FILE` and `--markdown [FILE]`: reports as files."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rankscope_analyzers.command import STANDARD_OUTPUT, InputError, check_folder
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.reports import html as html_report
from rankscope_analyzers.reports import markdown as markdown_report

MODE = 0o644
"""File mode: the engineer on call must be able to read a report, whatever the umask of its
writer."""


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot be written, before the work is done.

    Raises:
        InputError: a target exists and is not a regular file, or its directory is not writable, or
            two outputs have the same target.
    """
    if options.json and options.markdown == STANDARD_OUTPUT:
        raise InputError("--json and --markdown both print: give --markdown a FILE")
    if options.html == STANDARD_OUTPUT:
        raise InputError("--html takes a FILE: a terminal cannot show it")
    if options.html is not None and options.html == options.markdown:
        raise InputError(f"--html and --markdown cannot both be {options.html}")
    for path in _files(options):
        _refuse_special(path)
        check_folder(path)


def write(options: argparse.Namespace, reports: Sequence[JobReport]) -> None:
    """Write the files that were requested.

    Raises:
        InputError: a file cannot be written.
    """
    if options.html is not None:
        _write(options.html, html_report.write(reports))
    if options.markdown == STANDARD_OUTPUT:
        sys.stdout.write(markdown_report.write(reports))
    elif options.markdown is not None:
        _write(options.markdown, markdown_report.write(reports))


def printed(options: argparse.Namespace) -> bool:
    """Return True if standard output is used by a report."""
    return bool(options.markdown == STANDARD_OUTPUT)


def _files(options: argparse.Namespace) -> list[Path]:
    chosen = (options.html, options.markdown)
    return [path for path in chosen if path is not None and path != STANDARD_OUTPUT]


def _refuse_special(path: Path) -> None:
    """Refuse links, devices and directories: a report never replaces them."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a regular file and stays unchanged")


def _write(path: Path, text: str) -> None:
    """Write a file atomically: readers see the old one or the new one."""
    _refuse_special(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".rankscope-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), MODE)
                file.write(text)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    sys.stderr.write(f"report written to {path}\n")
