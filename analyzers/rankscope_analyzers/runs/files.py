"""Run records in a directory: one file per job and attempt, updated during the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankscope_analyzers.text import finite_json
from rankscope_analyzers.text.file_stem import file_stem

RENEW_SECONDS = 600.0
"""A run's speed is known more precisely later, and after a crash a record a few minutes old
suffices."""

MAXIMUM_FILES = 10_000
"""Records kept; the oldest are deleted first."""


class RunRecordFiles:
    """Writes records into a directory, which is created if necessary.

    Args:
        folder: the directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, float] = {}

    def due(self, job_id: str, now: float) -> bool:
        """Return True if a job's record is missing or old."""
        return now - self._written.get(job_id, float("-inf")) >= RENEW_SECONDS

    def write(self, found: Mapping[str, Any], now: float) -> Path:
        """Write a record; readers see the old one or the new one, never a part.

        Raises:
            OSError: it cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{file_stem(str(found['job_id']))}.attempt-{found['attempt']}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(finite_json.text(found, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
        self._written[str(found["job_id"])] = now
        self._thin_out()
        return path

    def _thin_out(self) -> None:
        files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MAXIMUM_FILES]:
            file.unlink(missing_ok=True)
