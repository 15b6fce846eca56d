"""A folder's entries as os.scandir gives them, of which nothing is known but their names."""

from __future__ import annotations

from types import SimpleNamespace


class Listing(list):
    """What os.scandir gives: entries of these names."""

    def __init__(self, names):
        super().__init__(SimpleNamespace(name=name) for name in names)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None
