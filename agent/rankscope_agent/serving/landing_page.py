"""The page that a browser shows at the agent's address."""

from __future__ import annotations

import html
from collections.abc import Sequence

from rankscope_agent.collecting.registry import CollectorState

LINKS: tuple[tuple[str, str], ...] = (
    ("/metrics", "metrics for Prometheus"),
    ("/healthz", "what is seen and what is not"),
    ("/readyz", "whether every collector has had its first run"),
    ("/api/v1/pods", "pods on this node, their devices, and ranks known from processes"),
    ("/api/v1/ranks", "training ranks on this node"),
    ("/api/v1/steps", "their step records"),
    ("/api/v1/step_starts", "the first step records of each"),
    ("/api/v1/spans", "what they did besides steps"),
    ("/api/v1/collectives", "sampled windows of their collectives"),
    ("/api/v1/stalls", "where ranks stand that end no steps"),
    ("/api/v1/evidence", "what this node knows of a job that stands, part by part"),
    ("/api/v1/hangs", "what was kept of jobs that stood"),
)

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #ffffff; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.node { margin-top: 0; color: #57606a; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #d0d7de;
  vertical-align: top; overflow-wrap: anywhere; }
a { color: #0757ba; } .ok { color: #116329; } .failed { color: #a40e26; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; } p.node { color: #9198a1; }
  th, td { border-color: #3d444d; } a { color: #6cb6ff; }
  .ok { color: #56d364; } .failed { color: #ff8f88; }
}
"""


def landing_page(node: str, version: str, states: Sequence[CollectorState]) -> str:
    """Return the page: links, and every collector with its state in words."""
    title = f"Rankscope agent on {html.escape(node)}"
    links = "".join(f'<li><a href="{path}">{path}</a>: {what}</li>' for path, what in LINKS)
    rows = "".join(_row(state) for state in states)
    table = (
        f"<table><tr><th>Collector</th><th>State</th><th>Series</th></tr>{rows}</table>"
        if states
        else "<p>No collector is switched on.</p>"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f'<h1>Rankscope agent</h1><p class="node">{html.escape(node)}, version '
        f"{html.escape(version)}</p><h2>Pages</h2><ul>{links}</ul>"
        f"<h2>Collectors</h2>{table}</body></html>\n"
    )


def _row(state: CollectorState) -> str:
    scrape = state.scrape
    if scrape is None:
        word, css, samples = "first run not finished", "", ""
    elif scrape.invalid:
        word, css, samples = scrape.invalid_reason, "failed", str(len(scrape.samples))
    elif scrape.success:
        word, css, samples = "works", "ok", str(len(scrape.samples))
    else:
        word, css, samples = scrape.failure, "failed", str(len(scrape.samples))
    return (
        f'<tr><td>{html.escape(state.name)}</td><td class="{css}">{html.escape(word)}</td>'
        f"<td>{samples}</td></tr>"
    )
