"""Copies the probe, for an init container that puts it into a training pod."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent


class ProbeCopyError(Exception):
    """The probe is not there or cannot be written; the message says which and why."""


def copy_probe(target: Path, package: Path = PACKAGE) -> int:
    """Copy what belongs on a trainer's PYTHONPATH; return the number of files.

    Args:
        target: the folder to fill, made if missing.
        package: where this package lies; an installed one has the folder inside, a checkout
            beside it.

    Raises:
        ProbeCopyError: there is no probe, or the folder cannot be written.
    """
    folders = (package / "probe", package.parent / "probe")
    source = next((folder for folder in folders if (folder / "rankscope_probe.py").is_file()), None)
    if source is None:
        raise ProbeCopyError(f"no probe beside {package}: install rankscope again")
    files = [source / "rankscope_probe.py", *sorted(source.glob("rankscope_probe-*.dist-info/*"))]
    try:
        _make_readable(target)
        for file in files:
            copy = target / file.relative_to(source)
            _make_readable(copy.parent)
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o644)
    except OSError as error:
        raise ProbeCopyError(f"{target} cannot be written: {error.strerror}") from None
    return len(files)


def _make_readable(folder: Path) -> None:
    """Make a folder that any user may read, whatever our umask; one that is there stays as it is.

    The trainer may be any user, and a volume's root need not be ours to change.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
