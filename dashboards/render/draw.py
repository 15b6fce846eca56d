"""Draws the dashboards as PNG with Grafana's own components; `make render` runs it.

Without `--prometheus` it starts what the tests ask: an agent of a faulty node, living rings, logs,
`rankscope watch` and a Prometheus, and lets them run until there is something to see.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from answers import Source, Span, answers, choices

from browser import Browser, Page, chromium
from rankscope_dashboards import dashboard_files
from scraped_stack import scraped_stack
from servers import require_server
from stack_sources import JOB, Pace

BUILD = Path(__file__).parent / "build"
WIDTHS = (1280, 1920)

HEADER, ROW = 48, 38
"""Pixels of the top, and of a row of Grafana's grid with the gap below it."""

PHOTOGRAPHS, PAINT_SECONDS = 10, 1.0
"""How often a page is looked at, and the time between."""

STEP_SECONDS = 0.105
"""About the length of the made-up job's steps before one of its ranks is slow."""

FAILURES = 20
"""Checkpoints that fail in a row, as where a store is full: every third would be an incident a
minute, whose marks would hide what is drawn."""

SCRAPE_SECONDS = 5
"""As often as the agent itself looks at what it exports."""

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<link rel="stylesheet" href="{build}/page.css"></head><body><div id="root"></div>
<script>window.rankscope = {model};</script><script src="{build}/page.js"></script></body></html>
"""


@dataclass(frozen=True, slots=True)
class Question:
    """Whom to ask, about which time, with which variables chosen, else about which job."""

    source: Source
    span: Span
    chosen: Mapping[str, str]
    job: str = ""

    def about(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dashboard with the answers to its queries."""
        variables = model["templating"]["list"]
        values = choices(self.source, variables, self.chosen, self.job)
        return {"dashboard": model, **answers(self.source, model, self.span, values)}


def main() -> int:
    """Draw, say what every panel shows, and return 0, or 1 if a panel could not be drawn."""
    options = _parser().parse_args()
    if not (BUILD / "page.js").exists():
        print(f"{BUILD}/page.js is missing: run `make render`, which builds it", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    if options.answers:
        drawn = json.loads(options.answers.read_text())
    else:
        drawn = _ask(options)
        (options.out / "answers.json").write_text(json.dumps(drawn))
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        faults = [
            fault
            for uid, asked in drawn.items()
            for width in options.width or WIDTHS
            for fault in _draw(
                browser,
                _page(Path(folder), asked, options.theme),
                (width, _height(asked["dashboard"])),
                options.out / f"{uid}-{width}.png",
            )
        ]
    print("".join(f"{fault}\n" for fault in faults), end="", file=sys.stderr)
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make render", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/render"))
    parser.add_argument("--width", type=int, action="append", help="of the window, in pixels")
    parser.add_argument("--theme", choices=("dark", "light"), default="light")
    parser.add_argument("--seconds", type=float, default=600, help="time range that is shown")
    parser.add_argument("--prometheus", help="URL of a server to ask instead of a made-up cluster")
    parser.add_argument("--scrape", type=float, default=15, help="scrape interval of that server")
    parser.add_argument("--choose", action="append", default=[], metavar="VARIABLE=VALUE")
    parser.add_argument("--answers", type=Path, help="draw again what was asked before")
    return parser


def _ask(options: argparse.Namespace) -> dict[str, Any]:
    models = [
        json.loads(dashboard_files.text(make("https://runbooks.example.com").auto_panel_ids()))
        for make in dashboard_files.DASHBOARDS
    ]
    with _question(options) as question:
        return {model["uid"]: question.about(model) for model in models}


@contextlib.contextmanager
def _question(options: argparse.Namespace) -> Iterator[Question]:
    chosen = dict(one.split("=", 1) for one in options.choose)
    if options.prometheus:
        end = time.time()
        yield Question(
            Source(options.prometheus), Span(end - options.seconds, end, options.scrape), chosen
        )
        return
    program, pace = require_server("prometheus"), _pace(options.seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        scraped_stack(program, Path(folder), pace) as stack,
    ):
        start = time.time()
        print(f"A made-up cluster runs for {options.seconds:.0f} s.", flush=True)
        time.sleep(options.seconds)
        span = Span(start, time.time(), pace.scrape_seconds)
        yield Question(Source(f"http://{stack.plain}"), span, chosen, JOB)


def _pace(seconds: float) -> Pace:
    """Return when things go wrong, so that each is seen to begin within a time range."""
    before = 120 + int(seconds * 0.35 / STEP_SECONDS)
    return Pace(
        slow_from=before,
        uneven=True,
        growth_seconds=seconds / 6,
        restart_seconds=seconds * 0.6,
        scrape_seconds=SCRAPE_SECONDS,
        failures=FAILURES,
    )


def _page(folder: Path, asked: Mapping[str, Any], theme: str) -> Path:
    """Write the page of one dashboard."""
    # "</script>" in a text would end the script that holds it.
    model = json.dumps({**asked, "theme": theme}).replace("<", "\\u003c")
    page = folder / "page.html"
    page.write_text(PAGE.format(build=BUILD.as_uri(), model=model))
    return page


def _photograph(tab: Page, picture: Path) -> None:
    """Write what a page shows once it looks the same twice: tables are painted after the rest."""
    before = b""
    for _ in range(PHOTOGRAPHS):
        tab.screenshot(picture, whole=False)
        if (seen := picture.read_bytes()) == before:
            return
        before = seen
        time.sleep(PAINT_SECONDS)


def _height(dashboard: Mapping[str, Any]) -> int:
    """Return the height at which all of a dashboard is in sight: tables draw nothing elsewhere."""
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    return HEADER + ROW * max(place["y"] + place["h"] for place in places)


def _draw(browser: Browser, page: Path, size: tuple[int, int], picture: Path) -> list[str]:
    """Draw one dashboard; return what went wrong."""
    tab = browser.open(page, *size)
    report = tab.run("window.rankscope.drawn")
    _photograph(tab, picture)
    shrink = ["node", BUILD.parent / "shrink.mjs", picture]
    subprocess.run(shrink, check=True)  # noqa: S603 - our own script
    for panel in report["panels"]:
        print(f"{picture.name}: {panel['title']}: {'; '.join(panel['shown'])}")
    return [
        f"{picture.name}: {error}"
        for error in (*report["errors"], *tab.complaints(), *tab.requests())
    ]


if __name__ == "__main__":
    sys.exit(main())
