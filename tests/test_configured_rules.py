import json

import pytest
import yaml

from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import watch_setup
from rankscope_analyzers.commands.connection import HANG_AFTER
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_dashboards import generate
from test_watch import watch_command_options


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "rankscope.yaml"
    found.write_text(EXAMPLE)
    return found


def rules(folder):
    groups = [
        yaml.safe_load(path.read_text())["groups"] for path in (folder / "rules").glob("*.yaml")
    ]
    return [rule for several in groups for group in several for rule in group["rules"]]


def test_rules_have_the_objectives_links_and_paging_namespaces_of_the_configuration(file, tmp_path):
    assert generate.main(["generate", "--out", str(tmp_path / "out"), "--config", str(file)]) == 0
    found = rules(tmp_path / "out")
    (objective,) = [one["expr"] for one in found if one.get("record", "").endswith(":objective")]
    assert "0.97 * group" in objective
    assert "0.8 * group" in objective
    alerts = [one for one in found if "alert" in one]
    links = {one["annotations"]["runbook_url"].rpartition("/")[0] for one in alerts}
    assert links == {"https://docs.example.org/rankscope/runbooks"}
    assert "vision-prod" in json.dumps(alerts)


def test_flags_win_over_the_configuration(file, tmp_path):
    flags = ["--runbook-url", "https://own.example/x", "--paging-namespace", "team"]
    out = str(tmp_path / "out")
    assert generate.main(["generate", "--out", out, "--config", str(file), *flags]) == 0
    alerts = [one for one in rules(tmp_path / "out") if "alert" in one]
    assert alerts[0]["annotations"]["runbook_url"].startswith("https://own.example/x/")
    assert "team" in json.dumps(alerts)


def test_a_mistake_is_told_with_its_place_and_nothing_is_written(file, tmp_path, capsys):
    file.write_text("version: 1\nobjective: []\n")
    assert generate.main(["generate", "--out", str(tmp_path / "out"), "--config", str(file)]) == 1
    assert (
        f"{file}:2:1: unknown key 'objective'; did you mean objectives?" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("flag", "seconds"), [(HANG_AFTER, 90.0), ("20s", 20.0)])
def test_the_watch_has_the_patience_of_the_configuration_unless_a_flag_says_otherwise(
    file, flag, seconds
):
    options = watch_command_options("--agent", "a:1", "--config", str(file), "--hang-after", flag)
    known = watch_setup.configuration(options)
    assert watch_setup.hang_after_seconds(options, known) == seconds


def test_the_watch_names_mistakes_of_the_configuration(file):
    file.write_text("version: 1\nprise: 1\n")
    options = watch_command_options("--agent", "a:1", "--config", str(file))
    with pytest.raises(InputError, match=r"--config: .*:2:1: unknown key 'prise'"):
        watch_setup.configuration(options)
