"""What alerts say, as promtool reports it.

`python tests/alert_texts.py` writes fixtures/alerts/texts.json anew, for review by eye.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from alert_cases import CASES
from promtool_tests import run
from rankscope_dashboards.rules.alerts import ALERTS

TEXTS = Path(__file__).parent / "fixtures/alerts/texts.json"

_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


def texts_of(output: str) -> Iterator[dict]:
    """Yield the alerts that promtool got where it expected none."""
    for labels, texts in re.findall(r"Labels:\{(.*)\}\n\s*Annotations:\{(.*)\}", output):
        yield {
            "labels": {
                key: json.loads(value) for key, value in _PAIR.findall(labels) if key != "alertname"
            },
            "annotations": {key: json.loads(value) for key, value in _PAIR.findall(texts)},
        }


def main() -> None:
    """Write the texts that alerts have now."""
    found = {}
    for alert in ALERTS:
        with tempfile.TemporaryDirectory() as folder:
            case = CASES[alert.name]
            done = run(Path(folder), "promtool", alert, case, [])
            found[alert.name] = list(texts_of(done.stdout + done.stderr))
    TEXTS.parent.mkdir(exist_ok=True)
    TEXTS.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
