"""The page that draws dashboards knows all that they use, and its packages are pinned."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dashboard_lint import panels_of
from dashboard_models import dashboard_models

RENDER = Path(__file__).parent.parent / "dashboards" / "render"
PANELS = [panel for model in dashboard_models() for panel in panels_of(model)]


def block(file: str, begin: str, end: str) -> str:
    text = (RENDER / "page" / file).read_text()
    return text[text.index(begin) : text.index(end, text.index(begin))]


def test_every_kind_of_panel_can_be_drawn():
    drawn = set(
        re.findall(
            r"^  '?([\w-]+)'?: \w+,$", block("visualizations.jsx", "KINDS", "};"), re.MULTILINE
        )
    )
    assert {panel["type"] for panel in PANELS} <= drawn


def test_every_setting_of_fields_is_known_to_the_page():
    known = set(re.findall(r"'(\w+)'", block("fields.js", "const custom", "];")))
    used = {name for panel in PANELS for name in panel["fieldConfig"]["defaults"]["custom"]}
    for panel in PANELS:
        for one in panel["fieldConfig"]["overrides"]:
            ids = [setting["id"] for setting in one["properties"]]
            used |= {name.removeprefix("custom.") for name in ids if name.startswith("custom.")}
    assert used <= known


def test_packages_are_pinned_and_locked():
    package = json.loads((RENDER / "package.json").read_text())
    locked = json.loads((RENDER / "package-lock.json").read_text())["packages"]
    for name, version in package["dependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), f"{name} {version}"
        assert locked[f"node_modules/{name}"]["version"] == version
    assert all(one["integrity"] for path, one in locked.items() if path)
