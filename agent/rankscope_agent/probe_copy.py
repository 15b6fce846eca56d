"""Copies the probe, for an init container that puts it into a training pod."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent


class ProbeCopyError(Exception):
    """The probe is missing or cannot be written; the message says which and why."""


def copy_probe(target: Path, package: Path = PACKAGE) -> int:
    """Copy the files that belong on a trainer's PYTHONPATH; return their number.

    Args:
        target: the directory to fill, created if missing.
        package: the directory of this package; an installed package contains the probe, a checkout
            has it next to the package.

    Raises:
        ProbeCopyError: there is no probe, or the directory cannot be written.
    """
    folders = (package / "probe", package.parent / "probe")
    source = next((folder for folder in folders if (folder / "rankscope_probe.py").is_file()), None)
    if source is None:
        raise ProbeCopyError(f"no probe next to {package}: install rankscope again")
    files = [source / "rankscope_probe.py", *sorted(source.glob("rankscope_probe-*.dist-info/*"))]
    try:
        _make_readable(target)
        for file in files:
            copy = target / file.relative_to(source)
            _make_readable(copy.parent)
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o644)
    except OSError as error:
        raise ProbeCopyError(f"cannot write {target}: {error.strerror}") from None
    return len(files)


def _make_readable(folder: Path) -> None:
    """Create a directory that any user may read, whatever our umask; keep an existing one as is.

    The trainer may run as any user, and a volume's root need not be ours to change.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
