"""Ctrl-C ends a command without a traceback, whatever it is doing."""

from __future__ import annotations

import pytest

from rankscope_analyzers import cli


@pytest.mark.parametrize("module", ["arguments.jobs", "commands.jobs"])
def test_ctrl_c_while_modules_are_imported_is_no_error_to_report(module, monkeypatch, capsys):
    import_module = cli.import_module

    def interrupted(name):
        if name.endswith(module):
            raise KeyboardInterrupt
        return import_module(name)

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert cli.main(["jobs", "--agent", "localhost:1"]) == 130
    assert capsys.readouterr() == ("", "")
