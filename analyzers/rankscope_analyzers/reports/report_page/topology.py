"""A drawing of where the job runs: one tile per node, the culprit's nodes with GPUs and NICs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_analyzers.findings.finding import RankLocation, Where
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.reports import job_summary
from rankscope_analyzers.reports.report_page.elements import Html, element, join
from rankscope_analyzers.text.sanitize import name

WIDTH = 1100
"""Units of a drawing's width; it scales with the page, 1:1 on a screen of 1280."""

FEW_NODES = 4
"""A job of this few nodes is drawn in full."""

NODES_IN_FULL = 2
"""Nodes with culprits that are drawn in full; the tiles mark the rest."""

GPUS_A_ROW = 8
GPUS_IN_FULL = 16
"""Ranks drawn of one node: as many as GPUs are in the largest servers; CPU jobs have more."""

TILE, GAP = 15, 4
BOX_HEIGHT, NIC_HEIGHT, MARGIN = 58, 26, 12


@dataclass(frozen=True, slots=True)
class Node:
    """A node with the job's ranks on it."""

    name: str
    locations: tuple[RankLocation, ...]
    blamed: bool


def figures(report: JobReport) -> Html | None:
    """Return the drawings of a job, None where its nodes are unknown."""
    locations = job_summary.locations(report)
    where = report.incidents[0].where if report.incidents else Where()
    nodes = _nodes(locations, where)
    if not nodes:
        return None
    few = len(nodes) <= FEW_NODES
    blamed = [node for node in nodes if node.blamed]
    full = nodes if few else blamed[:NODES_IN_FULL]
    rails = _rails(nodes)
    more = len(blamed) - len(full)
    return join(
        [
            None if few else _tiles(nodes),
            *(_in_full(node, where, rails) for node in full),
            element("p", f"{more} more of its nodes are marked above.", class_="note")
            if more > 0 and not few
            else None,
            _about_rails(rails),
        ]
    )


def _nodes(locations: Mapping[int, RankLocation], where: Where) -> list[Node]:
    """Return nodes in the order of their lowest rank."""
    members: dict[str, list[RankLocation]] = {}
    for location in locations.values():
        members.setdefault(location.node, []).append(location)
    blamed = {locations[rank].node for rank in where.ranks if rank in locations} | set(where.nodes)
    return [Node(key, tuple(ranks), key in blamed) for key, ranks in members.items()]


def _rails(nodes: Iterable[Node]) -> Mapping[str, int]:
    """Return on how many nodes a NIC of each name serves the job, for names on several."""
    count = Counter(
        nic
        for node in nodes
        for nic in {nic for location in node.locations for nic in location.nics[:1]}
    )
    return {nic: number for nic, number in count.items() if number > 1}


def _about_rails(rails: Mapping[str, int]) -> Html | None:
    if not rails:
        return None
    return element(
        "p",
        "A rail is the NIC of the same name on all nodes: where the fabric is built in rails, these"
        " share a leaf switch.",
        class_="note",
    )


def _tiles(nodes: Sequence[Node]) -> Html:
    """Return a grid with a tile per node, those of the culprit lit and marked."""
    columns = WIDTH // (TILE + GAP)
    lines = math.ceil(len(nodes) / columns)
    blamed = [node.name for node in nodes if node.blamed]
    sentences = f"{len(nodes)} nodes, " + (
        f"the culprit is on {', '.join(map(name, blamed[:FEW_NODES]))}"
        + (f" and {len(blamed) - FEW_NODES} more" if len(blamed) > FEW_NODES else "")
        if blamed
        else "none of them is blamed"
    )
    tiles = [_tile(node, number % columns, number // columns) for number, node in enumerate(nodes)]
    height = lines * (TILE + GAP) + GAP
    return element(
        "figure",
        element("figcaption", f"{sentences}."),
        _drawing(sentences, height, tiles),
        class_="tiles",
    )


def _tile(node: Node, column: int, line: int) -> Html:
    left, top = column * (TILE + GAP) + GAP, line * (TILE + GAP) + GAP
    ranks = ", ".join(str(location.rank) for location in node.locations[:GPUS_IN_FULL])
    return element(
        "g",
        element("title", f"{name(node.name)}: ranks {ranks}"),
        element("rect", x=left, y=top, width=TILE, height=TILE, rx=3),
        # A mark in addition to the colour, for eyes and printers that do not distinguish colours.
        element("text", "!", x=left + TILE / 2, y=top + TILE - 3) if node.blamed else None,
        class_="tile lit" if node.blamed else "tile",
    )


def _in_full(node: Node, where: Where, rails: Mapping[str, int]) -> Html:
    shown = _shown(node.locations, where)
    hidden = len(node.locations) - len(shown)
    lines = [shown[at : at + GPUS_A_ROW] for at in range(0, len(shown), GPUS_A_ROW)]
    drawn: list[Html] = []
    top = 0
    for line in lines:
        part, height = _gpus(line, where, rails, top)
        drawn.extend(part)
        top += height
    title = f"node {name(node.name)}" + (f", {hidden} more ranks not drawn" if hidden else "")
    return element(
        "figure",
        element("figcaption", element("strong", title), _blamed_in_words(node, where)),
        _drawing(f"{title}{_blamed_in_words(node, where)}", top, drawn),
        class_="node lit" if node.blamed else "node",
    )


def _shown(locations: Sequence[RankLocation], where: Where) -> list[RankLocation]:
    """Return the ranks that are drawn: the culprits first in line, then in order."""
    chosen = sorted(locations, key=lambda location: (not _lit(location, where), location.rank))[
        :GPUS_IN_FULL
    ]
    return sorted(chosen, key=lambda location: (location.gpu.zfill(4), location.rank))


def _lit(location: RankLocation, where: Where) -> bool:
    here = not where.nodes or location.node in where.nodes
    return location.rank in where.ranks or (
        here and bool(location.uuid) and location.uuid in where.uuids
    )


def _blamed_in_words(node: Node, where: Where) -> str:
    lit = [str(location.rank) for location in node.locations if _lit(location, where)][
        :GPUS_IN_FULL
    ]
    return f": culprit is rank {', '.join(lit)}" if lit else ""


def _gpus(
    locations: Sequence[RankLocation], where: Where, rails: Mapping[str, int], top: int
) -> tuple[list[Html], int]:
    """Return one line of GPUs with their NICs below, and the height it takes."""
    width = (WIDTH - MARGIN) // GPUS_A_ROW - MARGIN
    middles = [MARGIN + number * (width + MARGIN) + width / 2 for number in range(len(locations))]
    nics: dict[str, list[float]] = {}
    for location, middle in zip(locations, middles, strict=True):
        for nic in location.nics[:1]:
            nics.setdefault(nic, []).append(middle)
    height = top + MARGIN + BOX_HEIGHT
    level = height + 2 * MARGIN
    lines = [
        element("line", x1=middle, y1=height, x2=sum(of) / len(of), y2=level, class_="link")
        for of in nics.values()
        for middle in of
    ]
    boxes = [
        _box(location, middle, top + MARGIN, width, _lit(location, where))
        for location, middle in zip(locations, middles, strict=True)
    ]
    ports = [
        _nic(nic, sum(of) / len(of), level, width, nic in where.devices, rails.get(nic, 0))
        for nic, of in nics.items()
    ]
    end = level + NIC_HEIGHT * (2 if rails else 1) + MARGIN if nics else height + MARGIN
    return [*lines, *boxes, *ports], end - top


def _box(location: RankLocation, middle: float, top: int, width: int, lit: bool) -> Html:
    gpu = f"GPU {name(location.gpu)}" if location.gpu else "GPU unknown"
    sentences = f"rank {location.rank}, {gpu} {name(location.uuid)} {name(location.pod)}".rstrip()
    labels = (f"rank {location.rank}", gpu, _short(location.uuid))
    return element(
        "g",
        element("title", f"{sentences}, culprit" if lit else sentences),
        element("rect", x=middle - width / 2, y=top, width=width, height=BOX_HEIGHT, rx=6),
        *(
            element("text", label, x=middle, y=top + 17 + 16 * line)
            for line, label in enumerate(labels)
            if label
        ),
        class_="gpu lit" if lit else "gpu",
    )


def _nic(nic: str, middle: float, top: int, width: int, lit: bool, rail: int) -> Html:
    return element(
        "g",
        element("title", f"NIC {name(nic)}" + (", blamed" if lit else "")),
        element("rect", x=middle - width / 2, y=top, width=width, height=NIC_HEIGHT, rx=13),
        element("text", _short(nic), x=middle, y=top + 17),
        element("text", f"rail of {rail} nodes", x=middle, y=top + NIC_HEIGHT + 16, class_="rail")
        if rail
        else None,
        class_="nic lit" if lit else "nic",
    )


def _short(text: str) -> str:
    """Return as much of a name as fits into a box; the whole name is in its title."""
    shown = name(text)
    return shown if len(shown) <= 15 else f"{shown[:13]}…"


def _drawing(label: str, height: int, parts: Sequence[Html]) -> Html:
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=label,
        preserveAspectRatio="xMinYMin meet",
    )
