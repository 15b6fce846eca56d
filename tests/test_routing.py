"""Who hears of an alert, with what it is grouped, and what is muted."""

import json
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from alertmanagers import PATIENCE_SECONDS, alertmanager, alerts_of, post, webhooks
from rankscope_analyzers.configuration.document import parse
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_analyzers.configuration.values import Contact, of_document
from rankscope_dashboards import generate
from rankscope_dashboards.rules import routing
from rankscope_dashboards.rules.alerts import ALERTS, GROUPS
from rankscope_dashboards.rules.routing import Timing, Timings
from rankscope_dashboards.rules.rule_files import Links
from servers import require_server

FOLDER = Path(__file__).parent.parent / "dashboards/generated/alertmanager"
CONFIG = FOLDER / "alertmanager.yml"
NAMES = {alert.name for alert in ALERTS}
AT_ONCE = Timing("0s", "1s", "1h")


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require_server("amtool"), *arguments], capture_output=True, text=True, timeout=60
    )


def test_amtool_takes_the_configuration():
    done = amtool("check-config", str(CONFIG))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 templates" in done.stdout


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=page", "scope=job", "job_id=team/llm", "team=nlp"), "page"),
        (("severity=page", "scope=cluster"), "page"),
        (("severity=page", "scope=node", "node=gpu-07"), "page"),
        (("severity=ticket", "scope=job", "job_id=team/llm", "team=nlp"), "ticket-owner"),
        (("severity=ticket", "scope=job", "job_id=team/llm"), "ticket-owner"),
        (("severity=ticket", "scope=job"), "ticket"),
        (("severity=ticket", "scope=node", "node=gpu-07"), "ticket"),
        (("severity=ticket", "scope=node", "node=gpu-07", "owned_by=platform"), "ticket"),
        (("severity=ticket", "scope=node", "node=gpu-07", "owned_by=network"), "ticket-network"),
        (("severity=page", "scope=node", "node=gpu-07", "owned_by=network"), "page"),
        (("severity=ticket", "scope=cluster"), "ticket"),
        (("severity=ticket", "scope=project", "project=llm"), "ticket"),
        (("alertname=RankscopeWatchdog", "severity=none", "scope=cluster"), "deadman"),
        (("alertname=RankscopeNodeMaintenance", "severity=none", "scope=node"), "nobody"),
        (("alertname=SomebodyElses", "severity=warning"), "ticket"),
        (("alertname=WithoutLabels",), "ticket"),
    ],
)
def test_alerts_reach_their_receiver(labels, receiver):
    command = ("config", "routes", "test", f"--config.file={CONFIG}")
    done = amtool(*command, f"--verify.receivers={receiver}", *labels)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_are_grouped_by_what_they_are_about():
    (page,) = [r for r in routing.route(Timings())["routes"] if r["receiver"] == "page"]
    grouped = {tuple(route["matchers"]): route["group_by"] for route in page["routes"]}
    assert grouped['scope="job"',] == ["cluster", "job_id"]
    assert grouped['scope="node"',] == ["cluster", "node"]
    assert grouped['scope="job"', 'job_id=""'] == ["cluster", "node"]


def test_rules_name_alerts_that_exist():
    named = set(re.findall(r"Rankscope\w+", CONFIG.read_text()))
    assert named
    assert named <= NAMES


def test_every_inhibition_has_something_in_common_or_is_for_a_whole_cluster():
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        for label in rule["equal"]:
            if label != "cluster":
                assert f'{label}=~".+"' in rule["source_matchers"]
                assert f'{label}=~".+"' in rule["target_matchers"]


def rendered(part: str, data: dict, folder: Path) -> str:
    (folder / "data.json").write_text(json.dumps(data))
    done = amtool(
        *("template", "render", f"--template.glob={FOLDER}/templates/*.tmpl"),
        f"--template.data={folder / 'data.json'}",
        f'--template.text={{{{ template "rankscope.{part}" . }}}}',
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def told_of(status: str, **annotations: str) -> dict:
    labels = {"alertname": annotations.pop("name")}
    return {"status": status, "labels": labels, "annotations": annotations}


def message(status: str, *alerts: dict, **group: str) -> dict:
    return {"status": status, "groupLabels": group, "alerts": list(alerts)}


def test_templates_show_what_to_open(tmp_path):
    data = message("firing", told_of("firing", name="RankscopeXidFatal", runbook_url="books/xid"))
    assert "Runbook: books/xid\n" in rendered("text", data, tmp_path)
    assert "Runbook:" not in rendered("title", data, tmp_path)


def test_a_title_names_each_condition_once_and_only_those_that_go_on(tmp_path):
    alerts = [
        *(told_of("firing", name="RankscopeGpuThermalSlowdown") for _ in range(8)),
        told_of("firing", name="RankscopeXidFatal"),
        told_of("resolved", name="RankscopeLinkErrors"),
    ]
    title = rendered("title", message("firing", *alerts, node="gpu-07", cluster="a"), tmp_path)
    assert title.strip() == (
        "[FIRING 9] node gpu-07 in a: RankscopeGpuThermalSlowdown, RankscopeXidFatal"
    )
    title = rendered("title", message("resolved", alerts[-1], node="gpu-07"), tmp_path)
    assert title.strip() == "[RESOLVED] node gpu-07: RankscopeLinkErrors"


def test_a_text_says_what_is_over(tmp_path):
    alerts = [
        told_of("firing", name="RankscopeXidFatal", summary="Fatal Xid 79"),
        told_of("resolved", name="RankscopeLinkErrors", summary="Port has link errors"),
    ]
    text = rendered("text", message("firing", *alerts), tmp_path)
    assert "\nOver: Port has link errors\n" in text
    assert "Over: Fatal" not in text


def test_a_text_of_hundreds_of_alerts_stays_one_that_slack_takes(tmp_path):
    fires = [told_of("firing", name="A", summary=f"node {n}", description="x") for n in range(300)]
    over = [told_of("resolved", name="A", summary=f"back {n}", description="x") for n in range(11)]
    text = rendered("slack.text", message("firing", *over, *fires), tmp_path)
    assert text.startswith("node 0\nx\nRunbook: ")
    assert text.count("Runbook:") == 20
    assert "node 9\n" in text
    assert "Over: back 9\n" in text
    assert "node 10\n" not in text
    assert "back 10\n" not in text
    assert text.endswith("These are the first 10 of each: 300 go on, 11 are over.\n")


def test_a_jobs_name_calls_nobody_in_slack(tmp_path):
    summary = "Job <!channel> & <https://evil.example|friends> makes no steps"
    data = message("firing", told_of("firing", name="RankscopeJobStalled", summary=summary))
    assert summary in rendered("text", data, tmp_path)
    assert (
        "Job &lt;!channel&gt; &amp; &lt;https://evil.example|friends&gt; makes no steps"
        in rendered("slack.text", data, tmp_path)
    )
    data["groupLabels"] = {"job_id": "u/<!here>"}
    title = rendered("slack.title", data, tmp_path).strip()
    assert title == "[FIRING 1] job u/&lt;!here&gt;: RankscopeJobStalled"


CASCADE_SECONDS = 60 + 2 * 30
"""How late a cascade is known: its `for` and two evaluations."""


def test_pages_of_jobs_wait_for_a_cascade_that_mutes_them():
    wait = Timings().page_of_job.wait
    assert int(wait.removesuffix("m")) * 60 >= CASCADE_SECONDS
    (cascade,) = [
        (group.interval, one.hold)
        for group in GROUPS
        for one in group.alerts
        if one.name == "RankscopeJobFailureCascade"
    ]
    assert cascade == ("30s", "1m")
    (page,) = [r for r in routing.route(Timings())["routes"] if r["receiver"] == "page"]
    waits = {tuple(route["matchers"]): route.get("group_wait") for route in page["routes"]}
    assert waits['scope="job"',] == wait
    assert waits['scope="node"',] is None, "at once, as the branch says"


def alert(name: str, severity: str, scope: str, **labels: str) -> dict:
    return {
        "labels": {"alertname": name, "severity": severity, "scope": scope, **labels},
        "annotations": {"summary": name},
    }


LLM = {"job_id": "team/llm"}
OTHER = {"job_id": "team/other"}
NODE = {"node": "gpu-07"}
SENT = {
    # muted
    "ticket of a job that pages": alert("RankscopeSyncShareHigh", "ticket", "job", **LLM),
    "straggler on a node whose GPU is gone": alert(
        "RankscopeStraggler", "ticket", "job", **OTHER, **NODE
    ),
    "node in maintenance": alert("RankscopeLinkErrors", "ticket", "node", node="gpu-99"),
    "slow burn beside a fast one": alert("RankscopeGoodputBurnSlow", "ticket", "cluster"),
    "failure that a cascade explains": alert(
        "RankscopePodFailed", "page", "job", job_id="team/fell"
    ),
    "one agent of a cluster without any": alert("RankscopeAgentDown", "ticket", "node", node="n"),
    # told
    "page": alert("RankscopeJobStalled", "page", "job", **LLM),
    "another job": alert("RankscopeSyncShareHigh", "ticket", "job", **OTHER),
    "hit production job": alert(
        "RankscopeGpuHardwareFault", "page", "job", job_id="team/hit", **NODE
    ),
    "GPU gone": alert("RankscopeXidFatal", "ticket", "node", **NODE, gpu="5"),
    "other node": alert("RankscopeLinkErrors", "ticket", "node", node="gpu-08"),
    "maintenance": alert("RankscopeNodeMaintenance", "none", "node", node="gpu-99"),
    "fast burn": alert("RankscopeGoodputBurnFast", "page", "cluster"),
    "no agent": alert("RankscopeNoAgents", "ticket", "cluster"),
    "job of the cascade": alert("RankscopeJobInCascade", "none", "job", job_id="team/fell"),
    "failure of a job beside a cascade": alert(
        "RankscopePodFailed", "ticket", "job", job_id="other/x"
    ),
    "job unknown": alert("RankscopeNonFiniteLoss", "ticket", "job", node="gpu-08"),
}
MUTED = list(SENT)[:6]


def test_a_real_alertmanager_mutes_what_is_explained_and_tells_the_rest_once(tmp_path):
    timings = Timings(AT_ONCE, AT_ONCE, Timing("1s", "1s", "1h"), AT_ONCE)
    with webhooks() as told, alertmanager(tmp_path, told.url, timings) as address:
        # Causes first: a notification is not taken back.
        for one in reversed(SENT.values()):
            post(address, [one])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(told.got) < 9 and time.monotonic() < deadline:
            time.sleep(0.1)
        muted = {
            frozenset(one["labels"].items())
            for one in alerts_of(address)
            if one["status"]["inhibitedBy"]
        }
        time.sleep(2.5)  # two more group intervals, in which nothing new may come
    assert muted == {frozenset(SENT[name]["labels"].items()) for name in MUTED}
    by_receiver = sorted(
        (receiver, one["labels"]["alertname"])
        for receiver, message in told.got
        for one in message["alerts"]
    )
    assert by_receiver == [
        ("page", "RankscopeGoodputBurnFast"),
        ("page", "RankscopeGpuHardwareFault"),
        ("page", "RankscopeJobStalled"),
        ("ticket", "RankscopeLinkErrors"),
        ("ticket", "RankscopeNoAgents"),
        ("ticket", "RankscopeNonFiniteLoss"),
        ("ticket", "RankscopeXidFatal"),
        ("ticket-owner", "RankscopePodFailed"),
        ("ticket-owner", "RankscopeSyncShareHigh"),
    ]


def muted_by_job(address: str) -> set[tuple[str, str]]:
    return {
        (one["labels"]["job_id"], one["labels"]["alertname"])
        for one in alerts_of(address)
        if one["status"]["inhibitedBy"]
    }


def test_a_preemption_mutes_a_hang_until_the_job_has_been_started_again(tmp_path):
    """Its own notice goes on for longer, and mutes no failure that does not follow from it."""
    taken = ("RankscopeJobPreempted", "RankscopeJobTakenAway")
    muted = {("team/away", "RankscopeHang")}
    muted |= {(job, "RankscopeGangPartial") for job in ("team/away", "team/back")}
    with webhooks() as told, alertmanager(tmp_path, told.url, Timings()) as address:
        post(address, [alert(name, "none", "job", job_id="team/away") for name in taken])
        post(address, [alert(taken[0], "page", "job", job_id="team/back")])
        for job in ("team/away", "team/back"):
            stands = ("RankscopeHang", "RankscopePodFailed", "RankscopeGangPartial")
            post(address, [alert(name, "page", "job", job_id=job) for name in stands])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while muted_by_job(address) != muted and time.monotonic() < deadline:
            time.sleep(0.1)
        assert muted_by_job(address) == muted


def test_what_is_wrong_with_one_job_is_one_notification(tmp_path):
    timings = Timings(AT_ONCE, AT_ONCE, Timing("2s", "1s", "1h"), AT_ONCE)
    with webhooks() as told, alertmanager(tmp_path, told.url, timings) as address:
        post(
            address,
            [
                alert("RankscopeStraggler", "ticket", "job", **LLM, node="gpu-01"),
                alert("RankscopeSyncShareHigh", "ticket", "job", **LLM),
                alert("RankscopeStepTailSlow", "ticket", "job", **LLM),
            ],
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not told.got and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.5)
    ((receiver, message),) = told.got
    assert receiver == "ticket-owner"
    assert len(message["alerts"]) == 3
    assert message["groupLabels"] == LLM


def test_agents_that_are_all_gone_are_one_notification(tmp_path):
    timings = Timings(AT_ONCE, AT_ONCE, Timing("2s", "1s", "1h"), AT_ONCE)
    down = [alert("RankscopeAgentDown", "ticket", "node", node=f"n{n}") for n in range(40)]
    with webhooks() as told, alertmanager(tmp_path, told.url, timings) as address:
        post(address, down)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not told.got and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.5)
    ((receiver, message),) = told.got
    assert receiver == "ticket"
    assert len(message["alerts"]) == 40


def configured(tmp_path: Path) -> Path:
    """Write the routes of the example of rankscope.yaml, and one project with an odd name."""
    known = of_document(parse(EXAMPLE, "f"), "f")
    owners = {**known.project_owners, 'a "b\\': Contact("#odd"), "vision": Contact("#vision")}
    made = generate.everything(Links(known=replace(known, project_owners=owners)))
    path = tmp_path / "alertmanager.yml"
    path.write_text(made["alertmanager/alertmanager.yml"])
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/a.tmpl").write_text(made["alertmanager/templates/rankscope.tmpl"])
    return path


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("job_id=team/a", "project=llm"), "ticket-project-llm"),
        (("job_id=llm/a",), "ticket-project-llm"),
        (("job_id=llm/a", "project=vision"), "ticket-project-vision"),
        (("job_id=vision-prod/a",), "ticket-project-vision"),
        (("job_id=vision-prod-2/a",), "ticket-owner"),
        (("job_id=team/a", "project=other"), "ticket-owner"),
        (("job_id=team/a", 'project=a "b\\'), 'ticket-project-a "b\\'),
    ],
)
def test_tickets_of_a_job_reach_those_who_own_its_project(tmp_path, labels, receiver):
    path = configured(tmp_path)
    done = amtool("check-config", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    done = amtool(
        *("config", "routes", "test", f"--config.file={path}", "severity=ticket", "scope=job"),
        *(f"{name}={json.dumps(value)}" for name, _, value in (x.partition("=") for x in labels)),
    )
    assert done.stdout.strip() == receiver, done.stderr
    page = amtool(
        *("config", "routes", "test", f"--config.file={path}", "severity=page", "scope=job"),
        "project=llm",
    )
    assert page.stdout.strip() == "page"


def test_receivers_have_the_channels_and_addresses_of_the_configuration(tmp_path):
    made = yaml.safe_load(configured(tmp_path).read_text())
    assert made["global"]["smtp_smarthost"] == "mail.example.org:587"
    by_name = {one["name"]: one for one in made["receivers"]}
    assert by_name["page"]["slack_configs"][0]["channel"] == "#training-pages"
    assert by_name["page"]["pagerduty_configs"]
    assert by_name["ticket"]["email_configs"][0]["to"] == "gpu-platform@example.org"
    assert "email_configs" not in by_name["ticket-network"]
    assert by_name["ticket-project-llm"]["slack_configs"][0]["channel"] == "#llm-training"
    assert "{{" in by_name["ticket-owner"]["slack_configs"][0]["channel"]
