"""An API of Kubernetes that records what it is asked, and refuses if it has an error."""

from __future__ import annotations

from types import SimpleNamespace


class RecordingApi:
    """Answers anything with an empty page, which it says is not the last."""

    def __init__(self, error=None):
        self.asked, self.error = [], error

    def __getattr__(self, name):
        def request(*given, **options):
            self.asked.append((given, options))
            if self.error:
                raise self.error
            return SimpleNamespace(data=b'{"metadata": {"continue": "more"}}')

        return request
