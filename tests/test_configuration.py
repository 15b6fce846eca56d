import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from rankscope_agent.contract.job_labels import DEFAULT_LABELS, parse_job_labels
from rankscope_agent.settings.config import Config
from rankscope_agent.settings.option import options_of
from rankscope_analyzers import cli
from rankscope_analyzers.configuration.document import ConfigurationError, parse
from rankscope_analyzers.configuration.document import read as read_file
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_analyzers.configuration.rendering import as_object
from rankscope_analyzers.configuration.schema import SCHEMA
from rankscope_analyzers.configuration.thresholds import DEFAULTS, THRESHOLDS
from rankscope_analyzers.configuration.values import (
    OBJECTIVES,
    Configuration,
    Contact,
    Price,
    of_document,
    schema_text,
)

DOCS = Path(__file__).parents[1] / "docs"


def read(text):
    return of_document(parse(text, "f.yaml"), "f.yaml")


def wrong(text):
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    return str(raised.value)


def test_the_example_holds_every_key_of_the_schema_and_is_read_as_it_says():
    known = read(EXAMPLE)
    assert set(yaml.safe_load(EXAMPLE)) == set(SCHEMA["properties"])
    assert known.hang_after == "90s"
    assert known.objectives == {"production": 0.97, "": 0.8}
    assert known.times_to_complete == {"production": "14d", "": "90d"}
    assert known.times_to_recover == {"production": "15m", "": "2h"}
    assert known.prices == (Price(2.1, "H100", "llm"), Price(2.4, "H100"), Price(1.2))
    assert known.budgets == {"llm": 400000.0}
    assert known.project_of("vision-prod/a", "") == "vision"
    assert known.project_of("vision-prod/a", "own") == "own"
    assert known.project_of("other/a", "") == ""


def test_an_empty_configuration_has_defaults():
    assert read("version: 1") == Configuration()
    assert Configuration().objectives == OBJECTIVES


@pytest.mark.parametrize(
    ("gpu", "project", "price"),
    [
        ("NVIDIA H100 80GB HBM3", "llm", 2.1),
        ("NVIDIA H100 80GB HBM3", "vision", 2.4),
        ("nvidia h100", "", 2.4),
        ("NVIDIA A100", "llm", 1.2),
        ("", "", 1.2),
    ],
)
def test_the_first_price_that_fits_counts(gpu, project, price):
    assert read(EXAMPLE).price(gpu, project) == price


def test_without_a_price_that_fits_there_is_none():
    text = "version: 1\nprices: {currency: EUR, gpu_hours: [{gpu: H100, price: 2}]}"
    assert read(text).price("NVIDIA A100", "") is None


def test_an_unknown_key_is_named_with_line_and_column_and_what_was_meant():
    text = "version: 1\nprices:\n  currency: EUR\n  gpu_hour: []\n"
    said = wrong(text)
    assert "f.yaml:4:3: prices: unknown key 'gpu_hour'; did you mean gpu_hours?" in said
    assert "f.yaml:3:3: prices: gpu_hours is missing" in said
    assert wrong("version: 1\nzebra: 2").startswith("f.yaml:2:1: unknown key 'zebra'; known are ")


PRICE = "version: 1\nprices:\n  currency: EUR\n  gpu_hours:\n    - {gpu: H100, price: "


@pytest.mark.parametrize("price", ["0", "0.5", "1000"])
def test_a_price_may_be_anything_up_to_a_thousand(price):
    assert read(f"{PRICE}{price}}}").price("H100", "") == float(price)


@pytest.mark.parametrize("price", ["-0.01", "1000.5", ".inf", "-.inf", ".nan"])
def test_a_negative_or_absurd_price_is_refused(price):
    said = wrong(f"{PRICE}{price}}}")
    assert said.startswith("f.yaml:5:26: prices.gpu_hours.0.price: expected 0 to 1000, got ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml:1:1: expected keys and values, got null"),
        ("[]", "f.yaml:1:1: expected keys and values, got []"),
        ("version: 2", "f.yaml:1:10: version: expected one of [1], got 2"),
        ("version: true", "f.yaml:1:10: version: expected a whole number, got true"),
        ("version: 1\nhang_after: 5", "f.yaml:2:13: hang_after: expected a string, got 5"),
        ("version: 1\nhang_after: 0s", 'f.yaml:2:13: hang_after: "0s" does not match'),
        ("version: 1\nversion: 1", "f.yaml:2:1: the key version occurs twice"),
        ("version: 2026-99-99", "f.yaml:1:10: 2026-99-99 is not a valid value"),
        ("version: 1\nowners: " + "9" * 5000, f"f.yaml:2:9: {'9' * 37}... is not a valid value"),
        ("version: 1\nlinks: *x", "f.yaml:2:8: aliases and tags are not supported"),
        ("version: !!python/name:os.system 1", "f.yaml:1:10: aliases and tags are not supported"),
        ("version: [1", "f.yaml:1:12: "),
        ("version: 1\nbudgets: [{project: a, month: 2024-01-01}]", "budgets.0.month: expected a"),
        ("a: " + "[" * 60 + "]" * 60, "more than 20 levels"),
        ("version: 1\nbudgets: [{project: '', month: 1}]", "expected 1 to 253 characters, got 0"),
        ("version: 1\npaging_namespaces: [Team]", 'paging_namespaces.0: "Team" does not match'),
    ],
    ids=lambda text: text[:24].replace("\n", " ") if "f.yaml" not in text else "said",
)
def test_what_is_wrong_is_said_with_its_place(text, said):
    assert said in wrong(text)


def test_at_most_sixteen_objectives_are_taken():
    rows = [{"class": f"c{number}", "success_ratio": 0.5} for number in range(17)]
    assert len(read(json.dumps({"version": 1, "objectives": rows[:16]})).objectives) == 18
    assert "17 entries, at most 16" in wrong(json.dumps({"version": 1, "objectives": rows}))


DOCUMENTS = (
    {"version": 1},
    {"version": 1, "hang_after": "10m"},
    {"version": 1, "hang_after": "m"},
    {"version": "1"},
    {},
    {"version": 1, "extra": 1},
    {"version": 1, "objectives": [{"class": "a", "success_ratio": 1.0}]},
    {"version": 1, "objectives": [{"class": "a b", "success_ratio": 0.5}]},
    {"version": 1, "objectives": [{"class": "a"}]},
    {"version": 1, "objectives": [{"success_ratio": 0.5}]},
    {"version": 1, "owners": {"platform": {}}},
    {"version": 1, "owners": {"projects": [{"project": "a", "slack": "#a"}]}},
    {"version": 1, "owners": {"projects": [{"project": "a"}]}},
    {"version": 1, "thresholds": {"lost_share": 0.004}},
    {"version": 1, "labels": {"class": ["a/b", "c"]}},
    {"version": 1, "fabric": {"ranges": ["10.0.0.0"]}},
    {"version": 1, "prices": {"currency": "eur", "gpu_hours": []}},
    {"version": 1, "prices": {"currency": "EUR", "gpu_hours": [{"price": 1}]}},
    {"version": 1, "links": {"grafana": "ftp://x"}},
    {"version": 1, "budgets": {}},
    {"version": 1, "paging_namespaces": ["a", "-b"]},
)


@pytest.mark.parametrize("number", range(len(DOCUMENTS)))
def test_jsonschema_judges_by_the_published_schema_as_rankscope_does(number):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = DOCUMENTS[number]
    fine = jsonschema.Draft202012Validator(SCHEMA).is_valid(document)
    text = json.dumps(document)
    if fine:
        read(text)
    else:
        assert wrong(text)


def test_the_published_schema_is_that_of_the_program():
    assert (DOCS / "rankscope.schema.json").read_text() == schema_text()


def test_a_rendered_configuration_says_the_same():
    known = read(EXAMPLE)
    assert read(yaml.safe_dump(as_object(known))) == known


def test_the_command_checks_renders_and_shows(tmp_path, capsys):
    file = tmp_path / "rankscope.yaml"
    assert cli.main(["config", "example"]) == 0
    file.write_text(capsys.readouterr().out)
    assert cli.main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: no errors\n"
    assert cli.main(["config", "render", str(file)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["version"] == 1
    assert cli.main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
    file.write_text("version: 1\nprise: 2\nlinks: 3\n")
    assert cli.main(["config", "check", str(file)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{file}:2:1: unknown key 'prise'; did you mean prices?",
        f"{file}:3:8: links: expected keys and values, got 3",
    ]
    assert cli.main(["config", "check", str(tmp_path / "none.yaml")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_the_example_says_whom_alerts_reach_and_at_what_they_fire():
    known = read(EXAMPLE)
    assert known.owners["platform"] == Contact("#gpu-platform", "gpu-platform@example.org")
    assert known.project_owners == {"llm": Contact("#llm-training", "llm@example.org")}
    assert known.thresholds == {**DEFAULTS, "lost_share": 0.08, "cascade_jobs": 5}
    assert known.goodput == {"production": 0.96, "": 0.9}
    assert known.times_to_complete == {"": "90d", "production": "14d"}
    assert known.fabric == ("10.64.0.0/12", "fd00:64::/32")
    assert known.labels["project"] == ("example.org/cost-center", "project")
    assert known.labels["class"] == DEFAULT_LABELS["class"]


@pytest.mark.parametrize(("name", "one"), THRESHOLDS.items())
def test_a_threshold_is_taken_up_to_its_limits_and_no_further(name, one):
    for value in (one.least, one.most, one.default):
        assert read(f"version: 1\nthresholds: {{{name}: {value}}}").thresholds[name] == value
    for value in (one.least - 0.0001, one.most + 0.0001):
        said = wrong(f"version: 1\nthresholds: {{{name}: {value}}}")
        assert said.startswith(f"f.yaml:2:{16 + len(name)}: thresholds.{name}: expected ")


def test_a_threshold_that_is_none_is_named_with_what_was_meant():
    said = wrong("version: 1\nthresholds:\n  lost_shares: 0.1\n")
    assert said == "f.yaml:3:3: thresholds: unknown key 'lost_shares'; did you mean lost_share?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("owners: {platform: {}}", "f.yaml:2:20: owners.platform: expected one of slack, email"),
        ("owners: {projects: [{project: a}]}", "owners.projects.0: expected one of project, slack"),
        ("owners: {network: {slack: 'a b'}}", 'owners.network.slack: "a b" does not match'),
        ("owners: {network: {email: '{{ x }}@a'}}", "owners.network.email: "),
        ("mail: {smarthost: mail}", "f.yaml:2:7: mail: from is missing"),
        ("labels: {class: ['a b']}", 'f.yaml:2:18: labels.class.0: "a b" does not match'),
        ("labels: {klass: []}", "unknown key 'klass'; did you mean class?"),
        (
            "fabric: {ranges: [10.64.0.1/12]}",
            'f.yaml:2:19: fabric.ranges.0: "10.64.0.1/12" is not a range of addresses: '
            "10.64.0.1/12 has host bits set",
        ),
        ("fabric: {ranges: [10.0.0.0/33]}", "is not a range of addresses"),
        ("fabric: {ranges: [10.0.0.0]}", "does not match"),
        ("objectives: [{class: a, goodput: 1}]", "objectives.0.goodput: expected 0.01 to 0.9999"),
        ("objectives: [{class: a, time_to_complete: 2w}]", '"2w" does not match'),
    ],
)
def test_what_is_wrong_with_owners_labels_and_networks_is_said(text, said):
    assert said in wrong(f"version: 1\n{text}")


def test_agents_take_the_labels_of_the_configuration_by_the_flag_that_is_printed(tmp_path, capsys):
    file = tmp_path / "rankscope.yaml"
    file.write_text(EXAMPLE)
    assert cli.main(["config", "agent-flags", str(file)]) == 0
    flag, _, value = capsys.readouterr().out.strip().partition("=")
    assert flag in {one.flag for one in options_of(Config).values()}
    assert parse_job_labels(value) == {
        fact: list(labels) for fact, labels in read(EXAMPLE).labels.items()
    }


def test_the_page_lists_all_thresholds_as_they_are():
    page = (DOCS / "configuration.md").read_text()
    for name, one in THRESHOLDS.items():
        row = f"| `{name}` | {one.default:g} | {one.least:g} | {one.most:g} | {one.meaning} |"
        assert row in page.splitlines()
    assert page.count("\n| `") == len(THRESHOLDS) + page.split("## Thresholds")[0].count("\n| `")
    for key in SCHEMA["properties"]:
        assert key == "version" or f"`{key}`" in page


def test_a_configuration_has_a_mebibyte_and_twenty_levels(tmp_path):
    path = tmp_path / "rankscope.yaml"
    path.write_text("version: 1\n".ljust(1 << 20))
    assert read_file(path).value == {"version": 1}
    path.write_text("version: 1\n".ljust((1 << 20) + 1))
    with pytest.raises(ConfigurationError, match="more than 1048576 bytes"):
        read_file(path)
    assert parse("[" * 20 + "1" + "]" * 20, "f.yaml").value
    with pytest.raises(ConfigurationError, match="more than 20 levels"):
        parse("[" * 21 + "1" + "]" * 21, "f.yaml")


def test_sixty_characters_of_what_is_wrong_are_shown():
    assert f"unknown key {'k' * 60!r};" in wrong(f"version: 1\n{'k' * 99}: 2")
    assert wrong(f'version: 1\nhang_after: "{"x" * 99}"').count("x") == 59


def test_without_objectives_nineteen_of_twenty_production_jobs_should_succeed():
    known = read("version: 1")
    assert known.objectives == {"production": 0.95, "": 0.85}
    assert known.goodput == {"production": 0.95, "": 0.9}
