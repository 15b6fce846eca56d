from rankscope_dashboards.references.xid_reference import markdown


def test_the_committed_codes_are_those_of_the_table(pytestconfig):
    committed = (pytestconfig.rootpath / "docs" / "xid_codes.md").read_text(encoding="utf-8")
    assert committed == markdown(), (
        "run: python -m rankscope_dashboards.references.xid_reference FILE"
    )
    assert committed.count("\n| ") == 176 + 1
