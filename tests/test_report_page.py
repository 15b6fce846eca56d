"""The report in a real browser: what it asks for, draws and says."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from browser import chromium
from job_reports import SLOW_EIGHT, frame, report
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.reports import heat_map
from rankscope_analyzers.reports import html as html_report
from simulated_jobs import Fault, Job

HOSTILE = "</script><img src=x onerror=document.title='owned'><b>\x1b[31m"

PIXELS = """
(name) => {
  const maps = window.rankscope.views[0].maps;
  const map = maps.maps.find((one) => one.name === name);
  const pen = map.canvas.getContext("2d");
  const legend = map.legend.getContext("2d").getImageData(0, 0, 140, 1).data;
  const cells = [];
  for (let row = 0; row < maps.groups; row += 1) {
    for (let bin = 0; bin < maps.time.bins; bin += 1) {
      const x = Math.floor((maps.axis.x(bin) + maps.axis.x(bin + 1)) / 2);
      const y = Math.floor((row + 0.5) * maps.rowHeight);
      cells.push([...pen.getImageData(x, y, 1, 1).data.slice(0, 3)]);
    }
  }
  const ramp = [];
  for (let x = 0; x < 140; x += 1) ramp.push([...legend.slice(4 * x, 4 * x + 3)]);
  return JSON.stringify({ cells, ramp, top: map.top, groups: maps.groups });
}
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")

    def write(name, *reports):
        path = folder / f"{name}.html"
        path.write_text(html_report.write(reports), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def eight_ranks():
    return frame(SLOW_EIGHT)


@pytest.fixture(scope="module")
def eight(written, eight_ranks):
    return written("eight", report(eight_ranks))


@pytest.fixture(scope="module")
def many_ranks():
    return frame(Job(ranks=4096, steps=60, faults=(Fault("compute", (2717,), 0.6, 24),)))


@pytest.fixture(scope="module")
def many(written, many_ranks):
    return written("many", report(many_ranks))


def drawn(page, name):
    """Return how strong each cell is drawn, 0 to 1, read back from pixels with the legend."""
    said = json.loads(page.run(f"({PIXELS})({json.dumps(name)})"))
    cells, ramp = np.array(said["cells"], float), np.array(said["ramp"], float)
    distance = np.abs(cells[:, None, :] - ramp[None]).sum(axis=2)
    assert distance.min(axis=1).max() < 25, "a cell has a colour that the legend lacks"
    return distance.argmin(axis=1).reshape(said["groups"], -1) / 139, said["top"]


def readout(page):
    return page.run("document.querySelector('.readout').textContent")


def focus_maps(page):
    page.run("document.querySelector('[role=application]').focus()")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_asks_for_nothing_and_complains_of_nothing(browser, eight, dark):
    page = browser.open(eight, dark=dark)
    assert page.requests() == []
    assert page.complaints() == []
    assert page.run("window.rankscope.views.length") == 1


def test_the_policy_forbids_what_a_hole_in_the_page_would_want(browser, eight):
    page = browser.open(eight)
    page.run(
        "const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
        "document.body.append(s); const i = new Image(); i.src = 'http://192.0.2.1/x.png';"
        "document.body.append(i); 0"
    )
    assert page.run("window.owned === undefined")
    assert len([said for said in page.complaints() if "Content Security Policy" in said]) == 2


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_pixels_of_the_maps_are_the_numbers_of_the_frame(browser, eight, eight_ranks, dark):
    of = eight_ranks
    edges = heat_map.bin_edges(len(of.steps))
    page = browser.open(eight, dark=dark)
    strength, top = drawn(page, "compute")
    others = np.stack([np.median(np.delete(of.compute, r, axis=1), axis=1) for r in range(8)], 1)
    ratio = np.add.reduceat(of.compute / others, edges[:-1]) / np.diff(edges)[:, None]
    wanted = np.clip(np.log(ratio) / np.log(top), 0, 1).T
    assert strength == pytest.approx(wanted, abs=0.035)
    strength, top = drawn(page, "sync")
    share = np.add.reduceat(of.sync / of.step, edges[:-1]) / np.diff(edges)[:, None]
    assert strength == pytest.approx(np.clip(share / top, 0, 1).T, abs=0.025)


def test_the_culprit_of_4096_ranks_shows_in_rows_that_many_ranks_share(browser, many, many_ranks):
    page = browser.open(many)
    strength, _ = drawn(page, "compute")
    assert len(strength) == 100
    assert strength[:, 30:].mean(axis=1).argmax() == 2717 * 100 // 4096
    waits, _ = drawn(page, "sync")
    assert waits[:, 30:].mean(axis=1).argmin() == 2717 * 100 // 4096
    assert page.requests() == []
    assert page.complaints() == []


def test_arrow_keys_move_a_cursor_that_says_rank_node_step_and_values(browser, eight, eight_ranks):
    page = browser.open(eight)
    focus_maps(page)
    page.press("ArrowDown")
    assert readout(page).startswith("rank 5 (culprit), node node-00000, GPU 5; steps 0 to 1, 2025")
    page.press("ArrowUp", 2)
    page.press("End")
    said = readout(page)
    assert said.startswith("rank 3, node node-00000, GPU 3; steps 398 to 399, ")
    assert "computes 1.0" in said
    assert "waits in collectives 4" in said
    page.press("ArrowDown", 2)
    page.press("ArrowLeft", 3)
    assert "rank 5 (culprit)" in readout(page)
    of = eight_ranks
    ratio = of.compute[393:395, 5] / np.median(np.delete(of.compute[393:395], 5, axis=1), axis=1)
    shown = re.search(r"computes ([0-9.]+)x as long as its peers", readout(page))
    assert float(shown[1]) == pytest.approx(ratio.mean(), rel=0.01)
    page.press("Home")
    assert "; steps 0 to 1, " in readout(page)
    live = page.run("document.querySelector('.readout').getAttribute('aria-live')")
    assert live == "polite"


def test_the_keyboard_reaches_the_maps_and_leaves_them(browser, eight):
    page = browser.open(eight)
    seen = []
    for _ in range(40):
        page.press("Tab")
        seen.append(page.run("document.activeElement.getAttribute('role') || ''"))
    assert "application" in seen
    assert seen[seen.index("application") + 1] != "application"


def test_c_zooms_to_the_culprit_and_page_keys_move_by_node(browser, many):
    page = browser.open(many)
    focus_maps(page)
    page.press("c")
    assert "rank 2717 (culprit), node node-00339, GPU 5" in readout(page)
    assert page.run("window.rankscope.views[0].maps.window.count") == 64
    assert not page.run("window.rankscope.views[0].maps.pooling")
    page.press("PageDown")
    assert readout(page).startswith("rank 2720, node node-00340")
    page.press("PageUp")
    assert readout(page).startswith("rank 2712, node node-00339")
    page.press("ArrowUp", 40)
    assert readout(page).startswith("rank 2672, node node-00334")
    assert page.run("const m = window.rankscope.views[0].maps; m.inWindow(m.cursor.row)")
    page.press("0")
    assert page.run("window.rankscope.views[0].maps.window.count") == 4096


def test_the_table_of_ranks_sorts_filters_and_shows_at_most_64_at_first(browser, many):
    page = browser.open(many)
    ranks = (
        "[...document.querySelectorAll('.ranks tbody tr')].map((row) => +row.cells[0].textContent)"
    )
    assert len(page.run(ranks)) == 64
    assert page.run(ranks)[0] == 2717
    page.run("document.querySelector('.ranks thead button').click()")
    assert page.run(ranks)[:3] == [0, 1, 2]
    sorted_by = "document.querySelector('.ranks th').getAttribute('aria-sort')"
    assert page.run(sorted_by) == "ascending"
    page.run(
        "const field = document.querySelector('.ranks input'); field.value = 'node-00007';"
        "field.dispatchEvent(new Event('input'))"
    )
    assert page.run(ranks) == list(range(56, 64))
    assert page.run("document.querySelector('.count').textContent") == "8 of 4096 ranks shown"


def test_a_rank_of_the_table_leads_to_its_row_of_the_map(browser, many):
    page = browser.open(many)
    page.run("document.querySelectorAll('.ranks tbody button')[0].click()")
    assert readout(page).startswith("rank 2717 (culprit)")
    assert page.run("document.activeElement.getAttribute('role')") == "application"


def test_the_button_of_colours_redraws_the_maps(browser, eight):
    page = browser.open(eight)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    before, _ = drawn(page, "compute")
    page.run("document.getElementById('theme').click(); document.getElementById('theme').click()")
    assert page.run("document.getElementById('theme').textContent") == "Colours: dark"
    assert page.run(ground) != light
    after, _ = drawn(page, "compute")
    assert after == pytest.approx(before, abs=0.03)


def test_a_screen_reader_finds_landmarks_headings_and_names(browser, eight):
    page = browser.open(eight)
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    ]
    assert {"main", "banner", "article"} <= {role for role, _ in named}
    headings = [name for role, name in named if role == "heading"]
    assert {"Job team/pretrain", "What to do", "Incidents", "Evidence", "Ranks"} < set(headings)
    for role in ("application", "button", "link", "searchbox", "image", "table"):
        names = [name for found, name in named if found == role]
        assert names or role == "table"
        assert role == "table" or all(names), f"a {role} has no name: {names}"
    (maps,) = (name for role, name in named if role == "application")
    assert maps == "ranks over time, 8 ranks by 240 bins of steps"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_contrasts_with_what_it_stands_on(browser, eight, dark):
    """WCAG 2.1 success criterion 1.4.3: 4.5 to 1."""
    page = browser.open(eight, dark=dark)
    pairs = {
        "--text": ("--ground", "--card", "--accent-ground"),
        "--soft": ("--ground", "--card", "--accent-ground"),
        "--link": ("--ground", "--card", "--accent-ground"),
        "--accent": ("--card", "--accent-ground"),
    }
    for ink, grounds in pairs.items():
        for ground in grounds:
            colours = [
                page.run(
                    f"getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"
                )
                for name in (ink, ground)
            ]
            assert contrast(*colours) >= 4.5, (ink, ground, colours)


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_with_scripts_are_shown_and_do_nothing(browser, written, eight_ranks):
    of = replace(eight_ranks, job_id=HOSTILE, nodes=(HOSTILE,) * 8)
    known = {rank: RankLocation(rank, HOSTILE, pod=HOSTILE, nics=(HOSTILE,)) for rank in range(8)}
    page = browser.open(written("hostile", report(of, locations=known, unobserved=(HOSTILE,))))
    focus_maps(page)
    page.press("ArrowDown")
    assert "node </script><img src=x" in readout(page)
    assert page.run("document.title").startswith("Rankscope: </script><img")
    assert page.run("document.querySelectorAll('img, article b').length") == 0
    assert page.complaints() == []
    assert page.requests() == []


@pytest.mark.parametrize("job", [Job(ranks=1, steps=1, warm_up=0), Job(ranks=300, steps=3)])
def test_odd_shapes_are_drawn(browser, written, job):
    page = browser.open(written(f"odd-{job.ranks}", report(frame(job))))
    assert page.complaints() == []
    focus_maps(page)
    page.press("ArrowDown")
    assert readout(page).startswith("rank 0, node node-00000, GPU 0; step 0, ")


def test_paper_gets_the_light_page_with_its_runbooks_open(browser, eight):
    page = browser.open(eight, dark=True)
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("[...document.querySelectorAll('details')].every((book) => book.open)")
    strength, _ = drawn(page, "compute")
    assert strength[5, 200] > 0.9
    assert page.run("document.querySelector('.maps .legend').offsetParent !== null")
