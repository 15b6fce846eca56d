from pathlib import Path

from rankscope_dashboards.references import alert_reference
from rankscope_dashboards.rules.alerts import ALERTS

PAGE = Path(__file__).parent.parent / "docs/alert_reference.md"


def test_the_reference_is_made_from_the_tables():
    assert PAGE.read_text(encoding="utf-8") == alert_reference.markdown(), (
        "python -m rankscope_dashboards.references.alert_reference docs/alert_reference.md"
    )


def test_every_alert_has_a_row_without_template_syntax():
    page = alert_reference.markdown()
    for alert in ALERTS:
        assert f"[{alert.name}](runbooks/{alert.name}.md)" in page
    assert "{{" not in page
    assert "$" not in page
