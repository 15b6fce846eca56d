"""The parts of the page that scripts draw: the maps over time and the table of ranks."""

from __future__ import annotations

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.reports import job_summary
from rankscope_analyzers.reports.report_page.elements import Html, element
from rankscope_analyzers.reports.report_page.sections import section as titled

KEYS = (
    "Keys: arrows move, Page Up and Page Down move by a node, Home and End go to the first and last"
    " step, + and - zoom, 0 shows all ranks, C goes to the culprit."
)

BUTTONS = (
    ("culprit", "Go to culprit"),
    ("in", "Zoom in"),
    ("out", "Zoom out"),
    ("all", "All ranks"),
)


def section(report: JobReport, ident: str) -> Html:
    """Return the part with step times, compute and waiting over time."""
    if report.frame is None:
        return titled(
            "Ranks over time", element("p", "No step records: nothing can be drawn.", class_="note")
        )
    return titled(
        "Ranks over time",
        element(
            "p",
            "The culprit computes or loads longer than its peers and waits less than they do:"
            " a strong line above is a faint line below. Step times are equal on all ranks.",
            class_="note",
        ),
        element(
            "div",
            *(element("button", label, type="button", data_do=action) for action, label in BUTTONS),
            class_="buttons",
            role="group",
            aria_label="what the maps show",
        ),
        element("div", id=f"{ident}-maps", class_="maps"),
        element("p", KEYS, id=f"{ident}-keys", class_="note"),
        element("noscript", element("p", "The maps are drawn by the page's own script.")),
        class_="over-time",
    )


def rank_table(report: JobReport, ident: str) -> Html | None:
    """Return the frame of the table of ranks."""
    count = len(job_summary.locations(report))
    if not count:
        return None
    field = f"{ident}-filter"
    return titled(
        "Ranks",
        element(
            "p",
            element("label", "Filter by rank, node, pod, GPU or NIC: ", for_=field),
            element("input", id=field, type="search", autocomplete="off"),
            " ",
            element("span", role="status", class_="count"),
            class_="filter",
        ),
        element("div", id=f"{ident}-ranks", class_="scroll"),
        element("noscript", element("p", "The table is written by the page's own script.")),
        class_="ranks",
    )
