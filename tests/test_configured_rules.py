import json
import re
import subprocess

import pytest
import yaml

from rankscope_analyzers.arguments.hang_age import HANG_AFTER
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import watch_setup
from rankscope_analyzers.commands.config_option import configured
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_analyzers.configuration.thresholds import DEFAULTS, THRESHOLDS
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS
from rankscope_dashboards import generate
from rankscope_dashboards.rules import rule_files
from rankscope_dashboards.rules.rule_files import Links
from servers import require_server
from test_watch import watch_command_options

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "rankscope.yaml"
    found.write_text(EXAMPLE)
    return found


def rules(folder):
    groups = [
        yaml.load(path.read_text(), LOADER)["groups"] for path in (folder / "rules").glob("*.yaml")
    ]
    return [rule for several in groups for group in several for rule in group["rules"]]


def test_rules_have_the_objectives_links_and_paging_namespaces_of_the_configuration(file, tmp_path):
    assert generate.main(["generate", "--out", str(tmp_path / "out"), "--config", str(file)]) == 0
    found = rules(tmp_path / "out")
    expected = {
        one["record"].split(":")[1]: re.findall(r"([\d.]+) \* group", one["expr"])
        for one in found
        if one.get("record", "").endswith(":objective")
    }
    assert expected == {
        "rankscope_job_completions_success": ["0.97", "0.8"],
        "rankscope_goodput": ["0.96", "0.9"],
    }
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


@pytest.mark.parametrize(
    ("flag", "seconds"), [((), 90.0), (("20s",), 20.0), ((HANG_AFTER,), HANG_AFTER_SECONDS)]
)
def test_the_watch_has_the_patience_of_the_configuration_unless_a_flag_says_otherwise(
    file, flag, seconds
):
    given = ("--agent", "a:1", "--config", str(file))
    options = watch_command_options(*given, *(f"--hang-after={age}" for age in flag))
    known = configured(options)
    assert watch_setup.hang_after_seconds(options, known) == seconds


def test_the_watch_names_mistakes_of_the_configuration(file):
    file.write_text("version: 1\nprise: 1\n")
    options = watch_command_options("--agent", "a:1", "--config", str(file))
    with pytest.raises(InputError, match=r"--config: .*:2:1: unknown key 'prise'"):
        configured(options)


def alerts_of(known):
    return rule_files.files(Links(known=known))["rules/alerts.yaml"]


@pytest.fixture(scope="module")
def unconfigured():
    return alerts_of(Configuration())


def expression(made, name):
    groups = yaml.load(made, LOADER)["groups"]
    (found,) = [
        rule["expr"] for group in groups for rule in group["rules"] if rule["alert"] == name
    ]
    return found


ALERT_OF = {
    "lost_share": "RankscopeSlowStorage",
    "unwatched_lost_share": "RankscopeStraggler",
    "throughput_loss": "RankscopeThroughputDegraded24h",
    "step_tail": "RankscopeStepTailSlow",
    "sync_share": "RankscopeSyncShareHigh",
    "low_utilisation": "RankscopeLowGpuUtilisation",
    "idle_utilisation": "RankscopeGpusIdle",
    "loss_growth": "RankscopeLossDiverging",
    "cascade_jobs": "RankscopeJobFailureCascade",
    "cascade_share": "RankscopeJobFailureCascade",
    "lost_gpu_time": "RankscopeGoodputBurnSlow",
    "lost_gpus": "RankscopeGoodputBurnFast",
    "spending_growth": "RankscopeSpendingUnusual",
    "watch_silence": "RankscopeWatchLagging",
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_an_alert_fires_at_the_threshold_that_is_configured(name, unconfigured):
    value = (THRESHOLDS[name].default + THRESHOLDS[name].most) / 2
    text = expression(
        alerts_of(Configuration(thresholds={**DEFAULTS, name: value})), ALERT_OF[name]
    )
    before = expression(unconfigured, ALERT_OF[name])
    assert f" {value:g}" in text
    assert f" {value:g}" not in before
    assert text.replace(f" {value:g}", f" {DEFAULTS[name]:g}") == before


def test_rules_with_all_thresholds_at_their_limits_are_prometheus_rules(tmp_path):
    promtool = require_server("promtool")
    for side in ("least", "most"):
        thresholds = {name: getattr(one, side) for name, one in THRESHOLDS.items()}
        made = rule_files.files(Links(known=Configuration(thresholds=thresholds)))
        path = tmp_path / f"{side}.yaml"
        path.write_text(made["rules/alerts.yaml"])
        done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "@{" not in "".join(made.values())


def test_a_text_says_the_threshold_at_which_its_alert_fires():
    known = Configuration(thresholds={**DEFAULTS, "lost_gpu_time": 0.035, "step_tail": 3})
    made = alerts_of(known)
    assert "more than the planned 3.5 %" in made
    assert "takes over 3 times as long" in made
